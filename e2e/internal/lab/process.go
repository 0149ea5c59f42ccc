//go:build e2e

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

// Proc is a process on a host.
type Proc struct {
	host *Host
	line string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// Result is how a process ended. Status is -1 where a signal ended it.
type Result struct {
	Status         int
	Stdout, Stderr string
	Took           time.Duration
}

// Start runs a program in the host's directory until it ends by itself, by
// the test or with the test. Its output is kept (Proc.Log).
func (h *Host) Start(program string, args ...string) *Proc {
	h.lab.t.Helper()
	h.lab.mu.Lock()
	log := filepath.Join(filepath.Dir(h.Dir), "log", fmt.Sprintf("%03d-%s", len(h.lab.procs), filepath.Base(program)))
	p := &Proc{host: h, log: log, line: h.line(program, args), done: make(chan struct{})}
	h.lab.procs = append(h.lab.procs, p)
	h.lab.mu.Unlock()
	out, err := os.Create(log)
	h.lab.must(err)
	p.cmd = h.command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := h.ns.do(p.cmd.Start); err != nil {
		h.lab.t.Fatalf("lab: %s: %s: %v", h.Name, p.line, err)
	}
	go func() {
		_ = p.cmd.Wait() //nolint:errcheck // the state says it
		_ = out.Close()  //nolint:errcheck // nothing is buffered
		close(p.done)
	}()
	return p
}

// Run runs a program on the host and waits for its end.
func (h *Host) Run(program string, args ...string) Result {
	h.lab.t.Helper()
	cmd := h.command(program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var start time.Time
	err := h.ns.do(func() error { start = time.Now(); return cmd.Start() })
	if err != nil {
		h.lab.t.Fatalf("lab: %s: %s: %v", h.Name, h.line(program, args), err)
	}
	err = cmd.Wait()
	took := time.Since(start)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		h.lab.t.Fatalf("lab: %s: %s: %v", h.Name, h.line(program, args), err)
	}
	return Result{
		Status: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String(),
		Took: took,
	}
}

// MustRun runs a program, fails the test where its status is not 0, and
// returns its standard output.
func (h *Host) MustRun(program string, args ...string) string {
	h.lab.t.Helper()
	return h.WantStatus(0, program, args...).Stdout
}

// WantStatus runs a program and fails the test where its status is another.
func (h *Host) WantStatus(status int, program string, args ...string) Result {
	h.lab.t.Helper()
	result := h.Run(program, args...)
	if result.Status != status {
		h.lab.t.Fatalf("%s: %s: status %d, want %d\n%s%s", h.Name, h.line(program, args), result.Status, status, result.Stdout, result.Stderr)
	}
	return result
}

func (h *Host) command(program string, args ...string) *exec.Cmd {
	cmd := h.ns.command(h.lab.ctx, program, args...)
	cmd.Dir = h.lab.Home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.lab.Home}
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, value := range h.env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	sort.Strings(cmd.Env)
	return cmd
}

func (h *Host) line(program string, args []string) string {
	return strings.Join(append([]string{filepath.Base(program)}, args...), " ")
}

// Log is what the process has printed so far.
func (p *Proc) Log() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// WaitLog waits until the process has printed text, and fails the test where
// it ends before.
func (p *Proc) WaitLog(text string, limit time.Duration) {
	p.host.lab.t.Helper()
	p.host.lab.Eventually(fmt.Sprintf("%s: %s: output %q", p.host.Name, p.line, text), limit, func() error {
		running := p.Running()
		if strings.Contains(p.Log(), text) {
			return nil
		}
		if !running {
			p.host.lab.t.Fatalf("%s: %s: ended with %v without printing %q", p.host.Name, p.line, p.cmd.ProcessState, text)
		}
		return errors.New("not printed")
	})
}

// Running says whether the process has not ended yet.
func (p *Proc) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Done is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Status is how the process ended, -1 for a signal. It waits for the end.
func (p *Proc) Status() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Kill is kill -9; it returns when the process is gone.
func (p *Proc) Kill() { p.Signal(syscall.SIGKILL); <-p.done }

// Stop is SIGTERM; it returns when the process is gone and fails the test
// where that takes more than 20 s.
func (p *Proc) Stop() {
	p.host.lab.t.Helper()
	p.Signal(syscall.SIGTERM)
	p.Wait(20 * time.Second)
}

// Signal sends a signal; to a process that has ended, none.
func (p *Proc) Signal(sig os.Signal) {
	_ = p.cmd.Process.Signal(sig) //nolint:errcheck // it may have ended meanwhile
}

// Wait waits for the process to end and returns its status, -1 for a signal.
func (p *Proc) Wait(limit time.Duration) int {
	p.host.lab.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.host.lab.t.Fatalf("%s: %s: still running after %v", p.host.Name, p.line, limit)
	}
	return p.cmd.ProcessState.ExitCode()
}

// PID is the process's number.
func (p *Proc) PID() int { return p.cmd.Process.Pid }
