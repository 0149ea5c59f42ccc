// Package stage lets files appear whole or not at all: they are built in a
// directory of their own beside the target, made durable, and renamed.
package stage

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// Prefix begins the name of every staging directory.
	Prefix = ".etcdinit-seed-"
	// Mark is the file that makes a staging directory ours.
	Mark = "etcdinit-staging"

	dirMode  = 0o700
	fileMode = 0o600
)

// Owner is who owns what is written; nil leaves it to the running user.
type Owner struct{ UID, GID int }

// Dir is a staging directory. Somebody else may own the directory that it is in, and
// put another in its place: modes and owners are changed through what was opened when
// it was made.
type Dir struct {
	path string
	root *os.Root
}

// New makes a staging directory in parent. Its mark is durable before anything
// else is put there, so that a later run recognises it.
func New(parent string) (*Dir, error) {
	var random [8]byte
	_, _ = rand.Read(random[:])
	d := &Dir{path: filepath.Join(parent, Prefix+hex.EncodeToString(random[:]))}
	if err := mkdir(d.path); err != nil {
		return nil, err
	}
	h, err := OpenHandle(d.path)
	if err != nil {
		return nil, err
	}
	d.root = h.root
	err = d.WriteFile(Mark, "etcdinit: this directory is being built; a later run removes it\n")
	if err == nil {
		err = SyncDir(d.path)
	}
	if err != nil {
		return nil, errors.Join(err, d.Remove())
	}
	return d, nil
}

