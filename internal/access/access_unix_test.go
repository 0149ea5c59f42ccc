//go:build unix

package access

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLooksOnly: what can be written is told from what cannot, and nothing is made.
func TestLooksOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"link": "file", "dangling": "nowhere/at/all"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name string
		err  error
		want string // "" for none
	}{
		{"directory", Dir(dir), ""},
		{"directory to be made", Dir(filepath.Join(dir, "a", "b")), ""},
		{"a file where a directory is wanted", Dir(file), "is not a directory"},
		{"below a file", Dir(filepath.Join(file, "x")), "not a directory"},
		{"below a dangling link", Dir(filepath.Join(dir, "dangling", "x")), "does not exist"},
		{"file", File(file, false), ""},
		{"file, in place", File(file, true), ""},
		{"new file", File(filepath.Join(dir, "new", "file"), false), ""},
		{"file by a link", File(filepath.Join(dir, "link"), false), ""},
		{"no file but a directory", File(dir, false), "is a directory"},
		{"device", File(os.DevNull, false), ""},
	}
	for _, tt := range tests {
		got := ""
		if tt.err != nil {
			got = tt.err.Error()
		}
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("%d entries, want the 3 that were there (%v)", len(entries), err)
	}
}

// TestNoRight: a user without the right is told before the write.
func TestNoRight(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{Dir(dir), Dir(filepath.Join(dir, "x")), File(filepath.Join(dir, "x"), false)} {
		if pe, ok := err.(*fs.PathError); !ok || pe.Path != dir || !os.IsPermission(err) { //nolint:errorlint // promised
			t.Errorf("got %v", err)
		}
	}
}

// TestPlanted: a link of somebody else in a directory where everybody may write is
// not followed, whatever the sysctl says.
func TestPlanted(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives links away")
	}
	for _, tt := range []struct {
		name        string
		mode        fs.FileMode
		owner       int
		wantRefusal bool
	}{
		{"sticky, another's", 0o777 | fs.ModeSticky, 1234, true},
		{"open to all, another's", 0o777, 1234, true},
		{"sticky, own", 0o777 | fs.ModeSticky, 0, false},
		{"not open, another's", 0o755, 1234, false},
	} {
		dir := t.TempDir()
		link := filepath.Join(dir, "out")
		if err := os.Symlink(filepath.Join(t.TempDir(), "target"), link); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(link, tt.owner, tt.owner); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, tt.mode); err != nil {
			t.Fatal(err)
		}
		if err := Planted(link); (err != nil) != tt.wantRefusal {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
