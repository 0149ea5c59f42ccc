//go:build unix && !solaris && !illumos && !aix

package membersdb

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLockErrors: a file system without locks is read all the same, a lock that is
// held is busy, and what else fails is told.
func TestLockErrors(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	for _, tt := range []struct{ flock, want error }{
		{nil, nil},
		{unix.EOPNOTSUPP, nil},
		{unix.ENOLCK, nil},
		{unix.ENOSYS, nil},
		{unix.EWOULDBLOCK, ErrLocked},
		{unix.EIO, unix.EIO},
	} {
		if err := lock(f, 0, func(int, int) error { return tt.flock }); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("flock says %v: got %v, want %v", tt.flock, err, tt.want)
		}
	}
}
