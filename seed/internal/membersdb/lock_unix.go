//go:build unix && !solaris && !illumos && !aix

package membersdb

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockTimeout bounds bbolt's own wait for the lock that is already held.
const lockTimeout = 500 * time.Millisecond

// lockShared takes the lock that bbolt's read-only mode takes: it excludes a
// running etcd and nobody else. Closing the file gives it back.
func lockShared(f *os.File, wait time.Duration) error {
	deadline := time.After(wait)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return os.NewSyscallError("flock", err)
		}
		select {
		case <-deadline:
			return ErrLocked
		case <-time.After(20 * time.Millisecond):
		}
	}
}
