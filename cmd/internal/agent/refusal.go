package agent

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/hosturl"
	"github.com/etcdinit/etcdinit/seed"
)

// refusal is a decision that ends the run, as data: reason, line, commands.
func (a *agent) refusal(ctx context.Context, out Outcome) error {
	e := a.refuse(out)
	e.Status = out.Status
	if e.Status == exit.Disagree {
		e.Msg += "; " + a.place()
	}
	if expired(ctx) && (e.Status == exit.Disagree || out.Rule == RuleOtherRuns) {
		e.Msg = context.Cause(ctx).Error() + ": " + e.Msg
	}
	return e
}

func (a *agent) refuse(out Outcome) *exit.Error {
	dir := a.Etcd.DataDir
	switch out.Rule {
	case RuleDamaged:
		return asExit(broken(a.state))
	case RuleRemovedDisk, RuleUnnamed:
		return asExit(Startable(a.state))
	case RulePackage:
		return a.packageDefault(a.Size)
	case RuleOtherToken:
		return a.otherToken()
	case RulePendingNone:
		return &exit.Error{Reason: "pending", Msg: fmt.Sprintf("--bootstrap-quorum=none: %s holds a seed that is bound to %d disks and not released; none is for an empty directory", dir, len(a.state.Record.Roster)), Commands: a.withdrawal()}
	case RuleForeignDisk:
		return asExit(a.other)
	case RuleNobodyTwice:
		return a.copied()
	case RuleWithout:
		return &exit.Error{Reason: "without", Msg: a.badWithoutWords()}
	case RuleExisting:
		return &exit.Error{Reason: "initial-cluster-state-existing", Msg: "refusing to seed " + dir + ": it is empty, and initial-cluster-state is \"existing\", so this member belongs to a cluster that runs already; " +
			"a member whose data are gone must be removed (etcdctl member remove) and added again (etcdctl member add --learner)"}
	case RuleRunning, RuleOwnEtcd:
		return a.running(out)
	case RuleUnmarked, RuleTwin, RuleDenied, RuleHindered, RuleSeveral, RuleNewVoter, RuleLost, RuleStrangers, RuleOld, RuleFew, RuleUnsteady, RuleUnripe,
		RuleLearnerRuns, RuleLearnerRefuse, RuleUnlisted, RuleToJoin, RuleJoinDenied, RuleJoinHindered, RuleJoinStarted, RuleLocalhost, RuleUnreached, RuleJoinWait:
		return a.joinRefusal(out)
	case RuleCopied:
		return &exit.Error{Reason: "disk-copied", Msg: fmt.Sprintf("refusing to seed %s: its disk ID %s is bound already: %s, released, counts it among the disks of cluster %s, so a copy of this disk was seeded elsewhere",
			dir, a.state.DiskID, names(out.Peers), out.Peers[0].Last.Answer.ClusterID)}
	case RuleBornWithout:
		p := &out.Peers[0]
		return &exit.Error{Reason: "cluster-runs", Msg: fmt.Sprintf("refusing to seed %s: cluster %s is released at %s and was born with %s for %s, not with this disk, so the data of %s are gone, or another node has its place",
			dir, p.Last.Answer.ClusterID, at(out.Peers), diskWords(p.Last.Answer.Roster.Disk(a.plan.MemberID.String())), a.plan.Self.Name, a.me()), Commands: a.replacement(out.Peers)}
	case RuleShared:
		x, y, _ := a.view.Roster.Shared()
		return &exit.Error{Reason: "disk-shared", Msg: fmt.Sprintf("%s and %s have one disk ID, %s: they share a directory, or the disk of one was copied from the other; nothing was seeded; give each member a directory of its own (a copied one must be empty)",
			a.nameOf(x), a.nameOf(y), a.view.Roster.Disk(x))}
	case RuleReplaced:
		return &exit.Error{Reason: "disk-copied", Msg: fmt.Sprintf("refusing to release %s: the etcd at %s says that %s has already run and published itself, and it was not on this disk, which was seeded and never started: a copy of it runs elsewhere; "+
			"if that other disk is gone, replace the member", dir, at(out.Peers), a.me()), Commands: append(a.aside("not-released"), a.replacement(out.Peers)...)}
	case RuleRemoved:
		return &exit.Error{Reason: "removed", Msg: fmt.Sprintf("refusing to release %s: the cluster %s runs at %s and does not list %s (any more): it was removed before it first started; move %s aside and add it",
			dir, a.state.ClusterID, at(out.Peers), a.me(), dir), Commands: append(a.aside("not-released"), a.addition(out.Peers)...)}
	case RuleOtherRuns:
		p := &out.Peers[0]
		return &exit.Error{Reason: "another-cluster-runs", Msg: fmt.Sprintf("the seed in %s is bound to cluster %s, and an etcd of cluster %s runs at %s, where %s was to be: this roster cannot be completed; %s",
			dir, a.state.ClusterID, p.Last.ClusterID, p.Last.URL, p.Member.Name, a.committed()), Commands: append(a.aside("not-released"), a.entry(out.Peers)...)}
	case RulePendingWait:
		return a.pendingRefusal(out)
	case RuleWait:
		return &exit.Error{Reason: "peers-disagree", Msg: fmt.Sprintf("not all %d members agree to start: %s; %s", len(a.plan.Members), a.why(out), a.committed())}
	case RuleFirstNone, RuleRecords, RuleNobodyProbe, RuleKeep, RuleContradicted, RuleHandOver, RulePendingAsk, RuleAllBound, RuleReleased,
		RuleUnstarted, RulePlan, RuleNone, RuleStageAlone, RuleAlone, RuleAsk, RuleStage, RuleAllAgree, RuleAllThere,
		RuleConsult, RuleDead, RuleReplace, RuleLearnerLost, RuleTaken, RuleAdmit, RuleJoinMeet, RuleJoinConsult, RuleJoinGone, RuleFeed, RuleProved:
	}
	return &exit.Error{Reason: "bug", Msg: fmt.Sprintf("no words for the decision %q", out.Rule)}
}

