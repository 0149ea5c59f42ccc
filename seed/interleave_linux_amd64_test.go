package seed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"golang.org/x/sys/unix"

	"github.com/etcdinit/etcdinit/seed"
)

// said keeps what runs may tell others about disks: a disk is bound once.
type said map[seed.DiskID]types.ID

// say notes that a run says "committed".
func (s said) say(t *testing.T, st *seed.State) {
	t.Helper()
	if st.Record == nil {
		return
	}
	if before, ok := s[st.Record.DiskID]; ok && before != st.ClusterID {
		t.Errorf("disk %s is bound to %s, and was said to be bound to %s", st.Record.DiskID, st.ClusterID, before)
	}
	s[st.Record.DiskID] = st.ClusterID
}

// look inspects as an agent does that wants to say something: clean, inspect,
// confirm. It returns nil where another run is in the way.
func (s said) look(t *testing.T, spec seed.Spec) *seed.State {
	t.Helper()
	if _, err := seed.Clean(spec.DataDir, spec.WALDir); err != nil {
		mustBeBusy(t, err)
		return nil
	}
	st, err := seed.Inspect(spec.DataDir, spec.WALDir)
	if err != nil {
		mustBeBusy(t, err)
		return nil
	}
	if st.Kind == seed.Broken {
		t.Errorf("broken: %s", st.Reason)
	}
	if err := seed.Confirm(st); err != nil {
		return st // nothing is said
	}
	s.say(t, st)
	return st
}

// mustBeBusy: a loser is told so. Without locks it may also find that what it was
// at work on is gone.
func mustBeBusy(t *testing.T, err error) {
	t.Helper()
	if kind := kindOf(err); kind != seed.Busy && kind != seed.Changed && kind != seed.Write {
		t.Errorf("want Busy: %v", err)
	}
}

// bear commits to a roster on d; it may lose.
func (s said) bear(t *testing.T, spec seed.Spec, d seed.DiskID, fill string) {
	t.Helper()
	p := mustPlan(t, spec).Born(rosterOf(t, spec, d, fill), true)
	if err := p.Apply(t.Context(), nop); err != nil {
		mustBeBusy(t, err)
		return
	}
	st := s.look(t, spec)
	if st == nil || st.Kind != seed.Valid || st.ClusterID != p.ClusterID {
		t.Errorf("committed, but the directory is %+v", st)
	}
}

// meanwhile is what another run does while the first one sleeps before a call.
type meanwhile struct {
	name string
	do   func(t *testing.T, s said, spec seed.Spec, d seed.DiskID)
}

func meanwhiles() []meanwhile {
	return []meanwhile{
		{"another roster", func(t *testing.T, s said, spec seed.Spec, d seed.DiskID) {
			t.Helper()
			s.bear(t, spec, d, "b")
		}},
		{"another roster, withdrawn, prepared anew, and born", func(t *testing.T, s said, spec seed.Spec, d seed.DiskID) {
			t.Helper()
			s.bear(t, spec, d, "b")
			if st := s.look(t, spec); st != nil && st.Kind == seed.Valid {
				if _, err := seed.Withdraw(spec.DataDir, spec.WALDir, nop); err != nil && kindOf(err) != seed.Foreign {
					mustBeBusy(t, err)
				}
			}
			if err := seed.Prepare(spec, nop); err != nil {
				mustBeBusy(t, err)
				return
			}
			if st := mustInspect(t, spec); st.DiskID != "" {
				s.bear(t, spec, st.DiskID, "c")
			}
		}},
		{"a computed seed", func(t *testing.T, s said, spec seed.Spec, _ seed.DiskID) {
			t.Helper()
			if err := mustPlan(t, spec).Apply(t.Context(), nop); err != nil {
				mustBeBusy(t, err)
			}
			s.look(t, spec)
		}},
		{"cleaned and prepared", func(t *testing.T, s said, spec seed.Spec, _ seed.DiskID) {
			t.Helper()
			s.look(t, spec)
			if err := seed.Prepare(spec, nop); err != nil {
				mustBeBusy(t, err)
			}
		}},
	}
}

