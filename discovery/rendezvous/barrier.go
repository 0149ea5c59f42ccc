package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Config is what a Barrier is started with.
type Config struct {
	Plan  Plan
	State State // Waiting, or Committed where the seed is there already
	// Without names members that nobody waits for while they are silent.
	Without []string
	// Listen are the member's listen-peer-urls.
	Listen []string
	TLS    TLS
	Dial   DialFunc // nil: the system's resolver and dialer
	Log    *zap.Logger
}

// Barrier is one agent's end of the rendezvous. Its methods are called from
// one goroutine.
type Barrier struct {
	prober  prober
	server  *server
	log     *zap.Logger
	without []string
	news    chan struct{}

	mu      sync.Mutex
	machine Machine
	called  map[ID]call // what came since the last round began
	told    map[ID]bool // who has come since this agent is committed
	came    chan struct{}
	wakes   bucket
}

// Start answers peers from now on. Where the listen address is in use the
// error is a *TakenError.
func Start(ctx context.Context, cfg Config) (*Barrier, error) {
	b, err := newBarrier(cfg)
	if err != nil {
		return nil, err
	}
	b.server, err = serve(ctx, cfg.Listen, b.prober.material, b.answer, b.log)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func newBarrier(cfg Config) (*Barrier, error) {
	m, err := cfg.TLS.load()
	if err != nil {
		return nil, err
	}
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &Barrier{
		prober: prober{material: m, dial: dial}, log: cfg.Log, without: cfg.Without, news: make(chan struct{}, 1),
		machine: NewMachine(rand.Text(), cfg.Plan, cfg.State), called: make(map[ID]call),
		told: make(map[ID]bool), came: make(chan struct{}, 1), wakes: bucket{tokens: wakeBurst},
	}, nil
}

// Survey asks all members once or twice without answering anybody: what a
// command shows that only looks. What answers at the own URL is left out.
func Survey(ctx context.Context, cfg Config) (View, error) {
	b, err := newBarrier(cfg)
	if err != nil {
		return View{}, err
	}
	v := b.round(ctx, call{})
	if b.Unsteady(v) {
		v = b.round(ctx, call{})
	}
	return v, nil
}

// Unsteady says that every peer that is waited for is there, but some were not
// in the round before, so that another round at once may decide.
func (b *Barrier) Unsteady(v View) bool {
	steady := true
	for i := range v.Peers {
		p := &v.Peers[i]
		if p.Now == Silent && slices.Contains(b.without, p.Member.Name) {
			continue
		}
		if !p.Now.Agrees() {
			return false
		}
		steady = steady && p.Steady
	}
	return !steady
}

// Round asks every peer and returns what is known then.
func (b *Barrier) Round(ctx context.Context) View {
	b.mu.Lock()
	a := &b.machine
	c := call{a.plan.Self, a.nonce, a.state}
	b.mu.Unlock()
	return b.round(ctx, c)
}

func (b *Barrier) round(ctx context.Context, c call) View {
	b.mu.Lock()
	plan := b.machine.plan
	clear(b.called) // the round sees what they told
	b.mu.Unlock()
	r := b.prober.round(ctx, plan, c)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.machine = b.machine.Observe(r)
	b.consider()
	return b.machine.View()
}

// Replan takes another plan; only before the seed is written.
func (b *Barrier) Replan(p Plan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.machine = b.machine.Replan(p)
}

// Advance tells peers that the disk holds what the state means. Call it after
// that is durable.
func (b *Barrier) Advance(s State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.machine = b.machine.Advance(s)
}

// News is sent to when a peer came that is not what it was when last dialled,
// and by what the peers say of themselves another round may decide: a reason to
// look, no more.
func (b *Barrier) News() <-chan struct{} { return b.news }

// answer tells whoever asks, and remembers who came.
func (b *Barrier) answer(c call, known bool) (a Answer, sent func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known = known && slices.ContainsFunc(b.machine.peers, func(k knowledge) bool { return k.member.ID == c.id }); known {
		b.called[c.id] = c
		b.consider()
	}
	a = b.machine.Answer()
	return a, func() {
		if known && a.State != Waiting {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.told[c.id] = true
			signal(b.came)
		}
	}
}

// consider sends news where a peer has called that is not what it was when last
// dialled, and every peer was seen, or has called, as far as this agent is:
// before that a round decides nothing, and with many members they add up. One
// that is released decides alone.
func (b *Barrier) consider() {
	if b.machine.state == Released {
		return
	}
	news, all := false, true
	for i := range b.machine.peers {
		k := &b.machine.peers[i]
		last, seen := &k.last.Answer, k.last.Kind == Agent
		c, called := b.called[k.member.ID]
		all = all && b.farEnough(k, c.state)
		known := seen && last.Nonce == c.nonce && last.State == c.state
		if called && !known {
			news = true
			if c.state == Released {
				all = true
				break
			}
		}
	}
	if news && all && b.wakes.take(time.Now()) {
		signal(b.news)
	}
}

// farEnough says that a peer may have what the next step needs: it was seen so,
// or says so of itself, or nobody waits for it.
func (b *Barrier) farEnough(k *knowledge, says State) bool {
	far := func(s State) bool { return s == Released || s == Committed || s == b.machine.state }
	switch {
	case far(says), k.last.Kind == Etcd, k.last.Kind == Agent && far(k.last.Answer.State):
		return true
	case b.machine.state == Committed && k.proven != 0:
		return true // silence does not undo it
	}
	return says == "" && k.last.Kind == NoAnswer && slices.Contains(b.without, k.member.Name)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Farewell goes on answering until each peer that waits for this agent has
// come since it is committed, or limit has passed: that it is committed is all
// that they need, and they keep it in mind. Who misses it finds etcd running,
// which says the same. Where somebody may have missed it, a last round tells
// who is still there.
func (b *Barrier) Farewell(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if told, silent := b.allTold(); !told || silent {
		b.Round(ctx)
	}
	for {
		if told, _ := b.allTold(); told {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-b.came:
		}
	}
}

func (b *Barrier) allTold() (told, silent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	told = true
	for _, p := range b.machine.View().Peers {
		told = told && (b.told[p.Member.ID] || p.Now != IsWaiting && p.Now != IsCommitted)
		silent = silent || p.Now == Silent && !slices.Contains(b.without, p.Member.Name)
	}
	return told, silent
}

// Close stops answering and frees the listen addresses.
func (b *Barrier) Close() error {
	if b.server == nil {
		return nil
	}
	err := b.server.close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

const (
	wakeBurst = 20
	wakeEvery = 250 * time.Millisecond
)

// bucket bounds how often strangers can make this agent look.
type bucket struct {
	tokens int
	since  time.Time
}

func (k *bucket) take(now time.Time) bool {
	if k.since.IsZero() {
		k.since = now
	}
	if n := int(now.Sub(k.since) / wakeEvery); n > 0 {
		k.tokens = min(k.tokens+n, wakeBurst)
		k.since = k.since.Add(time.Duration(n) * wakeEvery)
	}
	if k.tokens == 0 {
		return false
	}
	k.tokens--
	return true
}
