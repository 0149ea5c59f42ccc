package seed_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/seed"
)

// TestRelease: the mark goes, again without harm, and comes back.
func TestRelease(t *testing.T) {
	bothLayouts(t, func(t *testing.T, spec seed.Spec) {
		t.Helper()
		p := mustBear(t, spec)
		st := mustInspect(t, spec)
		pending := func(want bool) {
			t.Helper()
			now, err := seed.Verify(spec.DataDir, spec.WALDir, true)
			if err != nil || now.Pending != want || !now.Pristine || now.Record == nil {
				t.Errorf("want pending=%t: %+v, %v", want, now, err)
			}
		}
		for _, step := range []struct {
			do   func(*seed.State) error
			want bool
		}{{seed.Release, false}, {seed.Release, false}, {seed.Unrelease, true}, {seed.Unrelease, true}, {seed.Release, false}} {
			if err := step.do(st); err != nil {
				t.Fatal(err)
			}
			pending(step.want)
		}
		// A sight of the pending seed is good for its release, however much later.
		if err := seed.Release(mustInspect(t, spec)); err != nil {
			t.Error(err)
		}
		if err := seed.Unrelease(st); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(markOf(p)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
	})
}

// TestReleaseFirstEdition: a seed without a record.
func TestReleaseFirstEdition(t *testing.T) {
	spec := trio(t.TempDir(), "m1")
	firstEdition(t, spec)
	st := mustInspect(t, spec)
	if err := seed.Release(st); err != nil {
		t.Fatal(err)
	}
	if now := mustInspect(t, spec); now.Pending || now.Kind != seed.Valid {
		t.Errorf("%+v", now)
	}
	if err := seed.Unrelease(st); err != nil {
		t.Fatal(err)
	}
	if now := mustInspect(t, spec); !now.Pending {
		t.Errorf("%+v", now)
	}
	// A record has appeared: it is another seed.
	write(t, filepath.Join(spec.DataDir, recordPath), "{}")
	if err := seed.Release(st); kindOf(err) != seed.Changed {
		t.Errorf("%v, want Changed", err)
	}
}

// TestReleaseRefuses whatever is not the directory that was inspected.
func TestReleaseRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(t *testing.T, spec seed.Spec)
	}{
		{"member gone", func(t *testing.T, spec seed.Spec) {
			t.Helper()
			rename(t, spec.DataDir+"/member", spec.DataDir+".aside")
		}},
		{"another seed of the same birth in its place", func(t *testing.T, spec seed.Spec) {
			t.Helper()
			rename(t, spec.DataDir+"/member", spec.DataDir+".aside")
			if err := os.CopyFS(spec.DataDir+"/member", os.DirFS(spec.DataDir+".aside")); err != nil {
				t.Fatal(err)
			}
		}},
		{"a link to it in its place", func(t *testing.T, spec seed.Spec) {
			t.Helper()
			rename(t, spec.DataDir+"/member", spec.DataDir+".aside")
			if err := os.Symlink(spec.DataDir+".aside", spec.DataDir+"/member"); err != nil {
				t.Fatal(err)
			}
		}},
		{"another birth's record", func(t *testing.T, spec seed.Spec) {
			t.Helper()
			other := trio(t.TempDir(), "m1")
			mustBearOn(t, other, mustPrepare(t, other), "b")
			remove(t, filepath.Join(spec.DataDir, recordPath))
			rename(t, filepath.Join(other.DataDir, recordPath), filepath.Join(spec.DataDir, recordPath))
		}},
		{"no record", func(t *testing.T, spec seed.Spec) {
			t.Helper()
			remove(t, filepath.Join(spec.DataDir, recordPath))
		}},
		{"a record that cannot be read", func(t *testing.T, spec seed.Spec) {
			t.Helper()
			write(t, filepath.Join(spec.DataDir, recordPath), "x")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			spec := trio(filepath.Join(root, "data"), "m1")
			mustBear(t, spec)
			st := mustInspect(t, spec)
			tc.edit(t, spec)
			before := tree(t, root)
			for _, do := range []func(*seed.State) error{seed.Release, seed.Unrelease} {
				if err := do(st); kindOf(err) != seed.Changed {
					t.Errorf("%v, want Changed", err)
				}
			}
			if after := tree(t, root); !slices.Equal(before, after) {
				t.Errorf("changed:\n%s\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
			if err := seed.Confirm(st); kindOf(err) != seed.Changed {
				t.Errorf("confirmed: %v", err)
			}
		})
	}
	empty := trio(t.TempDir(), "m1")
	mustPrepare(t, empty)
	if err := seed.Release(mustInspect(t, empty)); kindOf(err) != seed.Changed {
		t.Errorf("nothing to release: %v", err)
	}
}

// TestConfirm: only what is whole, and still there, may be said.
func TestConfirm(t *testing.T) {
	bothLayouts(t, func(t *testing.T, spec seed.Spec) {
		t.Helper()
		confirm := func(name string, st *seed.State, want seed.ErrorKind) {
			t.Helper()
			if err := seed.Confirm(st); kindOf(err) != want || want == 0 && err != nil {
				t.Errorf("%s: %v, want kind %d", name, err, want)
			}
		}
		confirm("nothing", mustInspect(t, spec), seed.Changed)
		d := mustPrepare(t, spec)
		prepared := mustInspect(t, spec)
		confirm("prepared", prepared, 0)
		mustBearOn(t, spec, d, "a")
		confirm("prepared, but bound meanwhile", prepared, seed.Changed)
		born := mustInspect(t, spec)
		confirm("born", born, 0)
		if err := seed.Release(born); err != nil {
			t.Fatal(err)
		}
		confirm("born, but released meanwhile", born, seed.Changed)
		released := mustInspect(t, spec)
		confirm("released", released, 0)
		// A run was killed before it had used the ID up.
		for _, side := range sidesOf(spec) {
			write(t, filepath.Join(side, diskDir, string(d), "disk"), "{}")
			confirm("with its disk ID", mustInspect(t, spec), seed.Changed)
			if removed, err := seed.Clean(spec.DataDir, spec.WALDir); err != nil || !slices.Equal(removed, []string{filepath.Join(side, diskDir)}) {
				t.Errorf("cleaned %v, %v", removed, err)
			}
		}
		confirm("without again", mustInspect(t, spec), 0)
		remove(t, filepath.Join(spec.DataDir, "member"))
		confirm("gone", released, seed.Changed)
	})
}

// TestWithdraw: everything is still there, and the directory is empty without an ID.
func TestWithdraw(t *testing.T) {
	bothLayouts(t, func(t *testing.T, spec seed.Spec) {
		t.Helper()
		var disks []seed.DiskID
		for n := range 3 {
			d := mustPrepare(t, spec)
			if slices.Contains(disks, d) {
				t.Errorf("disk %s is used twice", d)
			}
			disks = append(disks, d)
			p := mustPlan(t, spec).Born(rosterOf(t, spec, d, "a"), true)
			if err := p.Apply(t.Context(), nop); err != nil {
				t.Fatal(err)
			}
			if n == 0 { // a name that is taken
				write(t, filepath.Join(spec.DataDir, "etcdinit-withdrawn-"+p.ClusterID.String(), "x"), "")
			}
			if n == 1 { // the run that committed was killed before it had used the ID up
				for _, side := range sidesOf(spec) {
					wal := ""
					if spec.WALDir != "" {
						wal = `,"walDir":"x"`
					}
					write(t, filepath.Join(side, diskDir, string(d), "disk"), `{"version":1,"diskID":"`+string(d)+`"`+wal+`}`)
				}
			}
			st := mustInspect(t, spec)
			aside, err := seed.Withdraw(spec.DataDir, spec.WALDir, nop)
			if err != nil {
				t.Fatal(err)
			}
			name := "etcdinit-withdrawn-" + p.ClusterID.String()
			if n == 0 {
				name += "-2"
			}
			if len(aside) != len(sidesOf(spec)) || aside[len(aside)-1] != filepath.Join(spec.DataDir, name) {
				t.Errorf("aside %v", aside)
			}
			segment := filepath.Join(aside[0], firstSegment)
			if spec.WALDir == "" {
				segment = filepath.Join(aside[0], "member", "wal", firstSegment)
			}
			for _, path := range []string{segment, filepath.Join(aside[len(aside)-1], recordPath), filepath.Join(aside[len(aside)-1], "member", "snap", "db")} {
				if _, err := os.Stat(path); err != nil {
					t.Error(err)
				}
			}
			now := mustInspect(t, spec)
			if now.Kind != seed.Empty || now.DiskID != "" || now.Unfinished || len(now.Leftovers)+len(now.Ignored) > 0 {
				t.Errorf("%+v", now)
			}
			if len(now.Withdrawn) != n+1 || !slices.Contains(now.Withdrawn, p.ClusterID) {
				t.Errorf("withdrawn from %v, want %s among %d", now.Withdrawn, p.ClusterID, n+1)
			}
			wantNoDisk(t, spec)
			if err := seed.Release(st); kindOf(err) != seed.Changed {
				t.Errorf("release of what was withdrawn: %v", err)
			}
		}
	})
}

// TestWithdrawRefuses all but a pending seed that no etcd has run on.
func TestWithdrawRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(t *testing.T, spec seed.Spec)
		want seed.ErrorKind
	}{
		{"nothing", func(*testing.T, seed.Spec) {}, seed.Foreign},
		{"prepared", func(t *testing.T, spec seed.Spec) { t.Helper(); mustPrepare(t, spec) }, seed.Foreign},
		{"released", func(t *testing.T, spec seed.Spec) {
			t.Helper()
			mustBear(t, spec)
			if err := seed.Release(mustInspect(t, spec)); err != nil {
				t.Fatal(err)
			}
		}, seed.Foreign},
		{"an etcd has run", func(t *testing.T, spec seed.Spec) {
			t.Helper()
			mustBear(t, spec)
			dir := spec.WALDir
			if dir == "" {
				dir = spec.DataDir + "/member/wal"
			}
			appendState(t, filepath.Join(dir, firstSegment))
		}, seed.Foreign},
		{"broken", func(t *testing.T, spec seed.Spec) {
			t.Helper()
			mustBear(t, spec)
			remove(t, spec.DataDir+"/member/snap/db")
		}, seed.Damaged},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bothLayouts(t, func(t *testing.T, spec seed.Spec) {
				t.Helper()
				tc.make(t, spec)
				root := filepath.Dir(spec.DataDir)
				before := tree(t, root)
				if aside, err := seed.Withdraw(spec.DataDir, spec.WALDir, nop); kindOf(err) != tc.want || len(aside) > 0 {
					t.Errorf("%v, %v", aside, err)
				}
				if after := tree(t, root); !slices.Equal(before, after) {
					t.Errorf("changed:\n%s\n%s", before, after)
				}
			})
		})
	}
}

