package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/seed"
)

// admit has this node added as a learner, in place of the entry that has its URLs
// if there is one, and writes its seed at once: the seed is what makes the new ID
// this disk's and nobody else's. It is pending until the cluster has proved that it
// reaches this node.
func (a *agent) admit(ctx context.Context, out Outcome) error {
	if !a.ready() {
		return nil
	}
	c := &a.cluster
	if bootTime()-c.asked > oldRound { // the process may have slept since
		c.says.Asked = false
		return nil
	}
	if c.says.Mine != Absent {
		if removed, err := a.remove(ctx, out); err != nil || !removed {
			return err
		}
	}
	m, list, err := a.add(ctx)
	if err != nil {
		return a.notNow(ctx, err)
	}
	if list.ClusterID != c.list.ClusterID {
		if err = c.link.Remove(ctx, m.ID); err != nil {
			a.Log.Warn("a learner was added to another cluster, and is still there", zap.String("member_id", m.ID.String()), zap.String("cluster_id", list.ClusterID.String()), zap.Error(err))
		}
		c.says.Asked = false
		return nil
	}
	a.Log.Info("added to the running cluster as a learner", zap.String("member_id", m.ID.String()), zap.String("cluster_id", list.ClusterID.String()))
	c.list, c.listening = list, 0
	joined := seed.Joined{ClusterID: list.ClusterID, Self: seed.Member{
		ID: m.ID, Name: a.plan.Self.Name, PeerURLs: m.PeerURLs, ClientURLs: a.plan.Self.ClientURLs, IsLearner: true,
	}}
	for _, l := range list.Members {
		joined.Members = append(joined.Members, seed.Member{ID: l.ID, Name: l.Name, PeerURLs: l.PeerURLs, ClientURLs: l.ClientURLs, IsLearner: l.IsLearner})
	}
	plan, err := seed.NewJoiner(a.spec(*a.found), joined)
	if err != nil {
		return err
	}
	if err := a.hushed(func() error { return a.write(ctx, plan) }); err != nil {
		return err
	}
	if err := a.restart(); err != nil { // from now on this node is that member, and says nothing to agents
		return err
	}
	if a.disk != DiskJoining || a.state.MemberID != m.ID {
		return nil // another run was faster; the loop decides anew, and removes what nobody uses
	}
	a.plan, a.stored, a.records, a.pause = a.planOf(a.state), true, RecordsMine, 0
	return nil
}

// remove removes the entry with this node's URLs, if a quorum of the voters lists it
// just as it was when that was decided.
func (a *agent) remove(ctx context.Context, out Outcome) (bool, error) {
	c := &a.cluster
	others := c.list.Voters()
	need := len(others)/2 + 1
	if c.says.Mine == OldVoter {
		need = len(others) - 1 // the lost one does not answer
	}
	if err := a.reach(); err != nil { // all that the list names
		return false, a.notNow(ctx, err)
	}
	if c.link.Agreed(ctx, c.mine) < need {
		c.says.Asked = false
		return false, nil
	}
	if err := c.link.Remove(ctx, c.mine.ID); err != nil {
		return false, a.notNow(ctx, err)
	}
	a.Log.Warn("removed a member from the running cluster", zap.String("rule", string(out.Rule)), zap.String("member_id", c.mine.ID.String()),
		zap.String("name", c.mine.Name), zap.String("was", c.says.Mine.String()), zap.Strings("peer_urls", c.mine.PeerURLs))
	switch c.says.Mine {
	case OldVoter:
		c.replaced = c.mine.ID
	case NewLearner:
		c.welcome = true
	case Absent, OldLearner, NewVoter:
	}
	c.says.Mine, c.lost, c.lostSince = Absent, 0, 0
	return true, nil
}

