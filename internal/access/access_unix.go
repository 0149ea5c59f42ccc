//go:build unix

package access

import (
	"os"

	"golang.org/x/sys/unix"
)

// writable asks the system: it knows of read-only mounts, ACLs and capabilities.
func writable(path string, dir bool) error {
	var mode uint32 = unix.W_OK
	if dir {
		mode |= unix.X_OK
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
