package discovery

import (
	"strings"
	"time"
)

// Kind tells what an error of this package means for the caller.
type Kind int

const (
	// Retry is not complete or not reachable yet; ask again (status 30).
	Retry Kind = iota + 1
	// Config is a malformed source or option (status 20).
	Config
	// Unusable is a complete, definite answer that cannot be used (status 40).
	Unusable
	// NotSelf says that this host is none or more than one of the peers (status 41).
	NotSelf
	// Plugin says that a plugin failed for good or broke the contract (status 33).
	Plugin
)

// String names the kind for messages and logs.
func (k Kind) String() string {
	switch k {
	case Retry:
		return "retry"
	case Config:
		return "config"
	case Unusable:
		return "unusable"
	case NotSelf:
		return "not self"
	case Plugin:
		return "plugin"
	}
	return "unknown"
}

// Error is what discovery failed with, in one line: what was asked, what was
// seen, what to do.
type Error struct {
	Kind Kind
	Msg  string
	// After: asking sooner is useless (a negative answer's TTL, a plugin's
	// retryAfter). 0: no bound.
	After time.Duration
	Err   error // the cause, or nil

	// AtDeadline is what a Retry turns into if it is still so when the
	// deadline passes; 0: it stays Retry.
	AtDeadline Kind
	// Seen is what a Retry saw of the set so far. It is there to show
	// progress and is never an answer.
	Seen []Peer
	// Hints say what to look at if the error stays. Await keeps those of a
	// Retry back for a while: most waits end well by themselves.
	Hints []string
}

func (e *Error) Error() string {
	s := e.Msg
	if e.Err != nil {
		if s != "" {
			s += ": "
		}
		s += e.Err.Error()
	}
	if len(e.Hints) > 0 {
		s += "; hint: " + strings.Join(e.Hints, "; ")
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// bare is the error without its hints.
func (e *Error) bare() *Error {
	c := *e
	c.Hints = nil
	return &c
}
