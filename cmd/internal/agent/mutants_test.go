//go:build mutants

package agent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
)

// mutant breaks one rule of the protocol: it changes what the real code is
// given, what it answers, or what the world does. killer is a script, or the
// start of a search; it must notice.
type mutant struct {
	rule   string
	killer string
	rules  rules
}

// atPeers changes each peer of a view.
func atPeers(change func(w *world, h *simHost, v *rendezvous.View, p *rendezvous.PeerView)) rules {
	return rules{view: func(w *world, h *simHost, v *rendezvous.View) {
		for i := range v.Peers {
			change(w, h, v, &v.Peers[i])
		}
	}}
}

// without is the table without some rows.
func without(names ...Rule) rules {
	return rules{rows: slices.DeleteFunc(table(), func(r row) bool { return slices.Contains(names, r.rule) })}
}

func mutants() []mutant {
	type (
		view  = rendezvous.View
		peer  = rendezvous.PeerView
		sight = rendezvous.Sighting
	)
	return []mutant{
		// Rule 1.
		{"1: proposals are compared", "two disks of one member", atPeers(func(_ *world, _ *simHost, v *view, p *peer) {
			p.Agreed = p.Agreed || v.Roster != nil && p.Now == rendezvous.IsPrepared
		})},
		{"1: runs are compared", "a copy of a prepared disk", atPeers(func(_ *world, _ *simHost, v *view, p *peer) {
			same := func(a rendezvous.Seat, i int) bool { return a.Seat == v.Roster[i] }
			said := p.Last.Answer.Proposal
			equal := p.Now == rendezvous.IsPrepared && len(said) == len(v.Roster) && v.State == rendezvous.Prepared
			for i := range said {
				equal = equal && same(said[i], i)
			}
			p.Agreed = p.Agreed || equal
		})},
		{"1: bound to another roster does not agree", "bound to another roster", atPeers(func(_ *world, _ *simHost, v *view, p *peer) {
			p.Agreed = p.Agreed || v.Roster != nil && p.Now == rendezvous.IsCommitted
			p.Bound = p.Bound || p.Now == rendezvous.IsCommitted
		})},
		{"1: all, not any, agree", "first boot", rules{view: func(_ *world, _ *simHost, v *view) {
			any1 := slices.ContainsFunc(v.Peers, func(p peer) bool { return p.Agreed })
			for i := range v.Peers {
				v.Peers[i].Agreed = any1 || v.Peers[i].Agreed
			}
		}}},
		{"1: an etcd of my birth counts", "etcd started early", atPeers(func(_ *world, _ *simHost, _ *view, p *peer) {
			if p.Counted {
				p.Counted, p.Agreed = false, false
			}
		})},
		{"1: only an etcd of my birth counts", "etcd started early, of another birth", atPeers(func(_ *world, _ *simHost, _ *view, p *peer) {
			p.Counted = p.Counted || p.Now == rendezvous.Runs
		})},
		{"1: one disk ID twice", "one disk ID twice", without(RuleShared)},
		{"1: a copy of my disk was bound", "a copy of a prepared disk", without(RuleCopied)},
		{"1: born without this disk", "--without is the same", without(RuleBornWithout)},
		{"1: all are there before the disk has its ID", "a late third", atPeers(func(_ *world, _ *simHost, _ *view, p *peer) {
			p.LeftOut = p.LeftOut || p.Now == rendezvous.Silent
		})},
		{"1: without an ID nothing is bound", "first boot", without(RuleAllThere)},
		{"1: --without is compared", "--without differs", atPeers(func(_ *world, _ *simHost, v *view, p *peer) {
			if p.Now != rendezvous.IsPrepared {
				return
			}
			for _, s := range p.Last.Answer.Proposal {
				if d := v.Roster.Disk(s.Member); d != "" && d != s.Disk {
					return
				}
			}
			p.Agreed = len(v.Roster) > 0 && len(p.Last.Answer.Proposal) > 0
		})},
		{"1: --without leaves out one that answers", "--without is the same", atPeers(func(_ *world, _ *simHost, _ *view, p *peer) {
			p.LeftOut = p.LeftOut && p.Now == rendezvous.Silent
		})},
		{"1: --without is a minority of others", "--without is wrong", without(RuleWithout)},

		// Rule 2.
		{"2: a seed is not bound again", "a commit that was frozen", rules{bindTwice: true}},
		{"2: only this disk ID is bound", "a commit that was frozen", rules{bindAny: true}},
		{"2: the disk ID goes before the seed is told", "a seed moved aside", rules{keepToken: true}},
		{"2: durable before it is said", "power fails after a word", rules{sayEarly: true}},
		{"2: what is found is made durable before it is said", "killed before the sync", rules{noConfirm: true}},
		{"2: both sides of a wal-dir are compared", "one side of a separate wal-dir", rules{dataSideOnly: true}},

		// Rule 3.
		{"3: all, not any, are bound", "first boot", rules{view: func(_ *world, _ *simHost, v *view) {
			any1 := slices.ContainsFunc(v.Peers, func(p peer) bool { return p.Bound })
			for i := range v.Peers {
				v.Peers[i].Bound = any1 || v.Peers[i].Bound
			}
		}}},
		{"3: prepared is not bound", "first boot", atPeers(func(_ *world, _ *simHost, _ *view, p *peer) {
			p.Bound = p.Bound || p.Now == rendezvous.IsPrepared
		})},
		{"3: bound to another roster is not bound to mine", "bound to another roster", atPeers(func(_ *world, _ *simHost, _ *view, p *peer) {
			p.Bound = p.Bound || p.Now == rendezvous.IsCommitted
		})},
		{"3: what is known stays known", "what is known stays known", atPeers(func(_ *world, _ *simHost, _ *view, p *peer) {
			p.Bound = p.Bound && p.Now != rendezvous.Silent
		})},
		{"3: all bound releases", "first boot", without(RuleAllBound)},
		{"3: a released peer releases", "a peer is released", without(RuleReleased)},
		{"3: an etcd that waits for me releases", "my cluster waits for me", without(RuleUnstarted)},
		{"3: one list is not enough", "the boot window", atPeers(func(_ *world, _ *simHost, _ *view, p *peer) { p.Firm = true })},
		{"3: somebody ran as me", "the boot window", without(RuleReplaced)},
		{"3: removed meanwhile", "removed meanwhile", without(RuleRemoved)},
		{"3: another cluster does not release", "another birth runs", rules{sight: func(_ *world, h *simHost, s *sight) {
			if s.Kind == rendezvous.Etcd && h.machine.State == rendezvous.Committed {
				s.ClusterID = h.machine.ClusterID
			}
		}}},
		{"3: another cluster is told", "a survivor called empty, and a new birth", without(RuleOtherRuns)},
		{"3: an etcd that lists nobody says nothing", "the boot window", atPeers(func(_ *world, _ *simHost, _ *view, p *peer) {
			if p.Now == rendezvous.Vague || p.Now == rendezvous.Unstarted {
				p.Now, p.Firm = rendezvous.Unstarted, true
			}
		})},

		// Rule 4.
		{"4: look before each answer", "the volume vanishes", rules{noLookAnswer: true}},
		{"4: look before each step", "the directory changes before a step", rules{noLookStep: true}},
		{"4: look before each round", "the volume vanishes", rules{noLookRound: true}},
		{"4: no step on an old round", "a release on an old round", rules{oldRounds: true}},
		{"4: the mark is removed through a handle", "a release that was frozen, of another directory", rules{releaseByPath: true}},
		{"4: one more look after the release", "a release that is contradicted", rules{noLastLook: true}},
		{"4: a contradiction puts the mark back", "a release that is contradicted", without(RuleContradicted)},
		{"4: a twin at my own URL is a contradiction", "a twin at my own URL", rules{view: func(_ *world, _ *simHost, v *view) {
			if v.Self == rendezvous.Double {
				v.Self = rendezvous.Mine
			}
		}}},
		{"4: silence after the release does not contradict", "a twin at my own URL", rules{view: func(_ *world, _ *simHost, v *view) {
			if v.State == rendezvous.Released && v.Self == rendezvous.Silent {
				v.Self = rendezvous.Double
				v.SelfLast.Answer.Roster = v.Roster
			}
		}}},

		// Rule 5.
		{"5: an empty disk and a running cluster", "a disk lost after the birth", without(RuleOwnEtcd, RuleRunning, RuleBornWithout)},
		{"5: an etcd at my own URL too", "an etcd at my own URL", rules{view: func(_ *world, _ *simHost, v *view) {
			if v.Self.Etcd() {
				v.Self = rendezvous.Silent
			}
		}}},

		// Rule 6.
		{"6: addresses are looked up again", "an address moves", rules{oldAddresses: true}},
		{"6: a plan that DNS has changed is taken over", "DNS changes the plan", rules{noReplan: true}},

		// Rule 7.
		{"7: two looks a second apart", "a dead roster is withdrawn", rules{quickProof: true}},
		{"7: a proof", "no proof, no withdrawal", rules{anyProof: true}},
		{"7: a seed that was taken back counts", "a dead roster is withdrawn", rules{answer: func(_ *world, _ *simHost, a *rendezvous.Answer) { a.Withdrawn = nil }}},
		{"7: it counts by its mark", "moved aside, and not taken back", rules{unmarked: true}},
		{"7: it counts as long as it has its mark", "taken back while a release is frozen", rules{unmarked: true}},
		{"7: it counts under its own cluster", "taken back before this birth", rules{sight: func(w *world, _ *simHost, s *sight) {
			for _, l := range w.lives[:w.nLives] {
				if len(s.Answer.Withdrawn) > 0 {
					s.Answer.Withdrawn = append(slices.Clone(s.Answer.Withdrawn), l.cluster)
				}
			}
		}}},
		{"7: what is released is not taken back", "a withdrawal that sleeps", rules{takeAny: true}},

		// Rules 8 and 9.
		{"8: the member that was asked answers", "another member answers", rules{sight: func(_ *world, _ *simHost, s *sight) {
			if s.Kind == rendezvous.Agent {
				s.Answer.MemberID = s.Peer
			}
		}}},
		{"8: the plan's digest is compared", "another token", rules{sight: func(w *world, h *simHost, s *sight) {
			if s.Kind == rendezvous.Agent {
				s.Answer.Digest, s.Answer.MemberID = w.plans[h.plan].Digest, s.Peer
			}
		}}},
		{"9: silence is not a waiting agent", "a late third", rules{sight: func(w *world, h *simHost, s *sight) {
			if s.Kind == rendezvous.NoAnswer {
				s.Kind, s.Answer = rendezvous.Agent, rendezvous.Answer{Digest: w.plans[h.plan].Digest, MemberID: s.Peer, State: rendezvous.Waiting, Nonce: "?"}
			}
		}}},
		// The same, found by searching.
		{"search: proposals of all, not any", "three, a crash", rules{view: func(_ *world, _ *simHost, v *view) {
			any1 := slices.ContainsFunc(v.Peers, func(p peer) bool { return p.Bound })
			for i := range v.Peers {
				v.Peers[i].Bound = any1 || v.Peers[i].Bound
			}
		}}},
		{"search: bound again", "two, a crash, a freeze, slow", rules{bindTwice: true}},
		{"search: any disk ID is bound", "two, a disk mounted late", rules{bindAny: true}},
		{"search: the disk ID stays", "two, a seed moved aside", rules{keepToken: true}},
		{"search: said before it is durable", "two, power failures", rules{sayEarly: true}},
		{"search: what is found is not made durable", "two, power failures", rules{noConfirm: true}},
		{"search: one side of a wal-dir is not looked at", "two, a wal-dir, rolled back", rules{dataSideOnly: true}},
		{"search: no look before an answer", "two, a disk mounted late", rules{noLookAnswer: true}},
		{"search: the mark of what is there now", "two, a disk mounted late", rules{releaseByPath: true}},
		{"search: old addresses", "two, one with two disks, a route", rules{oldAddresses: true}},
		{"search: an old plan", "three, two views of DNS", rules{noReplan: true}},
		{"search: prepared counts as bound", "three, a lost message, slow", atPeers(func(_ *world, _ *simHost, _ *view, p *peer) {
			p.Bound = p.Bound || p.Now == rendezvous.IsPrepared
		})},
		{"search: an etcd does not release", "two wrote, a crash, a lost disk", without(RuleUnstarted)},

		{"a pending seed of another token is foreign", "another token", without(RuleOtherToken)},
		{"a disk with one side lost is damaged", "one side of a separate wal-dir", without(RuleDamaged)},
		{"a copy of a machine that runs", "a copy of a machine that runs", without(RuleNobodyTwice)},
		{"a run that begins anew has another nonce", "a copy of a prepared disk", rules{answer: func(_ *world, _ *simHost, a *rendezvous.Answer) {
			a.Nonce = "same"
			for i := range a.Proposal {
				a.Proposal[i].Nonce = "same"
			}
		}}},
	}
}

