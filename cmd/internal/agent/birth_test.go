package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

// TestFirstBoot: all agents of a new cluster seed their disks with one cluster
// ID, and a restart keeps them, without DNS.
func TestFirstBoot(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3, 5} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, size)
			nodes := l.nodes(t)
			out := t.TempDir()
			results := make(map[string]*Result)
			for i, r := range startAll(t, nodes, func(c *Config) { c.EnvFile = filepath.Join(out, c.SelfIP.String()) }) {
				results[nodes[i].name] = r.ok()
			}
			record := wantBorn(t, nodes...)
			if size > 1 && len(record.Roster) != size {
				t.Errorf("a roster of %d", len(record.Roster))
			}
			for _, n := range nodes {
				r, s := results[n.name], n.state(t)
				if r.Action != Seeded || r.Name != n.name || r.MemberID != n.id(t) || r.ClusterID != record.ClusterID.String() || r.DataDir != n.data || len(r.Members) != size {
					t.Errorf("%s: %+v", n.name, r)
				}
				if len(r.Warnings) > 0 || len(r.Spans) == 0 || !strings.HasPrefix(r.Message, "seeded "+n.name) {
					t.Errorf("%s: message %q, warnings %q, spans %v", n.name, r.Message, r.Warnings, r.Spans)
				}
				if !s.Pristine || len(s.Leftovers) > 0 {
					t.Errorf("%s: pristine: %t, leftovers %q", n.name, s.Pristine, s.Leftovers)
				}
				env, err := os.ReadFile(r.EnvFile)
				if err != nil || !strings.Contains(string(env), "ETCD_NAME") || !strings.Contains(string(env), clientURL(n.name)) {
					t.Errorf("%s: handoff %s, %v", n.name, env, err)
				}
			}
			l.breakDNS(nodes[0].name, &discovery.Error{Kind: discovery.Retry, Msg: "no DNS"})
			again := nodes[0].start(t).ok()
			if again.Action != Kept || !strings.Contains(again.Message, "already initialised as m1") || !strings.Contains(again.Message, "DNS not used") || again.ClusterID != record.ClusterID.String() {
				t.Errorf("restarted: %+v", again)
			}
		})
	}
}

// TestWALDir: the same with a separate wal-dir.
func TestWALDir(t *testing.T) {
	t.Parallel()
	nodes := newLab(t, 3).nodes(t)
	for _, n := range nodes {
		n.wal = filepath.Join(t.TempDir(), "wal")
	}
	for _, r := range startAll(t, nodes) {
		if res := r.ok(); res.WALDir == "" {
			t.Errorf("no wal-dir in %+v", res)
		}
	}
	wantBorn(t, nodes...)
}

// TestLateMember: two wait for the third, and say so.
func TestLateMember(t *testing.T) {
	t.Parallel()
	nodes := newLab(t, 3).nodes(t)
	list := startAll(t, nodes[:2])
	for _, r := range list {
		w := r.sees("2 of 3 members ready, awaiting m3 (silent)", "m3 is silent", nodes[2].peerURL("m3"))
		if w.Left != 0 || w.Next <= 0 {
			t.Errorf("without a deadline: %+v", w)
		}
	}
	for _, n := range nodes[:2] {
		if s := n.state(t); s.Kind != seed.Empty || s.DiskID != "" {
			t.Errorf("%s has a disk ID before all are there: %+v", n.name, s)
		}
	}
	allOK(t, append(list, nodes[2].start(t)))
	wantBorn(t, nodes...)
}

// TestPeerMovesWhileWaiting: a member that comes up at another address is found
// soon after DNS tells it.
func TestPeerMovesWhileWaiting(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	a := l.node(t, "m1")
	run := a.start(t)
	run.sees("awaiting m2 (silent)")
	l.dns("m2", l.ip(9))
	b := l.node(t, "m2")
	moved := time.Now()
	other := b.start(t)
	run.ok()
	other.ok()
	if took := time.Since(moved); took > 10*time.Second {
		t.Errorf("found after %v", took)
	}
	wantBorn(t, a, b)
}

// TestPreparedPeerMoves: an address that changes after the disk has its ID is
// followed too, and the disk of the member that has moved counts, not the one
// that was there.
func TestPreparedPeerMoves(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	a, old, c := l.node(t, "m1"), l.node(t, "m2"), l.node(t, "m3")
	for _, n := range []*node{a, old} {
		n.prepare(t)
	}
	lost := old.state(t).DiskID
	runA, runOld := a.start(t), old.start(t)
	runA.sees("awaiting", "m3 (silent)")
	runOld.stop(exit.SignalError{Signal: os.Interrupt})
	if _, err := runOld.end(); exit.Of(err) != exit.Interrupted || !strings.Contains(err.Error(), "no member data was written") {
		t.Errorf("interrupted: %v", err)
	}
	l.dns("m2", l.ip(9))
	b := l.node(t, "m2")
	allOK(t, []*running{runA, b.start(t), c.start(t)})
	record := wantBorn(t, a, b, c)
	if record.Roster.Disk(b.id(t)) == lost {
		t.Error("the disk that is not there any more counts")
	}
}

