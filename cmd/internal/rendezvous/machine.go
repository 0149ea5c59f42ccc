package rendezvous

import (
	"slices"
	"strings"
	"time"

	"github.com/etcdinit/etcdinit/internal/birth"
)

// State is what an agent says of its own disk. It only advances in one run,
// unless the directory itself changes.
type State string

const (
	// Waiting is an empty disk: the plan is known, nothing is written.
	Waiting State = "waiting"
	// Prepared is a disk that has an ID, and nothing else.
	Prepared State = "prepared"
	// Committed is a seed that is bound to a roster and marked as pending.
	Committed State = "committed"
	// Released is a seed without the mark: etcd may start.
	Released State = "released"
)

// ID is a member's or cluster's ID in etcd's text form (lower hex, unpadded).
type ID string

// Member is one member of a plan.
type Member struct {
	ID       ID       `json:"id"`
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerURLs"`
	Learner  bool     `json:"learner,omitempty"`
}

// Plan is what all agents must have in common before they can agree.
type Plan struct {
	Digest  string
	Self    ID
	Members []Member // ascending by ID
	// Content is what the members are born with, in words; "" for nothing.
	Content string
}

// Others returns the members of the plan that are not this agent's.
func (p Plan) Others() []Member {
	return slices.DeleteFunc(slices.Clone(p.Members), func(m Member) bool { return m.ID == p.Self })
}

// Me returns this agent's member.
func (p Plan) Me() Member {
	for _, m := range p.Members {
		if m.ID == p.Self {
			return m
		}
	}
	return Member{ID: p.Self}
}

// Seat is one line of a proposal: the disk and the run that an agent reached
// itself at a member's URL.
type Seat struct {
	birth.Seat
	Nonce string `json:"nonce,omitempty"`
}

// roster is a proposal without the runs.
func roster(proposal []Seat) birth.Roster {
	r := make(birth.Roster, 0, len(proposal))
	for _, s := range proposal {
		r = append(r, s.Seat)
	}
	return r
}

// Kind is what answered at a member's peer URL.
type Kind int

const (
	// NoAnswer is silence, or a listener that is too busy.
	NoAnswer Kind = iota
	// Agent is an etcdinit.
	Agent
	// Etcd is an etcd, which told its cluster's ID.
	Etcd
	// Garbage is something else, or an agent of another format.
	Garbage
)

// Sighting is what dialling one member's own peer URL gave.
type Sighting struct {
	Peer ID
	Kind Kind
	URL  string // the URL that answered, or the last that did not
	Addr string // remote address of the connection, if there was one

	Answer    Answer   // what an Agent said
	ClusterID ID       // of an Etcd
	Members   []Listed // an Etcd's /members, as far as it tells them
	Version   string   // an Etcd's server version, if it told
	Detail    string   // NoAnswer, Garbage: what was seen, in words
	Certs     []string // findings about its certificate, in words
	Trust     Trust    // NoAnswer: whether certificates or TLS kept it from being one
}

// Trust is what TLS has to do with a peer that could not be seen.
type Trust int

const (
	// Trusted is the usual case: nothing.
	Trusted Trust = iota
	// BadCert is a peer whose certificate etcd here would refuse.
	BadCert
	// RefusesMine is a peer that refuses this node's certificate.
	RefusesMine
	// NoCommonTLS is a peer that has no version or cipher suite in common with this node.
	NoCommonTLS
)

// Listed is one member of a running etcd's /members.
type Listed struct {
	ID         ID
	Name       string
	PeerURLs   []string
	ClientURLs []string
	Learner    bool
	Started    bool // has client URLs: it has published itself
}

// Round is one round of probes: a sighting of every other member, and of this
// agent's own URL.
type Round struct {
	Peers []Sighting
	Self  Sighting
}

// Standing is what a sighting means to this agent.
type Standing int

