package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

// TestPanic: a panic is a bug with status 1, and says so.
func TestPanic(t *testing.T) {
	var stderr strings.Builder
	status := Run(panickingContext{}, []string{"etcdinit", "discover", "--data-dir", "d", "--size", "1", "--discovery", "srv://example.org"}, IO{Out: &strings.Builder{}, Err: &stderr})
	if status != exit.Bug || !strings.Contains(stderr.String(), "etcdinit: bug: boom") {
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