// killed runs a mutant's killer, and returns what that noticed.
func killed(t *testing.T, m *mutant) error {
	t.Helper()
	for _, sc := range scripts() {
		if sc.name == m.killer {
			return play(sc.run, &m.rules)
		}
	}
	for _, s := range starts(t) {
		if s.name != m.killer {
			continue
		}
		w := *s.world
		w.rules = &m.rules
		r := explore(&w, 60_000, 8)
		if r.err != nil {
			return fmt.Errorf("%w by %v", r.err, shorten(&w, r.trace))
		}
		return nil
	}
	t.Fatalf("there is no script and no start %q", m.killer)
	return nil
}

// TestMutants breaks every rule of the protocol, one at a time.
func TestMutants(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			err := killed(t, &m)
			if err == nil {
				t.Fatalf("%q does not notice", m.killer)
			}
			first := []byte(err.Error())
			if i := slices.Index(first, '\n'); i >= 0 {
				first = first[:i]
			}
			t.Logf("%s: %s", m.killer, first)
		})
	}
}

// TestMutantsRows leaves out each row of the table: the product of inputs
// notices, and so does a script, where the simulation comes to that row.
func TestMutantsRows(t *testing.T) {
	for _, r := range table() {
		t.Run(string(r.rule), func(t *testing.T) {
			t.Parallel()
			m := without(r.rule)
			if noticed(m.rows) == "" {
				t.Error("the product does not notice")
			}
			for _, sc := range scripts() {
				if play(sc.run, &m) != nil {
					t.Logf("noticed by %q", sc.name)
					return
				}
			}
			t.Log("only the product notices")
		})
	}
}
