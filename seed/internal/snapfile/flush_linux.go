package snapfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// flush asks the system to begin writing a part of f out. It is only for speed.
func flush(f *os.File, from, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), from, n, unix.SYNC_FILE_RANGE_WRITE) //nolint:errcheck // what fails here, the sync at the end tells
}

// Clone makes dst share the blocks of src, where the file system can do that.
func Clone(dst, src *os.File) bool {
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil
}
