package seed_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdinit/etcdinit/seed"
)

// TestApplyTwice is WB-59: the second run changes no byte.
func TestApplyTwice(t *testing.T) {
	dir := t.TempDir()
	p := mustApply(t, trio(dir, "m1"))
	before := tree(t, dir)
	if err := p.Apply(t.Context(), nop); kindOf(err) != seed.Changed {
		t.Errorf("second run: %v, want Changed: initialised meanwhile", err)
	}
	if after := tree(t, dir); !slices.Equal(before, after) {
		t.Error("the second run has changed the directory")
	}
	other := mustPlan(t, trio(dir, "m2"))
	if err := other.Apply(t.Context(), nop); kindOf(err) != seed.Foreign || !strings.Contains(err.Error(), "4036b1db24775ea0") {
		t.Errorf("another member: %v, want Foreign", err)
	}
}

// TestApplyRace lets many seed one directory, which none has made yet: one does,
// and the others say so. A loser that took away the directory it had made would
// let two work in it, each with a lock.
func TestApplyRace(t *testing.T) {
	for range 20 {
		race(t, filepath.Join(t.TempDir(), "data"))
	}
}

func race(t *testing.T, dir string) {
	t.Helper()
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		p := mustPlan(t, trio(dir, "m1"))
		wg.Go(func() { errs[i] = p.Apply(t.Context(), nop) })
	}
	wg.Wait()
	done := 0
	for _, err := range errs {
		if err == nil {
			done++
		} else if kindOf(err) != seed.Busy && kindOf(err) != seed.Changed {
			t.Errorf("%v, want Busy", err)
		}
	}
	if done != 1 {
		t.Errorf("%d of %d seeded, want 1", done, len(errs))
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if _, err := seed.Verify(dir, "", true); err != nil {
		t.Error(err)
	}
}

