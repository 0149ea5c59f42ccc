package rendezvous

import (
	"testing"
)

func trio() Plan {
	return Plan{Digest: "d", ClusterID: "c1", Self: "a1", Members: []Member{
		{ID: "a1", Name: "a", PeerURLs: []string{"http://192.0.2.1:2380"}},
		{ID: "b1", Name: "b", PeerURLs: []string{"http://192.0.2.2:2380"}},
		{ID: "c2", Name: "c", PeerURLs: []string{"http://192.0.2.3:2380"}},
	}}
}

func agentAt(id ID, nonce string, state State) Sighting {
	return Sighting{Peer: id, Kind: Agent, Answer: Answer{Format: Format, Digest: "d", ClusterID: "c1", MemberID: id, Nonce: nonce, State: state}}
}

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

// TestStanding: what one sighting of b means to a.
func TestStanding(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    Sighting
		want Standing
	}{
		{"silence", silent("b1"), Silent},
		{"garbage", Sighting{Peer: "b1", Kind: Garbage}, Unknown},
		{"waiting", agentAt("b1", "n", Waiting), IsWaiting},
		{"committed", agentAt("b1", "n", Committed), IsCommitted},
		{"released", agentAt("b1", "n", Released), IsReleased},
		{"a state of the future", agentAt("b1", "n", "dancing"), Unknown},
		{"another plan", withDigest(agentAt("b1", "n", Committed), "x"), Differs},
		{"another member", withMember(agentAt("b1", "n", Committed), "c2"), Astray},
		{"myself behind a load balancer", withMember(agentAt("b1", "me", Waiting), "a1"), Astray},
		{"etcd before its first election", etcdAt("b1", "c1", Listed{ID: "a1"}, Listed{ID: "b1"}, Listed{ID: "c2"}), Running},
		{"etcd that lists nobody yet", etcdAt("b1", "c1"), Running},
		{"etcd, I am not started", etcdAt("b1", "c1", Listed{ID: "a1"}, Listed{ID: "b1", Started: true}), Running},
		{"etcd, I am started", etcdAt("b1", "c1", Listed{ID: "b1", Started: true}, Listed{ID: "a1", Started: true}), Replaced},
		{"etcd, I am not listed", etcdAt("b1", "c1", Listed{ID: "b1", Started: true}, Listed{ID: "c2"}), Removed},
		{"etcd, I am not listed, nobody has published", etcdAt("b1", "c1", Listed{ID: "b1"}), Running},
		{"another cluster", etcdAt("b1", "c9", Listed{ID: "a1", Started: true}), Foreign},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMachine("me", trio(), Waiting).Observe(Round{Peers: []Sighting{tt.s, silent("c2")}})
			if got := m.View().Peers[0].Now; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestSelf: what answers at the own URL.
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
		{"etcd of mine", etcdAt("a1", "c1", Listed{ID: "a1"}), Running},
		{"etcd of mine, which is me", etcdAt("a1", "c1", Listed{ID: "a1", Started: true}), Replaced},
		{"etcd of others", etcdAt("a1", "c9"), Foreign},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMachine("me", trio(), Waiting).Observe(Round{Self: tt.s})
			if got := m.View().Self; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestSteadyAndProven: what a sequence of sightings of b leaves.
func TestSteadyAndProven(t *testing.T) {
	w, c, r := agentAt("b1", "1", Waiting), agentAt("b1", "1", Committed), agentAt("b1", "1", Released)
	w2, c2 := agentAt("b1", "2", Waiting), agentAt("b1", "2", Committed)
	for _, tt := range []struct {
		name   string
		seen   []Sighting
		steady bool
		proven Standing
	}{
		{"once", []Sighting{w}, false, IsWaiting},
		{"twice", []Sighting{w, w}, true, IsWaiting},
		{"the same run, further on", []Sighting{w, c}, true, IsCommitted},
		{"another run", []Sighting{w, w2}, false, IsWaiting},
		{"another run, committed", []Sighting{c, c2}, false, IsCommitted},
		{"with a gap", []Sighting{w, silent("b1"), w}, false, IsWaiting},
		{"after another plan", []Sighting{withDigest(w, "x"), w}, false, IsWaiting},
		{"another plan twice", []Sighting{withDigest(w, "x"), withDigest(w, "x")}, false, Differs},
		{"committed, then silent", []Sighting{c, silent("b1"), silent("b1")}, false, IsCommitted},
		{"released, then silent", []Sighting{r, silent("b1")}, false, IsReleased},
		{"waiting does not stick", []Sighting{w, silent("b1")}, false, Silent},
		{"committed, then waiting", []Sighting{c, w2}, false, IsWaiting},
		{"committed, then waiting, then silent", []Sighting{c, w2, silent("b1")}, false, Silent},
		{"committed, then another plan, then silent", []Sighting{c, withDigest(c2, "x"), silent("b1")}, false, Silent},
		{"committed, then a stranger, then silent", []Sighting{c, withMember(c2, "c2"), silent("b1")}, false, Silent},
		{"committed, then garbage, then silent", []Sighting{c, {Peer: "b1", Kind: Garbage}, silent("b1")}, false, Silent},
		{"committed, then another cluster, then silent", []Sighting{c, etcdAt("b1", "c9"), silent("b1")}, false, Silent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMachine("me", trio(), Waiting)
			for _, s := range tt.seen {
				m = m.Observe(Round{Peers: []Sighting{s}})
			}
			got := m.View().Peers[0]
			if got.Steady != tt.steady || got.Proven != tt.proven {
				t.Errorf("steady %t, proven %v; want %t, %v", got.Steady, got.Proven, tt.steady, tt.proven)
			}
		})
	}
}

