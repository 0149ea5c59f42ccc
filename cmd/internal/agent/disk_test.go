package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

// mount makes a directory that was made elsewhere appear at a node's data-dir, as
// a volume that is mounted late does.
func (n *node) mount(t *testing.T, dir string) {
	t.Helper()
	n.lose(t)
	if err := os.Rename(dir, n.data); err != nil {
		t.Fatal(err)
	}
}

// alone makes the directory of a whole cluster's member somewhere else.
func (n *node) elsewhere(t *testing.T) *node {
	t.Helper()
	e := *n
	e.data = filepath.Join(t.TempDir(), "elsewhere")
	return &e
}

// TestVolumeLate: data that appear while an agent waits are looked at, whatever
// the agent has said before.
func TestVolumeLate(t *testing.T) {
	t.Parallel()
	foreign := func(t *testing.T) string { // of another cluster, with the same name
		t.Helper()
		other := newLab(t, 2).node(t, "m1")
		other.commit(t, labRoster(t, []*node{other}, map[string]seed.DiskID{"m2": someDisk("b")}))
		other.release(t)
		return other.data
	}
	for _, begins := range []struct {
		name  string
		begin func(*testing.T, *node) // what the disk is before
	}{
		{"waiting", func(*testing.T, *node) {}},
		{"prepared", func(t *testing.T, n *node) { t.Helper(); n.prepare(t) }},
		{"pending", func(t *testing.T, n *node) {
			t.Helper()
			n.commit(t, labRoster(t, []*node{n}, map[string]seed.DiskID{"m2": someDisk("b"), "m3": someDisk("c")}))
		}},
		{"pending, without DNS", func(t *testing.T, n *node) {
			t.Helper()
			n.commit(t, labRoster(t, []*node{n}, map[string]seed.DiskID{"m2": someDisk("b"), "m3": someDisk("c")}))
			n.breakDNS(n.name, &discovery.Error{Kind: discovery.Retry, Msg: "no DNS"})
		}},
	} {
		t.Run(begins.name, func(t *testing.T) {
			t.Parallel()
			start := func(t *testing.T) (*node, *running) {
				t.Helper()
				n := newLab(t, 3).node(t, "m1")
				begins.begin(t, n)
				r := n.start(t)
				r.sees("silent")
				return n, r
			}
			t.Run("a released member", func(t *testing.T) {
				t.Parallel()
				n, r := start(t)
				e := n.elsewhere(t)
				record := e.commit(t, labRoster(t, []*node{e}, map[string]seed.DiskID{"m2": someDisk("d"), "m3": someDisk("e")})).Record
				e.release(t)
				n.mount(t, e.data)
				res := r.ok()
				if res.Action != Kept || res.ClusterID != record.ClusterID.String() || res.DiskID != record.DiskID || !strings.Contains(res.Message, "already initialised as m1") {
					t.Errorf("got %+v", res)
				}
			})
			t.Run("foreign data", func(t *testing.T) {
				t.Parallel()
				n, r := start(t)
				n.breakDNS(n.name, nil)
				before := foreign(t)
				n.mount(t, before)
				r.refused(exit.Foreign, "foreign-data", "belongs to m1", "nothing was changed")
			})
			t.Run("damaged data", func(t *testing.T) {
				t.Parallel()
				n, r := start(t)
				e := n.elsewhere(t)
				e.commit(t, labRoster(t, []*node{e}, map[string]seed.DiskID{"m2": someDisk("d"), "m3": someDisk("e")}))
				if err := os.Remove(filepath.Join(e.data, "member", "snap", "db")); err != nil {
					t.Fatal(err)
				}
				n.mount(t, e.data)
				r.refused(exit.Damaged, "damaged", "nothing was changed")
			})
			t.Run("vanishes", func(t *testing.T) {
				t.Parallel()
				n, r := start(t)
				disk := n.state(t).DiskID
				n.lose(t)
				n.breakDNS(n.name, nil)
				nodes := []*node{n, n.node(t, "m2"), n.node(t, "m3")}
				for _, run := range []*running{nodes[1].start(t), nodes[2].start(t), r} {
					if res := run.ok(); res.Action != Seeded {
						t.Errorf("%s is %s", run.n.name, res.Action)
					}
				}
				if record := wantBorn(t, nodes...); disk != "" && record.Roster.Disk(n.id(t)) == disk {
					t.Error("the disk that has vanished counts")
				}
			})
			t.Run("another pending seed", func(t *testing.T) {
				t.Parallel()
				n, r := start(t)
				n.breakDNS(n.name, nil)
				nodes := []*node{n.elsewhere(t), n.node(t, "m2"), n.node(t, "m3")}
				roster := labRoster(t, nodes, nil)
				for _, e := range nodes {
					e.commit(t, roster)
				}
				n.mount(t, nodes[0].data)
				nodes[0] = n
				for _, run := range []*running{nodes[1].start(t), nodes[2].start(t), r} {
					if res := run.ok(); res.Action != Kept {
						t.Errorf("%s is %s", run.n.name, res.Action)
					}
				}
				wantBorn(t, nodes...)
			})
		})
	}
}