const (
	// Silent is no answer.
	Silent Standing = iota
	// Unknown is an answer that says nothing: garbage, another format.
	Unknown
	// Astray is the agent of another member at this member's URL.
	Astray
	// Differs is an agent with another plan.
	Differs
	// IsWaiting is an agent with my plan whose disk is empty.
	IsWaiting
	// IsPrepared is an agent whose disk has an ID.
	IsPrepared
	// IsCommitted is an agent whose disk is bound to a roster, not always mine.
	IsCommitted
	// IsReleased is an agent whose etcd may start.
	IsReleased
	// Runs is an etcd of another cluster than the one that my disk is bound to.
	Runs
	// Vague is an etcd of my cluster whose list proves nothing yet.
	Vague
	// Unstarted is an etcd of my cluster that lists me as not started.
	Unstarted
	// Started is an etcd of my cluster that lists me as started.
	Started
	// Removed is an etcd of my cluster whose members have published themselves
	// and that does not list me.
	Removed
	// Mine is this very run; of my own URL only.
	Mine
	// Double is another run with my member ID; of my own URL only.
	Double
)

func (s Standing) String() string {
	return [...]string{
		"silent", "unknown", "astray", "another plan", "waiting", "prepared", "committed", "released",
		"running", "running, lists nobody yet", "running, lists this member as not started", "running, lists this member as started",
		"running, does not list this member", "this run", "another run of this member",
	}[s]
}

// Agrees reports whether an agent with my plan answered.
func (s Standing) Agrees() bool { return s >= IsWaiting && s <= IsReleased }

// Etcd reports whether an etcd answered.
func (s Standing) Etcd() bool { return s >= Runs && s <= Removed }

// PeerView is what is known of one peer.
type PeerView struct {
	Member Member
	// Now is what it was in the last round.
	Now Standing
	// LeftOut: my --without names it.
	LeftOut bool
	// Agreed: what it said in the last round is what rule 1 asks of it.
	Agreed bool
	// Counted: it is an etcd of a roster that I propose or that a peer is bound to:
	// somebody has started it on a pending seed.
	Counted bool
	// Bound: its disk is known to be bound to my roster. That holds through any
	// later answer.
	Bound bool
	// Firm: an etcd of my cluster gave one and the same list in two looks that
	// were a second apart, or a list in which all others have published.
	Firm bool
	// Called: it has called this agent, and was silent when it was dialled after
	// that.
	Called bool
	// Heard: it has called this agent a short while ago, if only to be refused. Who called is its own
	// word, and an agent that answers nobody hears nobody.
	Heard bool
	// Refused says why its last calls got no answer, if they had a certificate that
	// etcd would refuse. Who called is its own word: it is only for words.
	Refused string
	Last    Sighting
}

// Word is what it was in the last round, in a word or two.
func (p *PeerView) Word() string {
	if p.Now == Silent {
		switch p.Last.Trust {
		case BadCert:
			return "bad certificate"
		case RefusesMine:
			return "refuses this node's certificate"
		case NoCommonTLS:
			return "no TLS in common"
		case Trusted:
		}
	}
	return p.Now.String()
}

// View is what a decision is made from.
type View struct {
	Plan   Plan
	State  State
	Disk   birth.DiskID
	Roster birth.Roster // bound to, or else proposed; nil while a seat is missing
	// ClusterID is the ID of Roster.
	ClusterID ID
	// Fresh: a whole round was made since the last change of state or plan.
	Fresh bool
	Self  Standing
	// SelfLast is the sighting of this agent's own URL.
	SelfLast Sighting
	Peers    []PeerView
}

// settled is how long apart two equal lists of an etcd must be: a restarted
// etcd 3.4 or 3.5 shows an empty or unpublished list for 3 to 33 ms.
const settled = time.Second

// Start is what a run begins with.
type Start struct {
	Nonce string // another one in every run
	Plan  Plan
	State State
	Disk  birth.DiskID // from Prepared on
	// Roster is what the disk is bound to, from Committed on.
	Roster birth.Roster
	// ClusterID is given for a seed that has no roster: the first edition's.
	ClusterID ID
	// Without are the names of the members that the roster leaves out.
	Without []string
	// Withdrawn are the clusters whose seed was taken back on this disk. It is only
	// told: other members need it to take theirs back.
	Withdrawn []ID
}

