package discovery

import "time"

// Kind tells what an error of this package means for the caller.
type Kind int

const (
	// Retry: not complete or not reachable yet; ask again (status 30).
	Retry Kind = iota + 1
	// Config: the source or an option is malformed (status 20).
	Config
	// Unusable: a complete, definite answer that cannot be used (status 40).
	Unusable
	// NotSelf: this host is none or more than one of the peers (status 41).
	NotSelf
	// Plugin: a plugin failed for good or broke the contract (status 33).
	Plugin
)

// Error is what discovery failed with, in one line: what was asked, what was
// seen, what to do.
type Error struct {
	Kind Kind
	Msg  string
	// After: asking sooner is useless (a negative answer's TTL, a plugin's
	// retryAfter). 0: no bound.
	After time.Duration
	Err   error // the cause, or nil
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Msg
	}
	return e.Msg + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }
