package agent

import (
	"slices"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
)

// Disk is what a data directory means for a decision.
type Disk int

const (
	// DiskEmpty holds nothing of an etcd, and no disk ID.
	DiskEmpty Disk = iota
	// DiskPrepared is empty but for its disk ID.
	DiskPrepared
	// DiskPending is a seed that is bound to a roster and not released; no etcd
	// has run on it.
	DiskPending
	// DiskFirst is a pending seed of the first edition: it has no roster.
	DiskFirst
	// DiskJoining is the pending seed of a member that a running cluster has added;
	// no etcd has run on it.
	DiskJoining
	// DiskReleased is a seed that this very run has released.
	DiskReleased
	// DiskUsed is a pending seed on which an etcd has run.
	DiskUsed
	// DiskOurs is a whole directory that names its member.
	DiskOurs
	// DiskUnnamed is a whole directory whose own entry is not there yet.
	DiskUnnamed
	// DiskRemoved is the directory of a member that was removed.
	DiskRemoved
	// DiskPackage is the one-member cluster that a distribution's package starts
	// at install, where more members are expected.
	DiskPackage
	// DiskOtherToken is a pending seed for another initial-cluster-token.
	DiskOtherToken
	// DiskDamaged is half-written, mixed or corrupt.
	DiskDamaged
)

// Records is what discovery says about a directory that holds data.
type Records int

const (
	// RecordsUnasked is before discovery was asked.
	RecordsUnasked Records = iota
	// RecordsSilent is no whole answer: a restart does not need one.
	RecordsSilent
	// RecordsMine is an answer that names the stored member for this node.
	RecordsMine
	// RecordsOther is an answer that names another member for this node.
	RecordsOther
	// RecordsNobody is a whole answer in which this node is nobody.
	RecordsNobody
)

// Policy is what the operator says about births.
type Policy struct {
	// AskNobody is --bootstrap-quorum=none.
	AskNobody bool
	// Without names the members that a roster leaves out.
	Without []string
	// Existing is initial-cluster-state: existing in etcd's configuration.
	Existing bool
	// IfRunning is what an empty disk does where its cluster runs; "" is Refuse.
	IfRunning IfRunning
}

// Input is all that a decision is made from.
type Input struct {
	Disk    Disk
	Records Records
	// Members is how many members the plan has; 0 while it is not known.
	Members int
	Policy  Policy
	// Unmarked: the root of the data directory lacks the file that --require-mark
	// names: the volume may not be there yet.
	Unmarked bool
	// Restoring: a birth is to begin with a snapshot, which is not staged here.
	Restoring bool
	// Asked: View is of a round that was made since the last step.
	Asked bool
	View  rendezvous.View
	// Running is what the cluster that View has found says.
	Running Running
	// Expired: --timeout has passed.
	Expired bool
}

// Step is what to do next.
type Step int

const (
	// StepWait is to look again in a while.
	StepWait Step = iota
	// StepFind is to ask discovery.
	StepFind
	// StepMeet is to answer the peers from now on, and to ask them.
	StepMeet
	// StepProbe is to ask what answers at this member's own URL.
	StepProbe
	// StepStage is to read the snapshot that the members are to be born with.
	StepStage
	// StepPrepare is to give the disk its ID.
	StepPrepare
	// StepCommit is to write the seed, bound to the roster and marked as pending.
	StepCommit
	// StepSeedAlone is to write the seed without the mark: nobody is waited for.
	StepSeedAlone
	// StepRelease is to remove the mark.
	StepRelease
	// StepConsult is to ask the running cluster on its client port.
	StepConsult
	// StepAdmit is to have this node added as a learner, in place of the member that
	// has its URLs if there is one, and to write its seed.
	StepAdmit
	// StepFeed is to read the database of another member, and to put it into the seed.
	StepFeed
	// StepClear is to remove a dead learner that keeps this node out.
	StepClear
	// StepSetAside is to move the seed of a learner that is not listed aside.
	StepSetAside
	// StepGiveUp is to remove the learner, to move its seed aside, and to refuse.
	StepGiveUp
	// StepRevoke is to put the mark back, and to refuse.
	StepRevoke
	// StepKeep is to hand the directory over as it is: etcd may start.
	StepKeep
	// StepRefuse is to touch nothing and exit with Outcome.Status.
	StepRefuse
)

