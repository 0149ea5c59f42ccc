package rendezvous

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/internal/birth"
)

// Disk IDs of the tests, of the form that the wire demands.
var (
	diskA = birth.DiskID(strings.Repeat("a", 32))
	diskB = birth.DiskID(strings.Repeat("b", 32))
	diskC = birth.DiskID(strings.Repeat("c", 32))
	diskX = birth.DiskID(strings.Repeat("e", 32))
)

func trio() Plan {
	return Plan{Digest: "d", Self: "a1", Members: []Member{
		{ID: "a1", Name: "a", PeerURLs: []string{"http://192.0.2.1:2380"}},
		{ID: "b1", Name: "b", PeerURLs: []string{"http://192.0.2.2:2380"}},
		{ID: "c2", Name: "c", PeerURLs: []string{"http://192.0.2.3:2380"}},
	}}
}

func abc(a, b, c birth.DiskID) birth.Roster {
	return birth.Roster{{Member: "a1", Disk: a}, {Member: "b1", Disk: b}, {Member: "c2", Disk: c}}
}

func allThree() birth.Roster { return abc(diskA, diskB, diskC) }

// proposed is a proposal of allThree with the runs given.
func proposed(a, b, c string) []Seat {
	return []Seat{
		{Seat: birth.Seat{Member: "a1", Disk: diskA}, Nonce: a},
		{Seat: birth.Seat{Member: "b1", Disk: diskB}, Nonce: b},
		{Seat: birth.Seat{Member: "c2", Disk: diskC}, Nonce: c},
	}
}

func start(state State) Start {
	s := Start{Nonce: "me", Plan: trio(), State: state}
	if state != Waiting {
		s.Disk = diskA
	}
	if state == Committed || state == Released {
		s.Roster = allThree()
	}
	return s
}

func agentAt(id ID, nonce string, state State) Sighting {
	a := Answer{Format: Format, Digest: "d", MemberID: id, Nonce: nonce, State: state}
	if state != Waiting {
		a.Disk = allThree().Disk(string(id))
	}
	if state == Committed || state == Released {
		a.Roster = allThree()
		a.ClusterID = text(a.Roster.ClusterID("d"))
	}
	return Sighting{Peer: id, Kind: Agent, Answer: a}
}

func proposing(s Sighting, p []Seat) Sighting {
	s.Answer.Proposal = p
	return s
}

func boundTo(s Sighting, r birth.Roster) Sighting {
	s.Answer.Roster, s.Answer.Disk = r, r.Disk(string(s.Answer.MemberID))
	return s
}

func mine() ID { return text(allThree().ClusterID("d")) }

func etcdAt(id, cluster ID, listed ...Listed) Sighting {
	return Sighting{Peer: id, Kind: Etcd, ClusterID: cluster, Members: listed}
}

func silent(id ID) Sighting { return Sighting{Peer: id} }

func withDigest(s Sighting, digest string) Sighting {
	s.Answer.Digest = digest
	return s
}

func withMember(s Sighting, id ID) Sighting {
	s.Answer.MemberID = id
	return s
}

func round(peers ...Sighting) Round { return Round{Peers: peers} }

