// Package app is the command line: flags and variables in, one exit status out.
package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"go.uber.org/zap"
	"golang.org/x/term"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/dns"
	"github.com/etcdinit/etcdinit/discovery/execplugin"
	"github.com/etcdinit/etcdinit/discovery/file"
	"github.com/etcdinit/etcdinit/discovery/http"
	"github.com/etcdinit/etcdinit/discovery/srv"
	"github.com/etcdinit/etcdinit/discovery/static"
)

// IO is the world that a run sees: its streams and its environment.
type IO struct {
	Out, Err io.Writer
	Environ  []string
	Version  string // what the linker was given; "" is what the build information says
	Revision string // the same for the commit
}

// app is one run of the program.
type app struct {
	IO
	args     []string // the command line, with the program's base name
	log      *zap.Logger
	json     bool   // log as JSON lines
	unknown  string // a command that help was asked of and that does not exist
	report   string // where the JSON report goes, also that of a failure
	registry discovery.Registry
	progress *progress
	metrics  metrics
}

// Run runs one command line to its end and returns the exit status.
func Run(ctx context.Context, args []string, world IO) (status exit.Status) {
	a := &app{
		IO:   world,
		args: slices.Clone(args),
		log:  zap.NewNop(),
		registry: discovery.Registry{
			"srv":    srv.New,
			"dns":    dns.New,
			"static": static.New,
			"file":   file.New,
			"http":   http.New,
			"https":  http.New,
			"exec":   execplugin.New,
		},
	}
	if len(args) > 0 {
		a.args[0] = filepath.Base(args[0])
	}
	defer func() {
		if bug := recover(); bug != nil {
			status = exit.Bug
			fmt.Fprintf(a.Err, "etcdinit: bug: %v; please report it with these lines\n%s", bug, debug.Stack())
		}
	}()
	err := a.cli().RunContext(ctx, args)
	if err == nil && a.unknown != "" {
		err = usage(fmt.Errorf("no such command: %s%s; see etcdinit --help", a.unknown, a.meantCommand(a.unknown)))
	}
	a.progress.clear()
	status = exit.Of(err)
	reason := ""
	if e := exit.Refusal(err); e != nil {
		reason = e.Reason
	}
	a.endMetrics(status, reason)
	if err != nil {
		a.fail(err, status)
	}
	return status
}

// fail tells an error once: as a log line where machines read, or as one plain
// line with numbered commands behind it.
func (a *app) fail(err error, status exit.Status) {
	o := outcome{Message: oneLine(err), Status: status}
	if e := exit.Refusal(err); e != nil {
		o.Reason, o.Commands = e.Reason, e.Commands
	}
	if a.report != "" && o.Reason != "report" { // it cannot tell its own failure
		if rerr := agent.WriteReport(a.report, encodeReport(o)); rerr != nil {
			a.log.Warn("the report could not be written", zap.Error(rerr))
		}
	}
	if a.json {
		a.log.Error(o.Message, zap.Int("status", int(status)), zap.String("reason", o.Reason), zap.Strings("commands", o.Commands))
		return
	}
	prefix := "etcdinit: "
	if a.rich() && a.lookupEnv("NO_COLOR") == "" {
		prefix = "\x1b[31metcdinit:\x1b[0m "
	}
	fmt.Fprintln(a.Err, prefix+o.Message)
	for i, command := range o.Commands {
		fmt.Fprintf(a.Err, "  %d. %s\n", i+1, command)
	}
}

func (a *app) cli() *cli.App {
	return &cli.App{
		Name:      "etcdinit",
		Usage:     "give an etcd member its place in a cluster before etcd starts",
		UsageText: "etcdinit COMMAND [flags]",
		Description: `Every node runs the same static etcd configuration. etcdinit finds the members
(by default from DNS SRV records), finds out by IP address which of them this
node is, and seeds the data directory, so that stock etcd starts as that member
with no bootstrap flag and all nodes boot at once.

   # on every node, the same two lines
   etcdinit init --config-file /etc/etcd/etcd.yaml --size 3 --config-out /run/etcd/etcd.yaml
   etcd --config-file /run/etcd/etcd.yaml

Flags with etcd's names mean what they mean to etcd, ETCD_* variables too.
Everything else has an ETCDINIT_* variable.`,
		Version:              readVersions(a.Version, a.Revision).Version,
		EnableBashCompletion: true,
		Writer:               a.Out,
		ErrWriter:            a.Err,
		ExitErrHandler:       func(*cli.Context, error) {},
		OnUsageError:         func(_ *cli.Context, err error, _ bool) error { return usage(err) },
		Flags:                logFlags("ETCDINIT_LOG_LEVEL", "ETCDINIT_LOG_FORMAT"),
		Before:               a.logging,
		CommandNotFound:      func(_ *cli.Context, name string) { a.unknown = name },
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usage(fmt.Errorf("no such command: %s%s; see etcdinit --help", c.Args().First(), a.meantCommand(c.Args().First())))
			}
			return cli.ShowAppHelp(c)
		},
		Commands: a.commands(
			a.initCommand(),
			a.discoverCommand(),
			a.inspectCommand(),
			a.verifyCommand(),
			a.execCommand(),
			a.membersCommand(), a.promoteCommand(), a.withdrawCommand(), a.rescueCommand(),
			a.snapshotCommand(),
			a.pluginsCommand(),
			a.completionCommand(),
			a.versionCommand(),
		),
	}
}

