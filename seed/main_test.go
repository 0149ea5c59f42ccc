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

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed"
)

// helperEnv makes the test binary run one step and nothing else: as another user,
// under another umask, or under a tracer.
const helperEnv = "ETCDINIT_SEED_HELPER"

type helper struct {
	Spec  seed.Spec
	Umask int // -1: the inherited one
	// Do is the step: "" is Apply of a plan as New makes it, stepBorn Apply of a
	// pending birth on Roster.
	Do      string
	Roster  seed.Roster
	Segment int64 // the length of a WAL segment; 0: etcd's own
	Traced  bool  // a tracer watches the calls
}

// statusUntraced: the calls cannot be watched here.
const statusUntraced = 8

const (
	stepPrepare  = "prepare"
	stepBorn     = "born"
	stepClean    = "clean"
	stepConfirm  = "confirm"
	stepRelease  = "release"
	stepWithdraw = "withdraw"
	stepJoin     = "join"    // Apply of a plan for a member that a running cluster has added
	stepRestore  = "restore" // Stage of a snapshot, and Apply of a plan with its content
	stepFeed     = "feed"    // Stage of another member's database, and its exchange for the joining seed that is there
)

func (h helper) run(ctx context.Context) error {
	p, err := seed.New(h.Spec)
	if err != nil {
		return err
	}
	switch h.Do {
	case stepJoin:
		j, jerr := seed.NewJoiner(h.Spec, joinedAs(p))
		if jerr != nil {
			return jerr
		}
		return j.Apply(ctx, zap.NewNop())
	case stepRestore, stepFeed:
		return stagedStep(ctx, h.Spec, h.Do)
	case stepPrepare:
		return seed.Prepare(h.Spec, zap.NewNop())
	case stepBorn:
		return p.Born(h.Roster, true).Apply(ctx, zap.NewNop())
	case stepClean:
		_, err = seed.Clean(h.Spec.DataDir, h.Spec.WALDir)
		return err
	case stepWithdraw:
		_, err = seed.Withdraw(h.Spec.DataDir, h.Spec.WALDir, zap.NewNop())
		return err
	case stepConfirm, stepRelease:
		st, err := seed.Inspect(h.Spec.DataDir, h.Spec.WALDir)
		if err == nil && h.Do == stepRelease {
			return seed.Release(st)
		} else if err == nil {
			return seed.Confirm(st)
		}
		return err
	}
	return p.Apply(ctx, zap.NewNop())
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
	if h.Traced {
		if err := stopAtCalls(); err != nil {
			return statusUntraced
		}
	}
	if h.Segment > 0 {
		wal.SegmentSizeBytes = h.Segment
	}
	if err := h.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if e, ok := errors.AsType[*seed.Error](err); ok {
			return 10 + int(e.Kind)
		}
		return 9
	}
	return 0
}
