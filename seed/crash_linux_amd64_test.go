package seed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"

	"github.com/etcdinit/etcdinit/seed"
)

// crashLayouts are the arrangements that a seed must survive interruption in.
var crashLayouts = []struct {
	name    string
	walDir  string // below the root; "" for the default
	missing bool   // the data directory does not exist yet
	kills   bool   // only kills: what fails is as in the layout before
}{
	{name: "one directory"},
	{name: "separate wal-dir", walDir: "wal"},
	{name: "wal-dir inside data-dir", walDir: "data/log", kills: true},
	{name: "nothing exists yet", walDir: "", missing: true},
}

// scenario is a step in one arrangement of directories.
type scenario struct {
	layout int
	do     string // the step; see helper.Do
	// bound: the step before was cut short when the seed was bound, in both
	// directories.
	bound bool
	// settled: the seed of such a step has settled, but nothing has made that durable.
	settled bool
	// sparse: what happens within a staging directory is as in another scenario, and
	// so is a second look that fails.
	sparse bool
	plain  bool // the file system's renames cannot refuse to replace
}

func scenarios() []scenario {
	return []scenario{
		{layout: 0},
		{layout: 1, sparse: true},
		{layout: 3, sparse: true},
		{layout: 3, do: stepPrepare},
		{layout: 1, do: stepPrepare, sparse: true},
		{layout: 0, do: stepBorn, sparse: true},
		{layout: 1, do: stepBorn, sparse: true},
		{layout: 2, do: stepBorn, sparse: true},
		{layout: 1, do: stepBorn, sparse: true, plain: true},
		{layout: 0, do: stepClean, bound: true, sparse: true},
		{layout: 1, do: stepClean, bound: true, sparse: true},
		{layout: 0, do: stepClean, bound: true, settled: true, sparse: true},
		{layout: 1, do: stepClean, bound: true, settled: true, sparse: true},
		{layout: 0, do: stepJoin, sparse: true},
		{layout: 1, do: stepJoin, sparse: true},
		{layout: 3, do: stepJoin, sparse: true},
		{layout: 0, do: stepRestore, sparse: true},
		{layout: 1, do: stepRestore, sparse: true},
		{layout: 3, do: stepRestore, sparse: true},
		{layout: 0, do: stepFeed, sparse: true},
		{layout: 1, do: stepRelease},
		{layout: 0, do: stepWithdraw, sparse: true},
		{layout: 1, do: stepWithdraw, sparse: true},
	}
}

func (sc scenario) name() string {
	do := sc.do
	if do == "" {
		do = "computed"
	}
	if sc.plain {
		do += " without NOREPLACE"
	}
	if sc.settled {
		do += " of a settled seed"
	}
	return do + ", " + crashLayouts[sc.layout].name
}

// attempt is one run of a scenario.
type attempt struct {
	helper
	scenario
	root string
	disk seed.DiskID // that the birth is on
}

// short makes log segments short: their length plays no part here.
func short(t *testing.T) {
	t.Helper()
	whole := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 1 << 20
	t.Cleanup(func() { wal.SegmentSizeBytes = whole })
}

// scratch is a directory in memory, where there is one: no disk plays a part here,
// and there are some thousand runs.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "etcdinit-") //nolint:usetesting // another file system
	if err != nil {
		dir, err = filepath.EvalSymlinks(t.TempDir())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, dir) })
	return dir
}