func someDisk(digit string) seed.DiskID { return seed.DiskID(strings.Repeat(digit, 32)) }

// TestChangesBetweenSteps: a directory that changes between the decision and the
// step is not written to.
func TestChangesBetweenSteps(t *testing.T) {
	t.Parallel()
	n := newLab(t, 1).node(t, "m1")
	a := newAgent(n.config(t))
	step := func() Outcome {
		t.Helper()
		if err := a.observe(t.Context()); err != nil {
			t.Fatal(err)
		}
		return Decide(a.input(false))
	}
	if out := step(); out.Step != StepFind {
		t.Fatalf("step %s", out.Step)
	}
	if _, err := a.act(t.Context(), step()); err != nil {
		t.Fatal(err)
	}
	out := step()
	if out.Step != StepSeedAlone {
		t.Fatalf("step %s", out.Step)
	}
	// A volume with data appears now.
	n.prepare(t)
	n.commit(t, labRoster(t, []*node{n}, nil))
	n.release(t)
	want := n.state(t).ClusterID
	if _, err := a.act(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	if n.state(t).ClusterID != want || a.seeded {
		t.Errorf("the data were replaced, or it says that it has seeded: %t", a.seeded)
	}
	if out := step(); out.Step != StepFind {
		t.Errorf("data that appeared are not held against the records: %s", out.Rule)
	}
}

// TestReleasedThenOther: what appears after the release is not handed over as if
// it were the seed that was released.
func TestReleasedThenOther(t *testing.T) {
	t.Parallel()
	_, nodes, _ := pendingTrio(t, 3)
	n := nodes[0]
	a := newAgent(n.config(t))
	if err := a.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.release(Outcome{}); err != nil || a.disk != DiskReleased {
		t.Fatalf("%v, %s", err, a.disk)
	}
	other := newLab(t, 2).node(t, "m1")
	other.commit(t, labRoster(t, []*node{other}, map[string]seed.DiskID{"m2": someDisk("b")}))
	other.release(t)
	n.mount(t, other.data)
	if err := a.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := Decide(a.input(false)); a.disk != DiskOurs || out.Step != StepFind {
		t.Errorf("the other data are %s, and the next step is %s", a.disk, out.Step)
	}
}

// TestVanishedWithoutDNS: a pending seed that vanishes leaves an empty disk, and
// that needs a plan from discovery.
func TestVanishedWithoutDNS(t *testing.T) {
	t.Parallel()
	_, nodes, _ := pendingTrio(t, 1)
	n := nodes[0]
	n.breakDNS(n.name, &discovery.Error{Kind: discovery.Retry, Msg: "no DNS"})
	a := newAgent(n.config(t))
	defer func() {
		if err := a.close(nil); err != nil {
			t.Error(err)
		}
	}()
	for _, want := range []Step{StepFind, StepMeet, StepWait} {
		if err := a.observe(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := Decide(a.input(false))
		if out.Step != want {
			t.Fatalf("step %s, want %s", out.Step, want)
		}
		if want != StepWait {
			if _, err := a.act(t.Context(), out); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.lose(t)
	a.lookout.take(Found{Peers: []discovery.Peer{{Host: "m1.example.org"}}}) // and discovery answers in this moment
	if err := a.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := Decide(a.input(false)); out.Step != StepFind {
		t.Errorf("the next step is %s, with the plan of a directory that has gone", out.Step)
	}
}

// TestNotSeeded: a report says "seeded" only of the seed that this run has written.
func TestNotSeeded(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	nodes := l.nodes(t)
	r := labRoster(t, nodes, nil)
	// Two fakes that propose what m1 proposes would have to know its run; those
	// that are bound need not.
	for _, n := range nodes[1:] {
		a := n.boundAnswer(t, "committed", r, "run of "+n.name)
		l.serve(t, n.ip, fakeAgent(fixedAnswer(a))) // m1 commits, and releases
	}
	run := nodes[0].start(t)
	if res := run.ok(); res.Action != Seeded {
		t.Errorf("seeded by this run: %s", res.Action)
	}

	a := newAgent(nodes[0].config(t))
	a.seeded = true // of a seed that is not there any more
	if err := a.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.plan = nodes[0].plan(t).Born(seed.Roster{{Member: nodes[0].id(t), Disk: someDisk("a")}}, false)
	a.stored = true
	if err := a.restart(); err != nil || a.seeded || a.plan != nil {
		t.Errorf("the seed of another run is called its own: %v", err)
	}
}

// TestUnwritable: a disk that cannot be written to ends the run with 31, and says
// that nothing was written.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	n := newLab(t, 1).node(t, "m1")
	if err := os.MkdirAll(n.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.data, "member"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.start(t).refused(exit.Damaged, "misplaced", "member is not a directory")
	if err := os.Remove(filepath.Join(n.data, "member")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(n.data); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.start(t).refused(exit.Damaged, "misplaced", "is the volume mounted")
}

// TestSweep: what a killed run has left is removed, and said, but not by a dry
// run.
func TestSweep(t *testing.T) {
	t.Parallel()
	n := newLab(t, 1).node(t, "m1")
	stage := filepath.Join(n.data, ".etcdinit-seed-0123456789abcdef")
	if err := os.MkdirAll(stage, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(t.Context(), n.config(t), true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stage); err != nil {
		t.Errorf("a dry run has removed it: %v", err)
	}
	n.start(t).ok()
	if _, err := os.Stat(stage); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestStill: a directory that has changed is not acted on.
func TestStill(t *testing.T) {
	t.Parallel()
	n := newLab(t, 1).node(t, "m1")
	a := newAgent(n.config(t))
	if err := a.observe(t.Context()); err != nil || !a.still() {
		t.Fatalf("still: %t, %v", a.still(), err)
	}
	n.prepare(t)
	if a.still() {
		t.Error("a directory with a disk ID is what an empty one was")
	}
	if a.ready() {
		t.Error("ready to act on another directory")
	}
}

// TestStale: a decision from an old round is not acted on.
func TestStale(t *testing.T) {
	t.Parallel()
	_, nodes, _ := pendingTrio(t, 1)
	a := newAgent(nodes[0].config(t))
	a.Log = zap.NewNop()
	if err := a.lookAtDisk(); err != nil {
		t.Fatal(err)
	}
	if err := a.findContradiction(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.meet(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.close(nil); err != nil {
			t.Error(err)
		}
	}()
	a.began = bootTime() - 3*time.Second // the process has slept since
	if err := a.release(Outcome{}); err != nil {
		t.Fatal(err)
	}
	if !nodes[0].state(t).Pending {
		t.Error("released on an old round")
	}
	a.began = bootTime()
	if err := a.release(Outcome{}); err != nil {
		t.Fatal(err)
	}
	if nodes[0].state(t).Pending {
		t.Error("not released on a new round")
	}
}
