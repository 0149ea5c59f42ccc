package agent

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/seed"
)

// TestEtcdOfMyCluster: what an etcd of its own cluster says of a pending member.
func TestEtcdOfMyCluster(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (*node, string) {
		t.Helper()
		_, nodes, _ := pendingTrio(t, 1)
		return nodes[0], nodes[0].state(t).ClusterID.String()
	}
	unchanged := func(t *testing.T, n *node, status exit.Status, reason string, words ...string) {
		t.Helper()
		before := tree(t, n.data)
		n.start(t, limit(4*time.Second)).refused(status, reason, words...)
		if now := tree(t, n.data); now != before {
			t.Errorf("the directory has changed from\n%sto\n%s", before, now)
		}
	}
	t.Run("it waits for this member alone", func(t *testing.T) {
		t.Parallel()
		n, cluster := begin(t)
		n.serve(t, n.lab.ip(2), fakeEtcd(cluster, func() []listed { return n.list(t, "m2", "m3") }))
		n.start(t).ok()
		if n.state(t).Pending {
			t.Error("not released")
		}
	})
	t.Run("it waits for two", func(t *testing.T) {
		t.Parallel()
		n, cluster := begin(t)
		n.serve(t, n.lab.ip(2), fakeEtcd(cluster, func() []listed { return n.list(t, "m2") }))
		began := time.Now()
		n.start(t).ok()
		if took := time.Since(began); took < time.Second || n.state(t).Pending {
			t.Errorf("pending: %t, after %v: two looks a second apart", n.state(t).Pending, took)
		}
	})
	t.Run("it is older than its list", func(t *testing.T) {
		t.Parallel()
		n, cluster := begin(t)
		var looks atomic.Int32
		n.serve(t, n.lab.ip(2), fakeEtcd(cluster, func() []listed {
			if looks.Add(1) < 4 {
				return nil // it has just restarted
			}
			return n.list(t, "m1", "m2", "m3")
		}))
		unchanged(t, n, exit.Unsafe, "disk-copied", "the etcd at "+n.peerURL("m2")+" says that m1", "has already run and published itself", "member remove "+n.id(t))
	})
	t.Run("it lists nobody", func(t *testing.T) {
		t.Parallel()
		n, cluster := begin(t)
		n.serve(t, n.lab.ip(2), fakeEtcd(cluster, func() []listed { return nil }))
		unchanged(t, n, exit.Disagree, "peers-disagree", "m2 is running, lists nobody yet", "not released")
	})
	t.Run("it has removed this member", func(t *testing.T) {
		t.Parallel()
		n, cluster := begin(t)
		n.serve(t, n.lab.ip(2), fakeEtcd(cluster, func() []listed {
			return slices.DeleteFunc(n.list(t, "m2", "m3"), func(l listed) bool { return l.name == "m1" })
		}))
		unchanged(t, n, exit.Unsafe, "removed", "does not list m1", "member add m1 --learner")
	})
	t.Run("another cluster is there", func(t *testing.T) {
		t.Parallel()
		n, cluster := begin(t)
		n.serve(t, n.lab.ip(2), fakeEtcd("c9", func() []listed { return n.list(t, "m2", "m3") }))
		unchanged(t, n, exit.Unsafe, "another-cluster-runs", "timeout of 4s has passed", "bound to cluster "+cluster, "an etcd of cluster c9 runs at "+n.peerURL("m2"), "where m2 was to be", "mv "+n.data+"/member ", "member remove")
		unlisted := newLab(t, 3).node(t, "m1")
		unlisted.commit(t, labRoster(t, []*node{unlisted}, map[string]seed.DiskID{"m2": someDisk("b"), "m3": someDisk("c")}))
		unlisted.serve(t, unlisted.lab.ip(2), fakeEtcd("c9", func() []listed {
			return slices.DeleteFunc(unlisted.list(t, "m2"), func(l listed) bool { return l.name == "m1" })
		}))
		_, err := unlisted.start(t, limit(4*time.Second)).end()
		wantRefusal(t, err, exit.Unsafe, "another-cluster-runs", "member add m1 --learner")
		if strings.Contains(strings.Join(exit.Refusal(err).Commands, "\n"), "member remove") {
			t.Errorf("it is not listed there: %q", exit.Refusal(err).Commands)
		}
	})
	t.Run("a peer is released", func(t *testing.T) {
		t.Parallel()
		_, nodes, r := pendingTrio(t, 1)
		n := nodes[0]
		n.serve(t, n.lab.ip(3), fakeAgent(fixedAnswer(nodes[2].boundAnswer(t, rendezvous.Released, r, "n"))))
		n.start(t).ok()
		if n.state(t).Pending {
			t.Error("not released")
		}
	})
	t.Run("a peer is released under another roster", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 3)
		nodes := l.nodes(t)
		r := labRoster(t, nodes, nil)
		nodes[0].commit(t, r)
		other := slices.Clone(r)
		for i := range other {
			if other[i].Member == nodes[0].id(t) {
				other[i].Disk = someDisk("a")
			}
		}
		l.serve(t, l.ip(3), fakeAgent(fixedAnswer(nodes[2].boundAnswer(t, rendezvous.Released, other, "n"))))
		unchanged(t, nodes[0], exit.Disagree, "peers-disagree", "m3 is bound to another roster")
	})
}

