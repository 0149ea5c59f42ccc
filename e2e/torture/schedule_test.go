//go:build e2e

package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// op is what a step does. Hosts are named m1, m2, …; a spare host of m1's is m1b.
type op string

const (
	pause   op = "pause"
	start   op = "start"   // the host's loop runs from now on
	stop    op = "stop"    // kill -9, and the loop rests until the next start
	kill    op = "kill"    // kill -9 of what runs; the loop goes on
	freeze  op = "freeze"  // SIGSTOP of what runs
	thaw    op = "thaw"    // SIGCONT
	drop    op = "drop"    // at hears none of others; they hear it
	split   op = "split"   // others do not hear the rest, and the rest does not hear them
	heal    op = "heal"    // ends drop and split everywhere
	wipe    op = "wipe"    // the disk is lost and the host starts again
	keep    op = "keep"    // copies the disk if no etcd has run on it
	restore op = "restore" // the copy of others[0] replaces at's disk if no etcd has run on either; others[0] is gone if it is another host
	detach  op = "detach"  // the volume is not there, its mount point is
	attach  op = "attach"  // the volume is there again
	move    op = "move"    // for all who ask, the member's record leads to at
	view    op = "view"    // for others, the member's record leads to at
	blind   op = "blind"   // for others, at's member has no address
	slow    op = "slow"    // at's agent waits this long at each unlink from now on: that is how it releases
	readd   op = "readd"   // removes the member and adds it as a learner
	// These wait for a condition, at most for the step's time.
	released op = "released" // init has said that etcd may start
	seeded   op = "seeded"   // the disk has a log
	serving  op = "serving"  // etcd answers
	refused  op = "refused"  // init has said that a person must act
)

type step struct {
	op     op
	at     string
	others []string
	d      time.Duration
}

func (s step) String() string {
	words := []string{string(s.op)}
	if s.at != "" {
		words = append(words, s.at)
	}
	if len(s.others) > 0 {
		words = append(words, "["+strings.Join(s.others, " ")+"]")
	}
	if s.d > 0 {
		words = append(words, s.d.String())
	}
	return strings.Join(words, " ")
}

// habits are what a host does the same way in a whole schedule.
type habits struct {
	boottime time.Duration // its boot-time clock runs ahead by this
	delay    time.Duration // between the end of init and etcd's start
	backOff  time.Duration // before the loop starts again
	timeout  string        // of init
	fsync    time.Duration // how long the disk takes for each of the agent's
	pulses   bool          // etcd gets the processor in short pulses while it starts
	mount    bool          // the data directory is a bind mount, not a directory that is renamed
}

// schedule is all that happens to one cluster.
type schedule struct {
	seed    uint64
	kind    string
	version string
	size    int
	spares  []string // hosts that can be a member's second one
	coredns bool     // the server is CoreDNS, and no record changes
	habits  map[string]habits
	steps   []step
	// up says that in the end every member must be up.
	up bool
}

func (s *schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, etcd %s, %d members, spare hosts %v, CoreDNS %t, all must come up %t\n", s.seed, s.kind, s.version, s.size, s.spares, s.coredns, s.up)
	for _, name := range s.hosts() {
		fmt.Fprintf(&b, "  %-4s %+v\n", name, s.habits[name])
	}
	for i, st := range s.steps {
		fmt.Fprintf(&b, "  %3d %s\n", i, st)
	}
	return b.String()
}

// members are the names of the hosts that are members at first.
func (s *schedule) members() []string {
	names := make([]string, 0, s.size)
	for i := range s.size {
		names = append(names, fmt.Sprintf("m%d", i+1))
	}
	return names
}

func (s *schedule) hosts() []string { return append(s.members(), s.spares...) }

// memberOf is the member that a host is or can be: m1 for m1b.
func memberOf(host string) string { return strings.TrimSuffix(host, "b") }

// kind is a family of schedules.
type kind struct {
	name     string
	generate func(g *generator)
}

// kinds are in the order in which seeds take them: four seeds of each, one a
// minor of etcd.
func kinds() []kind {
	return []kind{
		{"views", (*generator).views},
		{"moved", (*generator).moved},
		{"late", (*generator).late},
		{"frozen", (*generator).frozen},
		{"boot", (*generator).boot},
		{"copies", (*generator).copies},
		{"running", (*generator).running},
		{"power", (*generator).power},
	}
}

