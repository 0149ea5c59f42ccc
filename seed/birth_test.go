package seed_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/seed"
)

const diskDir = ".etcdinit-disk"

// bothLayouts runs fn without and with a separate wal-dir.
func bothLayouts(t *testing.T, fn func(t *testing.T, spec seed.Spec)) {
	t.Helper()
	for _, separate := range []bool{false, true} {
		name := "one directory"
		if separate {
			name = "separate wal-dir"
		}
		t.Run(name, func(t *testing.T) {
			t.Helper()
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			spec := trio(filepath.Join(root, "data"), "m1")
			if separate {
				spec.WALDir = filepath.Join(root, "wal")
			}
			fn(t, spec)
		})
	}
}

// sidesOf lists the directories that hold a disk ID.
func sidesOf(spec seed.Spec) []string {
	if spec.WALDir == "" {
		return []string{spec.DataDir}
	}
	return []string{spec.DataDir, spec.WALDir}
}

func wantNoDisk(t *testing.T, spec seed.Spec) {
	t.Helper()
	for _, side := range sidesOf(spec) {
		if _, err := os.Lstat(filepath.Join(side, diskDir)); !os.IsNotExist(err) {
			t.Errorf("a disk ID is left in %s: %v", side, err)
		}
	}
}

// TestPrepare: one ID on all sides, found again; what does not agree is replaced.
func TestPrepare(t *testing.T) {
	bothLayouts(t, func(t *testing.T, spec seed.Spec) {
		t.Helper()
		id := mustPrepare(t, spec)
		if again := mustPrepare(t, spec); again != id {
			t.Errorf("a second run made %s of %s", again, id)
		}
		for _, side := range sidesOf(spec) {
			text, err := os.ReadFile(filepath.Join(side, diskDir, string(id), "disk"))
			if err != nil || !strings.Contains(string(text), `"version":1,"diskID":"`+string(id)+`"`) ||
				strings.Contains(string(text), `"walDir":"`+spec.WALDir+`"`) != (spec.WALDir != "") {
				t.Errorf("%s, %v", text, err)
			}
		}
		if st := mustInspect(t, spec); seed.Confirm(st) != nil || st.Kind != seed.Empty {
			t.Errorf("%+v: %v", st, seed.Confirm(st))
		}
		other := strings.Repeat("0", 32)
		for _, tc := range []struct {
			name string
			edit func(side, disk string)
			wal  bool // only with a separate wal-dir
		}{
			{"missing on one side", func(_, disk string) { remove(t, filepath.Dir(disk)) }, true},
			{"one side is gone, a lost volume", func(side, _ string) { remove(t, side) }, true},
			{"empty on one side", func(_, disk string) { remove(t, disk) }, true},
			{"another on one side", func(side, disk string) {
				rename(t, disk, filepath.Join(side, diskDir, other))
				write(t, filepath.Join(side, diskDir, other, "disk"), `{"version":1,"diskID":"`+other+`","walDir":"x"}`)
			}, true},
			{"no file", func(_, disk string) { remove(t, filepath.Join(disk, "disk")) }, false},
			{"file cut", func(_, disk string) { write(t, filepath.Join(disk, "disk"), "{") }, false},
			{"another name", func(side, disk string) { rename(t, disk, filepath.Join(side, diskDir, other)) }, false},
			{"two of them", func(side, _ string) { write(t, filepath.Join(side, diskDir, other, "disk"), "{}") }, false},
			{"for another arrangement", func(_, disk string) {
				wal := `,"walDir":"/x"`
				if spec.WALDir != "" {
					wal = ""
				}
				write(t, filepath.Join(disk, "disk"), `{"version":1,"diskID":"`+filepath.Base(disk)+`"`+wal+`}`)
			}, false},
		} {
			if tc.wal && spec.WALDir == "" {
				continue
			}
			for _, side := range sidesOf(spec) {
				id := mustPrepare(t, spec)
				tc.edit(side, filepath.Join(side, diskDir, string(id)))
				st := mustInspect(t, spec)
				if st.Kind != seed.Empty || st.DiskID != "" || len(st.Leftovers) == 0 || st.Unfinished {
					t.Errorf("%s in %s: %+v", tc.name, side, st)
				}
				if removed, err := seed.Clean(spec.DataDir, spec.WALDir); err != nil || len(removed) > 0 {
					t.Errorf("%s: cleaned %v, %v", tc.name, removed, err)
				}
				if next := mustPrepare(t, spec); next == id || next == seed.DiskID(other) {
					t.Errorf("%s in %s: %s is used again", tc.name, side, next)
				}
			}
		}
	})
}

