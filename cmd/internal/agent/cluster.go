package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/internal/hosturl"
	"github.com/etcdinit/etcdinit/seed"
)

// Cluster is a running cluster, as far as an agent asks it and changes it. An error
// is an *admit.Error.
type Cluster interface {
	clusterList
	clusterChange
	StatusOf(ctx context.Context, m admit.Member) (admit.Status, error)
}

type clusterList interface {
	List(ctx context.Context) (admit.List, error)
	Agreed(ctx context.Context, m admit.Member) int
	Close() error
}

type clusterChange interface {
	AddLearner(ctx context.Context, peerURLs []string) (admit.Member, admit.List, error)
	Remove(ctx context.Context, id types.ID) error
}

const (
	// callTime is how long the members of a cluster have to call a new one at its
	// URL. They do so 20 to 60 ms after the add.
	callTime = 10 * time.Second
	// maxLag is how many entries a healthy voter may be behind the leader.
	maxLag = 500
	// lateCall is how old a call for a lost member may be: its peers try again several
	// times a second.
	lateCall = 5 * time.Second
	// goneTime is how long a list must lack a learner that this disk is of.
	goneTime = time.Second
	// fewVoters is below which a member is not replaced: with two, a removal leaves
	// one copy of the data.
	fewVoters = 3
)

// clusterView is what a running cluster has said, and how long that has been so.
type clusterView struct {
	says    Running
	list    admit.List
	mine    admit.Member // the entry with this node's URLs
	why     string       // Hindered, Denied, not Steady: in words
	refused error        // what an attempt to come in met, until the next one

	asked    time.Duration // since boot: when it said so
	welcome  bool          // this run has taken up a learner that somebody had added for it
	replaced types.ID      // the voter that this run has removed

	dead      admit.Member  // a learner that answers nowhere
	deadSince time.Duration // since boot: when that was first seen; 0: there is none

	lost      types.ID      // whose disk is lost here
	lostSince time.Duration // since boot: when all conditions were first seen
	listening time.Duration // since boot: when the proof began
	proved    int
	callers   []rendezvous.Caller
	gone      time.Duration // since boot: when the list first lacked this disk's learner

	link Cluster
	at   []string // endpoints of link
}

// forget drops what was said: it was about another directory or another plan.
func (c *clusterView) forget() {
	c.says, c.why, c.lost, c.lostSince, c.listening, c.gone, c.proved, c.callers = Running{}, "", 0, 0, 0, 0, 0, nil
}

// close ends the connection.
func (c *clusterView) close(log *zap.Logger) {
	if c.link == nil {
		return
	}
	if err := c.link.Close(); err != nil {
		log.Debug("connection to the running cluster", zap.Error(err))
	}
	c.link, c.at = nil, nil
}

// joins: the directory is one of a member that a running cluster took in.
func (a *agent) joins() bool {
	return a.state != nil && a.state.Record != nil && a.state.Record.Kind == seed.RecordJoin
}

