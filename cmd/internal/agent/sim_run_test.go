package agent

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// explored is what a search found.
type explored struct {
	states, depth int
	whole         bool // every interleaving within the budgets was seen
	trace         []move
	err           error
	classes       map[string]int // how calm ends; "" is all released
	calm          int            // worlds that were left to settle
}

// searcher visits every world that can be reached, each once.
type searcher struct {
	explored
	seed   maphash.Seed
	seen   map[uint64]struct{}
	limit  int
	sample uint64 // one world in so many is left to settle; 0: none
}

func explore(start *world, limit int, sample uint64) explored {
	s := &searcher{seed: maphash.MakeSeed(), seen: make(map[uint64]struct{}), limit: limit, sample: sample}
	s.classes, s.whole = make(map[string]int), true
	s.visit(start, start.hash(s.seed), 0)
	s.states = len(s.seen)
	if s.err == nil {
		s.trace = nil
	}
	return s.explored
}

// visit returns false where the search is over.
func (s *searcher) visit(w *world, hash uint64, depth int) bool {
	s.seen[hash] = struct{}{}
	s.depth = max(s.depth, depth)
	if s.sample > 0 && hash%s.sample == 0 {
		s.calm++
		if s.err = w.calmAll(s.classes); s.err != nil {
			return false
		}
	}
	var buf [64]move
	for _, m := range w.moves(buf[:0]) {
		next := *w
		s.trace = append(s.trace, m)
		err := next.apply(m)
		switch {
		case errors.Is(err, errTooMany):
			s.whole = false
		case err != nil:
			s.err = err
			return false
		default:
			if h := next.hash(s.seed); !s.has(h) {
				if len(s.seen) >= s.limit {
					s.whole = false
					return false
				}
				if !s.visit(&next, h, depth+1) {
					return false
				}
			}
		}
		s.trace = s.trace[:len(s.trace)-1]
	}
	return true
}

func (s *searcher) has(h uint64) bool {
	_, ok := s.seen[h]
	return ok
}

func (e explored) String() string {
	how := "bounded"
	if e.whole {
		how = "whole"
	}
	return fmt.Sprintf("%d worlds, depth %d, %s; %s", e.states, e.depth, how, e.ends())
}

// ends tells how calm ended.
func (e explored) ends() string {
	var ends []string
	total := 0
	for _, c := range slices.Sorted(maps.Keys(e.classes)) {
		total += e.classes[c]
		if c != "" {
			ends = append(ends, fmt.Sprintf("%d %s", e.classes[c], c))
		}
	}
	s := fmt.Sprintf("%d of %d calm walks ended released", e.classes[""], total)
	if len(ends) > 0 {
		s += " (" + strings.Join(ends, "; ") + ")"
	}
	return s
}

// simulation is the variable that says how far to search: "" a little, for
// every go test; "ci" what is promised, a stage of its own; "full" as far as a
// quarter of an hour goes.
const simulation = "ETCDINIT_SIMULATION"

// effort is how many worlds are visited of a start that is searched whole and of
// one that is not, how many steps are walked, and one world in how many is left
// to settle.
type effort struct {
	whole, capped, steps int
	sample               uint64
}

func efforts(t *testing.T) effort {
	t.Helper()
	switch how := os.Getenv(simulation); how {
	case "":
		return effort{4_000, 2_000, 40_000, 64}
	case "ci":
		return effort{600_000, 40_000, 1_000_000, 64}
	case "full":
		return effort{4_000_000, 1_000_000, 10_000_000, 64}
	default:
		t.Fatalf("%s=%q is not ci or full", simulation, how)
		return effort{}
	}
}

var (
	duo   = [][]int8{{0, 1}}
	trio  = [][]int8{{0, 1, 2}}
	fives = [][]int8{{0, 1, 2, 3, 4}}
)

// up boots all hosts.
func up(tb testing.TB, w *world) *world {
	tb.Helper()
	for i := range w.n {
		if err := w.boot(i); err != nil {
			tb.Fatal(err)
		}
	}
	return w
}