// logFlags stand before the command, where they have variables, and behind it.
func logFlags(level, format string) []cli.Flag {
	flag := func(name, usage, env string) cli.Flag {
		f := &cli.StringFlag{Name: name, Usage: usage, Category: "logging:"}
		if env != "" {
			f.EnvVars = []string{env}
		}
		return f
	}
	return []cli.Flag{
		flag("log-level", "debug, info, warn or error (default: info)", level),
		flag("log-format", "console or json (default: json for init and exec where they are not on a terminal, else console)", format),
	}
}

// commands gives every command the flags for the log, and the usage error that
// ends in status 20.
func (a *app) commands(list ...*cli.Command) []*cli.Command {
	for _, c := range list {
		if !c.SkipFlagParsing {
			for _, each := range slices.Concat(c.Subcommands, []*cli.Command{c}) {
				each.Flags = append(each.Flags, logFlags("", "")...)
				each.Before = a.logging
				for _, f := range each.Flags {
					if yes, ok := f.(*cli.BoolFlag); ok {
						yes.DisableDefaultText = true // that one is not set needs no words
					}
				}
				if each.Action != nil {
					a.shortHelp(each)
				}
			}
		}
		c.HideHelpCommand = len(c.Subcommands) == 0
		c.OnUsageError = func(_ *cli.Context, err error, _ bool) error {
			return usage(fmt.Errorf("%w%s; see etcdinit %s --help", err, meantFlag(err, c), c.Name))
		}
		if c.Action == nil {
			continue
		}
		if run := c.Action; !c.SkipFlagParsing && c.ArgsUsage == "" {
			c.Action = func(ctx *cli.Context) error {
				if ctx.Args().Present() {
					return usage(fmt.Errorf("unexpected argument %q; see etcdinit %s --help", ctx.Args().First(), c.Name))
				}
				return run(ctx)
			}
		}
	}
	return list
}

// logging makes the logger before any command runs.
func (a *app) logging(c *cli.Context) error {
	said := func(name string) string {
		for _, at := range c.Lineage() {
			if value := at.String(name); value != "" {
				return value
			}
		}
		return ""
	}
	format := said("log-format")
	if format == "" {
		format = "console"
		if forMachines(c) && !isTerminal(a.Err) {
			format = "json"
		}
	}
	a.progress = &progress{out: a.Err, live: a.rich()}
	log, err := newLogger(cmp.Or(said("log-level"), "info"), format, a.progress)
	if err != nil {
		return usage(err)
	}
	a.log, a.progress.log, a.json = log, log, format == "json"
	return nil
}

// forMachines says whether a command's lines end in a log, where it is not run
// from a terminal: a listing is asked for by a person, or by a script that reads
// standard output.
func forMachines(c *cli.Context) bool {
	names := []string{c.Args().First()} // before the command is known
	for _, at := range c.Lineage() {
		if at.Command != nil {
			names = append(names, at.Command.Name)
		}
	}
	return slices.Contains(names, "init") || slices.Contains(names, "exec")
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// rich: a terminal that understands escape sequences.
func (a *app) rich() bool { return isTerminal(a.Err) && a.lookupEnv("TERM") != "dumb" }

// size is that of the terminal, in characters; 0: unknown.
func size(w io.Writer) (width, height int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// lookupEnv reads the environment that was handed in.
func (a *app) lookupEnv(name string) string {
	for _, kv := range a.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// usage is the error for a command line that cannot be run.
func usage(err error) error {
	return &exit.Error{Status: exit.Config, Reason: "usage", Msg: err.Error()}
}

// oneLine keeps an error on the one line that a person gets to see.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