// clear removes a dead learner that keeps this node out, if a quorum of the voters lists
// it as this node has seen it.
func (a *agent) clear(ctx context.Context) error {
	c := &a.cluster
	if !a.ready() || bootTime()-c.asked > oldRound { // the process may have slept since
		c.says.Asked = false
		return nil
	}
	if err := a.reach(); err != nil {
		return a.notNow(ctx, err)
	}
	dead := c.dead
	c.says.Asked, c.deadSince = false, 0
	if c.link.Agreed(ctx, dead) <= len(c.list.Voters())/2 {
		return nil
	}
	if err := c.link.Remove(ctx, dead.ID); err != nil {
		return a.notNow(ctx, err)
	}
	c.refused = nil
	a.Log.Warn("removed a learner that kept this node out of the running cluster: it has answered nowhere, and a learner does not count", zap.String("member_id", dead.ID.String()),
		zap.String("name", dead.Name), zap.Strings("peer_urls", dead.PeerURLs), zap.Duration("replace_after", a.ReplaceAfter))
	return nil
}

// add is tried for a moment where a member was just removed: etcd takes no new one
// until the change is applied everywhere.
func (a *agent) add(ctx context.Context) (admit.Member, admit.List, error) {
	for tries := 0; ; tries++ {
		m, list, err := a.cluster.link.AddLearner(ctx, a.plan.Self.PeerURLs)
		if err == nil || admit.ReasonOf(err) != admit.URLTaken || tries == 3 {
			return m, list, err
		}
		select {
		case <-time.After(minRecheck):
		case <-ctx.Done():
			return m, list, err
		}
	}
}

// notNow keeps what the cluster said to a change, for the next look: it waits, or
// refuses.
func (a *agent) notNow(ctx context.Context, err error) error {
	if ctx.Err() != nil && !expired(ctx) {
		return a.over(ctx)
	}
	a.cluster.refused = err
	a.cluster.says.Asked = false
	if e, known := errors.AsType[*admit.Error](err); !known || !e.Passes() && e.Reason != admit.Denied {
		return a.hindered(err)
	}
	return nil
}

// setAside moves the seed of a learner aside that its cluster does not list: somebody
// has removed it before it ever ran.
func (a *agent) setAside() error {
	if !a.ready() {
		return nil
	}
	id := a.state.MemberID
	if !a.state.Pending { // released, and never started
		if err := seed.Unrelease(a.state); err != nil && !meanwhile(err) {
			return err
		}
	}
	aside, err := seed.Withdraw(a.Etcd.DataDir, a.Etcd.WALDir, a.Log)
	if err != nil && !meanwhile(err) {
		return err
	}
	a.Log.Warn("the running cluster does not list this member any more, and it never ran: its seed is moved aside", zap.String("member_id", id.String()), zap.Strings("to", aside))
	a.cluster.listening = 0
	if err := a.changed(); err != nil {
		return err
	}
	return a.restart()
}

// giveUp takes everything back: the learner never voted, and its seed never ran.
func (a *agent) giveUp(ctx context.Context, out Outcome) (done bool, err error) {
	if !a.ready() {
		return false, nil
	}
	e := a.refuse(out)
	e.Status = out.Status
	if err := a.cluster.link.Remove(ctx, a.state.MemberID); err != nil {
		e.Msg += "; the learner is still listed, and its seed stays: the next run goes on from there"
		return true, errors.Join(e, err)
	}
	a.Log.Warn("removed the learner from the running cluster", zap.String("member_id", a.state.MemberID.String()))
	e.Msg += "; the learner was removed again"
	if old := a.cluster.replaced; old != 0 {
		e.Msg += ", and the old member " + old.String() + ", whose disk was lost, had been removed before: the cluster has one voter less"
	}
	if !a.state.Pending {
		if err := seed.Unrelease(a.state); err != nil {
			return true, errors.Join(e, err)
		}
	}
	if _, err := seed.Withdraw(a.Etcd.DataDir, a.Etcd.WALDir, a.Log); err != nil {
		return true, errors.Join(e, err)
	}
	return true, e
}