// TestPrepareRefuses what is not empty, and changes nothing.
func TestPrepareRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(spec seed.Spec)
		want seed.ErrorKind
	}{
		{"a seed", func(spec seed.Spec) { mustApply(t, spec) }, seed.Changed},
		{"a broken one", func(spec seed.Spec) { write(t, spec.DataDir+"/member/snap/db", "x") }, seed.Damaged},
		{"a stranger's file in the way", func(spec seed.Spec) { write(t, spec.DataDir+"/"+diskDir, "x") }, seed.Write},
		{"a stranger's file among the IDs", func(spec seed.Spec) { write(t, spec.DataDir+"/"+diskDir+"/x", "x") }, seed.Write},
		{"no directory", func(spec seed.Spec) { write(t, spec.DataDir, "x") }, seed.Damaged},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := trio(filepath.Join(t.TempDir(), "data"), "m1")
			tc.make(spec)
			before := withoutTimes(tree(t, spec.DataDir))
			if err := seed.Prepare(spec, nop); kindOf(err) != tc.want {
				t.Errorf("%v, want kind %d", err, tc.want)
			}
			if after := withoutTimes(tree(t, spec.DataDir)); !slices.Equal(before, after) {
				t.Errorf("changed:\n%s\n%s", before, after)
			}
		})
	}
	spec := trio(filepath.Join(t.TempDir(), "a", "data"), "m1")
	spec.WALDir = spec.DataDir + "/member/log"
	if err := seed.Prepare(spec, nop); kindOf(err) != seed.Invalid {
		t.Errorf("%v, want Invalid", err)
	}
}

// withoutTimes drops the times of directories, in which a staging directory was.
func withoutTimes(lines []string) []string {
	for i, line := range lines {
		if f := strings.Fields(line); strings.HasPrefix(f[1], "d") {
			lines[i] = f[0] + f[1]
		}
	}
	return lines
}

// TestBorn: a birth has its own cluster ID, and leaves no disk ID.
func TestBorn(t *testing.T) {
	bothLayouts(t, func(t *testing.T, spec seed.Spec) {
		t.Helper()
		computed := mustPlan(t, spec)
		d := mustPrepare(t, spec)
		r := rosterOf(t, spec, d, "a")
		p := computed.Born(r, true)
		if p.ClusterID != types.ID(r.ClusterID(p.Digest())) || p.DiskID != d || computed.DiskID != "" || computed.Pending || p.Digest() != computed.Digest() {
			t.Errorf("%+v", p)
		}
		if err := p.Apply(t.Context(), nop); err != nil {
			t.Fatal(err)
		}
		wantNoDisk(t, spec)
		st, err := seed.Verify(spec.DataDir, spec.WALDir, true)
		if err != nil {
			t.Fatal(err)
		}
		rec := st.Record
		if st.ClusterID != p.ClusterID || !st.Pending || !st.Pristine || st.DiskID != "" || st.RecordProblem != "" || len(st.Leftovers)+len(st.Foreign) > 0 {
			t.Errorf("%+v", st)
		}
		if rec == nil || rec.Kind != seed.RecordBirth || rec.ClusterID != p.ClusterID || rec.MemberID != p.MemberID || rec.DiskID != d || !rec.Roster.Equal(r) ||
			rec.Token != "tok" || rec.PlanDigest != p.Digest() || rec.Name != "m1" || !slices.Equal(rec.PeerURLs, p.Self.PeerURLs) || !slices.Equal(rec.ClientURLs, p.Self.ClientURLs) {
			t.Errorf("%+v", rec)
		}
		if err := seed.Confirm(st); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(markOf(p)); err != nil {
			t.Error(err)
		}
		if err := p.Apply(t.Context(), nop); kindOf(err) != seed.Changed {
			t.Errorf("second run: %v", err)
		}
	})
}

