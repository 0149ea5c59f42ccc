package agent

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/discovery"
)

const (
	// lookAgain is how soon the records are looked up again while a peer does not
	// answer as it should; after failures up to lookSeldom.
	lookAgain  = time.Second
	lookSeldom = 5 * time.Second
	// lookAtOnce is the same where a peer has called that is silent when dialled.
	lookAtOnce = 250 * time.Millisecond
)

// lookout looks the records up again while an agent waits, in a goroutine of its
// own: a dead DNS server costs no round. What it finds is dialled at once.
type lookout struct {
	book   book
	ask    chan struct{}
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	latest   *Found             // not taken yet
	cut      context.CancelFunc // ends the round that dials old addresses
	asked    time.Time
	failures int
}

// newLookout starts one that asks by look.
func newLookout(ctx context.Context, log *zap.Logger, look func(context.Context) (Found, error)) *lookout {
	ctx, cancel := context.WithCancel(ctx)
	l := &lookout{ask: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}), asked: time.Now()}
	go func() {
		defer close(l.done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.ask:
			}
			found, err := look(ctx)
			if err != nil {
				log.Debug("records looked up again", zap.Error(err))
			}
			l.take(found)
		}
	}()
	return l
}

// take keeps an answer until the loop fetches it. An answer that moves somebody
// ends the round that still dials the old addresses.
func (l *lookout) take(found Found) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(found.Peers) == 0 {
		l.failures++
		return
	}
	l.failures, l.latest = 0, &found
	if l.book.update(found.Peers) && l.cut != nil {
		l.cut()
	}
}

// fetch returns the latest answer that was not fetched yet, or nil.
func (l *lookout) fetch() *Found {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.latest
	l.latest = nil
	return found
}

// due asks again, unless that was done less than after ago.
func (l *lookout) due(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.asked) < min(after<<min(l.failures, 8), max(after, lookSeldom)) {
		return
	}
	l.asked = time.Now()
	select {
	case l.ask <- struct{}{}:
	default:
	}
}

// bounded is a context for one round: it ends where the addresses that the round
// dials are found to be old.
func (l *lookout) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cancel
	return ctx, cancel
}

func (l *lookout) stop() {
	l.cancel()
	<-l.done
}

// askRecords has the records looked up again where a peer is not what this agent
// needs it to be: silent, with another plan, or with another proposal or roster.
// DNS may still be spreading, or a member has moved: two machines can be one
// member, each for those whose resolver names it.
func (a *agent) askRecords() {
	for i := range a.view.Peers {
		p := &a.view.Peers[i]
		switch {
		case p.Called && time.Since(a.met) > lookAgain: // at first it may only be starting
			a.lookout.due(lookAtOnce)
		case !p.Agreed && !p.Bound && !p.LeftOut:
			a.lookout.due(lookAgain)
		}
	}
	if a.view.Self != rendezvous.Mine {
		a.lookout.due(lookAgain)
	}
}

// takeRecords takes over what the lookout has found. While the disk is not
// bound, a plan that DNS has changed is taken over too.
func (a *agent) takeRecords() error {
	if a.lookout == nil {
		return nil
	}
	found := a.lookout.fetch()
	if found == nil || found.Self < 0 || a.plan == nil || !isEmpty(a.disk) {
		return nil
	}
	if err := a.swapped(*found); err != nil {
		a.Log.Debug("what discovery answers now is not taken over", zap.Error(err))
		return nil
	}
	plan, err := a.planFor(*found)
	if err != nil {
		return err
	}
	a.found = found
	if plan.Digest() == a.plan.Digest() {
		return nil
	}
	a.Log.Info("discovery answers something else now: planning again", zap.Int("members", len(plan.Members)), zap.String("member_id", plan.MemberID.String()))
	a.plan, a.asked, a.view, a.pause = plan, false, rendezvous.View{}, 0
	a.cluster.forget()
	if a.barrier != nil {
		a.barrier.Replan(meetingPlan(plan))
	}
	return nil
}

// book is the addresses that peers are dialled at, by host name.
type book struct {
	mu    sync.Mutex
	addrs map[string][]netip.Addr
}

// update takes the addresses of peers over; it reports whether a host that was
// known has others now.
func (b *book) update(peers []discovery.Peer) (moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.addrs == nil {
		b.addrs = make(map[string][]netip.Addr)
	}
	fresh := make(map[string][]netip.Addr)
	for _, p := range peers {
		host := strings.ToLower(p.Host)
		fresh[host] = append(fresh[host], p.Addrs...)
	}
	for host, addrs := range fresh {
		old, known := b.addrs[host]
		moved = moved || known && !slices.Equal(old, addrs)
		b.addrs[host] = addrs
	}
	return moved
}

func (b *book) of(host string) []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addrs[strings.TrimSuffix(strings.ToLower(host), ".")]
}

// dial reaches a peer at the addresses that discovery gave, so that what is
// dialled is what was planned; other hosts by the system's resolver. Both address
// families are tried side by side, so that a dead one costs nothing.
func (b *book) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	addrs := b.of(host)
	if len(addrs) == 0 {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	var families [2][]string
	for _, ip := range addrs {
		family := 0
		if ip.Is6() {
			family = 1
		}
		families[family] = append(families[family], net.JoinHostPort(ip.String(), port))
	}
	return race(ctx, network, families)
}

type dialled struct {
	conn net.Conn
	err  error
}

// race dials the addresses of each family one after the other, both families at
// once, and returns the first connection.
func race(ctx context.Context, network string, families [2][]string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialled, len(families))
	running := 0
	for _, addrs := range families {
		if len(addrs) == 0 {
			continue
		}
		running++
		go func() { results <- inTurn(ctx, network, addrs) }()
	}
	var last error
	for ; running > 0; running-- {
		r := <-results
		if r.err != nil {
			last = r.err
			continue
		}
		if running > 1 {
			go func() { // the slower one is not needed any more
				if slow := <-results; slow.conn != nil {
					_ = slow.conn.Close() //nolint:errcheck // nothing was said on it
				}
			}()
		}
		return r.conn, nil
	}
	return nil, last
}

// inTurn gives each address its share of the time that is left: one that swallows
// packets must not use up that of the next.
func inTurn(ctx context.Context, network string, addrs []string) (r dialled) {
	for i, addr := range addrs {
		part, cancel := ctx, context.CancelFunc(func() {})
		if deadline, ok := ctx.Deadline(); ok {
			part, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(addrs)-i))
		}
		r.conn, r.err = (&net.Dialer{}).DialContext(part, network, addr)
		cancel()
		if r.err == nil {
			return r
		}
	}
	return r
}