// TestFresh: no step on what was seen before the last one.
func TestFresh(t *testing.T) {
	m := NewMachine("me", trio(), Waiting)
	if m.View().Fresh {
		t.Error("fresh before the first round")
	}
	m = m.Observe(Round{Peers: []Sighting{agentAt("b1", "1", Committed)}})
	if !m.View().Fresh {
		t.Error("not fresh after a round")
	}
	m = m.Advance(Committed)
	if v := m.View(); v.Fresh || v.State != Committed || v.Peers[0].Proven != IsCommitted {
		t.Errorf("after a step: fresh %t, state %s, b %v", v.Fresh, v.State, v.Peers[0].Proven)
	}
	m = m.Observe(Round{})
	if !m.View().Fresh {
		t.Error("not fresh after another round")
	}
}

// TestReplan: nothing that was seen under another plan counts.
func TestReplan(t *testing.T) {
	m := NewMachine("me", trio(), Waiting)
	for range 2 {
		m = m.Observe(Round{Peers: []Sighting{agentAt("b1", "1", Committed)}, Self: agentAt("a1", "me", Waiting)})
	}
	plan := trio()
	plan.Digest = "e"
	m = m.Replan(plan)
	if v := m.View(); v.Fresh || v.Self == Mine || v.Peers[0].Proven != Silent || v.Peers[0].Steady {
		t.Errorf("remembers: %s", m)
	}
	if a := m.Answer(); a.Digest != "e" || a.Nonce != "me" {
		t.Errorf("answers %+v", a)
	}
	m = m.Observe(Round{Peers: []Sighting{withDigest(agentAt("b1", "1", Waiting), "e")}})
	if m.View().Peers[0].Steady {
		t.Error("steady by a round under the old plan")
	}
}

// TestMachineIsAValue: a method leaves its receiver as it was.
func TestMachineIsAValue(t *testing.T) {
	m := NewMachine("me", trio(), Waiting)
	before := m.String()
	m.Observe(Round{Peers: []Sighting{agentAt("b1", "1", Committed)}})
	m.Advance(Released)
	if after := m.String(); after != before {
		t.Errorf("changed from %q to %q", before, after)
	}
}