// start is where a search begins. whole: every interleaving within the budgets
// is visited, else as many worlds as limit says.
type start struct {
	name  string
	world *world
	whole bool
}

// rounds lets hosts make whole rounds, one after the other.
func rounds(tb testing.TB, w *world, hosts ...int8) *world {
	tb.Helper()
	for _, i := range hosts {
		if err := w.calmRound(i); err != nil {
			tb.Fatal(err)
		}
	}
	return w
}

// everyStage fails unless all hosts' disks are that far.
func everyStage(tb testing.TB, w *world, want stage) *world {
	tb.Helper()
	for i := range w.n {
		if d := &w.vols[w.hosts[i].at]; d.stage != want {
			tb.Fatalf("host %d is %v, want %v\n%s", i, d.stage, want, w.dump())
		}
	}
	return w
}

// Worlds that begin further on. left is what may happen from there.
func preparedTrio(tb testing.TB, s shape) *world {
	tb.Helper()
	return everyStage(tb, rounds(tb, up(tb, newWorld(s)), 0, 1, 2), sPrepared)
}

func committedTrio(tb testing.TB, s shape) *world {
	tb.Helper()
	return everyStage(tb, rounds(tb, up(tb, newWorld(s)), 0, 1, 2, 0, 1, 2, 0), sBound)
}

// deadTrio: 1 and 2 are bound to a roster whose third disk is lost; its member is
// there with another one.
func deadTrio(tb testing.TB, s shape) *world {
	tb.Helper()
	w := preparedTrio(tb, s)
	left := w.left
	w.left = budget{lose: 1}
	rounds(tb, w, 0, 1, 2)
	if err := w.apply(move{mLose, 0, 0}); err != nil {
		tb.Fatal(err)
	}
	rounds(tb, w, 0, 0, 1, 2)
	if w.vols[0].stage != sPrepared || w.vols[1].stage != sBound || w.vols[2].stage != sBound {
		tb.Fatal(w.dump())
	}
	w.left = left
	return w
}

// ofMinor: what its etcds list just after their start.
func ofMinor(minor int8, s shape) shape {
	s.minor = minor
	return s
}

// writtenTrio: 0 and 1 run and have acknowledged a write; 2 is committed, but
// its agent is still there.
func writtenTrio(tb testing.TB, s shape) *world {
	tb.Helper()
	w := committedTrio(tb, s)
	left := w.left
	w.left = budget{term: 1, write: 1}
	rounds(tb, w, 0, 0, 0, 1, 1, 1)
	for _, m := range []move{{mSettle, 0, 0}, {mSettle, 1, 0}, {mCampaign, 0, 0}, {mGrant, 1, 0}, {mWrite, 0, 0}, {mAck, 1, 0}} {
		if err := w.apply(m); err != nil {
			tb.Fatalf("%v: %v", m, err)
		}
	}
	if w.lives[0].entries == 0 {
		tb.Fatalf("no write was acknowledged\n%s", w.dump())
	}
	w.left = left
	return w
}

