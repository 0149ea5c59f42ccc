// Command etcdinit gives an etcd member its place in a cluster before etcd starts.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/etcdinit/etcdinit/cmd/internal/app"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

// version is the release, set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// revision is the commit, set in the same way where the build has no repository.
var revision string //nolint:gochecknoglobals // the linker sets it

func main() {
	ctx, stop := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { stop(exit.SignalError{Signal: <-signals}) }()
	os.Exit(int(app.Run(ctx, os.Args, app.IO{Out: os.Stdout, Err: os.Stderr, Environ: os.Environ(), Version: version, Revision: revision})))
}
