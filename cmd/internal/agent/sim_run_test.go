package agent

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/discovery/rendezvous"
)

// trace runs moves by hand and fails at a broken invariant.
type script struct {
	t *testing.T
	w *world
}

func (s script) do(ms ...move) script {
	s.t.Helper()
	for i, m := range ms {
		if err := s.w.apply(m); err != nil {
			s.t.Fatalf("move %d, %v: %v", i, m, err)
		}
	}
	return s
}

// round lets each of the hosts make whole rounds of probes and act on them.
func (s script) round(hosts ...int8) script {
	s.t.Helper()
	for _, i := range hosts {
		if err := fairRound(s.w, i); err != nil {
			s.t.Fatalf("round of %d: %v", i, err)
		}
	}
	return s
}

// fairRound is one loss-free round of one host, with what it decides.
func fairRound(w *world, i int8) error {
	h := &w.hosts[i]
	switch {
	case h.proc != agentUp || h.state == rendezvous.Released:
		return nil
	case h.intent != StepWait:
		return w.apply(move{mAct, i, 0})
	}
	h.got = [maxHosts]*rendezvous.Sighting{}
	return w.apply(move{mRound, i, -1})
}

// settle heals everything: all up, DNS converged on the first plan that every
// disk agrees with, fair rounds. It reports whether all members ended as etcd.
func settle(w world, rounds int) (bool, error) {
	for range rounds {
		for i := range w.n {
			h := &w.hosts[i]
			if h.proc == down || h.proc == refused {
				if err := w.boot(i); err != nil {
					return false, err
				}
			}
			if err := fairRound(&w, i); err != nil {
				return false, err
			}
		}
	}
	for i := range w.n {
		h := &w.hosts[i]
		if h.proc == agentUp && !h.disk.pending && h.disk.seeded {
			if err := w.apply(move{mLeave, i, 0}); err != nil {
				return false, err
			}
		}
	}
	for i := range w.n {
		if w.hosts[i].proc != etcdUp {
			return false, nil
		}
	}
	return true, nil
}

// explored is what a search found.
type explored struct {
	states, depth int
	whole         bool // every interleaving within the budgets was seen
	trace         []move
	err           error
}

// searcher visits every world that can be reached, each once.
type searcher struct {
	explored
	seed  maphash.Seed
	seen  map[uint64]struct{}
	limit int
}

func explore(start *world, limit int) explored {
	s := &searcher{seed: maphash.MakeSeed(), seen: make(map[uint64]struct{}), limit: limit}
	s.whole = s.visit(start, 0)
	s.states = len(s.seen)
	return s.explored
}

// visit returns false where the search is over.
func (s *searcher) visit(w *world, depth int) bool {
	s.seen[w.hash(s.seed)] = struct{}{}
	s.depth = max(s.depth, depth)
	var buf [48]move
	for _, m := range w.moves(buf[:0]) {
		next := *w
		s.trace = append(s.trace, m)
		if s.err = next.apply(m); s.err != nil {
			return false
		}
		if _, ok := s.seen[next.hash(s.seed)]; !ok {
			if len(s.seen) >= s.limit || !s.visit(&next, depth+1) {
				return false
			}
		}
		s.trace = s.trace[:len(s.trace)-1]
	}
	return true
}

// simulation is the variable that says how far to search: "" a little, for
// every go test; "ci" what is promised, a stage of its own; "full" as far as
// the memory goes.
const simulation = "ETCDINIT_SIMULATION"

// searchLimits are how many worlds are visited of a start that is searched
// whole and of one that is not, and how many steps are walked.
func searchLimits(t *testing.T) (whole, capped, steps int) {
	t.Helper()
	switch how := os.Getenv(simulation); how {
	case "":
		return 3_000, 3_000, 30_000
	case "ci":
		return 400_000, 20_000, 1_000_000
	case "full":
		return 2_000_000, 2_000_000, 10_000_000
	default:
		t.Fatalf("%s=%q is not ci or full", simulation, how)
		return 0, 0, 0
	}
}

var trio = [][]int8{{0, 1, 2}}

