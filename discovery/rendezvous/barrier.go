package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Config is what a Barrier is started with.
type Config struct {
	Plan  Plan
	State State // Waiting, or Committed where the seed is there already
	// Listen are the member's listen-peer-urls.
	Listen []string
	TLS    TLS
	Dial   DialFunc // nil: the system's resolver and dialer
	Log    *zap.Logger
}

// Barrier is one agent's end of the rendezvous. Its methods are called from
// one goroutine.
type Barrier struct {
	prober prober
	server *server
	log    *zap.Logger
	news   chan struct{}

	mu      sync.Mutex
	machine Machine
	told    map[ID]bool // who has come since this agent is released
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
		prober: prober{material: m, dial: dial}, log: cfg.Log, news: make(chan struct{}, 1),
		machine: NewMachine(rand.Text(), cfg.Plan, cfg.State), told: make(map[ID]bool),
		wakes: bucket{tokens: wakeBurst},
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
	if Unsteady(v) {
		v = b.round(ctx, call{})
	}
	return v, nil
}

// Unsteady says that every peer is there, but some were not in the round
// before, so that another round at once may decide.
func Unsteady(v View) bool {
	steady := true
	for i := range v.Peers {
		if !v.Peers[i].Now.Agrees() {
			return false
		}
		steady = steady && v.Peers[i].Steady
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
	b.mu.Unlock()
	r := b.prober.round(ctx, plan, c)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.machine = b.machine.Observe(r)
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

// News is sent to when a peer came that is not what it was when last dialled:
// a reason to look, no more.
func (b *Barrier) News() <-chan struct{} { return b.news }

// answer tells whoever asks, and remembers who came.
func (b *Barrier) answer(c call, known bool) Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known {
		b.heard(c)
	}
	return b.machine.Answer()
}

func (b *Barrier) heard(c call) {
	for i := range b.machine.peers {
		k := &b.machine.peers[i]
		if k.member.ID != c.id {
			continue
		}
		if b.machine.state == Released {
			b.told[c.id] = true
		}
		last := &k.last.Answer
		if (k.last.Kind != Agent || last.Nonce != c.nonce || last.State != c.state) && b.wakes.take(time.Now()) {
			b.wake()
		}
	}
}

func (b *Barrier) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// Farewell tells the peers that this agent is released and goes on answering
// until each of those that still wait has come for it, or limit has passed.
// Who misses it finds etcd running, which says the same.
func (b *Barrier) Farewell(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for v := b.Round(ctx); !b.allTold(v); {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (b *Barrier) allTold(v View) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range v.Peers {
		p := &v.Peers[i]
		if (p.Now == IsWaiting || p.Now == IsCommitted) && !b.told[p.Member.ID] {
			return false
		}
	}
	return true
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
