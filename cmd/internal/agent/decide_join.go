package agent

import (
	"slices"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
)

// IfRunning is what an empty disk does where its cluster runs already.
type IfRunning string

// Values of Config.IfRunning.
const (
	// Refuse touches nothing, unless somebody has added this node as a learner.
	Refuse IfRunning = "refuse"
	// Join adds a member whose URL the cluster does not list.
	Join IfRunning = "join"
	// Replace also removes the member whose disk was lost here.
	Replace IfRunning = "replace"
)

// Entry is what a running cluster lists at this node's peer URLs.
type Entry int

const (
	// Absent is no member.
	Absent Entry = iota
	// NewLearner is a learner that has never started.
	NewLearner
	// OldLearner is a learner that has started.
	OldLearner
	// NewVoter is a voter that is not known to have started.
	NewVoter
	// OldVoter is a voter that has started.
	OldVoter
)

func (e Entry) String() string {
	return [...]string{"no member", "a learner that has not started", "a learner that has started", "a voter that has not started", "a voter that has started"}[e]
}

// Running is what a running cluster says when it is asked on its client port.
type Running struct {
	// Asked: it was, since the last step.
	Asked bool
	// Welcome: this run has taken up a learner that somebody had added for this node.
	Welcome bool
	// Denied: it wants a user or a certificate that this node does not have.
	Denied bool
	// Hindered: it cannot be asked now, or it does not take what was tried.
	Hindered bool
	// Several: members of the plan are of different clusters.
	Several bool
	// Mine is what it lists at my peer URLs.
	Mine Entry
	// OnDisk: that entry has the ID that is on this disk.
	OnDisk bool
	// Answers: that member answers somewhere.
	Answers bool
	// Dead: a learner of the plan keeps this node out, and has answered nowhere for
	// --replace-after.
	Dead bool
	// Strangers: it lists members that the records do not have.
	Strangers bool
	// Old: the etcd here is older than what the cluster stores.
	Old bool
	// Few: it has less than three voters.
	Few bool
	// Steady: every other voter is healthy, has all entries and reaches this process
	// at the URL of the lost member, which answers nowhere; and there is no alarm and
	// no learner.
	Steady bool
	// Ripe: the loss was seen in two looks, far enough apart, with Steady in each
	// look from the first to the last.
	Ripe bool
	// Feed: the database can come from another member than the leader, and that was not
	// tried yet.
	Feed bool
	// Proved: a quorum of the members reach this very process at my URL.
	Proved bool
	// Localhost: the members give localhost as their own peer URL, so a joining etcd
	// would never find them.
	Localhost bool
	// Late: there was enough time for the proof.
	Late bool
}

// The rows about a running cluster.
const (
	RuleTwin          Rule = "another run has my URL"
	RuleConsult       Rule = "a cluster runs, not asked"
	RuleDenied        Rule = "a cluster runs, access denied"
	RuleDead          Rule = "a dead learner in the way"
	RuleHindered      Rule = "a cluster runs, not now"
	RuleSeveral       Rule = "several clusters run"
	RuleOld           Rule = "etcd too old"
	RuleNewVoter      Rule = "a voter was added for me"
	RuleStrangers     Rule = "members that no record has"
	RuleLost          Rule = "my disk is lost"
	RuleFew           Rule = "too few members to replace one"
	RuleUnsteady      Rule = "lost, the others are not steady"
	RuleUnripe        Rule = "lost, seen for too short a time"
	RuleReplace       Rule = "lost, replaced"
	RuleLearnerRuns   Rule = "my learner runs elsewhere"
	RuleLearnerLost   Rule = "my learner's disk is lost"
	RuleLearnerRefuse Rule = "my learner's disk is lost, refused"
	RuleTaken         Rule = "a learner was added for me"
	RuleUnlisted      Rule = "not listed"
	RuleAdmit         Rule = "not listed, joins"

	RuleJoinMeet     Rule = "joining, nobody can call here"
	RuleJoinConsult  Rule = "joining, the cluster not asked"
	RuleJoinDenied   Rule = "joining, access denied"
	RuleJoinHindered Rule = "joining, not now"
	RuleJoinStarted  Rule = "joining, somebody ran as me"
	RuleJoinGone     Rule = "joining, not listed any more"
	RuleFeed         Rule = "joining, reached, to be fed"
	RuleProved       Rule = "joining, reached"
	RuleLocalhost    Rule = "joining, members on localhost"
	RuleUnreached    Rule = "joining, not reached"
	RuleJoinWait     Rule = "joining, not reached yet"
)