// TestEtcdAtAMembersURL: an empty disk is never seeded while an etcd runs at any
// member's URL, its own too.
func TestEtcdAtAMembersURL(t *testing.T) {
	t.Parallel()
	for _, prepared := range []bool{false, true} {
		early := "somebody has started etcd on a seed that was not released"
		for _, tt := range []struct {
			name  string
			at    int
			list  func(*testing.T, *node) []listed
			words []string
		}{
			{"lists this member", 2, func(t *testing.T, n *node) []listed { t.Helper(); return n.list(t, "m1", "m2", "m3") }, []string{
				"refusing to seed", "etcd 3.6.1 of cluster c9 (3 members) answers at", "so the data of m1 are gone", "can destroy acknowledged writes",
				"--endpoints=" + clientURL("m3") + "," + clientURL("m2"), "member remove", "member add m1 --learner", "etcdinit promote --wait",
			}},
			{"lists this member under another ID", 3, func(t *testing.T, n *node) []listed {
				t.Helper()
				all := n.list(t, "m1", "m2", "m3")
				for i := range all {
					if all[i].name == "m1" {
						all[i].id = "beef"
					}
				}
				return all
			}, []string{"so the data of m1 are gone", "member remove beef"}},
			{"does not list this member", 2, func(t *testing.T, n *node) []listed {
				t.Helper()
				return slices.DeleteFunc(n.list(t, "m2", "m3"), func(l listed) bool { return l.name == "m1" })
			}, []string{"it does not list", "plans a cluster of 3 members", "add it as a learner, which the next start takes up", "member add m1"}},
			{"lists nobody yet", 2, func(*testing.T, *node) []listed { return nil }, []string{"it does not list its members yet", "member remove"}},
			{"at its own URL", 9, func(t *testing.T, n *node) []listed { t.Helper(); return n.list(t, "m1", "m2", "m3") }, []string{"so the data of m1 are gone"}},
		} {
			t.Run(map[bool]string{true: "prepared, ", false: "empty, "}[prepared]+tt.name, func(t *testing.T) {
				t.Parallel()
				n := newLab(t, 3).node(t, "m1")
				if prepared {
					n.prepare(t)
				}
				n.view("m1", "m1", n.ip)
				n.serve(t, n.lab.ip(tt.at), fakeEtcd("c9", func() []listed { return tt.list(t, n) }))
				if tt.at == 9 { // another node has its address, and this one is told by name
					n.view("m1", "m1", n.lab.ip(9))
				}
				before := tree(t, n.data)
				r := n.start(t, func(c *Config) {
					if tt.at == 9 {
						c.SelfName = "m1"
					}
				})
				words := tt.words
				_, err := r.end()
				if tt.name == "lists this member" { // the order is that of the IDs
					words = append(slices.Clone(words[:4]), words[5:]...)
				}
				wantRefusal(t, err, exit.Unsafe, "cluster-runs", words...)
				if e := exit.Refusal(err); e != nil && strings.Contains(e.Msg, early) != prepared {
					t.Errorf("prepared: %t, and it says: %s", prepared, e.Msg)
				}
				if now := tree(t, n.data); now != before {
					t.Errorf("the directory has changed from\n%sto\n%s", before, now)
				}
			})
		}
	}
}