func (s Step) String() string {
	return [...]string{"wait", "find", "meet", "probe", "stage", "prepare", "commit", "seed alone", "release", "consult", "admit", "feed", "clear", "set aside", "give up", "revoke", "keep", "refuse"}[s]
}

// Outcome is what Decide decided.
type Outcome struct {
	Step Step
	// Status is the exit status of StepRefuse, StepRevoke and StepGiveUp.
	Status exit.Status
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
	RuleDamaged      Rule = "damaged"
	RuleRemovedDisk  Rule = "a removed member's data"
	RuleUnnamed      Rule = "a member without a name yet"
	RulePackage      Rule = "a package's own cluster"
	RuleOtherToken   Rule = "pending for another token"
	RulePendingNone  Rule = "pending, nobody asked"
	RuleFirstNone    Rule = "first edition, nobody asked"
	RuleRecords      Rule = "records not asked"
	RuleForeignDisk  Rule = "another member's data"
	RuleNobodyProbe  Rule = "not in the records, own URL not asked"
	RuleNobodyTwice  Rule = "not in the records, own URL taken"
	RuleKeep         Rule = "ours"
	RuleContradicted Rule = "released, contradicted"
	RuleHandOver     Rule = "released"
	RulePendingAsk   Rule = "pending, peers not asked"
	RuleReplaced     Rule = "somebody ran as me"
	RuleRemoved      Rule = "removed meanwhile"
	RuleAllBound     Rule = "all disks are bound"
	RuleReleased     Rule = "a peer is released"
	RuleUnstarted    Rule = "my cluster runs and waits for me"
	RuleOtherRuns    Rule = "pending, another cluster runs"
	RulePendingWait  Rule = "pending, some are missing"
	RuleUnmarked     Rule = "no mark"
	RuleExisting     Rule = "existing"
	RulePlan         Rule = "plan not known"
	RuleNone         Rule = "nobody asked"
	RuleStageAlone   Rule = "one member, a snapshot to read"
	RuleAlone        Rule = "one member"
	RuleWithout      Rule = "without too many"
	RuleAsk          Rule = "peers not asked"
	RuleOwnEtcd      Rule = "an etcd at my own URL"
	RuleRunning      Rule = "a cluster runs"
	RuleToJoin       Rule = "existing, no cluster runs"
	RuleCopied       Rule = "a copy of my disk was bound"
	RuleBornWithout  Rule = "born without this disk"
	RuleShared       Rule = "one disk, two members"
	RuleStage        Rule = "a snapshot to read"
	RuleAllAgree     Rule = "all propose one roster"
	RuleAllThere     Rule = "all are there"
	RuleWait         Rule = "some are missing"
)

// row is one line of the decision table: what it is about in words, for the
// documentation, and in code.
type row struct {
	rule             Rule
	disk, peers, out string
	when             cond
	step             Step
	status           exit.Status // of StepRefuse, and of StepWait once the time is up
	about            peerCond
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
		case r.step == StepRefuse || r.step == StepRevoke || r.step == StepGiveUp:
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
	return Outcome{Step: StepRefuse, Status: exit.Bug}
}

func table() []row {
	return slices.Concat(dataRows(), releasedRows(), pendingRows(), joiningRows(), emptyRows())
}

