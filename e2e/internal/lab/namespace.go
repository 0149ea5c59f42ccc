//go:build e2e

package lab

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
)

// namespace is an operating-system thread with a network and mounts of its
// own. What do runs there sees them, and so does every process started there;
// a socket opened there stays there. It has no name: when the thread and its
// processes end, the kernel takes it away.
type namespace struct {
	calls chan func()
	ended chan struct{}
	where string // path of the network namespace
}

var errEnded = errors.New("the host is gone")

// do runs f on the namespace's thread.
func (n *namespace) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case n.calls <- func() { result <- f() }:
		return <-result
	case <-n.ended:
		return errEnded
	}
}

// path is where the network namespace is found from everywhere.
func (n *namespace) path() string { return n.where }

// close ends the thread, and with it the processes that it started.
func (n *namespace) close() { close(n.calls) }

func (n *namespace) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = dieWithThread()
	return cmd
}

// output runs a short command there and returns what it printed.
func (n *namespace) output(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.do(cmd.Start); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}
