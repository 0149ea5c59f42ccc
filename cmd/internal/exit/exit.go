// Package exit says how a run ends: its exit status, and the refusal behind it.
package exit

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

// Status is a process exit status.
type Status int

// The statuses. 30 to 34: retry. 20 and 40 to 45: a human must act.
const (
	Done        Status = 0
	Bug         Status = 1   // main recovers a panic into it; 2 is Go's own
	Config      Status = 20  // flags or configuration
	Incomplete  Status = 30  // peers not complete in time
	Write       Status = 31  // a write failed
	Busy        Status = 32  // another process uses the data directory
	Plugin      Status = 33  // a plugin failed or broke the contract
	Disagree    Status = 34  // peers disagree or stay silent
	Unusable    Status = 40  // discovery's answer cannot be used
	NotSelf     Status = 41  // not exactly one peer is this node
	Unsafe      Status = 42  // the cluster runs already
	Foreign     Status = 43  // another member's data
	Damaged     Status = 44  // corrupt or half-written
	Differs     Status = 45  // a learner's data are not those of the others
	Interrupted Status = 130 // SIGINT
	Terminated  Status = 143 // SIGTERM
)

// Error ends a run. It is data first: the words are made of its fields where
// they are shown.
type Error struct {
	Status Status
	// Reason is a short name of the cause that never changes, such as
	// "cluster-runs". It is for machines.
	Reason string
	// Msg is one line: what was attempted, what was seen.
	Msg string
	// Commands are what a person does next, in order. Each works as printed.
	Commands []string
	Err      error // the cause, or nil
}

// Error returns the line, with its cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Msg
	}
	return e.Msg + ": " + strings.ReplaceAll(e.Err.Error(), "\n", "; ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// SignalError is the cause of the context that a signal ended.
type SignalError struct{ Signal os.Signal }

func (s SignalError) Error() string { return "interrupted (" + s.Signal.String() + ")" }

// Of returns the status that err ends a run with.
func Of(err error) Status {
	var (
		stopped SignalError
		refused *Error
		seeded  *seed.Error
		found   *discovery.Error
	)
	switch {
	case err == nil:
		return Done
	case errors.As(err, &stopped) && stopped.Signal == os.Interrupt:
		return Interrupted
	case errors.As(err, &stopped):
		return Terminated
	case errors.As(err, &refused) && refused.Status == Done:
		return Bug // a refusal never ends as a success: etcd would be started
	case errors.As(err, &refused):
		return refused.Status
	case errors.As(err, &seeded):
		return ofSeed(seeded.Kind)
	case errors.As(err, &found):
		return ofDiscovery(found.Kind)
	case errors.Is(err, context.DeadlineExceeded):
		return Incomplete
	}
	return Bug
}

func ofSeed(kind seed.ErrorKind) Status {
	switch kind {
	case seed.Invalid:
		return Config
	case seed.Write:
		return Write
	case seed.Busy, seed.Changed:
		return Busy
	case seed.Foreign:
		return Foreign
	case seed.Damaged:
		return Damaged
	}
	return Bug
}

func ofDiscovery(kind discovery.Kind) Status {
	switch kind {
	case discovery.Config:
		return Config
	case discovery.Retry:
		return Incomplete
	case discovery.Plugin:
		return Plugin
	case discovery.Unusable:
		return Unusable
	case discovery.NotSelf:
		return NotSelf
	}
	return Bug
}

// Refusal returns the outermost Error in err, or nil.
func Refusal(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}
