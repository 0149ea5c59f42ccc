package seed_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/internal/birth"
	"github.com/etcdinit/etcdinit/seed"
)

// kindOf is the kind of a seed error, 0 where it is none.
func kindOf(err error) seed.ErrorKind {
	if e, ok := errors.AsType[*seed.Error](err); ok {
		return e.Kind
	}
	return 0
}

// content is a file's beginning without trailing zeros, and its size. All that a
// seed writes is in its first pages.
func content(path string) (data []byte, size int64) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0
	}
	defer f.Close() //nolint:errcheck // opened for reading
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, 0
	}
	data, err = io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, 0
	}
	return bytes.TrimRight(data, "\x00"), info.Size()
}

var nop = zap.NewNop()

// appendState lets a log say that its member has voted.
func appendState(tb testing.TB, segment string) {
	tb.Helper()
	dir := filepath.Dir(segment)
	w, err := wal.Open(nop, dir, &walpb.Snapshot{})
	if err != nil {
		tb.Fatal(err)
	}
	if _, _, _, err := w.ReadAll(); err != nil {
		tb.Fatal(err)
	}
	if err := w.Save(&raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(7)), Commit: new(uint64(3))}, nil); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
}

// bump lets a database look as if an etcd had applied more.
func bump(tb testing.TB, data string) {
	tb.Helper()
	edit(tb, data, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), []byte{0, 0, 0, 0, 0, 0, 0, 70})
	})
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func remove(tb testing.TB, path string) {
	tb.Helper()
	if err := os.RemoveAll(path); err != nil {
		tb.Fatal(err)
	}
}

func rename(tb testing.TB, from, to string) {
	tb.Helper()
	if err := os.Rename(from, to); err != nil {
		tb.Fatal(err)
	}
}

// tree is a directory's names, modes, times and sizes: what a reader must not change.
func tree(tb testing.TB, dirs ...string) []string {
	tb.Helper()
	var list []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			line := fmt.Sprintf("%s %s %d %s", path, info.Mode(), info.Size(), info.ModTime().Format(time.RFC3339Nano))
			if info.Mode().IsRegular() {
				data, _ := content(path)
				line += fmt.Sprintf(" %x", sha256.Sum256(data))
			}
			list = append(list, line)
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	return list
}

// edit changes the members bucket's database as an etcd might have.
func edit(tb testing.TB, dataDir string, fn func(tx *bolt.Tx) error) {
	tb.Helper()
	db, err := bolt.Open(filepath.Join(dataDir, "member", "snap", "db"), 0o600, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if err := db.Update(fn); err != nil {
		tb.Fatal(err)
	}
	if err := db.Close(); err != nil {
		tb.Fatal(err)
	}
}

// mustInspect tells what is in a spec's directories.
func mustInspect(tb testing.TB, spec seed.Spec) *seed.State {
	tb.Helper()
	st, err := seed.Inspect(spec.DataDir, spec.WALDir)
	if err != nil {
		tb.Fatal(err)
	}
	return st
}

// mustPrepare gives a spec's directories their disk ID.
func mustPrepare(tb testing.TB, spec seed.Spec) seed.DiskID {
	tb.Helper()
	if err := seed.Prepare(spec, nop); err != nil {
		tb.Fatal(err)
	}
	st := mustInspect(tb, spec)
	if st.Kind != seed.Empty || !st.DiskID.Valid() || len(st.Leftovers) > 0 {
		tb.Fatalf("prepared: %+v", st)
	}
	return st.DiskID
}

// rosterOf seats a spec's members: its own on d, the others on made-up disks that
// differ by fill.
func rosterOf(tb testing.TB, spec seed.Spec, d seed.DiskID, fill string) seed.Roster {
	tb.Helper()
	p := mustPlan(tb, spec)
	var seats []seed.Seat
	for i, m := range p.Members {
		disk := seed.DiskID(strings.Repeat(fill, 30) + fmt.Sprintf("%02d", i))
		if m.ID == p.MemberID {
			disk = d
		}
		seats = append(seats, seed.Seat{Member: m.ID.String(), Disk: disk})
	}
	return birth.Sort(seats)
}

// mustBear prepares a spec's directories, and commits a pending birth on them.
func mustBear(tb testing.TB, spec seed.Spec) *seed.Plan {
	tb.Helper()
	return mustBearOn(tb, spec, mustPrepare(tb, spec), "a")
}

func mustBearOn(tb testing.TB, spec seed.Spec, d seed.DiskID, fill string) *seed.Plan {
	tb.Helper()
	p := mustPlan(tb, spec).Born(rosterOf(tb, spec, d, fill), true)
	if err := p.Apply(tb.Context(), nop); err != nil {
		tb.Fatal(err)
	}
	return p
}

// markOf is the path of a plan's mark "not released yet".
func markOf(p *seed.Plan) string {
	return filepath.Join(p.DataDir, "member", "etcdinit-pending-"+p.ClusterID.String())
}

const recordPath = "member/etcdinit-seed.json"
