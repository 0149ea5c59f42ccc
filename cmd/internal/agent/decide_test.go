package agent

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/internal/birth"
)

var updateTable = flag.Bool("update-table", false, "rewrite the decision table in the rendezvous README")

func abc() rendezvous.Plan {
	return rendezvous.Plan{Digest: "d", Self: "a1", Members: []rendezvous.Member{{ID: "a1", Name: "a"}, {ID: "b1", Name: "b"}, {ID: "c1", Name: "c"}}}
}

func rosterFrom(a, b, c birth.DiskID) (r birth.Roster) {
	for _, s := range []birth.Seat{{Member: "a1", Disk: a}, {Member: "b1", Disk: b}, {Member: "c1", Disk: c}} {
		if s.Disk != "" {
			r = append(r, s)
		}
	}
	return r
}

// peerStates is every state that one peer can be in: what it is now, with what
// is known of it and what its roster is to mine.
func peerStates() []rendezvous.PeerView {
	var out []rendezvous.PeerView
	with := func(now rendezvous.Standing, r birth.Roster, change ...func(*rendezvous.PeerView)) {
		v := rendezvous.PeerView{Now: now}
		v.Last.Answer.Roster = r
		for _, c := range change {
			c(&v)
		}
		out = append(out, v)
	}
	leftOut := func(v *rendezvous.PeerView) { v.LeftOut = true }
	agreed := func(v *rendezvous.PeerView) { v.Agreed = true }
	counted := func(v *rendezvous.PeerView) { v.Counted = true }
	bound := func(v *rendezvous.PeerView) { v.Bound = true }
	firm := func(v *rendezvous.PeerView) { v.Firm = true }
	mine, near, far := rosterFrom("da", "db", "dc"), rosterFrom("da", "x", "dc"), rosterFrom("x", "db", "dc")
	for now := rendezvous.Silent; now <= rendezvous.Removed; now++ {
		with(now, far)
		if !now.Etcd() {
			with(now, far, leftOut)
		}
		with(now, far, bound)
	}
	with(rendezvous.IsPrepared, nil, agreed)
	with(rendezvous.IsCommitted, mine, agreed)
	with(rendezvous.IsCommitted, mine, bound)
	with(rendezvous.IsReleased, mine)
	with(rendezvous.IsReleased, mine, bound)
	with(rendezvous.IsReleased, near)
	with(rendezvous.Runs, nil, counted)
	with(rendezvous.Runs, nil, counted, agreed)
	with(rendezvous.Runs, nil, func(v *rendezvous.PeerView) { v.Last.Members = []rendezvous.Listed{{ID: "91", Learner: true}} })
	with(rendezvous.Runs, nil, func(v *rendezvous.PeerView) {
		v.Last.Members = []rendezvous.Listed{{ID: "91", Name: "a", Learner: true}, {ID: "92", Learner: true, Started: true}, {ID: "93"}}
	})
	with(rendezvous.Vague, nil, firm)
	with(rendezvous.Unstarted, nil, firm)
	with(rendezvous.Started, nil, firm)
	return out
}

type policy struct {
	name string
	Policy
}

func policies() []policy {
	return []policy{
		{name: "all"},
		{"none", Policy{AskNobody: true}},
		{"existing", Policy{Existing: true}},
		{"none, existing", Policy{AskNobody: true, Existing: true}},
		{"without b", Policy{Without: []string{"b"}}},
		{"without too many", Policy{Without: []string{"b", "c"}}},
		{"without myself", Policy{Without: []string{"a"}}},
		{"without a stranger", Policy{Without: []string{"x"}}},
		{"join", Policy{IfRunning: Join}},
		{"replace", Policy{IfRunning: Replace}},
		{"existing, join", Policy{Existing: true, IfRunning: Join}},
		{"existing, none, replace", Policy{Existing: true, AskNobody: true, IfRunning: Replace}},
	}
}

