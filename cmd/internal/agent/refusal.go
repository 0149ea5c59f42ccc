package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcdinit/etcdinit/discovery/rendezvous"
	"github.com/etcdinit/etcdinit/seed"
)

// refusal says a decision that ends the run in words, with the commands that
// help; nil where the decision does not end it.
func (m *meeting) refusal(out Outcome) error {
	if out.Step != StepRefuse {
		return nil
	}
	dir := m.plan.DataDir
	switch out.Rule {
	case RuleWithout:
		if len(m.others()) == 0 {
			return &Error{Kind: Settings, Msg: fmt.Sprintf("--without %s: %s is the only member", strings.Join(m.Without, " --without "), m.plan.Self.Name)}
		}
		for _, name := range m.Without {
			if !slices.Contains(m.others(), name) {
				return &Error{Kind: Settings, Msg: fmt.Sprintf("--without %s: it is not among the other members, which are %s", name, strings.Join(m.others(), ", "))}
			}
		}
		return &Error{Kind: Settings, Msg: fmt.Sprintf("--without %s: it may name at most %d of the other members of %s, which is a minority of %d", strings.Join(m.Without, " --without "), (len(m.plan.Members)-1)/2, strings.Join(m.others(), ", "), len(m.plan.Members))}
	case RuleExisting:
		return &Error{Kind: Unsafe, Msg: existingRefusal(dir)}
	case RuleRunning:
		return &Error{Kind: Unsafe, Msg: m.running(out)}
	case RuleForeignCluster:
		return &Error{Kind: Unsafe, Msg: m.foreignCluster(out)}
	case RuleReplaced:
		return &Error{Kind: Unsafe, Msg: fmt.Sprintf("refusing to release %s: the etcd at %s says that %s has already run and published itself, and it was not on this disk, which was seeded and never started; "+
			"if that other disk is gone: %s", dir, at(out.Peers), m.me(), m.replace(out.Peers))}
	case RuleRemoved:
		return &Error{Kind: Unsafe, Msg: fmt.Sprintf("refusing to release %s: the cluster %s runs at %s and does not list %s (any more): it was removed before it first started; move %s aside and add it: %s",
			dir, m.plan.ClusterID, at(out.Peers), m.me(), dir, m.add(out.Peers))}
	case RuleSelf, RulePendingSelf, RulePendingWait, RuleWait:
		return &Error{Kind: Disagree, Msg: fmt.Sprintf("not all %d members agree to start: %s; %s", len(m.plan.Members), m.why(out), m.aftermath())}
	case RuleDamaged, RuleForeignDisk, RuleOurs, RuleUsed, RulePendingNone, RulePendingAlone, RuleReleased, RuleAllCommitted, RuleNone, RuleAlone, RuleAllWaiting:
	}
	return fmt.Errorf("no words for the decision %q", out.Rule)
}

func existingRefusal(dir string) string {
	return "refusing to seed " + dir + ": it is empty, and initial-cluster-state is \"existing\", so this member belongs to a cluster that runs already; " +
		"a member whose data are gone must be removed (etcdctl member remove) and added again (etcdctl member add --learner)"
}

func (m *meeting) aftermath() string {
	if m.disk == DiskPending {
		return "the seed in " + m.plan.DataDir + " stays, not released: the next run goes on from there"
	}
	return "nothing was written"
}

func (m *meeting) me() string { return describe(m.plan.Self.Name, m.plan.MemberID) }

// others are the names of the plan's members but this one.
func (m *meeting) others() []string {
	var names []string
	for _, p := range m.plan.Members {
		if p.ID != m.plan.MemberID {
			names = append(names, p.Name)
		}
	}
	return names
}