// TestBornElsewhere: a cluster that is released under a roster of other disks, or
// with a copy of this one.
func TestBornElsewhere(t *testing.T) {
	t.Parallel()
	t.Run("with another disk", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 3)
		nodes := l.nodes(t)
		r := labRoster(t, nodes, nil)
		nodes[0].lose(t)
		l.serve(t, l.ip(2), fakeAgent(fixedAnswer(nodes[1].boundAnswer(t, rendezvous.Released, r, "n"))))
		nodes[0].start(t).refused(exit.Unsafe, "cluster-runs", "was born with the disk "+string(r.Disk(nodes[0].id(t)))+" for m1, not with this disk", "member remove")
	})
	t.Run("without a disk of this member", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 3)
		nodes := l.nodes(t)
		r := labRoster(t, nodes[1:], nil)
		l.serve(t, l.ip(2), fakeAgent(fixedAnswer(nodes[1].boundAnswer(t, rendezvous.Released, r, "n"))))
		nodes[0].start(t).refused(exit.Unsafe, "cluster-runs", "was born with no disk for m1")
	})
	t.Run("with a copy of this disk", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 3)
		nodes := l.nodes(t)
		r := labRoster(t, nodes, nil)
		l.serve(t, l.ip(2), fakeAgent(fixedAnswer(nodes[1].boundAnswer(t, rendezvous.Released, r, "n"))))
		nodes[0].start(t).refused(exit.Unsafe, "disk-copied", "its disk ID "+string(r.Disk(nodes[0].id(t)))+" is bound already", "m2, released")
		if nodes[0].state(t).Kind != seed.Empty {
			t.Error("it was seeded")
		}
	})
	t.Run("etcd was started on a pending seed", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 3)
		nodes := l.nodes(t)
		r := labRoster(t, nodes, nil)
		committed := nodes[2].boundAnswer(t, rendezvous.Committed, r, "n")
		l.serve(t, l.ip(2), fakeEtcd(string(committed.ClusterID), func() []listed { return nodes[0].list(t, "m2") }))
		l.serve(t, l.ip(3), fakeAgent(fixedAnswer(committed)))
		if res := nodes[0].start(t).ok(); res.Action != Seeded || res.ClusterID != string(committed.ClusterID) {
			t.Errorf("%+v", res)
		}
	})
}

// TestContradicted: what shows only after the release puts the mark back, and the
// next run is refused as well.
func TestContradicted(t *testing.T) {
	t.Parallel()
	t.Run("an etcd lists this member as started", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 2)
		nodes := l.nodes(t)
		n := nodes[0]
		r := labRoster(t, nodes, nil)
		n.commit(t, r)
		cluster := n.state(t).ClusterID.String()
		agents := fakeAgent(fixedAnswer(nodes[1].boundAnswer(t, rendezvous.Committed, r, "n")))
		etcd := fakeEtcd(cluster, func() []listed { return n.list(t, "m1", "m2") })
		var asked atomic.Int32
		l.serve(t, l.ip(2), http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if asked.Add(1) == 1 {
				agents.ServeHTTP(w, q)
				return
			}
			etcd.ServeHTTP(w, q)
		}))
		n.start(t).refused(exit.Unsafe, "disk-copied", "refusing to start etcd on "+n.data, "after the release, the etcd at "+n.peerURL("m2")+" lists m1", "marked as pending again")
		if s := n.state(t); !s.Pending || s.ClusterID.String() != cluster {
			t.Errorf("the mark is not back: %+v", s)
		}
		n.start(t).refused(exit.Unsafe, "disk-copied", "refusing to release")
		if !n.state(t).Pending {
			t.Error("the second run has released it")
		}
	})
	t.Run("another run at its own URL", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 2)
		nodes := l.nodes(t)
		n := nodes[0]
		r := labRoster(t, nodes, nil)
		n.commit(t, r)
		l.serve(t, l.ip(2), fakeAgent(fixedAnswer(nodes[1].boundAnswer(t, rendezvous.Committed, r, "n"))))
		l.serve(t, l.ip(9), fakeAgent(fixedAnswer(n.boundAnswer(t, rendezvous.Committed, r, "the twin's"))))
		l.dns("m1", l.ip(9))
		var refused bool
		for range 5 { // a busy machine may not wait for its own URL
			_, err := n.start(t).end()
			if err == nil {
				if err = seed.Unrelease(n.state(t)); err != nil {
					t.Fatal(err)
				}
				continue
			}
			refused = true
			wantRefusal(t, err, exit.Unsafe, "disk-copied", "at this member's own URL "+n.peerURL("m1")+" answers another run that is bound to the same roster", l.ip(9))
			break
		}
		if !refused || !n.state(t).Pending {
			t.Errorf("refused: %t, pending: %t", refused, n.state(t).Pending)
		}
	})
	t.Run("silence does not contradict", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 2)
		nodes := l.nodes(t)
		n := nodes[0]
		r := labRoster(t, nodes, nil)
		n.commit(t, r)
		agents := fakeAgent(fixedAnswer(nodes[1].boundAnswer(t, rendezvous.Committed, r, "n")))
		var asked atomic.Int32
		l.serve(t, l.ip(2), http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if asked.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
			agents.ServeHTTP(w, q)
		}))
		n.start(t).ok()
		if n.state(t).Pending {
			t.Error("not released")
		}
	})
}

