package seed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
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

// arrange makes the directories of a layout, with strangers in them.
func arrange(t *testing.T, i int) (root string, spec seed.Spec) {
	t.Helper()
	l := crashLayouts[i]
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
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

// snapshotTree lists everything below root but our own staging directories, and
// the seed itself where it is complete.
func snapshotTree(t *testing.T, root string, spec seed.Spec) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == filepath.Join(spec.DataDir, "member") || path == filepath.Join(spec.WALDir, firstSegment) ||
			stagingName.MatchString(d.Name()) && !strings.HasSuffix(path, "0123456789abcdef") {
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

// survived checks a directory after an interruption: nothing or everything of the
// seed, no stranger harmed, and a second run makes it whole and clean.
func survived(t *testing.T, root string, spec seed.Spec, before []string) {
	t.Helper()
	after := snapshotTree(t, root, spec)
	for _, line := range before {
		if !slices.Contains(after, line) {
			t.Errorf("was there before, and is gone or changed: %s", line)
		}
	}
	st, err := seed.Verify(spec.DataDir, spec.WALDir, true)
	if err != nil {
		t.Errorf("neither untouched nor complete: %v", err)
		return
	}
	p := mustPlan(t, spec)
	if st.Kind == seed.Empty {
		if err = p.Apply(t.Context(), zap.NewNop()); err != nil {
			t.Errorf("second run: %v", err)
			return
		}
	} else if _, err = seed.Clean(spec.DataDir, spec.WALDir); err != nil {
		t.Errorf("clean: %v", err)
	}
	st, err = seed.Verify(spec.DataDir, spec.WALDir, true)
	if err != nil {
		t.Errorf("after the second run: %v", err)
		return
	}
	if st.Kind != seed.Valid || !st.Pristine || !st.Compare(p).SameMember || len(st.Leftovers) > 0 {
		t.Errorf("after the second run: %+v", st)
	}
	for _, dir := range []string{spec.DataDir, spec.WALDir} {
		left, err := filepath.Glob(filepath.Join(dir, ".etcdinit-seed-*"))
		if err != nil || len(left) > 1 || len(left) == 1 && filepath.Base(left[0]) != ".etcdinit-seed-0123456789abcdef" {
			t.Errorf("staging directories are left: %v, %v", left, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(spec.DataDir, "member", "etcdinit-no*")); err != nil || len(left) > 0 {
		t.Errorf("mark of an unfinished seed is left: %v, %v", left, err)
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
	case unix.SYS_STATFS:
		return []syscall.Errno{syscall.EIO}
	}
	return []syscall.Errno{syscall.ENOSPC}
}

// TestCrash interrupts a seed at every system call it makes on its directories:
// once by killing the process as the call begins, once by failing the call.
func TestCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("about a minute")
	}
	for i, l := range crashLayouts {
		t.Run(l.name, func(t *testing.T) {
			root, spec := arrange(t, i)
			whole := trace(t, helper{Spec: spec, Umask: -1}, root, action{})
			if whole.status != 0 {
				t.Fatalf("without interruption: status %d: %s", whole.status, whole.stderr)
			}
			kinds := map[string]int{}
			for _, c := range whole.calls {
				kinds[c.name]++
			}
			t.Logf("%d calls: %v", len(whole.calls), kinds)
			for _, name := range []string{"openat", "mkdirat", "write", "pwrite64", "fsync", "fallocate", "renameat2", "unlinkat", "flock", "fcntl"} {
				if kinds[name] == 0 {
					t.Errorf("no %s was seen: the enumeration is not whole", name)
				}
			}
			for _, c := range whole.calls {
				// Death at a call that only looks is death at the next one that writes.
				if c.nr != unix.SYS_STATFS && (c.nr != unix.SYS_OPENAT || c.flags&unix.O_CREAT != 0) {
					crashAt(t, i, action{key: c.key, kill: true})
				}
				for _, errno := range failures(c) {
					if l.kills {
						continue
					}
					crashAt(t, i, action{key: c.key, fail: errno})
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

func crashAt(t *testing.T, i int, act action) {
	t.Helper()
	what := "kill at " + act.key
	if !act.kill {
		what = fmt.Sprintf("%s at %s", act.fail, act.key)
	}
	t.Run(what, func(t *testing.T) {
		root, spec := arrange(t, i)
		before := snapshotTree(t, root, spec)
		got := trace(t, helper{Spec: spec, Umask: -1}, root, act)
		if !got.hit {
			t.Fatalf("the call was never made: the enumeration does not hold")
		}
		if !act.kill {
			failedCleanly(t, spec, got)
		}
		survived(t, root, spec, before)
	})
}

// failedCleanly: a process that lived on has said what happened, and its status
// agrees with what it left.
func failedCleanly(t *testing.T, spec seed.Spec, got traced) {
	t.Helper()
	st, err := seed.Inspect(spec.DataDir, spec.WALDir)
	if err != nil {
		t.Errorf("inspect: %v", err)
		return
	}
	switch {
	case got.status == 0 && st.Kind != seed.Valid:
		t.Errorf("status 0, but the directory is %s: %s", st.Kind, st.Reason)
	case got.status == 10+int(seed.Write) && st.Kind != seed.Empty:
		t.Errorf("status of a failed write, but the directory is %s: %s", st.Kind, got.stderr)
	case got.status != 0 && got.status != 10+int(seed.Write):
		t.Errorf("status %d: %s", got.status, got.stderr)
	case got.status != 0 && (got.stderr == "" || strings.Contains(got.stderr, "\n")):
		t.Errorf("not one line: %q", got.stderr)
	}
}