// runnings is what a running cluster can say: each thing alone, and in the pairs
// that decide.
func runnings() []Running {
	list := []Running{
		{},
		{Asked: true, Denied: true},
		{Asked: true, Hindered: true, Mine: NewLearner, OnDisk: true},
		{Asked: true, Several: true, Mine: OldVoter},
		{Welcome: true},
		{Asked: true, Welcome: true},
		{Asked: true, Welcome: true, Mine: OldLearner},
		{Asked: true, Dead: true},
		{Asked: true, Dead: true, Hindered: true},
		{Asked: true, Dead: true, Mine: OldVoter},
		{Asked: true, Strangers: true},
		{Asked: true, Old: true},
		{Asked: true, Strangers: true, Old: true, Mine: OldVoter, Few: true},
		{Asked: true, Mine: OldVoter, Few: true, Steady: true, Ripe: true},
		{Asked: true, Mine: OldVoter},
		{Asked: true, Mine: OldVoter, Ripe: true},
		{Asked: true, Mine: OldVoter, Steady: true},
		{Asked: true, Mine: OldVoter, Steady: true, Ripe: true},
		{Asked: true, Mine: OldLearner, Answers: true},
		{Asked: true, Mine: NewLearner, OnDisk: true, Localhost: true, Proved: true},
		{Asked: true, Mine: NewLearner, OnDisk: true, Proved: true, Late: true},
		{Asked: true, Mine: NewLearner, OnDisk: true, Proved: true, Feed: true},
		{Asked: true, Mine: NewLearner, OnDisk: true, Feed: true},
		{Asked: true, Mine: NewLearner, OnDisk: true, Late: true},
	}
	for mine := Absent; mine <= OldVoter; mine++ {
		list = append(list, Running{Asked: true, Mine: mine}, Running{Asked: true, Mine: mine, OnDisk: true})
	}
	return list
}

// own is what can be at my own URL.
type own struct {
	standing rendezvous.Standing
	twin     bool // bound to my roster
}

func owns() (list []own) {
	for s := rendezvous.Silent; s <= rendezvous.Double; s++ {
		list = append(list, own{s, false}, own{s, true})
	}
	return list
}

// expected is the specification again, in one piece and without the table.
func expected(in *Input) (Step, exit.Status, Rule) {
	e := expectation{in: in, seen: make(map[rendezvous.Standing]bool)}
	for _, p := range in.View.Peers {
		e.peer(&p)
	}
	e.all = len(in.View.Peers) == in.Members-1
	switch in.Disk {
	case DiskDamaged:
		return StepRefuse, 44, RuleDamaged
	case DiskRemoved:
		return StepRefuse, 43, RuleRemovedDisk
	case DiskUnnamed:
		return StepRefuse, 43, RuleUnnamed
	case DiskPackage:
		return StepRefuse, 43, RulePackage
	case DiskOtherToken:
		return StepRefuse, 43, RuleOtherToken
	case DiskUsed, DiskOurs:
		return e.data()
	case DiskReleased:
		own := in.View.Self == rendezvous.Double && len(in.View.Roster) > 0 && slices.Equal(in.View.SelfLast.Answer.Roster, in.View.Roster)
		if e.seen[rendezvous.Started] || own {
			return StepRevoke, 42, RuleContradicted
		}
		return StepKeep, 0, RuleHandOver
	case DiskPending, DiskFirst:
		return e.pending()
	case DiskJoining:
		return e.joining()
	case DiskEmpty, DiskPrepared:
	}
	return e.unbound()
}

type expectation struct {
	in   *Input
	seen map[rendezvous.Standing]bool
	all  bool // every peer is in the view
	// the rest counts peers
	uncounted, mineReleased, myDiskReleased, waitsForMe int
	notBound, notAgreed, notThere                       int
	added                                               int // etcds that list me as a learner which has not started
}

