package agent

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

func interrupt() error { return exit.SignalError{Signal: os.Interrupt} }

// TestDeadline: a wait ends with what was missing, what there is on the disk, and
// the next run goes on from there.
func TestDeadline(t *testing.T) {
	t.Parallel()
	const patience = 3 * time.Second
	for committed, left := range []string{"nothing was written", "not released: the next run goes on from there", "not released"} {
		t.Run(strconv.Itoa(committed)+" committed", func(t *testing.T) {
			t.Parallel()
			_, nodes, _ := pendingTrio(t, committed)
			if committed == 0 {
				for _, n := range nodes {
					n.lose(t)
				}
			}
			r := nodes[0].start(t, limit(patience))
			w := r.sees("awaiting")
			if w.Left <= 0 || w.Left > patience {
				t.Errorf("%v left of %v", w.Left, patience)
			}
			r.refused(exit.Disagree, "peers-disagree", "timeout of 3s has passed: not all 3 members agree to start", "m2 is silent", "m3 is silent", left)
			list := startAll(t, nodes)
			allOK(t, list)
			wantBorn(t, nodes...)
		})
	}
	t.Run("prepared", func(t *testing.T) {
		t.Parallel()
		nodes := newLab(t, 3).nodes(t)
		disk := nodes[0].prepare(t)
		nodes[0].start(t, limit(patience)).refused(exit.Disagree, "peers-disagree", "no member data was written")
		allOK(t, startAll(t, nodes))
		if record := wantBorn(t, nodes...); record.Roster.Disk(nodes[0].id(t)) != disk {
			t.Error("the next run has not gone on with the disk's ID")
		}
	})
	t.Run("peers without addresses", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 3)
		n := l.node(t, "m1")
		l.dns("m3", "")
		n.start(t, limit(time.Second)).refused(exit.Incomplete, "", "gave up", "no address for m3")
	})
	t.Run("data need no discovery", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.breakDNS(n.name, &discovery.Error{Kind: discovery.Retry, Msg: "no DNS"})
		if res := n.start(t, limit(time.Second)).ok(); res.Action != Kept {
			t.Errorf("%+v", res)
		}
	})
}

// released is the host of a member of three that has been released.
func released(t *testing.T) *node {
	t.Helper()
	n := newLab(t, 3).node(t, "m1")
	n.commit(t, labRoster(t, []*node{n}, map[string]seed.DiskID{"m2": someDisk("b"), "m3": someDisk("c")}))
	n.release(t)
	return n
}

// TestTooLate: no step is begun after the time, and the words say which one.
func TestTooLate(t *testing.T) {
	t.Parallel()
	n := newLab(t, 1).node(t, "m1")
	a := newAgent(n.config(t, limit(time.Nanosecond)))
	ctx, cancel := a.deadline(t.Context())
	defer cancel()
	<-ctx.Done()
	for step, word := range map[Step]string{
		StepFind: "ask discovery", StepMeet: "ask the other members", StepProbe: "ask the other members",
		StepPrepare: "write the seed", StepCommit: "write the seed", StepSeedAlone: "write the seed", StepRelease: "release",
	} {
		done, err := a.act(ctx, Outcome{Step: step})
		if !done {
			t.Errorf("%s: it goes on", step)
		}
		wantRefusal(t, err, exit.Disagree, "timeout", "timeout of 1ns has passed", word, "nothing was written")
	}
	if _, err := os.Stat(n.data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

// TestInterrupted: a signal ends each wait at once, and says what is left.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	signal := func(t *testing.T, r *running, want string) {
		t.Helper()
		r.stop(interrupt())
		begin := time.Now()
		_, err := r.end()
		if exit.Of(err) != exit.Interrupted {
			t.Fatalf("got %v", err)
		}
		for part := range strings.SplitSeq(want, "…") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("got %v, want %q", err, part)
			}
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	for _, tt := range []struct {
		name, wait, want string
		begin            func(*testing.T) *node
	}{
		{"peers in discovery", "peers", "while waiting for …peers…: nothing was written", func(t *testing.T) *node {
			t.Helper()
			n := newLab(t, 3).node(t, "m1")
			n.dns("m3", "")
			return n
		}},
		{"its own record", "this node's own record", "while waiting for this node's own record (no peer has a local address…: nothing was written", func(t *testing.T) *node {
			t.Helper()
			n := newLab(t, 3).node(t, "m1")
			n.ttl = time.Minute
			n.dns("m1", n.lab.ip(9))
			return n
		}},
		{"stale records", "stale records to expire", "nothing was written", func(t *testing.T) *node {
			t.Helper()
			n := released(t)
			n.ttl = time.Minute
			n.dns("m1", n.lab.ip(9))
			n.dns("m2", n.ip)
			return n
		}},
		{"the listen address", "the peer listen address", "while waiting for the peer listen address (the listen address …is taken by another program…: nothing was written", func(t *testing.T) *node {
			t.Helper()
			n := newLab(t, 3).node(t, "m1")
			n.serve(t, n.ip, http.NotFoundHandler())
			return n
		}},
		{"waiting", "m2 (silent)", "while waiting for the other members (…m2 is silent (…connection refused…: nothing was written", func(t *testing.T) *node {
			t.Helper()
			return newLab(t, 3).node(t, "m1")
		}},
		{"prepared", "m2 (silent)", "while waiting for the other members (…m2 is silent …: no member data was written", func(t *testing.T) *node {
			t.Helper()
			n := newLab(t, 3).node(t, "m1")
			n.prepare(t)
			return n
		}},
		{"committed", "m2 (silent)", "not released: the next run goes on from there", func(t *testing.T) *node {
			t.Helper()
			_, nodes, _ := pendingTrio(t, 1)
			return nodes[0]
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := tt.begin(t)
			r := n.start(t)
			r.sees(tt.wait)
			before := tree(t, n.data)
			signal(t, r, tt.want)
			if now := tree(t, n.data); now != before {
				t.Errorf("the directory has changed from\n%sto\n%s", before, now)
			}
		})
	}
	t.Run("in a round", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 2)
		n := l.node(t, "m1")
		asked := make(chan struct{})
		var once sync.Once
		l.serve(t, l.ip(2), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			once.Do(func() { close(asked) })
			<-r.Context().Done()
		}))
		r := n.start(t)
		<-asked
		signal(t, r, "while waiting for the other members: nothing was written")
	})
	t.Run("in the seed", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 1).node(t, "m1")
		a := newAgent(n.config(t))
		a.plan, a.state = n.plan(t), n.state(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(interrupt())
		err := a.seedAlone(ctx, Outcome{Rule: RuleAlone})
		if exit.Of(err) != exit.Interrupted || !strings.HasSuffix(err.Error(), ": nothing was written") {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(n.data); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory: %v", err)
		}
	})
}

