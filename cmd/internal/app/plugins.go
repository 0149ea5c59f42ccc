package app

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/execplugin"
	"github.com/etcdinit/etcdinit/plugins"
	"github.com/etcdinit/etcdinit/plugins/plugintest"
)

func pluginDirFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name: "plugin-dir", Usage: "look for exec: plugins in `DIR`; may be repeated (default: " + strings.Join(execplugin.DefaultDirs(), ", ") + ")",
		EnvVars: []string{"ETCDINIT_PLUGIN_DIR"}, Category: groupFind,
	}
}

func pluginSizeFlag() cli.Flag {
	return &cli.IntFlag{Name: "size", Usage: "`N` members are in the source", EnvVars: []string{"ETCDINIT_SIZE"}}
}

func (a *app) pluginsCommand() *cli.Command {
	usage := func(_ *cli.Context, err error, _ bool) error {
		return usage(fmt.Errorf("%w; see etcdinit plugins --help", err))
	}
	return &cli.Command{
		Name:  "plugins",
		Usage: "list discovery plugins, call one, or test one against the contract",
		Description: `A plugin is an executable that prints the peers; the source exec:NAME?key=value
asks it. Flags come before the name.

   etcdinit plugins list
   etcdinit plugins call hosts file=/etc/hosts
   etcdinit plugins test --size 3 hosts file=/etc/hosts`,
		Flags:  []cli.Flag{pluginDirFlag(), outputFlag()},
		Action: a.runPlugins,
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the plugins that are found (the same without list)",
				Flags:  []cli.Flag{pluginDirFlag(), outputFlag()},
				Action: a.runPlugins, OnUsageError: usage,
			},
			{
				Name: "call", Usage: "ask a plugin once, and print request, response and time", ArgsUsage: "NAME [key=value]...",
				Description: `The keys are those of the source exec:NAME?key=value, env= and timeout= too.
Ends with the status that discovery would end with.

   etcdinit plugins call --size 3 hosts file=/etc/hosts match=etcd-*`,
				Flags:  []cli.Flag{pluginDirFlag(), pluginSizeFlag(), outputFlag()},
				Action: a.runPluginsCall, OnUsageError: usage,
			},
			{
				Name: "test", Usage: "hold a plugin against the contract, check by check", ArgsUsage: "NAME [key=value]...",
				Description: `Give parameters that work here; with --size, discover must give that many peers.
A check that fails is status 33.

   etcdinit plugins test --size 3 hosts file=/etc/hosts match=etcd-*`,
				Flags:  []cli.Flag{pluginDirFlag(), pluginSizeFlag(), outputFlag()},
				Action: a.runPluginsTest, OnUsageError: usage,
			},
		},
	}
}

// pluginDirs takes the flag from before or behind the subcommand's name.
func pluginDirs(c *cli.Context) []string {
	for _, ctx := range c.Lineage() {
		if dirs := ctx.StringSlice("plugin-dir"); len(dirs) > 0 {
			return dirs
		}
	}
	return nil
}

// listed is one line of the list.
type listed struct {
	Name     string        `json:"name"`
	Path     string        `json:"path"`
	Shadowed bool          `json:"shadowed,omitempty"`
	Info     *plugins.Info `json:"info,omitempty"`
	Problem  string        `json:"problem,omitempty"`
}