// Machine keeps what an agent knows. It is a value: every method leaves its
// receiver as it was. It does no I/O and has no clock.
type Machine struct {
	Start
	fresh bool // a round was made since the last change of state or plan
	peers []knowledge
	self  Sighting
	// proposed is the last whole proposal: it tells an etcd of that birth from
	// an etcd of another one after its agent has gone.
	proposed birth.Roster
}

type knowledge struct {
	member Member
	last   Sighting
	bound  bool
	list   string        // what an etcd of my cluster lists
	since  time.Duration // when that list was first seen
	firm   bool
}

// NewMachine begins in the state that the disk is in.
func NewMachine(s Start) Machine {
	m := Machine{Start: s}
	if s.Roster != nil {
		m.ClusterID = text(s.Roster.ClusterID(s.Plan.Digest))
	}
	return m.Replan(s.Plan)
}

// Replan takes another plan. All that was known of the peers was about the old
// one.
func (m Machine) Replan(plan Plan) Machine {
	m.Plan, m.fresh, m.self, m.proposed = plan, false, Sighting{}, nil
	m.peers = nil
	for _, p := range plan.Others() {
		m.peers = append(m.peers, knowledge{member: p, last: Sighting{Peer: p.ID}})
	}
	return m
}

// Prepare says that the disk has an ID now.
func (m Machine) Prepare(disk birth.DiskID) Machine {
	m.State, m.Disk, m.fresh = Prepared, disk, false
	if p := m.proposal(); p != nil {
		m.proposed = roster(p) // peers hear of it from now on, and may bind to it
	}
	return m
}

// Commit says that the disk is bound to a roster now.
func (m Machine) Commit(r birth.Roster) Machine {
	m.State, m.Roster, m.fresh = Committed, r, false
	m.ClusterID = text(r.ClusterID(m.Plan.Digest))
	m.peers = slices.Clone(m.peers)
	for i := range m.peers {
		m.peers[i].bound = m.binds(&m.peers[i].last)
	}
	return m
}

// Release says that etcd may start on the disk now.
func (m Machine) Release() Machine {
	m.State, m.fresh = Released, false
	return m
}

// Observe takes a whole round of probes. now is the time since boot, with the
// time that the machine slept.
func (m Machine) Observe(r Round, now time.Duration) Machine {
	m.fresh, m.self = true, r.Self
	m.peers = slices.Clone(m.peers)
	for i := range m.peers {
		for j := range r.Peers {
			if s := &r.Peers[j]; s.Peer == m.peers[i].member.ID {
				m.observe(&m.peers[i], s, now)
			}
		}
	}
	if p := m.proposal(); p != nil {
		m.proposed = roster(p)
	}
	return m
}

func (m Machine) observe(k *knowledge, s *Sighting, now time.Duration) {
	k.last = *s
	k.bound = k.bound || m.binds(s)
	list := ""
	if m.bound() && s.Kind == Etcd && s.ClusterID == m.ClusterID {
		list = lists(s.Members)
	}
	if list != k.list {
		k.list, k.since = list, now
	}
	k.firm = list != "" && (now-k.since >= settled || m.full(s.Members))
}

// bound reports whether my disk is bound to a roster.
func (m Machine) bound() bool { return m.State == Committed || m.State == Released }

// binds reports whether a sighting proves that the member's disk is bound to my
// roster.
func (m Machine) binds(s *Sighting) bool {
	if !m.bound() || m.Roster == nil {
		return false
	}
	switch m.standing(s) {
	case IsCommitted, IsReleased:
		return s.Answer.Roster.Equal(m.Roster)
	case Silent, Unknown, Astray, Differs, IsWaiting, IsPrepared, Runs, Vague, Unstarted, Started, Removed, Mine, Double:
	}
	return false
}

// full reports whether a list names all members that I was born with, all but me
// as started: an etcd that has just restarted does not say that.
func (m Machine) full(list []Listed) bool {
	for _, p := range m.Plan.Members {
		i := slices.IndexFunc(list, func(l Listed) bool { return l.ID == p.ID })
		born := m.Roster == nil || m.Roster.Disk(string(p.ID)) != ""
		if i < 0 || born && p.ID != m.Plan.Self && !list[i].Started {
			return false
		}
	}
	return true
}

