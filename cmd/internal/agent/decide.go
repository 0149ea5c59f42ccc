package agent

import (
	"slices"

	"github.com/etcdinit/etcdinit/discovery/rendezvous"
)

// Disk is what a data directory means for a decision.
type Disk int

const (
	// DiskEmpty means: nothing of an etcd in it.
	DiskEmpty Disk = iota
	// DiskPending means: seeded, not released, and no etcd has run on it.
	DiskPending
	// DiskUsed means: seeded, not released, but an etcd has run on it.
	DiskUsed
	// DiskOurs means: a complete directory of this member.
	DiskOurs
	// DiskForeign means: another member's or cluster's, or of a removed member.
	DiskForeign
	// DiskDamaged means: half-written, mixed or corrupt.
	DiskDamaged
)

// Input is all that a decision is made from.
type Input struct {
	Disk Disk
	// Members is how many members the plan (or the disk) has.
	Members int
	// View is what is known of the peers; its zero value: nobody was asked.
	View rendezvous.View
	// AskNobody is --bootstrap-quorum=none.
	AskNobody bool
	// Without names the members that the operator says have never run.
	Without []string
	// Existing is initial-cluster-state: existing in etcd's configuration.
	Existing bool
	// Expired: --timeout has passed.
	Expired bool
}

// Step is what to do next.
type Step int

const (
	// StepWait means: look again.
	StepWait Step = iota
	// StepSeed means: write the seed, marked as pending.
	StepSeed
	// StepSeedAlone means: write the seed without the mark; nobody is waited for.
	StepSeedAlone
	// StepRelease means: remove the mark; etcd may start.
	StepRelease
	// StepKeep means: the directory is good as it is.
	StepKeep
	// StepRefuse means: touch nothing, exit with Outcome.Status.
	StepRefuse
)

func (s Step) String() string {
	return [...]string{"wait", "seed", "seed alone", "release", "keep", "refuse"}[s]
}

// Outcome is what Decide decided.
type Outcome struct {
	Step   Step
	Status int // StepRefuse means: the exit status
	// Rule is the row of the table that decided.
	Rule Rule
	// Peers are those that the row is about: the ones still awaited, the ones
	// that run.
	Peers []rendezvous.PeerView
}

// Rule names a row of the decision table.
type Rule string

// The rows, in the order in which they are looked at.
const (
	RuleDamaged        Rule = "damaged"
	RuleForeignDisk    Rule = "another member's data"
	RuleOurs           Rule = "ours"
	RuleUsed           Rule = "pending but used"
	RulePendingNone    Rule = "pending, nobody asked"
	RulePendingAlone   Rule = "pending, one member"
	RuleWithout        Rule = "without too many"
	RuleReplaced       Rule = "somebody ran as me"
	RuleRemoved        Rule = "removed meanwhile"
	RulePendingSelf    Rule = "pending, not reachable as myself"
	RuleReleased       Rule = "others are released"
	RuleAllCommitted   Rule = "all are committed"
	RulePendingWait    Rule = "pending, some are missing"
	RuleExisting       Rule = "existing"
	RuleNone           Rule = "nobody asked"
	RuleAlone          Rule = "one member"
	RuleRunning        Rule = "my cluster runs"
	RuleForeignCluster Rule = "another cluster runs"
	RuleSelf           Rule = "not reachable as myself"
	RuleAllWaiting     Rule = "all are there"
	RuleWait           Rule = "some are missing"
)

// row is one line of the decision table: what it is about in words, for the
// documentation, and in code.
type row struct {
	rule             Rule
	disk, peers, out string
	when             func(*Input) bool
	step             Step
	status           int // of StepRefuse, and of StepWait once the time is up
	about            func(*rendezvous.PeerView, *Input) bool
}

// Decide is the whole decision: the first row that applies.
func Decide(in Input) Outcome { return decide(table(), &in) }

func decide(rows []row, in *Input) Outcome {
	for i := range rows {
		r := &rows[i]
		if !r.when(in) {
			continue
		}
		out := Outcome{Step: r.step, Rule: r.rule}
		switch {
		case r.step == StepRefuse:
			out.Status = r.status
		case r.step == StepWait && in.Expired:
			out.Step, out.Status = StepRefuse, r.status
		}
		for j := range in.View.Peers {
			if p := &in.View.Peers[j]; r.about != nil && r.about(p, in) {
				out.Peers = append(out.Peers, *p)
			}
		}
		return out
	}
	return Outcome{Step: StepRefuse, Status: statusBug}
}