// TestLostSeat: a roster of which a disk is lost is told with both disks, and the
// way out once it is proven that no write was acknowledged.
func TestLostSeat(t *testing.T) {
	t.Parallel()
	_, nodes, r := pendingTrio(t, 2)
	lost := string(r.Disk(nodes[2].id(t)))
	nodes[2].lose(t)
	now := string(nodes[2].prepare(t))
	list := startAll(t, nodes[:2], limit(8*time.Second))
	third := nodes[2].start(t)
	list[0].sees("the roster of this seed names disk "+lost+" for m3", "answers disk "+now, "the first one was lost, or moved from its name")
	third.sees("is bound to a roster with another disk for m3 (" + lost)
	for _, run := range list {
		run.refused(exit.Disagree, "roster-lost", "no write can have been acknowledged", "withdraw the seed on each of these nodes", "etcdinit withdraw --data-dir "+run.n.data)
	}
	third.stop(interrupt())
	if _, err := third.end(); exit.Of(err) != exit.Interrupted {
		t.Error(err)
	}
	// With one of the disks silent, nothing is proven.
	nodes[0].start(t, limit(4*time.Second)).refused(exit.Disagree, "peers-disagree", "m2 is silent")
}

// TestWithdraw: with the proof the seed is moved aside and a new birth follows;
// without it nothing is touched.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	t.Run("proven", func(t *testing.T) {
		t.Parallel()
		_, nodes, r := pendingTrio(t, 2)
		nodes[2].lose(t)
		list := startAll(t, nodes)
		for _, n := range nodes[:2] {
			aside, err := Withdraw(t.Context(), n.config(t, limit(labTime)))
			if err != nil || len(aside) != 1 || !strings.HasPrefix(aside[0], n.data) {
				t.Fatalf("%s: %q, %v", n.name, aside, err)
			}
			if old, err := seed.Inspect(aside[0], ""); err != nil || !old.Pending || !old.Record.Roster.Equal(r) {
				t.Errorf("what was moved aside is %+v, %v", old, err)
			}
		}
		allOK(t, list)
		record := wantBorn(t, nodes...)
		for _, s := range r {
			if record.Roster.Disk(s.Member) == s.Disk {
				t.Errorf("the disk %s of the old roster counts", s.Disk)
			}
		}
	})
	t.Run("not proven", func(t *testing.T) {
		t.Parallel()
		_, nodes, _ := pendingTrio(t, 2)
		nodes[2].lose(t)
		nodes[1].start(t).sees("m1 (silent)")
		before := tree(t, nodes[0].data)
		_, err := Withdraw(t.Context(), nodes[0].config(t, limit(4*time.Second)))
		wantRefusal(t, err, exit.Disagree, "not-proven", "timeout of 4s has passed", "is not withdrawn", "m3 is silent", "m2", "must run its init")
		if tree(t, nodes[0].data) != before {
			t.Error("it was touched")
		}
	})
	t.Run("a member may be released", func(t *testing.T) {
		t.Parallel()
		_, nodes, r := pendingTrio(t, 2)
		nodes[0].serve(t, nodes[1].ip, fakeAgent(fixedAnswer(nodes[1].boundAnswer(t, rendezvous.Released, r, "n"))))
		nodes[0].serve(t, nodes[2].ip, fakeAgent(fixedAnswer(nodes[2].boundAnswer(t, rendezvous.Committed, r, "n"))))
		_, err := Withdraw(t.Context(), nodes[0].config(t, limit(3*time.Second)))
		wantRefusal(t, err, exit.Disagree, "not-proven", "m2 is released")
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		_, nodes, _ := pendingTrio(t, 1)
		ctx, stop := withSignal(t)
		waits := make(chan Wait, 100)
		done := make(chan error, 1)
		cfg := nodes[0].config(t, func(c *Config) { c.OnWait = func(w Wait) { waits <- w } })
		go func() {
			_, err := Withdraw(ctx, cfg)
			done <- err
		}()
		if w := <-waits; !strings.Contains(w.For, "the proof that no write was acknowledged") || !strings.Contains(w.Cause, "is silent") {
			t.Errorf("it waits for %+v", w)
		}
		stop(interrupt())
		if err := <-done; exit.Of(err) != exit.Interrupted {
			t.Error(err)
		}
	})
	t.Run("nothing to withdraw", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 3).node(t, "m1")
		_, err := Withdraw(t.Context(), n.config(t))
		wantRefusal(t, err, exit.Foreign, "not-pending", n.data+" is empty")
		n = released(t)
		_, err = Withdraw(t.Context(), n.config(t))
		wantRefusal(t, err, exit.Foreign, "not-pending", "a member's data")
		_, nodes, _ := pendingTrio(t, 1)
		nodes[0].vote(t)
		_, err = Withdraw(t.Context(), nodes[0].config(t))
		wantRefusal(t, err, exit.Foreign, "not-pending", "an etcd has run on it")
	})
}

