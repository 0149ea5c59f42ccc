package rendezvous

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/etcdinit/etcdinit/internal/birth"
)

// freeURLs returns addresses of loopback that are free at this moment.
func freeURLs(t *testing.T, scheme string, n int) []string {
	t.Helper()
	urls := make([]string, 0, n)
	var held []net.Listener
	for range n {
		l := listenOn(t, "127.0.0.1:0")
		held = append(held, l)
		urls = append(urls, scheme+"://"+l.Addr().String())
	}
	for _, l := range held { // not before: each is another one
		closeIt(t, l)
	}
	return urls
}

func listenOn(t *testing.T, addr string) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeIt(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// say answers a request, if the other side is still there.
func say(w io.Writer, text string) {
	if _, err := io.WriteString(w, text); err != nil {
		return
	}
}

func planAt(urls []string, self int) Plan {
	p := Plan{Digest: "d"}
	for i, u := range urls {
		p.Members = append(p.Members, Member{ID: ID(fmt.Sprintf("a%d", i)), Name: fmt.Sprintf("m%d", i), PeerURLs: []string{u}})
	}
	p.Self = p.Members[self].ID
	return p
}

// diskAt is the disk of one member of a plan.
func diskAt(id ID) birth.DiskID { return birth.DiskID(strings.Repeat("0", 32-len(id)) + string(id)) }

// rosterAt has a disk for each member of a plan.
func rosterAt(p Plan) (r birth.Roster) {
	for _, m := range p.Members {
		r = append(r, birth.Seat{Member: string(m.ID), Disk: diskAt(m.ID)})
	}
	return r
}

func openAt(t *testing.T, cfg Config) *Barrier {
	t.Helper()
	cfg.Log = zaptest.NewLogger(t)
	b, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func startAt(t *testing.T, urls []string, self int, tls TLS) *Barrier {
	t.Helper()
	return openAt(t, Config{Start: Start{Plan: planAt(urls, self), State: Waiting}, Listen: []string{urls[self]}, TLS: tls})
}

// selfSeen is what a barrier sees at its own URL: a busy machine may take longer
// than one round waits for that.
func selfSeen(t *testing.T, b *Barrier) (seen Standing) {
	t.Helper()
	for range 50 {
		if seen = b.Round(t.Context()).Self; seen != Silent {
			break
		}
	}
	return seen
}

// prepare gives each agent its disk.
func prepare(barriers ...*Barrier) {
	for _, b := range barriers {
		b.Prepared(diskAt(b.machine.Plan.Self))
	}
}

// commit binds each agent's disk to the roster of all.
func commit(barriers ...*Barrier) {
	prepare(barriers...)
	for _, b := range barriers {
		b.Committed(rosterAt(b.machine.Plan))
	}
}

// callOf is what an agent would say of itself now.
func callOf(b *Barrier) call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.call()
}

// standings are those of the peers.
func standings(v View) string {
	var out []string
	for i := range v.Peers {
		out = append(out, v.Peers[i].Now.String())
	}
	return strings.Join(out, ", ")
}

func TestBarrierMeets(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	a := startAt(t, urls, 0, TLS{})
	if got := standings(a.Round(t.Context())); got != "silent, silent" {
		t.Errorf("alone: %s", got)
	}
	if got := selfSeen(t, a); got != Mine {
		t.Errorf("my own URL: %s", got)
	}
	b, c := startAt(t, urls, 1, TLS{}), startAt(t, urls, 2, TLS{})
	for _, x := range []*Barrier{a, b, c} {
		if got := standings(x.Round(t.Context())); got != "waiting, waiting" {
			t.Errorf("together: %s", got)
		}
	}
	commit(b)
	b.Round(t.Context())
	select {
	case <-a.News():
	case <-time.After(time.Second):
		t.Error("a call with news did not wake the peer")
	}
	if got := standings(a.Round(t.Context())); got != "committed, waiting" {
		t.Errorf("b is committed: %s", got)
	}
	b.Released()
	done := make(chan struct{})
	go func() { defer close(done); b.Farewell(t.Context(), 10*time.Second) }()
	a.Round(t.Context())
	select {
	case <-done:
		t.Error("left before c had come")
	case <-time.After(50 * time.Millisecond):
	}
	c.Round(t.Context())
	select {
	case <-done:
	case <-time.After(time.Second):
		t.Error("everybody has come, and it stays")
	}
}

// TestBarrierBirth: three agents agree on the disks and runs that all of them
// have dialled.
func TestBarrierBirth(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	var all []*Barrier
	for i := range urls {
		all = append(all, startAt(t, urls, i, TLS{}))
	}
	prepare(all...)
	for _, b := range all { // each proposes after its first round
		b.Round(t.Context())
	}
	for _, b := range all {
		v := b.Round(t.Context())
		if !v.Roster.Equal(rosterAt(v.Plan)) || !v.Fresh {
			t.Fatalf("it proposes %v, fresh: %t", v.Roster, v.Fresh)
		}
		for i := range v.Peers {
			if p := &v.Peers[i]; !p.Agreed || p.Last.Answer.Nonce == "" {
				t.Errorf("%s does not agree: %v", p.Member.Name, p.Last.Answer)
			}
		}
	}
	commit(all...)
	for _, b := range all {
		v := b.Round(t.Context())
		for i := range v.Peers {
			if !v.Peers[i].Bound {
				t.Errorf("%s is not bound", v.Peers[i].Member.Name)
			}
		}
		if v.ClusterID != text(v.Roster.ClusterID("d")) {
			t.Errorf("cluster ID %s", v.ClusterID)
		}
	}
}

// TestBarrierPatient: a call is news only once the round it asks for could
// decide something, and one that comes during a round is not forgotten.
func TestBarrierPatient(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	var early func()
	cfg := Config{Start: Start{Plan: planAt(urls, 0), State: Waiting}, Listen: []string{urls[0]}}
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if early != nil && "http://"+addr == urls[1] {
			early()
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	a := openAt(t, cfg)
	news := func() bool { return woken(a) }
	b := startAt(t, urls, 1, TLS{})
	b.Round(t.Context())
	if news() {
		t.Error("woken by one of two")
	}
	c := startAt(t, urls, 2, TLS{})
	c.Round(t.Context())
	if !news() {
		t.Error("both have called, and no news")
	}
	a.Round(t.Context())
	for _, x := range []*Barrier{b, c} {
		x.Round(t.Context())
		if news() {
			t.Error("woken by what is known")
		}
	}
	commit(a, c)
	c.Round(t.Context())
	if news() {
		t.Error("woken while one is not as far")
	}
	var once sync.Once
	early = func() { // b is dialled while it commits, and says what it was
		once.Do(func() {
			said := callOf(b)
			said.state = Committed
			a.answer(said, true)
		})
	}
	if got := standings(a.Round(t.Context())); got != "waiting, committed" {
		t.Errorf("in the round: %s", got)
	}
	if !news() {
		t.Error("what came during the round is forgotten")
	}
}

// TestBarrierProposal: a peer with another proposal than the one that is known is
// news, though its state is the same.
func TestBarrierProposal(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	a, b := startAt(t, urls, 0, TLS{}), startAt(t, urls, 1, TLS{})
	prepare(a, b)
	a.Round(t.Context()) // b has no proposal yet
	b.Round(t.Context()) // and gets it by this
	woken(a)
	b.Round(t.Context()) // now it says so
	if !woken(a) {
		t.Error("b proposes a roster, and no news")
	}
	a.Round(t.Context())
	b.Round(t.Context())
	if woken(a) {
		t.Error("woken by the proposal that is known")
	}
}

// TestBarrierTold: only an answer that went out lets an agent leave, and only one
// that says that it is committed.
func TestBarrierTold(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	a, b := startAt(t, urls, 0, TLS{}), startAt(t, urls, 1, TLS{})
	a.Round(t.Context())
	_, sent := a.answer(callOf(b), true)
	sent()
	if told, _ := a.allTold(); told {
		t.Error("told before there was anything to tell")
	}
	commit(b)
	commit(a)
	a.Round(t.Context())
	a.Released()
	_, sent = a.answer(callOf(b), true)
	if told, _ := a.allTold(); told {
		t.Error("told before it was sent")
	}
	sent()
	if told, _ := a.allTold(); !told {
		t.Error("sent, and not told")
	}
}

// TestBarrierStranger: a call of a member that the plan does not have changes
// nothing.
func TestBarrierStranger(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	a := startAt(t, urls, 0, TLS{})
	a.Round(t.Context())
	for _, id := range []ID{"beef", a.machine.Plan.Self} {
		if answer, _ := a.answer(call{id, "n", Released, "-"}, true); answer == nil || answer.State != Waiting {
			t.Errorf("%s gets no answer", id)
		}
	}
	if woken(a) || len(a.called)+len(a.heard) > 0 {
		t.Errorf("a stranger counts: %v", a.called)
	}
}

// TestBarrierWithout: nobody waits for a call of a member that is left out.
func TestBarrierWithout(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	a := openAt(t, Config{Start: Start{Plan: planAt(urls, 0), State: Waiting, Without: []string{"m2"}}, Listen: []string{urls[0]}})
	a.Round(t.Context())
	b := startAt(t, urls, 1, TLS{})
	b.Round(t.Context())
	if !woken(a) {
		t.Error("the only one that is waited for has called, and no news")
	}
	if v := a.Round(t.Context()); v.Peers[0].LeftOut || !v.Peers[1].LeftOut {
		t.Errorf("left out: %t, %t", v.Peers[0].LeftOut, v.Peers[1].LeftOut)
	}
	prepare(a, b)
	b.Round(t.Context())
	if v := a.Round(t.Context()); len(v.Roster) != 2 || v.Roster.Disk("a2") != "" {
		t.Errorf("it proposes %v", v.Roster)
	}
}

// withCommitted starts two agents, and a third that is committed and that the
// test closes.
func withCommitted(t *testing.T) (a, b, c *Barrier) {
	t.Helper()
	urls := freeURLs(t, "http", 3)
	plan := planAt(urls, 2)
	c, err := Open(t.Context(), Config{Start: Start{Plan: plan, State: Committed, Disk: diskAt("a2"), Roster: rosterAt(plan)}, Listen: []string{urls[2]}, Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	return startAt(t, urls, 0, TLS{}), startAt(t, urls, 1, TLS{}), c
}

// TestBarrierSticks: a peer that was committed and is silent now need not call
// again.
func TestBarrierSticks(t *testing.T) {
	a, b, c := withCommitted(t)
	commit(a)
	a.Round(t.Context())
	closeIt(t, c)
	if v := a.Round(t.Context()); v.Peers[1].Now != Silent || !v.Peers[1].Bound {
		t.Errorf("c is %v, bound: %t", v.Peers[1].Now, v.Peers[1].Bound)
	}
	woken(a)
	commit(b)
	b.Round(t.Context())
	if !woken(a) {
		t.Error("the last one is committed, and no news")
	}
}

// TestBarrierReleasedCalls: one that is released decides, even if another one is
// missing.
func TestBarrierReleasedCalls(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	a, b := startAt(t, urls, 0, TLS{}), startAt(t, urls, 1, TLS{})
	commit(a)
	a.Round(t.Context())
	commit(b)
	b.Released()
	b.Round(t.Context())
	if !woken(a) {
		t.Error("a peer is released, and no news")
	}
	commit(a)
	a.Released()
	a.Round(t.Context())
	b.Round(t.Context())
	if woken(a) {
		t.Error("a released agent has nothing to decide, and is woken")
	}
}

// TestFarewell: a peer that is gone is not waited for, and one that may have
// missed that this agent is committed is called.
func TestFarewell(t *testing.T) {
	a, b, c := withCommitted(t)
	commit(a, b)
	a.Round(t.Context())
	closeIt(t, c)
	a.Released()
	woken(b)
	done := make(chan struct{})
	go func() { defer close(done); a.Farewell(t.Context(), time.Minute) }()
	select {
	case <-b.News():
		b.Round(t.Context())
	case <-time.After(10 * time.Second):
		t.Error("b is not called")
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it waits for a peer that has gone")
	}
}

// TestFarewellPrepared: a peer that is only prepared has yet to hear that this
// agent is bound; it is waited for, and never for longer than the limit.
func TestFarewellPrepared(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	a, b := startAt(t, urls, 0, TLS{}), startAt(t, urls, 1, TLS{})
	commit(a)
	prepare(b)
	a.Round(t.Context())
	a.Released()
	start := time.Now()
	a.Farewell(t.Context(), 100*time.Millisecond)
	if took := time.Since(start); took < 100*time.Millisecond || took > 5*time.Second {
		t.Errorf("it left after %v", took)
	}
	done := make(chan struct{})
	go func() { defer close(done); a.Farewell(t.Context(), time.Minute) }()
	b.Round(t.Context())
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("b has come, and it stays")
	}
}

// TestBarrierQuiet: agents that know all of each other do not wake each other
// again and again.
func TestBarrierQuiet(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	a, b := startAt(t, urls, 0, TLS{}), startAt(t, urls, 1, TLS{})
	for range 2 {
		a.Round(t.Context())
		b.Round(t.Context())
	}
	woken(a)
	woken(b)
	a.Round(t.Context())
	b.Round(t.Context())
	if woken(a) || woken(b) {
		t.Error("a call without news wakes")
	}
}

// TestBarrierWakes: strangers that call with ever new runs make an agent look only
// so often.
func TestBarrierWakes(t *testing.T) {
	a := startAt(t, freeURLs(t, "http", 2), 0, TLS{})
	taken, start := 0, time.Now()
	for i := range 1000 {
		a.answer(call{"a1", strconv.Itoa(i), Waiting, "-"}, true)
		if woken(a) {
			taken++
		}
	}
	if most := wakeBurst + int(time.Since(start)/wakeEvery) + 1; taken < wakeBurst || taken > most {
		t.Errorf("woken %d times, want %d to %d", taken, wakeBurst, most)
	}
}

// TestLevels: how far an agent is, by what it says and by what is known of it.
func TestLevels(t *testing.T) {
	for i, l := range []struct {
		state State
		key   string
	}{{"", "-"}, {Waiting, "-"}, {Prepared, "-"}, {Prepared, "1f"}, {Committed, "-"}, {Released, "-"}} {
		if got := level(l.state, l.key); got != i {
			t.Errorf("level of %q with the proposal %s: %d, want %d", l.state, l.key, got, i)
		}
	}
	b, err := New(Config{Start: Start{Plan: planAt([]string{"http://127.0.0.1:1", "http://127.0.0.1:2"}, 0), Without: []string{"gone"}}})
	if err != nil {
		t.Fatal(err)
	}
	agent := func(s State, proposal ...Seat) knowledge {
		return knowledge{last: Sighting{Kind: Agent, Answer: Answer{State: s, Proposal: proposal}}}
	}
	for _, tt := range []struct {
		name string
		in   knowledge
		want int
	}{
		{"silent", knowledge{}, 0},
		{"garbage", knowledge{last: Sighting{Kind: Garbage}}, 0},
		{"waiting", agent(Waiting), 1},
		{"prepared", agent(Prepared), 2},
		{"with a proposal", agent(Prepared, Seat{}), 3},
		{"committed", agent(Committed), 4},
		{"released", agent(Released), 5},
		{"an etcd", knowledge{last: Sighting{Kind: Etcd}}, 5},
		{"bound, and silent now", knowledge{bound: true}, 5},
		{"left out", knowledge{member: Member{Name: "gone"}}, 5},
	} {
		if got := b.seenAt(&tt.in); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestKey: a call tells one proposal from another, by every part of it.
func TestKey(t *testing.T) {
	base := []Seat{{birth.Seat{Member: "a0", Disk: diskAt("a0")}, "n0"}, {birth.Seat{Member: "a1", Disk: diskAt("a1")}, "n1"}}
	keys := map[string]bool{key(nil): true, key(base): true, key(base[:1]): true}
	for _, change := range []func(*Seat){
		func(s *Seat) { s.Member = "a2" },
		func(s *Seat) { s.Disk = diskAt("a2") },
		func(s *Seat) { s.Nonce = "n2" },
	} {
		p := slices.Clone(base)
		change(&p[1])
		keys[key(p)] = true
	}
	if len(keys) != 6 || !keys["-"] {
		t.Errorf("not six keys: %v", keys)
	}
	if c, ok := parseCall(call{"a1", "n", Prepared, key(base)}.String()); !ok || c.key != key(base) {
		t.Errorf("a call does not survive: %v", c)
	}
}

// ask dials an agent as a peer would, and returns the status and the body.
func ask(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+Path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, resp.Body)
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestBarrierAct: a peer that asks while the directory changes is told what it
// has become.
func TestBarrierAct(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	a := startAt(t, urls, 0, TLS{})
	answered := make(chan string, 1)
	failed := errors.New("the step's own error")
	err := a.Act(func() error {
		go func() {
			_, body := ask(t, urls[0])
			answered <- body
		}()
		select {
		case body := <-answered:
			t.Errorf("answered in the middle of a step: %s", body)
		case <-time.After(100 * time.Millisecond):
		}
		prepare(a)
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("the step's error is gone: %v", err)
	}
	select {
	case body := <-answered:
		if !strings.Contains(body, `"state":"prepared"`) {
			t.Errorf("after the step: %s", body)
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer after the step")
	}
}

// TestBarrierStill: nothing is said of a directory that is not what it was, until
// the next step says what it is.
func TestBarrierStill(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	var changed atomic.Bool
	a := openAt(t, Config{Start: Start{Plan: planAt(urls, 0), State: Waiting}, Listen: []string{urls[0]}, Still: func() bool { return !changed.Load() }})
	if status, _ := ask(t, urls[0]); status != http.StatusOK || woken(a) {
		t.Fatalf("status %d while nothing has changed", status)
	}
	changed.Store(true)
	if status, body := ask(t, urls[0]); status != http.StatusServiceUnavailable {
		t.Errorf("status %d of a directory that has changed: %s", status, body)
	}
	if !woken(a) {
		t.Error("the directory has changed, and no news")
	}
	changed.Store(false) // what it was meanwhile is not known
	if status, _ := ask(t, urls[0]); status != http.StatusServiceUnavailable || woken(a) {
		t.Errorf("status %d before the next step", status)
	}
	prepare(a)
	if status, body := ask(t, urls[0]); status != http.StatusOK || !strings.Contains(body, `"state":"prepared"`) {
		t.Errorf("status %d after the next step: %s", status, body)
	}
}

// TestBarrierCalled: a peer that calls and is silent when dialled after that is
// told from one that is only silent.
func TestBarrierCalled(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	var now atomic.Int64
	var deaf atomic.Bool
	a := openAt(t, Config{
		Start: Start{Plan: planAt(urls, 0), State: Waiting}, Listen: []string{urls[0]},
		Clock: func() time.Duration { return time.Duration(now.Load()) },
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if deaf.Load() && "http://"+addr == urls[1] {
				return nil, errors.New("blocked in this direction")
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	})
	b := startAt(t, urls, 1, TLS{})
	called := func() bool {
		v := a.Round(t.Context())
		if v.Peers[1].Called {
			t.Error("c has never called")
		}
		return v.Peers[0].Called
	}
	deaf.Store(true)
	if called() {
		t.Error("b has not called yet")
	}
	b.Round(t.Context())
	if v := a.View(); v.Peers[0].Called {
		t.Error("b was not dialled since it has called")
	}
	now.Add(int64(time.Second))
	if !called() {
		t.Error("b has called and is silent")
	}
	deaf.Store(false)
	if called() {
		t.Error("b answers")
	}
	deaf.Store(true)
	now.Add(int64(lately))
	if called() {
		t.Error("that b has called was long ago")
	}
}

// TestHairpin: where the network does not lead packets back to their sender, a
// round is not slowed down.
func TestHairpin(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	startAt(t, urls, 1, TLS{})
	a := openAt(t, Config{
		Start: Start{Plan: planAt(urls, 0), State: Waiting}, Listen: []string{urls[0]},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if "http://"+addr == urls[0] {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	})
	start := time.Now()
	v := a.Round(t.Context())
	if took := time.Since(start); took > RoundTime/2 {
		t.Errorf("the round took %v", took)
	}
	if got := standings(v); got != "waiting" || v.Self != Silent || v.SelfLast.Detail == "" || !v.Fresh {
		t.Errorf("%s, fresh: %t, own URL: %+v", got, v.Fresh, v.SelfLast)
	}
}

// TestBarrierReplan: a new plan is told at once, and a round of the old one says nothing
// of it.
func TestBarrierReplan(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	var b *Barrier
	next := planAt(urls, 0)
	next.Digest = "another"
	var once sync.Once
	b = openAt(t, Config{
		Start: Start{Plan: planAt(urls[:2], 0), State: Waiting}, Listen: []string{urls[0]},
		Dial: func(context.Context, string, string) (net.Conn, error) {
			once.Do(func() { b.Replan(next) })
			return nil, errors.New("nobody is there")
		},
	})
	if v := b.Round(t.Context()); v.Fresh || v.Plan.Digest != "another" || len(v.Peers) != 2 {
		t.Errorf("fresh: %t, plan %s of %d peers", v.Fresh, v.Plan.Digest, len(v.Peers))
	}
	if a, _ := b.answer(call{}, false); a.Digest != "another" || len(a.Members) != 3 {
		t.Errorf("it tells the plan %s of %d members", a.Digest, len(a.Members))
	}
	if v := b.Round(t.Context()); !v.Fresh {
		t.Error("a round of the new plan does not count")
	}
}

func TestBarrierDouble(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	startAt(t, urls, 0, TLS{})
	other, err := New(Config{Start: Start{Plan: planAt(urls, 0), State: Waiting}})
	if err != nil {
		t.Fatal(err)
	}
	if got := selfSeen(t, other); got != Double {
		t.Errorf("another run at my URL: %v", got)
	}
}

// TestNew: a Barrier that answers nobody asks, and closes.
func TestNew(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	startAt(t, urls, 1, TLS{})
	startAt(t, urls, 2, TLS{})
	b, err := New(Config{Start: Start{Plan: planAt(urls, 0), State: Waiting}})
	if err != nil {
		t.Fatal(err)
	}
	if got := standings(b.Round(t.Context())); got != "waiting, waiting" {
		t.Error(got)
	}
	closeIt(t, b)
}

// TestNewIsPatient: a command that looks only once sees what answers at its own
// URL, even if that is slow.
func TestNewIsPatient(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	startAt(t, urls, 0, TLS{})
	slow := Config{Start: Start{Plan: planAt(urls, 0), State: Waiting}, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if "http://"+addr == urls[0] {
			time.Sleep(10 * selfTime)
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	b, err := New(slow)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Round(t.Context()).Self; got != Double {
		t.Errorf("at my own URL, slow: %v", got)
	}
}

// TestWithdrawn: peers hear of the seeds that were taken back on a disk.
func TestWithdrawn(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	openAt(t, Config{Start: Start{Plan: planAt(urls, 1), State: Waiting, Withdrawn: []ID{"c1", "c2"}}, Listen: []string{urls[1]}})
	a := startAt(t, urls, 0, TLS{})
	if got := a.Round(t.Context()).Peers[0].Last.Answer.Withdrawn; !slices.Equal(got, []ID{"c1", "c2"}) {
		t.Errorf("heard of %v", got)
	}
	bad := a.machine.Answer()
	for _, list := range [][]ID{{"no ID"}, make([]ID, maxMembers+1)} {
		if bad.Withdrawn = list; bad.check() == nil {
			t.Errorf("%d withdrawn clusters, the first %q, pass", len(list), list[0])
		}
	}
}

// TestListenFaults: a listen address that cannot be used is told, and what was
// bound before it is free again.
func TestListenFaults(t *testing.T) {
	good := freeURLs(t, "http", 1)[0]
	for _, tt := range []struct{ url, want string }{
		{"https://127.0.0.1:0", "without a peer certificate"},
		{"unix://etcd.sock", "only http and https"},
		{"http://192.0.2.77:1", "192.0.2.77:1 is on no interface of this host yet"},
	} {
		_, err := Open(t.Context(), Config{Start: Start{Plan: planAt([]string{good}, 0)}, Listen: []string{good, tt.url}, Log: zaptest.NewLogger(t)})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.url, err, tt.want)
		}
		closeIt(t, listenOn(t, strings.TrimPrefix(good, "http://")))
	}
}

// TestTaken: who has the listen address already.
func TestTaken(t *testing.T) {
	start := func(url string) error {
		_, err := Open(t.Context(), Config{Start: Start{Plan: planAt([]string{url, "http://127.0.0.1:1"}, 0), State: Waiting}, Listen: []string{url}, Log: zaptest.NewLogger(t)})
		return err
	}
	urls := freeURLs(t, "http", 2)
	startAt(t, urls, 0, TLS{})
	var taken *TakenError
	err := start(urls[0])
	if !errors.As(err, &taken) || taken.By.Kind != Agent || !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "another etcdinit already runs here") {
		t.Errorf("by an agent: %v", err)
	}
	for _, tt := range []struct {
		name, cluster string
		kind          Kind
		want          string
	}{
		{"etcd", "c9", Etcd, "etcd already runs here"},
		{"another program", "", Garbage, "taken by another program"},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/members" || tt.cluster == "" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("X-Etcd-Cluster-Id", tt.cluster)
			say(w, "[]")
		}))
		if err := start(srv.URL); !errors.As(err, &taken) || taken.By.Kind != tt.kind || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("by %s: %v", tt.name, err)
		}
		srv.Close()
	}
}

// deaf is a peer that has gone.
type deaf struct{ *httptest.ResponseRecorder }

func (deaf) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestSent: what did not go out was not told.
func TestSent(t *testing.T) {
	sent := 0
	s := &server{busy: make(chan struct{}, 1), material: &material{}, answer: func(call, bool) (*Answer, func()) { return &Answer{}, func() { sent++ } }}
	serve := func(w http.ResponseWriter) {
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path, http.NoBody))
	}
	serve(deaf{httptest.NewRecorder()})
	if sent != 0 {
		t.Error("told a peer that has gone")
	}
	serve(httptest.NewRecorder())
	if sent != 1 {
		t.Error("not told a peer that listens")
	}
}

// woken says whether there is news.
func woken(b *Barrier) bool {
	select {
	case <-b.News():
		return true
	default:
		return false
	}
}

// TestListener: only the one path, and never a status that stops an etcd.
func TestListener(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	startAt(t, urls, 0, TLS{})
	for _, tt := range []struct {
		name, method, path string
		want               int
	}{
		{"state", http.MethodGet, Path, 200},
		{"state by post", http.MethodPost, Path, 404},
		{"state with a query", http.MethodGet, Path + "?x=1", 404},
		{"state and more", http.MethodGet, Path + "/x", 404},
		{"raft", http.MethodPost, "/raft", 404},
		{"raft stream", http.MethodGet, "/raft/stream/message/1", 404},
		{"raft probing", http.MethodGet, "/raft/probing", 404},
		{"members", http.MethodGet, "/members", 404},
		{"version", http.MethodGet, "/version", 404},
		{"the first edition's state", http.MethodGet, "/etcdinit/v1/state", 404},
		{"up and down", http.MethodGet, "/x/../etcdinit/v2/state", 404},
		{"options", http.MethodOptions, "/raft", 404},
		{"connect-like", http.MethodPut, "/", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, urls[0]+tt.path, strings.NewReader(strings.Repeat("x", 1000)))
			if err != nil {
				t.Fatal(err)
			}
			tr := &http.Transport{DisableKeepAlives: true}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer closeIt(t, resp.Body)
			if resp.StatusCode != tt.want {
				t.Errorf("%s %s: %d, want %d", tt.method, tt.path, resp.StatusCode, tt.want)
			}
		})
	}
}