func (e *expectation) peer(p *rendezvous.PeerView) {
	v := &e.in.View
	e.seen[p.Now] = true
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	etcd := p.Now >= rendezvous.Runs && p.Now <= rendezvous.Removed
	released := p.Now == rendezvous.IsReleased
	theirs := p.Last.Answer.Roster
	seat := ""
	for _, s := range v.Roster {
		if s.Member == string(p.Member.ID) {
			seat = string(s.Disk)
		}
	}
	mySeat := birth.DiskID("")
	for _, s := range theirs {
		if s.Member == "a1" {
			mySeat = s.Disk
		}
	}
	count(&e.uncounted, etcd && !p.Counted)
	for _, m := range p.Last.Members {
		count(&e.added, etcd && !p.Counted && m.Learner && m.Name == "" && !m.Started)
	}
	count(&e.mineReleased, released && slices.Equal(theirs, v.Roster))
	count(&e.myDiskReleased, released && mySeat == v.Disk)
	count(&e.waitsForMe, p.Now == rendezvous.Unstarted && p.Firm)
	count(&e.notBound, seat != "" && !p.Bound)
	count(&e.notAgreed, !p.LeftOut && !p.Agreed)
	agent := p.Now == rendezvous.IsWaiting || p.Now == rendezvous.IsPrepared || p.Now == rendezvous.IsCommitted
	count(&e.notThere, !p.LeftOut && !agent)
}

func (e *expectation) wait(status exit.Status, rule Rule) (Step, exit.Status, Rule) {
	if e.in.Expired {
		return StepRefuse, status, rule
	}
	return StepWait, 0, rule
}

func (e *expectation) data() (Step, exit.Status, Rule) {
	switch e.in.Records {
	case RecordsUnasked:
		return StepFind, 0, RuleRecords
	case RecordsOther:
		return StepRefuse, 43, RuleForeignDisk
	case RecordsNobody:
		if !e.in.Asked {
			return StepProbe, 0, RuleNobodyProbe
		}
		s := e.in.View.Self
		if s == rendezvous.Double || s > rendezvous.Runs && s <= rendezvous.Removed {
			return StepRefuse, 43, RuleNobodyTwice
		}
	case RecordsSilent, RecordsMine:
	}
	return StepKeep, 0, RuleKeep
}

func (e *expectation) pending() (Step, exit.Status, Rule) {
	in, second := e.in, e.in.Disk == DiskPending
	switch {
	case in.Policy.AskNobody && second:
		return StepRefuse, 20, RulePendingNone
	case in.Policy.AskNobody:
		return StepRelease, 0, RuleFirstNone
	case in.Records == RecordsUnasked:
		return StepFind, 0, RuleRecords
	case in.Records == RecordsOther:
		return StepRefuse, 43, RuleForeignDisk
	case !in.Asked:
		return StepMeet, 0, RulePendingAsk
	case e.seen[rendezvous.Started]:
		return StepRefuse, 42, RuleReplaced
	case e.seen[rendezvous.Removed]:
		return StepRefuse, 42, RuleRemoved
	case second && e.all && e.notBound == 0:
		return StepRelease, 0, RuleAllBound
	case second && e.mineReleased > 0:
		return StepRelease, 0, RuleReleased
	case e.waitsForMe > 0:
		return StepRelease, 0, RuleUnstarted
	case e.seen[rendezvous.Runs]:
		return e.wait(42, RuleOtherRuns)
	}
	return e.wait(34, RulePendingWait)
}