// dataRows ask no peer.
func dataRows() []row {
	return []row{
		{
			rule: RuleDamaged, disk: "half-written, mixed or corrupt", peers: "not asked", out: "nothing is touched",
			when: on(DiskDamaged), step: StepRefuse, status: exit.Damaged,
		},
		{
			rule: RuleRemovedDisk, disk: "of a member that was removed", peers: "not asked", out: "nothing is touched",
			when: on(DiskRemoved), step: StepRefuse, status: exit.Foreign,
		},
		{
			rule: RuleUnnamed, disk: "of a member that has not caught up and has no name yet", peers: "not asked", out: "nothing is touched",
			when: on(DiskUnnamed), step: StepRefuse, status: exit.Foreign,
		},
		{
			rule: RulePackage, disk: "the one-member cluster of a distribution's package, where more members are expected", peers: "not asked", out: "nothing is touched",
			when: on(DiskPackage), step: StepRefuse, status: exit.Foreign,
		},
		{
			rule: RuleOtherToken, disk: "pending for another initial-cluster-token", peers: "not asked", out: "nothing is touched",
			when: on(DiskOtherToken), step: StepRefuse, status: exit.Foreign,
		},
		{
			rule: RulePendingNone, disk: "pending, bound to a roster", peers: "not asked: `--bootstrap-quorum=none`", out: "refused as a setting",
			when: both(on(DiskPending), askNobody), step: StepRefuse, status: exit.Config,
		},
		{
			rule: RuleFirstNone, disk: "pending, of the first edition", peers: "not asked: `--bootstrap-quorum=none`", out: "released",
			when: both(on(DiskFirst), askNobody), step: StepRelease,
		},
		{
			rule: RuleRecords, disk: "pending, or data", peers: "not asked; discovery not asked either", out: "discovery is asked for a moment",
			when: both(on(DiskPending, DiskFirst, DiskJoining, DiskUsed, DiskOurs), records(RecordsUnasked)), step: StepFind,
		},
		{
			rule: RuleForeignDisk, disk: "pending, or data; discovery names another member for this node", peers: "not asked", out: "nothing is touched",
			when: both(on(DiskPending, DiskFirst, DiskJoining, DiskUsed, DiskOurs), records(RecordsOther)), step: StepRefuse, status: exit.Foreign,
		},
		{
			rule: RuleNobodyProbe, disk: "data; discovery is complete and this node is nobody in it", peers: "not asked", out: "this member's own URL is asked",
			when: both(on(DiskUsed, DiskOurs), records(RecordsNobody), not(asked)), step: StepProbe,
		},
		{
			rule: RuleNobodyTwice, disk: "data; discovery is complete and this node is nobody in it", peers: "at this member's own URL: an etcd of its cluster, or another run of this member", out: "a copy of the disk, or two machines",
			when: both(on(DiskUsed, DiskOurs), records(RecordsNobody), taken), step: StepRefuse, status: exit.Foreign,
		},
		{
			rule: RuleKeep, disk: "data (with a warning where it was pending: somebody started etcd before the release)", peers: "not asked", out: "handed over as it is",
			when: on(DiskUsed, DiskOurs), step: StepKeep,
		},
	}
}

// releasedRows are the look after the release.
func releasedRows() []row {
	return []row{
		{
			rule: RuleContradicted, disk: "just released", peers: "an etcd of my cluster lists me as started, or at my own URL another run is bound to my roster", out: "the mark is put back: a copy of this disk runs",
			when: both(on(DiskReleased), either(anyPeer(is(rendezvous.Started)), twin)), step: StepRevoke, status: exit.Unsafe, about: is(rendezvous.Started),
		},
		{
			rule: RuleHandOver, disk: "just released", peers: "any other, silence too", out: "handed over",
			when: on(DiskReleased), step: StepKeep,
		},
	}
}

