package seed_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdinit/etcdinit/internal/birth"
	"github.com/etcdinit/etcdinit/seed"
)

// snapshotOf is the snapshot of a server, with its digest behind it.
func snapshotOf(t *testing.T, e *embed.Etcd) []byte {
	t.Helper()
	var b bytes.Buffer
	snap := e.Server.Backend().Snapshot()
	if _, err := snap.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if err := snap.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

// aSnapshot is one with the keys k0 to k9, written twice, and its last revision.
func aSnapshot(t *testing.T) (data []byte, revision int64) {
	t.Helper()
	peer, client := freeURL(t), freeURL(t)
	dir := t.TempDir()
	mustApply(t, seed.Spec{DataDir: dir, Token: "old", Self: "old", Members: []seed.Member{{Name: "old", PeerURLs: []string{peer}, ClientURLs: []string{client}}}})
	e := start(t, dir, "", "old", peer, client)
	defer e.Close()
	for i := range 20 {
		resp, err := e.Server.Put(t.Context(), &etcdserverpb.PutRequest{Key: fmt.Append(nil, "k", i%10), Value: fmt.Append(nil, "v", i)})
		if err != nil {
			t.Fatal(err)
		}
		revision = resp.Header.Revision
	}
	return snapshotOf(t, e), revision
}

// source is a snapshot in memory.
func source(data []byte) seed.Snapshot {
	return seed.Snapshot{Name: "snapshot.db", Open: func(context.Context) (io.ReadCloser, int64, time.Time, error) {
		return io.NopCloser(bytes.NewReader(data)), int64(len(data)), time.Unix(1_700_000_000, 0), nil
	}}
}

func mustStage(t *testing.T, spec seed.Spec, s seed.Snapshot) *seed.Staged {
	t.Helper()
	staged, err := seed.Stage(t.Context(), spec, s, nop)
	if err != nil {
		t.Fatal(err)
	}
	return staged
}

// TestRestoreBoots: three members are born with the content of a snapshot of another
// cluster: they have its keys and their own members, and the revision that was asked
// for; what was before it is compacted.
func TestRestoreBoots(t *testing.T) {
	data, revision := aSnapshot(t)
	for _, bump := range []uint64{0, 1_000_000_000} {
		for _, separate := range []bool{false, true} {
			t.Run(fmt.Sprint(bump, separate), func(t *testing.T) {
				restoreBoots(t, data, revision, bump, separate)
			})
		}
	}
}

func restoreBoots(t *testing.T, data []byte, revision int64, bump uint64, separate bool) {
	t.Helper()
	var members []seed.Member
	for i := range 3 {
		members = append(members, seed.Member{Name: fmt.Sprint("m", i), PeerURLs: []string{freeURL(t)}, ClientURLs: []string{freeURL(t)}})
	}
	var plans []*seed.Plan
	var seats []seed.Seat
	for _, m := range members {
		spec := seed.Spec{DataDir: filepath.Join(t.TempDir(), "data"), Token: "new", Self: m.Name, Members: members}
		if separate {
			spec.WALDir = filepath.Join(t.TempDir(), "wal")
		}
		staged := mustStage(t, spec, source(data))
		if staged.Revision != revision || staged.Version == "" || len(staged.Members) != 1 || staged.Members[0].Name != "old" || !staged.Verified {
			t.Errorf("staged %+v", staged.Content)
		}
		disk := mustPrepare(t, spec) // which leaves the staged database alone
		if !staged.There() {
			t.Fatal("what was staged is gone")
		}
		p, err := mustPlan(t, spec).Restoring(staged, bump)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
		seats = append(seats, seed.Seat{Member: p.MemberID.String(), Disk: disk})
	}
	if plans[0].Digest() != plans[1].Digest() {
		t.Error("two members that restore one snapshot have different digests")
	}
	roster := birth.Sort(seats)
	booted := make(chan *embed.Etcd)
	for i, m := range members {
		p := plans[i]
		if err := p.Born(roster, true).Apply(t.Context(), nop); err != nil {
			t.Fatal(err)
		}
		st, err := seed.Verify(p.DataDir, p.WALDir, true)
		if err != nil {
			t.Fatal(err)
		}
		if !st.Pristine || !st.Pending || st.Record.Restored == nil || st.Record.Restored.Revision != revision || len(st.Members) != 3 || st.Self == nil ||
			len(st.Leftovers)+len(st.Staged)+len(st.Foreign) > 0 {
			t.Errorf("restored: %+v, record %+v", st, st.Record)
		}
		if err := seed.Release(st); err != nil {
			t.Fatal(err)
		}
		wal := ""
		if separate {
			wal = p.WALDir
		}
		go func() { booted <- start(t, p.DataDir, wal, m.Name, m.PeerURLs[0], m.ClientURLs[0]) }()
	}
	want := revision + int64(bump)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range members {
		e := <-booted
		if e == nil {
			t.Fatal("an etcd did not boot")
		}
		t.Cleanup(e.Close)
		got, err := e.Server.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")})
		if err != nil || len(got.Kvs) != 10 || string(got.Kvs[3].Value) != "v13" || got.Header.Revision != want {
			t.Errorf("%v, %v; want ten keys at revision %d", got, err, want)
		}
		if n := len(e.Server.Cluster().Members()); n != 3 {
			t.Errorf("%d members", n)
		}
		_, err = e.Server.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("k3"), Revision: revision - 5})
		if compacted := err != nil && strings.Contains(err.Error(), "compacted"); compacted != (bump > 0) {
			t.Errorf("a read of an old revision: %v", err)
		}
	}
}