func trioWorld(b budget) *world { return newWorld(trio, []int8{0, 1, 2}, []int8{0, 0, 0}, b) }

// committedTrio: all three have committed, none was released.
func committedTrio(t *testing.T, b budget) *world {
	t.Helper()
	w := trioWorld(budget{boot: 3})
	s := script{t, w}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}, move{mBoot, 2, 0})
	s.round(0, 0, 1, 1, 2, 2)
	for i := range w.n {
		if d := w.hosts[i].disk; !d.seeded || !d.pending {
			t.Fatalf("host %d is not committed: %+v", i, d)
		}
	}
	w.left = b
	return w
}

// writtenTrio: 0 and 1 run and have acknowledged a write; 2 is committed, but
// its agent is still there.
func writtenTrio(t *testing.T, b budget) *world {
	t.Helper()
	w := committedTrio(t, budget{term: 1, write: 1})
	script{t, w}.round(0, 1).do(move{mLeave, 0, 0}, move{mLeave, 1, 0},
		move{mCampaign, 0, 0}, move{mGrant, 1, 0}, move{mWrite, 0, 0}, move{mAck, 1, 0})
	if w.lives[0].entries == 0 {
		t.Fatal("no write was acknowledged")
	}
	w.left = b
	return w
}

// runningTrio: all run; 0 and 1 have acknowledged a write, 2 lags behind.
func runningTrio(t *testing.T, b budget) *world {
	t.Helper()
	w := writtenTrio(t, budget{})
	script{t, w}.round(2).do(move{mLeave, 2, 0})
	w.left = b
	return w
}

// start is where a search begins. whole: the budgets are such that every
// interleaving within them is visited, else as many worlds as limit says.
type start struct {
	name  string
	world *world
	whole bool
}

func starts(t *testing.T) []start {
	t.Helper()
	dns := func(b budget) *world {
		b.boot = 4
		w := newWorld([][]int8{{0, 1, 2}, {0, 1, 3}}, []int8{0, 1, 2, 3}, []int8{0, 0, 0, 1}, b)
		script{t, w}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}, move{mBoot, 2, 0}, move{mBoot, 3, 0})
		return w
	}
	doubles := func(b budget) *world {
		w := newWorld(trio, []int8{0, 1, 2, 0}, []int8{0, 0, 0, 0}, b)
		w.doubles = true
		return w
	}
	return []start{
		{"empty, a crash", trioWorld(budget{boot: 4, crash: 1}), true},
		{"empty, a lost disk", trioWorld(budget{boot: 4, lose: 1}), true},
		{"empty, a lost message, slow", trioWorld(budget{boot: 3, drop: 1, slow: 1}), false},
		{"empty, votes", trioWorld(budget{boot: 4, lose: 1, term: 1}), false},
		{"committed, a lost disk, slow", committedTrio(t, budget{boot: 1, lose: 1, slow: 1, term: 1}), true},
		{"committed, two lost disks", committedTrio(t, budget{boot: 2, lose: 2, slow: 1, term: 1}), false},
		{"two wrote, two lost disks", writtenTrio(t, budget{boot: 2, lose: 2, slow: 1, term: 1}), false},
		{"two wrote, a crash", writtenTrio(t, budget{boot: 2, crash: 1, lose: 1, term: 1}), true},
		{"all run, one lags", runningTrio(t, budget{boot: 2, crash: 1, lose: 1, term: 2}), true},
		{"two views of DNS", dns(budget{flip: 2}), true},
		{"two views of DNS, slow", dns(budget{flip: 1, slow: 1}), false},
		{"two agents, one identity", doubles(budget{boot: 4, route: 1}), false},
		{"two agents, one identity, slow", doubles(budget{boot: 4, route: 1, slow: 1}), false},
		{"everything", trioWorld(budget{boot: 6, crash: 2, lose: 2, drop: 2, slow: 3, term: 2, write: 1}), false},
	}
}

