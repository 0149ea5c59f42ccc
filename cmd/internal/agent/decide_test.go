package agent

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/discovery/rendezvous"
)

var updateTable = flag.Bool("update-table", false, "rewrite the decision table in the rendezvous README")

// peerStates is every state that one peer can be in.
func peerStates() []rendezvous.PeerView {
	out := []rendezvous.PeerView{
		{Now: rendezvous.Silent, Proven: rendezvous.Silent},
		{Now: rendezvous.Silent, Proven: rendezvous.IsCommitted},
		{Now: rendezvous.Silent, Proven: rendezvous.IsReleased},
	}
	for s := rendezvous.Unknown; s <= rendezvous.Foreign; s++ {
		out = append(out, rendezvous.PeerView{Now: s, Proven: s})
		if s.Agrees() {
			out = append(out, rendezvous.PeerView{Now: s, Proven: s, Steady: true})
		}
	}
	return out
}

type policy struct {
	name           string
	none, existing bool
	without        []string
}

func policies() []policy {
	return []policy{
		{name: "all"},
		{name: "none", none: true},
		{name: "existing", existing: true},
		{name: "none, existing", none: true, existing: true},
		{name: "without b", without: []string{"b"}},
		{name: "without too many", without: []string{"b", "c"}},
		{name: "without myself", without: []string{"a"}},
		{name: "without a stranger", without: []string{"x"}},
	}
}

// expected is the specification again, in one piece and without the table.
func expected(in *Input) (step Step, status int) {
	wait := func() (next Step, exit int) {
		if in.Expired {
			return StepRefuse, 34
		}
		return StepWait, 0
	}
	var running, replaced, removed, foreign, released bool
	committed, there := true, true
	for _, p := range in.View.Peers {
		running = running || p.Now == rendezvous.Running
		replaced = replaced || p.Now == rendezvous.Replaced
		removed = removed || p.Now == rendezvous.Removed
		foreign = foreign || p.Now == rendezvous.Foreign
		released = released || p.Now == rendezvous.IsReleased || p.Now == rendezvous.Silent && p.Proven == rendezvous.IsReleased
		excused := p.Now == rendezvous.Silent && slices.Contains(in.Without, p.Member.Name)
		committed = committed && (excused || p.Proven == rendezvous.IsCommitted || p.Proven == rendezvous.IsReleased)
		there = there && (excused || p.Steady && (p.Now == rendezvous.IsWaiting || p.Now == rendezvous.IsCommitted || p.Now == rendezvous.IsReleased))
	}
	badNames := len(in.Without) > 1 || slices.Contains(in.Without, "a") || slices.Contains(in.Without, "x")
	self := in.View.Self
	mine := in.View.Fresh && self == rendezvous.Mine
	switch in.Disk {
	case DiskDamaged:
		return StepRefuse, 44
	case DiskForeign:
		return StepRefuse, 43
	case DiskOurs, DiskUsed:
		return StepKeep, 0
	case DiskPending:
		switch {
		case in.AskNobody:
			return StepRelease, 0
		case badNames:
			return StepRefuse, 20
		case replaced, removed:
			return StepRefuse, 42
		case !mine:
			return wait()
		case running, released, committed:
			return StepRelease, 0
		}
		return wait()
	case DiskEmpty:
	}
	switch {
	case badNames:
		return StepRefuse, 20
	case in.Existing:
		return StepRefuse, 42
	case in.AskNobody:
		return StepSeedAlone, 0
	case running, replaced, removed, foreign, self == rendezvous.Running, self == rendezvous.Replaced, self == rendezvous.Removed:
		return StepRefuse, 42
	case !mine:
		return wait()
	case there:
		return StepSeed, 0
	}
	return wait()
}

func abc() rendezvous.Plan {
	return rendezvous.Plan{Self: "a1", Members: []rendezvous.Member{{ID: "a1", Name: "a"}, {ID: "b1", Name: "b"}, {ID: "c1", Name: "c"}}}
}