// arrange makes the directories, with strangers in them, and does what comes before
// the step.
func (sc scenario) arrange(t *testing.T) *attempt {
	t.Helper()
	root, spec := arrange(t, sc.layout)
	run := &attempt{helper: helper{Spec: spec, Umask: -1, Do: sc.do}, scenario: sc, root: root}
	if sc.do == "" || sc.do == stepPrepare {
		return run
	}
	if sc.do == stepRestore || sc.do == stepFeed {
		snapshotBeside(t, spec, sc.do)
		return run
	}
	if sc.do == stepJoin {
		if sc.layout != 3 { // a birth was prepared here before the cluster was found
			mustPrepare(t, spec)
		}
		return run
	}
	run.disk = mustPrepare(t, spec)
	run.Roster = rosterOf(t, spec, run.disk, "a")
	if sc.do == stepBorn {
		return run
	}
	if !sc.bound {
		mustBearOn(t, spec, run.disk, "a")
		return run
	}
	c := &cut{t: t, Spec: spec, id: run.disk}
	for _, side := range sidesOf(spec) {
		if err := os.CopyFS(side+".token", os.DirFS(filepath.Join(side, diskDir))); err != nil {
			t.Fatal(err)
		}
	}
	mustBearOn(t, spec, run.disk, "a")
	for _, side := range sidesOf(spec) {
		rename(t, side+".token", filepath.Join(side, diskDir))
	}
	c.member()
	if spec.WALDir != "" {
		write(t, c.disk(spec.DataDir)+"/member/etcdinit-no-wal-yet", "")
		c.log()
	}
	return run
}

// settle moves what is bound to its place, and returns the calls that did it.
func (a *attempt) settle(t *testing.T) (calls []*call) {
	t.Helper()
	if !a.settled {
		return nil
	}
	for from, to := range map[string]string{
		filepath.Join(a.Spec.DataDir, diskDir, string(a.disk), "member"):           filepath.Join(a.Spec.DataDir, "member"),
		filepath.Join(a.Spec.WALDir, diskDir, string(a.disk), "wal", firstSegment): filepath.Join(a.Spec.WALDir, firstSegment),
	} {
		if a.Spec.WALDir == "" && !strings.HasSuffix(from, "member") {
			continue
		}
		rename(t, from, to)
		calls = append(calls, &call{nr: unix.SYS_RENAME, path: from, to: to})
	}
	return calls
}

// movedTo is the attempt with its directories below another root.
func (a *attempt) movedTo(root string) *attempt {
	b := *a
	b.root = root
	b.Spec.DataDir = filepath.Join(root, "data")
	if dir := crashLayouts[a.layout].walDir; dir != "" {
		b.Spec.WALDir = filepath.Join(root, dir)
	}
	return &b
}

// arrange makes the directories of a layout, with strangers in them.
func arrange(t *testing.T, i int) (root string, spec seed.Spec) {
	t.Helper()
	l := crashLayouts[i]
	root = scratch(t)
	spec = trio(filepath.Join(root, "data"), "m2")
	if l.walDir != "" {
		spec.WALDir = filepath.Join(root, l.walDir)
	}
	if l.missing {
		return root, spec
	}
	strangers(t, spec.DataDir)
	if l.walDir == "wal" {
		strangers(t, spec.WALDir)
	}
	return root, spec
}

