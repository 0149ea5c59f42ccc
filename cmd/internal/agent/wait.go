package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/etcdinit/etcdinit/seed"
)

const (
	minPause = 20 * time.Millisecond
	maxPause = 2 * time.Second

	// lockTime is how long another etcdinit may work in the data directory: it
	// writes and syncs a few files. At the first look it gets firstLockTime, since
	// what only this node knows is told within the first second.
	lockTime      = 5 * time.Second
	firstLockTime = 800 * time.Millisecond
)

// elbow waits a moment where err says that another etcdinit works in the data
// directory; the loop then looks again at what that one has made of it. Any other
// error comes back.
func (a *agent) elbow(ctx context.Context, err error) error {
	if !seed.Locked(err) {
		return err
	}
	if a.locked.IsZero() {
		a.locked = time.Now()
	}
	limit := lockTime
	if !a.checked {
		limit = firstLockTime
	}
	if time.Since(a.locked) > limit {
		return err
	}
	cause := a.sleep(ctx, minPause, Wait{For: "the data directory", Cause: err.Error()})
	switch {
	case cause == nil:
		return nil
	case expired(ctx):
		return err
	}
	return a.interrupted(cause)
}

// wait says what is awaited and waits for news, or for a while that grows.
func (a *agent) wait(ctx context.Context, out Outcome) error {
	a.pause = min(max(2*a.pause, minPause), maxPause)
	d := a.pause + rand.N(a.pause/2+1) //nolint:gosec // spreads the agents, no secret
	a.pending()
	a.tellWait(ctx, d, Wait{For: a.awaited(out), Cause: a.why(out), Rows: a.rows(out)})
	timer := time.NewTimer(d)
	defer timer.Stop()
	if out.Rule != RuleUnripe {
		a.cluster.lostSince = 0
	}
	var news <-chan struct{}
	if a.barrier != nil {
		news = a.barrier.News()
	}
	select {
	case <-news:
		a.pause = 0
	case <-timer.C:
	case <-ctx.Done():
		if !expired(ctx) {
			return a.over(ctx)
		}
	}
	if !expired(ctx) { // at the end what was said last is the reason
		a.cluster.says.Asked = false
	}
	return nil
}

// sleep waits for d, or until ctx is done: then it returns the cause.
func (a *agent) sleep(ctx context.Context, d time.Duration, w Wait) error {
	a.tellWait(ctx, d, w)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tellWait tells what is waited for, and for how long.
func (a *agent) tellWait(ctx context.Context, next time.Duration, w Wait) {
	w.Next = next
	if deadline, ok := ctx.Deadline(); ok {
		w.Left = max(time.Until(deadline), 1) // 0 says that there is no deadline
	}
	a.OnWait(w)
}

// expired reports whether --timeout has passed.
func expired(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// deadline bounds ctx by --timeout.
func (a *agent) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, a.Timeout, timeoutError{a.Timeout})
}

// timeoutError is the cause of a context whose --timeout has passed.
type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string { return "timeout of " + e.after.String() + " has passed" }

func (timeoutError) Unwrap() error { return context.DeadlineExceeded }