// runningRows decide on an empty disk where a cluster runs.
func runningRows() []row {
	theirs := both(on(DiskEmpty, DiskPrepared), anyPeer(runs))
	may := func(p ...IfRunning) cond {
		return func(in *Input) bool { return slices.Contains(p, in.Policy.IfRunning) }
	}
	says := func(f func(*Running) bool) cond { return func(in *Input) bool { return f(&in.Running) } }
	mine := func(e Entry) cond { return func(in *Input) bool { return in.Running.Mine == e } }
	welcome := either(may(Join, Replace), says(func(r *Running) bool { return r.Welcome }))
	wanted := either(welcome, anyPeer(listsMeAsLearner))
	about := func(r row) row {
		r.disk, r.about = "empty", runs
		r.when = both(theirs, r.when)
		return r
	}
	rows := []row{
		{
			rule: RuleRunning, peers: "an etcd that is not of the roster that I propose; `--if-running=refuse`, and none lists me as a learner that has not started", out: "this disk is not of that cluster",
			when: not(wanted), step: StepRefuse, status: exit.Unsafe,
		},
		{
			rule: RuleTwin, peers: "an etcd, and at my own URL another run of this member (J2)", out: "nothing is added: wait",
			when: func(in *Input) bool { return in.View.Self == rendezvous.Double }, step: StepWait, status: exit.Disagree,
		},
		{
			rule: RuleConsult, peers: "an etcd, not asked on its client port yet", out: "it is asked for its members",
			when: not(says(func(r *Running) bool { return r.Asked })), step: StepConsult,
		},
		{
			rule: RuleSeveral, peers: "etcds of several clusters", out: "wait: nobody knows which is mine",
			when: says(func(r *Running) bool { return r.Several }), step: StepWait, status: exit.Unsafe,
		},
		{
			rule: RuleDenied, peers: "the cluster wants a user or a certificate", out: "refused as a setting",
			when: says(func(r *Running) bool { return r.Denied }), step: StepRefuse, status: exit.Config,
		},
		{
			rule: RuleDead, peers: "a learner of the records keeps this node out, which has answered nowhere, at its client URLs and at its peer URL, for `--replace-after`", out: "it never counted: it is removed, and this node tries again",
			when: both(may(Join, Replace), says(func(r *Running) bool { return r.Dead })), step: StepClear,
		},
		{
			rule: RuleHindered, peers: "the cluster does not answer, has no quorum, or takes nobody in now", out: "wait",
			when: says(func(r *Running) bool { return r.Hindered }), step: StepWait, status: exit.Disagree,
		},
		{
			rule: RuleNewVoter, peers: "my URL is a voter's that has not started (J4)", out: "somebody else's decision",
			when: mine(NewVoter), step: StepRefuse, status: exit.Unsafe,
		},
		{
			rule: RuleLost, peers: "my URL is a started voter's; no `--if-running=replace`", out: "the disk of that member is lost",
			when: both(mine(OldVoter), not(may(Replace))), step: StepRefuse, status: exit.Unsafe,
		},
		{
			rule: RuleStrangers, peers: "it lists members that the records do not have", out: "nothing is added",
			when: says(func(r *Running) bool { return r.Strangers }), step: StepRefuse, status: exit.Unusable,
		},
		{
			rule: RuleOld, peers: "it stores what the etcd here cannot read (J6)", out: "refused as a setting",
			when: says(func(r *Running) bool { return r.Old }), step: StepRefuse, status: exit.Config,
		},
		{
			rule: RuleFew, peers: "my URL is a started voter's, one of less than three", out: "nothing is removed",
			when: both(mine(OldVoter), says(func(r *Running) bool { return r.Few })), step: StepRefuse, status: exit.Unsafe,
		},
		{
			rule: RuleUnsteady, peers: "my URL is a started voter's; it answers somewhere, or another voter is not healthy, lags behind or does not call this process for it, or there is an alarm or a learner", out: "nothing is removed: wait",
			when: both(mine(OldVoter), not(says(func(r *Running) bool { return r.Steady }))), step: StepWait, status: exit.Disagree,
		},
		{
			rule: RuleUnripe, peers: "my URL is a started voter's, all others are well; seen for less than `--replace-after`", out: "nothing is removed: wait",
			when: both(mine(OldVoter), not(says(func(r *Running) bool { return r.Ripe }))), step: StepWait, status: exit.Disagree,
		},
		{
			rule: RuleReplace, peers: "the same, in two looks that were `--replace-after` apart", out: "the old member is removed, a learner added and seeded",
			when: mine(OldVoter), step: StepAdmit,
		},
		{
			rule: RuleLearnerRuns, peers: "my URL is a started learner's, which answers", out: "it runs elsewhere",
			when: both(mine(OldLearner), says(func(r *Running) bool { return r.Answers })), step: StepRefuse, status: exit.Unsafe,
		},
		{
			rule: RuleLearnerRefuse, peers: "my URL is a started learner's; `--if-running=refuse`", out: "the disk of that learner is lost",
			when: both(mine(OldLearner), not(may(Join, Replace))), step: StepRefuse, status: exit.Unsafe,
		},
		{
			rule: RuleLearnerLost, peers: "my URL is a started learner's, which is silent", out: "it never counted: removed, added anew and seeded",
			when: mine(OldLearner), step: StepAdmit,
		},
		{
			rule: RuleTaken, peers: "my URL is a learner's that has not started, and not from this disk (J3)", out: "removed, added anew and seeded",
			when: mine(NewLearner), step: StepAdmit,
		},
		{
			rule: RuleUnlisted, peers: "my URL is not listed; `--if-running=refuse`", out: "this disk is not of that cluster",
			when: not(welcome), step: StepRefuse, status: exit.Unsafe,
		},
		{
			rule: RuleAdmit, peers: "my URL is not listed", out: "added as a learner and seeded",
			when: func(*Input) bool { return true }, step: StepAdmit,
		},
	}
	for i := range rows {
		rows[i] = about(rows[i])
	}
	return rows
}