// joinRefusal is refuse for what is about a running cluster.
func (a *agent) joinRefusal(out Outcome) *exit.Error {
	c, dir := &a.cluster, a.Etcd.DataDir
	if out.Rule == RuleUnmarked { // nothing is known of any member yet
		return &exit.Error{Reason: "no-mark", Msg: fmt.Sprintf("refusing to seed %s: it is empty, and has no file %s (--require-mark): is the volume mounted?", dir, a.RequireMark)}
	}
	me, urls := a.plan.Self.Name, strings.Join(a.plan.Self.PeerURLs, ",")
	runs := fmt.Sprintf("cluster %s runs (%d members, asked at %s)", c.list.ClusterID, len(c.list.Members), strings.Join(c.at, ","))
	fail := func(reason, format string, args ...any) *exit.Error {
		return &exit.Error{Reason: reason, Msg: fmt.Sprintf(format, args...)}
	}
	switch out.Rule { //nolint:exhaustive // the rows about a running cluster only
	case RuleTwin:
		return fail("two-agents", "not adding %s to the running cluster: %s; %s", me, a.ownWords(), a.committed())
	case RuleDenied, RuleJoinDenied:
		e := fail("access", "the running cluster at %s does not let this node in: %s; set ETCDINIT_CACERT, ETCDINIT_CERT and ETCDINIT_KEY, or ETCDINIT_USER=name:password (a root user where auth is on)", strings.Join(a.endpoints(), ","), c.why)
		return e
	case RuleHindered, RuleJoinHindered:
		return fail("cluster-not-ready", "the running cluster does not take %s in now: %s; %s", me, c.why, a.committed())
	case RuleSeveral:
		return fail("several-clusters", "not adding %s: etcds of several clusters answer for the members of the records: %s", me, a.why(out))
	case RuleNewVoter:
		e := fail("voter-added", "refusing to seed %s: %s, and it lists %s as a voter that has not started (ID %s): etcdinit adds learners only, since a voter counts before it has any data; remove it, and add it as a learner", dir, runs, urls, c.mine.ID)
		e.Commands = a.readdition(out)
		return e
	case RuleLost, RuleLearnerRefuse:
		e := fail("cluster-runs", "refusing to seed %s: it is empty, and %s and lists %s as %s at %s: the data of %s are gone, and an empty member under its old ID can destroy acknowledged writes; remove it and add it as a learner (or let --if-running=replace do that)",
			dir, runs, describe(orUnnamed(c.mine.Name), c.mine.ID), c.says.Mine, urls, me)
		e.Commands = a.readdition(out)
		return e
	case RuleStrangers:
		e := fail("members-without-records", "not adding %s: %s and has members that the records do not have: %s (the records: %s); publish their records, or remove the dead ones",
			me, runs, strings.Join(a.strangers(c.list), "; "), strings.Join(a.planURLs(), ", "))
		for _, m := range c.list.Members {
			if !slices.ContainsFunc(a.plan.Members, func(p seed.Member) bool { return sameURLs(p.PeerURLs, m.PeerURLs) }) {
				e.Commands = append(e.Commands, a.etcdctl(out.Peers)+" member remove "+m.ID.String())
			}
		}
		return e
	case RuleOld:
		return fail("etcd-too-old", "not adding %s: %s; install etcd of that minor or newer", me, c.why)
	case RuleFew:
		e := fail("too-few-members", "not replacing %s: %s with %d voters: a member is only removed by itself where three or more vote", me, runs, len(c.list.Voters()))
		e.Commands = a.readdition(out)
		return e
	case RuleUnsteady:
		return fail("not-steady", "not replacing %s (ID %s), whose disk is lost: %s; %s", me, c.mine.ID, c.why, a.committed())
	case RuleUnripe:
		return fail("not-ripe", "not replacing %s (ID %s), whose disk is lost, yet: %s; %s", me, c.mine.ID, c.why, a.committed())
	case RuleLearnerRuns:
		return fail("runs-elsewhere", "refusing to seed %s: %s, and %s, a learner at %s, answers: it runs elsewhere, with another disk", dir, runs, describe(orUnnamed(c.mine.Name), c.mine.ID), urls)
	case RuleUnlisted:
		e := fail("cluster-runs", "refusing to seed %s: it is empty, and %s and does not list %s; add it as a learner (or let --if-running=join do that)", dir, runs, urls)
		e.Commands = a.addition(out.Peers)
		return e
	case RuleToJoin:
		return fail("nobody-runs", "initial-cluster-state is \"existing\", so %s joins a running cluster, and none answers: %s; %s", me, a.why(out), a.committed())
	case RuleJoinStarted:
		e := fail("disk-copied", "refusing to release %s: %s and lists %s as %s, and it was not on this disk, which was seeded and never started: a copy of it runs elsewhere", dir, runs, describe(me, a.state.MemberID), c.says.Mine)
		return e
	case RuleLocalhost:
		return fail("members-on-localhost", "%s was added to cluster %s as a learner (ID %s), and members give localhost as their own peer URL (%s), so a new one would never find them; set initial-advertise-peer-urls on each of them, and restart them one by one",
			me, a.state.ClusterID, a.state.MemberID, a.callerWords())
	case RuleUnreached:
		return fail("not-reached", "%s was added to cluster %s as a learner (ID %s) at %s, but only %d of its %d voters call this node there within %s (%s): they see another host behind that name, or cannot reach this one",
			me, a.state.ClusterID, a.state.MemberID, urls, c.proved, len(c.list.Voters()), callTime, a.callerWords())
	case RuleJoinWait:
		return fail("not-reached-yet", "%s was added to cluster %s as a learner (ID %s) at %s, and %d of its %d voters have called this node there (%s); %s",
			me, a.state.ClusterID, a.state.MemberID, urls, c.proved, len(c.list.Voters()), a.callerWords(), a.committed())
	}
	return fail("bug", "no words for the decision %q", out.Rule)
}

