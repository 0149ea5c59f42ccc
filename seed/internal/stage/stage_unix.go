//go:build unix && !solaris && !illumos && !aix

package stage

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported tells whether directories can be locked, synced and renamed as seeding needs it.
const Supported = true

// ErrBusy means that another process holds the lock of the directory.
var ErrBusy = errors.New("locked by another process")

// Lock is held on a directory while it is worked in. It ends with the process.
type Lock struct{ f *os.File }

// Acquire locks the directory at path. It writes nothing: the lock is the
// directory's own. Held is false where the file system knows no such locks; the
// commit, a rename that never replaces anything, is safe without. A directory
// that somebody removed and made anew in between is busy: its lock is another.
func Acquire(path string) (lock *Lock, held bool, err error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the directory
	if err != nil {
		return nil, false, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			if !stillAt(f, path) {
				return nil, false, errors.Join(ErrBusy, f.Close())
			}
			return &Lock{f}, true, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, false, errors.Join(ErrBusy, f.Close())
		case errors.Is(err, unix.EBADF), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOLCK):
			return &Lock{f}, false, nil
		}
		return nil, false, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, f.Close())
	}
}

// stillAt tells whether path still names the open directory.
func stillAt(f *os.File, path string) bool {
	locked, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(locked, named)
}

// Release gives the lock back. Closing alone would leave it to a child that is
// being started at this moment.
func (l *Lock) Release() error {
	_ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN) //nolint:errcheck // without locks there is nothing to give back
	return l.f.Close()
}

// OwnerOf returns who owns what info describes.
func OwnerOf(info fs.FileInfo) (Owner, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Owner{}, false
	}
	return Owner{UID: int(st.Uid), GID: int(st.Gid)}, true
}

// links is how many names a file has; 1 for a directory, which no user can link.
func links(info fs.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.IsDir() {
		return 1
	}
	return uint64(st.Nlink) //nolint:unconvert // its type differs by platform
}

// ID is the identity of a file or directory; the zero value is for what is not there.
type ID struct{ dev, ino uint64 }

// Known tells whether the ID is of something that is there.
func (id ID) Known() bool { return id != ID{} }

// IDOf returns the identity of what info describes.
func IDOf(info fs.FileInfo) ID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ID{}
	}
	return ID{uint64(st.Dev), uint64(st.Ino)} //nolint:unconvert // their types differ by platform
}

// SameDevice tells whether two paths lie on one file system.
func SameDevice(a, b string) (bool, error) {
	var sa, sb unix.Stat_t
	if err := unix.Stat(a, &sa); err != nil {
		return false, &os.PathError{Op: "stat", Path: a, Err: err}
	}
	if err := unix.Stat(b, &sb); err != nil {
		return false, &os.PathError{Op: "stat", Path: b, Err: err}
	}
	return sa.Dev == sb.Dev, nil
}

// Free returns the bytes that a user without privileges can still write on the
// file system of path; known is false where it does not say.
func Free(path string) (free int64, known bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, false, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if st.Blocks == 0 {
		return 0, false, nil
	}
	// The types of both differ by platform.
	return int64(st.Bavail) * int64(st.Bsize), true, nil //nolint:gosec,unconvert // no file system has 8 EiB free
}

// umaskLock guards the umask, which is one for the whole process.
var umaskLock sync.Mutex //nolint:gochecknoglobals // guards a thing that is itself global

// Private runs fn with a umask that leaves the owner all rights and others none:
// etcd's WAL and bbolt open what they have just made, and a umask of 0777 would
// lock even the owner out.
func Private(fn func() error) error {
	umaskLock.Lock()
	defer umaskLock.Unlock()
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	return fn()
}