// lists is a list of members as text; never empty.
func lists(list []Listed) string {
	var b strings.Builder
	b.WriteString("list")
	for _, l := range list {
		b.WriteString(" " + string(l.ID) + mark(l.Started))
	}
	return b.String()
}

// standing tells what a sighting of a member means.
func (m Machine) standing(s *Sighting) Standing {
	switch s.Kind {
	case Agent:
		return m.agent(s.Peer, &s.Answer)
	case Etcd:
		return m.etcd(s)
	case Garbage:
		return Unknown
	case NoAnswer:
	}
	return Silent
}

func (m Machine) agent(asked ID, a *Answer) Standing {
	switch {
	case a.MemberID != asked && !m.otherID(asked, a):
		return Astray
	case a.Digest != m.Plan.Digest:
		return Differs
	case a.State == Waiting:
		return IsWaiting
	case a.State == Prepared:
		return IsPrepared
	case a.State == Committed:
		return IsCommitted
	case a.State == Released:
		return IsReleased
	}
	return Unknown
}

// otherID reports whether the agent is the one of the member that was asked for,
// with another ID: with another token, all IDs are different.
func (m Machine) otherID(asked ID, a *Answer) bool {
	if a.Digest == m.Plan.Digest {
		return false
	}
	want := slices.IndexFunc(m.Plan.Members, func(x Member) bool { return x.ID == asked })
	got := slices.IndexFunc(a.Members, func(x Member) bool { return x.ID == a.MemberID })
	return want >= 0 && got >= 0 && slices.Equal(m.Plan.Members[want].PeerURLs, a.Members[got].PeerURLs)
}

// etcd uses positive evidence only: that a member is listed as not started does
// not say that it has never run.
func (m Machine) etcd(s *Sighting) Standing {
	if !m.bound() || s.ClusterID != m.ClusterID {
		return Runs
	}
	published, listed := false, false
	for _, l := range s.Members {
		if l.ID != m.Plan.Self {
			published = published || l.Started
			continue
		}
		if l.Started {
			return Started
		}
		listed = true
	}
	switch {
	case listed:
		return Unstarted
	case published:
		return Removed
	}
	return Vague
}

// own tells what answers at my own URL. It is for the words of a wait: that the
// others reach me there is proven by their proposals.
func (m Machine) own() Standing {
	s := &m.self
	if s.Kind == Agent && s.Answer.MemberID == m.Plan.Self {
		if s.Answer.Nonce == m.Nonce {
			return Mine
		}
		return Double
	}
	own := *s
	own.Peer = m.Plan.Self
	return m.standing(&own)
}

// proposal is the roster that this agent would commit to, with the runs: for
// each member that is not left out what was got by dialling its URL. It is nil
// while one is missing.
func (m Machine) proposal() []Seat {
	if m.State != Prepared {
		return nil
	}
	p := make([]Seat, 0, len(m.Plan.Members))
	for _, member := range m.Plan.Members {
		if slices.Contains(m.Without, member.Name) {
			continue
		}
		seat := Seat{Seat: birth.Seat{Member: string(member.ID), Disk: m.Disk}, Nonce: m.Nonce}
		if member.ID != m.Plan.Self {
			seat.Disk, seat.Nonce = m.reached(member.ID)
		}
		if seat.Disk == "" {
			return nil
		}
		p = append(p, seat)
	}
	return p
}

// reached returns the disk and the run at a member's URL; "" if there is none to
// propose.
func (m Machine) reached(id ID) (disk birth.DiskID, nonce string) {
	for i := range m.peers {
		k := &m.peers[i]
		if k.member.ID != id {
			continue
		}
		a := &k.last.Answer
		switch m.standing(&k.last) {
		case IsPrepared:
			return a.Disk, a.Nonce
		case IsCommitted:
			return a.Roster.Disk(string(id)), a.Nonce
		case Runs:
			return m.bornOn(id, k.last.ClusterID), ""
		case Silent, Unknown, Astray, Differs, IsWaiting, IsReleased, Vague, Unstarted, Started, Removed, Mine, Double:
		}
	}
	return "", ""
}

