// Package access tells whether something can be written, without a write.
package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir tells whether this user can make a file in the directory at path, or make the
// directory itself where it is missing. It writes nothing. Its error is an
// *os.PathError that names what cannot be written, or what is in the way.
func Dir(path string) error {
	at, info, err := nearest(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &os.PathError{Op: "write", Path: at, Err: errors.New("is not a directory")}
	}
	return writable(at, true)
}

// File tells whether a file can be written at path. In place: what is there is
// opened and written to. Otherwise, a regular file is replaced by a new one, which
// needs its directory.
func File(path string, inPlace bool) error {
	if err := Planted(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return &os.PathError{Op: "write", Path: path, Err: errors.New("is a directory, want the name of a file")}
	case err == nil && (inPlace || !info.Mode().IsRegular()):
		return writable(path, false)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return Dir(filepath.Dir(path))
}

// Planted refuses a symbolic link at path that somebody else can have put there: in a
// directory where everybody may make files (sticky or not), a link counts only if it
// is this user's or the directory's owner's. Linux has a sysctl for it, which need not
// be on (protected_symlinks).
func Planted(path string) error {
	link, err := os.Lstat(path)
	if err != nil || link.Mode()&fs.ModeSymlink == 0 {
		return nil //nolint:nilerr // what is not there is no link
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil || dir.Mode().Perm()&0o002 == 0 {
		return err
	}
	if trusted(link, dir) {
		return nil
	}
	return &os.PathError{Op: "write", Path: path, Err: errors.New("is a symbolic link that somebody else has put into a directory where everybody may write; it is not followed")}
}

// nearest is path or its nearest parent that is there.
func nearest(path string) (string, fs.FileInfo, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", nil, err
	}
	for {
		info, err := os.Stat(path)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return path, info, err
		}
		if _, lerr := os.Lstat(path); lerr == nil {
			return "", nil, &os.PathError{Op: "write", Path: path, Err: fmt.Errorf("is a symbolic link to something that does not exist: %w", fs.ErrInvalid)}
		}
		if filepath.Dir(path) == path {
			return "", nil, err
		}
		path = filepath.Dir(path)
	}
}
