package agent

import (
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
	List(ctx context.Context) (admit.List, error)
	AddLearner(ctx context.Context, peerURLs []string) (admit.Member, admit.List, error)
	Remove(ctx context.Context, id types.ID) error
	StatusOf(ctx context.Context, m admit.Member) (admit.Status, error)
	Endpoints() []string
	Close() error
}

const (
	// callTime is how long the members of a cluster have to call a new one at its
	// URL. They do so 20 to 60 ms after the add.
	callTime = 10 * time.Second
	// maxLag is how many entries a healthy voter may be behind the leader.
	maxLag = 500
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

	lost      types.ID      // whose disk is lost here
	lostSince time.Duration // since boot: when all conditions were first seen
	listening time.Duration // since boot: when the proof began
	proved    int
	callers   []rendezvous.Caller
	stuck     types.ID      // a learner in the way that answers nowhere
	stuckFor  time.Duration // since boot: when that was first seen

	link Cluster
	at   []string // endpoints of link
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
	c.says, c.why = Running{Asked: true, Several: a.several()}, ""
	if a.Admit == nil {
		return settings("if-running", "this command does not change a running cluster", nil)
	}
	if err := a.reach(); err != nil {
		return a.hindered(err)
	}
	list, err := c.link.List(ctx)
	if err != nil {
		return a.hindered(err)
	}
	c.list = list
	if a.joins() && list.ClusterID != a.state.ClusterID {
		c.says.Several = true
		c.why = fmt.Sprintf("cluster %s answers at %s, and %s was added to %s", list.ClusterID, strings.Join(c.link.Endpoints(), ","), a.plan.Self.Name, a.state.ClusterID)
		return nil
	}
	c.mine, c.says.Mine = a.entryIn(list)
	c.says.OnDisk = a.disk == DiskJoining && c.mine.ID == a.state.MemberID
	c.says.Strangers = len(a.strangers(list)) > 0
	c.says.Few = len(list.Voters()) < fewVoters
	switch {
	case a.disk == DiskJoining:
		a.proveURL()
	case c.says.Mine == OldVoter && a.IfRunning == Replace:
		a.steady(ctx)
	case c.says.Mine == OldLearner:
		_, err := c.link.StatusOf(ctx, c.mine)
		c.says.Answers = err == nil
	}
	if a.disk != DiskJoining {
		a.tooOld(ctx)
		if err := c.refused; err != nil { // what the last attempt met holds until it passes
			c.refused = nil
			return a.hindered(err)
		}
	}
	return nil
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
// That it may must hold in each look, from the first on.
func (a *agent) steady(ctx context.Context) {
	c := &a.cluster
	if c.lost != c.mine.ID {
		c.lost, c.lostSince = c.mine.ID, 0
	}
	c.why = a.unsteady(ctx)
	if c.says.Steady = c.why == ""; !c.says.Steady {
		c.lostSince = 0
		return
	}
	now := bootTime()
	if c.lostSince == 0 {
		c.lostSince = now
	}
	c.says.Ripe = now-c.lostSince >= a.ReplaceAfter
	c.why = fmt.Sprintf("seen for %s of --replace-after %s", (now - c.lostSince).Round(time.Second), a.ReplaceAfter)
}

// unsteady says why no member may be removed now; "" where one may.
func (a *agent) unsteady(ctx context.Context) string {
	c := &a.cluster
	var all []admit.Status
	for _, m := range c.list.Members {
		if m.ID == c.mine.ID {
			continue
		}
		if m.IsLearner {
			return "it has a learner, " + describe(orUnnamed(m.Name), m.ID)
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
	c.says.Proved = c.proved >= len(voters)/2+1
	c.says.Late = bootTime()-c.listening >= callTime
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