// Path returns the path of name in the staging directory.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Mkdir makes a directory in the staging directory, with its parents.
func (d *Dir) Mkdir(name string) error {
	at := d.path
	for part := range strings.SplitSeq(filepath.Clean(name), string(filepath.Separator)) {
		at = filepath.Join(at, part)
		if err := mkdir(at); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// mkdir makes one directory whose owner can use it whatever the umask.
func mkdir(path string) error {
	return Private(func() error { return os.Mkdir(path, dirMode) })
}

// WriteFile writes a small file in the staging directory.
func (d *Dir) WriteFile(name, content string) error {
	var f *os.File
	err := Private(func() (err error) {
		f, err = os.OpenFile(d.Path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
		return err
	})
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// Finish gives everything under name its mode and owner, and makes it durable:
// files first, then the directories that name them, at last the staging
// directory itself.
func (d *Dir) Finish(name string, owner *Owner) error {
	if err := d.still(); err != nil {
		return err
	}
	var dirs []string
	err := fs.WalkDir(d.root.FS(), filepath.ToSlash(name), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			dirs = append(dirs, path)
			return nil
		}
		return d.settle(path, fileMode, owner)
	})
	if err != nil {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err = d.settle(dir, dirMode, owner); err != nil {
			return err
		}
	}
	f, err := d.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// still: the directory is still where it was made.
func (d *Dir) still() error {
	made, err := d.root.Stat(".")
	if err != nil {
		return err
	}
	if named, err := os.Lstat(d.path); err != nil || !os.SameFile(made, named) {
		return errors.Join(fmt.Errorf("%s is not what this run has made there: somebody else has put it in its place", d.path), err)
	}
	return nil
}

// settle is for one file or directory in the staging directory. A link in it, of
// either kind, is not this run's.
func (d *Dir) settle(name string, mode fs.FileMode, owner *Owner) (err error) {
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	named, err := d.root.Lstat(name)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(named, info) || links(info) > 1 {
		return fmt.Errorf("%s is a link, which this run has not made", d.Path(name))
	}
	return settleFile(f, mode, owner)
}

// settle sets mode and owner of one file or directory, and syncs it.
func settle(path string, mode fs.FileMode, owner *Owner) (err error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the directory
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return settleFile(f, mode, owner)
}

func settleFile(f *os.File, mode fs.FileMode, owner *Owner) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm() != mode {
		if err := f.Chmod(mode); err != nil {
			return err
		}
	}
	if owner != nil {
		if err := chown(f, info, owner); err != nil {
			return err
		}
	}
	return f.Sync()
}

func chown(f *os.File, info fs.FileInfo, owner *Owner) error {
	now, known := OwnerOf(info)
	if known && now == *owner {
		return nil
	}
	if err := f.Chown(owner.UID, owner.GID); err != nil {
		return fmt.Errorf("owner of %s is %d:%d, etcd user is %d:%d: %w", f.Name(), now.UID, now.GID, owner.UID, owner.GID, err)
	}
	return nil
}

// Remove removes the staging directory with all that is in it. The mark goes last:
// a removal that was cut short is taken up by the next run.
func (d *Dir) Remove() error {
	var err error
	if d.root != nil {
		err = d.root.Close()
	}
	return errors.Join(Remove(d.path), err)
}

// Remove removes a staging directory that an earlier run left at path. What is
// removed is in the directory that was opened, never behind a link.
func Remove(path string) (err error) {
	if !strings.HasPrefix(filepath.Base(path), Prefix) {
		return fmt.Errorf("%s: not a staging directory", path)
	}
	h, err := OpenHandle(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = h.empty()
	if err = errors.Join(err, h.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}

// empty removes all that is in the directory, its mark last.
func (h *Handle) empty() error {
	entries, err := fs.ReadDir(h.root.FS(), ".")
	if err != nil {
		return err
	}
	marked := false
	for _, entry := range entries {
		if entry.Name() == Mark {
			marked = true
			continue
		}
		if err := h.root.RemoveAll(entry.Name()); err != nil {
			return err
		}
	}
	if !marked {
		return nil
	}
	if len(entries) > 1 {
		if err := h.Sync(); err != nil {
			return err
		}
	}
	return h.root.Remove(Mark)
}

// Ours tells whether the directory at path is a staging directory of this
// program: by its name and its mark, or by its name where it is empty.
func Ours(path string) bool {
	id, ok := strings.CutPrefix(filepath.Base(path), Prefix)
	if raw, err := hex.DecodeString(id); !ok || err != nil || len(raw) != 8 {
		return false
	}
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return false
	}
	if info, err := os.Lstat(filepath.Join(path, Mark)); err == nil {
		return info.Mode().IsRegular()
	}
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// SyncDir makes a directory's entries durable.
func SyncDir(path string) error {
	f, err := os.Open(path) //nolint:gosec // the operator names the directory
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// SyncFile makes a file's content durable. It opens it for reading only.
func SyncFile(path string) error { return SyncDir(path) }

// SyncParent makes the entry of path in its parent durable, where this user may
// open the parent.
func SyncParent(path string) error {
	if err := SyncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// MakeDir makes one directory with its owner. It fails if path is there.
func MakeDir(path string, owner *Owner) error {
	if err := mkdir(path); err != nil {
		return err
	}
	return settle(path, dirMode, owner)
}

// MkdirAll makes path and its missing parents, each durable in its own parent,
// and returns what it made, the outermost first. existing is the nearest parent
// that was there already, or path itself.
func MkdirAll(path string, owner func(existing fs.FileInfo) *Owner) (made []string, err error) {
	var missing []string
	at := path
	var existing fs.FileInfo
	for {
		existing, err = os.Stat(at)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if info, lerr := os.Lstat(at); lerr == nil {
			if info.Mode()&fs.ModeSymlink == 0 {
				continue // another process has made it just now
			}
			return nil, fmt.Errorf("%s is a symbolic link to something that does not exist", at)
		}
		missing = append(missing, at)
		if filepath.Dir(at) == at {
			return nil, err
		}
		at = filepath.Dir(at)
	}
	if !existing.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", at)
	}
	for _, dir := range slices.Backward(missing) {
		err := mkdir(dir)
		if err == nil {
			made = append(made, dir)
			err = settle(dir, dirMode, owner(existing))
		} else if errors.Is(err, fs.ErrExist) {
			err = nil // another process was faster; the lock decides
		}
		if err == nil {
			err = SyncDir(filepath.Dir(dir))
		}
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// Unmake removes the directories that MkdirAll made, as far as they are empty.
func Unmake(made []string) {
	for _, dir := range slices.Backward(made) {
		if os.Remove(dir) != nil {
			return
		}
	}
}

// renameAbsent is Rename for file systems that cannot refuse to replace. A
// directory never replaces one that is not empty. A file gets its new name as a
// second one, which fails where the name is taken; where there are no second
// names, the look before is as good under the directory's lock.
func renameAbsent(oldpath, newpath string) error {
	if _, err := os.Lstat(newpath); err == nil {
		return &os.LinkError{Op: "rename", Old: oldpath, New: newpath, Err: fs.ErrExist}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if info, err := os.Lstat(oldpath); err == nil && info.Mode().IsRegular() {
		err = os.Link(oldpath, newpath)
		if err == nil {
			return os.Remove(oldpath)
		}
		if errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Rename(oldpath, newpath)
}