// TestStanding: what one sighting of b means to a, whose disk is bound.
func TestStanding(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    Sighting
		want Standing
	}{
		{"silence", silent("b1"), Silent},
		{"garbage", Sighting{Peer: "b1", Kind: Garbage}, Unknown},
		{"waiting", agentAt("b1", "n", Waiting), IsWaiting},
		{"prepared", agentAt("b1", "n", Prepared), IsPrepared},
		{"committed", agentAt("b1", "n", Committed), IsCommitted},
		{"released", agentAt("b1", "n", Released), IsReleased},
		{"a state of the future", agentAt("b1", "n", "dancing"), Unknown},
		{"another plan", withDigest(agentAt("b1", "n", Committed), "x"), Differs},
		{"another member", withMember(agentAt("b1", "n", Committed), "c2"), Astray},
		{"myself behind a load balancer", withMember(agentAt("b1", "me", Waiting), "a1"), Astray},
		{"etcd before its first election", etcdAt("b1", mine(), Listed{ID: "a1"}, Listed{ID: "b1"}, Listed{ID: "c2"}), Unstarted},
		{"etcd that lists nobody yet", etcdAt("b1", mine()), Vague},
		{"etcd, I am not started", etcdAt("b1", mine(), Listed{ID: "a1"}, Listed{ID: "b1", Started: true}), Unstarted},
		{"etcd, I am started", etcdAt("b1", mine(), Listed{ID: "b1", Started: true}, Listed{ID: "a1", Started: true}), Started},
		{"etcd, I am not listed", etcdAt("b1", mine(), Listed{ID: "b1", Started: true}, Listed{ID: "c2"}), Removed},
		{"etcd, I am not listed, nobody has published", etcdAt("b1", mine(), Listed{ID: "b1"}), Vague},
		{"another cluster", etcdAt("b1", "c9", Listed{ID: "a1", Started: true}), Runs},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMachine(start(Committed)).Observe(round(tt.s, silent("c2")), 0)
			if got := m.View().Peers[0].Now; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestStandingUnbound: to a disk that is not bound, every etcd just runs.
func TestStandingUnbound(t *testing.T) {
	for _, state := range []State{Waiting, Prepared} {
		m := NewMachine(start(state)).Observe(round(etcdAt("b1", mine(), Listed{ID: "a1"}), silent("c2")), 0)
		if got := m.View().Peers[0].Now; got != Runs {
			t.Errorf("%s: %v", state, got)
		}
	}
}

// TestOtherToken: with another token all IDs are different; the URLs tell who it
// is.
func TestOtherToken(t *testing.T) {
	s := withMember(withDigest(agentAt("b1", "n", Waiting), "x"), "f9")
	s.Answer.Members = []Member{{ID: "f9", Name: "b", PeerURLs: []string{"http://192.0.2.2:2380"}}}
	if got := NewMachine(start(Waiting)).Observe(round(s), 0).View().Peers[0].Now; got != Differs {
		t.Errorf("at its URL: %v", got)
	}
	s.Answer.Members[0].PeerURLs[0] = "http://192.0.2.3:2380"
	if got := NewMachine(start(Waiting)).Observe(round(s), 0).View().Peers[0].Now; got != Astray {
		t.Errorf("at another's URL: %v", got)
	}
	// What no agent says: its own member is not in its plan, or its URL is another
	// one under one digest.
	s.Answer.Members[0].ID = "f8"
	if got := NewMachine(start(Waiting)).Observe(round(s), 0).View().Peers[0].Now; got != Astray {
		t.Errorf("not in its own plan: %v", got)
	}
	s.Answer.Members = []Member{{ID: "f9", Name: "b", PeerURLs: []string{"http://192.0.2.2:2380"}}}
	if got := NewMachine(start(Waiting)).Observe(round(withDigest(s, "d")), 0).View().Peers[0].Now; got != Astray {
		t.Errorf("another ID under one digest: %v", got)
	}
}

// TestSelf: what answers at my own URL.
func TestSelf(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    Sighting
		want Standing
	}{
		{"this run", agentAt("a1", "me", Waiting), Mine},
		{"this run, before it planned anew", withDigest(agentAt("a1", "me", Waiting), "old"), Mine},
		{"another run", agentAt("a1", "other", Committed), Double},
		{"another member", agentAt("b1", "n", Waiting), Astray},
		{"nothing", silent("a1"), Silent},
		{"garbage", Sighting{Peer: "a1", Kind: Garbage}, Unknown},
		{"etcd of mine", etcdAt("a1", mine(), Listed{ID: "a1"}), Unstarted},
		{"etcd of mine, which is me", etcdAt("a1", mine(), Listed{ID: "a1", Started: true}), Started},
		{"etcd of others", etcdAt("a1", "c9"), Runs},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := NewMachine(start(Committed)).Observe(Round{Self: tt.s}, 0).View()
			if v.Self != tt.want || v.SelfLast.Kind != tt.s.Kind {
				t.Errorf("got %v (%v), want %v", v.Self, v.SelfLast.Kind, tt.want)
			}
		})
	}
}

