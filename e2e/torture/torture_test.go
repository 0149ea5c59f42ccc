//go:build e2e

package torture

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

const (
	defaultSeeds = 64
	sideBySide   = 4
)

// verdict is what a schedule has shown.
type verdict struct {
	s        *schedule
	findings []finding
	acked    int // writes
	calls    int
	serving  int // members in the end
	took     time.Duration
	log      []string
}

func (v *verdict) kinds() []string {
	var kinds []string
	for _, f := range v.findings {
		if !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
	}
	return kinds
}

// play plays one schedule.
func play(t *testing.T, s *schedule, binary string, loud bool) *verdict {
	t.Helper()
	c := newCluster(t, s, binary)
	c.loud, c.began = loud, time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var loops, traffic sync.WaitGroup
	writing, quiet := context.WithCancel(ctx)
	defer quiet()
	for _, n := range c.nodes {
		loops.Go(func() { n.loop(ctx) })
	}
	for _, k := range c.clients {
		traffic.Go(func() { k.loop(writing) })
	}
	c.play(ctx)
	c.note("the end: everything is healed")
	c.settle()
	limit := 10 * time.Second
	if s.up {
		limit = 25 * time.Second
	}
	if !c.rest(ctx, limit) {
		c.note("not all hosts serve or are refused")
	}
	quiet()
	traffic.Wait()
	c.finish(ctx)
	v := &verdict{s: s, took: c.now()}
	for _, r := range c.history.all() {
		v.calls++
		if r.writes() {
			v.acked++
		}
	}
	for _, n := range c.nodes {
		if n.serving() {
			v.serving++
		}
		n.mu.Lock()
		c.log = append(c.log, fmt.Sprintf("%s: in the end: etcd %t, status %d, disk %d", n.Name, n.isEtcd, n.no, n.disk.id))
		n.mu.Unlock()
	}
	cancel()
	for _, n := range c.nodes {
		n.signal(9)
		n.signal(18)
	}
	for _, n := range c.nodes {
		n.stop()
	}
	loops.Wait()
	for _, k := range c.clients {
		_ = k.conn.Close() //nolint:errcheck // the servers are gone
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v.findings, v.log = c.findings, c.log
	return v
}

// seeds are those that the environment asks for.
func seeds(t *testing.T) []uint64 {
	t.Helper()
	text := os.Getenv("ETCDINIT_TORTURE_SEEDS")
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		first, last = "1", text
	}
	a, errA := strconv.ParseUint(first, 10, 64)
	b, errB := strconv.ParseUint(last, 10, 64)
	if errA != nil || errB != nil || a < 1 || b < a {
		t.Fatalf("ETCDINIT_TORTURE_SEEDS=%s: want a count or A-B", text)
	}
	list := make([]uint64, 0, b-a+1)
	for s := a; s <= b; s++ {
		list = append(list, s)
	}
	return list
}

// TestTorture plays schedules; none may lose an answer or contradict one.
func TestTorture(t *testing.T) {
	one := os.Getenv("ETCDINIT_TORTURE_SEED")
	if one == "" && os.Getenv("ETCDINIT_TORTURE_SEEDS") == "" {
		t.Skip("skipped: ETCDINIT_TORTURE_SEEDS=64 runs 64 schedules, four side by side, in some 5 minutes; ETCDINIT_TORTURE_SEED=1 runs one")
	}
	if one != "" {
		seed, err := strconv.ParseUint(one, 10, 64)
		if err != nil || seed < 1 {
			t.Fatalf("ETCDINIT_TORTURE_SEED=%s: want a number from 1 on", one)
		}
		s := generate(seed)
		t.Log(s)
		judge(t, play(t, s, etcdinit, true))
		return
	}
	need(t)
	all, list := new(tally), seeds(t)
	all.play(t, list, etcdinit, judge)
	all.print(t)
	if len(all.verdicts) != len(list) {
		t.Errorf("%d of %d schedules were played", len(all.verdicts), len(list))
	}
}

// need skips the test where no cluster can be made.
func need(t *testing.T) {
	t.Helper()
	err := lab.Check()
	switch {
	case err != nil && os.Getenv("ETCDINIT_E2E") == "required":
		t.Fatal("ETCDINIT_E2E=required, but ", err)
	case err != nil:
		t.Skip("skipped: ", err)
	}
}

func judge(t *testing.T, v *verdict) {
	t.Helper()
	t.Logf("seed %d (%s, etcd %s): %d calls, %d writes acknowledged, %d of %d members serve in the end, %.1f s, findings: %v",
		v.s.seed, v.s.kind, v.s.version, v.calls, v.acked, v.serving, v.s.size, v.took.Seconds(), v.kinds())
	if len(v.findings) == 0 {
		return
	}
	for _, f := range v.findings {
		t.Errorf("%s: %s", f.kind, f.text)
	}
	t.Logf("again: ETCDINIT_TORTURE_SEED=%d\n%s%s", v.s.seed, v.s, strings.Join(v.log, "\n"))
}

// tally is what a run of many schedules has shown.
type tally struct {
	stop     <-chan struct{} // closed: no more schedules
	mu       sync.Mutex
	verdicts []*verdict
}

// play plays the schedules, some side by side.
func (a *tally) play(t *testing.T, list []uint64, binary string, judge func(t *testing.T, v *verdict)) {
	t.Helper()
	next := make(chan uint64)
	var workers sync.WaitGroup
	for range sideBySide {
		workers.Go(func() {
			for seed := range next {
				s := generate(seed)
				t.Run(fmt.Sprintf("%d %s %s", seed, s.kind, s.version), func(t *testing.T) {
					v := play(t, s, binary, false)
					a.mu.Lock()
					a.verdicts = append(a.verdicts, v)
					a.mu.Unlock()
					judge(t, v)
				})
			}
		})
	}
	for _, seed := range list {
		select {
		case next <- seed:
			continue
		case <-a.stop:
		}
		break
	}
	close(next)
	workers.Wait()
}

func (a *tally) print(t *testing.T) {
	t.Helper()
	acked, wrote, bad := 0, 0, 0
	for _, v := range a.verdicts {
		acked += v.acked
		if v.acked > 0 {
			wrote++
		}
		if len(v.findings) > 0 {
			bad++
		}
	}
	if wrote*5 < len(a.verdicts)*4 {
		t.Errorf("only %d of %d schedules have acknowledged a write: the run shows too little", wrote, len(a.verdicts))
	}
	t.Logf("torture: %d schedules, %d with acknowledged writes (%d in all), %d with findings", len(a.verdicts), wrote, acked, bad)
}
