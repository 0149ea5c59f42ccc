package seed_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/seed"
)

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(s *seed.Spec)
		want []string
	}{
		{"no members", func(s *seed.Spec) { s.Members = nil }, []string{"no members"}},
		{"no data-dir", func(s *seed.Spec) { s.DataDir = "" }, []string{"no data-dir"}},
		{"no name", func(s *seed.Spec) { s.Members[1].Name = "" }, []string{"http://127.0.0.1:23802", "has no name"}},
		{"control characters", func(s *seed.Spec) { s.Members[1].Name = "a\nb" }, []string{`"a\nb"`}},
		{"duplicate name", func(s *seed.Spec) { s.Members[1].Name = "m1" }, []string{`two members are named "m1"`}},
		{"duplicate URL", func(s *seed.Spec) { s.Members[1].PeerURLs = s.Members[0].PeerURLs }, []string{`"m1"`, `"m2"`, "same peer URL http://127.0.0.1:23801"}},
		{"URL twice in one member", func(s *seed.Spec) {
			s.Members[1].PeerURLs = []string{"http://192.0.2.1:2380", "http://192.0.2.1:2380"}
		}, []string{"listed twice"}},
		{"no peer URL", func(s *seed.Spec) { s.Members[1].PeerURLs = nil }, []string{`"m2"`, "no valid URLs"}},
		{"self unknown", func(s *seed.Spec) { s.Self = "m9" }, []string{`"m9"`, "is not among the 3 members m1, m2, m3"}},
		{"two learners", func(s *seed.Spec) { s.Members[0].IsLearner, s.Members[1].IsLearner = true, true }, []string{"2 learners, but etcd's max-learners is 1"}},
		{"all learners", func(s *seed.Spec) {
			s.MaxLearners = 3
			for i := range s.Members {
				s.Members[i].IsLearner = true
			}
		}, []string{"all 3 members are learners"}},
		{"IPv6 without brackets (WB-34)", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://2001:db8::10:2380"} }, []string{"http://2001:db8::10:2380", "IPv6 address must be in brackets: [2001:db8::10]"}},
		{"IPv6 in another spelling", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://[2001:DB8::10]:2380"} }, []string{"not in lower case"}},
		{"IPv6 with leading zeros", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://[2001:0db8::10]:2380"} }, []string{"is written 2001:db8::10"}},
		{"upper case (WB-42)", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://ETCD-0.example.com:2380"} }, []string{"not in lower case"}},
		{"trailing dot", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://etcd-0.example.com.:2380"} }, []string{"ends in a dot"}},
		{"no port", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://etcd-0.example.com"} }, []string{"port"}},
		{"port 0", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://etcd-0.example.com:0"} }, []string{"port"}},
		{"port with zeros", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://etcd-0.example.com:02380"} }, []string{"port"}},
		{"path", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://etcd-0.example.com:2380/"} }, []string{"nothing else"}},
		{"password", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://u:p@etcd-0.example.com:2380"} }, []string{"nothing else"}},
		{"scheme", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"tcp://etcd-0.example.com:2380"} }, []string{"http or https"}},
		{"client URL", func(s *seed.Spec) { s.Members[1].ClientURLs = []string{"etcd-0.example.com:2379"} }, []string{`"m2": client URLs`}},
		{"space around", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{" http://etcd-0.example.com:2380"} }, []string{`"m2"`}},
		{"wal-dir is data-dir", func(s *seed.Spec) { s.WALDir = s.DataDir + "/." }, []string{"is the data-dir itself"}},
		{"wal-dir in member", func(s *seed.Spec) { s.WALDir = s.DataDir + "/member/log" }, []string{"lies inside"}},
		{"wal-dir is member", func(s *seed.Spec) { s.WALDir = s.DataDir + "/member" }, []string{"lies inside"}},
		{"wal-dir is snap", func(s *seed.Spec) { s.WALDir = s.DataDir + "/member/snap" }, []string{"lies inside"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := trio("/data", "m1")
			tc.edit(&spec)
			_, err := seed.New(spec)
			if kindOf(err) != seed.Invalid {
				t.Fatalf("got %v, want an Invalid error", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("message lacks %q: %v", part, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("not one line: %q", err)
			}
		})
	}
}

// TestNewAccepts: what looks odd and is right.
func TestNewAccepts(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(s *seed.Spec)
	}{
		{"IPv6", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"https://[2001:db8::10]:2380"} }},
		{"one member", func(s *seed.Spec) { s.Members = s.Members[:1] }},
		{"one learner", func(s *seed.Spec) { s.Members[2].IsLearner = true }},
		{"two learners where etcd allows them", func(s *seed.Spec) {
			s.MaxLearners, s.Members[1].IsLearner, s.Members[2].IsLearner = 2, true, true
		}},
		{"two peer URLs in any order", func(s *seed.Spec) {
			s.Members[1].PeerURLs = []string{"http://192.0.2.2:2380", "http://192.0.2.1:2380"}
		}},
		{"wal-dir is the default", func(s *seed.Spec) { s.WALDir = s.DataDir + "/member/wal/" }},
		{"wal-dir inside data-dir", func(s *seed.Spec) { s.WALDir = s.DataDir + "/log" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := trio("/data", "m1")
			tc.edit(&spec)
			if _, err := seed.New(spec); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDigest: what all members must agree on changes it, and nothing else does.
func TestDigest(t *testing.T) {
	base := mustPlan(t, trio("/data", "m1")).Digest()
	if want := "198b1ebe5ef687ee9c0eecf01e05543fd9d5cde7993a2b80ff35c65b2c5a122b"; base != want {
		t.Errorf("digest %s, want %s: its format has changed", base, want)
	}
	for _, tc := range []struct {
		name string
		edit func(s *seed.Spec)
		same bool
	}{
		{"another self", func(s *seed.Spec) { s.Self = "m2" }, true},
		{"another directory", func(s *seed.Spec) { s.DataDir, s.WALDir = "/other", "/wal" }, true},
		{"client URLs", func(s *seed.Spec) { s.Members[0].ClientURLs = nil }, true},
		{"order", func(s *seed.Spec) { s.Members[0], s.Members[2] = s.Members[2], s.Members[0] }, true},
		{"token", func(s *seed.Spec) { s.Token = "t" }, false},
		{"name", func(s *seed.Spec) { s.Members[1].Name = "x" }, false},
		{"peer URL", func(s *seed.Spec) { s.Members[1].PeerURLs = []string{"http://127.0.0.1:1"} }, false},
		{"learner", func(s *seed.Spec) { s.Members[1].IsLearner = true }, false},
		{"one fewer", func(s *seed.Spec) { s.Members = s.Members[:2] }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := trio("/data", "m1")
			tc.edit(&spec)
			if got := mustPlan(t, spec).Digest(); (got == base) != tc.same {
				t.Errorf("same digest: %t, want %t", got == base, tc.same)
			}
		})
	}
}

// TestPermutations is SB-09: the order in which members were found plays no part.
func TestPermutations(t *testing.T) {
	want := ""
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		spec := trio("/data", "m1")
		all := spec.Members
		spec.Members = nil
		for _, i := range order {
			spec.Members = append(spec.Members, all[i])
		}
		text := mustPlan(t, spec).String()
		if want == "" {
			want = text
		}
		if text != want {
			t.Errorf("order %v:\n%s\nwant\n%s", order, text, want)
		}
	}
}

func TestPlanPrints(t *testing.T) {
	spec := trio("/var/lib/etcd", "m1")
	spec.Members[2].IsLearner = true
	p := mustPlan(t, spec).Born(rosterOf(t, spec, "00112233445566778899aabbccddeeff", "b"), true)
	golden(t, "plan.golden", p.String())
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.json.golden", string(text)+"\n")
	record, err := json.MarshalIndent(p.Record(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "etcdinit-seed.json.golden", string(record)+"\n")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got\n%s\nwant\n%s", path, got, want)
	}
}

// TestPlannedSizes: --dry-run does not promise less than is written.
func TestPlannedSizes(t *testing.T) {
	for _, n := range []int{1, 3, 50} {
		spec := seed.Spec{DataDir: t.TempDir(), Token: "t", Self: "m0"}
		for i := range n {
			spec.Members = append(spec.Members, seed.Member{
				Name: fmt.Sprint("m", i), PeerURLs: []string{fmt.Sprintf("http://m%d.etcd.example.com:2380", i)},
			})
		}
		p := mustBear(t, spec)
		for _, f := range p.Files {
			info, err := os.Stat(f.Path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() > f.Size || filepath.Base(f.Path) != "db" && info.Size() != f.Size {
				t.Errorf("%d members: %s is %d bytes, planned %d", n, f.Path, info.Size(), f.Size)
			}
		}
		if _, err := seed.Verify(spec.DataDir, "", true); err != nil {
			t.Error(err)
		}
	}
}