// TestOptionsOfAll: what net/http answers by itself is no 200 either.
func TestOptionsOfAll(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	startAt(t, urls, 0, TLS{})
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(urls[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, c)
	say(c, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 404 ") {
		t.Errorf("OPTIONS *: %q, %v", line, err)
	}
}

// TestOverload: beyond the limit of requests, 503.
func TestOverload(t *testing.T) {
	s := &server{busy: make(chan struct{}, 1), material: &material{}, answer: func(call, bool) (*Answer, func()) { return &Answer{}, func() {} }}
	s.busy <- struct{}{}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path, http.NoBody))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
	<-s.busy
	w = httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path, http.NoBody))
	if w.Code != http.StatusOK || len(s.busy) != 0 {
		t.Errorf("status %d, %d still busy", w.Code, len(s.busy))
	}
}

// TestSlowLoris: connections that say nothing are ended, and while one host
// holds all that it gets, another one is still answered.
func TestSlowLoris(t *testing.T) {
	l := listenOn(t, "0.0.0.0:0")
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	closeIt(t, l)
	url := "http://127.0.0.1:" + port
	b, err := Open(t.Context(), Config{Start: Start{Plan: planAt([]string{url, "http://127.0.0.1:1"}, 0), State: Waiting}, Listen: []string{"http://0.0.0.0:" + port}, Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, b)
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var held []net.Conn
	for range 3 * maxPerHost {
		c, err := from.DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Skipf("no loopback alias here: %v", err)
		}
		t.Cleanup(func() { closeIt(t, c) })
		if _, err := io.WriteString(c, "GET /etcdinit/v2/state HTTP/1.1\r\nX: "); err != nil {
			continue
		}
		held = append(held, c)
	}
	if got := selfSeen(t, b); got != Mine {
		t.Errorf("with a slow host at the door, my own probe sees: %v", got)
	}
	start := time.Now()
	for _, c := range held {
		if err := c.SetReadDeadline(time.Now().Add(3 * ioTimeout)); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, c)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatalf("a connection that says nothing is held for more than %v", time.Since(start))
		}
	}
}

