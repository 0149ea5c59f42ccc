package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/internal/hosturl"
	"github.com/etcdinit/etcdinit/seed"
)

// awaited is the short form for the progress line.
func (a *agent) awaited(out Outcome) string {
	if text := a.joinAwaited(out); text != "" {
		return text
	}
	var list []string
	for i := range out.Peers {
		list = append(list, out.Peers[i].Member.Name+" ("+out.Peers[i].Word()+")")
	}
	ready := len(a.plan.Members) - len(list)
	return fmt.Sprintf("%d of %d members ready, awaiting %s", ready, len(a.plan.Members), strings.Join(list, ", "))
}

// rows are the peers that are waited for, one by one.
func (a *agent) rows(out Outcome) []WaitRow {
	list := make([]WaitRow, 0, len(out.Peers))
	for i := range out.Peers {
		p := &out.Peers[i]
		row := WaitRow{Name: p.Member.Name, URL: p.Last.URL, State: p.Word(), Why: p.Last.Detail}
		if row.URL == "" {
			row.URL = strings.Join(p.Member.PeerURLs, ",")
		}
		if row.Why == "" || p.Refused != "" {
			row.Why = strings.TrimPrefix(a.words(p), row.Name+" ")
		}
		was, ok := a.since[row.Name]
		if !ok || was.State != row.State {
			was = WaitRow{State: row.State, Since: time.Now()}
			a.since[row.Name] = was
		}
		row.Since = was.Since
		list = append(list, row)
	}
	return list
}

// why says what keeps the run waiting, peer by peer.
func (a *agent) why(out Outcome) string {
	if text := a.joinWhy(out); text != "" {
		return text
	}
	var parts []string
	for i := range out.Peers {
		parts = append(parts, a.words(&out.Peers[i]))
	}
	for i := range a.view.Peers { // one that is fine as seen from here does not see this node
		p := &a.view.Peers[i]
		if p.Refused != "" && !slices.ContainsFunc(out.Peers, func(o rendezvous.PeerView) bool { return o.Member.ID == p.Member.ID }) {
			parts = append(parts, a.words(p))
		}
	}
	if own := a.ownWords(); own != "" {
		parts = append(parts, own)
	}
	if hint := a.hint(out.Peers); hint != "" {
		parts = append(parts, hint)
	}
	return strings.Join(parts, "; ")
}

// words says what is known of a peer, and why its calls are refused here.
func (a *agent) words(p *rendezvous.PeerView) string {
	text := a.standing(p)
	if p.Refused != "" {
		text += "; its calls get no answer here, as etcd would refuse them: " + p.Refused
	}
	return text
}

// silentWords says of a peer that gave no answer what is known of the cause.
func silentWords(p *rendezvous.PeerView, url string) string {
	name, detail := p.Member.Name, p.Last.Detail
	switch p.Last.Trust {
	case rendezvous.BadCert:
		return name + " has a certificate that etcd refuses (" + url + ": " + detail + ")"
	case rendezvous.RefusesMine:
		return name + " refuses this node's certificate, as etcd there would (" + url + ": " + detail + ")"
	case rendezvous.NoCommonTLS:
		return name + " and this node cannot agree on TLS (" + url + ": " + detail + "): compare cipher-suites, tls-min-version and tls-max-version"
	case rendezvous.Trusted:
	}
	switch {
	case p.Called || p.Heard:
		detail += "; yet it calls this node, so the way there is blocked in one direction (a firewall there?), or its address is another one now"
	case strings.HasPrefix(detail, rendezvous.NoAnswerWithin):
		detail += "; does a firewall drop what is sent there?"
	}
	return name + " is silent (" + url + ": " + detail + ")"
}