// asExit is an error that is a refusal already, as one.
func asExit(err error) *exit.Error {
	if e := exit.Refusal(err); e != nil {
		return e
	}
	return &exit.Error{Msg: err.Error()}
}

// place says which node this is, where its data are, and where the members were
// found.
func (a *agent) place() string {
	text := "this node is " + a.plan.Self.Name + " (" + strings.Join(a.plan.Self.PeerURLs, ",") + "), its data-dir " + a.Etcd.DataDir
	if a.found != nil {
		text += ", the members are those of " + sourceWords(a.Source)
	}
	return text
}

// sourceWords is a source without its parameters and password, which may be long or
// secret.
func sourceWords(source string) string {
	u, err := url.Parse(source)
	if err != nil {
		return "the discovery source"
	}
	u.RawQuery, u.ForceQuery, u.Fragment = "", false, ""
	return u.Redacted()
}

// over is how a wait ends that was interrupted.
func (a *agent) over(ctx context.Context) error {
	why := ""
	if _, cause := a.waiting.last(); cause != "" {
		why = " (" + cause + ")"
	}
	return fmt.Errorf("%w while waiting for the other members%s: %s", context.Cause(ctx), why, a.committed())
}

// tooLate is how a run ends whose time ran out before a step.
func (a *agent) tooLate(ctx context.Context, step Step) error {
	if step == StepMeet && a.blocked != nil {
		return a.unheard(context.Cause(ctx)) // the time ran out between two tries
	}
	what := "release the seed"
	switch step {
	case StepFind:
		what = "ask discovery"
	case StepMeet, StepProbe:
		what = "ask the other members"
	case StepStage:
		what = "read the snapshot"
	case StepPrepare, StepCommit, StepSeedAlone:
		what = "write the seed"
	case StepConsult, StepAdmit, StepClear, StepFeed:
		what = "come into the running cluster"
	case StepWait, StepRelease, StepSetAside, StepGiveUp, StepRevoke, StepKeep, StepRefuse:
	}
	return &exit.Error{Status: exit.Disagree, Reason: "timeout", Msg: context.Cause(ctx).Error() + " before there was time to " + what + "; " + a.committed()}
}