// TestLyingNeighbours: what may sit at a peer's URL, and what is made of it.
func TestLyingNeighbours(t *testing.T) {
	ok := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != Path {
				http.NotFound(w, r)
				return
			}
			say(w, body)
		}
	}
	plan := planAt([]string{"http://127.0.0.1:1", "http://127.0.0.1:2"}, 0)
	member := func(id ID) string {
		r := rosterAt(plan)
		a := Answer{Format: Format, Digest: "d", MemberID: id, Nonce: "n", State: Committed, Disk: r.Disk(string(id)), ClusterID: text(r.ClusterID("d")), Roster: r}
		data, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	etcd := func(header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/members" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("X-Etcd-Cluster-Id", header)
			say(w, body)
		}
	}
	for _, tt := range []struct {
		name   string
		h      http.HandlerFunc
		want   Standing
		detail string
	}{
		{"an agent", ok(member("a1")), IsCommitted, ""},
		{"another member's agent", ok(member("a0")), Astray, ""},
		{"a web server", ok("<html>hello</html>"), Unknown, "not an agent's JSON"},
		{"a newer agent", ok(`{"format":9}`), Unknown, "same version"},
		{"an agent of the first edition", ok(`{"format":1,"digest":"d","clusterID":"c1","memberID":"a1","nonce":"n","state":"committed"}`), Unknown, "same version"},
		{"a flood", ok(strings.Repeat("x", 2*maxAnswer)), Unknown, "more than"},
		{"404 for all", http.NotFound, Unknown, "neither"},
		{"403 for all", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, Unknown, "neither"},
		{"a redirect to an agent", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, Unknown, "HTTP 302"},
		{"busy", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, Silent, "busy"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Silent, "closed the connection"},
		{"etcd of mine", etcd("00000000000000c1", `[{"id":160,"name":"m0","peerURLs":[]}]`), Unstarted, ""},
		{"etcd of mine that has run as me", etcd("c1", `[{"id":160,"name":"m0","peerURLs":[],"clientURLs":["http://192.0.2.1:2379"]}]`), Started, ""},
		{"etcd of mine without me", etcd("c1", `[{"id":161,"name":"m1","peerURLs":[],"clientURLs":["http://192.0.2.1:2379"]}]`), Removed, ""},
		{"etcd of mine that lists nobody", etcd("c1", `[]`), Vague, ""},
		{"etcd of mine, null", etcd("c1", `null`), Vague, ""},
		{"etcd of others", etcd("c9", `[]`), Runs, ""},
		{"no cluster ID", etcd("", `[]`), Unknown, "no cluster ID"},
		{"cluster ID 0", etcd("0", `[]`), Unknown, "no cluster ID"},
		{"a cluster ID of nonsense", etcd("zz", `[]`), Unknown, "no cluster ID"},
		{"a list of nonsense", etcd("c1", `{"x":`), Unknown, "no list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(tt.h)
			defer srv.Close()
			urls := append(freeURLs(t, "http", 1), srv.URL)
			b := startAt(t, urls, 0, TLS{})
			b.machine.State, b.machine.ClusterID = Committed, "c1"
			v := b.Round(t.Context())
			if p := v.Peers[0]; p.Now != tt.want || !strings.Contains(p.Last.Detail, tt.detail) {
				t.Errorf("got %v (%s), want %v (%s)", p.Now, p.Last.Detail, tt.want, tt.detail)
			}
		})
	}
}

