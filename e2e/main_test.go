//go:build e2e

// Package e2e tries etcdinit as it is released, with real etcd of every
// supported minor, real DNS servers, and hosts that have nothing in common but
// one configuration file. See e2e/internal/lab for what a host is.
//
// ETCDINIT_E2E=required makes a test fail that would be skipped.
package e2e

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
	dir, err := os.MkdirTemp("", "etcdinit-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() //nolint:errcheck // a temporary directory
	if lab.Check() != nil {
		return m.Run() // every test skips, and says why
	}
	etcdinit, err = lab.Build(context.Background(), dir, "./cmd/etcdinit")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