// generator makes a schedule of its random numbers.
type generator struct {
	*rand.Rand
	s *schedule
}

// generate is the schedule of a seed, always the same.
func generate(seed uint64) *schedule {
	versions, all := lab.Versions(), kinds()
	n := seed - 1
	k := all[n/uint64(len(versions))%uint64(len(all))]
	g := &generator{
		Rand: rand.New(rand.NewPCG(seed, 0x70757070)),
		s:    &schedule{seed: seed, kind: k.name, version: versions[n%uint64(len(versions))], size: 3, habits: map[string]habits{}},
	}
	if g.chance(6) {
		g.s.size = 5
	}
	k.generate(g)
	for _, name := range g.s.hosts() {
		if _, there := g.s.habits[name]; !there {
			g.s.habits[name] = g.habits()
		}
	}
	return g.s
}

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

// between is a time from a to b.
func (g *generator) between(a, b time.Duration) time.Duration {
	return (a + rand2(g.Rand, b-a)).Round(time.Millisecond)
}

func rand2(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d) + 1)) }

func (g *generator) habits() habits {
	h := habits{
		backOff: g.between(100*time.Millisecond, 700*time.Millisecond),
		timeout: []string{"5s", "10s", "0"}[g.IntN(3)],
		pulses:  g.chance(12),
		mount:   g.chance(2),
	}
	if g.chance(2) {
		h.boottime = g.between(time.Minute, 100*24*time.Hour).Round(time.Second)
	}
	if g.chance(2) {
		h.delay = g.between(0, 1500*time.Millisecond)
	}
	if g.chance(6) {
		h.fsync = g.between(5*time.Millisecond, 60*time.Millisecond)
	}
	return h
}

func (g *generator) do(o op, at string, others ...string) {
	g.s.steps = append(g.s.steps, step{op: o, at: at, others: others})
}

func (g *generator) pause(a, b time.Duration) {
	g.s.steps = append(g.s.steps, step{op: pause, d: g.between(a, b)})
}

// await is a condition at each of the hosts.
func (g *generator) await(o op, limit time.Duration, hosts ...string) {
	for _, h := range hosts {
		g.s.steps = append(g.s.steps, step{op: o, at: h, d: limit})
	}
}

// startAll starts hosts in any order, within about this time.
func (g *generator) startAll(within time.Duration, hosts ...string) {
	for _, h := range g.shuffled(hosts) {
		g.do(start, h)
		if !g.chance(3) {
			g.pause(0, within/time.Duration(len(hosts)))
		}
	}
}

func (g *generator) shuffled(list []string) []string {
	list = slices.Clone(list)
	g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (g *generator) one(list []string) string { return list[g.IntN(len(list))] }

// without is the list but for some.
func without(list []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(some, s) })
}

// spare adds a second host of a member that it chooses, which comes first in
// the members that it returns.
func (g *generator) spare() (x, y string, others []string) {
	members := g.shuffled(g.s.members())
	x = members[0]
	y = x + "b"
	g.s.spares = append(g.s.spares, y)
	return x, y, members[1:]
}

// storm is faults on hosts for about a time; each ends within it.
func (g *generator) storm(d time.Duration, hosts ...string) {
	for left := d; left > 0; {
		at, long := g.one(hosts), g.between(100*time.Millisecond, 1200*time.Millisecond)
		switch g.IntN(6) {
		case 0:
			g.do(kill, at)
		case 1:
			g.do(freeze, at)
			g.pause(long, long)
			g.do(thaw, at)
		case 2:
			g.do(drop, at, g.one(without(hosts, at)))
			g.pause(long, long)
			g.do(heal, "")
		case 3:
			g.do(drop, at, without(hosts, at)...)
			g.pause(long, long)
			g.do(heal, "")
		case 4:
			g.do(split, "", g.shuffled(hosts)[:1+g.IntN(len(hosts)-1)]...)
			g.pause(long, long)
			g.do(heal, "")
		case 5:
			g.do(kill, at)
			g.do(kill, g.one(hosts))
		}
		g.pause(50*time.Millisecond, 500*time.Millisecond)
		left -= long + 300*time.Millisecond
	}
}