func starts(t *testing.T) []start {
	t.Helper()
	two := func(b budget) *world { return up(t, newWorld(shape{plans: duo, hosts: []int8{0, 1}, left: b})) }
	trioOf := func(b budget) shape { return shape{plans: trio, hosts: []int8{0, 1, 2}, left: b} }
	three := func(b budget) *world { return up(t, newWorld(trioOf(b))) }
	twice := func(b budget) *world {
		return up(t, newWorld(shape{plans: duo, hosts: []int8{0, 1, 0}, left: b}))
	}
	twice3 := func(b budget) *world {
		return up(t, newWorld(shape{plans: trio, hosts: []int8{0, 1, 2, 0}, left: b}))
	}
	split := func(b budget) *world {
		return up(t, newWorld(shape{plans: duo, hosts: []int8{0, 1}, left: b, split: true}))
	}
	late := func(b budget) *world {
		w := newWorld(shape{plans: duo, hosts: []int8{0, 1}, late: []int8{0}, left: b})
		return up(t, w)
	}
	flips := func(b budget) *world {
		return up(t, newWorld(shape{plans: [][]int8{{0, 1, 2}, {0, 1, 3}}, hosts: []int8{0, 1, 2, 3}, views: []int8{0, 0, 0, 1}, left: b}))
	}
	tokens := func(b budget) *world {
		return up(t, newWorld(shape{plans: [][]int8{{0, 1}, {0, 1}}, hosts: []int8{0, 1}, token: true, left: b}))
	}
	without := func(b budget) *world {
		return up(t, newWorld(shape{plans: trio, hosts: []int8{0, 1, 2}, without: [][]string{{"m2"}, {"m2"}, nil}, left: b}))
	}
	withoutTwice := func(b budget) *world {
		return up(t, newWorld(shape{plans: trio, hosts: []int8{0, 1, 2, 0}, without: [][]string{{"m2"}, nil, {"m1"}, {"m1"}}, left: b}))
	}
	return []start{
		{"two, a crash, a freeze, slow", two(budget{boot: 2, crash: 1, freeze: 1, slow: 2}), true},
		{"two, a lost disk, slow", two(budget{boot: 2, lose: 1, slow: 2}), true},
		{"two, power failures", two(budget{boot: 2, torn: 2, slow: 2}), true},
		{"two, one with two disks, a route", twice(budget{boot: 1, crash: 1, route: 2}), true},
		{"two, a wal-dir, halves lost", split(budget{boot: 3, half: 2, torn: 1, slow: 1}), true},
		{"two, a wal-dir, rolled back", split(budget{boot: 3, copy: 2, torn: 1, slow: 1}), true},
		{"two, a disk mounted late", late(budget{boot: 1, mount: 2, freeze: 1, slow: 1}), true},
		{"two, a copy", twice(budget{boot: 3, copy: 1}), true},
		{"two, etcd started on a pending seed", two(budget{boot: 2, hand: 1, crash: 1, lose: 1, tick: 1}), true},
		{"two, another token", tokens(budget{boot: 3, crash: 2, flip: 2}), true},
		{"two, a seed moved aside", two(budget{boot: 2, aside: 1, crash: 1, freeze: 1, slow: 1}), true},
		{"three, a crash", three(budget{boot: 1, crash: 1}), true},
		{"three, a lost disk", three(budget{boot: 1, lose: 1}), true},
		{"three, a lost message, slow", three(budget{drop: 1, slow: 1}), true},
		{"three, a freeze and a second run", preparedTrio(t, trioOf(budget{boot: 1, slow: 1, freeze: 1})), true},
		{"three, one with two disks, routes", twice3(budget{route: 2}), false},
		{"three, two views of DNS", flips(budget{flip: 2}), false},
		{"three, one left out", without(budget{boot: 1, crash: 1}), true},
		{"three, left out differently", withoutTwice(budget{route: 2}), true},
		{"three bound, withdrawn", committedTrio(t, trioOf(budget{boot: 1, lose: 1, withdraw: 2, tick: 1})), false},
		{"two bound, one lost, withdrawn", deadTrio(t, trioOf(budget{boot: 1, crash: 1, withdraw: 4, tick: 2, freeze: 1})), false},
		{"two bound, one lost, withdrawn and moved aside", deadTrio(t, trioOf(budget{boot: 1, withdraw: 4, tick: 1, aside: 1, hand: 1})), false},
		{"three bound, started by somebody", committedTrio(t, trioOf(budget{boot: 1, crash: 1, hand: 1})), true},
		{"three bound, two lost disks", committedTrio(t, trioOf(budget{boot: 2, lose: 2, slow: 1, term: 1})), false},
		{"two wrote, two lost disks", writtenTrio(t, trioOf(budget{boot: 2, lose: 2, slow: 1, term: 1})), true},
		{"two wrote, a crash, a lost disk", writtenTrio(t, trioOf(budget{boot: 2, crash: 1, lose: 1, term: 1})), true},
		{"two wrote, a crash, lists of 3.5", writtenTrio(t, ofMinor(1, trioOf(budget{boot: 1, crash: 2, term: 1, tick: 2}))), true},
		{"two wrote, a crash, a lost disk, lists of 3.6", writtenTrio(t, ofMinor(2, trioOf(budget{boot: 2, crash: 1, lose: 1, term: 1, tick: 1}))), true},
		{"everything", up(t, newWorld(shape{plans: trio, hosts: []int8{0, 1, 2, 0, 1}, late: []int8{3}, left: budget{
			boot: 8, crash: 2, lose: 2, drop: 2, route: 3, move: 1, term: 3, write: 2, slow: 3, freeze: 2, torn: 2, mount: 2, copy: 1, hand: 1, tick: 3, withdraw: 2, aside: 1,
		}})), false},
	}
}