// pendingRows decide on a release.
func pendingRows() []row {
	pending := on(DiskPending, DiskFirst)
	return []row{
		{
			rule: RulePendingAsk, disk: "pending", peers: "not asked yet", out: "they are asked",
			when: both(pending, not(asked)), step: StepMeet,
		},
		{
			rule: RuleReplaced, disk: "pending", peers: "an etcd of my cluster lists **me** as started", out: "a copy of this disk has run; this one must not",
			when: both(pending, anyPeer(is(rendezvous.Started))), step: StepRefuse, status: exit.Unsafe, about: is(rendezvous.Started),
		},
		{
			rule: RuleRemoved, disk: "pending", peers: "an etcd of my cluster, whose members have published, does not list me", out: "removed meanwhile; join by `member add`",
			when: both(pending, anyPeer(is(rendezvous.Removed))), step: StepRefuse, status: exit.Unsafe, about: is(rendezvous.Removed),
		},
		{
			rule: RuleAllBound, disk: "pending", peers: "all other disks of my roster are known to be bound to it", out: "released",
			when: both(on(DiskPending), eachPeer(either1(outside, bound))), step: StepRelease,
		},
		{
			rule: RuleReleased, disk: "pending", peers: "one is released under my cluster ID", out: "released",
			when: both(on(DiskPending), anyPeer(letsGo)), step: StepRelease, about: letsGo,
		},
		{
			rule: RuleUnstarted, disk: "pending", peers: "an etcd of my cluster lists me as not started: twice with a second between, or once where all others have published", out: "released",
			when: both(pending, anyPeer(waitsForMe)), step: StepRelease, about: waitsForMe,
		},
		{
			rule: RuleOtherRuns, disk: "pending", peers: "an etcd of another cluster", out: "wait: my roster cannot be completed there",
			when: both(pending, anyPeer(is(rendezvous.Runs))), step: StepWait, status: exit.Unsafe, about: is(rendezvous.Runs),
		},
		{
			rule: RulePendingWait, disk: "pending", peers: "any other", out: "wait; the seed stays",
			when: pending, step: StepWait, status: exit.Disagree, about: awaitedBound,
		},
	}
}