// TestListenAddressTaken: the listen address is waited for, unless an etcd has it.
func TestListenAddressTaken(t *testing.T) {
	t.Parallel()
	t.Run("by another program, for a while", func(t *testing.T) {
		t.Parallel()
		nodes := newLab(t, 2).nodes(t)
		srv := nodes[0].serve(t, nodes[0].ip, http.NotFoundHandler())
		r := nodes[0].start(t)
		r.sees("the peer listen address", "is taken by another program")
		srv.Close()
		r.ok2(nodes[1].start(t))
		wantBorn(t, nodes...)
	})
	t.Run("until the time is up", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 2).node(t, "m1")
		n.serve(t, n.ip, http.NotFoundHandler())
		n.start(t, limit(2*time.Second)).refused(exit.Disagree, "listen-address-taken", "timeout of 2s has passed", "taken by another program")
	})
	t.Run("by an etcd", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 2).node(t, "m1")
		n.serve(t, n.ip, fakeEtcd("c9", func() []listed { return nil }))
		n.start(t).refused(exit.Unsafe, "etcd-runs-here", "etcd 3.6.1 of cluster c9", n.data+" is empty")
	})
	t.Run("by another agent", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 2)
		n, twin := l.node(t, "m1"), l.node(t, "m1")
		first := n.start(t)
		first.sees("m2 (silent)")
		second := twin.start(t)
		second.sees("the peer listen address", "another etcdinit already runs here")
	})
	t.Run("on no interface", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 2).node(t, "m1")
		n.flags = append(n.flags, etcdFlag("listen-peer-urls", "http://192.0.2.77:"+strconv.Itoa(int(n.port))))
		r := n.start(t, limit(2*time.Second))
		r.sees("the peer listen address", "192.0.2.77", "on no interface of this host yet")
		r.refused(exit.Disagree, "listen-address-absent", "timeout of 2s has passed", "192.0.2.77", "correct listen-peer-urls", "nothing was written")
	})
}

// ok2 waits until two agents have ended well.
func (r *running) ok2(other *running) {
	r.t.Helper()
	r.ok()
	other.ok()
}

// TestProgressOneAtATime: whatever goroutine tells it, progress is told to one
// caller at a time.
func TestProgressOneAtATime(t *testing.T) {
	t.Parallel()
	var inside, told atomic.Int32
	a := newAgent(Config{Etcd: &etcdconf.Config{}, Log: zap.NewNop(), OnWait: func(Wait) {
		if inside.Add(1) > 1 {
			t.Error("told by two goroutines at once")
		}
		time.Sleep(time.Millisecond)
		told.Add(1)
		inside.Add(-1)
	}})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				a.OnWait(Wait{})
			}
		})
	}
	wg.Wait()
	if told.Load() != 20 {
		t.Errorf("told %d times", told.Load())
	}
	newAgent(Config{}).OnWait(Wait{}) // nobody listens
}

// TestPause: the waits grow, and news make the next look come at once.
func TestPause(t *testing.T) {
	t.Parallel()
	n := newLab(t, 2).node(t, "m1")
	r := n.start(t)
	first := r.sees("m2 (silent)")
	if first.Next < minPause || first.Next > 2*minPause {
		t.Errorf("the first wait is %v", first.Next)
	}
	for deadline := time.Now().Add(labTime); time.Now().Before(deadline) && r.last().Next < 10*minPause; {
		time.Sleep(minPause)
	}
	if got := r.last().Next; got < 10*minPause {
		t.Errorf("the waits do not grow: %v", got)
	}
}

// withSignal is a context that a signal can end.
func withSignal(t *testing.T) (context.Context, context.CancelCauseFunc) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	t.Cleanup(func() { stop(nil) })
	return ctx, stop
}
