package app

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

// InterruptedError is the cause of the context that a signal ended.
type InterruptedError struct{ Signal os.Signal }

func (i InterruptedError) Error() string {
	return "interrupted (" + i.Signal.String() + ")"
}

// usageError is a command line that cannot be run.
type usageError struct{ err error }

func (u usageError) Error() string { return u.err.Error() }
func (u usageError) Unwrap() error { return u.err }

// Exit statuses: 3x means try again; 20 and 4x, call a person.
const (
	statusDone        = 0
	statusBug         = 1
	statusConfig      = 20
	statusIncomplete  = 30
	statusWrite       = 31
	statusBusy        = 32
	statusPlugin      = 33
	statusDisagree    = 34
	statusUnusable    = 40
	statusSelf        = 41
	statusUnsafe      = 42
	statusForeign     = 43
	statusDamaged     = 44
	statusInterrupted = 130
	statusTerminated  = 143
)

// statusOf is the one place where an error becomes an exit status.
func statusOf(err error) int {
	var stopped InterruptedError
	switch {
	case err == nil:
		return statusDone
	case errors.As(err, &stopped) && stopped.Signal == os.Interrupt:
		return statusInterrupted
	case errors.As(err, &stopped):
		return statusTerminated
	}
	if e := exit.Refusal(err); e != nil {
		return int(e.Status)
	}
	switch kindOf(err) {
	case seed.Invalid, discovery.Config, usage:
		return statusConfig
	case discovery.Retry:
		return statusIncomplete
	case seed.Write:
		return statusWrite
	case seed.Busy, seed.Changed:
		return statusBusy
	case discovery.Plugin:
		return statusPlugin
	case discovery.Unusable:
		return statusUnusable
	case discovery.NotSelf:
		return statusSelf
	case seed.Foreign:
		return statusForeign
	case seed.Damaged:
		return statusDamaged
	default:
		return statusBug
	}
}

// usage is the kind of an error in the command line or in etcd's configuration.
const usage = "usage"

// kindOf returns the kind of the outermost error that has one, else nil.
func kindOf(err error) any {
	var (
		seeded *seed.Error
		found  *discovery.Error
		config *etcdconf.Error
		bad    usageError
	)
	switch {
	case errors.As(err, &seeded):
		return seeded.Kind
	case errors.As(err, &found):
		return found.Kind
	case errors.As(err, &config), errors.As(err, &bad):
		return usage
	case errors.Is(err, context.DeadlineExceeded):
		return discovery.Retry
	default:
		return nil
	}
}

// oneLine keeps an error on the one line that a person gets to see.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
