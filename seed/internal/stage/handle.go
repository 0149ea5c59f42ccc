package stage

import (
	"errors"
	"io/fs"
	"os"
)

// Handle is an open directory. What is done through it is done in this directory,
// whatever has become of the path that led to it.
type Handle struct {
	root *os.Root
	id   ID
}

// OpenHandle opens the directory at path, which must not be a symbolic link.
func OpenHandle(path string) (*Handle, error) {
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil && !os.SameFile(named, info) {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not the same directory any more")}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Handle{root, IDOf(info)}, nil
}

// ID is the directory's identity.
func (h *Handle) ID() ID { return h.id }

// Open opens a file in the directory for reading.
func (h *Handle) Open(name string) (*os.File, error) { return h.root.Open(name) }

// Has tells whether the directory has something of that name.
func (h *Handle) Has(name string) bool {
	_, err := h.root.Lstat(name)
	return err == nil
}

// Remove removes a file.
func (h *Handle) Remove(name string) error { return h.root.Remove(name) }

// WriteFile makes a small file with the directory's owner, durably but for its
// name. It fails if the name is there.
func (h *Handle) WriteFile(name, content string) error {
	f, err := h.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err == nil {
		err = f.Chmod(fileMode)
	}
	if err == nil {
		err = h.giveAway(f)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// giveAway gives a file the directory's owner, where only root can.
func (h *Handle) giveAway(f *os.File) error {
	info, err := h.root.Stat(".")
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	if owner, ok := OwnerOf(info); ok {
		return f.Chown(owner.UID, owner.GID)
	}
	return nil
}

// Sync makes the directory's entries durable.
func (h *Handle) Sync() error {
	f, err := h.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Close closes the handle.
func (h *Handle) Close() error { return h.root.Close() }