// TestBornOn: a birth needs its own disk; others use the ID up.
func TestBornOn(t *testing.T) {
	bothLayouts(t, func(t *testing.T, spec seed.Spec) {
		t.Helper()
		solo := spec
		solo.Members = solo.Members[:1]
		other := seed.DiskID(strings.Repeat("7", 32))
		for _, tc := range []struct {
			name     string
			spec     seed.Spec
			prepared bool
			plan     func(p *seed.Plan, d seed.DiskID) *seed.Plan
			want     seed.ErrorKind
		}{
			{"pending, its own", spec, true, func(p *seed.Plan, d seed.DiskID) *seed.Plan { return p.Born(rosterOf(t, spec, d, "a"), true) }, 0},
			{"pending, another", spec, true, func(p *seed.Plan, _ seed.DiskID) *seed.Plan { return p.Born(rosterOf(t, spec, other, "a"), true) }, seed.Changed},
			{"pending, none", spec, false, func(p *seed.Plan, _ seed.DiskID) *seed.Plan { return p.Born(rosterOf(t, spec, other, "a"), true) }, seed.Changed},
			{"alone, its own", solo, true, func(p *seed.Plan, d seed.DiskID) *seed.Plan { return p.Born(rosterOf(t, solo, d, "a"), false) }, 0},
			{"alone, another", solo, true, func(p *seed.Plan, _ seed.DiskID) *seed.Plan { return p.Born(rosterOf(t, solo, other, "a"), false) }, 0},
			{"alone, none", solo, false, func(p *seed.Plan, _ seed.DiskID) *seed.Plan { return p.Born(rosterOf(t, solo, other, "a"), false) }, 0},
			{"computed", spec, true, func(p *seed.Plan, _ seed.DiskID) *seed.Plan { return p }, 0},
		} {
			for _, side := range sidesOf(spec) {
				remove(t, side)
			}
			d := other
			if tc.prepared {
				d = mustPrepare(t, tc.spec)
			}
			p := tc.plan(mustPlan(t, tc.spec), d)
			if err := p.Apply(t.Context(), nop); kindOf(err) != tc.want || tc.want == 0 && err != nil {
				t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
			} else if tc.want != 0 && !strings.Contains(err.Error(), "the disk ID changed meanwhile") {
				t.Errorf("%s: %v", tc.name, err)
			}
			st := mustInspect(t, tc.spec)
			if tc.want != 0 {
				if st.Kind != seed.Empty || tc.prepared && st.DiskID != d {
					t.Errorf("%s: %+v", tc.name, st)
				}
				continue
			}
			wantNoDisk(t, tc.spec)
			if st.Kind != seed.Valid || st.ClusterID != p.ClusterID || st.Pending != p.Pending || st.Record.DiskID != p.DiskID {
				t.Errorf("%s: %+v", tc.name, st)
			}
		}
	})
}