// TestPrepareRace lets many prepare one directory, which none has made yet: they end
// up with one ID. Then they commit to rosters of their own, and one does.
func TestPrepareRace(t *testing.T) {
	bothLayouts(t, func(t *testing.T, spec seed.Spec) {
		t.Helper()
		together := func(fn func(i int) error) (done int) {
			errs := make([]error, 8)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { errs[i] = fn(i) })
			}
			wg.Wait()
			for _, err := range errs {
				if err == nil {
					done++
				} else if kindOf(err) != seed.Busy {
					t.Errorf("%v, want Busy", err)
				}
			}
			return done
		}
		if together(func(int) error { return seed.Prepare(spec, nop) }) == 0 {
			t.Error("nobody has prepared")
		}
		d := mustPrepare(t, spec)
		done := together(func(i int) error {
			return mustPlan(t, spec).Born(rosterOf(t, spec, d, string(rune('a'+i%6))), true).Apply(t.Context(), nop)
		})
		if done != 1 {
			t.Errorf("%d have committed, want 1", done)
		}
		if st, err := seed.Verify(spec.DataDir, spec.WALDir, true); err != nil || st.Record.DiskID != d || len(st.Leftovers) > 0 {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

// cancelled is a context that ends at the n-th look.
type cancelled struct {
	context.Context //nolint:containedctx // a fake
	left            int
	cancel          context.CancelCauseFunc
}

func (c *cancelled) Err() error {
	c.left--
	if c.left < 0 {
		c.cancel(errStop)
	}
	return c.Context.Err()
}

var errStop = errors.New("stop")

// TestApplyCancelled: until the rename a signal leaves nothing behind.
func TestApplyCancelled(t *testing.T) {
	for n := range 20 {
		root := t.TempDir()
		spec := trio(filepath.Join(root, "a", "data"), "m1")
		if n%2 == 1 {
			spec.WALDir = filepath.Join(root, "b", "wal")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		err := mustPlan(t, spec).Apply(&cancelled{ctx, n, cancel}, nop)
		cancel(nil)
		if err == nil {
			if n < 5 {
				t.Errorf("only %d looks at the context", n)
			}
			return
		}
		if !errors.Is(err, errStop) {
			t.Errorf("look %d: %v, want the context's cause", n, err)
		}
		if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
			t.Errorf("look %d: left behind %v, %v", n, entries, err)
		}
	}
	t.Error("never done")
}

// TestLeftovers is DL-06: what a killed run left goes, and only that.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	ours := filepath.Join(dir, ".etcdinit-seed-00112233445566aa")
	empty := filepath.Join(dir, ".etcdinit-seed-00112233445566bb")
	theirs := []string{
		filepath.Join(dir, "member.part", "wal", firstSegment),
		filepath.Join(dir, ".etcdinit-seed-00112233445566cc", "x"),
		filepath.Join(dir, ".etcdinit-seed-short", "etcdinit-staging"),
		filepath.Join(dir, "lost+found", "x"),
	}
	write(t, filepath.Join(ours, "etcdinit-staging"), "")
	write(t, filepath.Join(ours, "member", "snap", "db"), "half")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range theirs {
		write(t, path, "theirs")
	}
	st, err := seed.Inspect(dir, "")
	if err != nil || !slices.Equal(st.Leftovers, []string{ours, empty}) || len(st.Foreign) != 3 || st.Kind != seed.Empty {
		t.Fatalf("%+v, %v", st, err)
	}
	core, logs := observer.New(zap.InfoLevel)
	if err = mustPlan(t, trio(dir, "m1")).Apply(t.Context(), zap.New(core)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{ours, empty} {
		if logs.FilterMessage("removed incomplete staging directory "+path+" from an earlier run").Len() != 1 {
			t.Errorf("no line for %s: %v", path, logs.All())
		}
	}
	for _, path := range theirs {
		if text, rerr := os.ReadFile(path); rerr != nil || string(text) != "theirs" {
			t.Errorf("%s: %q, %v", path, text, rerr)
		}
	}
	removed, err := seed.Clean(dir, "")
	if err != nil || len(removed) > 0 {
		t.Errorf("second clean: %v, %v", removed, err)
	}
}

// half makes the state between the two renames of a separate wal-dir.
func half(t *testing.T, data, wal string) {
	t.Helper()
	spec := trio(data, "m1")
	spec.WALDir = wal
	mustBear(t, spec)
	remove(t, filepath.Join(wal, firstSegment))
	write(t, filepath.Join(data, "member", "etcdinit-no-wal-yet"), "etcdinit: this database waits for its write-ahead log\n")
}

// TestHalf: a database without its log is ours to redo only while our mark is
// beside it and no etcd has written in it.
func TestHalf(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(t *testing.T, data, wal string)
		ours bool
	}{
		{"as the crash left it", func(*testing.T, string, string) {}, true},
		{"no mark", func(t *testing.T, data, _ string) {
			t.Helper()
			remove(t, data+"/member/etcdinit-no-wal-yet")
		}, false},
		{"used since", func(t *testing.T, data, _ string) {
			t.Helper()
			bump(t, data)
		}, false},
		{"a snapshot", func(t *testing.T, data, _ string) {
			t.Helper()
			write(t, data+"/member/snap/0000000000000002-0000000000000009.snap", "")
		}, false},
		{"a stranger's file", func(t *testing.T, data, _ string) {
			t.Helper()
			write(t, data+"/member/notes", "")
		}, false},
		{"damaged", func(t *testing.T, data, _ string) {
			t.Helper()
			write(t, data+"/member/snap/db", "x")
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			data, wal := filepath.Join(root, "data"), filepath.Join(root, "wal")
			half(t, data, wal)
			tc.edit(t, data, wal)
			before := tree(t, root)
			st, err := seed.Inspect(data, wal)
			if err != nil {
				t.Fatal(err)
			}
			removed, err := seed.Clean(data, wal)
			if err != nil {
				t.Fatal(err)
			}
			if !tc.ours {
				if st.Kind != seed.Broken || len(removed) > 0 || !slices.Equal(before, tree(t, root)) {
					t.Errorf("%s, removed %v", st.Kind, removed)
				}
				return
			}
			if st.Kind != seed.Empty || !slices.Equal(removed, []string{filepath.Join(data, "member")}) {
				t.Errorf("%+v, removed %v", st, removed)
			}
			spec := trio(data, "m1")
			spec.WALDir = wal
			mustApply(t, spec)
		})
	}
}

// TestHalfMarkStays: once the log is there, the mark is only a leftover.
func TestHalfMarkStays(t *testing.T) {
	root := t.TempDir()
	data, wal := filepath.Join(root, "data"), filepath.Join(root, "wal")
	spec := trio(data, "m1")
	spec.WALDir = wal
	mustApply(t, spec)
	mark := filepath.Join(data, "member", "etcdinit-no-wal-yet")
	write(t, mark, "")
	st, err := seed.Inspect(data, wal)
	if err != nil || st.Kind != seed.Valid || !slices.Equal(st.Leftovers, []string{mark}) {
		t.Errorf("%+v, %v", st, err)
	}
	removed, err := seed.Clean(data, wal)
	if err != nil || !slices.Equal(removed, []string{mark}) {
		t.Errorf("removed %v, %v", removed, err)
	}
	if _, err := seed.Verify(data, wal, true); err != nil {
		t.Error(err)
	}
}

// TestLinkedWALDir: wal-dir may be another name of member/wal's place.
func TestLinkedWALDir(t *testing.T) {
	root := t.TempDir()
	target := filepath.Join(root, "real")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	spec := trio(link, "m1")
	spec.WALDir = filepath.Join(target, "member", "wal")
	mustApply(t, spec)
	if _, err := seed.Verify(target, "", true); err != nil {
		t.Error(err)
	}
	if st, err := seed.Verify(link, spec.WALDir, true); err != nil || st.Kind != seed.Valid {
		t.Errorf("%+v, %v", st, err)
	}
	spec.WALDir = target
	if err := mustPlan(t, spec).Apply(t.Context(), nop); kindOf(err) != seed.Invalid {
		t.Errorf("wal-dir is data-dir by another name: %v", err)
	}
}

// TestCompare is the one rule between "already ours" and "another member's".
func TestCompare(t *testing.T) {
	dir := t.TempDir()
	mustApply(t, trio(dir, "m1"))
	for _, tc := range []struct {
		name           string
		edit           func(s *seed.Spec)
		same, token    bool
		added, removed int
	}{
		{"the same", func(*seed.Spec) {}, true, false, 0, 0},
		{"another token (CF-01)", func(s *seed.Spec) { s.Token = "new" }, true, true, 0, 0},
		{"a peer replaced (DL-10)", func(s *seed.Spec) { s.Members[2].PeerURLs = []string{"http://127.0.0.1:23804"} }, true, false, 1, 1},
		{"grown (WB-58)", func(s *seed.Spec) {
			s.Members = append(s.Members, seed.Member{Name: "m4", PeerURLs: []string{"http://127.0.0.1:23804"}})
		}, true, false, 1, 0},
		{"shrunk", func(s *seed.Spec) { s.Members = s.Members[:2] }, true, false, 0, 1},
		{"renamed", func(s *seed.Spec) { s.Members[1].Name = "x" }, true, false, 0, 0},
		{"wrong volume (DL-11)", func(s *seed.Spec) { s.Self = "m2" }, false, false, 0, 0},
		{"own URL changed (WB-56)", func(s *seed.Spec) { s.Members[0].PeerURLs = []string{"http://127.0.0.1:23809"} }, false, false, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := trio(dir, "m1")
			tc.edit(&spec)
			st, err := seed.Inspect(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			c := st.Compare(mustPlan(t, spec))
			if c.SameMember != tc.same || c.TokenDiffers != tc.token || len(c.Added) != tc.added || len(c.Removed) != tc.removed {
				t.Errorf("%+v", c)
			}
			if c.StoredSelf.Name != "m1" || c.Wanted.Name != spec.Self {
				t.Errorf("stored %+v, wanted %+v", c.StoredSelf, c.Wanted)
			}
		})
	}
}

// TestCompareSpelling: a stored URL is a member's whatever its spelling, and with
// others beside it; one that is missing is not.
func TestCompareSpelling(t *testing.T) {
	plan := &seed.Plan{Self: seed.Member{PeerURLs: []string{"http://m1.example.org:2380"}}}
	for _, tc := range []struct {
		stored []string
		same   bool
	}{
		{[]string{"http://M1.Example.org.:2380"}, true},
		{[]string{"http://10.0.0.1:2380", "http://m1.example.org:2380"}, true},
		{[]string{"https://m1.example.org:2380"}, false},
		{[]string{"http://m1.example.org:2381"}, false},
		{nil, false},
	} {
		st := &seed.State{Kind: seed.Valid, Self: &seed.Member{PeerURLs: tc.stored}}
		if got := st.Compare(plan).SameMember; got != tc.same {
			t.Errorf("%v: %v, want %v", tc.stored, got, tc.same)
		}
	}
}