// birth is a first boot in which nothing goes wrong.
func (g *generator) birth() {
	g.startAll(500*time.Millisecond, g.s.members()...)
	g.await(serving, 12*time.Second, g.s.members()...)
}

// boot: agents are killed, frozen and cut off, disks are lost and volumes come
// late while a cluster is being born.
func (g *generator) boot() {
	members := g.s.members()
	g.s.up = g.chance(2) // then no disk is lost
	g.s.coredns = g.chance(2)
	if !g.s.up {
		if g.chance(2) {
			g.do(detach, members[0])
		}
		if !g.s.coredns && g.chance(2) {
			g.do(blind, members[1], g.one(members))
		}
	}
	g.startAll(2*time.Second, members...)
	for range 2 {
		g.storm(time.Second, members...)
		if !g.s.up && g.chance(2) {
			g.do(wipe, g.one(members))
		}
	}
	if !g.s.up {
		g.do(attach, members[0])
		g.pause(0, time.Second)
		if !g.s.coredns {
			g.do(move, members[1])
		}
	}
	g.await(serving, 3*time.Second, members...)
	g.storm(2*time.Second, members...)
}

// views: a member has two hosts, both with an empty disk, and the other
// members are told different ones, at first or until the end.
func (g *generator) views() {
	x, y, others := g.spare()
	n := 1 + g.IntN(len(others)-1)
	hisY := others[:n]
	g.do(view, y, append([]string{y}, hisY...)...)
	all := append([]string{x, y}, others...)
	if g.chance(2) { // nobody's etcd runs before all are released
		for _, h := range all {
			hb := g.habits()
			hb.delay = g.between(1500*time.Millisecond, 3*time.Second)
			g.s.habits[h] = hb
		}
	}
	if last := g.one(others); !g.chance(3) {
		g.do(drop, last, last) // it does not reach itself, so that it is the last to commit
		g.startAll(time.Second, all...)
		g.pause(time.Second, 2500*time.Millisecond)
		g.do(heal, "")
	} else {
		g.startAll(time.Second, all...)
	}
	g.await(released, 3*time.Second, x, y)
	g.two(x, y, hisY)
	if g.chance(2) {
		g.do(move, g.one([]string{x, y}))
		g.pause(time.Second, 3*time.Second)
	}
	g.storm(2*time.Second, all...)
}

// two is a time in which each of a member's two hosts is alone with some of
// the others.
func (g *generator) two(x, y string, hisY []string) {
	if g.chance(6) {
		g.await(serving, 3*time.Second, x, y)
		return
	}
	g.do(split, "", append([]string{y}, hisY...)...)
	g.await(serving, 4*time.Second, x, y)
	g.pause(time.Second, 2*time.Second)
	g.do(heal, "")
	g.pause(500*time.Millisecond, time.Second)
}

// moved: while some wait for the last, a member's record moves to another
// host. The old one lives on, and those that were there first know only it.
func (g *generator) moved() {
	x, y, others := g.spare()
	early, last := others[:len(others)-1], others[len(others)-1]
	for _, h := range append([]string{x, y}, others...) {
		hb := g.habits()
		hb.timeout = "0"
		if !g.chance(4) {
			hb.delay = g.between(2*time.Second, 3500*time.Millisecond)
		}
		g.s.habits[h] = hb
	}
	g.startAll(200*time.Millisecond, append([]string{x}, early...)...)
	g.pause(1500*time.Millisecond, 2500*time.Millisecond)
	g.do(move, y)
	g.pause(1200*time.Millisecond, 2*time.Second)
	g.do(start, last)
	g.pause(2*time.Second, 3*time.Second)
	g.do(start, y)
	g.await(released, 4*time.Second, y)
	g.await(released, 3*time.Second, x)
	g.two(x, y, []string{last})
	g.storm(time.Second, append([]string{x, y}, others...)...)
}

