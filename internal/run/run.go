package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/etcdinit/etcdinit/plugins"
)

// Grace is how long stdout may stay open after a plugin has exited.
const Grace = 500 * time.Millisecond

// Call is one call of a plugin.
type Call struct {
	Path    string   // absolute
	Env     []string // NAME=value; nothing else is in the environment
	Request []byte
	// Stderr is given each line the plugin prints to stderr; nil drops them.
	Stderr func(line string)
}

// Result is what a plugin did.
type Result struct {
	Stdout   []byte
	Status   int    // exit status; -1 where a signal killed it
	Signal   string // the signal's name
	LastLine string // the last line on stderr that was not empty
	Took     time.Duration
	// Left names what the plugin left in its working directory (rule 2.6).
	Left []string
}

// Reason says why a call has no usable output.
type Reason int

const (
	// NotStarted says that the system could not start it.
	NotStarted Reason = iota + 1
	// TimedOut says that it was killed at the deadline.
	TimedOut
	// Flooded says that it printed more than plugins.MaxResponse; it was killed.
	Flooded
	// HeldOpen says that it exited, but a process it left behind held its stdout open.
	HeldOpen
	// Killed says that a signal killed it, which was not ours.
	Killed
)

// Error is why a call has no usable output. Its text reads on after "plugin X".
type Error struct {
	Reason Reason
	Msg    string
	Err    error // the cause, or nil
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Msg
	}
	return e.Msg + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Do calls the plugin. The context should have a deadline. An exit status
// other than 0 is no error of Do; an error is an *Error, or the context's
// where the caller gave up. Result is filled in as far as it is known.
func Do(ctx context.Context, c Call) (Result, error) {
	dir, remove := workDir(os.TempDir(), "/dev/shm", "/run")
	res, err := tries(ctx, c, dir)
	res.Left = remove()
	return res, err
}

func tries(ctx context.Context, c Call, dir string) (Result, error) {
	// A file that was just written may still be open for writing in a child
	// that another thread forks: wait for that, with a new Cmd each time.
	for try := 1; ; try++ {
		res, err := do(ctx, c, dir)
		if !errors.Is(err, syscall.ETXTBSY) || try == 5 {
			return res, err
		}
		select {
		case <-ctx.Done():
			return res, err
		case <-time.After(time.Duration(try) * 10 * time.Millisecond):
		}
	}
}

func do(parent context.Context, c Call, dir string) (Result, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	stdout := &capped{limit: plugins.MaxResponse, full: func() { cancel(errFull) }}
	stderr := &lines{emit: c.Stderr}

	cmd := exec.CommandContext(ctx, c.Path)
	cmd.Dir = dir
	cmd.Env = append([]string{}, c.Env...) // never nil, which would be ours
	cmd.Stdin = bytes.NewReader(c.Request)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = Grace
	cmd.SysProcAttr = ownGroup()
	killed := false // Wait returns only after Cancel has
	cmd.Cancel = func() error {
		killed = true
		return killGroup(cmd.Process)
	}

	start := time.Now()
	if err := cmd.Start(); err != nil {
		return Result{Status: -1}, notStarted(c.Path, err)
	}
	err := cmd.Wait()
	// What it left behind in its group dies with it.
	if kerr := killGroup(cmd.Process); kerr != nil && !errors.Is(kerr, os.ErrProcessDone) {
		err = errors.Join(err, kerr)
	}
	stderr.flush()
	res := Result{
		Stdout: stdout.buf.Bytes(), LastLine: stderr.last, Took: time.Since(start),
		Status: cmd.ProcessState.ExitCode(), Signal: signalOf(cmd.ProcessState),
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return res, nil
	case errors.Is(context.Cause(ctx), errFull):
		return res, &Error{Reason: Flooded, Msg: fmt.Sprintf("printed more than %d bytes to stdout and was killed", plugins.MaxResponse)}
	case killed && errors.Is(parent.Err(), context.DeadlineExceeded):
		return res, &Error{Reason: TimedOut, Msg: fmt.Sprintf("gave no answer within %s and was killed", res.Took.Round(10*time.Millisecond)), Err: context.Cause(parent)}
	case killed:
		return res, context.Cause(parent)
	case errors.Is(err, exec.ErrWaitDelay):
		return res, &Error{Reason: HeldOpen, Msg: fmt.Sprintf("exited with status %d, but a process it left behind held its stdout or stderr open for another %s", res.Status, Grace)}
	case res.Signal != "":
		return res, &Error{Reason: Killed, Msg: "was killed by signal " + res.Signal}
	case errors.As(err, &exit):
		return res, nil
	}
	return res, &Error{Reason: Killed, Msg: "could not be waited for", Err: err}
}

// notStarted words the error of a start. A script whose interpreter is missing
// is told so: the system says only "no such file", of a file that is there.
func notStarted(path string, err error) error {
	e := &Error{Reason: NotStarted, Msg: "could not be started", Err: err}
	if _, serr := os.Stat(path); serr != nil || !errors.Is(err, os.ErrNotExist) {
		return e
	}
	e.Msg = "could not be started: it is there, but not the loader that it is linked with (link it statically)"
	if f, oerr := os.Open(path); oerr == nil { //nolint:gosec // it was about to be run
		defer func() { _ = f.Close() }() //nolint:errcheck // it was only read
		head, rerr := io.ReadAll(io.LimitReader(f, 256))
		if line, _, ok := bytes.Cut(head, []byte("\n")); rerr == nil && ok && bytes.HasPrefix(line, []byte("#!")) {
			e.Msg = fmt.Sprintf("could not be started: its interpreter %s is not here", bytes.TrimSpace(line[2:]))
		}
	}
	return e
}