func (e *expectation) unbound() (Step, exit.Status, Rule) {
	in, v, hasID := e.in, &e.in.View, e.in.Disk == DiskPrepared
	names := in.Policy.Without
	minority := 2*len(names) < in.Members
	wrong := !minority || slices.Contains(names, "a") || slices.Contains(names, "x")
	twice := make(map[birth.DiskID]int)
	most := 0
	for _, s := range v.Roster {
		twice[s.Disk]++
		most = max(most, twice[s.Disk])
	}
	switch {
	case in.Unmarked:
		return e.wait(42, RuleUnmarked)
	case in.Policy.Existing && in.Policy.IfRunning == "":
		return StepRefuse, 42, RuleExisting
	case in.Members == 0:
		return StepFind, 0, RulePlan
	case in.Policy.AskNobody && !in.Policy.Existing:
		return StepSeedAlone, 0, RuleNone
	case in.Members == 1 && !in.Policy.Existing && in.Restoring:
		return StepStage, 0, RuleStageAlone
	case in.Members == 1 && !in.Policy.Existing:
		return StepSeedAlone, 0, RuleAlone
	case wrong:
		return StepRefuse, 20, RuleWithout
	case !in.Asked:
		return StepMeet, 0, RuleAsk
	case v.Self >= rendezvous.Runs && v.Self <= rendezvous.Removed:
		return StepRefuse, 42, RuleOwnEtcd
	case e.uncounted > 0:
		return e.running()
	case in.Policy.Existing:
		return e.wait(34, RuleToJoin)
	case hasID && e.myDiskReleased > 0:
		return StepRefuse, 42, RuleCopied
	case e.seen[rendezvous.IsReleased]:
		return StepRefuse, 42, RuleBornWithout
	case hasID && most > 1:
		return StepRefuse, 20, RuleShared
	case in.Restoring:
		return StepStage, 0, RuleStage
	case hasID && len(v.Roster) > 0 && e.all && e.notAgreed == 0:
		return StepCommit, 0, RuleAllAgree
	case !hasID && e.all && e.notThere == 0:
		return StepPrepare, 0, RuleAllThere
	}
	return e.wait(34, RuleWait)
}

// running: an etcd runs that is not of the roster that I propose.
func (e *expectation) running() (Step, exit.Status, Rule) {
	r, join, replace := &e.in.Running, e.in.Policy.IfRunning != "", e.in.Policy.IfRunning == Replace
	if !join && !r.Welcome && e.added == 0 {
		return StepRefuse, 42, RuleRunning
	}
	if e.in.View.Self == rendezvous.Double {
		return e.wait(34, RuleTwin)
	}
	if !r.Asked {
		return StepConsult, 0, RuleConsult
	}
	if r.Several {
		return e.wait(42, RuleSeveral)
	}
	if r.Denied {
		return StepRefuse, 20, RuleDenied
	}
	if r.Dead && join {
		return StepClear, 0, RuleDead
	}
	if r.Hindered {
		return e.wait(34, RuleHindered)
	}
	switch {
	case r.Mine == NewVoter:
		return StepRefuse, 42, RuleNewVoter
	case r.Mine == OldVoter && !replace:
		return StepRefuse, 42, RuleLost
	case r.Strangers:
		return StepRefuse, 40, RuleStrangers
	case r.Old:
		return StepRefuse, 20, RuleOld
	}
	switch r.Mine {
	case OldVoter:
		switch {
		case r.Few:
			return StepRefuse, 42, RuleFew
		case !r.Steady:
			return e.wait(34, RuleUnsteady)
		case !r.Ripe:
			return e.wait(34, RuleUnripe)
		}
		return StepAdmit, 0, RuleReplace
	case OldLearner:
		switch {
		case r.Answers:
			return StepRefuse, 42, RuleLearnerRuns
		case !join:
			return StepRefuse, 42, RuleLearnerRefuse
		}
		return StepAdmit, 0, RuleLearnerLost
	case NewLearner:
		return StepAdmit, 0, RuleTaken
	case Absent, NewVoter:
	}
	if !join && !r.Welcome {
		return StepRefuse, 42, RuleUnlisted
	}
	return StepAdmit, 0, RuleAdmit
}

// joining: the seed of a learner that was added, and that no etcd has run on.
func (e *expectation) joining() (Step, exit.Status, Rule) {
	in, r := e.in, &e.in.Running
	switch {
	case in.Records == RecordsUnasked:
		return StepFind, 0, RuleRecords
	case in.Records == RecordsOther:
		return StepRefuse, 43, RuleForeignDisk
	case !in.Asked:
		return StepMeet, 0, RuleJoinMeet
	case !r.Asked:
		return StepConsult, 0, RuleJoinConsult
	case r.Denied:
		return StepRefuse, 20, RuleJoinDenied
	case r.Hindered, r.Several:
		return e.wait(34, RuleJoinHindered)
	case !r.OnDisk:
		return StepSetAside, 0, RuleJoinGone
	case r.Mine != NewLearner:
		return StepRefuse, 42, RuleJoinStarted
	case r.Localhost:
		return StepGiveUp, 40, RuleLocalhost
	case r.Proved && r.Feed:
		return StepFeed, 0, RuleFeed
	case r.Proved:
		return StepRelease, 0, RuleProved
	case r.Late:
		return StepGiveUp, 40, RuleUnreached
	}
	return e.wait(34, RuleJoinWait)
}