// TestProposal: the roster that a prepared disk would be bound to.
func TestProposal(t *testing.T) {
	b, c := agentAt("b1", "nb", Prepared), agentAt("c2", "nc", Prepared)
	for _, tt := range []struct {
		name    string
		without []string
		b, c    Sighting
		want    []Seat
	}{
		{"all prepared", nil, b, c, proposed("me", "nb", "nc")},
		{"one waits", nil, b, agentAt("c2", "nc", Waiting), nil},
		{"one is silent", nil, b, silent("c2"), nil},
		{"one is released", nil, b, agentAt("c2", "nc", Released), nil},
		{"one has another plan", nil, b, withDigest(c, "x"), nil},
		{"one is bound", nil, b, agentAt("c2", "nc", Committed), proposed("me", "nb", "nc")},
		{"an unknown etcd", nil, b, etcdAt("c2", "c9"), nil},
		{"an etcd of the roster that a peer is bound to", nil, agentAt("b1", "nb", Committed), etcdAt("c2", mine()), proposed("me", "nb", "")},
		{"one left out", []string{"c"}, b, silent("c2"), proposed("me", "nb", "")[:2]},
		{"one left out that answers", []string{"c"}, b, c, proposed("me", "nb", "")[:2]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(Prepared)
			s.Without = tt.without
			m := NewMachine(s).Observe(round(tt.b, tt.c), 0)
			if got := m.Answer().Proposal; !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if v := m.View(); (v.Roster == nil) != (tt.want == nil) || v.Roster != nil && v.ClusterID != text(v.Roster.ClusterID("d")) {
				t.Errorf("view: roster %v, cluster %s", v.Roster, v.ClusterID)
			}
		})
	}
	for _, state := range []State{Waiting, Committed, Released} {
		if p := NewMachine(start(state)).Observe(round(b, c), 0).Answer().Proposal; p != nil {
			t.Errorf("%s proposes %v", state, p)
		}
	}
}

// TestAgreed: what rule 1 asks of one peer.
func TestAgreed(t *testing.T) {
	all := proposed("me", "nb", "nc")
	c := proposing(agentAt("c2", "nc", Prepared), all)
	for _, tt := range []struct {
		name string
		b    Sighting
		want bool
	}{
		{"the same", proposing(agentAt("b1", "nb", Prepared), all), true},
		{"no proposal yet", agentAt("b1", "nb", Prepared), false},
		{"another run of mine", proposing(agentAt("b1", "nb", Prepared), proposed("other", "nb", "nc")), false},
		{"another run of c", proposing(agentAt("b1", "nb", Prepared), proposed("me", "nb", "x")), false},
		{"one seat less", proposing(agentAt("b1", "nb", Prepared), all[:2]), false},
		{"bound to it", agentAt("b1", "nb", Committed), true},
		{"bound to another", boundTo(agentAt("b1", "nb", Committed), abc(diskX, diskB, diskC)), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := NewMachine(start(Prepared)).Observe(round(tt.b, c), 0).View()
			if v.Peers[0].Agreed != tt.want || !v.Peers[1].Agreed {
				t.Errorf("b %t, c %t", v.Peers[0].Agreed, v.Peers[1].Agreed)
			}
		})
	}
}

// TestCounted: an etcd of a birth that I propose, or that a peer is bound to.
func TestCounted(t *testing.T) {
	b, c := agentAt("b1", "nb", Prepared), agentAt("c2", "nc", Prepared)
	whole := NewMachine(start(Prepared)).Observe(round(b, c), 0)
	view := func(m Machine, peers ...Sighting) PeerView { return m.Observe(round(peers...), 0).View().Peers[0] }
	if p := view(whole, etcdAt("b1", mine()), c); !p.Counted || !p.Agreed {
		t.Errorf("of my last proposal: %+v", p)
	}
	if p := view(NewMachine(start(Prepared)), etcdAt("b1", mine()), c); p.Counted {
		t.Error("of a birth that nobody has told of")
	}
	if p := view(NewMachine(start(Prepared)), etcdAt("b1", mine()), agentAt("c2", "nc", Committed)); !p.Counted || !p.Agreed {
		t.Errorf("of the birth that c is bound to: %+v", p)
	}
	if p := view(whole, etcdAt("b1", "c9"), c); p.Counted || p.Agreed {
		t.Error("of another birth")
	}
	if p := view(NewMachine(start(Prepared)), etcdAt("b1", "c9"), agentAt("c2", "nc", Committed)); p.Counted || p.Agreed {
		t.Error("of another birth than the one that c is bound to")
	}
	if p := view(NewMachine(start(Prepared)), etcdAt("b1", mine()), agentAt("c2", "nc", Released)); p.Counted {
		t.Error("of the birth that c is released under: nothing is counted then")
	}
	// The proposal is made as soon as the disk has its ID: peers hear of it.
	fresh := NewMachine(start(Waiting)).Observe(round(b, c), 0).Prepare(diskA)
	if fresh.Answer().Proposal == nil {
		t.Fatal("nothing is proposed")
	}
	if p := view(fresh, etcdAt("b1", mine()), c); !p.Counted {
		t.Error("of the proposal that was made by the disk's own ID")
	}
	// With another plan, all that was known is gone.
	other := trio()
	other.Digest = "e"
	if p := whole.Replan(other).Observe(round(etcdAt("b1", mine()), withDigest(c, "e")), 0).View().Peers[0]; p.Counted {
		t.Error("of a proposal for another plan")
	}
}

