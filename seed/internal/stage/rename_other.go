//go:build !linux

package stage

// Rename renames oldpath to newpath, and never replaces what is there.
func Rename(oldpath, newpath string) error { return renameAbsent(oldpath, newpath) }