// TestBornRefuses rosters that do not fit their plan.
func TestBornRefuses(t *testing.T) {
	spec := trio(t.TempDir(), "m1")
	d := mustPrepare(t, spec)
	good := rosterOf(t, spec, d, "a")
	with := func(edit func(r seed.Roster) seed.Roster) seed.Roster { return edit(slices.Clone(good)) }
	for _, tc := range []struct {
		name    string
		roster  seed.Roster
		pending bool
		want    string
	}{
		{"no seat for the member itself", with(func(r seed.Roster) seed.Roster {
			return slices.DeleteFunc(r, func(s seed.Seat) bool { return s.Disk == d })
		}), true, "no disk for member 4036b1db24775ea0"},
		{"one disk twice", with(func(r seed.Roster) seed.Roster { r[0].Disk, r[2].Disk = d, d; return r }), true, "same disk ID " + string(d)},
		{"a stranger", with(func(r seed.Roster) seed.Roster { r[0].Member = "1"; return r }), true, "names member 1"},
		{"no disk ID", with(func(r seed.Roster) seed.Roster { r[0].Disk = "x"; return r }), true, `"x"`},
		{"released at birth", good, false, "not of 3"},
		{"empty", nil, true, "no disk for member"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := mustPlan(t, spec).Born(tc.roster, tc.pending).Apply(t.Context(), nop)
			if kindOf(err) != seed.Invalid || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want Invalid with %q", err, tc.want)
			}
			if st := mustInspect(t, spec); st.DiskID != d {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestRecord: the log rules, but what is pending cannot be judged without a record.
func TestRecord(t *testing.T) {
	record := func(data string) string { return filepath.Join(data, recordPath) }
	replace := func(t *testing.T, path, from, to string) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), from) {
			t.Fatalf("%v: %s lacks %s", err, text, from)
		}
		write(t, path, strings.Replace(string(text), from, to, 1))
	}
	for _, tc := range []struct {
		name    string
		edit    func(t *testing.T, p *seed.Plan)
		problem string // "": no record, and no problem
		broken  string // while pending
		always  bool   // broken also when it is released
	}{
		{"missing", func(t *testing.T, p *seed.Plan) { t.Helper(); remove(t, record(p.DataDir)) }, "", "etcdinit-seed.json is missing", false},
		{"empty", func(t *testing.T, p *seed.Plan) { t.Helper(); write(t, record(p.DataDir), "") }, "unexpected end", "cannot be used", false},
		{"a directory", func(t *testing.T, p *seed.Plan) {
			t.Helper()
			remove(t, record(p.DataDir))
			write(t, record(p.DataDir)+"/x", "")
		}, "is a directory", "cannot be used", false},
		{"of a later version", func(t *testing.T, p *seed.Plan) {
			t.Helper()
			replace(t, record(p.DataDir), `"version": 1`, `"version": 2`)
		}, "its version is 2", "its version is 2", false},
		{"null", func(t *testing.T, p *seed.Plan) { t.Helper(); write(t, record(p.DataDir), "null") }, "no version", "no version", false},
		{"without a version", func(t *testing.T, p *seed.Plan) { t.Helper(); write(t, record(p.DataDir), "{}") }, "no version", "no version", false},
		{"of an unknown kind", func(t *testing.T, p *seed.Plan) { t.Helper(); replace(t, record(p.DataDir), `"birth"`, `"x"`) }, `kind "x"`, `kind "x"`, false},
		{"another disk", func(t *testing.T, p *seed.Plan) {
			t.Helper()
			replace(t, record(p.DataDir), `"diskID": "`+string(p.DiskID), `"diskID": "`+strings.Repeat("9", 32))
		}, "does not have disk", "does not have disk", false},
		{"another plan", func(t *testing.T, p *seed.Plan) { t.Helper(); replace(t, record(p.DataDir), p.Digest(), "x") }, "does not follow", "does not follow", false},
		{"too long", func(t *testing.T, p *seed.Plan) {
			t.Helper()
			write(t, record(p.DataDir), strings.Repeat(" ", 2<<20))
		}, "longer than", "longer than", false},
		{"of another birth", func(t *testing.T, p *seed.Plan) {
			t.Helper()
			other := trio(t.TempDir(), "m1")
			mustBearOn(t, other, mustPrepare(t, other), "b")
			remove(t, record(p.DataDir))
			rename(t, record(other.DataDir), record(p.DataDir))
		}, "but the log in", "do not belong together", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, pending := range []bool{true, false} {
				spec := trio(t.TempDir(), "m1")
				p := mustBear(t, spec)
				if !pending {
					if err := seed.Release(mustInspect(t, spec)); err != nil {
						t.Fatal(err)
					}
				}
				tc.edit(t, p)
				st := mustInspect(t, spec)
				if st.Record != nil || !strings.Contains(st.RecordProblem, tc.problem) || tc.problem == "" && st.RecordProblem != "" {
					t.Errorf("pending=%t: record %v, problem %q", pending, st.Record, st.RecordProblem)
				}
				if want := seed.Broken; pending || tc.always {
					if st.Kind != want || !strings.Contains(st.Reason, tc.broken) {
						t.Errorf("pending=%t: %s: %s", pending, st.Kind, st.Reason)
					}
				} else if st.Kind != seed.Valid {
					t.Errorf("released: %s: %s", st.Kind, st.Reason)
				}
			}
		})
	}
}

