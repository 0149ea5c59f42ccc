package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

const (
	defaultBackoffMin = 200 * time.Millisecond
	defaultBackoffMax = 5 * time.Second
	// lastTry is how long before the deadline a wait that would outlast it
	// ends: time enough for one exchange with a slow server. After it, there is
	// one more right before the end, for a server that answers at once.
	lastTry  = 2 * time.Second
	veryLast = 300 * time.Millisecond
	// hintsAfter is how long a wait may take before it is told what to look at.
	hintsAfter = 30 * time.Second
)

// Progress is what Await knows after a try.
type Progress struct {
	Attempt   int           // 1 for the first try
	Got, Want int           // peers seen so far, and peers expected (0: the source knows)
	Err       error         // why the set is not complete; nil after the last try
	Left      time.Duration // until the deadline; 0: no deadline
	Next      time.Duration // until the next try
	Peers     []Peer        // what was seen of the set; only complete where Err is nil
}

// String is the progress in one line.
func (p Progress) String() string {
	if p.Err == nil {
		return fmt.Sprintf("attempt %d: %d peers, complete", p.Attempt, p.Got)
	}
	s := fmt.Sprintf("attempt %d: %v, next try in %s", p.Attempt, p.Err, round(p.Next))
	if p.Left > 0 {
		s += fmt.Sprintf(", %s left", round(p.Left))
	}
	return s
}

// AwaitOptions say what Await waits for.
type AwaitOptions struct {
	// Size is the number of peers expected; 0: Env.Size. A source that does
	// not know its size (see Sized) needs one.
	Size int
	Env  Env
	// OnProgress is called after every try, from Await's own goroutine.
	OnProgress func(Progress)
	// BackoffMin and BackoffMax bound the jittered wait between two tries,
	// which is a quarter of the time waited so far. 0: 200 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
}

// Await asks p until the set is complete: exactly Size peers, all with
// addresses, all rules of Check kept. The set it returns is in the one
// spelling that every node computes from the same records, whatever their
// order, case and repetition: sorted by name, hosts lower-case and without
// trailing dot, names taken from the hosts where the source gave none, client
// URLs taken from Env.ClientListeners where the source gave none.
//
// The answer is one of three.
//  1. The whole set.
//  2. An *Error of kind Config, Unusable, NotSelf or Plugin, at once: waiting
//     would not fix it.
//  3. When ctx is done: its cause if it was cancelled, and if its deadline
//     passed the last Retry, with the number of tries, the time waited, and
//     hints. Never a part of the set.
func Await(ctx context.Context, p Provider, opts AwaitOptions) ([]Peer, error) {
	w := &wait{AwaitOptions: opts, start: time.Now()}
	w.Size = cmp.Or(opts.Size, opts.Env.Size)
	w.BackoffMin = cmp.Or(opts.BackoffMin, defaultBackoffMin)
	w.BackoffMax = max(cmp.Or(opts.BackoffMax, defaultBackoffMax), w.BackoffMin)
	if w.Size < 0 {
		return nil, &Error{Kind: Config, Msg: fmt.Sprintf("size %d: a cluster has at least one member", w.Size)}
	}
	if w.Size == 0 {
		if s, ok := p.(Sized); !ok || !s.Sized() {
			return nil, &Error{
				Kind: Config,
				Msg:  "the size of the cluster is not set and this discovery source cannot know it: set --size to the number of members",
			}
		}
	}
	w.Env.Size = w.Size
	for {
		if over(ctx) {
			return nil, w.giveUp(ctx)
		}
		w.attempt++
		peers, err := w.try(ctx, p)
		if err == nil {
			w.progress(ctx, Progress{Got: len(peers), Peers: peers})
			w.warn(peers)
			return peers, nil
		}
		if err.Kind != Retry {
			return nil, err
		}
		done := over(ctx)
		if !done || w.last == nil {
			w.last = err // else it says no more than that time is up
		}
		if done {
			return nil, w.giveUp(ctx)
		}
		next := w.next(ctx, jitter(w.backoff()), err.After)
		w.progress(ctx, Progress{Got: len(err.Seen), Peers: err.Seen, Err: w.shown(err), Next: next})
		sleep(ctx, next)
	}
}

// wait is one call of Await.
type wait struct {
	AwaitOptions
	start   time.Time
	attempt int
	last    *Error
}

