package seed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed"
)

// helperEnv makes the test binary run Apply and nothing else: as another user,
// under another umask, or under a tracer.
const helperEnv = "ETCDINIT_SEED_HELPER"

type helper struct {
	Spec  seed.Spec
	Umask int // -1: the inherited one
}

func (h helper) env() string {
	text, err := json.Marshal(h)
	if err != nil {
		panic(err)
	}
	return helperEnv + "=" + string(text)
}

func TestMain(m *testing.M) {
	if text := os.Getenv(helperEnv); text != "" {
		os.Exit(runHelper(text))
	}
	os.Exit(m.Run())
}

// runHelper exits with 0, or with 10 and the error's kind.
func runHelper(text string) int {
	var h helper
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if h.Umask >= 0 {
		setUmask(h.Umask)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p, err := seed.New(h.Spec)
	if err == nil {
		err = p.Apply(ctx, zap.NewNop())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if e, ok := errors.AsType[*seed.Error](err); ok {
			return 10 + int(e.Kind)
		}
		return 9
	}
	return 0
}