// emptyRows decide on a disk ID and on a seed.
func emptyRows() []row {
	empty := on(DiskEmpty, DiskPrepared)
	existing := func(in *Input) bool { return in.Policy.Existing }
	joins := func(in *Input) bool { return in.Policy.IfRunning == Join || in.Policy.IfRunning == Replace }
	return slices.Concat([]row{
		{
			rule: RuleUnmarked, disk: "empty, and without the file that `--require-mark` names", peers: "not asked", out: "wait: the volume may come late",
			when: both(empty, func(in *Input) bool { return in.Unmarked }), step: StepWait, status: exit.Unsafe,
		},
		{
			rule: RuleExisting, disk: "empty", peers: "not asked: `initial-cluster-state: existing`, and no `--if-running`", out: "never a fresh seed",
			when: both(both(empty, existing), not(joins)), step: StepRefuse, status: exit.Unsafe,
		},
		{
			rule: RulePlan, disk: "empty", peers: "not asked; the members are not known", out: "discovery is asked until it is complete",
			when: both(empty, func(in *Input) bool { return in.Members == 0 }), step: StepFind,
		},
		{
			rule: RuleNone, disk: "empty", peers: "not asked: `--bootstrap-quorum=none`", out: "seeded with the cluster ID that etcd computes",
			when: both(empty, both(askNobody, not(existing))), step: StepSeedAlone,
		},
		{
			rule: RuleStageAlone, disk: "empty; a snapshot is to be restored, and is not here", peers: "N = 1: nobody can contradict", out: "it is read beside the data",
			when: both(empty, both(restoring, both(func(in *Input) bool { return in.Members == 1 }, not(existing)))), step: StepStage,
		},
		{
			rule: RuleAlone, disk: "empty", peers: "N = 1: nobody can contradict", out: "seeded, a birth of its own",
			when: both(empty, both(func(in *Input) bool { return in.Members == 1 }, not(existing))), step: StepSeedAlone,
		},
		{
			rule: RuleWithout, disk: "empty", peers: "`--without` names more than a minority, this member, or nobody of the plan", out: "refused as a setting",
			when: both(empty, badWithout), step: StepRefuse, status: exit.Config,
		},
		{
			rule: RuleAsk, disk: "empty", peers: "not asked yet", out: "they are asked",
			when: both(empty, not(asked)), step: StepMeet,
		},
		{
			rule: RuleOwnEtcd, disk: "empty", peers: "an etcd at my own URL", out: "somebody else is this member",
			when: both(empty, ownEtcd), step: StepRefuse, status: exit.Unsafe, about: runs,
		},
	}, runningRows(), []row{
		{
			rule: RuleToJoin, disk: "empty", peers: "no etcd, and `initial-cluster-state: existing` with `--if-running`", out: "wait: never a fresh seed",
			when: both(empty, existing), step: StepWait, status: exit.Disagree, about: awaitedEtcd,
		},
		{
			rule: RuleCopied, disk: "empty, with a disk ID", peers: "one is released under a roster with **my** disk", out: "a copy of this disk was bound",
			when: both(on(DiskPrepared), anyPeer(releasedWith)), step: StepRefuse, status: exit.Unsafe, about: releasedWith,
		},
		{
			rule: RuleBornWithout, disk: "empty", peers: "one is released under a roster without my disk", out: "the cluster was born without this disk",
			when: both(empty, anyPeer(is(rendezvous.IsReleased))), step: StepRefuse, status: exit.Unsafe, about: is(rendezvous.IsReleased),
		},
		{
			rule: RuleShared, disk: "empty, with a disk ID", peers: "two members have one disk ID", out: "a directory that two members share, or a copy",
			when: both(on(DiskPrepared), shared), step: StepRefuse, status: exit.Config,
		},
		{
			rule: RuleStage, disk: "empty; a snapshot is to be restored, and is not here", peers: "any other: no etcd runs, nobody is released", out: "it is read beside the data; no other member agrees before",
			when: both(empty, restoring), step: StepStage,
		},
		{
			rule: RuleAllAgree, disk: "empty, with a disk ID", peers: "each other member of my proposal is prepared and proposes the same disks and runs, or is bound to it", out: "seeded and bound to it, pending",
			when: both(on(DiskPrepared), complete, eachPeer(either1(leftOut, agreed))), step: StepCommit,
		},
		{
			rule: RuleAllThere, disk: "empty, without an ID", peers: "each other member is an agent with my plan (or named by `--without`)", out: "the disk gets its ID",
			when: both(on(DiskEmpty), eachPeer(either1(leftOut, there))), step: StepPrepare,
		},
		{
			rule: RuleWait, disk: "empty", peers: "any other: silent, unknown, another plan, another proposal", out: "wait",
			when: empty, step: StepWait, status: exit.Disagree, about: awaited,
		},
	})
}

type (
	cond     = func(*Input) bool
	peerCond = func(*rendezvous.PeerView, *Input) bool
)

func on(disks ...Disk) cond {
	return func(in *Input) bool { return slices.Contains(disks, in.Disk) }
}

func records(r Records) cond { return func(in *Input) bool { return in.Records == r } }

func both(conds ...cond) cond {
	return func(in *Input) bool {
		for _, c := range conds {
			if !c(in) {
				return false
			}
		}
		return true
	}
}

func either(a, b cond) cond { return func(in *Input) bool { return a(in) || b(in) } }

func not(c cond) cond { return func(in *Input) bool { return !c(in) } }

func asked(in *Input) bool { return in.Asked }

func restoring(in *Input) bool { return in.Restoring }

func askNobody(in *Input) bool { return in.Policy.AskNobody }

// taken: at this member's own URL answers somebody else who is this member too.
func taken(in *Input) bool {
	switch in.View.Self {
	case rendezvous.Double, rendezvous.Vague, rendezvous.Unstarted, rendezvous.Started, rendezvous.Removed:
		return true
	case rendezvous.Silent, rendezvous.Unknown, rendezvous.Astray, rendezvous.Differs, rendezvous.IsWaiting, rendezvous.IsPrepared,
		rendezvous.IsCommitted, rendezvous.IsReleased, rendezvous.Runs, rendezvous.Mine:
	}
	return false
}

