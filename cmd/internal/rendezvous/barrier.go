package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/etcdinit/etcdinit/internal/birth"
)

// Config is what a Barrier is started with.
type Config struct {
	Start
	// Listen are the member's listen-peer-urls. None: nobody is answered.
	Listen []string
	TLS    TLS
	Dial   DialFunc // nil: the system's resolver and dialer
	// Mute: no agent is answered, only told to come again. For a node that a running
	// cluster takes in: what it has to say is said by etcd.
	Mute bool
	// Still reports whether the directory is what the last step said of it. It
	// is called before each answer; after a no, nobody is answered any more.
	Still func() bool
	// Clock is the time since boot, with the time that the machine slept.
	Clock func() time.Duration
	Log   *zap.Logger
}

// Barrier is one agent's end of the rendezvous. Its methods are called from
// one goroutine.
type Barrier struct {
	prober prober
	server *server
	log    *zap.Logger
	still  func() bool
	clock  func() time.Duration
	news   chan struct{}
	wakes  *rate.Limiter // bounds how often strangers can make this agent look

	acting sync.Mutex // held while the directory changes: peers wait for what it becomes

	mu      sync.Mutex
	machine Machine
	mute    bool // the directory has changed: nothing is said of it
	hushed  bool // Config.Mute
	callers callers
	called  map[ID]call          // what came since the last round began
	heard   map[ID]time.Duration // when a peer has called
	refused map[ID]refusal       // whose calls had a certificate that etcd would refuse
	began   time.Duration        // when the last round began
	told    map[ID]bool          // who has come since this agent is committed
	came    chan struct{}
}

const (
	wakeBurst = 20
	wakeEvery = 250 * time.Millisecond
	// lately is how long a call of a peer that is silent counts.
	lately = 3 * time.Second
	// awhile is how long a call counts for the words: an agent calls at least once in
	// that time, also where each round takes all of RoundTime.
	awhile = 15 * time.Second
)

// refusal is why a peer's call got no answer, and when.
type refusal struct {
	why string
	at  time.Duration
}

// New makes a Barrier that answers nobody: for a command that only looks. It may
// look only once, so it takes the time that its own URL needs to answer.
func New(cfg Config) (*Barrier, error) {
	m, err := cfg.TLS.load()
	if err != nil {
		return nil, err
	}
	b := &Barrier{
		prober: prober{material: m, dial: cfg.Dial, patience: RoundTime}, log: cfg.Log, still: cfg.Still, clock: cfg.Clock,
		news: make(chan struct{}, 1), wakes: rate.NewLimiter(rate.Every(wakeEvery), wakeBurst),
		hushed: cfg.Mute, callers: make(callers),
		called: make(map[ID]call), heard: make(map[ID]time.Duration), refused: make(map[ID]refusal), told: make(map[ID]bool), came: make(chan struct{}, 1),
	}
	if b.prober.dial == nil {
		b.prober.dial = (&net.Dialer{}).DialContext
	}
	if b.still == nil {
		b.still = func() bool { return true }
	}
	if b.clock == nil {
		began := time.Now()
		b.clock = func() time.Duration { return time.Since(began) }
	}
	start := cfg.Start
	if start.Nonce == "" {
		start.Nonce = rand.Text()
	}
	b.machine = NewMachine(start)
	return b, nil
}