// TestSimulationExhaustive visits every interleaving, within the budgets of each
// start, up to a number of worlds.
func TestSimulationExhaustive(t *testing.T) {
	e := efforts(t)
	for _, s := range starts(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			limit := e.capped
			if s.whole {
				limit = e.whole
			}
			r := explore(s.world, limit, e.sample)
			if r.err != nil {
				t.Fatalf("%v\nafter %d worlds, by %v", r.err, r.states, shorten(s.world, r.trace))
			}
			if s.whole && !r.whole && os.Getenv(simulation) != "" {
				t.Errorf("not whole")
			}
			t.Log(r)
		})
	}
}

// shorten leaves out of a trace what is not needed for an error.
func shorten(start *world, trace []move) []move {
	fails := func(ms []move) bool {
		w := *start
		for _, m := range ms {
			if !slices.Contains(w.moves(nil), m) {
				return false
			}
			if err := w.apply(m); err != nil {
				return !errors.Is(err, errTooMany)
			}
		}
		return w.calmAll(make(map[string]int)) != nil
	}
	if !fails(trace) {
		return trace
	}
	for again := true; again; {
		again = false
		for k := range slices.Backward(trace) {
			if k >= len(trace) {
				continue
			}
			if less := slices.Delete(slices.Clone(trace), k, k+1); fails(less) {
				trace, again = less, true
			}
		}
	}
	return trace
}

// TestSimulationFindsStockLoss shows that the simulation can find a lost write at
// all: stock bootstrap has it.
func TestSimulationFindsStockLoss(t *testing.T) {
	w := writtenTrio(t, shape{plans: trio, hosts: []int8{0, 1, 2}, left: budget{boot: 1, lose: 1, term: 2}})
	if err := w.startEtcd(2); err != nil {
		t.Fatal(err)
	}
	w.rules = &rules{stock: true}
	r := explore(w, 400_000, 0)
	if r.err == nil || !strings.Contains(r.err.Error(), "acknowledged write is lost") {
		t.Fatalf("stock etcd loses a write here, the simulation found %v in %d worlds", r.err, r.states)
	}
	t.Logf("%v: %v", r.err, r.trace)
}

// walk makes moves at random. Most of them bring the birth further, or else the
// faults, which are many more, would end it before it comes to anything.
func walk(w *world, rng *rand.Rand, steps int) ([]move, error) {
	var done, ms, further []move
	rare := 2 + rng.IntN(30)
	for range steps {
		ms = w.moves(ms[:0])
		if len(ms) == 0 {
			return done, nil
		}
		further = further[:0]
		for _, m := range ms {
			if m.further() {
				further = append(further, m)
			}
		}
		if len(further) == 0 || rng.IntN(rare) == 0 {
			further = ms
		}
		m := further[rng.IntN(len(further))]
		done = append(done, m)
		if err := w.apply(m); err != nil {
			return done, err
		}
	}
	return done, nil
}

// TestSimulationWalks walks at random with five members.
func TestSimulationWalks(t *testing.T) {
	const workers = 4
	total := efforts(t).steps / workers
	for worker := range workers {
		t.Run(fmt.Sprint("part ", worker+1), func(t *testing.T) {
			t.Parallel()
			walks, classes := 0, make(map[string]int)
			for steps := 0; steps < total; walks++ {
				seed := uint64(walks*workers + worker)
				rng := rand.New(rand.NewPCG(seed, 5))
				w, name := walkWorld(rng)
				first := *w
				done, err := walk(w, rng, 300)
				steps += len(done)
				if errors.Is(err, errTooMany) {
					continue
				}
				if err == nil {
					err = w.calmSome(rng, classes)
				}
				if err != nil {
					t.Fatalf("walk %d (%s): %v\nby %v", seed, name, err, shorten(&first, done))
				}
			}
			r := explored{classes: classes}
			t.Logf("%d walks, %d steps, %s", walks, total, r.ends())
		})
	}
}