// strangers fills dir with what is not ours to touch.
func strangers(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"lost+found", "member.part", ".etcdinit-seed-0123456789abcdef"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"member.part/0.wal":                       "half a log of somebody else",
		".etcdinit-seed-0123456789abcdef/no-mark": "named like ours, but without our mark",
		"notes.txt": "hands off",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

// snapshotTree lists everything below root but what is ours.
func snapshotTree(t *testing.T, root string, spec seed.Spec) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == filepath.Join(spec.DataDir, "member") || path == filepath.Join(spec.WALDir, firstSegment) ||
			stagingName.MatchString(d.Name()) && !strings.HasSuffix(path, "0123456789abcdef") ||
			d.Name() == diskDir || strings.HasPrefix(d.Name(), "etcdinit-withdrawn-") {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %s", path, info.Mode())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", text)
		}
		list = append(list, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// goOn checks a directory after an interruption: it is as before or as after the
// step, no stranger is harmed, and the next run goes on from there. A disk ID is
// bound once, and an interruption does not use it up.
func (a *attempt) goOn(t *testing.T, before []string) {
	t.Helper()
	after := snapshotTree(t, a.root, a.Spec)
	for _, line := range before {
		if !slices.Contains(after, line) {
			t.Errorf("was there before, and is gone or changed: %s", line)
		}
	}
	first, err := seed.Verify(a.Spec.DataDir, a.Spec.WALDir, true)
	if err != nil {
		t.Errorf("neither as before nor complete: %v", err)
		return
	}
	if _, err = seed.Clean(a.Spec.DataDir, a.Spec.WALDir); err != nil {
		t.Errorf("clean: %v", err)
		return
	}
	st := mustInspect(t, a.Spec)
	switch a.Do {
	case "":
		if st.Kind == seed.Empty {
			mustApply(t, a.Spec)
		}
		a.wantSeed(t, seed.RecordComputed, "")
	case stepJoin:
		if st.Kind == seed.Empty {
			mustJoin(t, a.Spec)
		}
		a.wantSeed(t, seed.RecordJoin, "")
	case stepRestore:
		if st.Kind == seed.Empty {
			mustStagedStep(t, a.Spec, a.Do)
		}
		if st = a.wantSeed(t, seed.RecordComputed, ""); st.Record.Restored == nil {
			t.Errorf("nothing was restored: %+v", st.Record)
		}
	case stepFeed:
		if st.Kind != seed.Valid || st.Record.Kind != seed.RecordJoin {
			t.Fatalf("neither the seed that was there nor the one in its place: %+v", st)
		}
		if !st.Fed {
			mustStagedStep(t, a.Spec, a.Do)
		}
		if st = a.wantSeed(t, seed.RecordJoin, ""); !st.Fed {
			t.Errorf("not fed: %+v", st)
		}
	case stepPrepare:
		d := mustPrepare(t, a.Spec)
		if first.DiskID != "" && first.DiskID != d {
			t.Errorf("disk ID %s was visible, and became %s", first.DiskID, d)
		}
		mustBearOn(t, a.Spec, d, "a")
		a.wantSeed(t, seed.RecordBirth, d)
	case stepBorn, stepClean:
		fill := "a"
		if st.Kind == seed.Empty {
			if st.DiskID != a.disk {
				t.Fatalf("the disk has ID %q, and not the one that others have committed to", st.DiskID)
			}
			fill = "b" // nothing of the first roster was said, so it may be another
			mustBearOn(t, a.Spec, a.disk, fill)
		}
		st = a.wantSeed(t, seed.RecordBirth, a.disk)
		if want := rosterOf(t, a.Spec, a.disk, fill); !st.Record.Roster.Equal(want) {
			t.Errorf("roster %v, want %v", st.Record.Roster, want)
		}
	case stepRelease:
		if err := seed.Release(a.wantSeed(t, seed.RecordBirth, a.disk)); err != nil {
			t.Fatal(err)
		}
		if mustInspect(t, a.Spec).Pending {
			t.Error("still pending")
		}
	case stepWithdraw:
		if st.Kind == seed.Valid {
			if st.Record.DiskID != a.disk || !st.Pending || seed.Confirm(st) != nil {
				t.Errorf("%+v", st)
			}
			if _, err := seed.Withdraw(a.Spec.DataDir, a.Spec.WALDir, nop); err != nil {
				t.Fatal(err)
			}
		}
		d := mustPrepare(t, a.Spec)
		if d == a.disk {
			t.Error("a disk ID that was bound is there again")
		}
		mustBearOn(t, a.Spec, d, "b")
		a.wantSeed(t, seed.RecordBirth, d)
	}
}

// wantSeed: a whole seed and nothing beside it.
func (a *attempt) wantSeed(t *testing.T, kind string, d seed.DiskID) *seed.State {
	t.Helper()
	if _, err := seed.Clean(a.Spec.DataDir, a.Spec.WALDir); err != nil {
		t.Errorf("clean: %v", err)
	}
	st, err := seed.Verify(a.Spec.DataDir, a.Spec.WALDir, true)
	if err != nil {
		t.Fatalf("after the second run: %v", err)
	}
	if st.Kind != seed.Valid || !st.Pristine || !st.Compare(mustPlan(t, a.Spec)).SameMember || len(st.Leftovers) > 0 ||
		st.Record == nil || st.Record.Kind != kind || st.Record.DiskID != d || a.Do != stepRelease && st.Pending == (kind == seed.RecordComputed) {
		t.Fatalf("after the second run: %+v, record %+v", st, st.Record)
	}
	if err := seed.Confirm(st); err != nil {
		t.Error(err)
	}
	wantNoDisk(t, a.Spec)
	for _, dir := range sidesOf(a.Spec) {
		left, err := filepath.Glob(filepath.Join(dir, ".etcdinit-seed-*"))
		if err != nil || len(left) > 1 || len(left) == 1 && filepath.Base(left[0]) != ".etcdinit-seed-0123456789abcdef" {
			t.Errorf("staging directories are left: %v, %v", left, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(a.Spec.DataDir, "member", "etcdinit-no*")); err != nil || len(left) > 0 {
		t.Errorf("mark of an unfinished seed is left: %v, %v", left, err)
	}
	return st
}

// done checks what a step has promised, without any further one; but for its
// staging directories, which a failed removal may leave.
func (a *attempt) done(t *testing.T) {
	t.Helper()
	st := mustInspect(t, a.Spec)
	ok := st.Kind == seed.Valid && st.Record.DiskID == a.disk && !slices.ContainsFunc(st.Leftovers, func(path string) bool {
		return !stagingName.MatchString(path)
	})
	switch a.Do {
	case "", stepRestore:
	case stepPrepare:
		ok = st.Kind == seed.Empty && st.DiskID != ""
	case stepWithdraw:
		ok = st.Kind == seed.Empty && st.DiskID == ""
	case stepRelease:
		ok = ok && !st.Pending
	default:
		ok = ok && st.Pending
	}
	if !ok {
		t.Errorf("the step was done, but: %+v", st)
	}
}

// failures returns the errors that a call is failed with.
func failures(c *call) []syscall.Errno {
	switch c.nr {
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_UNLINKAT:
		return []syscall.Errno{syscall.EIO}
	case unix.SYS_OPENAT:
		if c.flags&unix.O_CREAT != 0 {
			return []syscall.Errno{syscall.ENOSPC}
		}
		return []syscall.Errno{syscall.EACCES}
	case unix.SYS_FLOCK, unix.SYS_FCNTL:
		return []syscall.Errno{syscall.EIO}
	case unix.SYS_FCHMOD, unix.SYS_FCHOWN:
		return []syscall.Errno{syscall.EPERM}
	case unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		return []syscall.Errno{syscall.EIO}
	case unix.SYS_LINKAT:
		return []syscall.Errno{syscall.EPERM}
	case unix.SYS_STATFS:
		return []syscall.Errno{syscall.EIO}
	}
	return []syscall.Errno{syscall.ENOSPC}
}

// TestConfirmReads: what was found is made durable without a write, in both of its
// states, and the calls are those that the promise needs.
func TestConfirmReads(t *testing.T) {
	short(t)
	for _, born := range []bool{false, true} {
		root, spec := arrange(t, 1)
		d := mustPrepare(t, spec)
		want := []string{"data", "data/.etcdinit-disk", "data/.etcdinit-disk/*", "data/.etcdinit-disk/*/disk", "wal", "wal/.etcdinit-disk", "wal/.etcdinit-disk/*", "wal/.etcdinit-disk/*/disk"}
		if born {
			mustBearOn(t, spec, d, "a")
			want = []string{"data", "data/member", "data/member/etcdinit-pending-*", "data/member/etcdinit-seed.json", "data/member/snap", "data/member/snap/db", "wal", "wal/" + firstSegment}
		}
		got := trace(t, helper{Spec: spec, Umask: -1, Do: stepConfirm}, root, action{})
		if got.status != 0 {
			t.Fatalf("status %d: %s", got.status, got.stderr)
		}
		synced := map[string]bool{}
		for _, c := range got.calls {
			switch c.nr {
			case unix.SYS_FSYNC:
				synced[randomID.ReplaceAllString(strings.TrimPrefix(c.path, root+"/"), "$1$2*")] = true
			case unix.SYS_FLOCK, unix.SYS_FCNTL:
			case unix.SYS_OPENAT:
				if c.flags&(unix.O_CREAT|unix.O_WRONLY|unix.O_RDWR) != 0 {
					t.Errorf("opened for writing: %s", c.path)
				}
			default:
				t.Errorf("a call that writes: %s %s", c.name, c.path)
			}
		}
		for _, path := range want {
			if !synced[path] {
				t.Errorf("born=%t: %s was not synced, but %v", born, path, synced)
			}
		}
	}
}

// weighty: the call changes names, makes them durable, or is about what is in no
// staging directory.
func weighty(c *call) bool {
	switch c.nr {
	case unix.SYS_OPENAT:
		if c.flags&unix.O_CREAT == 0 && !strings.HasSuffix(c.key, "#1") {
			return false
		}
	case unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_UNLINKAT:
		return !strings.Contains(c.path, ".wal.tmp") && !strings.HasSuffix(c.path, ".tmp")
	}
	return !stagingName.MatchString(c.path)
}

// matrix skips a test of all system calls where nobody asked for it: they take
// minutes. The stage crash asks.
func matrix(t *testing.T) {
	t.Helper()
	short(t)
	if os.Getenv("ETCDINIT_CRASH") == "" {
		t.Skip("every system call takes minutes: set ETCDINIT_CRASH=all, as bash .ci/run crash does")
	}
}

// TestCrash interrupts each step at every system call it makes on its directories:
// once by killing the process as the call begins, once by failing the call.
func TestCrash(t *testing.T) {
	matrix(t)
	for _, sc := range scenarios() {
		t.Run(sc.name(), func(t *testing.T) {
			run := sc.arrange(t)
			run.settle(t)
			whole := trace(t, run.helper, run.root, action{plain: sc.plain})
			if whole.status != 0 {
				t.Fatalf("without interruption: status %d: %s", whole.status, whole.stderr)
			}
			run.done(t)
			kinds := map[string]int{}
			for _, c := range whole.calls {
				kinds[c.name]++
			}
			t.Logf("%d calls: %v", len(whole.calls), kinds)
			want := []string{"openat", "fsync"}
			if sc.do == "" || sc.do == stepBorn {
				want = append(want, "mkdirat", "write", "pwrite64", "fallocate", "renameat2", "unlinkat", "flock", "fcntl")
			}
			for _, name := range want {
				if kinds[name] == 0 {
					t.Errorf("no %s was seen: the enumeration is not whole", name)
				}
			}
			for _, c := range whole.calls {
				if sc.sparse && !weighty(c) {
					continue
				}
				// Death at a call that only looks is death at the next one that writes.
				if c.nr != unix.SYS_STATFS && (c.nr != unix.SYS_OPENAT || c.flags&unix.O_CREAT != 0) {
					sc.crashAt(t, action{key: c.key, kill: true, plain: sc.plain})
				}
				for _, errno := range failures(c) {
					if !crashLayouts[sc.layout].kills && (!sc.plain || c.nr != unix.SYS_RENAMEAT2) {
						sc.crashAt(t, action{key: c.key, fail: errno, plain: sc.plain})
					}
				}
			}
		})
	}
}

// TestFileSystemAnswers is WB-52 and what a file system says when it is ill.
func TestFileSystemAnswers(t *testing.T) {
	const staged = "/data/.etcdinit-seed-*/member/"
	for _, tc := range []struct {
		name string
		act  action
		want string // "": it works all the same
	}{
		{"no fallocate", action{key: "fallocate " + staged + "wal.tmp/" + firstSegment + " #1", fail: syscall.EOPNOTSUPP}, ""},
		{"no fallocate for the next segment", action{key: "fallocate " + staged + "wal/0.tmp #1", fail: syscall.EOPNOTSUPP}, ""},
		{"no directory locks", action{key: "flock /data #1", fail: syscall.EBADF}, ""},
		{"no rename without replacing", action{key: "renameat2 " + staged[:len(staged)-1] + " #1", fail: syscall.EINVAL}, ""},
		{"corrupt", action{key: "openat " + staged + "snap/db #1", fail: syscall.EUCLEAN}, "member/snap/db: structure needs cleaning"},
		{"quota", action{key: "fallocate " + staged + "wal.tmp/" + firstSegment + " #1", fail: syscall.EDQUOT}, "no space (or quota) left"},
		{"full after the log was written", action{key: "fsync " + staged + "wal/" + firstSegment + " #1", fail: syscall.ENOSPC}, "no space (or quota) left"},
		{"became read-only", action{key: "renameat2 " + staged[:len(staged)-1] + " #1", fail: syscall.EROFS}, "is on a read-only file system"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, spec := arrange(t, 0)
			got := trace(t, helper{Spec: spec, Umask: -1}, root, tc.act)
			if !got.hit {
				t.Fatal("the call was never made")
			}
			st, err := seed.Verify(spec.DataDir, "", true)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want != "" {
				if got.status != 10+int(seed.Write) || !strings.Contains(got.stderr, tc.want) || !strings.Contains(got.stderr, spec.DataDir) || st.Kind != seed.Empty || len(st.Leftovers) > 0 {
					t.Errorf("status %d, %q, left %+v", got.status, got.stderr, st)
				}
				return
			}
			if got.status != 0 || st.Kind != seed.Valid || !st.Pristine {
				t.Errorf("status %d, %q, left %+v", got.status, got.stderr, st)
			}
			if info, err := os.Stat(filepath.Join(spec.DataDir, "member", "wal", firstSegment)); err != nil || info.Size() != 64_000_000 {
				t.Errorf("segment: %v, %v", info, err)
			}
		})
	}
}

func (sc scenario) crashAt(t *testing.T, act action) {
	t.Helper()
	what := "kill at " + act.key
	if !act.kill {
		what = fmt.Sprintf("%s at %s", act.fail, act.key)
	}
	t.Run(what, func(t *testing.T) {
		t.Parallel()
		run := sc.arrange(t)
		run.settle(t)
		before := snapshotTree(t, run.root, run.Spec)
		got := trace(t, run.helper, run.root, act)
		if !got.hit {
			t.Fatalf("the call was never made: the enumeration does not hold")
		}
		if !act.kill {
			run.failedCleanly(t, got)
		}
		run.goOn(t, before)
	})
}

// failedCleanly: a process that lived on has said what happened, and its status
// agrees with what it left.
func (a *attempt) failedCleanly(t *testing.T, got traced) {
	t.Helper()
	kind := seed.ErrorKind(got.status - 10)
	switch {
	case got.status == 0 && a.Do == stepClean:
		return // what cannot be read is taken back
	case got.status == 0:
		a.done(t)
		return
	case (a.Do == stepRelease || a.Do == stepWithdraw || a.Do == stepFeed) && (kind == seed.Busy || kind == seed.Changed || kind == seed.Damaged):
		// To look did not end well.
	case kind != seed.Write:
		t.Errorf("status %d: %s", got.status, got.stderr)
	case got.stderr == "" || strings.Contains(got.stderr, "\n"):
		t.Errorf("not one line: %q", got.stderr)
	}
	st := mustInspect(t, a.Spec)
	if (a.Do == "" || a.Do == stepBorn || a.Do == stepPrepare) && (st.Kind == seed.Empty) == strings.Contains(got.stderr, "at its very end") {
		t.Errorf("the directory is %s %s, but it says: %s", st.Kind, st.Reason, got.stderr)
	}
}