// running is the refusal that this project exists for.
func (m *meeting) running(out Outcome) string {
	peers := out.Peers
	if len(peers) == 0 { // at the own URL
		peers = []rendezvous.PeerView{{Member: m.view.Plan.Me(), Now: m.view.Self, Last: m.view.SelfLast}}
	}
	return fmt.Sprintf("refusing to seed: not seeding an empty directory (%s) while other members are running: etcd %s of this very cluster (ID %s) answers at %s, so the data of %s are gone, "+
		"and an empty member under its old ID can destroy acknowledged writes; remove and re-add this member: %s; (a cluster that is meant to be new needs another initial-cluster-token)",
		m.plan.DataDir, peers[0].Last.Version, m.plan.ClusterID, at(peers), m.me(), m.replace(peers))
}

func (m *meeting) foreignCluster(out Outcome) string {
	p := out.Peers[0]
	msg := fmt.Sprintf("refusing to seed %s: another cluster (ID %s, %d members) runs already at %s, where this node plans cluster %s of %d members",
		m.plan.DataDir, p.Last.ClusterID, len(p.Last.Members), at(out.Peers), m.plan.ClusterID, len(m.plan.Members))
	if slices.ContainsFunc(p.Last.Members, func(l rendezvous.Listed) bool { return slices.Equal(l.PeerURLs, m.plan.Self.PeerURLs) }) {
		return msg + "; it lists " + strings.Join(m.plan.Self.PeerURLs, ",") + " as its member, whose data are not here: replace that one: " + m.replace(out.Peers)
	}
	return msg + "; a running cluster grows by member add, as a learner first: " + m.add(out.Peers)
}

// at names where an etcd answered.
func at(peers []rendezvous.PeerView) string {
	var urls []string
	for i := range peers {
		urls = append(urls, peers[i].Last.URL)
	}
	return strings.Join(urls, ", ")
}

// etcdctl is the command with endpoints and certificates that this node knows.
func (m *meeting) etcdctl(peers []rendezvous.PeerView) string {
	var endpoints []string
	for i := range peers {
		for _, l := range peers[i].Last.Members {
			for _, u := range l.ClientURLs {
				if !slices.Contains(endpoints, u) && l.ID != rendezvous.ID(m.plan.MemberID.String()) {
					endpoints = append(endpoints, u)
				}
			}
		}
	}
	if len(endpoints) == 0 {
		endpoints = []string{"CLIENT-URL-OF-A-RUNNING-MEMBER"}
	}
	cmd := "etcdctl --endpoints=" + strings.Join(endpoints, ",")
	if t := m.Etcd.ClientTLS; t.CertFile != "" {
		if t.TrustedCAFile != "" {
			cmd += " --cacert=" + t.TrustedCAFile
		}
		cmd += " --cert=" + t.CertFile + " --key=" + t.KeyFile
	}
	return cmd
}

// replace is member remove, then add: of the entry that has this node's URLs.
func (m *meeting) replace(peers []rendezvous.PeerView) string {
	id := m.plan.MemberID.String()
	for i := range peers {
		for _, l := range peers[i].Last.Members {
			if slices.Equal(l.PeerURLs, m.plan.Self.PeerURLs) {
				id = string(l.ID)
			}
		}
	}
	return m.etcdctl(peers) + " member remove " + id + " && " + m.add(peers)
}

// add is member add, and what etcd must be told then.
func (m *meeting) add(peers []rendezvous.PeerView) string {
	self := m.plan.Self
	urls := strings.Join(self.PeerURLs, ",")
	cluster := []string{}
	for i := range peers {
		for _, l := range peers[i].Last.Members {
			if slices.Equal(l.PeerURLs, self.PeerURLs) || l.Name == "" {
				continue
			}
			for _, u := range l.PeerURLs {
				if entry := l.Name + "=" + u; !slices.Contains(cluster, entry) {
					cluster = append(cluster, entry)
				}
			}
		}
	}
	for _, u := range self.PeerURLs {
		cluster = append(cluster, self.Name+"="+u)
	}
	ctl := m.etcdctl(peers)
	return fmt.Sprintf("%s member add %s --learner --peer-urls=%s (again after some seconds where it answers \"unhealthy cluster\"), then start etcd on an empty data-dir with --name=%s --initial-advertise-peer-urls=%s --initial-cluster-state=existing --initial-cluster=%s, then %s member promote ID",
		ctl, self.Name, urls, self.Name, urls, strings.Join(cluster, ","), ctl)
}