// packageDefault is the refusal for a one-member localhost cluster, as a
// distribution's package starts it when it is installed. One that has a record was
// seeded by this program.
func (a *agent) packageDefault(size int) *exit.Error {
	s := a.state
	origin, commands := "that the etcd package started when it was installed", []string{"systemctl stop etcd"}
	if s.Record != nil {
		origin, commands = "that etcdinit seeded as a cluster of its own", nil
	}
	return &exit.Error{
		Status: exit.Foreign, Reason: "package-default",
		Msg: fmt.Sprintf("%s holds the one-member cluster %s of %s at %s %s, not a member of this %d-member cluster; if nobody uses it, stop it and move it aside, then run this again",
			s.DataDir, s.ClusterID, describe(s.Self.Name, s.MemberID), strings.Join(s.Self.PeerURLs, ","), origin, size),
		Commands: append(commands, "mv "+s.DataDir+" "+s.DataDir+".package-default"),
	}
}

// otherToken is the refusal for a pending seed that was made for another token.
func (a *agent) otherToken() *exit.Error {
	s := a.state
	stored := "another one"
	if s.Record != nil {
		stored = s.Record.Token
	}
	return &exit.Error{
		Reason: "another-token",
		Msg: fmt.Sprintf("%s holds a seed that was never released, for %s of cluster %s with the initial-cluster-token %s, and the configuration says %s; set the token back, or move the seed aside: no etcd has run on it",
			s.DataDir, describe(s.Self.Name, s.MemberID), s.ClusterID, stored, a.Etcd.Token()),
		Commands: a.aside("another-token"),
	}
}

// foreign is the refusal for another member's data.
func (a *agent) foreign(c seed.Comparison, plan *seed.Plan, record discovery.Peer) error {
	s := a.state
	if s.PackageDefault {
		return a.packageDefault(len(plan.Members))
	}
	wanted := strings.Join(c.Wanted.PeerURLs, ",")
	e := &exit.Error{
		Status: exit.Foreign, Reason: "foreign-data",
		Msg: fmt.Sprintf("volume %s belongs to %s at %s of cluster %s, this node is %s at %s: nothing was changed; ",
			a.Etcd.DataDir, describe(c.StoredSelf.Name, s.MemberID), strings.Join(c.StoredSelf.PeerURLs, ","), s.ClusterID, describe(c.Wanted.Name, plan.MemberID), wanted),
	}
	if addressOf(c.StoredSelf.PeerURLs, record) {
		e.Reason = "address-stored"
		e.Msg += "the data have this node's address where the records have its name: while etcd still runs as it did before, tell the cluster the name"
		e.Commands = []string{
			a.etcdctl([]rendezvous.PeerView{{Last: rendezvous.Sighting{URL: c.StoredSelf.PeerURLs[0]}}}) + " member update " + s.MemberID.String() + " --peer-urls=" + wanted,
		}
		return e
	}
	if c.StoredSelf.Name == c.Wanted.Name {
		e.Msg += "if this member's address has changed, tell the running cluster: etcdctl member update " + s.MemberID.String() + " --peer-urls=" + wanted +
			"; if the volume (PVC) is left from an earlier cluster, use a fresh one"
	} else {
		e.Msg += "attach the volume (PVC) of " + c.Wanted.Name + ", or give this node the address of " + c.StoredSelf.Name
	}
	return e
}

// addressOf: the stored URLs are an address of this node's record, at its port.
func addressOf(stored []string, record discovery.Peer) bool {
	for _, u := range stored {
		addr, err := netip.ParseAddr(hosturl.Host(u))
		if err != nil || !slices.Contains(record.Addrs, addr.Unmap()) || !strings.HasSuffix(u, ":"+strconv.Itoa(int(record.Port))) {
			return false
		}
	}
	return len(stored) > 0
}

// copied is the refusal for data of a member that runs elsewhere.
func (a *agent) copied() *exit.Error {
	s, last := a.state, &a.view.SelfLast
	who := "another run of etcdinit with this member's ID"
	if last.Kind == rendezvous.Etcd {
		who = "an etcd of its cluster " + string(last.ClusterID)
	}
	return &exit.Error{Reason: "disk-copied", Msg: fmt.Sprintf("%s holds %s, the records name nobody at this node's addresses, and at the member's URL %s answers %s (from %s): this is a copy of its disk, or two machines are this member; nothing was changed; stop one of them, or wipe the copy (%s)",
		s.DataDir, describe(s.Self.Name, s.MemberID), last.URL, who, last.Addr, a.other)}
}