// TestUnfinished goes through what a commit leaves that is cut short: it is
// completed where everything is there, and taken back where it is not. The disk
// keeps its ID, since others may have committed to it.
func TestUnfinished(t *testing.T) {
	const full, back = true, false
	for _, tc := range []struct {
		name     string
		separate bool
		edit     func(t *testing.T, c *cut)
		want     bool
	}{
		{"bound", false, func(_ *testing.T, c *cut) { c.member() }, full},
		{"bound, damaged", false, func(t *testing.T, c *cut) {
			t.Helper()
			c.member()
			write(t, c.disk(c.DataDir)+"/member/snap/db", "x")
		}, back},
		{"bound, without its record", false, func(t *testing.T, c *cut) {
			t.Helper()
			c.member()
			remove(t, c.disk(c.DataDir)+"/"+recordPath)
		}, back},
		{"bound, of another disk", false, func(t *testing.T, c *cut) {
			t.Helper()
			other := trio(t.TempDir(), "m1")
			mustBear(t, other)
			remove(t, c.DataDir+"/member")
			rename(t, other.DataDir+"/member", c.disk(c.DataDir)+"/member")
		}, back},
		{"bound, an empty skeleton in its place", false, func(t *testing.T, c *cut) {
			t.Helper()
			c.member()
			if err := os.MkdirAll(c.DataDir+"/member/wal", 0o700); err != nil {
				t.Fatal(err)
			}
		}, full},
		{"both bound", true, func(_ *testing.T, c *cut) { c.member(); c.log() }, full},
		{"the database bound", true, func(t *testing.T, c *cut) { t.Helper(); c.member(); remove(t, c.WALDir+"/"+firstSegment) }, back},
		{"the log bound", true, func(t *testing.T, c *cut) { t.Helper(); c.log(); remove(t, c.DataDir+"/member") }, back},
		{"the database settled, the log bound", true, func(_ *testing.T, c *cut) { c.log() }, full},
		{"the database settled, the log empty", true, func(t *testing.T, c *cut) {
			t.Helper()
			c.log()
			remove(t, c.disk(c.WALDir)+"/wal/"+firstSegment)
		}, back},
		{"the database settled, no log", true, func(t *testing.T, c *cut) { t.Helper(); remove(t, c.WALDir+"/"+firstSegment) }, back},
		{"two births", true, func(t *testing.T, c *cut) {
			t.Helper()
			c.member()
			c.log()
			other := trio(t.TempDir(), "m1")
			mustBear(t, other)
			remove(t, c.disk(c.WALDir)+"/wal")
			rename(t, other.DataDir+"/member/wal", c.disk(c.WALDir)+"/wal")
		}, back},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			c := &cut{t: t, Spec: trio(root+"/data", "m1")}
			if tc.separate {
				c.WALDir = root + "/wal"
			}
			c.id = mustPrepare(t, c.Spec)
			for _, side := range sidesOf(c.Spec) {
				if err = os.CopyFS(side+".token", os.DirFS(filepath.Join(side, diskDir))); err != nil {
					t.Fatal(err)
				}
			}
			p := mustBearOn(t, c.Spec, c.id, "a")
			for _, side := range sidesOf(c.Spec) {
				rename(t, side+".token", filepath.Join(side, diskDir))
			}
			if tc.separate {
				write(t, c.DataDir+"/member/etcdinit-no-wal-yet", "")
			}
			tc.edit(t, c)

			before := tree(t, root)
			st := mustInspect(t, c.Spec)
			if st.Kind != seed.Empty || len(st.Leftovers) == 0 || st.DiskID != "" || st.Unfinished == (tc.name == "the database settled, no log") {
				t.Errorf("%+v", st)
			}
			if !slices.Equal(before, tree(t, root)) {
				t.Error("Inspect has changed the directory")
			}
			if err = seed.Confirm(st); kindOf(err) != seed.Changed {
				t.Errorf("confirmed: %v", err)
			}
			if _, err = seed.Clean(c.DataDir, c.WALDir); err != nil {
				t.Fatal(err)
			}
			st, err = seed.Verify(c.DataDir, c.WALDir, true)
			if err != nil {
				t.Fatal(err)
			}
			if len(st.Leftovers)+len(st.Foreign) > 0 || st.Unfinished {
				t.Errorf("%+v", st)
			}
			if tc.want == full {
				wantNoDisk(t, c.Spec)
				if st.Kind != seed.Valid || st.ClusterID != p.ClusterID || !st.Pending || st.Record.DiskID != c.id {
					t.Errorf("%+v", st)
				}
				return
			}
			if st.Kind != seed.Empty || st.DiskID != c.id {
				t.Errorf("%+v", st)
			}
			mustBearOn(t, c.Spec, c.id, "b")
		})
	}
}