// consult asks the running cluster who its members are and, where that matters,
// how they are. What cannot be known now is Hindered; only the certificates' own
// errors end the run.
func (a *agent) consult(ctx context.Context) error {
	defer a.span("consult")()
	c := &a.cluster
	last, since := *c, c.lostSince
	c.says, c.why, c.lostSince, c.asked = Running{Asked: true, Several: a.several()}, "", 0, bootTime()
	if a.Admit == nil {
		return settings("if-running", "this command does not change a running cluster", nil)
	}
	err := a.reach()
	if err == nil {
		c.list, err = c.link.List(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil && !expired(ctx):
		return a.over(ctx)
	case err != nil && expired(ctx) && last.why != "": // what was known before holds
		c.says, c.why, c.says.Asked = last.says, last.why, true
		return nil
	case err != nil:
		return a.hindered(err)
	}
	if other := a.otherCluster(); other != "" {
		c.says.Several, c.why = true, other
		return nil
	}
	c.mine, c.says.Mine = a.entryIn(c.list)
	c.says.Strangers = len(a.strangers(c.list)) > 0
	c.says.Few = len(c.list.Voters()) < fewVoters
	if a.disk == DiskJoining {
		a.stillListed()
		a.proveURL()
		return nil
	}
	switch c.says.Mine {
	case OldVoter:
		if a.IfRunning == Replace {
			a.steady(ctx, since)
		}
	case OldLearner:
		_, err := c.link.StatusOf(ctx, c.mine)
		c.says.Answers = err == nil
	case NewLearner: // it is removed only where another one can be added at once
		if why := a.unwell(ctx, true); why != "" {
			c.says.Hindered, c.why = true, why
		}
	case Absent, NewVoter:
	}
	a.tooOld(ctx)
	a.inTheWay(ctx)
	if err := c.refused; err != nil { // what the last attempt met holds until it passes
		c.refused = nil
		return a.hindered(err)
	}
	return nil
}

// otherCluster says that another cluster answers on the client ports than on the
// peer ports, or than the one that this disk was added to; "" where it does not.
func (a *agent) otherCluster() string {
	got, at := a.cluster.list.ClusterID, strings.Join(a.cluster.at, ",")
	if a.joins() && a.disk == DiskJoining && got != a.state.ClusterID {
		return fmt.Sprintf("cluster %s answers at %s, and %s was added to %s", got, at, a.plan.Self.Name, a.state.ClusterID)
	}
	for i := range a.view.Peers {
		p := &a.view.Peers[i]
		if p.Last.Kind == rendezvous.Etcd && !p.Counted && string(p.Last.ClusterID) != got.String() {
			return fmt.Sprintf("cluster %s answers at %s, and %s at %s", got, at, p.Last.ClusterID, p.Last.URL)
		}
	}
	return ""
}

// stillListed: the cluster lists the learner that this disk is of. That it does not is
// believed only where it was so for a while: a list can be old.
func (a *agent) stillListed() {
	c := &a.cluster
	c.says.OnDisk = c.mine.ID == a.state.MemberID
	now := bootTime()
	switch {
	case c.says.OnDisk:
		c.gone = 0
	case c.gone == 0:
		c.gone = now
		fallthrough
	case now-c.gone < goneTime:
		c.says.Hindered, c.why = true, fmt.Sprintf("it does not list member %s", a.state.MemberID)
	}
}

// several reports whether etcds of more than one cluster answer for the plan.
func (a *agent) several() bool {
	var first rendezvous.ID
	for i := range a.view.Peers {
		last := &a.view.Peers[i].Last
		if last.Kind != rendezvous.Etcd || a.view.Peers[i].Counted {
			continue
		}
		if first == "" {
			first = last.ClusterID
		}
		if last.ClusterID != first {
			return true
		}
	}
	return false
}

// reach opens the connection to the members' client ports, or again where others
// are known now.
func (a *agent) reach() error {
	endpoints := a.endpoints()
	if a.cluster.link != nil && slices.Equal(endpoints, a.cluster.at) {
		return nil
	}
	a.cluster.close(a.Log)
	link, err := a.Admit(endpoints, a.lookout.book.dial)
	if err != nil {
		return err
	}
	a.cluster.link, a.cluster.at = link, endpoints
	return nil
}

// endpoints lists the client URLs of the voters that run, but for this node's own: a
// learner does not answer for the cluster.
func (a *agent) endpoints() []string {
	var urls []string
	for i := range a.view.Peers {
		for _, l := range a.view.Peers[i].Last.Members {
			if !l.Learner && !sameURLs(l.PeerURLs, a.plan.Self.PeerURLs) {
				urls = append(urls, l.ClientURLs...)
			}
		}
	}
	for _, m := range a.cluster.list.Members {
		if !m.IsLearner && !sameURLs(m.PeerURLs, a.plan.Self.PeerURLs) {
			urls = append(urls, m.ClientURLs...)
		}
	}
	if a.joins() {
		for _, m := range a.state.Members {
			if !m.IsLearner && m.ID != a.state.MemberID {
				urls = append(urls, m.ClientURLs...)
			}
		}
	}
	if len(urls) == 0 { // none has published: the port that this node's own configuration gives
		for i := range a.view.Peers {
			if a.view.Peers[i].Now.Etcd() {
				urls = append(urls, a.clientURLs(hostOf(&a.view.Peers[i]))...)
			}
		}
	}
	urls = slices.DeleteFunc(urls, func(u string) bool { return strings.HasPrefix(u, "unix") })
	slices.Sort(urls)
	return slices.Compact(urls)
}

// hindered keeps why the cluster cannot be asked, or does not take this node in.
func (a *agent) hindered(err error) error {
	a.cluster.why = err.Error()
	e, known := errors.AsType[*admit.Error](err)
	switch {
	case known && e.Reason == admit.Denied:
		a.cluster.says.Denied = true
	case known && e.Passes():
		a.cluster.says.Hindered = true
	case known:
		return &exit.Error{Status: exit.Unsafe, Reason: "cluster-refused", Msg: "the running cluster does not take this node in", Err: err}
	default:
		return err
	}
	if known && (e.Reason == admit.Unreachable || e.Reason == admit.NoQuorum) {
		a.cluster.close(a.Log) // the next one may find other ports
	}
	return nil
}

// entryIn tells what the list has at this node's URLs; for a seed that joins, at
// the ID that is on the disk.
func (a *agent) entryIn(list admit.List) (admit.Member, Entry) {
	m, listed := list.Of(a.plan.Self.PeerURLs)
	if a.disk == DiskJoining {
		m, listed = list.ByID(a.state.MemberID)
	}
	switch {
	case !listed:
		return m, Absent
	case m.IsLearner && m.Started():
		return m, OldLearner
	case m.IsLearner:
		return m, NewLearner
	case m.Started():
		return m, OldVoter
	}
	return m, NewVoter
}

// strangers are the members of the list whose URLs the plan does not have.
func (a *agent) strangers(list admit.List) (names []string) {
	if a.disk == DiskJoining { // its plan is the list
		return nil
	}
	for _, m := range list.Members {
		if !slices.ContainsFunc(a.plan.Members, func(p seed.Member) bool { return sameURLs(p.PeerURLs, m.PeerURLs) }) {
			names = append(names, describe(orUnnamed(m.Name), m.ID)+" at "+strings.Join(m.PeerURLs, ","))
		}
	}
	return names
}

func orUnnamed(name string) string {
	if name == "" {
		return "a member without a name"
	}
	return name
}

// steady looks at every other voter: may the one whose disk is lost be removed?
// That it may must hold in each look, from the first on; since is when that was.
func (a *agent) steady(ctx context.Context, since time.Duration) {
	c := &a.cluster
	if c.lost != c.mine.ID {
		c.lost, since = c.mine.ID, 0
	}
	c.why = a.unwell(ctx, false)
	if c.why == "" {
		c.why = a.notDead(ctx)
	}
	if c.says.Steady = c.why == ""; !c.says.Steady {
		return
	}
	now := bootTime()
	c.lostSince = cmp.Or(since, now)
	c.says.Ripe = now-c.lostSince >= a.ReplaceAfter
	c.why = fmt.Sprintf("all others are well since %s, which must hold for --replace-after %s", time.Now().Add(c.lostSince-now).UTC().Format(time.TimeOnly), a.ReplaceAfter)
}

// notDead says why the member with this node's URLs may still run somewhere: every
// other voter must reach this very process when it calls that member.
func (a *agent) notDead(ctx context.Context) string {
	c := &a.cluster
	if _, err := c.link.StatusOf(ctx, c.mine); err == nil {
		return "member " + describe(orUnnamed(c.mine.Name), c.mine.ID) + " answers at " + strings.Join(c.mine.ClientURLs, ",") + ": it runs elsewhere"
	}
	calls := a.barrier.Callers(rendezvous.ID(c.mine.ID.String()), rendezvous.ID(c.list.ClusterID.String()))
	now := bootTime()
	for _, v := range c.list.Voters() {
		if v.ID == c.mine.ID {
			continue
		}
		if !slices.ContainsFunc(calls, func(call rendezvous.Caller) bool { return string(call.From) == v.ID.String() && now-call.At < lateCall }) {
			return describe(orUnnamed(v.Name), v.ID) + " does not call this node when it calls the member whose disk is lost: it sees another host behind that name"
		}
	}
	return ""
}

// inTheWay looks for a learner that keeps this node out, and whether it is dead: it
// answers at none of its client URLs, and nothing, no agent either, at its peer URL.
// It must be of the records: another one is a person's to remove.
func (a *agent) inTheWay(ctx context.Context) {
	c := &a.cluster
	blocked := admit.ReasonOf(c.refused) == admit.LearnerLimit && c.refused != nil || c.says.Mine == OldVoter && a.IfRunning == Replace
	var dead *admit.Member
	for i := range c.list.Members {
		if m := &c.list.Members[i]; m.IsLearner && m.ID != c.mine.ID && a.silent(ctx, m) {
			dead = m
		}
	}
	now := bootTime()
	switch {
	case dead == nil:
		c.dead, c.deadSince = admit.Member{}, 0
	case dead.ID != c.dead.ID || c.deadSince == 0:
		c.dead, c.deadSince = *dead, now
	}
	c.says.Dead = blocked && dead != nil && now-c.deadSince >= a.ReplaceAfter
}

// silent: a member of the records answers nowhere.
func (a *agent) silent(ctx context.Context, m *admit.Member) bool {
	for i := range a.view.Peers {
		if p := &a.view.Peers[i]; sameURLs(p.Member.PeerURLs, m.PeerURLs) {
			if p.Now != rendezvous.Silent || p.Called || p.Heard {
				return false
			}
			_, err := a.cluster.link.StatusOf(ctx, *m)
			return err != nil
		}
	}
	return false
}

// unwell says why the cluster's members must not be changed now; "" where they may.
// With learner, the entry with this node's URLs is one.
func (a *agent) unwell(ctx context.Context, learner bool) string {
	c := &a.cluster
	var all []admit.Status
	for _, m := range c.list.Members {
		if m.ID == c.mine.ID {
			continue
		}
		if m.IsLearner && !learner {
			return "it has a learner, " + describe(orUnnamed(m.Name), m.ID)
		}
		if m.IsLearner {
			continue
		}
		s, err := c.link.StatusOf(ctx, m)
		if err != nil {
			return err.Error()
		}
		if len(s.Errors) > 0 {
			return m.Name + " says: " + strings.Join(s.Errors, ", ")
		}
		all = append(all, s)
	}
	var leader *admit.Status
	for i := range all {
		if all[i].Leader == all[i].MemberID {
			leader = &all[i]
		}
	}
	if leader == nil {
		return "none of the others is the leader"
	}
	for i := range all {
		switch s := &all[i]; {
		case s.Leader != leader.MemberID || s.Term != leader.Term:
			return fmt.Sprintf("member %s does not follow the leader, %s", s.MemberID, leader.MemberID)
		case s.Applied+maxLag < leader.Committed:
			return fmt.Sprintf("member %s has applied entry %d of %d", s.MemberID, s.Applied, leader.Committed)
		}
	}
	return ""
}

// proveURL counts the members that have called this process for the new ID.
func (a *agent) proveURL() {
	c := &a.cluster
	if c.listening == 0 {
		c.listening = bootTime()
	}
	c.callers = a.barrier.Callers(rendezvous.ID(a.state.MemberID.String()), rendezvous.ID(a.state.ClusterID.String()))
	c.proved = 0
	voters := c.list.Voters()
	for _, v := range voters {
		for _, call := range c.callers {
			if call.From != rendezvous.ID(v.ID.String()) {
				continue
			}
			c.proved++
			c.says.Localhost = c.says.Localhost || len(call.PeerURLs) > 0 && !slices.ContainsFunc(call.PeerURLs, func(u string) bool { return !loopback(u) })
		}
	}
	c.says.Localhost = c.says.Localhost && !loopback(a.plan.Self.PeerURLs[0]) // else a cluster on one host
	c.says.Proved = c.proved > len(voters)/2
	c.says.Late = bootTime()-c.listening >= callTime
	c.says.Feed = !a.fed && !a.state.Fed
}

// tooOld compares the etcd that is going to run here with what the cluster stores.
func (a *agent) tooOld(ctx context.Context) {
	c := &a.cluster
	if a.EtcdVersion == "" {
		return
	}
	for _, m := range c.list.Voters() {
		s, err := c.link.StatusOf(ctx, m)
		if err != nil {
			continue
		}
		stored := s.StorageVersion
		if stored == "" { // before 3.6 the server's own minor is what it stores
			stored = s.Version
		}
		if c.says.Old = older(a.EtcdVersion, stored); c.says.Old {
			c.why = fmt.Sprintf("etcd %s is going to run here, the cluster stores the format of %s (%s)", a.EtcdVersion, stored, m.Name)
		}
		return
	}
}

// older compares the minors of two versions; what cannot be read is not older.
func older(here, there string) bool {
	var hMajor, hMinor, tMajor, tMinor int
	if n, err := fmt.Sscanf(here, "%d.%d", &hMajor, &hMinor); err != nil || n != 2 {
		return false
	}
	if n, err := fmt.Sscanf(there, "%d.%d", &tMajor, &tMinor); err != nil || n != 2 {
		return false
	}
	return hMajor < tMajor || hMajor == tMajor && hMinor < tMinor
}

// loopback reports whether a URL leads nowhere but to its own host.
func loopback(raw string) bool {
	host := hosturl.Host(raw)
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
