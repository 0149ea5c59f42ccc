//go:build linux

package seed_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdinit/etcdinit/seed"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts and other users")
	}
}

func mount(t *testing.T, dir, options string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("cannot mount a tmpfs here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// as runs Apply in a process of its own, as another user or under another umask.
func as(t *testing.T, h helper, cred *syscall.Credential) (status int, stderr string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A user without privileges cannot reach the test binary where it was built.
	bin := filepath.Join(openDir(t), "seed.test")
	text, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(bin, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if err = os.Chmod(bin, 0o755); err != nil { // whatever the umask
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = []string{h.env()}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	out, err := cmd.CombinedOutput()
	if ee, ok := errors.AsType[*exec.ExitError](err); ok {
		return ee.ExitCode(), strings.TrimSpace(string(out))
	} else if err != nil {
		t.Fatal(err)
	}
	return 0, strings.TrimSpace(string(out))
}

// openDir is a temporary directory that every user can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// modes lists mode and owner of everything that a seed consists of.
func modes(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range []string{"member", "member/snap", "member/wal", "member/snap/db", "member/wal/" + firstSegment, recordPath} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatal("no owner is known")
		}
		found[name] = fmt.Sprintf("%04o %d:%d", info.Mode().Perm(), st.Uid, st.Gid)
	}
	return found
}

func wantModes(t *testing.T, dir, owner string) {
	t.Helper()
	for name, got := range modes(t, dir) {
		want := "0600 " + owner
		if !strings.Contains(filepath.Base(name), "db") && !strings.Contains(name, ".wal") && !strings.Contains(name, "json") {
			want = "0700 " + owner
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestOwner is WB-48 and WB-49.
func TestOwner(t *testing.T) {
	needRoot(t)
	for _, tc := range []struct {
		name     string
		dirMode  os.FileMode
		dirOwner [2]int
		umask    int
		cred     *syscall.Credential
		owner    *seed.Owner
		want     string
		status   int
		message  []string
	}{
		{name: "root follows the data dir's owner, umask 0777", dirMode: 0o700, dirOwner: [2]int{232, 232}, umask: 0o777, want: "232:232"},
		{name: "root follows the data dir's owner, umask 0", dirMode: 0o700, dirOwner: [2]int{232, 232}, umask: 0, want: "232:232"},
		{name: "owner given", dirMode: 0o755, umask: 0o022, owner: &seed.Owner{UID: 232, GID: 233}, want: "232:233"},
		{
			name: "random user in the volume's group", dirMode: 0o770 | os.ModeSetgid, dirOwner: [2]int{0, 65532}, umask: 0o777,
			cred: &syscall.Credential{Uid: 1000710000, Gid: 65532}, want: "1000710000:65532",
		},
		{
			name: "cannot give away", dirMode: 0o777, umask: 0o022, cred: &syscall.Credential{Uid: 1000, Gid: 1000},
			owner: &seed.Owner{UID: 232, GID: 232}, status: 10 + int(seed.Write),
			message: []string{"owner of ", "is 1000:1000, etcd user is 232:232"},
		},
		{
			name: "cannot write", dirMode: 0o755, umask: 0o022, cred: &syscall.Credential{Uid: 1000, Gid: 1000},
			status: 10 + int(seed.Write), message: []string{"mode drwxr-xr-x, owner 0:0", "uid 1000, gid 1000", "permission denied"},
		},
		{
			name: "cannot read", dirMode: 0o700, umask: 0o022, cred: &syscall.Credential{Uid: 1000, Gid: 1000},
			status: 10 + int(seed.Write), message: []string{"mode drwx------, owner 0:0", "permission denied"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(openDir(t), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir, tc.dirOwner[0], tc.dirOwner[1]); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, tc.dirMode); err != nil {
				t.Fatal(err)
			}
			spec := trio(dir, "m1")
			spec.Owner = tc.owner
			status, stderr := as(t, helper{Spec: spec, Umask: tc.umask}, tc.cred)
			if status != tc.status {
				t.Fatalf("status %d, want %d: %s", status, tc.status, stderr)
			}
			for _, part := range tc.message {
				if !strings.Contains(stderr, part) {
					t.Errorf("message lacks %q: %s", part, stderr)
				}
			}
			if tc.status == 0 {
				wantModes(t, dir, tc.want)
				return
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) > 0 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
		})
	}
}

// TestOwnerOfDisk: what comes before a seed, and what is put back, has the same
// owner, whatever the umask.
func TestOwnerOfDisk(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(openDir(t), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 232, 233); err != nil {
		t.Fatal(err)
	}
	spec := trio(dir, "m1")
	own := func(path string, mode os.FileMode) {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 232 || st.Gid != 233 || info.Mode().Perm() != mode {
			t.Errorf("%s: %s, %+v", path, info.Mode(), info.Sys())
		}
	}
	if status, stderr := as(t, helper{Spec: spec, Umask: 0o777, Do: stepPrepare}, nil); status != 0 {
		t.Fatal(stderr)
	}
	d := mustInspect(t, spec).DiskID
	for path, mode := range map[string]os.FileMode{diskDir: 0o700, diskDir + "/" + string(d): 0o700, diskDir + "/" + string(d) + "/disk": 0o600} {
		own(filepath.Join(dir, path), mode)
	}
	roster := rosterOf(t, spec, d, "a")
	if status, stderr := as(t, helper{Spec: spec, Umask: 0o777, Do: stepBorn, Roster: roster}, nil); status != 0 {
		t.Fatal(stderr)
	}
	mark := markOf(mustPlan(t, spec).Born(roster, true))
	own(mark, 0o600)
	wantModes(t, dir, "232:233")
	st := mustInspect(t, spec)
	if err := errors.Join(seed.Release(st), seed.Unrelease(st)); err != nil {
		t.Fatal(err)
	}
	own(mark, 0o600)
	aside, err := seed.Withdraw(dir, "", nop)
	if err != nil {
		t.Fatal(err)
	}
	own(aside[0], 0o700)
}

// TestWideDataDir: a volume's root that others can enter is worth a warning, no more.
func TestWideDataDir(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	if err := mustPlan(t, trio(dir, "m1")).Apply(t.Context(), zap.New(core)); err != nil {
		t.Fatal(err)
	}
	all := logs.All()
	if len(all) != 1 || !strings.Contains(fmt.Sprint(all[0].ContextMap()), "mode dgrwxrwx---, owner ") {
		t.Errorf("want one warning with mode and owner, got %v", all)
	}
}

// TestFileSystems is WB-44, WB-46, WB-51 and two file systems of their own.
func TestFileSystems(t *testing.T) {
	needRoot(t)
	for _, tc := range []struct {
		name    string
		data    string // mount options; "" for no mount
		wal     string // "-": no wal-dir of its own
		message []string
	}{
		{name: "an empty mount point", data: "size=200m", wal: "-"},
		{name: "a mount point each", data: "size=10m", wal: "size=200m"},
		{name: "too small by far", data: "size=40m", wal: "-", message: []string{"needs 123 MiB, 40 MiB free"}},
		{name: "too small for the next segment", data: "size=100m", wal: "-", message: []string{"needs 123 MiB, 100 MiB free"}},
		{name: "wal-dir too small", data: "size=10m", wal: "size=100m", message: []string{"wal needs 123 MiB, 100 MiB free"}},
		{name: "read-only", data: "size=200m,ro", wal: "-", message: []string{"is on a read-only file system", "data"}},
		{name: "wal-dir read-only", data: "size=10m", wal: "size=200m,ro", message: []string{"is on a read-only file system", "wal"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			spec := trio(filepath.Join(root, "data"), "m1")
			dirs := map[string]string{spec.DataDir: tc.data}
			if tc.wal != "-" {
				spec.WALDir = filepath.Join(root, "wal")
				dirs[spec.WALDir] = tc.wal
			}
			for dir, options := range dirs {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				rw, ro := strings.CutSuffix(options, ",ro")
				mount(t, dir, rw)
				if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
					t.Fatal(err)
				}
				if ro {
					if merr := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); merr != nil {
						t.Skipf("remount: %v", merr)
					}
				}
			}
			core, logs := observer.New(zap.WarnLevel)
			err := mustPlan(t, spec).Apply(t.Context(), zap.New(core))
			if len(tc.message) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if _, err = seed.Verify(spec.DataDir, spec.WALDir, true); err != nil {
					t.Error(err)
				}
			} else if kindOf(err) != seed.Write {
				t.Fatalf("got %v, want a Write error", err)
			}
			for _, part := range tc.message {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("message lacks %q: %v", part, err)
				}
			}
			for _, entry := range logs.All() {
				if strings.Contains(entry.Message, "lost+found") {
					t.Errorf("warned of lost+found: %v", entry)
				}
			}
			for dir := range dirs {
				entries, rerr := os.ReadDir(dir)
				if rerr != nil || err != nil && (len(entries) != 1 || entries[0].Name() != "lost+found") {
					t.Errorf("%s holds %v, %v", dir, entries, rerr)
				}
			}
		})
	}
}