// TestRoundIsBounded: a peer that takes the connection and is silent does not
// hold a round for longer than its time.
func TestRoundIsBounded(t *testing.T) {
	l := listenOn(t, "127.0.0.1:0")
	defer closeIt(t, l)
	b := startAt(t, append(freeURLs(t, "http", 1), "http://"+l.Addr().String()), 0, TLS{})
	start := time.Now()
	v := b.Round(t.Context())
	if took := time.Since(start); took > RoundTime+time.Second || v.Peers[0].Now != Silent {
		t.Errorf("%v after %v", v.Peers[0].Now, took)
	}
	if !strings.Contains(v.Peers[0].Last.Detail, "no answer") {
		t.Errorf("detail: %s", v.Peers[0].Last.Detail)
	}
}

// TestProxyIsNotUsed: a proxy's answer would not be a peer's.
func TestProxyIsNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	urls := freeURLs(t, "http", 2)
	a := startAt(t, urls, 0, TLS{})
	startAt(t, urls, 1, TLS{})
	if got := standings(a.Round(t.Context())); got != "waiting" {
		t.Error(got)
	}
}

// TestConnLimit: one host gets its share, all hosts together get theirs.
func TestConnLimit(t *testing.T) {
	c := &connLimit{perHost: make(map[string]int)}
	got := 0
	for c.enter("192.0.2.1") {
		got++
	}
	if got != maxPerHost {
		t.Errorf("one host has %d connections", got)
	}
	for i := range 2 * maxConns {
		if c.enter(fmt.Sprintf("192.0.2.%d", 2+i%200)) {
			got++
		}
	}
	if got != maxConns {
		t.Errorf("all hosts have %d connections", got)
	}
	c.leave("192.0.2.1")
	if !c.enter("192.0.2.1") {
		t.Error("a connection that was closed still counts")
	}
}
