//go:build unix

package stage

import (
	"os"
	"path/filepath"
	"testing"
)

// victimMode is a mode that no umask gives and that Finish would change.
const victimMode = 0o604

// swapped makes a staging directory with a file in it, and puts a link to a victim's
// directory in its place.
func swapped(t *testing.T) (d *Dir, victim string) {
	t.Helper()
	parent := t.TempDir()
	d, err := New(parent)
	if err != nil {
		t.Fatal(err)
	}
	victim = filepath.Join(t.TempDir(), "victim")
	if err := os.MkdirAll(filepath.Join(victim, "member"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(victim, "member", "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(victim, "member", "x"), victimMode); err != nil {
		t.Fatal(err)
	}
	return d, victim
}

func untouched(t *testing.T, victim string) {
	t.Helper()
	info, err := os.Stat(filepath.Join(victim, "member", "x"))
	if err != nil || info.Mode().Perm() != victimMode {
		t.Errorf("the victim's file: %v, %v", info, err)
	}
}

// TestSwapped: a link that was put in the place of a staging directory, or of what is
// in it, is not followed: neither mode nor owner of anything behind it changes, and
// nothing there is removed.
func TestSwapped(t *testing.T) {
	t.Parallel()
	t.Run("the directory", func(t *testing.T) {
		t.Parallel()
		d, victim := swapped(t)
		if err := os.Rename(d.path, d.path+"-away"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, d.path); err != nil {
			t.Fatal(err)
		}
		if err := d.Finish("member", nil); err == nil {
			t.Error("finished")
		}
		if err := d.Remove(); err == nil {
			t.Error("removed")
		}
		untouched(t, victim)
	})
	t.Run("a directory in it", func(t *testing.T) {
		t.Parallel()
		d, victim := swapped(t)
		if err := os.Symlink(filepath.Join(victim, "member"), d.Path("member")); err != nil {
			t.Fatal(err)
		}
		if err := d.Finish("member", nil); err == nil {
			t.Error("finished")
		}
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
		untouched(t, victim)
	})
	t.Run("a hard link in it", func(t *testing.T) {
		t.Parallel()
		d, victim := swapped(t)
		if err := d.Mkdir("member"); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(victim, "member", "x"), d.Path("member/x")); err != nil {
			t.Skip(err)
		}
		if err := d.Finish("member", nil); err == nil {
			t.Error("finished")
		}
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
		untouched(t, victim)
	})
}
