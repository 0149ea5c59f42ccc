//go:build e2e

// Package torture runs clusters that etcdinit has started while everything
// around them goes wrong, and checks that no answer of etcd was lost or
// contradicts another one.
//
// A seed is a schedule: a list of faults and pauses. Hosts are those of
// e2e/internal/lab. On each host one loop does what a supervisor does: it runs
// etcdinit init, then etcd, and starts again with init when either has ended.
// One client a host writes and reads all the time. Afterwards every fault is
// healed, whatever can come up comes up, and the history of all clients must be
// linearizable.
//
//	ETCDINIT_TORTURE_SEEDS=64    seeds 1 to 64, four clusters side by side
//	ETCDINIT_TORTURE_SEEDS=5-9   these
//	ETCDINIT_TORTURE_SEED=7      this one: prints the schedule and what each step met
//	ETCDINIT_TORTURE_BINARY=…    the etcdinit to run; the default is built from the source
//
// What the schedules never do, since no protocol could stand it: they destroy or
// roll back more than a minority of the disks on which etcd has run. An older
// copy of a disk is only restored in place of one on which etcd has never run,
// and never runs beside the original.
package torture

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// etcdinit is the command under test, built once.
var etcdinit string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	etcdinit = os.Getenv("ETCDINIT_TORTURE_BINARY")
	if etcdinit != "" || lab.Check() != nil {
		return m.Run() // without a lab, every test that needs it skips, and says why
	}
	dir, err := os.MkdirTemp("", "etcdinit-torture-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() //nolint:errcheck // a temporary directory
	etcdinit, err = lab.Build(context.Background(), dir, "./cmd/etcdinit")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
