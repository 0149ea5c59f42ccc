//go:build !unix || solaris || illumos || aix

package stage

import (
	"errors"
	"io/fs"
)

// Supported tells whether directories can be locked, synced and renamed as seeding needs it.
const Supported = false

// ErrBusy means that another process holds the lock of the directory.
var ErrBusy = errors.New("locked by another process")

// Lock is held on a directory while it is worked in.
type Lock struct{}

// Acquire is not supported here.
func Acquire(string) (*Lock, bool, error) { return nil, false, errors.ErrUnsupported }

// Release does nothing.
func (l *Lock) Release() error { return nil }

// OwnerOf is not known here.
func OwnerOf(fs.FileInfo) (Owner, bool) { return Owner{}, false }

// links is not known here.
func links(fs.FileInfo) uint64 { return 1 }

// ID is not known here.
type ID struct{ there bool }

// Known tells whether the ID is of something that is there.
func (id ID) Known() bool { return id.there }

// IDOf says no more than that something is there.
func IDOf(fs.FileInfo) ID { return ID{true} }

// SameDevice is not supported here.
func SameDevice(string, string) (bool, error) { return false, errors.ErrUnsupported }

// Free is not known here.
func Free(string) (int64, bool, error) { return 0, false, nil }

// Private runs fn.
func Private(fn func() error) error { return fn() }
