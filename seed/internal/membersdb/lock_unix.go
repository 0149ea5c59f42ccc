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
// A file system without locks cannot tell a running etcd; that is no damage.
func lockShared(f *os.File, wait time.Duration) error {
	return lock(f, wait, unix.Flock)
}

func lock(f *os.File, wait time.Duration, flock func(fd, how int) error) error {
	deadline := time.After(wait)
	for {
		err := flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		switch {
		case err == nil, errors.Is(err, unix.EBADF), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOLCK):
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