func (a *agent) standing(p *rendezvous.PeerView) string {
	name, last := p.Member.Name, &p.Last
	url := last.URL
	if url == "" {
		url = strings.Join(p.Member.PeerURLs, ",")
	}
	switch p.Now {
	case rendezvous.Silent:
		return silentWords(p, url)
	case rendezvous.Unknown:
		return name + " cannot be understood (" + url + ": " + last.Detail + ")"
	case rendezvous.Astray:
		return fmt.Sprintf("%s, the URL of %s, is answered by the agent of member %s (from %s): a load balancer, or a name that leads to another host", url, name, a.memberWords(last), last.Addr)
	case rendezvous.Differs:
		if theirs := last.Answer.Content; theirs != a.view.Plan.Content {
			return name + " restores " + orNothing(theirs) + ", this node " + orNothing(a.view.Plan.Content) + " (" + url + ")"
		}
		return name + " plans another cluster (" + string(last.Answer.State) + ", at " + last.Addr + "): " + a.planDiff(last.Answer.Members)
	case rendezvous.IsWaiting:
		if a.disk == DiskPending {
			return a.lostSeat(p)
		}
		return name + " has not committed yet (it is there, at " + url + ")"
	case rendezvous.IsPrepared:
		return a.preparedWords(p, url)
	case rendezvous.IsCommitted, rendezvous.IsReleased:
		return a.boundWords(p, url)
	case rendezvous.Runs:
		return fmt.Sprintf("an etcd of another cluster (ID %s) answers for %s at %s", last.ClusterID, name, url)
	case rendezvous.Vague, rendezvous.Unstarted, rendezvous.Started, rendezvous.Removed, rendezvous.Mine, rendezvous.Double:
	}
	return name + " is " + p.Now.String() + " (" + url + ")"
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// memberWords names the member that an agent says it is.
func (a *agent) memberWords(last *rendezvous.Sighting) string {
	return a.nameOf(string(last.Answer.MemberID))
}

// preparedWords says of a prepared peer what it does not agree on: which disk it
// got at whose URL.
func (a *agent) preparedWords(p *rendezvous.PeerView, url string) string {
	name, theirs := p.Member.Name, p.Last.Answer.Proposal
	switch {
	case a.disk == DiskPending && a.view.Roster.Disk(string(p.Member.ID)) != p.Last.Answer.Disk:
		return a.lostSeat(p)
	case theirs == nil:
		return name + " has not committed yet (it does not see all members, at " + url + ")"
	case a.disk == DiskPending || a.disk == DiskFirst:
		return name + " has not committed yet (it is prepared, at " + url + ")"
	}
	if mine := a.view.Plan.Me(); len(theirs) > 0 {
		for _, s := range theirs {
			if s.Member == string(mine.ID) && s.Disk != a.view.Disk {
				return fmt.Sprintf("%s sees another disk for %s (%s, this node's is %s): two hosts are %s, or DNS tells %s another address than this node's", name, mine.Name, s.Disk, a.view.Disk, mine.Name, name)
			}
		}
	}
	for _, m := range a.plan.Members {
		id := m.ID.String()
		i := slices.IndexFunc(theirs, func(s rendezvous.Seat) bool { return s.Member == id })
		mine := a.view.Roster.Disk(id)
		switch {
		case a.view.Roster == nil:
		case i < 0 && mine != "":
			return fmt.Sprintf("%s leaves out %s (its --without), this node does not: give all members the same --without", name, m.Name)
		case i >= 0 && mine == "":
			return fmt.Sprintf("%s waits for %s, which this node leaves out (--without): give all members the same --without", name, m.Name)
		case i >= 0 && theirs[i].Disk != mine:
			return fmt.Sprintf("%s reaches another disk as %s (%s) than this node (%s): two hosts are %s, or the two resolve its name to different addresses", name, m.Name, theirs[i].Disk, mine, m.Name)
		}
	}
	return name + " has not committed yet (it is prepared, at " + url + ")"
}

// boundWords says of a peer that is bound why that does not help this node.
func (a *agent) boundWords(p *rendezvous.PeerView, url string) string {
	name, r := p.Member.Name, p.Last.Answer.Roster
	theirs := r.Disk(a.plan.MemberID.String())
	switch {
	case a.disk == DiskPending:
		return fmt.Sprintf("%s is bound to another roster (cluster %s, disk %s; this seed: cluster %s, with disk %s for %s)", name, p.Last.Answer.ClusterID, p.Last.Answer.Disk, a.view.ClusterID, a.view.Roster.Disk(string(p.Member.ID)), name)
	case theirs != "" && theirs != a.view.Disk && a.view.Disk != "":
		return fmt.Sprintf("%s is bound to a roster with another disk for %s (%s at %s, this node's is %s): that disk was lost or moved after %s had committed", name, a.plan.Self.Name, theirs, url, a.view.Disk, name)
	case theirs == "":
		return fmt.Sprintf("%s is bound to a roster that leaves out %s (its --without)", name, a.plan.Self.Name)
	}
	return name + " is " + p.Now.String() + " (" + url + ")"
}

// lostSeat says that a disk of my roster is not where it was.
func (a *agent) lostSeat(p *rendezvous.PeerView) string {
	return fmt.Sprintf("the roster of this seed names disk %s for %s, and at %s (%s) answers %s: the first one was lost, or moved from its name, after this member had committed",
		a.view.Roster.Disk(string(p.Member.ID)), p.Member.Name, p.Last.URL, p.Last.Addr, otherDisk(p.Last.Answer.Disk))
}

// ownWords says what is strange about this member's own URL; "" where it leads
// here, or where silence tells nothing.
func (a *agent) ownWords() string {
	last := &a.view.SelfLast
	url := strings.Join(a.plan.Self.PeerURLs, ",")
	switch a.view.Self {
	case rendezvous.Mine:
		return ""
	case rendezvous.Double:
		if a.dry && last.Answer.Disk == a.view.Disk {
			return "" // this node's own init, beside a command that only looks
		}
		mine := "this node"
		if a.found != nil && a.found.Addr.IsValid() {
			mine = "this one at " + a.found.Addr.String()
		}
		return fmt.Sprintf("two agents have the identity of %s: %s with disk %s, and another run (%s, disk %s) that answers at %s from %s; stop one of them",
			a.me(), mine, orNone(a.view.Disk), last.Answer.State, orNone(last.Answer.Disk), url, last.Addr)
	case rendezvous.Astray:
		return fmt.Sprintf("this member's own peer URL %s is answered by the agent of member %s (from %s): a load balancer, or a name that leads to another host", url, a.memberWords(last), last.Addr)
	case rendezvous.Runs, rendezvous.Vague, rendezvous.Unstarted, rendezvous.Started, rendezvous.Removed:
		return fmt.Sprintf("at this member's own peer URL %s answers an etcd of cluster %s: another node has its address", url, last.ClusterID)
	case rendezvous.Differs:
		return fmt.Sprintf("at this member's own peer URL %s answers an agent with another plan (from %s): another node has its address", url, last.Addr)
	case rendezvous.Silent, rendezvous.Unknown, rendezvous.IsWaiting, rendezvous.IsPrepared, rendezvous.IsCommitted, rendezvous.IsReleased:
	}
	if last.Trust != rendezvous.Trusted {
		return "this member's own certificate does not pass at its own peer URL " + url + ": " + last.Detail
	}
	if a.reached() || a.dry || a.disk == DiskFirst { // the last two do not answer there
		return ""
	}
	return fmt.Sprintf("this member's own peer URL %s does not lead to it: %s (does its name resolve to this node, and does listen-peer-urls cover it? Behind NAT without hairpin that is normal)", url, last.Detail)
}

// reached reports whether some peer has called this node or proposes its disk:
// then its URL leads here for them.
func (a *agent) reached() bool {
	return slices.ContainsFunc(a.view.Peers, func(p rendezvous.PeerView) bool {
		return slices.ContainsFunc(p.Last.Answer.Proposal, func(s rendezvous.Seat) bool { return s.Disk == a.view.Disk && s.Disk != "" }) ||
			p.Bound
	})
}

func otherDisk(d seed.DiskID) string {
	if d == "" {
		return "an empty disk"
	}
	return "disk " + string(d)
}

func orNone(d seed.DiskID) string {
	if d == "" {
		return "none"
	}
	return string(d)
}

// planDiff are two lists side by side: - is here only, + is there only.
func (a *agent) planDiff(theirs []rendezvous.Member) string {
	line := func(x rendezvous.Member) string { return x.Name + "=" + strings.Join(x.PeerURLs, ",") }
	var here, there []string
	ids := make(map[rendezvous.ID]bool)
	for _, x := range meetingPlan(a.plan).Members {
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

// contradictionWords says what a look after the release has shown.
func (a *agent) contradictionWords(out Outcome) string {
	if len(out.Peers) > 0 {
		return fmt.Sprintf("the etcd at %s lists %s as started", at(out.Peers), a.me())
	}
	return fmt.Sprintf("at this member's own URL %s answers another run that is bound to the same roster (from %s)", a.view.SelfLast.URL, a.view.SelfLast.Addr)
}

// pendingRefusal is how the wait of a pending seed ends: what is missing, and the
// way out where there is one.
func (a *agent) pendingRefusal(out Outcome) *exit.Error {
	e := &exit.Error{Reason: "peers-disagree", Msg: fmt.Sprintf("not all %d members agree to start: %s; %s", len(a.plan.Members), a.why(out), a.committed())}
	if a.disk == DiskFirst {
		e.Reason = "first-edition-seed"
		e.Msg += "; an earlier version of etcdinit has made it: if none of its members has been started, move it aside on every node"
		e.Commands = a.aside("first-edition")
		return e
	}
	if a.proof.holds() {
		e.Reason = "roster-lost"
		e.Msg += "; no write can have been acknowledged: too many of its disks have never been released; withdraw the seed on each of these nodes"
		e.Commands = a.withdrawal()
	}
	return e
}

// uncalledTime is how long nobody has to call before that is told: each agent asks
// every other at least once in a few seconds.
const uncalledTime = 5 * time.Second

// uncalled says that others answer and none of them calls; "" if that is not so.
func (a *agent) uncalled() string {
	if a.met.IsZero() || time.Since(a.met) < uncalledTime || a.dry || a.disk == DiskFirst || a.reached() {
		return ""
	}
	var answer []string
	for i := range a.view.Peers {
		p := &a.view.Peers[i]
		switch {
		case p.LeftOut:
		case p.Heard || p.Now.Etcd():
			return ""
		case p.Now.Agrees() || p.Now == rendezvous.Differs:
			answer = append(answer, p.Member.Name)
		}
	}
	if len(answer) == 0 || len(a.plan.Self.PeerURLs) == 0 {
		return ""
	}
	raw := a.plan.Self.PeerURLs[0]
	u, _ := hosturl.Split(raw) // a plan's URLs have passed it
	return fmt.Sprintf("nobody calls this node, though %s can be reached from it: does a firewall on this host drop port %d, and does %s lead to this node from the others?",
		strings.Join(answer, ", "), u.Port, raw)
}

// hint explains waits that have a usual cause, and only where it was seen.
func (a *agent) hint(peers []rendezvous.PeerView) string {
	later, cut, source := len(peers) > 0, false, false
	for i := range peers {
		p := &peers[i]
		later = later && p.Now == rendezvous.Silent && p.Last.Trust == rendezvous.Trusted && ordinal(p.Member.Name) > ordinal(a.plan.Self.Name) && ordinal(a.plan.Self.Name) >= 0
		source = source || strings.Contains(p.Last.Detail+p.Refused, rendezvous.ComesFrom)
		cut = cut || strings.Contains(p.Last.Detail, "closed the connection") || strings.Contains(p.Last.Detail, "reset by peer")
	}
	uncalled := a.uncalled()
	switch {
	case uncalled != "":
		return uncalled
	case source:
		return "etcd holds the address that a peer calls from against that peer's certificate: put the members' names or addresses into it, publish PTR records that it covers, or set peer-skip-client-san-verification"
	case !a.Pod:
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

// hostOf is the host of the URL that a peer was dialled at.
func hostOf(p *rendezvous.PeerView) string {
	if p.Last.URL != "" {
		return hosturl.Host(p.Last.URL)
	}
	for _, u := range p.Member.PeerURLs {
		return hosturl.Host(u)
	}
	return ""
}

// Seen says in words what was seen of a peer beyond its state.
func Seen(p *rendezvous.PeerView) string {
	last := &p.Last
	parts := slices.Clone(last.Certs)
	switch last.Kind {
	case rendezvous.Etcd:
		parts = append(parts, fmt.Sprintf("etcd %s of cluster %s, %d members", last.Version, last.ClusterID, len(last.Members)))
	case rendezvous.Agent:
		text := fmt.Sprintf("etcdinit of member %s, %s", last.Answer.MemberID, last.Answer.State)
		if last.Answer.Disk != "" {
			text += ", disk " + string(last.Answer.Disk)
		}
		if last.Answer.ClusterID != "" {
			text += ", cluster " + string(last.Answer.ClusterID)
		}
		parts = append(parts, text)
	case rendezvous.NoAnswer, rendezvous.Garbage:
		if len(parts) == 0 {
			parts = append(parts, last.Detail)
		}
	}
	return strings.Join(parts, "; ")
}