// TestRecordOfAnotherMember: one cluster, and yet not one disk.
func TestRecordOfAnotherMember(t *testing.T) {
	one, two := trio(t.TempDir(), "m1"), trio(t.TempDir(), "m2")
	d1, d2 := mustPrepare(t, one), mustPrepare(t, two)
	r := rosterOf(t, one, d1, "a")
	m2 := mustPlan(t, two).MemberID.String()
	for i := range r {
		if r[i].Member == m2 {
			r[i].Disk = d2
		}
	}
	for _, spec := range []seed.Spec{one, two} {
		if err := mustPlan(t, spec).Born(r, true).Apply(t.Context(), nop); err != nil {
			t.Fatal(err)
		}
	}
	remove(t, filepath.Join(one.DataDir, "member", "wal"))
	rename(t, filepath.Join(two.DataDir, "member", "wal"), filepath.Join(one.DataDir, "member", "wal"))
	if st := mustInspect(t, one); st.Kind != seed.Broken || !strings.Contains(st.Reason, "do not belong together") || st.Record != nil {
		t.Errorf("%+v", st)
	}
}

// TestMarks: the mark is named after the cluster ID.
func TestMarks(t *testing.T) {
	for _, tc := range []struct {
		name  string
		edit  func(t *testing.T, p *seed.Plan)
		kind  seed.Kind
		parts string
	}{
		{"for another cluster", func(t *testing.T, p *seed.Plan) {
			t.Helper()
			rename(t, markOf(p), filepath.Join(p.DataDir, "member", "etcdinit-pending-77"))
		}, seed.Broken, "etcdinit-pending-77 is for another cluster"},
		{"two of them", func(t *testing.T, p *seed.Plan) {
			t.Helper()
			write(t, filepath.Join(p.DataDir, "member", "etcdinit-pending-77"), "")
		}, seed.Broken, "etcdinit-pending-77"},
		{"on a computed seed", func(t *testing.T, p *seed.Plan) {
			t.Helper()
			remove(t, filepath.Join(p.DataDir, "member"))
			q := mustApply(t, trio(p.DataDir, "m1"))
			write(t, markOf(q), "")
		}, seed.Broken, "names no roster"},
		{"and nothing else", func(t *testing.T, p *seed.Plan) {
			t.Helper()
			remove(t, filepath.Join(p.DataDir, "member", "wal"))
			remove(t, filepath.Join(p.DataDir, "member", "snap"))
		}, seed.Broken, "another life"},
		{"of the first edition", func(t *testing.T, p *seed.Plan) {
			t.Helper()
			firstEdition(t, trio(p.DataDir, "m1"))
		}, seed.Valid, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := trio(t.TempDir(), "m1")
			tc.edit(t, mustBear(t, spec))
			st := mustInspect(t, spec)
			if st.Kind != tc.kind || !strings.Contains(st.Reason, tc.parts) {
				t.Errorf("%s: %s", st.Kind, st.Reason)
			}
			if st.Kind == seed.Valid && (!st.Pending || st.Record != nil || st.RecordProblem != "") {
				t.Errorf("%+v", st)
			}
		})
	}
}