// product is every input, as one number: digits of different bases.
type product struct {
	peers     []rendezvous.PeerView
	owns      []own
	policies  []policy
	rosters   []birth.Roster
	members   []int
	running   []Running
	unmarked  []bool
	restoring []bool
}

// wholeProduct is about births.
func wholeProduct() *product {
	return &product{
		peers: peerStates(), owns: owns(), policies: policies(),
		rosters: []birth.Roster{nil, rosterFrom("da", "db", "dc"), rosterFrom("da", "db", ""), rosterFrom("da", "db", "db")},
		members: []int{3, 1, 0}, running: []Running{{}}, unmarked: []bool{false}, restoring: []bool{false, true},
	}
}

// joinProduct is about a cluster that runs: with it each thing that it can say meets
// each policy and each directory, with few states of the peers and of this member's URL.
func joinProduct() *product {
	var few []rendezvous.PeerView
	for _, v := range peerStates() {
		if v.Now == rendezvous.Silent && !v.LeftOut && !v.Bound || v.Now == rendezvous.Runs && !v.Agreed && !v.Bound || v.Now == rendezvous.IsReleased && v.Bound {
			few = append(few, v)
		}
	}
	return &product{
		peers: few, owns: []own{{rendezvous.Mine, false}, {rendezvous.Double, false}, {rendezvous.Runs, false}}, policies: policies(),
		rosters: []birth.Roster{nil}, members: []int{3, 1, 0}, running: runnings(), unmarked: []bool{false, false, false, true}, restoring: []bool{false, false, true},
	}
}

func (p *product) size() int {
	return len(p.peers) * len(p.peers) * len(p.owns) * len(p.policies) * len(p.rosters) * len(p.members) * len(p.running) * len(p.unmarked) * len(p.restoring) * 2 * 2 * 5 * int(DiskDamaged+1)
}

func (p *product) at(n int) *Input {
	digit := func(base int) int {
		d := n % base
		n /= base
		return d
	}
	plan := abc()
	in := &Input{Disk: Disk(digit(int(DiskDamaged + 1))), Records: Records(digit(5)), Asked: digit(2) == 0, Expired: digit(2) == 0}
	b, c := p.peers[digit(len(p.peers))], p.peers[digit(len(p.peers))]
	b.Member, c.Member = plan.Members[1], plan.Members[2]
	o := p.owns[digit(len(p.owns))]
	in.Policy = p.policies[digit(len(p.policies))].Policy
	in.View = rendezvous.View{Plan: plan, Disk: "da", Roster: p.rosters[digit(len(p.rosters))], Self: o.standing, Peers: []rendezvous.PeerView{b, c}}
	in.Members = p.members[digit(len(p.members))]
	in.Running = p.running[digit(len(p.running))]
	in.Unmarked = p.unmarked[digit(len(p.unmarked))]
	in.Restoring = p.restoring[digit(len(p.restoring))]
	if in.Members < 3 {
		in.View.Peers = nil
	}
	in.View.SelfLast.Answer.Roster = rosterFrom("x", "y", "z")
	if o.twin {
		in.View.SelfLast.Answer.Roster = in.View.Roster
	}
	return in
}

// wrongAt compares one input; "" is right.
func (p *product) wrongAt(rows []row, n int, used map[Rule]int) string {
	in := p.at(n)
	got := decide(rows, in)
	step, status, rule := expected(in)
	used[got.Rule]++
	if got.Step == step && got.Status == status && got.Rule == rule {
		return ""
	}
	return fmt.Sprintf("input %d, %+v:\ngot %v %d by %q, want %v %d by %q", n, in, got.Step, got.Status, got.Rule, step, status, rule)
}