// TestStageRefuses: what is no whole snapshot is named, and leaves nothing behind.
func TestStageRefuses(t *testing.T) {
	data, _ := aSnapshot(t)
	change := func(at int) []byte {
		b := slices.Clone(data)
		b[at] ^= 1
		return b
	}
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "is empty"},
		{"cut off", data[:len(data)/2+7], "cut off"},
		{"cut off at a page", data[:8192], "no digest at its end"},
		{"one bit", change(len(data) / 2), "digest is wrong"},
		{"one bit of the digest", change(len(data) - 1), "digest is wrong"},
		{"no digest", data[:len(data)-32], "--restore-skip-hash-check"},
		{"gzip", append([]byte{0x1f, 0x8b}, data...), "gzip"},
		{"a web page", []byte("\n<!DOCTYPE html><html>log in</html>"), "web page"},
		{"JSON", []byte(`{"error":"denied"}`), "JSON"},
		{"something", []byte("hello, world, this is nothing"), "no bbolt database"},
		{"short", []byte("x"), "only 1 bytes long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := trio(filepath.Join(t.TempDir(), "data"), "m1")
			_, err := seed.Stage(t.Context(), spec, source(tt.data), nop)
			if kindOf(err) != seed.Invalid || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "snapshot.db") {
				t.Errorf("got %v, want Invalid with %q", err, tt.want)
			}
			if entries, _ := os.ReadDir(spec.DataDir); len(entries) > 0 { //nolint:errcheck // not there is as good
				t.Errorf("left behind: %v", entries)
			}
		})
	}
	t.Run("another digest than was asked for", func(t *testing.T) {
		s := source(data)
		s.SHA256 = strings.Repeat("ab", 32)
		_, err := seed.Stage(t.Context(), trio(t.TempDir(), "m1"), s, nop)
		if kindOf(err) != seed.Invalid || !strings.Contains(err.Error(), s.SHA256) {
			t.Error(err)
		}
	})
	t.Run("unchecked", func(t *testing.T) {
		s := source(data[:len(data)-32])
		s.Unchecked = true
		staged := mustStage(t, trio(t.TempDir(), "m1"), s)
		if whole := mustStage(t, trio(t.TempDir(), "m1"), source(data)); whole.SHA256 != staged.SHA256 || staged.Verified {
			t.Errorf("%+v and %+v", staged, whole)
		}
	})
	t.Run("a read that fails in the middle", func(t *testing.T) {
		s := source(nil)
		s.Open = func(context.Context) (io.ReadCloser, int64, time.Time, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(data[:9000]), broken{})), int64(len(data)), time.Time{}, nil
		}
		dir := t.TempDir()
		_, err := seed.Stage(t.Context(), trio(dir, "m1"), s, nop)
		if !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), "snapshot.db") {
			t.Error(err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 0 { //nolint:errcheck // not there is as good
			t.Errorf("left behind: %v", entries)
		}
	})
	t.Run("a database in use", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(path, data[:len(data)-32], 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close() //nolint:errcheck // nothing was written
		s := source(nil)
		s.Unchecked = true
		s.Open = func(context.Context) (io.ReadCloser, int64, time.Time, error) {
			f, err := os.Open(path)
			return f, int64(len(data) - 32), time.Time{}, err
		}
		if _, err := seed.Stage(t.Context(), trio(t.TempDir(), "m1"), s, nop); kindOf(err) != seed.Busy {
			t.Errorf("%v, want Busy", err)
		}
	})
	t.Run("no empty directory", func(t *testing.T) {
		p := mustApply(t, trio(t.TempDir(), "m1"))
		if _, err := seed.Stage(t.Context(), trio(p.DataDir, "m1"), source(data), nop); kindOf(err) != seed.Changed {
			t.Error(err)
		}
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestStageAgain: the next run uses what an earlier one has staged from the same source,
// if it still has its hash; else it is removed. A run that is killed in between leaves
// nothing that counts.
func TestStageAgain(t *testing.T) {
	data, _ := aSnapshot(t)
	spec := trio(t.TempDir(), "m1")
	first := mustStage(t, spec, source(data))
	unread := source(data)
	open := unread.Open
	unread.Open = func(ctx context.Context) (io.ReadCloser, int64, time.Time, error) {
		_, size, modified, err := open(ctx)
		return io.NopCloser(broken{}), size, modified, err // not a byte is read
	}
	if again := mustStage(t, spec, unread); again.SHA256 != first.SHA256 || !again.There() {
		t.Errorf("%+v, want %+v", again, first)
	}
	staged := func() []string {
		st, err := seed.Inspect(spec.DataDir, "")
		if err != nil || st.Kind != seed.Empty {
			t.Fatalf("%+v, %v", st, err)
		}
		return st.Staged
	}
	list := staged()
	if len(list) != 1 {
		t.Fatal(list)
	}
	if removed, err := seed.Clean(spec.DataDir, ""); err != nil || len(removed) > 0 {
		t.Errorf("cleaned %v, %v", removed, err)
	}
	db, err := os.OpenFile(filepath.Join(list[0], "db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.WriteAt([]byte{0xff}, int64(len(data)/2)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := seed.Stage(t.Context(), spec, unread, nop); err == nil {
		t.Error("a staged database was used that is not what it was")
	}
	if list := staged(); len(list) > 0 {
		t.Errorf("still there: %v", list)
	}
	mustStage(t, spec, source(data))
	if removed, err := seed.Unstage(spec.DataDir, ""); err != nil || len(removed) != 1 || len(staged()) > 0 {
		t.Errorf("unstaged %v, %v", removed, err)
	}
}

// TestRestoringDigest: the snapshot and the bump are part of what members agree on, and
// nobody agrees with one that does not know its snapshot yet.
func TestRestoringDigest(t *testing.T) {
	data, _ := aSnapshot(t)
	spec := trio(t.TempDir(), "m1")
	staged := mustStage(t, spec, source(data))
	plain := mustPlan(t, spec)
	digests := []string{plain.Digest(), plain.Staging("x").Digest()}
	for _, bump := range []uint64{0, 1} {
		p, err := plain.Restoring(staged, bump)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, p.Digest())
	}
	slices.Sort(digests)
	if len(slices.Compact(digests)) != 4 {
		t.Error(digests)
	}
	if _, err := seed.Unstage(spec.DataDir, ""); err != nil {
		t.Fatal(err)
	}
	p, err := plain.Restoring(staged, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(t.Context(), nop); kindOf(err) != seed.Changed {
		t.Errorf("with the staged database gone: %v, want Changed", err)
	}
}

// TestReadSnapshot: what a snapshot holds, without a byte written beside it.
func TestReadSnapshot(t *testing.T) {
	data, revision := aSnapshot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "snap.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := seed.ReadSnapshot(t.Context(), path, false, nil)
	if err != nil || c.Revision != revision || c.Keys != 20 || c.Size != int64(len(data)-32) || len(c.Members) != 1 || c.File != fmt.Sprintf("%x", sha256.Sum256(data)) {
		t.Errorf("%+v, %v", c, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Error("the snapshot was written to", err)
	}
	if err := os.WriteFile(path, data[:20_000], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seed.ReadSnapshot(t.Context(), path, false, nil); kindOf(err) != seed.Invalid {
		t.Error(err)
	}
}
