//go:build !linux

package stage

import "errors"

// Rename renames oldpath to newpath, and never replaces what is there.
func Rename(oldpath, newpath string) error { return renameAbsent(oldpath, newpath) }

// Exchange swaps what is at two paths, in one step. It is errors.ErrUnsupported where the
// file system cannot.
func Exchange(_, _ string) error { return errors.ErrUnsupported }