// hide takes the staging directories of a sleeping run out of sight, as if another
// run had listed the directory before they were made. The function brings them back.
func hide(t *testing.T, spec seed.Spec) (back func()) {
	t.Helper()
	moved := map[string]string{}
	for _, side := range sidesOf(spec) {
		list, err := filepath.Glob(filepath.Join(side, ".etcdinit-seed-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range list {
			if strings.HasSuffix(path, "0123456789abcdef") {
				continue
			}
			moved[path] = fmt.Sprintf("%s.hidden-%d", side, len(moved))
			rename(t, path, moved[path])
		}
	}
	return func() {
		for path, at := range moved {
			if _, err := os.Lstat(filepath.Dir(path)); err == nil {
				rename(t, at, path)
			}
		}
	}
}

// sleepsAt lists the calls before which a run sleeps: the renames, and the removals
// outside of staging directories.
func sleepsAt(calls []*call, renames bool) (keys []string) {
	for _, c := range calls {
		switch c.nr {
		case unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
			if weighty(c) && c.errno == 0 {
				keys = append(keys, c.key)
			}
		case unix.SYS_UNLINKAT:
			if weighty(c) && !stagingName.MatchString(c.path) && !renames {
				keys = append(keys, c.key)
			}
		}
	}
	return keys
}

// TestSleeper lets a run sleep before each rename and removal, on a file system
// without locks, while another one goes through whole stories: a disk ID is bound
// at most once, a run that says "committed" has that seed, and the next run goes on.
func TestSleeper(t *testing.T) {
	matrix(t)
	for _, sc := range []scenario{
		{layout: 0, do: stepBorn},
		{layout: 1, do: stepBorn},
		{layout: 0, do: stepPrepare},
		{layout: 1, do: stepPrepare},
		{layout: 0, do: stepClean, bound: true},
		{layout: 1, do: stepClean, bound: true},
		{layout: 1, do: stepWithdraw},
		{layout: 0, do: stepRelease},
		{layout: 1},
		{layout: 1, plain: true},
	} {
		t.Run(sc.name(), func(t *testing.T) {
			run := sc.arrange(t)
			for _, key := range sleepsAt(trace(t, run.helper, run.root, action{unlocked: true, plain: sc.plain}).calls, false) {
				for _, m := range meanwhiles() {
					t.Run(m.name+" at "+key, func(t *testing.T) {
						t.Parallel()
						sc.sleeper(t, key, m)
					})
				}
			}
		})
	}
}

func (sc scenario) sleeper(t *testing.T, key string, m meanwhile) {
	t.Helper()
	run, s := sc.arrange(t), said{}
	if sc.do == stepRelease || sc.do == stepWithdraw {
		s.look(t, run.Spec)
	}
	d := run.disk
	got := trace(t, run.helper, run.root, action{key: key, unlocked: true, plain: sc.plain, pause: func() {
		back := hide(t, run.Spec)
		if d == "" {
			d = seed.DiskID(strings.Repeat("5", 32))
			if st := mustInspect(t, run.Spec); st.DiskID != "" {
				d = st.DiskID
			}
		}
		m.do(t, s, run.Spec, d)
		back()
	}})
	if !got.hit {
		t.Fatal("the call was never made")
	}
	run.ended(t, s, got)
}

// ended checks the end of a run that others have interfered with.
func (a *attempt) ended(t *testing.T, s said, got traced) {
	t.Helper()
	if got.status != 0 && got.status != 10+int(seed.Busy) && got.status != 10+int(seed.Changed) && (got.status != 10+int(seed.Write) || a.Do == stepBorn || a.Do == stepRelease) {
		t.Errorf("status %d: %s", got.status, got.stderr)
	}
	if got.status == 0 && a.Do == stepRelease {
		if st := mustInspect(t, a.Spec); st.Kind != seed.Valid || st.Pending || st.Record == nil || st.Record.DiskID != a.disk {
			t.Errorf("it has released the seed of disk %s, but the directory is %+v", a.disk, st)
		}
	}
	if got.status == 0 && a.Do == stepBorn {
		st := mustInspect(t, a.Spec)
		if want := types.ID(a.Roster.ClusterID(mustPlan(t, a.Spec).Digest())); st.Kind != seed.Valid || st.ClusterID != want {
			t.Errorf("it has committed %s, but the directory is %+v", want, st)
			return
		}
		s.say(t, st)
	}
	st := s.look(t, a.Spec)
	if st == nil || st.Kind != seed.Empty {
		return
	}
	if err := seed.Prepare(a.Spec, nop); err != nil {
		t.Fatal(err)
	}
	s.bear(t, a.Spec, mustInspect(t, a.Spec).DiskID, "d")
	if len(s) == 0 {
		t.Error("the next run does not go on")
	}
}

// TestHalfGrowsWhole: a half seed is taken away, but the run that made it is alive,
// and has added the log since the look.
func TestHalfGrowsWhole(t *testing.T) {
	short(t)
	root, spec := arrange(t, 1)
	mustApply(t, spec)
	segment, mark := filepath.Join(spec.WALDir, firstSegment), filepath.Join(spec.DataDir, "member", "etcdinit-no-wal-yet")
	rename(t, segment, filepath.Join(root, "log"))
	write(t, mark, "")
	got := trace(t, helper{Spec: spec, Umask: -1, Do: stepClean}, root, action{key: "renameat2 /data/member #1", unlocked: true, pause: func() {
		rename(t, filepath.Join(root, "log"), segment)
		remove(t, mark)
	}})
	if !got.hit || got.status != 10+int(seed.Busy) {
		t.Errorf("hit %t, status %d: %s", got.hit, got.status, got.stderr)
	}
	if st, err := seed.Verify(spec.DataDir, spec.WALDir, true); err != nil || st.Kind != seed.Valid {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestTwoSleepers lets two runs commit to different rosters on one disk ID: the
// first sleeps before each of its renames, the second before each of its own until
// the first has ended.
func TestTwoSleepers(t *testing.T) {
	matrix(t)
	for _, sc := range []scenario{
		{layout: 0, do: stepBorn},
		{layout: 1, do: stepBorn},
		{layout: 0, do: stepBorn, plain: true},
		{layout: 1, do: stepBorn, plain: true},
		{layout: 1},
		{layout: 1, plain: true},
	} {
		t.Run(sc.name(), func(t *testing.T) {
			run := sc.arrange(t)
			keys := sleepsAt(trace(t, run.helper, run.root, action{unlocked: true, plain: sc.plain}).calls, true)
			for _, first := range keys {
				for _, second := range keys {
					t.Run(first+" and "+second, func(t *testing.T) {
						t.Parallel()
						sc.twoSleepers(t, first, second)
					})
				}
			}
		})
	}
}

func (sc scenario) twoSleepers(t *testing.T, first, second string) {
	t.Helper()
	one := sc.arrange(t)
	two := *one
	if sc.do == stepBorn {
		two.Roster = rosterOf(t, one.Spec, one.disk, "b")
	}
	var gotTwo traced
	asleep, over, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	start := func() {
		back := hide(t, one.Spec)
		go func() {
			defer close(ended)
			gotTwo = trace(t, two.helper, two.root, action{key: second, unlocked: true, plain: sc.plain, pause: func() {
				close(asleep)
				<-over
			}})
		}()
		select {
		case <-asleep:
		case <-ended: // it has lost before
		}
		back()
	}
	gotOne := trace(t, one.helper, one.root, action{key: first, unlocked: true, plain: sc.plain, pause: start})
	if !gotOne.hit {
		t.Error("the call was never made")
		return
	}
	close(over)
	<-ended
	if gotOne.status == 0 && gotTwo.status == 0 {
		t.Error("both have committed")
	}
	if gotOne.status == 0 || gotTwo.status == 0 {
		if st, err := seed.Verify(one.Spec.DataDir, one.Spec.WALDir, true); err != nil || st.Kind != seed.Valid {
			t.Errorf("one has committed, but the directory is %+v, %v", st, err)
		}
	}
	s := said{}
	two.ended(t, s, gotTwo)
	one.ended(t, s, gotOne)
}
