package rendezvous

import (
	"slices"
	"strings"
)

// State is what an agent says of itself. It only ever advances in one run.
type State string

const (
	// Waiting means: the plan is known, the disk is empty.
	Waiting State = "waiting"
	// Committed means: the seed is durable and marked as not released.
	Committed State = "committed"
	// Released means: the mark is gone, durably; etcd may start.
	Released State = "released"
)

// ID is a member's or cluster's ID, in etcd's text form (lower hex, unpadded).
type ID string

// Member is one member of a plan.
type Member struct {
	ID       ID       `json:"id"`
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerURLs"`
	Learner  bool     `json:"learner,omitempty"`
}

// Plan is what all agents must agree on.
type Plan struct {
	Digest    string
	ClusterID ID
	Self      ID
	Members   []Member
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

// Kind is what answered at a member's peer URL.
type Kind int

const (
	// NoAnswer means: nothing did, or it was too busy to.
	NoAnswer Kind = iota
	// Agent means: an etcdinit.
	Agent
	// Etcd means: an etcd, which told its cluster's ID.
	Etcd
	// Garbage means: something else, or an agent of a newer format.
	Garbage
)

// Sighting is what dialling one member's own peer URL gave.
type Sighting struct {
	Peer ID
	Kind Kind
	URL  string // the URL that answered, or the last that did not
	Addr string // remote address of the connection, where there was one

	Answer    Answer   // Agent means: what it said
	ClusterID ID       // Etcd
	Members   []Listed // Etcd means: its /members, as far as it tells them
	Version   string   // Etcd means: its server version, where told
	Detail    string   // NoAnswer, Garbage: what was seen, in words
	Certs     []string // findings about its certificate, in words
}

// Listed is one member of a running etcd's /members.
type Listed struct {
	ID         ID
	Name       string
	PeerURLs   []string
	ClientURLs []string
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
	// Silent means: no answer.
	Silent Standing = iota
	// Unknown means: an answer that says nothing: garbage, a newer format.
	Unknown
	// Astray means: an agent of another member answered at this URL.
	Astray
	// Differs means: an agent with another plan.
	Differs
	// IsWaiting means: an agent with my plan, in that state.
	IsWaiting
	// IsCommitted is like IsWaiting.
	IsCommitted
	// IsReleased is like IsWaiting.
	IsReleased
	// Running means: an etcd of my cluster.
	Running
	// Replaced means: an etcd of my cluster that lists my own ID as started.
	Replaced
	// Removed means: an etcd of my cluster whose members have published themselves
	// and that does not list my ID.
	Removed
	// Foreign means: an etcd of another cluster.
	Foreign
	// Mine means, of the own URL only: this very run answered.
	Mine
	// Double means, of the own URL only: an agent with my member ID and another nonce.
	Double
)

func (s Standing) String() string {
	return [...]string{
		"silent", "unknown", "astray", "differs", "waiting", "committed", "released",
		"running", "replaced", "removed", "foreign", "mine", "double",
	}[s]
}

// Agrees says whether an agent with my plan answered.
func (s Standing) Agrees() bool { return s == IsWaiting || s == IsCommitted || s == IsReleased }

// Runs says whether an etcd of my cluster answered.
func (s Standing) Runs() bool { return s == Running || s == Replaced || s == Removed }

// PeerView is what is known of one peer.
type PeerView struct {
	Member Member
	// Now is what it was in the last round.
	Now Standing
	// Steady: the same run of the same agent also answered the round before.
	Steady bool
	// Proven is IsCommitted or IsReleased where the peer said so and has said
	// nothing else since; silence does not undo it. Otherwise it equals Now.
	Proven Standing
	Last   Sighting
}

// View is what a decision is made from.
type View struct {
	Plan  Plan
	State State
	// Fresh: a whole round was made since the last change of State or plan.
	Fresh bool
	Self  Standing
	// SelfLast is the sighting of this agent's own URL.
	SelfLast Sighting
	Peers    []PeerView
}

// Machine keeps what an agent knows. It is a value: every method leaves its
// receiver as it was. It does no I/O and has no clock.
type Machine struct {
	nonce string
	plan  Plan
	state State
	fresh bool // a round was made since the last change of state or plan
	peers []knowledge
	self  Sighting
}

type knowledge struct {
	member Member
	last   Sighting
	run    string   // nonce of the agent of my plan that answered the last round
	steady bool     // and the one before
	proven Standing // IsCommitted, IsReleased, or 0
}

// NewMachine starts in the state that the disk says: waiting or committed. The
// nonce must be another one in every run.
func NewMachine(nonce string, plan Plan, state State) Machine {
	return Machine{nonce: nonce, state: state}.Replan(plan)
}

// Replan takes another plan. All that was known of the peers was about the old
// one.
func (m Machine) Replan(plan Plan) Machine {
	m.plan, m.fresh, m.self = plan, false, Sighting{}
	m.peers = nil
	for _, p := range plan.Others() {
		m.peers = append(m.peers, knowledge{member: p, last: Sighting{Peer: p.ID}})
	}
	return m
}

// Advance says that the disk now holds what the state means. What was seen
// before does not count for the next step.
func (m Machine) Advance(state State) Machine {
	m.state, m.fresh = state, false
	return m
}

// Observe takes a whole round of probes.
func (m Machine) Observe(r Round) Machine {
	m.fresh, m.self = true, r.Self
	m.peers = slices.Clone(m.peers)
	for i := range m.peers {
		for j := range r.Peers {
			if s := &r.Peers[j]; s.Peer == m.peers[i].member.ID {
				m.peers[i].observe(s, m.standing(s))
			}
		}
	}
	return m
}

func (k *knowledge) observe(s *Sighting, now Standing) {
	k.last = *s
	run := ""
	if now.Agrees() {
		run = s.Answer.Nonce
	}
	k.steady = run != "" && run == k.run
	k.run = run
	switch {
	case now == IsCommitted, now == IsReleased:
		k.proven = now
	case now != Silent:
		k.proven = 0
	}
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
	case a.MemberID != asked:
		return Astray
	case a.Digest != m.plan.Digest:
		return Differs
	case a.State == Waiting:
		return IsWaiting
	case a.State == Committed:
		return IsCommitted
	case a.State == Released:
		return IsReleased
	}
	return Unknown
}

