package seed

import (
	"errors"
	"strings"

	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// ErrorKind is what an Error means for the caller.
type ErrorKind int

const (
	// Invalid means that the Spec cannot be seeded: names, URLs, learners (status 20).
	Invalid ErrorKind = iota + 1
	// Write means that a write failed and nothing was committed (status 31).
	Write
	// Busy means that another process holds the directory (status 32).
	Busy
	// Foreign means another member's or cluster's data (status 43).
	Foreign
	// Damaged means corrupt or half-written (status 44).
	Damaged
	// Changed means that the directory is not what it was when it was looked at:
	// look again, and decide anew (status 32 where nobody does).
	Changed
)

// Error is one line: what was attempted, the path, what was seen, what to do.
type Error struct {
	Kind ErrorKind
	Msg  string
	Err  error // the cause, or nil
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

// Locked reports that another etcdinit works in the directory at this moment: that
// passes, where an etcd that runs (Busy as well) stays.
func Locked(err error) bool { return errors.Is(err, stage.ErrBusy) }
