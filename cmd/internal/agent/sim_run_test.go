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
	var ends []string
	released := 0
	for _, c := range slices.Sorted(maps.Keys(e.classes)) {
		if c == "" {
			released = e.classes[c]
			continue
		}
		ends = append(ends, fmt.Sprintf("%d %s", e.classes[c], c))
	}
	total := released
	for c, n := range e.classes {
		if c != "" {
			total += n
		}
	}
	how := "bounded"
	if e.whole {
		how = "whole"
	}
	s := fmt.Sprintf("%d worlds, depth %d, %s; %d of %d calm walks ended released", e.states, e.depth, how, released, total)
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
		return effort{400_000, 40_000, 1_000_000, 256}
	case "full":
		return effort{4_000_000, 1_000_000, 10_000_000, 256}
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
func up(t testing.TB, w *world) *world {
	t.Helper()
	for i := range w.n {
		if err := w.boot(i); err != nil {
			t.Fatal(err)
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

func starts(t *testing.T) []start {
	t.Helper()
	two := func(b budget) *world { return up(t, newWorld(shape{plans: duo, hosts: []int8{0, 1}, left: b})) }
	three := func(b budget) *world { return up(t, newWorld(shape{plans: trio, hosts: []int8{0, 1, 2}, left: b})) }
	twice := func(b budget) *world {
		return up(t, newWorld(shape{plans: duo, hosts: []int8{0, 1, 0}, left: b}))
	}
	twice3 := func(b budget) *world {
		return up(t, newWorld(shape{plans: trio, hosts: []int8{0, 1, 2, 0}, left: b}))
	}
	return []start{
		{"two, a crash, a freeze, slow", two(budget{boot: 2, crash: 1, freeze: 1, slow: 2}), true},
		{"two, a lost disk, slow", two(budget{boot: 2, lose: 1, slow: 2}), true},
		{"two, one with two disks, a route", twice(budget{boot: 1, crash: 1, route: 2}), true},
		{"three, a crash", three(budget{boot: 1, crash: 1}), true},
		{"three, a lost disk", three(budget{boot: 1, lose: 1}), true},
		{"three, one with two disks, routes", twice3(budget{route: 2}), true},
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
		for k := len(trace) - 1; k >= 0; k-- {
			if less := slices.Delete(slices.Clone(trace), k, k+1); fails(less) {
				trace, again = less, true
			}
		}
	}
	return trace
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