func (a *app) runPlugins(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	dirs := pluginDirs(c)
	env := discovery.Env{PluginDirs: dirs, Log: a.log}
	list := []listed{}
	for _, f := range execplugin.List(dirs) {
		l := listed{Name: f.Name, Path: f.Path, Shadowed: f.Shadowed}
		switch {
		case f.Err != nil:
			l.Problem = f.Err.Error()
		case f.Shadowed:
			l.Problem = "shadowed by the one above"
		default:
			info, err := execplugin.Info(c.Context, f.Name, env)
			if err != nil {
				l.Problem = err.Error()
				break
			}
			l.Info = &info
		}
		list = append(list, l)
	}
	if asJSON {
		return a.printJSON(list)
	}
	if len(list) == 0 {
		if len(dirs) == 0 {
			dirs = execplugin.DefaultDirs()
		}
		fmt.Fprintf(a.Out, "no plugins in %s\n", strings.Join(dirs, ", "))
		return nil
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVERSION\tPATH\tPARAMETERS\tDESCRIPTION")
	for _, l := range list {
		if l.Info == nil {
			fmt.Fprintln(w, strings.Join([]string{l.Name, "-", l.Path, "-", "! " + plugins.OneLine(l.Problem, 300)}, "\t"))
			continue
		}
		fmt.Fprintln(w, strings.Join([]string{
			l.Name, plugins.OneLine(l.Info.Version, 40), l.Path, parameters(*l.Info), plugins.OneLine(l.Info.Description, 120),
		}, "\t"))
	}
	return w.Flush()
}

// parameters shows what a source may say: file=… [port=2380].
func parameters(info plugins.Info) string {
	if info.Parameters == nil {
		return "any"
	}
	var list []string
	for _, p := range info.Parameters {
		value := p.Default
		if value == "" {
			value = "…"
		}
		s := p.Name + "=" + value
		if !p.Required {
			s = "[" + s + "]"
		}
		list = append(list, plugins.OneLine(s, 60))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}

// pluginArgs reads NAME key=value...
func pluginArgs(c *cli.Context) (name string, query url.Values, err error) {
	if !c.Args().Present() {
		return "", nil, usage(fmt.Errorf("no plugin named; see etcdinit plugins %s --help", c.Command.Name))
	}
	query = url.Values{}
	for _, arg := range c.Args().Tail() {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" || strings.HasPrefix(key, "-") {
			return "", nil, usage(fmt.Errorf("%q is not key=value; flags come before the plugin's name", arg))
		}
		query.Add(key, value)
	}
	if c.Int("size") < 0 {
		return "", nil, usage(fmt.Errorf("--size %d: a cluster has at least one member", c.Int("size")))
	}
	return c.Args().First(), query, nil
}

func (a *app) runPluginsCall(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	name, query, err := pluginArgs(c)
	if err != nil {
		return err
	}
	source := &url.URL{Scheme: "exec", Opaque: name, RawQuery: query.Encode()}
	x, callErr := execplugin.Call(c.Context, source, discovery.Env{PluginDirs: pluginDirs(c), Size: c.Int("size"), Log: a.log})
	if x.Path == "" { // it was never called
		return callErr
	}
	if asJSON {
		if err := a.printJSON(x); err != nil {
			return err
		}
		return callErr
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "plugin\t"+x.Path)
	fmt.Fprintln(w, "request\t"+strings.TrimSpace(string(x.Request)))
	fmt.Fprintln(w, "response\t"+plugins.OneLine(x.Response, plugins.MaxResponse))
	fmt.Fprintf(w, "status\t%d\n", x.Status)
	fmt.Fprintf(w, "time\t%s\n", x.Took.Round(100*time.Microsecond))
	if err := w.Flush(); err != nil {
		return err
	}
	return callErr
}

func (a *app) runPluginsTest(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	name, query, err := pluginArgs(c)
	if err != nil {
		return err
	}
	opts := plugintest.Options{Size: c.Int("size"), Parameters: map[string]string{}}
	for key, values := range query {
		switch {
		case key == "env":
			for _, kv := range a.Environ {
				if k, _, ok := strings.Cut(kv, "="); ok && slices.Contains(values, k) {
					opts.Env = append(opts.Env, kv)
				}
			}
		case len(values) > 1:
			return usage(fmt.Errorf("%s is given %d times", key, len(values)))
		case key == "timeout":
			if opts.Timeout, err = time.ParseDuration(values[0]); err != nil || opts.Timeout <= 0 {
				return usage(fmt.Errorf("timeout=%s is no duration such as 30s", values[0]))
			}
		default:
			opts.Parameters[key] = values[0]
		}
	}
	path, err := execplugin.Find(pluginDirs(c), name)
	if err != nil {
		return err
	}
	report := plugintest.Run(c.Context, path, opts)
	if err := a.printTests(report, asJSON); err != nil {
		return err
	}
	if c.Err() != nil {
		return context.Cause(c.Context)
	}
	if report.OK() {
		return nil
	}
	var failed []string
	for _, check := range report.Checks {
		if check.Status == plugintest.Fail {
			failed = append(failed, check.Name)
		}
	}
	return &discovery.Error{
		Kind: discovery.Plugin,
		Msg:  fmt.Sprintf("plugin %s fails %d of %d checks: %s", name, len(failed), len(report.Checks), strings.Join(failed, ", ")),
	}
}

func (a *app) printTests(r plugintest.Report, asJSON bool) error {
	if asJSON {
		return a.printJSON(r)
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tRULE\tRESULT\tSEEN")
	for _, c := range r.Checks {
		fmt.Fprintln(w, strings.Join([]string{c.Name, c.Rule, string(c.Status), c.Reason}, "\t"))
	}
	return w.Flush()
}