// late: a and b of a running cluster start again on mount points whose volumes
// come a moment later, while the third, whose disk is lost, makes a seed. A write
// that the third and b had is not on a.
//
// In most schedules a and b have slow disks, and the volumes come after the third
// has made its seed. In the others neither a nor b reaches itself, and the third
// comes after the volumes.
func (g *generator) late() {
	g.s.size = 3
	members := g.shuffled(g.s.members())
	a, b, lost := members[0], members[1], members[2]
	after := !g.chance(4)
	for _, h := range members {
		hb := g.habits()
		hb.timeout, hb.delay, hb.fsync, hb.pulses, hb.backOff = "0", 600*time.Millisecond, 0, h == a, 300*time.Millisecond
		switch {
		case after && h != lost:
			hb.fsync = g.between(40*time.Millisecond, 80*time.Millisecond)
		case after:
			hb.delay = 2500 * time.Millisecond // no etcd runs on a mount point: all of them could be born again there
		}
		if h == a {
			hb.delay, hb.backOff = 200*time.Millisecond, 100*time.Millisecond
		}
		g.s.habits[h] = hb
	}
	g.birth()
	g.do(stop, a)
	g.pause(800*time.Millisecond, 1500*time.Millisecond) // a lags
	g.do(stop, b)
	g.do(stop, lost)
	g.do(wipe, lost)
	g.do(detach, a)
	g.do(detach, b)
	if after {
		g.do(start, a)
		g.do(start, b)
		g.do(start, lost)
		g.await(seeded, 6*time.Second, lost)
		g.do(attach, a)
		g.do(attach, b)
		g.do(stop, b)
	} else {
		g.do(drop, a, a)
		g.do(drop, b, b)
		g.do(start, a)
		g.do(start, b)
		g.pause(time.Second, 2*time.Second)
		g.do(attach, a)
		g.do(attach, b)
		g.pause(0, 200*time.Millisecond)
		g.do(start, lost)
		g.await(seeded, 2*time.Second, lost)
		g.pause(0, 500*time.Millisecond)
	}
	for range 4 { // the third asks while a starts
		g.do(kill, a)
		g.pause(0, 100*time.Millisecond)
		g.do(start, lost)
		g.pause(1200*time.Millisecond, 2*time.Second)
	}
	g.await(serving, 2*time.Second, lost)
	g.pause(500*time.Millisecond, 1500*time.Millisecond)
	g.do(heal, "")
	g.do(stop, b)
	g.do(start, b)
	g.await(serving, 4*time.Second, b)
	g.storm(time.Second, members...)
}

// frozen: x has decided to release its disk and sleeps. Meanwhile the others,
// on which no etcd has run yet, lose their disks, or are only killed, and x's
// record moves to another host.
func (g *generator) frozen() {
	x, y, others := g.spare()
	final := others[len(others)-1]
	for _, h := range append([]string{x, y}, others...) {
		hb := g.habits()
		hb.timeout, hb.fsync, hb.delay = "0", 0, g.between(800*time.Millisecond, time.Second)
		if h == final {
			hb.fsync = g.between(50*time.Millisecond, 100*time.Millisecond) // so that it is the last to commit
		}
		g.s.habits[h] = hb
	}
	g.startAll(200*time.Millisecond, append([]string{x}, others...)...)
	g.await(seeded, 5*time.Second, x)
	if !g.chance(3) {
		g.s.steps = append(g.s.steps, step{op: slow, at: x, d: g.between(7*time.Second, 9*time.Second)})
		g.await(released, 6*time.Second, final)
	} else {
		g.await(seeded, 3*time.Second, final)
		g.pause(0, 20*time.Millisecond)
		g.do(freeze, x)
	}
	g.do(stop, final)
	for _, h := range without(others, final) {
		g.await(released, 2*time.Second, h)
		g.do(stop, h)
	}
	for _, h := range others {
		if !g.chance(4) {
			g.do(wipe, h)
		}
	}
	g.do(move, y)
	g.startAll(100*time.Millisecond, append([]string{y}, others...)...)
	g.await(released, 4*time.Second, y)
	g.await(serving, 3*time.Second, y)
	if g.chance(4) {
		g.do(thaw, x)
		g.await(serving, 9*time.Second, x)
	} else {
		g.revive(x, y, others)
	}
	g.pause(0, time.Second)
	g.storm(time.Second, append([]string{x, y}, others...)...)
}