// product decides the whole product of states of three members, up to the
// first state that is not decided as the specification says.
func product(rows []row) (wrong string, states int, used map[Rule]int) {
	used = make(map[Rule]int)
	plan := abc()
	for _, b := range peerStates() {
		for _, c := range peerStates() {
			b.Member, c.Member = plan.Members[1], plan.Members[2]
			peers := []rendezvous.PeerView{b, c}
			for self := rendezvous.Silent; self <= rendezvous.Double; self++ {
				for _, pol := range policies() {
					for flags := range 4 {
						for disk := DiskEmpty; disk <= DiskDamaged; disk++ {
							in := &Input{
								Disk: disk, Members: 3, AskNobody: pol.none, Existing: pol.existing, Without: pol.without, Expired: flags&1 != 0,
								View: rendezvous.View{Plan: plan, Fresh: flags&2 != 0, Self: self, Peers: peers},
							}
							got := decide(rows, in)
							step, status := expected(in)
							if got.Step != step || got.Status != status {
								return fmt.Sprintf("disk %d, policy %s, self %v, expired %t, fresh %t, b %v/%v/%t, c %v/%v/%t: got %v %d (%s), want %v %d",
									disk, pol.name, self, in.Expired, in.View.Fresh, b.Now, b.Proven, b.Steady, c.Now, c.Proven, c.Steady, got.Step, got.Status, got.Rule, step, status), states, used
							}
							used[got.Rule]++
							states++
						}
					}
				}
			}
		}
	}
	return "", states, used
}

func TestDecideProduct(t *testing.T) {
	rows := table()
	wrong, states, used := product(rows)
	if wrong != "" {
		t.Fatal(wrong)
	}
	for _, r := range rows {
		if used[r.rule] == 0 && r.rule != RuleAlone && r.rule != RulePendingAlone {
			t.Errorf("no state of the product reaches the row %q", r.rule)
		}
	}
	t.Logf("%d states", states)
}

// TestDecideMutants: each row that is left out, and each that decides
// something else, is found by the product.
func TestDecideMutants(t *testing.T) {
	alone := func(rows []row) string {
		for _, tt := range aloneCases() {
			if got := decide(rows, &tt.in); got.Step != tt.want || got.Rule != tt.rule {
				return tt.name
			}
		}
		return ""
	}
	survives := func(rows []row) bool {
		if alone(rows) != "" {
			return false
		}
		wrong, _, _ := product(rows)
		return wrong == ""
	}
	for i, r := range table() {
		if survives(slices.Delete(table(), i, i+1)) {
			t.Errorf("nobody misses the row %q", r.rule)
		}
		rows := table()
		rows[i].step = StepWait
		if r.step == StepWait {
			rows[i].step = StepRelease
		}
		if survives(rows) {
			t.Errorf("nobody sees that the row %q decides %v", r.rule, rows[i].step)
		}
		if r.status == 0 {
			continue
		}
		rows = table()
		rows[i].status++
		if survives(rows) {
			t.Errorf("nobody sees the status of the row %q", r.rule)
		}
	}
}

// TestDecideAlone: one member asks nobody, and waits for nobody.
func TestDecideAlone(t *testing.T) {
	for _, tt := range aloneCases() {
		t.Run(tt.name, func(t *testing.T) {
			if got := Decide(tt.in); got.Step != tt.want || got.Rule != tt.rule {
				t.Errorf("got %v by %q, want %v by %q", got.Step, got.Rule, tt.want, tt.rule)
			}
		})
	}
}

type aloneCase struct {
	name string
	in   Input
	want Step
	rule Rule
}

func aloneCases() []aloneCase {
	return []aloneCase{
		{"empty", Input{Disk: DiskEmpty, Members: 1}, StepSeedAlone, RuleAlone},
		{"pending", Input{Disk: DiskPending, Members: 1}, StepRelease, RulePendingAlone},
		{"existing", Input{Disk: DiskEmpty, Members: 1, Existing: true}, StepRefuse, RuleExisting},
		{"ours", Input{Disk: DiskOurs, Members: 1}, StepKeep, RuleOurs},
	}
}