// joiningRows decide on the seed of a member that was added, and that no etcd has
// run on.
func joiningRows() []row {
	joining := on(DiskJoining)
	says := func(f func(*Running) bool) cond {
		return both(joining, func(in *Input) bool { return f(&in.Running) })
	}
	mine := func(in *Input) bool { return in.Running.OnDisk }
	return []row{
		{
			rule: RuleJoinMeet, disk: "seeded to join, pending", peers: "cannot call here yet", out: "this member's URL is answered",
			when: both(joining, not(asked)), step: StepMeet,
		},
		{
			rule: RuleJoinConsult, disk: "seeded to join, pending", peers: "not asked on their client port yet", out: "the cluster is asked for its members",
			when: both(joining, not(says(func(r *Running) bool { return r.Asked }))), step: StepConsult,
		},
		{
			rule: RuleJoinDenied, disk: "seeded to join, pending", peers: "the cluster wants a user or a certificate", out: "refused as a setting",
			when: says(func(r *Running) bool { return r.Denied }), step: StepRefuse, status: exit.Config,
		},
		{
			rule: RuleJoinHindered, disk: "seeded to join, pending", peers: "the cluster does not answer, or has no quorum", out: "wait; the seed stays",
			when: says(func(r *Running) bool { return r.Hindered || r.Several }), step: StepWait, status: exit.Disagree,
		},
		{
			rule: RuleJoinGone, disk: "seeded to join, pending", peers: "the cluster does not list its ID (any more)", out: "moved aside; decided anew as an empty disk",
			when: both(joining, not(mine)), step: StepSetAside,
		},
		{
			rule: RuleJoinStarted, disk: "seeded to join, pending", peers: "the cluster lists its ID as started, or as a voter", out: "a copy of this disk has run; this one must not",
			when: says(func(r *Running) bool { return r.Mine != NewLearner }), step: StepRefuse, status: exit.Unsafe,
		},
		{
			rule: RuleLocalhost, disk: "seeded to join, pending", peers: "members call here that give localhost as their own peer URL", out: "the learner is removed, the seed moved aside",
			when: says(func(r *Running) bool { return r.Localhost }), step: StepGiveUp, status: exit.Unusable,
		},
		{
			rule: RuleFeed, disk: "seeded to join, pending", peers: "a quorum of them calls here for this very ID, and one of them can give its database", out: "the seed is replaced by one with that database",
			when: says(func(r *Running) bool { return r.Proved && r.Feed }), step: StepFeed,
		},
		{
			rule: RuleProved, disk: "seeded to join, pending", peers: "a quorum of them calls here for this very ID", out: "released",
			when: says(func(r *Running) bool { return r.Proved }), step: StepRelease,
		},
		{
			rule: RuleUnreached, disk: "seeded to join, pending", peers: "less than a quorum of them has called here, in ten seconds", out: "the learner is removed, the seed moved aside",
			when: says(func(r *Running) bool { return r.Late }), step: StepGiveUp, status: exit.Unusable,
		},
		{
			rule: RuleJoinWait, disk: "seeded to join, pending", peers: "less than a quorum of them has called here yet", out: "wait",
			when: joining, step: StepWait, status: exit.Disagree,
		},
	}
}

// listsMeAsLearner: it is an etcd that lists a learner with my URLs, which has not
// started: somebody has added it.
func listsMeAsLearner(v *rendezvous.PeerView, in *Input) bool {
	me := in.View.Plan.Me()
	return runs(v, in) && slices.ContainsFunc(v.Last.Members, func(l rendezvous.Listed) bool {
		return l.Learner && !l.Started && l.Name == "" && sameURLs(l.PeerURLs, me.PeerURLs)
	})
}

func sameURLs(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