// etcd uses positive evidence only: that a member is listed as not started
// says nothing of whether it has run.
func (m Machine) etcd(s *Sighting) Standing {
	if s.ClusterID != m.plan.ClusterID {
		return Foreign
	}
	published, listed := false, false
	for _, l := range s.Members {
		published = published || l.Started
		if l.ID == m.plan.Self {
			listed = true
			if l.Started {
				return Replaced
			}
		}
	}
	if published && !listed {
		return Removed
	}
	return Running
}

// own tells what answers at this agent's own URL. It must be this very run:
// what an agent's peers say of it may be an older answer than its own eyes.
func (m Machine) own() Standing {
	s := &m.self
	switch {
	case s.Kind != Agent:
		return m.standing(s)
	case s.Answer.MemberID != m.plan.Self:
		return Astray
	case s.Answer.Nonce != m.nonce:
		return Double
	}
	return Mine
}

// View returns what is known now.
func (m Machine) View() View {
	v := View{Plan: m.plan, State: m.state, Fresh: m.fresh, Self: m.own(), SelfLast: m.self, Peers: make([]PeerView, len(m.peers))}
	for i := range m.peers {
		k := &m.peers[i]
		now := m.standing(&k.last)
		v.Peers[i] = PeerView{Member: k.member, Now: now, Steady: k.steady, Proven: now, Last: k.last}
		if k.proven != 0 {
			v.Peers[i].Proven = k.proven
		}
	}
	return v
}

// Answer is what this agent tells whoever asks.
func (m Machine) Answer() Answer {
	return Answer{
		Format: Format, Digest: m.plan.Digest, ClusterID: m.plan.ClusterID, MemberID: m.plan.Self,
		Nonce: m.nonce, State: m.state, Members: m.plan.Members,
	}
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
	put(m.nonce, m.plan.Digest, string(m.state), mark(m.fresh), "self="+m.own().String())
	for i := range m.peers {
		k := &m.peers[i]
		put(string(k.member.ID)+"="+m.standing(&k.last).String(), k.run, mark(k.steady), k.proven.String())
	}
	return b.String()
}

func mark(yes bool) string {
	if yes {
		return "+"
	}
	return "-"
}
