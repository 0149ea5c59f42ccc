package exit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

// TestOf is the one table of what ends in which status.
func TestOf(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want exit.Status
	}{
		{"nothing", nil, 0},
		{"a bug", errors.New("who knows"), 1},
		{"usage", &exit.Error{Status: exit.Config}, 20},
		{"etcd's configuration", fmt.Errorf("x: %w", &exit.Error{Status: exit.Config}), 20},
		{"a source", &discovery.Error{Kind: discovery.Config}, 20},
		{"a spec", &seed.Error{Kind: seed.Invalid}, 20},
		{"settings", &exit.Error{Status: exit.Config}, 20},
		{"incomplete", &discovery.Error{Kind: discovery.Retry}, 30},
		{"incomplete, wrapped", fmt.Errorf("x: %w", &discovery.Error{Kind: discovery.Retry}), 30},
		{"a deadline", context.DeadlineExceeded, 30},
		{"a write", &seed.Error{Kind: seed.Write, Err: syscall.ENOSPC}, 31},
		{"the handoff", &exit.Error{Status: exit.Write, Err: os.ErrPermission}, 31},
		{"busy", &seed.Error{Kind: seed.Busy}, 32},
		{"changed meanwhile", &seed.Error{Kind: seed.Changed}, 32},
		{"a plugin", &discovery.Error{Kind: discovery.Plugin}, 33},
		{"disagreement", &exit.Error{Status: exit.Disagree}, 34},
		{"unusable", &discovery.Error{Kind: discovery.Unusable}, 40},
		{"not one self", &discovery.Error{Kind: discovery.NotSelf}, 41},
		{"unsafe", &exit.Error{Status: exit.Unsafe}, 42},
		{"another member's data", &exit.Error{Status: exit.Foreign}, 43},
		{"another member's data, found by seed", &seed.Error{Kind: seed.Foreign}, 43},
		{"damaged", &seed.Error{Kind: seed.Damaged}, 44},
		{"SIGINT", exit.SignalError{os.Interrupt}, 130},
		{"SIGTERM", fmt.Errorf("waiting: %w", exit.SignalError{syscall.SIGTERM}), 143},
		{"a refusal that names no status", &exit.Error{Msg: "refusing to seed"}, 1},
		{"a refusal that names no status, with a cause that has one", &exit.Error{Err: &seed.Error{Kind: seed.Busy}}, 1},
		{"the refusal counts, not its cause", &exit.Error{Status: exit.Unsafe, Err: &seed.Error{Kind: seed.Busy}}, 42},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := exit.Of(tt.err); got != tt.want {
				t.Errorf("Of(%v) = %d, want %d", tt.err, got, tt.want)
			}
		})
	}
}

// TestDocumentedStatuses holds the table in docs/exit-statuses.md against the statuses.
func TestDocumentedStatuses(t *testing.T) {
	page, err := os.ReadFile("../../../docs/exit-statuses.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("exit.go")
	if err != nil {
		t.Fatal(err)
	}
	inTable := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(page), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		inTable[n] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Status = (\d+)\b`).FindAllStringSubmatch(string(source), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if !inTable[n] {
			t.Errorf("docs/exit-statuses.md lacks %d", n)
		}
		delete(inTable, n)
	}
	for n := range inTable {
		t.Errorf("docs/exit-statuses.md has %d, which nothing ends in", n)
	}
}
