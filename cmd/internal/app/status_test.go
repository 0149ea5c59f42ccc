package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

func TestStatusOf(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"a bug", errors.New("who knows"), 1},
		{"usage", usageError{errors.New("x")}, 20},
		{"etcd's configuration", &etcdconf.Error{Msg: "x"}, 20},
		{"a source", &discovery.Error{Kind: discovery.Config}, 20},
		{"a spec", &seed.Error{Kind: seed.Invalid}, 20},
		{"settings", &agent.Error{Kind: agent.Settings}, 20},
		{"incomplete", &discovery.Error{Kind: discovery.Retry}, 30},
		{"incomplete, wrapped", fmt.Errorf("x: %w", &discovery.Error{Kind: discovery.Retry}), 30},
		{"a deadline", context.DeadlineExceeded, 30},
		{"a write", &seed.Error{Kind: seed.Write, Err: syscall.ENOSPC}, 31},
		{"the handoff", &agent.Error{Kind: agent.Output, Err: os.ErrPermission}, 31},
		{"busy", &seed.Error{Kind: seed.Busy}, 32},
		{"a plugin", &discovery.Error{Kind: discovery.Plugin}, 33},
		{"disagreement", &agent.Error{Kind: agent.Disagree}, 34},
		{"unusable", &discovery.Error{Kind: discovery.Unusable}, 40},
		{"not one self", &discovery.Error{Kind: discovery.NotSelf}, 41},
		{"unsafe", &agent.Error{Kind: agent.Unsafe}, 42},
		{"another member's data", &agent.Error{Kind: agent.Foreign}, 43},
		{"another member's data, found by seed", &seed.Error{Kind: seed.Foreign}, 43},
		{"damaged", &seed.Error{Kind: seed.Damaged}, 44},
		{"SIGINT", InterruptedError{os.Interrupt}, 130},
		{"SIGTERM", fmt.Errorf("waiting: %w", InterruptedError{syscall.SIGTERM}), 143},
		{"the refusal counts, not its cause", &agent.Error{Kind: agent.Unsafe, Err: &seed.Error{Kind: seed.Busy}}, 42},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := statusOf(tt.err); got != tt.want {
				t.Errorf("statusOf(%v) = %d, want %d", tt.err, got, tt.want)
			}
		})
	}
}

// TestReadmeStatuses holds the README's table against the statuses.
func TestReadmeStatuses(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("status.go")
	if err != nil {
		t.Fatal(err)
	}
	inTable := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(readme), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		inTable[n] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^\tstatus\w+ += (\d+)$`).FindAllStringSubmatch(string(source), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if !inTable[n] {
			t.Errorf("README's table of exit statuses lacks %d", n)
		}
		delete(inTable, n)
	}
	for n := range inTable {
		t.Errorf("README's table has %d, which nothing ends in", n)
	}
}

// TestPanic: a panic is a bug with status 1, and says so.
func TestPanic(t *testing.T) {
	var stderr strings.Builder
	status := Run(panickingContext{}, []string{"etcdinit", "discover", "--data-dir", "d", "--size", "1", "--discovery", "srv://example.org"}, IO{Out: &strings.Builder{}, Err: &stderr})
	if status != statusBug || !strings.Contains(stderr.String(), "etcdinit: bug: boom") {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
}

// panickingContext panics as soon as somebody waits on it.
type panickingContext struct{ context.Context }

func (panickingContext) Value(any) any               { return nil }
func (panickingContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (panickingContext) Done() <-chan struct{} {
	panic("boom")
}