// Exit statuses that a decision can end in.
const (
	statusBug      = 1
	statusSettings = 20
	statusDisagree = 34
	statusUnsafe   = 42
	statusForeign  = 43
	statusDamaged  = 44
)

func table() []row { return slices.Concat(diskRows(), pendingRows(), emptyRows()) }

// diskRows ask no peer.
func diskRows() []row {
	return []row{
		{
			rule: RuleDamaged, disk: "half-written, mixed or corrupt", peers: "not asked", out: "nothing is touched",
			when: on(DiskDamaged), step: StepRefuse, status: statusDamaged,
		},
		{
			rule: RuleForeignDisk, disk: "another member's, another cluster's, or of a member that was removed", peers: "not asked", out: "nothing is touched",
			when: on(DiskForeign), step: StepRefuse, status: statusForeign,
		},
		{
			rule: RuleOurs, disk: "ours", peers: "not asked", out: "handoff only",
			when: on(DiskOurs), step: StepKeep,
		},
		{
			rule: RuleUsed, disk: "pending, but an etcd has run on it", peers: "not asked", out: "handoff and a warning: somebody started etcd before the release",
			when: on(DiskUsed), step: StepKeep,
		},
	}
}

// pendingRows decide on a release.
func pendingRows() []row {
	pending := on(DiskPending)
	return []row{
		{
			rule: RulePendingNone, disk: "pending", peers: "not asked: `--bootstrap-quorum=none`", out: "released",
			when: both(pending, func(in *Input) bool { return in.AskNobody }), step: StepRelease,
		},
		{
			rule: RulePendingAlone, disk: "pending", peers: "N = 1: there is none", out: "released",
			when: both(pending, alone), step: StepRelease,
		},
		{
			rule: RuleWithout, disk: "pending or empty", peers: "`--without` names more than a minority, this member, or nobody of the plan", out: "refused as a setting",
			when: both(onEither(DiskPending, DiskEmpty), badWithout), step: StepRefuse, status: statusSettings,
		},
		{
			rule: RuleReplaced, disk: "pending", peers: "an etcd of my cluster lists **my** ID as started", out: "another disk has run under this ID; this one must not",
			when: both(pending, any1(is(rendezvous.Replaced))), step: StepRefuse, status: statusUnsafe, about: is(rendezvous.Replaced),
		},
		{
			rule: RuleRemoved, disk: "pending", peers: "an etcd of my cluster, whose members have published, does not list my ID", out: "removed meanwhile; join by `member add`",
			when: both(pending, any1(is(rendezvous.Removed))), step: StepRefuse, status: statusUnsafe, about: is(rendezvous.Removed),
		},
		{
			rule: RulePendingSelf, disk: "pending", peers: "this member's own URL does not answer as this run: nothing, another agent with my ID, anything else", out: "wait",
			when: both(pending, notMyself), step: StepWait, status: statusDisagree,
		},
		{
			rule: RuleReleased, disk: "pending", peers: "any is released with my digest, or is an etcd of my cluster", out: "released",
			when: both(pending, any1(letsGo)), step: StepRelease, about: letsGo,
		},
		{
			rule: RuleAllCommitted, disk: "pending", peers: "all others are known to be committed with my digest (or are silent and named by `--without`)", out: "released",
			when: both(pending, all(either(provenCommitted, leftOut))), step: StepRelease,
		},
		{
			rule: RulePendingWait, disk: "pending", peers: "any other", out: "wait; the seed stays",
			when: pending, step: StepWait, status: statusDisagree, about: not(either(provenCommitted, leftOut)),
		},
	}
}