func (w *wait) try(ctx context.Context, p Provider) ([]Peer, *Error) {
	found, err := p.Discover(ctx)
	if err == nil {
		found = normalize(found, w.Env)
		err = w.accept(found)
	}
	if err == nil {
		return found, nil
	}
	var known *Error
	if errors.As(err, &known) && known.Kind != 0 {
		if prefix, ok := strings.CutSuffix(err.Error(), known.Error()); ok && prefix != "" { // a name was added
			c := *known
			c.Msg, c.Err = strings.TrimSuffix(prefix, ": "), known.bare()
			known = &c
		}
		if len(known.Seen) > 0 {
			c := *known
			c.Seen = normalize(known.Seen, w.Env)
			known = &c
		}
		return nil, known
	}
	return nil, &Error{Kind: Retry, Err: err}
}

func (w *wait) accept(peers []Peer) error {
	if err := Check(peers, w.Size); err != nil {
		return err
	}
	for _, p := range peers {
		for _, u := range p.PeerURLs {
			if s := w.Env.PeerScheme; s != "" && !strings.HasPrefix(u, s+"://") {
				return &Error{
					Kind: Config,
					Msg: fmt.Sprintf("peer %s has the URL %s, but etcd's peer TLS configuration says '%s': make the two agree",
						p.Name, u, s),
				}
			}
		}
	}
	return nil
}

func (w *wait) warn(peers []Peer) {
	if w.Env.Log == nil {
		return
	}
	for _, p := range peers {
		if p.Alias != "" && p.Alias != p.Host {
			w.Env.Log.Warn(p.Host+" is an alias of "+p.Alias+"; a member's host name should have addresses of its own",
				zap.String("peer", p.Name))
		}
	}
}

func (w *wait) progress(ctx context.Context, p Progress) {
	if w.OnProgress == nil {
		return
	}
	p.Attempt, p.Want = w.attempt, w.Size
	if left, ok := remaining(ctx); ok {
		p.Left = max(left, 1) // 0 means that there is no deadline
	}
	w.OnProgress(p)
}

// backoff is a quarter of what has been waited: an answer is never seen later
// than that, and long waits ask seldom.
func (w *wait) backoff() time.Duration {
	return min(max(time.Since(w.start)/4, w.BackoffMin), w.BackoffMax)
}

// next is the wait before the next try. An answer that asking sooner cannot
// change is waited for, but not past the last try that can still succeed.
func (w *wait) next(ctx context.Context, backoff, after time.Duration) time.Duration {
	d := max(backoff, after)
	if left, ok := remaining(ctx); ok && left <= lastTry {
		d = backoff // what asking sooner cannot change is asked all the same
	}
	return BeforeDeadline(ctx, d)
}

// BeforeDeadline shortens a wait that would outlast ctx's deadline, so that
// there is a look some time before it, and one right before it.
func BeforeDeadline(ctx context.Context, d time.Duration) time.Duration {
	left, ok := remaining(ctx)
	switch {
	case !ok || d <= left-lastTry:
		return d
	case left > lastTry:
		return left - lastTry
	case left > veryLast:
		return min(d, left-veryLast)
	}
	return min(d, left)
}

func (w *wait) giveUp(ctx context.Context) error {
	<-ctx.Done() // over
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	waited := round(time.Since(w.start))
	if w.last == nil {
		return &Error{Kind: Retry, Msg: fmt.Sprintf("the time was over before the first try (waited %s)", waited)}
	}
	return &Error{
		Kind:       cmp.Or(w.last.AtDeadline, Retry),
		Msg:        fmt.Sprintf("gave up at attempt %d after %s", w.attempt, waited),
		Err:        w.last.bare(),
		AtDeadline: w.last.AtDeadline,
		Seen:       w.last.Seen,
		Hints:      w.hints(w.last),
	}
}

// shown is a Retry as progress shows it: with hints once the wait is long, for
// a wait without deadline has no other occasion.
func (w *wait) shown(err *Error) error {
	if time.Since(w.start) < hintsAfter {
		return err.bare()
	}
	c := *err
	c.Hints = w.hints(err)
	return &c
}

// hints say what to look at when the set does not become complete.
func (w *wait) hints(err *Error) []string {
	hints := slices.Clone(err.Hints)
	if n := len(err.Seen); w.Env.Pod && n > 0 && n < w.Size {
		hints = append(hints, "on Kubernetes a StatefulSet needs podManagementPolicy: Parallel, else pod 0 waits for peers that are made only after it")
	}
	return hints
}

// over tells whether ctx is done, or will be in this instant: what waits for a
// deadline itself may see it pass before the context's timer does.
func over(ctx context.Context) bool {
	left, ok := remaining(ctx)
	return ctx.Err() != nil || ok && left <= 0
}

func remaining(ctx context.Context) (time.Duration, bool) {
	t, ok := ctx.Deadline()
	return time.Until(t), ok
}

// jitter spreads the tries of nodes that started together: from d/2 to d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load, hides nothing
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// round keeps what a reader wants to know of a duration.
func round(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
