package seed_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/seed"
)

// TestInspect goes through the kinds of directory that operators have brought.
func TestInspect(t *testing.T) {
	const other = "m3"
	for _, tc := range []struct {
		name     string
		separate bool
		make     func(t *testing.T, data, wal string)
		kind     seed.Kind
		reason   []string
		check    func(t *testing.T, st *seed.State, data, wal string)
	}{
		{name: "no directory", make: func(*testing.T, string, string) {}, kind: seed.Empty},
		{name: "lost+found only (WB-44)", kind: seed.Empty, make: func(t *testing.T, data, _ string) {
			t.Helper()
			write(t, data+"/lost+found/x", "")
		}, check: func(t *testing.T, st *seed.State, _, _ string) {
			t.Helper()
			if len(st.Foreign) > 0 || len(st.Leftovers) > 0 {
				t.Errorf("%+v", st)
			}
		}},
		{name: "unknown .part directory (DL-06)", kind: seed.Empty, make: func(t *testing.T, data, _ string) {
			t.Helper()
			write(t, data+"/member.part/wal/"+firstSegment, "trunc")
		}, check: func(t *testing.T, st *seed.State, data, _ string) {
			t.Helper()
			if !slices.Equal(st.Foreign, []string{data + "/member.part"}) || len(st.Leftovers) > 0 {
				t.Errorf("%+v", st)
			}
		}},
		{name: "empty skeleton", kind: seed.Empty, make: func(t *testing.T, data, _ string) {
			t.Helper()
			for _, d := range []string{"snap", "wal"} {
				if err := os.MkdirAll(data+"/member/"+d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{name: "valid", kind: seed.Valid, make: seeded, check: func(t *testing.T, st *seed.State, _, _ string) {
			t.Helper()
			if !st.Pristine || st.Pending || st.Self == nil || st.Self.Name != "m1" || len(st.Members) != 3 ||
				st.MemberID != 0x4036b1db24775ea0 || st.ClusterID != 0x64d937c925e41b58 || st.Segments != 1 || st.PackageDefault ||
				!slices.Equal(st.Self.ClientURLs, []string{"http://127.0.0.1:23791"}) ||
				st.Record == nil || st.Record.Kind != seed.RecordComputed {
				t.Errorf("%+v", st)
			}
			// Only its own entry has client URLs: to etcd a member with some has run.
			for _, m := range st.Members {
				if m.ID != st.MemberID && (len(m.ClientURLs) > 0 || m.Name == "") {
					t.Errorf("%+v", m)
				}
			}
		}},
		{name: "log deleted (DL-03)", kind: seed.Broken, reason: []string{"member/snap/db exists but", "member/wal is missing or empty"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			remove(t, data+"/member/wal")
		}},
		{name: "log directory emptied (DL-03, DL-13)", kind: seed.Broken, reason: []string{"member/snap/db exists but", "member/wal is missing or empty"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			remove(t, data+"/member/wal/"+firstSegment)
		}},
		{name: "a whole log alone", kind: seed.Valid, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			remove(t, data+"/member/snap/db")
		}, check: func(t *testing.T, st *seed.State, _, _ string) {
			t.Helper()
			if !st.LogAlone || st.Self == nil || st.Self.Name != "m1" || len(st.Members) != 3 {
				t.Errorf("%+v", st)
			}
		}},
		{name: "a log alone that is not whole", kind: seed.Broken, reason: []string{"holds 1 WAL segments but", "member/snap/db is missing", "does not reach back"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			remove(t, data+"/member/snap/db")
			write(t, data+"/member/snap/0000000000000001-0000000000000004.snap", "x")
		}, check: wantLost(true)},
		{name: "a pending seed without its database", kind: seed.Broken, reason: []string{"member/snap/db is missing", "no etcd has run on it"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			mustBear(t, trio(data, "m1"))
			remove(t, data+"/member/snap/db")
		}, check: wantLost(false)},
		{name: "a bare database", kind: seed.Empty, make: func(t *testing.T, data, _ string) {
			t.Helper()
			bareDB(t, data)
		}, check: func(t *testing.T, st *seed.State, data, _ string) {
			t.Helper()
			if st.Unused != data+"/member" {
				t.Errorf("%+v", st)
			}
		}},
		{name: "a bare database beside a separate wal-dir", separate: true, kind: seed.Empty, make: func(t *testing.T, data, _ string) {
			t.Helper()
			bareDB(t, data, "meta", "members", "key")
			edit(t, data, func(tx *bolt.Tx) error {
				return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), make([]byte, 8))
			})
		}},
		{name: "a database that is not bare: an index", kind: seed.Broken, reason: []string{"the log is lost"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			bareDB(t, data, "meta")
			bump(t, data)
		}, check: wantLost(true)},
		{name: "a database that is not bare: a key", kind: seed.Broken, reason: []string{"the log is lost"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			bareDB(t, data, "key")
			edit(t, data, func(tx *bolt.Tx) error { return tx.Bucket([]byte("key")).Put([]byte("k"), []byte("v")) })
		}},
		{name: "a database that is not bare: a member", kind: seed.Broken, reason: []string{"the log is lost"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			bareDB(t, data, "members")
			edit(t, data, func(tx *bolt.Tx) error { return tx.Bucket([]byte("members")).Put([]byte("1"), []byte("{}")) })
		}},
		{name: "a bare database beside what is left of a log", kind: seed.Broken, reason: []string{"the log is lost"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			bareDB(t, data)
			write(t, data+"/member/wal/x.wal.broken", "")
		}},
		{name: "proxy alone", kind: seed.Broken, reason: []string{"/proxy exists", "move "}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			if err := os.MkdirAll(data+"/proxy", 0o700); err != nil {
				t.Fatal(err)
			}
		}, check: wantLost(false)},
		{name: "proxy beside a member", kind: seed.Broken, reason: []string{"/proxy exists"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			if err := os.Mkdir(data+"/proxy", 0o700); err != nil {
				t.Fatal(err)
			}
		}, check: wantLost(false)},
		{name: "member is a link to a member", kind: seed.Valid, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			movedAndLinked(t, data+"/member")
		}},
		{name: "wal and snap are links", kind: seed.Valid, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			movedAndLinked(t, data+"/member/wal")
			movedAndLinked(t, data+"/member/snap")
		}},
		{name: "wal is a link, and there are no data", kind: seed.Broken, reason: []string{"/member/wal is a symbolic link in a directory without data"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			if err := os.MkdirAll(data+"/member/wal", 0o700); err != nil {
				t.Fatal(err)
			}
			movedAndLinked(t, data+"/member/wal")
		}, check: wantLost(false)},
		{name: "a snapshot file alone", kind: seed.Broken, reason: []string{"0000000000000001-0000000000000004.snap exists but"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			write(t, data+"/member/snap/0000000000000001-0000000000000004.snap", "x")
		}},
		{name: "old log in wal-dir, empty data-dir (DL-05 a)", separate: true, kind: seed.Broken, reason: []string{"member/snap/db is missing", "populated: wal-dir", "empty: data-dir"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			remove(t, data+"/member")
		}},
		{name: "data-dir full, wal-dir empty (DL-05 b)", separate: true, kind: seed.Broken, reason: []string{"populated: data-dir", "empty: wal-dir"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			remove(t, wal+"/"+firstSegment)
		}},
		{name: "data-dir full with its own log, wal-dir empty", separate: true, kind: seed.Broken, reason: []string{"member/wal holds 1 WAL segments, but wal-dir is"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			seeded(t, data, "")
		}},
		{name: "separate wal-dir, valid (DL-05 c)", separate: true, kind: seed.Valid, make: seeded, check: func(t *testing.T, st *seed.State, data, _ string) {
			t.Helper()
			if _, err := os.Stat(data + "/member/wal"); err == nil || !st.Pristine {
				t.Errorf("member/wal exists, or %+v", st)
			}
		}},
		{name: "log of another member", kind: seed.Broken, reason: []string{"is the log of member", "do not belong together"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			foreign := t.TempDir()
			spec := trio(foreign, other)
			spec.Token = "another"
			mustApply(t, spec)
			remove(t, data+"/member/wal")
			rename(t, foreign+"/member/wal", data+"/member/wal")
		}},
		{name: "fresh log beside a used database", kind: seed.Broken, reason: []string{"has applied index 70, but the log", "ends at 3"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			edit(t, data, func(tx *bolt.Tx) error {
				return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), []byte{0, 0, 0, 0, 0, 0, 0, 70})
			})
		}},
		{name: "empty database file", kind: seed.Broken, reason: []string{"member/snap/db: file is empty"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			write(t, data+"/member/snap/db", "")
		}},
		{name: "truncated database", kind: seed.Broken, reason: []string{"member/snap/db: file is 8192 bytes", "it was truncated"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			if err := os.Truncate(data+"/member/snap/db", 8192); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "empty log file", kind: seed.Broken, reason: []string{"no checksum record at offset 0"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			write(t, data+"/member/wal/"+firstSegment, "")
		}},
		{name: "log cut in its entries", kind: seed.Broken, reason: []string{"has applied index 3, but the log"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			if err := os.Truncate(data+"/member/wal/"+firstSegment, 150); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "second segment without a header", kind: seed.Broken, reason: []string{"0000000000000001-0000000000000009.wal: no checksum record"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			write(t, data+"/member/wal/0000000000000001-0000000000000009.wal", strings.Repeat("\x00", 4096))
		}},
		{name: "a segment is missing", kind: seed.Broken, reason: []string{"segment 2 follows segment 0: one is missing"}, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			write(t, data+"/member/wal/0000000000000002-0000000000000009.wal", "x")
		}},
		{name: "broken files beside living ones (CF-06)", kind: seed.Valid, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			write(t, data+"/member/wal/x.wal.broken", "")
			write(t, data+"/member/wal/0.tmp", "")
			write(t, data+"/member/snap/y.snap.broken", "")
		}, check: func(t *testing.T, st *seed.State, data, _ string) {
			t.Helper()
			want := []string{data + "/member/snap/y.snap.broken", data + "/member/wal/0.tmp", data + "/member/wal/x.wal.broken"}
			slices.Sort(st.Ignored)
			if !slices.Equal(st.Ignored, want) {
				t.Errorf("ignored %v, want %v", st.Ignored, want)
			}
		}},
		{name: "nothing but broken files", kind: seed.Broken, reason: []string{"x.wal.broken exists, but neither", "another life"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			write(t, data+"/member/wal/x.wal.broken", "")
		}},
		{name: "a stray .wal", kind: seed.Broken, reason: []string{"foo.wal is not the name of a WAL segment"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			write(t, data+"/member/wal/foo.wal", "")
		}},
		{name: "data-dir one level too deep", kind: seed.Broken, reason: []string{"looks like a member directory"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			outer := t.TempDir()
			seeded(t, outer, "")
			rename(t, outer+"/member", data)
		}},
		{name: "data-dir is a file", kind: seed.Broken, reason: []string{"is not a directory"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			write(t, data, "x")
		}},
		{name: "data-dir is a dangling link", kind: seed.Broken, reason: []string{"is a symbolic link to something that does not exist"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			if err := os.Symlink(data+"-gone", data); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "member is a link", kind: seed.Broken, reason: []string{"member is a symbolic link"}, make: func(t *testing.T, data, _ string) {
			t.Helper()
			write(t, data+"/x", "")
			if err := os.Symlink(t.TempDir(), data+"/member"); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "removed member (WB-54)", kind: seed.Valid, make: func(t *testing.T, data, wal string) {
			t.Helper()
			seeded(t, data, wal)
			edit(t, data, func(tx *bolt.Tx) error {
				if err := tx.Bucket([]byte("members")).Delete([]byte("4036b1db24775ea0")); err != nil {
					return err
				}
				return tx.Bucket([]byte("members_removed")).Put([]byte("4036b1db24775ea0"), []byte("removed"))
			})
			// An etcd has run: the log is not the seed's any more.
			appendState(t, data+"/member/wal/"+firstSegment)
		}, check: func(t *testing.T, st *seed.State, data, _ string) {
			t.Helper()
			if c := st.Compare(mustPlan(t, trio(data, "m1"))); !c.SelfRemoved || c.SameMember || !slices.Equal(st.Removed, []types.ID{0x4036b1db24775ea0}) || c.StoredSelf.ID != 0x4036b1db24775ea0 {
				t.Errorf("%+v, %+v", st, c)
			}
		}},
		{name: "learner (WB-60)", kind: seed.Valid, make: func(t *testing.T, data, _ string) {
			t.Helper()
			spec := trio(data, "m1")
			spec.Members[0].IsLearner = true
			mustApply(t, spec)
		}, check: func(t *testing.T, st *seed.State, data, _ string) {
			t.Helper()
			if c := st.Compare(mustPlan(t, trio(data, "m1"))); !st.Self.IsLearner || !c.SameMember || !st.Pristine {
				t.Errorf("%+v, %+v", st, c)
			}
		}},
		{name: "marks of ours emptied (WB-61)", kind: seed.Valid, make: func(t *testing.T, data, _ string) {
			t.Helper()
			p := mustBear(t, trio(data, "m1"))
			write(t, markOf(p), "")
		}, check: func(t *testing.T, st *seed.State, _, _ string) {
			t.Helper()
			if !st.Pending {
				t.Errorf("%+v", st)
			}
		}},
		{name: "package's cluster of one", kind: seed.Valid, make: func(t *testing.T, data, _ string) {
			t.Helper()
			mustApply(t, seed.Spec{
				DataDir: data, Token: "etcd-cluster", Self: "default",
				Members: []seed.Member{{Name: "default", PeerURLs: []string{"http://localhost:2380"}, ClientURLs: []string{"http://localhost:2379"}}},
			})
		}, check: func(t *testing.T, st *seed.State, data, _ string) {
			t.Helper()
			if c := st.Compare(mustPlan(t, trio(data, "m1"))); !st.PackageDefault || c.SameMember {
				t.Errorf("%+v, %+v", st, c)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			data, wal := root+"/data", ""
			if tc.separate {
				wal = root + "/wal"
			}
			tc.make(t, data, wal)
			before := tree(t, root)
			st, err := seed.Inspect(data, wal)
			if err != nil {
				t.Fatal(err)
			}
			if st.Kind != tc.kind {
				t.Fatalf("kind %s (%s), want %s", st.Kind, st.Reason, tc.kind)
			}
			for _, part := range tc.reason {
				if !strings.Contains(st.Reason, part) {
					t.Errorf("reason lacks %q: %s", part, st.Reason)
				}
			}
			if tc.check != nil {
				tc.check(t, st, data, wal)
			}
			_, err = seed.Verify(data, wal, true)
			if want := seed.Damaged; tc.kind == seed.Broken && kindOf(err) != want || tc.kind != seed.Broken && err != nil {
				t.Errorf("verify: %v", err)
			}
			if tc.kind == seed.Broken && !strings.Contains(err.Error(), "data directory is not valid: "+st.Reason+"; nothing was changed") {
				t.Errorf("verify says %v", err)
			}
			if after := tree(t, root); !slices.Equal(before, after) {
				t.Errorf("reading has changed the directory:\n%s\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
			if _, err := json.Marshal(st); err != nil {
				t.Error(err)
			}
			applyOver(t, tc.kind, data, wal, root)
		})
	}
}

// wantLost holds whether votes may be gone.
func wantLost(want bool) func(*testing.T, *seed.State, string, string) {
	return func(t *testing.T, st *seed.State, _, _ string) {
		t.Helper()
		if st.LogLost != want {
			t.Errorf("log lost: %v, want %v (%s)", st.LogLost, want, st.Reason)
		}
	}
}

// bareDB makes what an etcd leaves that was started too early: a database with at
// most some empty buckets.
func bareDB(t *testing.T, data string, buckets ...string) {
	t.Helper()
	if err := os.MkdirAll(data+"/member/snap", 0o700); err != nil {
		t.Fatal(err)
	}
	edit(t, data, func(tx *bolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// movedAndLinked moves a directory to another place and leaves a link to it.
func movedAndLinked(t *testing.T, path string) {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	rename(t, path, to)
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// TestUnusedMovedAside: a bare database is moved aside, never deleted, and each time
// under a new name.
func TestUnusedMovedAside(t *testing.T) {
	data := t.TempDir()
	bareDB(t, data)
	before, _ := content(data + "/member/snap/db")
	if err := seed.Prepare(trio(data, "m1"), nop); err != nil {
		t.Fatal(err)
	}
	bareDB(t, data, "meta")
	mustApply(t, trio(data, "m1"))
	for i := range 2 {
		after, size := content(fmt.Sprintf("%s/etcdinit-unused-member-%d/snap/db", data, i+1))
		if size == 0 || i == 0 && !slices.Equal(before, after) {
			t.Errorf("%d: %d bytes", i+1, size)
		}
	}
	if st, err := seed.Inspect(data, ""); err != nil || st.Kind != seed.Valid || len(st.Foreign) != 2 {
		t.Errorf("%+v, %v", st, err)
	}
}

// applyOver: only what is empty is seeded, all else stays as it is.
func applyOver(t *testing.T, kind seed.Kind, data, wal, root string) {
	t.Helper()
	spec := trio(data, "m2")
	spec.WALDir = wal
	before := tree(t, root)
	err := mustPlan(t, spec).Apply(t.Context(), nop)
	switch {
	case kind == seed.Empty && err != nil:
		t.Errorf("seeding over it: %v", err)
	case kind == seed.Valid && kindOf(err) != seed.Foreign && kindOf(err) != seed.Changed,
		kind == seed.Broken && kindOf(err) != seed.Damaged && kindOf(err) != seed.Write:
		t.Errorf("seeding over it: %v", err)
	}
	if kind == seed.Empty {
		return
	}
	if after := tree(t, root); !slices.Equal(before, after) {
		t.Errorf("a refused seed has changed the directory:\n%s\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// seeded makes a valid directory.
func seeded(t *testing.T, data, wal string) {
	t.Helper()
	spec := trio(data, "m1")
	spec.WALDir = wal
	mustApply(t, spec)
}