// some visits every stride'th input; with a stride that has no factor in common
// with the size, each value of each digit is met with most others.
func (p *product) some(rows []row, first, stride int, used map[Rule]int) (wrong string, inputs int) {
	for n := first; n < p.size(); n += stride {
		if wrong := p.wrongAt(rows, n, used); wrong != "" {
			return wrong, inputs
		}
		inputs++
	}
	return "", inputs
}

// TestDecideProduct: the table decides as the specification says, and no row is
// beyond reach. Every input is some hundred millions: a part of them that is
// spread evenly is visited, a bigger one with ETCDINIT_SIMULATION.
func TestDecideProduct(t *testing.T) {
	stride := map[string]int{"": 3001, "ci": 101, "full": 53}[os.Getenv(simulation)]
	used := make(map[Rule]int)
	rows := table()
	wrong, inputs := wholeProduct().some(rows, 0, stride, used)
	if wrong != "" {
		t.Fatal(wrong)
	}
	wrong, joins := joinProduct().some(rows, 0, stride/50*2+1, used)
	if wrong != "" {
		t.Fatal(wrong)
	}
	for _, r := range rows {
		if used[r.rule] == 0 {
			t.Errorf("no input reaches the row %q", r.rule)
		}
	}
	t.Logf("%d inputs of %d, about running clusters %d of %d", inputs, wholeProduct().size(), joins, joinProduct().size())
}

// noticed is the first input for which a table decides wrongly, looked for in ever
// finer samples of both products; "" where there is none.
func noticed(rows []row) string {
	births, joins := wholeProduct(), joinProduct()
	for _, part := range []struct {
		of     *product
		stride int
	}{{joins, 100_003}, {births, 100_003}, {joins, 4999}, {births, 4999}, {joins, 499}, {joins, 53}, {births, 499}} {
		if wrong, _ := part.of.some(rows, 0, part.stride, make(map[Rule]int)); wrong != "" {
			return wrong
		}
	}
	return ""
}

// TestDecideMutants: each row that is left out, and each that decides something
// else, is found by the product.
func TestDecideMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("some million inputs")
	}
	t.Parallel()
	for i, r := range table() {
		if noticed(slices.Delete(table(), i, i+1)) == "" {
			t.Errorf("nobody misses the row %q", r.rule)
		}
		rows := table()
		rows[i].step = StepWait
		if r.step == StepWait {
			rows[i].step = StepRelease
		}
		if noticed(rows) == "" {
			t.Errorf("nobody sees that the row %q decides %v", r.rule, rows[i].step)
		}
		if r.status == 0 {
			continue
		}
		rows = table()
		rows[i].status++
		if noticed(rows) == "" {
			t.Errorf("nobody sees the status of the row %q", r.rule)
		}
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
				view = append(view, rendezvous.PeerView{Member: m, Now: rendezvous.IsWaiting})
				names = append(names, m.Name)
			}
		}
		plan.Self = "a0"
		for k := range members {
			for i := range view {
				view[i].LeftOut = i < k
				view[i].Now = rendezvous.IsWaiting
				if i < k {
					view[i].Now = rendezvous.Silent
				}
			}
			want := StepPrepare
			if k > most {
				want = StepRefuse
			}
			in := Input{Members: members, Policy: Policy{Without: names[:k]}, Asked: true, View: rendezvous.View{Plan: plan, Peers: view}}
			if got := Decide(in); got.Step != want {
				t.Errorf("%d members, without %d: got %v (%s), want %v", members, k, got.Step, got.Rule, want)
			}
		}
	}
}

// TestDecideMissingPeer: a view that lacks a peer of the plan decides nothing.
func TestDecideMissingPeer(t *testing.T) {
	plan := abc()
	one := []rendezvous.PeerView{{Member: plan.Members[1], Now: rendezvous.IsPrepared, Agreed: true, Bound: true}}
	for disk, want := range map[Disk]Rule{DiskEmpty: RuleWait, DiskPrepared: RuleWait, DiskPending: RulePendingWait} {
		in := Input{Disk: disk, Records: RecordsSilent, Members: 3, Asked: true, View: rendezvous.View{Plan: plan, Disk: "da", Roster: rosterFrom("da", "db", "dc"), Peers: one}}
		if got := Decide(in); got.Rule != want {
			t.Errorf("disk %v: %v by %q, want %q", disk, got.Step, got.Rule, want)
		}
	}
}

