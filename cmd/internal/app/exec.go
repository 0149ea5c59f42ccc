package app

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/urfave/cli/v2"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

func (a *app) execCommand() *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "init, then become etcd",
		ArgsUsage: "-- etcd [etcd flags]",
		Description: `Does what init does, then replaces this process by the command behind --, with
the handoff in its environment, or, where etcd reads a configuration file, with
that file resolved (etcd ignores variables and flags once it has one). etcd's
flags and file are read from the command behind --, so nothing is said twice.
--report=/dev/termination-log gets refusals only: why etcd ends is etcd's to say.

   etcdinit exec --size 3 -- etcd --config-file /etc/etcd/etcd.yaml
   etcdinit exec --size 3 --discovery-srv example.org -- etcd --data-dir /var/lib/etcd --listen-peer-urls http://0.0.0.0:2380 --listen-client-urls http://0.0.0.0:2379`,
		Flags:  slices.Concat(etcdFlags(), discoveryFlags(), seedFlags()),
		Action: a.runExec,
	}
}

func (a *app) runExec(c *cli.Context) error {
	command := c.Args().Slice()
	if len(command) == 0 {
		return usage(errors.New("exec needs the command to run: etcdinit exec [flags] -- etcd [etcd flags]"))
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return usage(fmt.Errorf("exec: %w", err))
	}
	cfg, err := a.agentConfig(c, command)
	if err != nil {
		return err
	}
	if cfg.EtcdVersion == "" && (cfg.IfRunning != agent.Refuse || cfg.Restore != nil) {
		cfg.EtcdVersion = a.etcdVersion(c.Context, path)
	}
	cfg.Report = "" // a report that cannot be written does not keep etcd from starting
	r, err := agent.Init(c.Context, cfg, false)
	if err != nil {
		return err
	}
	a.progress.clear()
	// In a container's termination log, what etcdinit did would pass for the reason for
	// which etcd ends one day, and its last lines would not be looked for.
	if a.report == terminationLog {
		a.report = ""
	}
	if err := a.writeReport(r); err != nil {
		a.log.Warn("etcd starts without a report", zap.Error(err))
	}
	if c.Err() != nil {
		return context.Cause(c.Context)
	}
	a.metrics.result = r
	a.endMetrics(exit.Done, "")
	a.promoteBeside(cfg, r, command)
	return a.become(cfg, r, path, command)
}