func (a *agent) badWithoutWords() string {
	given := strings.Join(a.Without, " --without ")
	others := a.others()
	if len(others) == 0 {
		return fmt.Sprintf("--without %s: %s is the only member", given, a.plan.Self.Name)
	}
	for _, name := range a.Without {
		if !slices.Contains(others, name) {
			return fmt.Sprintf("--without %s: it is not among the other members, which are %s", name, strings.Join(others, ", "))
		}
	}
	return fmt.Sprintf("--without %s: it may name at most %d of the other members of %s, which is a minority of %d", given, (len(a.plan.Members)-1)/2, strings.Join(others, ", "), len(a.plan.Members))
}

// running is the refusal that this project exists for.
func (a *agent) running(out Outcome) *exit.Error {
	peers := out.Peers
	if len(peers) == 0 { // at the member's own URL
		peers = []rendezvous.PeerView{{Member: a.view.Plan.Me(), Now: a.view.Self, Last: a.view.SelfLast}}
	}
	last := &peers[0].Last
	mine := slices.IndexFunc(last.Members, func(l rendezvous.Listed) bool { return slices.Equal(l.PeerURLs, a.plan.Self.PeerURLs) })
	e := &exit.Error{Reason: "cluster-runs", Msg: fmt.Sprintf("refusing to seed: not seeding an empty directory (%s) while other members are running: etcd %s of cluster %s (%d members) answers at %s; ",
		a.Etcd.DataDir, last.Version, last.ClusterID, len(last.Members), at(peers))}
	switch {
	case mine >= 0:
		e.Msg += fmt.Sprintf("it lists %s, so the data of %s are gone, and an empty member under its old ID can destroy acknowledged writes: remove it and add it as a learner, which the next start takes up (or let --if-running=replace do that)", strings.Join(a.plan.Self.PeerURLs, ","), a.plan.Self.Name)
		e.Commands = a.replacement(peers)
	case len(last.Members) == 0:
		e.Msg += "it does not list its members yet: if it lists " + a.plan.Self.Name + ", remove and re-add this member"
		e.Commands = a.replacement(peers)
	default:
		e.Msg += fmt.Sprintf("it does not list %s, where this node plans a cluster of %d members: add it as a learner, which the next start takes up (or let --if-running=join do that)", strings.Join(a.plan.Self.PeerURLs, ","), len(a.plan.Members))
		e.Commands = a.addition(peers)
	}
	if a.disk == DiskPrepared {
		e.Msg += "; if no cluster was meant to run there, somebody has started etcd on a seed that was not released"
	}
	return e
}

func (a *agent) me() string { return describe(a.plan.Self.Name, a.plan.MemberID) }

// describe names a member by what a person knows it by.
func describe(name string, id fmt.Stringer) string { return name + " (ID " + id.String() + ")" }

// others are the names of the plan's members but this one.
func (a *agent) others() []string {
	var list []string
	for _, p := range a.plan.Members {
		if p.ID != a.plan.MemberID {
			list = append(list, p.Name)
		}
	}
	slices.Sort(list)
	return list
}

// nameOf is the name of a member of the plan.
func (a *agent) nameOf(id string) string {
	for _, m := range a.plan.Members {
		if m.ID.String() == id {
			return m.Name
		}
	}
	return id
}

func names(peers []rendezvous.PeerView) string {
	var list []string
	for i := range peers {
		list = append(list, peers[i].Member.Name)
	}
	return strings.Join(list, ", ")
}

// at names where something answered.
func at(peers []rendezvous.PeerView) string {
	var urls []string
	for i := range peers {
		urls = append(urls, peers[i].Last.URL)
	}
	return strings.Join(urls, ", ")
}

func diskWords(disk seed.DiskID) string {
	if disk == "" {
		return "no disk"
	}
	return "the disk " + string(disk)
}
