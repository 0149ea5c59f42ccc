//go:build unix

package access

import (
	"io/fs"
	"os"
	"syscall"

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

// trusted: the link's owner is this user, or the owner of the directory that it is in.
func trusted(link, dir fs.FileInfo) bool {
	l, ok := link.Sys().(*syscall.Stat_t)
	d, also := dir.Sys().(*syscall.Stat_t)
	return ok && also && (int(l.Uid) == os.Geteuid() || l.Uid == d.Uid)
}