// TestDecideAbout: a row names the peers that it is about.
func TestDecideAbout(t *testing.T) {
	plan := abc()
	for _, tt := range []struct {
		name   string
		disk   Disk
		b, c   rendezvous.Standing
		change func(b, c *rendezvous.PeerView)
		want   []string
	}{
		{"silent", DiskEmpty, rendezvous.IsWaiting, rendezvous.Silent, nil, []string{"c"}},
		{"another plan", DiskEmpty, rendezvous.Differs, rendezvous.Silent, nil, []string{"b", "c"}},
		{"left out", DiskEmpty, rendezvous.Silent, rendezvous.Silent, func(b, _ *rendezvous.PeerView) { b.LeftOut = true }, []string{"c"}},
		{"another proposal", DiskPrepared, rendezvous.IsPrepared, rendezvous.IsPrepared, func(b, _ *rendezvous.PeerView) { b.Agreed = true }, []string{"c"}},
		{"runs", DiskEmpty, rendezvous.Runs, rendezvous.Silent, nil, []string{"b"}},
		{"runs, and is counted", DiskPrepared, rendezvous.Runs, rendezvous.IsPrepared, func(b, _ *rendezvous.PeerView) { b.Counted, b.Agreed = true, true }, []string{"c"}},
		{"released without me", DiskEmpty, rendezvous.IsReleased, rendezvous.IsWaiting, nil, []string{"b"}},
		{"not bound", DiskPending, rendezvous.IsCommitted, rendezvous.IsCommitted, func(_, c *rendezvous.PeerView) { c.Bound = true }, []string{"b"}},
		{"another cluster", DiskPending, rendezvous.IsCommitted, rendezvous.Runs, nil, []string{"c"}},
		{"unstarted", DiskPending, rendezvous.Unstarted, rendezvous.Unstarted, func(b, _ *rendezvous.PeerView) { b.Firm = true }, []string{"b"}},
		{"removed", DiskPending, rendezvous.Removed, rendezvous.Silent, nil, []string{"b"}},
		{"replaced", DiskPending, rendezvous.Silent, rendezvous.Started, nil, []string{"c"}},
		{"contradicted", DiskReleased, rendezvous.Silent, rendezvous.Started, nil, []string{"c"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := rendezvous.PeerView{Member: plan.Members[1], Now: tt.b}
			c := rendezvous.PeerView{Member: plan.Members[2], Now: tt.c}
			if tt.change != nil {
				tt.change(&b, &c)
			}
			v := rendezvous.View{Plan: plan, Disk: "da", Roster: rosterFrom("da", "db", "dc"), Peers: []rendezvous.PeerView{b, c}}
			out := Decide(Input{Disk: tt.disk, Records: RecordsSilent, Members: 3, Asked: true, View: v})
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
	tableFile  = "../rendezvous/README.md"
	tableBegin = "<!-- decision table: go test ./cmd/internal/agent -run TestDecideTable -update-table -->\n"
	tableEnd   = "<!-- end of decision table -->\n"
)

func markdown() string {
	var b strings.Builder
	b.WriteString("| # | data dir | peers | outcome | exit status |\n|--|--|--|--|--|\n")
	for i, r := range table() {
		status := ""
		switch r.step {
		case StepRefuse, StepRevoke, StepGiveUp:
			status = strconv.Itoa(int(r.status))
		case StepWait:
			status = fmt.Sprintf("%d once the time is up", r.status)
		case StepKeep, StepSeedAlone:
			status = "0"
		case StepRelease:
			status = "(goes on as released)"
		case StepPrepare:
			status = "(goes on as prepared)"
		case StepCommit:
			status = "(goes on as pending)"
		case StepAdmit:
			status = "(goes on as joining)"
		case StepSetAside:
			status = "(goes on as empty)"
		case StepFind, StepMeet, StepProbe, StepStage, StepConsult, StepClear, StepFeed:
			status = "(goes on)"
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