// revive: x wakes up while it reaches nobody. Then it meets only those that lag.
func (g *generator) revive(x, y string, others []string) {
	lag, have := others[:len(others)/2], others[len(others)/2:]
	for _, h := range lag {
		g.do(stop, h)
	}
	g.pause(800*time.Millisecond, 1500*time.Millisecond)
	g.do(split, "", x)
	g.do(thaw, x)
	g.await(released, 9*time.Second, x)
	for _, h := range append([]string{y}, have...) {
		g.do(stop, h)
	}
	g.do(heal, "")
	for _, h := range lag {
		g.do(start, h)
	}
	g.await(serving, 4*time.Second, lag...)
	g.pause(500*time.Millisecond, time.Second)
	for _, h := range append([]string{y}, have...) {
		g.do(start, h)
	}
	g.await(serving, 3*time.Second, have...)
}

// copies: while a cluster is born, a disk goes back to an older copy, or its
// copy appears on another host and the first one is gone.
func (g *generator) copies() {
	x, y, others := g.spare()
	last := g.one(others)
	hold := g.chance(2)
	if hold {
		g.do(drop, last, last)
	}
	g.startAll(time.Second, append([]string{x}, others...)...)
	g.pause(0, 800*time.Millisecond)
	g.do(keep, x)
	if g.chance(2) {
		g.await(seeded, 2*time.Second, x)
		g.do(keep, x)
	}
	g.pause(0, 500*time.Millisecond)
	if g.chance(2) {
		g.do(freeze, x)
	}
	if hold && g.chance(2) {
		g.do(heal, "")
		g.pause(0, 500*time.Millisecond)
	}
	if g.chance(2) {
		g.do(restore, x, x)
	} else {
		g.do(restore, y, x)
		g.do(move, y)
		g.do(start, y)
	}
	g.pause(0, time.Second)
	g.do(heal, "")
	g.do(thaw, x)
	g.await(serving, 4*time.Second, others...)
	g.storm(2*time.Second, others...)
}

// running: faults on a cluster that runs. A disk is lost, and its member must
// not come back by itself.
func (g *generator) running() {
	members := g.s.members()
	g.s.coredns = g.chance(2)
	g.birth()
	g.storm(3*time.Second, members...)
	if g.chance(4) {
		g.s.up = true
		g.storm(3*time.Second, members...)
		return
	}
	lost := g.one(members)
	g.do(wipe, lost)
	g.storm(1500*time.Millisecond, members...)
	if g.chance(2) {
		return
	}
	g.s.up = true
	g.await(serving, 5*time.Second, without(members, lost)...)
	g.await(refused, 5*time.Second, lost)
	g.do(readd, lost)
	g.await(serving, 5*time.Second, lost)
	g.storm(2*time.Second, members...)
}

// power: the power goes, one disk is lost, and the hosts come back in an order
// in which those that have the last writes come last.
func (g *generator) power() {
	members := g.shuffled(g.s.members())
	a, lost, rest := members[0], members[1], members[2:]
	g.s.coredns = g.chance(2)
	g.birth()
	g.do(stop, a) // it lags
	g.pause(500*time.Millisecond, 1500*time.Millisecond)
	for _, h := range g.shuffled(without(members, a)) {
		g.do(stop, h)
	}
	g.do(wipe, lost)
	g.startAll(time.Second, a, lost)
	g.pause(2*time.Second, 4*time.Second)
	g.startAll(time.Second, rest...)
	g.await(serving, 5*time.Second, append([]string{a}, rest...)...)
	g.storm(2*time.Second, members...)
}

// A seed always gives the same schedule, and the seeds of one run have every
// kind with every minor.
func TestGenerate(t *testing.T) {
	have := map[string]bool{}
	for seed := uint64(1); seed <= defaultSeeds; seed++ {
		s := generate(seed)
		if again := generate(seed); again.String() != s.String() {
			t.Fatalf("two schedules of one seed:\n%s\n%s", s, again)
		}
		have[s.kind+" "+s.version] = true
		known := s.hosts()
		for _, st := range s.steps {
			for _, h := range append(slices.Clone(st.others), st.at) {
				if h != "" && !slices.Contains(known, h) {
					t.Errorf("seed %d: no such host: %s", seed, st)
				}
			}
		}
	}
	if want := len(kinds()) * len(lab.Versions()); len(have) != want {
		t.Errorf("%d pairs of a kind and a minor, want %d", len(have), want)
	}
}