// TestDryRun: a dry run says what would be done in every state, and writes nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	dry := func(t *testing.T, n *node, change ...func(*Config)) (*Result, error) {
		t.Helper()
		out := t.TempDir()
		before := tree(t, n.data)
		res, err := Init(t.Context(), n.config(t, append(change, func(c *Config) { c.EnvFile, c.Timeout = out+"/env", labTime })...), true)
		if now := tree(t, n.data); now != before {
			t.Errorf("the directory has changed from\n%sto\n%s", before, now)
		}
		if files, rerr := os.ReadDir(out); rerr != nil || len(files) > 0 {
			t.Errorf("a handoff was written: %v, %v", files, rerr)
		}
		return res, err
	}
	want := func(t *testing.T, res *Result, err error, action Action, words ...string) {
		t.Helper()
		if err != nil || res.Action != action {
			t.Fatalf("%+v, %v", res, err)
		}
		for _, w := range words {
			if !strings.Contains(res.Message, w) {
				t.Errorf("no %q in %s", w, res.Message)
			}
		}
		if strings.Contains(res.Message, "does not lead to it") {
			t.Errorf("a dry run does not answer at its own URL: %s", res.Message)
		}
	}
	t.Run("one member", func(t *testing.T) {
		t.Parallel()
		res, err := dry(t, newLab(t, 1).node(t, "m1"))
		want(t, res, err, WouldSeed, "would seed m1 (ID ")
		if res.Plan == nil || res.ClusterID != "" {
			t.Errorf("plan %v, cluster ID %q", res.Plan, res.ClusterID)
		}
	})
	t.Run("nobody asked", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 3).node(t, "m1")
		res, err := dry(t, n, none)
		want(t, res, err, WouldSeed)
		if res.ClusterID != n.plan(t).ClusterID.String() {
			t.Errorf("cluster ID %q", res.ClusterID)
		}
	})
	t.Run("nobody is there", func(t *testing.T) {
		t.Parallel()
		res, err := dry(t, newLab(t, 3).node(t, "m1"))
		want(t, res, err, WouldWait, "would wait: ", "m2 is silent", "m3 is silent")
	})
	t.Run("all are there", func(t *testing.T) {
		t.Parallel()
		nodes := newLab(t, 3).nodes(t)
		for _, r := range startAll(t, nodes[1:]) {
			r.sees("m1 (silent)")
		}
		res, err := dry(t, nodes[0])
		want(t, res, err, WouldSeed)
	})
	t.Run("prepared", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 3).node(t, "m1")
		disk := n.prepare(t)
		res, err := dry(t, n)
		want(t, res, err, WouldWait)
		if res.DiskID != disk {
			t.Errorf("disk %s", res.DiskID)
		}
	})
	t.Run("pending", func(t *testing.T) {
		t.Parallel()
		_, nodes, _ := pendingTrio(t, 1)
		res, err := dry(t, nodes[0])
		want(t, res, err, WouldWait, "m2 is silent")
	})
	t.Run("pending, a peer is released", func(t *testing.T) {
		t.Parallel()
		_, nodes, r := pendingTrio(t, 1)
		nodes[0].serve(t, nodes[1].ip, fakeAgent(fixedAnswer(nodes[1].boundAnswer(t, rendezvous.Released, r, "n"))))
		res, err := dry(t, nodes[0])
		want(t, res, err, WouldKeep, "already initialised as m1")
	})
	t.Run("first edition", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 3).node(t, "m1")
		n.first(t)
		res, err := dry(t, n)
		want(t, res, err, WouldWait, "m2 is silent")
	})
	t.Run("released", func(t *testing.T) {
		t.Parallel()
		res, err := dry(t, released(t))
		want(t, res, err, WouldKeep, "already initialised as m1")
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 3).node(t, "m1")
		n.serve(t, n.lab.ip(2), fakeEtcd("c9", func() []listed { return nil }))
		_, err := dry(t, n)
		wantRefusal(t, err, exit.Unsafe, "cluster-runs")
	})
	t.Run("records name nobody", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.dns("m1", n.lab.ip(9))
		res, err := dry(t, n)
		want(t, res, err, WouldKeep)
		wantWarning(t, res, "which are kept")
	})
}