// Open makes a Barrier that answers its peers from now on. If the listen address
// is in use, or not there yet, the error is a *TakenError.
func Open(ctx context.Context, cfg Config) (*Barrier, error) {
	b, err := New(cfg)
	if err != nil {
		return nil, err
	}
	b.prober.patience = selfTime
	b.server, err = serve(ctx, cfg.Listen, b.prober.material, b.answer, b.refuse, b.raft, b.log)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Round asks every peer and returns what is known then.
func (b *Barrier) Round(ctx context.Context) View {
	b.mu.Lock()
	plan, c := b.machine.Plan, b.call()
	clear(b.called) // the round sees what they told
	b.began = b.clock()
	b.mu.Unlock()
	r := b.prober.round(ctx, plan, c)
	b.mu.Lock()
	defer b.mu.Unlock()
	if plan.Digest == b.machine.Plan.Digest {
		b.machine = b.machine.Observe(r, b.clock())
	}
	b.consider()
	return b.view()
}

// View returns what is known now.
func (b *Barrier) View() View {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.view()
}

func (b *Barrier) view() View {
	v := b.machine.View()
	for i := range v.Peers {
		at, heard := b.heard[v.Peers[i].Member.ID]
		v.Peers[i].Heard = heard && b.clock()-at < awhile
		if r, ok := b.refused[v.Peers[i].Member.ID]; ok && b.clock()-r.at < awhile {
			v.Peers[i].Refused = r.why
			v.Peers[i].Heard = true
		}
		v.Peers[i].Called = v.Peers[i].Now == Silent && heard && at < b.began && b.clock()-at < lately
	}
	return v
}

// call is what this agent says of itself when it asks.
func (b *Barrier) call() call {
	m := &b.machine
	return call{m.Plan.Self, m.Nonce, m.State, key(m.proposal())}
}

// key is a short hash of a proposal, so that a peer can tell a new one from the
// one that it knows.
func key(p []Seat) string {
	if p == nil {
		return "-"
	}
	h := fnv.New64a()
	for _, s := range p {
		fmt.Fprintf(h, "%s %s %s\n", s.Member, s.Disk, s.Nonce)
	}
	return string(text(h.Sum64()))
}

// Tell changes the words for what this agent's plan begins with.
func (b *Barrier) Tell(content string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.machine.Plan.Content = content
}

// Replan takes another plan; only before the disk is bound.
func (b *Barrier) Replan(p Plan) {
	b.step(func(m Machine) Machine { return m.Replan(p) })
}

// Prepared tells peers that the disk has an ID. Call it after that is durable.
func (b *Barrier) Prepared(disk birth.DiskID) {
	b.step(func(m Machine) Machine { return m.Prepare(disk) })
}

// Committed tells peers that the disk is bound. Call it after that is durable.
func (b *Barrier) Committed(r birth.Roster) {
	b.step(func(m Machine) Machine { return m.Commit(r) })
}

// Released tells peers that etcd may start. Call it after that is durable.
func (b *Barrier) Released() { b.step(Machine.Release) }

func (b *Barrier) step(next func(Machine) Machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.machine = next(b.machine)
	b.mute = false
}

// Act makes a step: peers that ask in the meantime get their answer after it,
// and of what the directory is then.
func (b *Barrier) Act(step func() error) error {
	b.acting.Lock()
	defer b.acting.Unlock()
	return step()
}

// News is sent to when a peer came that is not what it was when last dialled,
// and by what the peers say of themselves another round may decide; or when the
// directory has changed. It is a reason to look, no more.
func (b *Barrier) News() <-chan struct{} { return b.news }

// refuse takes note of a call whose certificate etcd would refuse.
func (b *Barrier) refuse(c call, known bool, why string) {
	b.log.Debug("a call is refused", zap.String("claims_to_be", string(c.id)), zap.String("why", why))
	b.mu.Lock()
	defer b.mu.Unlock()
	if known && slices.ContainsFunc(b.machine.peers, func(k knowledge) bool { return k.member.ID == c.id }) {
		b.refused[c.id] = refusal{why, b.clock()}
	}
}

// answer tells a peer what this agent is, and remembers who came.
func (b *Barrier) answer(c call, known bool) (said *Answer, sent func()) {
	b.acting.Lock()
	defer b.acting.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mute || b.hushed {
		return nil, nil
	}
	if !b.still() {
		b.mute = true
		signal(b.news)
		return nil, nil
	}
	if known = known && slices.ContainsFunc(b.machine.peers, func(k knowledge) bool { return k.member.ID == c.id }); known {
		b.called[c.id], b.heard[c.id] = c, b.clock()
		delete(b.refused, c.id)
		b.consider()
	}
	a, tells := b.machine.Answer(), known && b.machine.bound()
	return &a, func() { // later, without the locks
		if tells {
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
	if b.machine.State == Released {
		return
	}
	mine := level(b.machine.State, key(b.machine.proposal()))
	news, all := false, true
	for i := range b.machine.peers {
		k := &b.machine.peers[i]
		last := &k.last.Answer
		seen := k.last.Kind == Agent
		c, called := b.called[k.member.ID]
		all = all && (b.seenAt(k) >= mine || called && level(c.state, c.key) >= mine)
		if called && (!seen || last.Nonce != c.nonce || last.State != c.state || key(last.Proposal) != c.key) {
			news = true
			if c.state == Released {
				all = true
				break
			}
		}
	}
	if news && all && b.wakes.Allow() {
		signal(b.news)
	}
}

// level orders how far an agent is: waiting, prepared, with a whole proposal,
// committed, released.
func level(s State, key string) int {
	switch s {
	case Waiting:
		return 1
	case Prepared:
		if key == "-" {
			return 2
		}
		return 3
	case Committed:
		return 4
	case Released:
		return 5
	}
	return 0
}

// seenAt is the level of a peer by what is known of it; one that nobody waits
// for is as far as any.
func (b *Barrier) seenAt(k *knowledge) int {
	switch {
	case k.last.Kind == Etcd, k.bound, slices.Contains(b.machine.Without, k.member.Name):
		return level(Released, "-")
	case k.last.Kind == Agent:
		return level(k.last.Answer.State, key(k.last.Answer.Proposal))
	}
	return 0
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Farewell goes on answering until each peer that waits for this agent has
// come since it is committed, or limit has passed: that it is committed is all
// that they need, and they keep it in mind. A peer that misses it finds etcd
// running, which says the same. Where somebody may have missed it, a last round
// tells who is still there.
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
		told = told && (b.told[p.Member.ID] || p.Now != IsWaiting && p.Now != IsPrepared && p.Now != IsCommitted)
		silent = silent || p.Now == Silent && !p.LeftOut
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