// awaited is the short form for the progress line.
func (m *meeting) awaited(out Outcome) string {
	if out.Rule == RuleSelf || out.Rule == RulePendingSelf {
		return "this member's own peer URL"
	}
	var names []string
	for i := range out.Peers {
		names = append(names, out.Peers[i].Member.Name+" ("+out.Peers[i].Now.String()+")")
	}
	ready := len(m.plan.Members) - len(names)
	return fmt.Sprintf("%d of %d members ready, awaiting %s", ready, len(m.plan.Members), strings.Join(names, ", "))
}

// why says what keeps the meeting waiting, peer by peer.
func (m *meeting) why(out Outcome) string {
	if out.Rule == RuleSelf || out.Rule == RulePendingSelf {
		return m.selfWords()
	}
	var parts []string
	for i := range out.Peers {
		parts = append(parts, m.words(&out.Peers[i]))
	}
	if hint := m.hint(out.Peers); hint != "" {
		parts = append(parts, hint)
	}
	return strings.Join(parts, "; ")
}

func (m *meeting) words(p *rendezvous.PeerView) string {
	name, last := p.Member.Name, &p.Last
	url := last.URL
	if url == "" {
		url = strings.Join(p.Member.PeerURLs, ",")
	}
	switch p.Now {
	case rendezvous.Silent:
		return name + " is silent (" + url + ": " + last.Detail + ")"
	case rendezvous.Unknown:
		return name + " cannot be understood (" + url + ": " + last.Detail + ")"
	case rendezvous.Astray:
		return fmt.Sprintf("%s, the URL of %s, is answered by the agent of member %s (from %s): a load balancer, or a name that leads to another host", url, name, last.Answer.MemberID, last.Addr)
	case rendezvous.Differs:
		return name + " plans another cluster (" + string(last.Answer.ClusterID) + ", " + string(last.Answer.State) + "): " + m.differences(last.Answer.Members)
	case rendezvous.IsWaiting:
		return name + " has not committed yet (it is there, at " + url + ")"
	case rendezvous.Foreign:
		return fmt.Sprintf("an etcd of another cluster (ID %s) answers for %s at %s", last.ClusterID, name, url)
	case rendezvous.IsCommitted, rendezvous.IsReleased, rendezvous.Running, rendezvous.Replaced, rendezvous.Removed, rendezvous.Mine, rendezvous.Double:
	}
	return name + " is " + p.Now.String() + " (" + url + ")"
}

// differences are two lists side by side: - is here only, + is there only.
func (m *meeting) differences(theirs []rendezvous.Member) string {
	line := func(x rendezvous.Member) string { return x.Name + "=" + strings.Join(x.PeerURLs, ",") }
	var here, there []string
	ids := make(map[rendezvous.ID]bool)
	for _, x := range meetingPlan(m.plan).Members {
		here = append(here, line(x))
		ids[x.ID] = true
	}
	sameIDs := len(theirs) == len(here)
	for _, x := range theirs {
		there = append(there, line(x))
		sameIDs = sameIDs && ids[x.ID]
	}
	var out []string
	for _, l := range here {
		if !slices.Contains(there, l) {
			out = append(out, "-"+l)
		}
	}
	for _, l := range there {
		if !slices.Contains(here, l) {
			out = append(out, "+"+l)
		}
	}
	switch {
	case len(out) > 0:
		return strings.Join(out, " ") + " (- here, + there)"
	case sameIDs:
		return "the same members with other roles (learners)"
	}
	return "the same members with another initial-cluster-token"
}

