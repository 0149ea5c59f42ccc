package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/seed"
)

// TestInterruptedSeed: a signal during the seed says what it leaves: nothing.
func TestInterruptedSeed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	plan, err := seed.New(seed.Spec{DataDir: dir, Token: "t", Self: "m1", Members: []seed.Member{{Name: "m1", PeerURLs: []string{"http://192.0.2.10:2380"}}}})
	if err != nil {
		t.Fatal(err)
	}
	signal := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(signal)
	m := &meeting{agent: newAgent(Config{Etcd: &etcdconf.Config{}, Log: zap.NewNop()}), plan: plan}
	if err := m.seed(ctx); !errors.Is(err, signal) || !strings.HasSuffix(err.Error(), ": nothing was written") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
}