// firstEdition makes the pending seed that the first edition made.
func firstEdition(t *testing.T, spec seed.Spec) {
	t.Helper()
	remove(t, filepath.Join(spec.DataDir, "member"))
	mustApply(t, spec)
	remove(t, filepath.Join(spec.DataDir, recordPath))
	write(t, filepath.Join(spec.DataDir, "member", "etcdinit-pending"), "etcdinit: seeded, but not released\n")
}

// TestSight: equal as long as nothing of weight has changed.
func TestSight(t *testing.T) {
	bothLayouts(t, func(t *testing.T, spec seed.Spec) {
		t.Helper()
		looks := map[seed.Sight]string{}
		step := func(name string, fn func()) {
			t.Helper()
			fn()
			s, err := seed.Look(spec.DataDir, spec.WALDir)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if before, ok := looks[s]; ok {
				t.Errorf("%s looks like %s", name, before)
			}
			looks[s] = name
			if st, err := seed.Inspect(spec.DataDir, spec.WALDir); err != nil || st.Sight != s {
				t.Errorf("%s: Inspect saw another sight, %v", name, err)
			}
		}
		member := filepath.Join(spec.DataDir, "member")
		step("nothing", func() {})
		step("an empty directory", func() { write(t, filepath.Join(spec.DataDir, "x"), ""); remove(t, filepath.Join(spec.DataDir, "x")) })
		step("prepared", func() { mustPrepare(t, spec) })
		step("prepared anew", func() {
			for _, side := range sidesOf(spec) {
				remove(t, filepath.Join(side, diskDir))
			}
			mustPrepare(t, spec)
		})
		step("born", func() { mustBear(t, spec) })
		step("released", func() {
			if err := seed.Release(mustInspect(t, spec)); err != nil {
				t.Fatal(err)
			}
		})
		step("pending again", func() {
			st := mustInspect(t, spec)
			if err := seed.Unrelease(st); err != nil {
				t.Fatal(err)
			}
			// The mark is the one that Apply made, so the sight is that of "born".
			for s, name := range looks {
				if name == "born" {
					delete(looks, s)
				}
			}
		})
		step("another one in its place", func() {
			if _, err := seed.Withdraw(spec.DataDir, spec.WALDir, nop); err != nil {
				t.Fatal(err)
			}
			mustBear(t, spec)
		})
		// Neither content nor times of what etcd writes play a part, nor do we.
		s, err := seed.Look(spec.DataDir, spec.WALDir)
		if err != nil {
			t.Fatal(err)
		}
		bump(t, spec.DataDir)
		write(t, filepath.Join(spec.DataDir, ".etcdinit-seed-00112233445566aa", "etcdinit-staging"), "")
		if now, err := seed.Look(spec.DataDir, spec.WALDir); err != nil || now != s {
			t.Errorf("another sight without need, %v", err)
		}
		// The same names, and yet another directory.
		rename(t, member, member+".bak")
		if err := os.CopyFS(member, os.DirFS(member+".bak")); err != nil {
			t.Fatal(err)
		}
		rename(t, member+".bak", filepath.Join(filepath.Dir(spec.DataDir), "bak"))
		if now, err := seed.Look(spec.DataDir, spec.WALDir); err != nil || now == s {
			t.Errorf("a copy looks like the directory itself, %v", err)
		}
	})
}

// TestStateJSON: a sight is for this process only.
func TestStateJSON(t *testing.T) {
	text, err := json.Marshal(mustInspect(t, trio(t.TempDir(), "m1")))
	if err != nil || strings.Contains(strings.ToLower(string(text)), `"sight"`) {
		t.Errorf("%s, %v", text, err)
	}
}
