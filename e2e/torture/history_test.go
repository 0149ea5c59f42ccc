//go:build e2e

package torture

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// action is what a client asked for.
type action string

const (
	put  action = "put"
	get  action = "get"
	swap action = "swap" // if the key has the value old
)

// outcome is what a client knows of what it asked for.
type outcome int

const (
	ok      outcome = iota // answered
	failed                 // surely without effect
	unknown                // perhaps with effect, now or later
)

// record is one call of a client and what came of it.
type record struct {
	client       int
	host         string
	action       action
	key          string
	value        string // put and swap: what is written; unique in a schedule
	old          string // swap: what must be there, "" for absent
	call, ret    time.Duration
	outcome      outcome
	got          string // get, and swap that found something else than old: the value, "" for absent
	swapped      bool   // swap: whether the value was there
	cluster      uint64 // the cluster's ID in the answer
	member       string // whose etcd it was
	disk         int    // on which it ran, 0 if that is not known or its member was added later
	err          string
	serializable bool // get: from the member's own store
}

func (r *record) String() string {
	what := fmt.Sprintf("%s %s", r.action, r.key)
	switch r.action {
	case put:
		what += " = " + r.value
	case swap:
		what += fmt.Sprintf(" %q -> %q", r.old, r.value)
	case get:
	}
	var came string
	switch {
	case r.outcome == failed:
		came = "failed: " + r.err
	case r.outcome == unknown:
		came = "unknown: " + r.err
	case r.action == get:
		came = fmt.Sprintf("%q", r.got)
	case r.action == swap && !r.swapped:
		came = fmt.Sprintf("not swapped, it is %q", r.got)
	default:
		came = "ok"
	}
	return fmt.Sprintf("%9.4f-%9.4f %-4s %s: %s", r.call.Seconds(), r.ret.Seconds(), r.host, what, came)
}

// writes says whether the call was acknowledged as a write.
func (r *record) writes() bool {
	return r.outcome == ok && (r.action == put || r.action == swap && r.swapped)
}

// history is what all clients of a schedule have seen.
type history struct {
	mu      sync.Mutex
	records []record
}

func (h *history) add(r *record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, *r)
}

func (h *history) all() []record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.records)
}