// TestBound: what a sequence of sightings of b leaves.
func TestBound(t *testing.T) {
	c, r := agentAt("b1", "1", Committed), agentAt("b1", "1", Released)
	for _, tt := range []struct {
		name string
		seen []Sighting
		want bool
	}{
		{"waiting", []Sighting{agentAt("b1", "1", Waiting)}, false},
		{"prepared", []Sighting{agentAt("b1", "1", Prepared)}, false},
		{"committed", []Sighting{c}, true},
		{"released", []Sighting{r}, true},
		{"committed to another roster", []Sighting{boundTo(c, abc(diskA, diskX, diskC))}, false},
		{"committed, then silent", []Sighting{c, silent("b1")}, true},
		{"committed, then another disk", []Sighting{c, agentAt("b1", "2", Waiting)}, true},
		{"committed, then another plan", []Sighting{c, withDigest(c, "x")}, true},
		{"committed, then etcd", []Sighting{c, etcdAt("b1", mine())}, true},
		{"an etcd alone", []Sighting{etcdAt("b1", mine())}, false},
		{"another member", []Sighting{withMember(c, "c2")}, false},
		{"another plan", []Sighting{withDigest(c, "x")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMachine(start(Committed))
			for _, s := range tt.seen {
				m = m.Observe(round(s), 0)
			}
			if got := m.View().Peers[0].Bound; got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
	// What was seen before my own commit counts, if it is of the same roster.
	m := NewMachine(start(Prepared)).Observe(round(c, boundTo(agentAt("c2", "1", Committed), abc(diskX, diskB, diskC))), 0).Commit(allThree())
	if v := m.View(); !v.Peers[0].Bound || v.Peers[1].Bound {
		t.Errorf("after the commit: b %t, c %t", v.Peers[0].Bound, v.Peers[1].Bound)
	}
}

// TestFirm: which lists of an etcd of my cluster are believed.
func TestFirm(t *testing.T) {
	none := []Listed{{ID: "a1"}, {ID: "b1"}, {ID: "c2"}}
	some := []Listed{{ID: "a1"}, {ID: "b1", Started: true}, {ID: "c2"}}
	all := []Listed{{ID: "a1"}, {ID: "b1", Started: true}, {ID: "c2", Started: true}}
	type look struct {
		at   time.Duration
		list []Listed
		id   ID
	}
	at := func(ms int, list []Listed) look { return look{time.Duration(ms) * time.Millisecond, list, mine()} }
	for _, tt := range []struct {
		name  string
		looks []look
		want  bool
	}{
		{"once", []look{at(0, none)}, false},
		{"twice at once", []look{at(0, none), at(999, none)}, false},
		{"a second apart", []look{at(0, none), at(1000, none)}, true},
		{"a second apart, with others between", []look{at(0, none), at(500, some), at(1000, none)}, false},
		{"a second apart, from the last change on", []look{at(0, none), at(500, some), at(1500, some)}, true},
		{"all others have published", []look{at(0, all)}, true},
		{"an empty list", []look{at(0, nil), at(1000, nil)}, true},
		{"another cluster between", []look{at(0, none), {500, none, "c9"}, at(1000, none)}, false},
		{"another cluster", []look{{0, all, "c9"}, {time.Minute, all, "c9"}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMachine(start(Committed))
			for _, l := range tt.looks {
				m = m.Observe(round(etcdAt("b1", l.id, l.list...)), l.at)
			}
			if got := m.View().Peers[0].Firm; got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
	// One that the roster leaves out is not waited for, but must be listed.
	s := start(Committed)
	s.Roster = allThree()[:2]
	left := text(s.Roster.ClusterID("d"))
	if !NewMachine(s).Observe(round(etcdAt("b1", left, some...)), 0).View().Peers[0].Firm {
		t.Error("one that was left out is waited for")
	}
	if NewMachine(s).Observe(round(etcdAt("b1", left, some[:2]...)), 0).View().Peers[0].Firm {
		t.Error("a list of a part is whole")
	}
}

// TestFresh: no step on what was seen before the last one.
func TestFresh(t *testing.T) {
	m := NewMachine(start(Waiting))
	fresh := func(when string, want bool) {
		t.Helper()
		if got := m.View().Fresh; got != want {
			t.Errorf("%s: fresh %t", when, got)
		}
	}
	fresh("at first", false)
	all := round(agentAt("b1", "1", Committed), agentAt("c2", "1", Committed))
	m = m.Observe(all, 0)
	fresh("after a round", true)
	m = m.Prepare(diskA)
	fresh("after a disk ID", false)
	m = m.Observe(all, 0).Commit(allThree())
	fresh("after a commit", false)
	m = m.Observe(all, 0).Release()
	fresh("after a release", false)
	m = m.Observe(all, 0)
	fresh("after a round", true)
	m = NewMachine(start(Waiting)).Observe(all, 0).Replan(trio())
	fresh("after a plan", false)
	if v := m.View(); v.Peers[0].Now != Silent || v.Peers[0].Bound {
		t.Errorf("a new plan remembers %v", v.Peers[0].Now)
	}
}

// TestAnswer: what each state tells.
func TestAnswer(t *testing.T) {
	b, c := agentAt("b1", "nb", Prepared), agentAt("c2", "nc", Prepared)
	for _, state := range []State{Waiting, Prepared, Committed, Released} {
		s := start(state)
		s.Without = []string{"x"}
		a := NewMachine(s).Observe(round(b, c), 0).Answer()
		if a.Format != 2 || a.State != state || a.MemberID != "a1" || a.Nonce != "me" || a.Digest != "d" || len(a.Members) != 3 || len(a.Without) != 1 {
			t.Errorf("%s: %+v", state, a)
		}
		if (a.Disk != "") != (state != Waiting) || (a.Proposal != nil) != (state == Prepared) || (a.Roster != nil) != (state == Committed || state == Released) || (a.ClusterID != "") != (a.Roster != nil) {
			t.Errorf("%s: %+v", state, a)
		}
		if a.Roster != nil && a.ClusterID != mine() {
			t.Errorf("%s: cluster %s", state, a.ClusterID)
		}
		if err := a.check(); err != nil {
			t.Errorf("%s is an answer that is not believed: %v", state, err)
		}
	}
}

// TestLeftOut: --without names it.
func TestLeftOut(t *testing.T) {
	s := start(Waiting)
	s.Without = []string{"c"}
	v := NewMachine(s).View()
	if v.Peers[0].LeftOut || !v.Peers[1].LeftOut {
		t.Errorf("%+v", v.Peers)
	}
}

// TestFirstEdition: a seed without a roster knows its cluster's ID, and nobody is
// bound to it.
func TestFirstEdition(t *testing.T) {
	s := Start{Nonce: "me", Plan: trio(), State: Committed, ClusterID: "c1"}
	m := NewMachine(s).Observe(round(etcdAt("b1", "c1", Listed{ID: "a1"}), agentAt("c2", "n", Committed)), 0)
	if v := m.View(); v.Peers[0].Now != Unstarted || v.Peers[1].Bound || v.ClusterID != "c1" {
		t.Errorf("%+v", v)
	}
}

// TestMachineIsAValue: a method leaves its receiver as it was.
func TestMachineIsAValue(t *testing.T) {
	m := NewMachine(start(Prepared)).Observe(round(agentAt("b1", "1", Committed), agentAt("c2", "1", Prepared)), 0)
	before := m.String()
	_ = m.Observe(round(agentAt("b1", "2", Committed), silent("c2")), time.Hour)
	_ = m.Commit(allThree())
	_ = m.Commit(allThree()).Release()
	_ = m.Replan(trio())
	if after := m.String(); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	if m.Observe(round(agentAt("b1", "2", Committed)), 0).String() == before {
		t.Error("the text does not show what is known")
	}
}

func TestStandingNames(t *testing.T) {
	if Double.String() != "another run of this member" || Removed.String() != "running, does not list this member" || !IsReleased.Agrees() || Runs.Agrees() || !Removed.Etcd() || Mine.Etcd() {
		t.Error("standings are shifted")
	}
}

// TestPlan: who I am, and who the others are.
func TestPlan(t *testing.T) {
	p := trio()
	p.Self = "b1"
	if got := p.Me(); got.Name != "b" || len(got.PeerURLs) != 1 {
		t.Errorf("I am %+v", got)
	}
	if others := p.Others(); len(others) != 2 || others[0].Name != "a" || others[1].Name != "c" || len(p.Members) != 3 {
		t.Errorf("the others are %+v", others)
	}
	p.Self = "ff"
	if got := p.Me(); got.ID != "ff" || got.Name != "" || len(p.Others()) != 3 {
		t.Errorf("a stranger is %+v", got)
	}
}

// TestMachineString: the simulation takes machines of one text for one machine, so
// whatever changes a view or an answer has to change the text.
func TestMachineString(t *testing.T) {
	b, all := agentAt("b1", "nb", Prepared), proposed("me", "nb", "nc")
	elsewhere := agentAt("b1", "nb", Prepared)
	elsewhere.Answer.Disk = diskX
	sightings := []Sighting{
		silent("b1"),
		{Peer: "b1", Kind: Garbage},
		agentAt("b1", "nb", Waiting), agentAt("b1", "n2", Waiting),
		b, elsewhere, agentAt("b1", "n2", Prepared), proposing(b, all), proposing(b, proposed("other", "nb", "nc")), proposing(b, all[:2]),
		withDigest(b, "x"), withMember(b, "c2"),
		agentAt("b1", "nb", Committed), boundTo(agentAt("b1", "nb", Committed), abc(diskA, diskB, diskX)), boundTo(agentAt("b1", "nb", Committed), abc(diskA, diskX, diskC)),
		agentAt("b1", "nb", Released), boundTo(agentAt("b1", "nb", Released), abc(diskA, diskB, diskX)),
		etcdAt("b1", mine()), etcdAt("b1", mine(), Listed{ID: "a1"}), etcdAt("b1", mine(), Listed{ID: "a1", Started: true}),
		etcdAt("b1", mine(), Listed{ID: "b1", Started: true}), etcdAt("b1", mine(), Listed{ID: "a1"}, Listed{ID: "b1", Started: true}, Listed{ID: "c2", Started: true}),
		etcdAt("b1", "c9"), etcdAt("b1", "c8", Listed{ID: "a1"}),
	}
	c := proposing(agentAt("c2", "nc", Prepared), all)
	var machines []Machine
	for _, state := range []State{Waiting, Prepared, Committed, Released} {
		machines = append(machines, NewMachine(start(state)), NewMachine(start(state)).Observe(round(silent("b1"), silent("c2")), 0))
		for _, s := range sightings {
			once := NewMachine(start(state)).Observe(round(s, c), time.Second)
			machines = append(machines, once, once.Observe(round(s, c), time.Hour), once.Observe(round(s, silent("c2")), time.Hour), once.Observe(round(silent("b1"), c), time.Second))
		}
	}
	texts := make(map[string]string)
	for _, m := range machines {
		v, a := m.View(), m.Answer()
		text := fmt.Append(nil, v.State, v.Disk, v.Roster, v.ClusterID, v.Fresh, v.Self, a.Proposal)
		for _, p := range v.Peers {
			said := p.Last.Answer
			text = fmt.Append(text, p.Member.ID, p.Now, p.LeftOut, p.Agreed, p.Counted, p.Bound, p.Firm, said.Nonce, said.Disk, said.Proposal, said.Roster)
		}
		known := string(text)
		if other, ok := texts[m.String()]; ok && other != known {
			t.Errorf("two machines are called %q:\n%s\n%s", m, other, known)
		}
		texts[m.String()] = known
	}
}