// planURLs lists the members of the plan with their URLs.
func (a *agent) planURLs() []string {
	var list []string
	for _, m := range a.plan.Members {
		list = append(list, m.Name+"="+strings.Join(m.PeerURLs, ","))
	}
	return list
}

// callerWords says who has called this node, and who has not.
func (a *agent) callerWords() string {
	var parts []string
	for _, v := range a.cluster.list.Voters() {
		word := "has not called"
		for _, c := range a.cluster.callers {
			if string(c.From) == v.ID.String() {
				word = "has called, as " + strings.Join(c.PeerURLs, ",")
			}
		}
		parts = append(parts, orUnnamed(v.Name)+" "+word)
	}
	return strings.Join(parts, "; ")
}

// readdition is member remove, member add as a learner: the next start does the
// rest.
func (a *agent) readdition(out Outcome) []string {
	ctl := a.etcdctl(out.Peers)
	return append([]string{"until " + ctl + " member remove " + a.cluster.mine.ID.String() + "; do sleep 2; done"}, a.addition(out.Peers)...)
}

// joinWhy says what keeps a node waiting that is to come into a running cluster; ""
// where the decision was about another wait.
func (a *agent) joinWhy(out Outcome) string {
	switch out.Rule { //nolint:exhaustive // the rows that wait for a running cluster only
	case RuleUnmarked:
		return a.Etcd.DataDir + " is empty, and has no file " + a.RequireMark + " (--require-mark): is the volume mounted?"
	case RuleHindered, RuleJoinHindered, RuleUnsteady, RuleUnripe, RuleSeveral:
		return a.cluster.why
	case RuleJoinWait:
		return a.callerWords()
	}
	return ""
}

// joinAwaited is the short form, for the progress line.
func (a *agent) joinAwaited(out Outcome) string {
	switch out.Rule { //nolint:exhaustive // the rows that wait for a running cluster only
	case RuleUnmarked:
		return "the volume"
	case RuleTwin:
		return "another run of this member to end"
	case RuleHindered, RuleJoinHindered, RuleSeveral:
		return "the running cluster"
	case RuleUnsteady, RuleUnripe:
		return "the replacement of a lost disk to be safe"
	case RuleJoinWait:
		return fmt.Sprintf("the members to call this node (%d of %d)", a.cluster.proved, len(a.cluster.list.Voters()))
	case RuleToJoin:
		return "a running cluster"
	}
	return ""
}

// unmarked reports whether the root of the data directory lacks the file that
// --require-mark names.
func (a *agent) unmarked() bool {
	if a.RequireMark == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(a.Etcd.DataDir, a.RequireMark))
	return err != nil
}