// TestRecordLate: a node whose record comes late waits for it.
func TestRecordLate(t *testing.T) {
	t.Parallel()
	t.Run("no address", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 2)
		nodes := l.nodes(t)
		l.dns("m2", "")
		list := startAll(t, nodes)
		list[0].sees("2 of 2 peers", "no address for m2.example.org")
		l.dns("m2", l.ip(2))
		allOK(t, list)
		wantBorn(t, nodes...)
	})
	t.Run("an old address", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 2)
		nodes := l.nodes(t)
		l.ttl = time.Second
		l.dns("m2", l.ip(9))
		r := nodes[1].start(t)
		r.sees("this node's own record", "no peer has a local address")
		l.dns("m2", l.ip(2))
		allOK(t, []*running{r, nodes[0].start(t)})
		wantBorn(t, nodes...)
	})
	t.Run("never", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 2)
		n := l.node(t, "m2")
		l.dns("m2", l.ip(9))
		n.start(t).refused(exit.NotSelf, "", "no peer has a local address")
		l.ttl = time.Minute
		r := n.start(t, limit(time.Second))
		r.refused(exit.NotSelf, "", "no peer has a local address")
	})
}

// TestPlanChanges: records that change before anything is bound are taken over.
func TestPlanChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.dns("m4", l.ip(4))
	first := []*node{l.node(t, "m1"), l.node(t, "m2")}
	list := startAll(t, first)
	list[0].sees("awaiting m4 (silent)")
	l.forget("m4")
	l.dns("m3", l.ip(3))
	third := l.node(t, "m3")
	allOK(t, append(list, third.start(t)))
	wantBorn(t, append(first, third)...)
}

// TestPlansDiffer: two resolvers that name different members are told, and nothing
// is bound.
func TestPlansDiffer(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.dns("m3", l.ip(3))
	a, b := l.node(t, "m1"), l.node(t, "m2")
	r := a.start(t)
	r.sees("awaiting")
	other := newLab(t, 0)
	other.subnet, other.port = l.subnet, l.port
	for i, name := range []string{"m1", "m2", "m4"} {
		other.dns(name, l.ip([]int{1, 2, 4}[i]))
	}
	b.lab = other
	rb := b.start(t)
	r.sees("m2 plans another cluster", "-m3=", "+m4=")
	rb.sees("m1 plans another cluster", "+m3=", "-m4=")
	for _, n := range []*node{a, b} {
		if s := n.state(t); s.Kind != seed.Empty || s.DiskID != "" {
			t.Errorf("%s: %+v", n.name, s)
		}
	}
}

// TestTokensDiffer: another token is said so.
func TestTokensDiffer(t *testing.T) {
	t.Parallel()
	nodes := newLab(t, 2).nodes(t)
	nodes[1].flags = append(nodes[1].flags, etcdFlag("initial-cluster-token", "another"))
	list := startAll(t, nodes)
	list[0].sees("m2 plans another cluster", "another initial-cluster-token")
	list[1].sees("m1 plans another cluster", "another initial-cluster-token")
}

// TestWithout: all members of the roster are given the same names, or nothing is
// bound.
func TestWithout(t *testing.T) {
	t.Parallel()
	t.Run("the same", func(t *testing.T) {
		t.Parallel()
		nodes := newLab(t, 3).nodes(t)
		for _, r := range startAll(t, nodes[:2], leaveOut("m3")) {
			res := r.ok()
			if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "released without m3") {
				t.Errorf("warnings %q", res.Warnings)
			}
		}
		record := wantBorn(t, nodes[:2]...)
		if len(record.Roster) != 2 || len(nodes[0].state(t).Members) != 3 {
			t.Errorf("a roster of %v", record.Roster)
		}
	})
	t.Run("different", func(t *testing.T) {
		t.Parallel()
		nodes := newLab(t, 3).nodes(t)
		a := nodes[0].start(t, leaveOut("m3"))
		b, c := nodes[1].start(t), nodes[2].start(t)
		a.sees("m2 waits for m3, which this node leaves out (--without): give all members the same --without")
		b.sees("m1 leaves out m3 (its --without), this node does not: give all members the same --without")
		c.sees("m1 leaves out m3 (its --without)")
		for _, n := range nodes {
			if s := n.state(t); s.Kind != seed.Empty {
				t.Errorf("%s is bound", n.name)
			}
		}
	})
	t.Run("wrong", func(t *testing.T) {
		t.Parallel()
		nodes := newLab(t, 3).nodes(t)
		nodes[0].start(t, leaveOut("m2", "m3")).refused(exit.Config, "without", "it may name at most 1")
		nodes[0].start(t, leaveOut("m1")).refused(exit.Config, "without", "not among the other members, which are m")
		nodes[0].start(t, leaveOut("m9")).refused(exit.Config, "without", "--without m9: it is not among")
	})
}