// keys are all keys that a client has tried to write.
func (h *history) keys() []string {
	seen := map[string]bool{}
	for _, r := range h.all() {
		seen[r.key] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// checkLimit is how long the check may take for one key, and for all. A key has
// some hundred records, which takes milliseconds if they fit together; to show
// that they do not can take much longer.
const (
	checkLimit    = 5 * time.Second
	checkAllLimit = 15 * time.Second
)

// contradictions checks that every key behaved as one register: it returns one
// finding for each key that did not.
func contradictions(records []record) []string {
	perKey := map[string][]record{}
	for _, r := range relevant(records) {
		perKey[r.key] = append(perKey[r.key], r)
	}
	var findings []string
	began := time.Now()
	for _, key := range slices.Sorted(maps.Keys(perKey)) {
		if time.Since(began) > checkAllLimit {
			return append(findings, fmt.Sprintf("key %s and all after it: not checked", key))
		}
		switch fits(perKey[key]) {
		case porcupine.Ok:
		case porcupine.Illegal:
			findings = append(findings, fmt.Sprintf("the answers for key %s contradict each other:\n%s", key, story(perKey[key])))
		case porcupine.Unknown:
			findings = append(findings, fmt.Sprintf("key %s: not checked within %v, %d records", key, checkLimit, len(perKey[key])))
		}
	}
	return findings
}

// fits says whether the records of one key can be those of a register.
func fits(records []record) porcupine.CheckResult {
	ops := make([]porcupine.Operation, 0, len(records))
	for _, r := range records {
		ret := int64(r.ret)
		if r.outcome == unknown {
			ret = math.MaxInt64 // it may have its effect at any later time
		}
		ops = append(ops, porcupine.Operation{ClientId: r.client, Input: r, Output: r, Call: int64(r.call), Return: ret})
	}
	return porcupine.CheckOperationsTimeout(register(), ops, checkLimit)
}

// until is what was known at a time: what has not returned then is unknown.
func until(records []record, at time.Duration) []record {
	var before []record
	for _, r := range records {
		if r.call > at {
			continue
		}
		if r.ret > at {
			r.outcome = unknown
		}
		if r.outcome != unknown || r.action != get {
			before = append(before, r)
		}
	}
	return before
}

// relevant leaves out what cannot make a difference: what surely had no effect,
// reads without an answer, and writes of unknown outcome whose value, which is
// unique, no answer ever showed: they may all come after everything else. (A swap
// that was not done shows what was there, so it shows the reason.)
func relevant(records []record) []record {
	shown := map[string]bool{}
	for i := range records {
		if r := &records[i]; r.outcome == ok {
			shown[r.got] = true
			if r.action == swap && r.swapped {
				shown[r.old] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(records), func(r record) bool {
		switch {
		case r.serializable, r.outcome == failed:
			return true
		case r.outcome == unknown:
			return r.action == get || !shown[r.value]
		}
		return false
	})
}

// register is the model of one key: its state is the value, "" for absent.
func register() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			r, isRecord := input.(record)
			if !isRecord {
				return false, state
			}
			switch r.action {
			case put:
				return true, r.value
			case get:
				return r.got == state, state
			case swap:
				there := state == r.old
				switch {
				case r.outcome == ok && (r.swapped != there || !there && r.got != state):
					return false, state
				case there:
					return true, r.value
				}
			}
			return true, state
		},
	}
}

// story is a key's records in the order of their calls, up to the first answer
// that does not fit to those before.
func story(records []record) string {
	byReturn := slices.SortedFunc(slices.Values(records), func(a, b record) int { return cmp.Compare(a.ret, b.ret) })
	at := byReturn[sort.Search(len(byReturn)-1, func(i int) bool { return fits(until(records, byReturn[i].ret)) != porcupine.Ok })].ret
	shown := until(records, at)
	slices.SortFunc(shown, func(a, b record) int { return cmp.Compare(a.call, b.call) })
	var b strings.Builder
	if n := len(shown) - 40; n > 0 {
		fmt.Fprintf(&b, "  (%d records before)\n", n)
		shown = shown[n:]
	}
	for i := range shown {
		fmt.Fprintf(&b, "  %s\n", &shown[i])
	}
	fmt.Fprintf(&b, "  up to %.3f, %d records after it are not shown", at.Seconds(), len(records)-len(shown))
	return b.String()
}

// twoClusters says whether clusters of different IDs have acknowledged writes.
func twoClusters(records []record) []string {
	first := map[uint64]record{}
	for _, r := range records {
		if _, there := first[r.cluster]; r.writes() && !there {
			first[r.cluster] = r
		}
	}
	if len(first) < 2 {
		return nil
	}
	var b strings.Builder
	b.WriteString("clusters of different IDs have acknowledged writes:")
	for _, id := range slices.Sorted(maps.Keys(first)) {
		r := first[id]
		fmt.Fprintf(&b, "\n  %x: %s", id, &r)
	}
	return []string{b.String()}
}

// twins says which members have answered from two disks in one cluster: a
// cluster ID must have one disk a member.
func twins(records []record) []string {
	type seat struct {
		cluster uint64
		member  string
	}
	first := map[seat]record{}
	var findings []string
	for _, r := range records {
		if r.outcome != ok || r.disk == 0 {
			continue
		}
		at := seat{r.cluster, r.member}
		before, there := first[at]
		if !there {
			first[at] = r
		} else if before.disk != r.disk {
			findings = append(findings, fmt.Sprintf("in cluster %x, %s has answered from disk %d:\n  %s\nand from disk %d:\n  %s", r.cluster, r.member, before.disk, &before, r.disk, &r))
			first[at] = r
		}
	}
	return findings[:min(len(findings), 2)]
}