// bornOn returns the disk of a member whose etcd runs under a cluster ID that is
// known: of a roster that a peer is bound to, or that I have proposed. Somebody
// has started that etcd on a pending seed.
func (m Machine) bornOn(id, cluster ID) birth.DiskID {
	if m.proposed != nil && text(m.proposed.ClusterID(m.Plan.Digest)) == cluster {
		return m.proposed.Disk(string(id))
	}
	for i := range m.peers {
		s := &m.peers[i].last
		if m.standing(s) == IsCommitted && text(s.Answer.Roster.ClusterID(m.Plan.Digest)) == cluster {
			return s.Answer.Roster.Disk(string(id))
		}
	}
	return ""
}

// agreed is rule 1 for one peer: it is prepared and proposes what I propose, or
// it is bound to that.
func (m Machine) agreed(k *knowledge, p []Seat, r birth.Roster) bool {
	switch m.standing(&k.last) {
	case IsPrepared:
		return slices.Equal(k.last.Answer.Proposal, p)
	case IsCommitted:
		return k.last.Answer.Roster.Equal(r)
	case Runs:
		return k.last.ClusterID == text(r.ClusterID(m.Plan.Digest))
	case Silent, Unknown, Astray, Differs, IsWaiting, IsReleased, Vague, Unstarted, Started, Removed, Mine, Double:
	}
	return false
}

// View returns what is known now.
func (m Machine) View() View {
	v := View{
		Plan: m.Plan, State: m.State, Disk: m.Disk, Roster: m.Roster, ClusterID: m.ClusterID,
		Fresh: m.fresh, Self: m.own(), SelfLast: m.self, Peers: make([]PeerView, len(m.peers)),
	}
	p := m.proposal()
	if p != nil {
		v.Roster = roster(p)
		v.ClusterID = text(v.Roster.ClusterID(m.Plan.Digest))
	}
	for i := range m.peers {
		k := &m.peers[i]
		v.Peers[i] = PeerView{
			Member: k.member, Now: m.standing(&k.last), LeftOut: slices.Contains(m.Without, k.member.Name),
			Agreed: p != nil && m.agreed(k, p, v.Roster), Bound: k.bound, Firm: k.firm, Last: k.last,
		}
		if v.Peers[i].Now == Runs && m.State == Prepared {
			v.Peers[i].Counted = m.bornOn(k.member.ID, k.last.ClusterID) != ""
		}
	}
	return v
}

// Answer is what this agent tells a peer that asks.
func (m Machine) Answer() Answer {
	a := Answer{
		Format: Format, Digest: m.Plan.Digest, MemberID: m.Plan.Self, Nonce: m.Nonce, State: m.State,
		Disk: m.Disk, Proposal: m.proposal(), Without: m.Without, Withdrawn: m.Withdrawn, Members: m.Plan.Members, Content: m.Plan.Content,
	}
	if m.bound() {
		a.ClusterID, a.Roster = m.ClusterID, m.Roster
	}
	return a
}

// String lists all that the machine knows, the same for equal machines.
func (m Machine) String() string {
	var b strings.Builder
	put := func(words ...string) {
		for _, w := range words {
			b.WriteString(w)
			b.WriteByte(' ')
		}
	}
	put(m.Nonce, m.Plan.Digest, string(m.State), string(m.Disk), string(m.ClusterID), mark(m.fresh), m.own().String())
	for _, s := range m.proposed {
		put(string(s.Disk))
	}
	for i := range m.peers {
		k := &m.peers[i]
		a := &k.last.Answer
		put("/", string(k.member.ID), m.standing(&k.last).String(), mark(k.bound), mark(k.firm), k.list, k.since.String(), string(k.last.ClusterID))
		put(a.Nonce, string(a.Disk), string(a.ClusterID))
		for _, s := range a.Proposal {
			put(s.Member, string(s.Disk), s.Nonce)
		}
		for _, s := range a.Roster {
			put(string(s.Disk))
		}
	}
	return b.String()
}

func mark(yes bool) string {
	if yes {
		return "+"
	}
	return "-"
}