// TestDecideMinority: --without goes up to a minority, whatever the size.
func TestDecideMinority(t *testing.T) {
	for members, most := range map[int]int{2: 0, 3: 1, 4: 1, 5: 2, 6: 2, 7: 3} {
		var plan rendezvous.Plan
		var view []rendezvous.PeerView
		var names []string
		for i := range members {
			m := rendezvous.Member{ID: rendezvous.ID(fmt.Sprintf("a%d", i)), Name: fmt.Sprintf("m%d", i)}
			plan.Members = append(plan.Members, m)
			if i > 0 {
				view = append(view, rendezvous.PeerView{Member: m, Now: rendezvous.IsWaiting, Proven: rendezvous.IsWaiting, Steady: true})
				names = append(names, m.Name)
			}
		}
		plan.Self = "a0"
		for k := range members {
			for i := range view {
				view[i].Now = rendezvous.IsWaiting
				if i < k {
					view[i].Now = rendezvous.Silent
				}
				view[i].Steady = i >= k
			}
			want := StepSeed
			if k > most {
				want = StepRefuse
			}
			got := Decide(Input{Members: members, Without: names[:k], View: rendezvous.View{Plan: plan, Fresh: true, Self: rendezvous.Mine, Peers: view}})
			if got.Step != want {
				t.Errorf("%d members, without %d: got %v (%s), want %v", members, k, got.Step, got.Rule, want)
			}
		}
	}
}

// TestDecideAbout: a row names the peers that it is about.
func TestDecideAbout(t *testing.T) {
	plan := abc()
	peers := func(b, c rendezvous.Standing) []rendezvous.PeerView {
		return []rendezvous.PeerView{{Member: plan.Members[1], Now: b, Proven: b, Steady: true}, {Member: plan.Members[2], Now: c, Proven: c, Steady: true}}
	}
	for _, tt := range []struct {
		name string
		disk Disk
		b, c rendezvous.Standing
		want []string
	}{
		{"silent", DiskEmpty, rendezvous.IsWaiting, rendezvous.Silent, []string{"c"}},
		{"another plan", DiskEmpty, rendezvous.Differs, rendezvous.Silent, []string{"b", "c"}},
		{"runs", DiskEmpty, rendezvous.Running, rendezvous.Silent, []string{"b"}},
		{"another cluster", DiskEmpty, rendezvous.IsWaiting, rendezvous.Foreign, []string{"c"}},
		{"not committed", DiskPending, rendezvous.IsWaiting, rendezvous.IsCommitted, []string{"b"}},
		{"released", DiskPending, rendezvous.IsReleased, rendezvous.Silent, []string{"b"}},
		{"removed", DiskPending, rendezvous.Removed, rendezvous.Silent, []string{"b"}},
		{"replaced", DiskPending, rendezvous.Silent, rendezvous.Replaced, []string{"c"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := Decide(Input{Disk: tt.disk, Members: 3, View: rendezvous.View{Plan: plan, Fresh: true, Self: rendezvous.Mine, Peers: peers(tt.b, tt.c)}})
			var got []string
			for _, p := range out.Peers {
				got = append(got, p.Member.Name)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s is about %v, want %v", out.Rule, got, tt.want)
			}
		})
	}
}

const (
	tableFile  = "../../../discovery/rendezvous/README.md"
	tableBegin = "<!-- decision table: go test ./cmd/internal/agent -run TestDecideTable -update-table -->\n"
	tableEnd   = "<!-- end of decision table -->\n"
)

func markdown() string {
	var b strings.Builder
	b.WriteString("| # | data dir | peers | outcome | exit status |\n|--|--|--|--|--|\n")
	for i, r := range table() {
		status := ""
		switch r.step {
		case StepRefuse:
			status = strconv.Itoa(r.status)
		case StepWait:
			status = fmt.Sprintf("%d once the time is up", r.status)
		case StepRelease, StepKeep, StepSeedAlone:
			status = "0"
		case StepSeed:
			status = "(goes on as pending)"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s |\n", i+1, r.disk, r.peers, r.out, status)
	}
	return b.String()
}

// TestDecideTable: the documented table is the one that decides.
func TestDecideTable(t *testing.T) {
	data, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), tableBegin)
	documented, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the markers of the decision table", tableFile)
	}
	if documented == markdown() {
		return
	}
	if !*updateTable {
		t.Fatalf("the decision table in %s is not the one that decides; run with -update-table\n%s", tableFile, markdown())
	}
	if err := os.WriteFile(tableFile, []byte(before+tableBegin+markdown()+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
