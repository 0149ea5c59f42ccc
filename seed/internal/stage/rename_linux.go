package stage

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Exchange swaps what is at two paths, in one step. It is errors.ErrUnsupported where the
// file system cannot.
func Exchange(a, b string) error {
	for {
		err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
			err = errors.ErrUnsupported // NFS, FUSE
		}
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
}

// Rename renames oldpath to newpath, and never replaces what is there.
func Rename(oldpath, newpath string) error {
	for {
		err := unix.Renameat2(unix.AT_FDCWD, oldpath, unix.AT_FDCWD, newpath, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
			return renameAbsent(oldpath, newpath) // NFS, FUSE
		}
		return &os.LinkError{Op: "rename", Old: oldpath, New: newpath, Err: err}
	}
}