// emptyRows decide on a seed.
func emptyRows() []row {
	empty := on(DiskEmpty)
	return []row{
		{
			rule: RuleExisting, disk: "empty", peers: "not asked: `initial-cluster-state: existing`", out: "never a fresh seed",
			when: both(empty, func(in *Input) bool { return in.Existing }), step: StepRefuse, status: statusUnsafe,
		},
		{
			rule: RuleNone, disk: "empty", peers: "not asked: `--bootstrap-quorum=none`", out: "seeded and released",
			when: both(empty, func(in *Input) bool { return in.AskNobody }), step: StepSeedAlone,
		},
		{
			rule: RuleAlone, disk: "empty", peers: "N = 1: nobody can contradict", out: "seeded and released",
			when: both(empty, alone), step: StepSeedAlone,
		},
		{
			rule: RuleRunning, disk: "empty", peers: "an etcd of my cluster anywhere, also at my own URL", out: "this member's data are gone: member remove, member add",
			when: both(empty, func(in *Input) bool { return in.View.Self.Runs() || any1(runs)(in) }), step: StepRefuse, status: statusUnsafe, about: runs,
		},
		{
			rule: RuleForeignCluster, disk: "empty", peers: "an etcd of another cluster", out: "prints the member add that works",
			when: both(empty, any1(is(rendezvous.Foreign))), step: StepRefuse, status: statusUnsafe, about: is(rendezvous.Foreign),
		},
		{
			rule: RuleSelf, disk: "empty", peers: "this member's own URL does not answer as this run", out: "wait",
			when: both(empty, notMyself), step: StepWait, status: statusDisagree,
		},
		{
			rule: RuleAllWaiting, disk: "empty", peers: "in two rounds on end, the same run of every other agent, with my digest (or silent and named by `--without`)", out: "seeded, committed, barrier",
			when: both(empty, all(either(there, leftOut))), step: StepSeed,
		},
		{
			rule: RuleWait, disk: "empty", peers: "any other: silent, unknown, another digest, another member's agent", out: "wait",
			when: empty, step: StepWait, status: statusDisagree, about: not(either(there, leftOut)),
		},
	}
}

type (
	on1   = func(*Input) bool
	peer1 = func(*rendezvous.PeerView, *Input) bool
)

func on(d Disk) on1 { return func(in *Input) bool { return in.Disk == d } }

func onEither(a, b Disk) on1 { return func(in *Input) bool { return in.Disk == a || in.Disk == b } }

func both(a, b on1) on1 { return func(in *Input) bool { return a(in) && b(in) } }

func alone(in *Input) bool { return in.Members == 1 }

// notMyself also holds before the first round after a step.
func notMyself(in *Input) bool { return !in.View.Fresh || in.View.Self != rendezvous.Mine }

func any1(p peer1) on1 {
	return func(in *Input) bool {
		for i := range in.View.Peers {
			if p(&in.View.Peers[i], in) {
				return true
			}
		}
		return false
	}
}

func all(p peer1) on1 {
	return func(in *Input) bool { return len(in.View.Peers) == in.Members-1 && !any1(not(p))(in) }
}

func not(p peer1) peer1 {
	return func(v *rendezvous.PeerView, in *Input) bool { return !p(v, in) }
}

func either(a, b peer1) peer1 {
	return func(v *rendezvous.PeerView, in *Input) bool { return a(v, in) || b(v, in) }
}

func is(s rendezvous.Standing) peer1 {
	return func(v *rendezvous.PeerView, _ *Input) bool { return v.Now == s }
}

func runs(v *rendezvous.PeerView, _ *Input) bool { return v.Now.Runs() }

// there: an agent with my plan, and it was the same run of it the round before.
// Since that run answered at both ends, no etcd of that member ran in between;
// since this holds of all peers, there was a moment at which no disk of the
// cluster had ever been run on.
func there(v *rendezvous.PeerView, _ *Input) bool { return v.Now.Agrees() && v.Steady }

func letsGo(v *rendezvous.PeerView, _ *Input) bool {
	return v.Now == rendezvous.Running || v.Proven == rendezvous.IsReleased
}

func provenCommitted(v *rendezvous.PeerView, _ *Input) bool {
	return v.Proven == rendezvous.IsCommitted || v.Proven == rendezvous.IsReleased
}

// leftOut: silent, and the operator says that it has never run.
func leftOut(v *rendezvous.PeerView, in *Input) bool {
	return v.Now == rendezvous.Silent && slices.Contains(in.Without, v.Member.Name)
}

// badWithout: more than a minority, or a name that is no other member's.
func badWithout(in *Input) bool {
	if len(in.Without) > (in.Members-1)/2 {
		return true
	}
	for _, name := range in.Without {
		known := slices.ContainsFunc(in.View.Plan.Others(), func(m rendezvous.Member) bool { return m.Name == name })
		if !known && len(in.View.Plan.Members) > 0 {
			return true
		}
	}
	return false
}