func (m *meeting) selfWords() string {
	last := &m.view.SelfLast
	url := strings.Join(m.plan.Self.PeerURLs, ",")
	switch m.view.Self {
	case rendezvous.Double:
		mine := "this node"
		if m.found != nil && m.found.Addr.IsValid() {
			mine = "this one at " + m.found.Addr.String()
		}
		return fmt.Sprintf("two agents have the identity of %s: %s, and another run (%s) that answers at %s from %s; stop one of them", m.me(), mine, last.Answer.State, url, last.Addr)
	case rendezvous.Astray:
		return fmt.Sprintf("this member's own peer URL %s is answered by the agent of member %s (from %s): a load balancer, or a name that leads to another host", url, last.Answer.MemberID, last.Addr)
	case rendezvous.Running, rendezvous.Replaced, rendezvous.Removed, rendezvous.Foreign:
		return fmt.Sprintf("at this member's own peer URL %s answers an etcd of cluster %s: another node has its address", url, last.ClusterID)
	case rendezvous.Silent, rendezvous.Unknown, rendezvous.Differs, rendezvous.IsWaiting, rendezvous.IsCommitted, rendezvous.IsReleased, rendezvous.Mine:
	}
	return fmt.Sprintf("this member's own peer URL %s does not lead to it: %s (does its name resolve to this node, does listen-peer-urls cover it, does the network turn packets to the own address around?)", url, last.Detail)
}

// hint explains waits that have a usual cause.
func (m *meeting) hint(peers []rendezvous.PeerView) string {
	later, cut := len(peers) > 0, false
	for i := range peers {
		p := &peers[i]
		later = later && p.Now == rendezvous.Silent && ordinal(p.Member.Name) > ordinal(m.plan.Self.Name) && ordinal(m.plan.Self.Name) >= 0
		cut = cut || strings.Contains(p.Last.Detail, "closed the connection") || strings.Contains(p.Last.Detail, "reset by peer")
	}
	switch {
	case later:
		return "only pods after this one are silent: a StatefulSet needs podManagementPolicy: Parallel, since OrderedReady starts them only after this one is ready"
	case cut:
		return "connections are cut: a service mesh's sidecar does not run yet while init containers do, so exclude the peer port from the mesh, or run init as a sidecar after it"
	}
	return ""
}

// ordinal is only for a hint: nothing is decided by a name.
func ordinal(name string) int {
	i := strings.LastIndexByte(name, '-')
	n := 0
	if i < 0 || i == len(name)-1 {
		return -1
	}
	for _, r := range name[i+1:] {
		if r < '0' || r > '9' || n > 1<<20 {
			return -1
		}
		n = n*10 + int(r-'0')
	}
	return n
}

// pendingElsewhere: a seed that waits for its release, made for other settings.
func pendingElsewhere(state *seed.State, plan *seed.Plan) error {
	return &Error{Kind: Foreign, Msg: fmt.Sprintf("%s holds a seed that was never released, for %s of cluster %s, and the configuration now gives cluster %s (another initial-cluster-token?): no etcd has run on it, so it can be moved aside to plan anew",
		state.DataDir, describe(state.Self.Name, state.MemberID), state.ClusterID, plan.ClusterID)}
}

// Seen says in words what was seen of a peer beyond its state.
func Seen(p *rendezvous.PeerView) string {
	last := &p.Last
	parts := slices.Clone(last.Certs)
	switch last.Kind {
	case rendezvous.Etcd:
		parts = append(parts, fmt.Sprintf("etcd %s of cluster %s, %d members", last.Version, last.ClusterID, len(last.Members)))
	case rendezvous.Agent:
		parts = append(parts, fmt.Sprintf("etcdinit of member %s, cluster %s, %s", last.Answer.MemberID, last.Answer.ClusterID, last.Answer.State))
	case rendezvous.NoAnswer, rendezvous.Garbage:
		if len(parts) == 0 {
			parts = append(parts, last.Detail)
		}
	}
	return strings.Join(parts, "; ")
}