// TestTwoDisksOfOneMember: a second host with the identity of a member keeps all
// waiting, with words that name both disks; once it has gone, the birth goes on.
func TestTwoDisksOfOneMember(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	nodes := l.nodes(t)
	twin := &node{lab: l, name: "m1", ip: l.ip(9), data: filepath.Join(t.TempDir(), "data"), asker: "twin"}
	l.view("twin", "m1", twin.ip)
	l.view("m3", "m1", twin.ip) // m3 goes to the other one
	list := startAll(t, nodes)
	second := twin.start(t)
	mine, other := "", ""
	for mine == "" || other == "" {
		time.Sleep(5 * time.Millisecond)
		mine, other = string(nodes[0].state(t).DiskID), string(twin.state(t).DiskID)
	}
	list[0].sees("m3 sees another disk for m1 ("+other+", this node's is "+mine+")", "two hosts are m1")
	list[1].sees("m3 reaches another disk as m1 (" + other + ") than this node (" + mine + ")")
	list[2].sees("m2 reaches another disk as m1 (" + mine + ") than this node (" + other + ")")
	second.sees("m2 sees another disk for m1 (" + mine)
	for _, n := range append(slices.Clone(nodes), twin) {
		if n.state(t).Kind != seed.Empty {
			t.Errorf("%s at %s is bound", n.name, n.ip)
		}
	}
	second.stop(exit.SignalError{Signal: os.Interrupt})
	if _, err := second.end(); exit.Of(err) != exit.Interrupted {
		t.Error(err)
	}
	l.view("m3", "m1", nodes[0].ip)
	allOK(t, list)
	if record := wantBorn(t, nodes...); record.Roster.Disk(nodes[0].id(t)) != seed.DiskID(mine) {
		t.Error("another disk is bound than the one that is there")
	}
}

// TestSharedDisk: a copied disk is told, with both names.
func TestSharedDisk(t *testing.T) {
	t.Parallel()
	nodes := newLab(t, 3).nodes(t)
	disk := nodes[0].prepare(t)
	if err := os.CopyFS(nodes[1].data, os.DirFS(nodes[0].data)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	for _, r := range startAll(t, nodes) {
		go func() {
			<-r.done
			select {
			case ended <- r.err:
			case <-t.Context().Done():
			}
		}()
	}
	// Once the first one has seen it, the others may find that it has gone.
	select {
	case err := <-ended:
		wantRefusal(t, err, exit.Config, "disk-shared", "have one disk ID, "+string(disk), "m1", "m2", "nothing was seeded")
	case <-time.After(labTime):
		t.Error("nobody sees it")
	}
	for _, n := range nodes {
		if n.state(t).Kind != seed.Empty {
			t.Errorf("%s is bound", n.name)
		}
	}
}

// TestRestartInEveryState: a run that was stopped goes on where it was.
func TestRestartInEveryState(t *testing.T) {
	t.Parallel()
	t.Run("prepared", func(t *testing.T) {
		t.Parallel()
		nodes := newLab(t, 3).nodes(t)
		r := labRoster(t, nodes, nil)
		allOK(t, startAll(t, nodes))
		if record := wantBorn(t, nodes...); !record.Roster.Equal(r) {
			t.Errorf("other disks are bound than those that were prepared: %v, %v", record.Roster, r)
		}
	})
	for committed := 1; committed <= 3; committed++ {
		t.Run(strconv.Itoa(committed)+" committed", func(t *testing.T) {
			t.Parallel()
			_, nodes, r := pendingTrio(t, committed)
			for i, run := range startAll(t, nodes) {
				res := run.ok()
				if want := map[bool]Action{true: Kept, false: Seeded}[i < committed]; res.Action != want {
					t.Errorf("%s is %s, want %s", nodes[i].name, res.Action, want)
				}
			}
			if record := wantBorn(t, nodes...); !record.Roster.Equal(r) {
				t.Errorf("another birth: %v", record.Roster)
			}
		})
	}
	t.Run("one released, its etcd runs", func(t *testing.T) {
		t.Parallel()
		l, nodes, r := pendingTrio(t, 3)
		nodes[0].release(t)
		list := startAll(t, nodes[1:])
		for _, run := range list { // a crash kept both from hearing of it
			run.sees("awaiting m1 (silent)")
		}
		cluster := nodes[0].state(t).ClusterID.String()
		l.serve(t, nodes[0].ip, fakeEtcd(cluster, func() []listed { return nodes[0].list(t, "m1") }))
		allOK(t, list)
		if record := wantBorn(t, nodes...); !record.Roster.Equal(r) {
			t.Errorf("another birth: %v", record.Roster)
		}
	})
}