// TestSimulationExhaustive visits every interleaving of three members, within
// the budgets of each start, up to a number of worlds.
func TestSimulationExhaustive(t *testing.T) {
	for _, s := range starts(t) {
		t.Run(s.name, func(t *testing.T) {
			whole, limit, _ := searchLimits(t)
			if s.whole {
				limit = whole
			}
			r := explore(s.world, limit)
			if r.err != nil {
				t.Fatalf("%v\nafter %d worlds, by %v", r.err, r.states, r.trace)
			}
			if s.whole && !r.whole && os.Getenv(simulation) != "" {
				t.Errorf("not whole")
			}
			t.Logf("%d worlds, depth %d, whole: %t", r.states, r.depth, r.whole)
		})
	}
}

// TestSimulationFindsStockLoss shows that the simulation can find the loss at
// all: stock bootstrap has it.
func TestSimulationFindsStockLoss(t *testing.T) {
	w := runningTrio(t, budget{boot: 1, lose: 1, term: 1})
	w.stock, w.onlyLoss = true, true
	r := explore(w, 400_000)
	if r.err == nil || !strings.Contains(r.err.Error(), "acknowledged write is lost") {
		t.Fatalf("stock etcd loses a write here, the simulation found %v in %d worlds", r.err, r.states)
	}
	t.Logf("%v: %v", r.err, r.trace)
}

func walk(w *world, rng *rand.Rand, steps int) ([]move, error) {
	var done, ms []move
	for range steps {
		ms = w.moves(ms[:0])
		if len(ms) == 0 {
			return done, nil
		}
		m := ms[rng.IntN(len(ms))]
		done = append(done, m)
		if err := w.apply(m); err != nil {
			return done, err
		}
	}
	return done, nil
}

// TestSimulationWalks walks at random with five members.
func TestSimulationWalks(t *testing.T) {
	_, _, total := searchLimits(t)
	const length = 250
	alive, ended := 0, 0
	for seed := uint64(1); total > 0; seed++ {
		rng := rand.New(rand.NewPCG(seed, 5))
		calm := seed%2 == 0
		w, name := walkWorld(rng, calm)
		done, err := walk(w, rng, length)
		total -= len(done)
		if err != nil {
			t.Fatalf("seed %d (%s): %v\nby %v", seed, name, err, done)
		}
		if !calm {
			continue
		}
		ended++
		ok, err := settle(*w, 8)
		if err != nil {
			t.Fatalf("seed %d (%s), settling: %v\nby %v", seed, name, err, done)
		}
		if !ok {
			t.Fatalf("seed %d (%s): everyone is up, no disk was lost, DNS agrees, and after 8 rounds not all are released\nby %v\n%s", seed, name, done, dump(w))
		}
		alive++
	}
	t.Logf("%d of %d calm walks ended with all released", alive, ended)
}

// walkWorld: calm worlds lose no disk and see one DNS; the others do.
func walkWorld(rng *rand.Rand, calm bool) (w *world, name string) {
	b := budget{boot: 20, crash: int8(rng.IntN(6)), drop: int8(rng.IntN(30)), term: 4, write: 2}
	five := [][]int8{{0, 1, 2, 3, 4}}
	ids := []int8{0, 1, 2, 3, 4}
	if calm {
		return newWorld(five, ids, []int8{0, 0, 0, 0, 0}, b), "calm"
	}
	b.lose = int8(rng.IntN(4))
	switch rng.IntN(3) {
	case 0:
		b.flip = 5
		return newWorld([][]int8{{0, 1, 2}, {2, 3, 4}}, ids, []int8{0, 0, 0, 1, 1}, b), "two plans"
	case 1:
		b.flip = 5
		return newWorld([][]int8{{0, 1, 2, 3}, {0, 1, 2, 4}}, ids, []int8{0, 0, 0, 0, 1}, b), "two plans of four"
	default:
		return newWorld(five, ids, []int8{0, 0, 0, 0, 0}, b), "five"
	}
}

func dump(w *world) string {
	var b strings.Builder
	for i := range w.n {
		h := &w.hosts[i]
		fmt.Fprintf(&b, "host %d: proc %d disk %+v intent %v knows %s\n", i, h.proc, h.disk, h.intent, h.known)
	}
	return b.String()
}