// TestCheck: a directory is held against discovery as a restart would, and nothing
// is written.
func TestCheck(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, n *node) ([]string, error) {
		t.Helper()
		before := tree(t, n.data)
		warnings, err := Check(t.Context(), n.config(t, limit(labTime)), n.state(t))
		if now := tree(t, n.data); now != before {
			t.Errorf("the directory has changed from\n%sto\n%s", before, now)
		}
		return warnings, err
	}
	for name, begin := range map[string]func(*testing.T) *node{
		"released": released,
		"pending":  func(t *testing.T) *node { t.Helper(); _, nodes, _ := pendingTrio(t, 1); return nodes[0] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if warnings, err := check(t, begin(t)); err != nil || len(warnings) > 0 {
				t.Errorf("%q, %v", warnings, err)
			}
		})
	}
	t.Run("another member's", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.dns("m1", n.lab.ip(9))
		n.dns("m2", n.ip)
		_, err := check(t, n)
		wantRefusal(t, err, exit.Foreign, "foreign-data")
	})
	t.Run("not in the records", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.dns("m1", n.lab.ip(9))
		if warnings, err := check(t, n); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "no peer has a local address") {
			t.Errorf("%q, %v", warnings, err)
		}
	})
	t.Run("a copy", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.dns("m1", n.lab.ip(9))
		n.serve(t, n.lab.ip(9), fakeEtcd(n.state(t).ClusterID.String(), func() []listed { return n.list(t, "m1") }))
		_, err := check(t, n)
		wantRefusal(t, err, exit.Foreign, "disk-copied")
	})
}

// TestProbe: what each member says of itself, with the answer of discovery.
func TestProbe(t *testing.T) {
	t.Parallel()
	nodes := newLab(t, 4).nodes(t)
	n := nodes[0]
	r := labRoster(t, nodes[1:2], nil)
	n.serve(t, nodes[1].ip, fakeAgent(fixedAnswer(nodes[1].boundAnswer(t, rendezvous.Committed, r, "n"))))
	n.serve(t, nodes[2].ip, fakeEtcd("c9", func() []listed { return n.list(t, "m3") }))
	found, view, err := Probe(t.Context(), n.config(t))
	if err != nil || found.Peer().Name != "m1" || len(view.Peers) != 3 {
		t.Fatalf("%+v, %+v, %v", found, view, err)
	}
	for i := range view.Peers {
		p := &view.Peers[i]
		want := map[string]string{"m2": "etcdinit of member " + nodes[1].id(t) + ", committed, disk " + string(r[0].Disk) + ", cluster ", "m3": "etcd 3.6.1 of cluster c9, 4 members", "m4": "connection refused"}[p.Member.Name]
		if got := Seen(p); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", p.Member.Name, got, want)
		}
	}
	if files, rerr := os.ReadDir(n.data); rerr == nil {
		t.Errorf("something was written: %v", files)
	}
	n.dns("m1", n.lab.ip(9))
	found, _, err = Probe(t.Context(), n.config(t))
	if exit.Of(err) != exit.NotSelf || found == nil || found.Self != -1 || len(found.Peers) != 4 {
		t.Errorf("nobody: %+v, %v", found, err)
	}
	if _, err := Discover(t.Context(), n.config(t, func(c *Config) { c.Source = "gone:x" })); exit.Of(err) != exit.Config {
		t.Errorf("no such source: %v", err)
	}
}