// twin: at my own URL another run is bound to my roster.
func twin(in *Input) bool {
	return in.View.Self == rendezvous.Double && in.View.Roster != nil && in.View.SelfLast.Answer.Roster.Equal(in.View.Roster)
}

// ownEtcd: my own URL leads to an etcd, and I am none.
func ownEtcd(in *Input) bool { return in.View.Self.Etcd() }

// complete: my proposal has every seat.
func complete(in *Input) bool { return in.View.Roster != nil }

func shared(in *Input) bool {
	_, _, found := in.View.Roster.Shared()
	return found
}

func anyPeer(p peerCond) cond {
	return func(in *Input) bool {
		for i := range in.View.Peers {
			if p(&in.View.Peers[i], in) {
				return true
			}
		}
		return false
	}
}

// eachPeer holds only where the view has every peer of the plan.
func eachPeer(p peerCond) cond {
	return func(in *Input) bool {
		missed := anyPeer(func(v *rendezvous.PeerView, in *Input) bool { return !p(v, in) })
		return len(in.View.Peers) == in.Members-1 && !missed(in)
	}
}

func either1(a, b peerCond) peerCond {
	return func(v *rendezvous.PeerView, in *Input) bool { return a(v, in) || b(v, in) }
}

func is(s rendezvous.Standing) peerCond {
	return func(v *rendezvous.PeerView, _ *Input) bool { return v.Now == s }
}

// runs: an etcd that is not of the roster that I propose.
func runs(v *rendezvous.PeerView, _ *Input) bool { return v.Now.Etcd() && !v.Counted }

// there: an agent with my plan whose birth is still to come.
func there(v *rendezvous.PeerView, _ *Input) bool {
	return v.Now.Agrees() && v.Now != rendezvous.IsReleased
}

func agreed(v *rendezvous.PeerView, _ *Input) bool { return v.Agreed }

func leftOut(v *rendezvous.PeerView, _ *Input) bool { return v.LeftOut }

// outside: my roster has no seat for it.
func outside(v *rendezvous.PeerView, in *Input) bool {
	return in.View.Roster.Disk(string(v.Member.ID)) == ""
}

func bound(v *rendezvous.PeerView, _ *Input) bool { return v.Bound }

// letsGo: it is released under my cluster ID now.
func letsGo(v *rendezvous.PeerView, in *Input) bool {
	return v.Now == rendezvous.IsReleased && v.Last.Answer.Roster.Equal(in.View.Roster)
}

func waitsForMe(v *rendezvous.PeerView, _ *Input) bool {
	return v.Now == rendezvous.Unstarted && v.Firm
}

// releasedWith: it is released under a roster that has my disk.
func releasedWith(v *rendezvous.PeerView, in *Input) bool {
	return v.Now == rendezvous.IsReleased && v.Last.Answer.Roster.Disk(string(in.View.Plan.Self)) == in.View.Disk
}

// awaitedEtcd: what keeps a disk waiting that is to join.
func awaitedEtcd(v *rendezvous.PeerView, _ *Input) bool { return !v.Now.Etcd() }

// awaited: what keeps an empty disk waiting.
func awaited(v *rendezvous.PeerView, in *Input) bool {
	if in.Disk == DiskPrepared {
		return !v.LeftOut && !v.Agreed
	}
	return !v.LeftOut && !there(v, in)
}

// awaitedBound: what keeps a pending seed waiting. One of the first edition has no
// roster: it waits for any of its members.
func awaitedBound(v *rendezvous.PeerView, in *Input) bool {
	return !v.Bound && (in.View.Roster == nil || !outside(v, in))
}

// badWithout: more than a minority, or a name that is no other member's.
func badWithout(in *Input) bool {
	names := in.Policy.Without
	if len(names) > (in.Members-1)/2 {
		return true
	}
	others := in.View.Plan.Others()
	return slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(others, func(m rendezvous.Member) bool { return m.Name == name })
	})
}