// calmSome settles a world in one way.
func (w *world) calmSome(rng *rand.Rand, classes map[string]int) error {
	plan := int8(0)
	if len(w.plans) > 1 && !w.token && w.whole(1) {
		plan = int8(rng.IntN(2))
	}
	if !w.whole(plan) {
		return nil
	}
	var all []places
	if err := w.everyPlace(plan, func(at places) error {
		all = append(all, at)
		return nil
	}); err != nil {
		return err
	}
	class, err := w.calm(all[rng.IntN(len(all))], plan, rng.IntN(2) == 0)
	if err == nil {
		classes[class]++
	}
	if errors.Is(err, errTooMany) {
		return nil
	}
	return err
}

// walkWorld: no disk is lost or moved in half of the walks, so that most of them
// can end with all released.
func walkWorld(rng *rand.Rand) (w *world, name string) {
	few := func(n int) int8 { return int8(rng.IntN(n + 1)) }
	b := budget{boot: 30, crash: few(5), drop: few(20), slow: few(20), freeze: few(3), torn: few(3), tick: few(6), term: 3, write: 2}
	five := shape{plans: fives, hosts: []int8{0, 1, 2, 3, 4}, minor: few(2)}
	switch kind := rng.IntN(12); kind {
	case 0, 1, 2, 3:
		name = "five"
	case 4:
		name = "five, disks lost"
		b.lose, b.aside, b.withdraw = few(4), few(1), few(6)
	case 5:
		name = "five, two with two disks"
		five.hosts = []int8{0, 1, 2, 3, 4, 0, 1}
		b.route, b.move = few(12), few(2)
	case 6:
		name = "two plans"
		five.plans, five.views, b.flip = [][]int8{{0, 1, 2}, {2, 3, 4}}, []int8{0, 0, 0, 1, 1}, few(5)
		if rng.IntN(2) == 0 {
			five.plans, five.views = [][]int8{{0, 1, 2, 3}, {0, 1, 2, 4}}, []int8{0, 0, 0, 0, 1}
		}
		b.lose = few(2)
	case 7:
		name = "five, a wal-dir, copies"
		five.split = true
		five.hosts = []int8{0, 1, 2, 3, 4, 0}
		b.half, b.copy, b.route = few(2), few(2), few(3)
	case 8:
		name = "five, disks mounted late, etcd started by somebody"
		five.late = []int8{0, 1}
		b.mount, b.hand, b.lose = few(4), few(2), few(2)
	case 9, 10:
		name = "all at once"
		five = shape{plans: [][][]int8{trio, fives}[rng.IntN(2)], minor: few(2), split: rng.IntN(2) == 0}
		for range 2 {
			five.hosts = append(five.hosts, five.plans[0]...)
		}
		five.hosts = five.hosts[:min(len(five.hosts), maxHosts-int(few(1)))]
		if rng.IntN(2) == 0 {
			five.late = []int8{0, 1}
		}
		b.lose, b.half, b.aside, b.withdraw, b.route, b.move, b.mount, b.hand = few(2), few(1), few(1), few(8), few(20), few(2), few(3), few(1)
		if rng.IntN(3) == 0 {
			b.copy = few(2)
		}
	default:
		name = "five, some left out"
		five.hosts = []int8{0, 1, 2, 3, 4, 0, 1}
		b.route, b.lose = few(6), few(2)
		for range five.hosts {
			five.without = append(five.without, [][]string{{"m4"}, {"m4"}, {"m3"}, nil}[rng.IntN(4)])
		}
	}
	if rng.IntN(2) == 0 {
		b.term, b.write = 0, 0
	}
	five.left = b
	w = newWorld(five)
	return w, name
}