// cut is a finished birth, of which steps are undone.
type cut struct {
	seed.Spec
	t  *testing.T
	id seed.DiskID
}

func (c *cut) disk(side string) string { return filepath.Join(side, diskDir, string(c.id)) }

func (c *cut) member() {
	c.t.Helper()
	rename(c.t, c.DataDir+"/member", c.disk(c.DataDir)+"/member")
}

func (c *cut) log() {
	c.t.Helper()
	write(c.t, c.disk(c.WALDir)+"/wal/x", "")
	remove(c.t, c.disk(c.WALDir)+"/wal/x")
	rename(c.t, c.WALDir+"/"+firstSegment, c.disk(c.WALDir)+"/wal/"+firstSegment)
}

// TestSettled: a seed that is there already stays, and what was bound goes.
func TestSettled(t *testing.T) {
	spec := trio(t.TempDir(), "m1")
	d := mustPrepare(t, spec)
	other := trio(t.TempDir(), "m1")
	mustBear(t, other)
	rename(t, other.DataDir+"/member", filepath.Join(spec.DataDir, diskDir, string(d), "member"))
	mustApplyBeside(t, spec)
	if removed, err := seed.Clean(spec.DataDir, ""); err != nil || len(removed) != 1 {
		t.Errorf("%v, %v", removed, err)
	}
	wantNoDisk(t, spec)
	if st := mustInspect(t, spec); st.Kind != seed.Valid || st.Record.Kind != seed.RecordComputed || len(st.Leftovers) > 0 {
		t.Errorf("%+v", st)
	}
}

// mustApplyBeside puts a computed seed into a directory, whatever else is in it.
func mustApplyBeside(t *testing.T, spec seed.Spec) {
	t.Helper()
	made := trio(t.TempDir(), "m1")
	mustApply(t, made)
	if err := os.Rename(made.DataDir+"/member", spec.DataDir+"/member"); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
}
