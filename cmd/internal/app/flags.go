package app

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

const (
	groupEtcd = "etcd's own (also ETCD_* variables; from the configuration file where there is one):"
	groupFind = "discovery:"
	groupSelf = "which peer is this node:"
	groupSafe = "safety:"
	groupBack = "restoring a snapshot (only where all members' disks are empty and no etcd runs; it may stay there):"
	groupOut  = "handoff to etcd:"
)

// configFlag names etcd's own configuration file.
func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config-file", Usage: "etcd's own configuration `FILE` (YAML), the same on every node (ETCD_CONFIG_FILE)", Category: groupEtcd}
}

// etcdFlags are etcd's flags under their own names. Their variables are read
// by etcdconf, which also knows which of them etcd would ignore.
func etcdFlags() []cli.Flag {
	flags := []cli.Flag{configFlag()}
	for _, f := range etcdconf.Flags() {
		if f.Bool {
			flags = append(flags, &cli.BoolFlag{Name: f.Name, Usage: f.Usage, Category: groupEtcd})
			continue
		}
		flags = append(flags, &cli.StringFlag{Name: f.Name, Usage: f.Usage, Category: groupEtcd})
	}
	return flags
}

func discoveryFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "size", Usage: "`N` members make the cluster; never fewer, never more", EnvVars: []string{"ETCDINIT_SIZE"}, Category: groupFind},
		&cli.StringFlag{Name: "discovery", Usage: "source `URL`: srv://example.org, dns://etcd.example.org:2380, static:?peer=…, file:///etc/etcdinit/peers.yaml, https://example.org/peers.yaml, exec:NAME?key=value (default: srv:// of --discovery-srv)", EnvVars: []string{"ETCDINIT_DISCOVERY"}, Category: groupFind},
		&cli.StringSliceFlag{Name: "dns-server", Usage: "ask this server, `IP[:port]`, instead of those in resolv.conf; may be repeated", EnvVars: []string{"ETCDINIT_DNS_SERVER"}, Category: groupFind},
		&cli.StringFlag{Name: "resolv-conf", Value: "/etc/resolv.conf", Usage: "`FILE` that names the DNS servers, read anew before each try", EnvVars: []string{"ETCDINIT_RESOLV_CONF"}, Category: groupFind},
		pluginDirFlag(),
		&cli.DurationFlag{Name: "timeout", Value: 10 * time.Minute, Usage: "give up after `DURATION`; 0 = no limit", EnvVars: []string{"ETCDINIT_TIMEOUT"}, Category: groupFind},
		&cli.StringFlag{Name: "self-ip", Usage: "this node's `IP[:port]` in the records, where it is on no interface (NAT, load balancer, mapped port)", EnvVars: []string{"ETCDINIT_SELF_IP"}, Category: groupSelf},
		&cli.StringFlag{Name: "self-name", Usage: "the member `NAME` of this node: no address and no port is compared", EnvVars: []string{"ETCDINIT_SELF_NAME"}, Category: groupSelf},
		&cli.StringFlag{Name: "interface", Usage: "only addresses of this `INTERFACE` or network count (eth0, 10.0.0.0/8); a comma for several, ! before what does not count (!10.0.0.100)", EnvVars: []string{"ETCDINIT_INTERFACE"}, Category: groupSelf},
	}
}

func seedFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "bootstrap-quorum", Value: agent.QuorumAll, Usage: "`all` members agree on their disks before any of them lets etcd start; none: seed without asking them, with the cluster ID that etcd computes", EnvVars: []string{"ETCDINIT_BOOTSTRAP_QUORUM"}, Category: groupSafe},
		&cli.StringSliceFlag{Name: "without", Usage: "leave member `NAME` out of the birth, even if it answers (up to a minority; the same on all other members); it joins later", Category: groupSafe},
		&cli.StringFlag{Name: "if-running", Value: string(agent.Refuse), Usage: "where the cluster of an empty disk runs already: `refuse` (but take up a learner that somebody has added), join (add this node as a learner), or replace (also remove the member whose disk is lost here)", EnvVars: []string{"ETCDINIT_IF_RUNNING"}, Category: groupSafe},
		&cli.DurationFlag{Name: "replace-after", Value: 5 * time.Minute, Usage: "with --if-running=replace: a disk must be seen as lost for `DURATION`, all others being well", EnvVars: []string{"ETCDINIT_REPLACE_AFTER"}, Category: groupSafe},
		&cli.StringFlag{Name: "require-mark", Usage: "seed nothing where the root of the data directory has no `FILE` of this name: a volume that is not mounted is no lost disk", EnvVars: []string{"ETCDINIT_REQUIRE_MARK"}, Category: groupSafe},
		&cli.StringFlag{Name: "etcd-version", Usage: "`VERSION` of the etcd that is going to run here; one that cannot read the running cluster's data does not join (exec asks it itself)", EnvVars: []string{"ETCDINIT_ETCD_VERSION"}, Category: groupSafe},
		&cli.StringFlag{Name: "restore-snapshot", Usage: "the cluster is born with the content of a snapshot: `FILE`, or an http(s) URL; the same on every node", EnvVars: []string{"ETCDINIT_RESTORE_SNAPSHOT"}, Category: groupBack},
		&cli.Uint64Flag{Name: "restore-bump-revision", Value: 1_000_000_000, Usage: "add `N` to the snapshot's revision and mark all before as compacted, so that watches of the old cluster end; 0 = leave it", EnvVars: []string{"ETCDINIT_RESTORE_BUMP_REVISION"}, Category: groupBack},
		&cli.StringFlag{Name: "restore-sha256", Usage: "refuse any other file than the one with this `SHA256` (as sha256sum prints it)", EnvVars: []string{"ETCDINIT_RESTORE_SHA256"}, Category: groupBack},
		&cli.BoolFlag{Name: "restore-skip-hash-check", Usage: "take a copy of a database, which has no digest at its end, or one with a wrong digest", EnvVars: []string{"ETCDINIT_RESTORE_SKIP_HASH_CHECK"}, Category: groupBack},
		&cli.StringFlag{Name: "owner", Usage: "`USER[:GROUP]` (names or numbers) of what is written (default: the data directory's owner)", EnvVars: []string{"ETCDINIT_OWNER"}, Category: groupOut},
		&cli.StringFlag{Name: "env-file", Usage: "write what etcd must be told as a systemd EnvironmentFile", EnvVars: []string{"ETCDINIT_ENV_FILE"}, Category: groupOut},
		&cli.StringFlag{Name: "config-out", Usage: "write etcd's configuration with the missing keys filled in to `FILE`", EnvVars: []string{"ETCDINIT_CONFIG_OUT"}, Category: groupOut},
		&cli.BoolFlag{Name: "listen-self", Usage: "narrow listen URLs on 0.0.0.0 or [::] to this member's address", EnvVars: []string{"ETCDINIT_LISTEN_SELF"}, Category: groupOut},
		&cli.StringFlag{Name: "metrics-file", Usage: "write state, exit status, reason, steps and versions to `FILE` for node_exporter's textfile collector (NAME.prom), at the start and at the end", EnvVars: []string{"ETCDINIT_METRICS_FILE"}, Category: groupOut},
		&cli.StringFlag{Name: "report", Usage: "write a JSON result of at most 4096 bytes to `FILE`, also of a failure (/dev/termination-log)", EnvVars: []string{"ETCDINIT_REPORT"}, Category: groupOut},
	}
}

func outputFlag() cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "table", Usage: "table or json"}
}

// wantJSON reads -o.
func wantJSON(c *cli.Context) (bool, error) {
	switch o := c.String("output"); o {
	case "json":
		return true, nil
	case "table":
		return false, nil
	default:
		return false, usage(fmt.Errorf("-o %q is not table or json", o))
	}
}

// etcdConfig reads etcd's configuration as etcd would. command is an etcd
// command line that is about to be run; its flags count as ours.
func (a *app) etcdConfig(c *cli.Context, command []string) (*etcdconf.Config, error) {
	file := c.String("config-file")
	var flags []etcdconf.Flag
	if len(command) > 0 {
		theirs, given, err := etcdconf.ExecFlags(command)
		if err != nil {
			return nil, err
		}
		file, flags = cmp.Or(file, theirs), given
	}
	for _, f := range etcdconf.Flags() {
		if !c.IsSet(f.Name) {
			continue
		}
		value := c.String(f.Name)
		if f.Bool {
			value = strconv.FormatBool(c.Bool(f.Name))
		}
		flags = append(flags, etcdconf.Flag{Name: f.Name, Value: value})
	}
	return etcdconf.Load(file, flags, a.Environ)
}

// agentConfig turns one command line, and the etcd command behind it, into
// what the agent is told.
func (a *app) agentConfig(c *cli.Context, command []string) (agent.Config, error) {
	a.report = c.String("report")
	if path := c.String("metrics-file"); !c.Bool("dry-run") && !a.isInput(path, c, command) {
		a.startMetrics(path)
	}
	etcd, err := a.etcdConfig(c, command)
	if err != nil {
		return agent.Config{}, err
	}
	cfg := agent.Config{
		Etcd: etcd, Registry: a.registry, Source: c.String("discovery"), Size: c.Int("size"),
		Timeout: c.Duration("timeout"), ResolvConf: c.String("resolv-conf"), PluginDirs: c.StringSlice("plugin-dir"),
		SelfName: c.String("self-name"), Interface: c.String("interface"),
		Quorum: c.String("bootstrap-quorum"), Without: c.StringSlice("without"), EnvFile: c.String("env-file"), ConfigOut: c.String("config-out"), ListenSelf: c.Bool("listen-self"), Report: a.report,
		Log: a.log, OnWait: a.progress.wait, Pod: a.lookupEnv("KUBERNETES_SERVICE_HOST") != "",
	}
	cfg.Again, cfg.Look = a.again(c, command), a.looking(c, etcd)
	if cfg.EnvFile != "" && cfg.ConfigOut == "" {
		if err = etcd.CheckEnvFile(); err != nil {
			return agent.Config{}, err
		}
	}
	if err = a.check(c, &cfg); err != nil {
		return cfg, err
	}
	if err = a.joinConfig(c, &cfg); err != nil {
		return cfg, err
	}
	err = a.restoreConfig(c, &cfg)
	return cfg, err
}

// check completes what needs parsing; each error names the flag it is about.
func (a *app) check(c *cli.Context, cfg *agent.Config) error {
	var errs []error
	switch {
	case cfg.Source == "" && cfg.Etcd.DiscoverySRV == "" && cfg.Etcd.File != "":
		errs = append(errs, fmt.Errorf("no discovery source: %s has no discovery-srv; add discovery-srv: DOMAIN, or give --discovery URL", cfg.Etcd.File))
	case cfg.Source == "" && cfg.Etcd.DiscoverySRV == "":
		errs = append(errs, errors.New("no discovery source: give --discovery-srv DOMAIN (or discovery-srv in etcd's configuration), or --discovery URL"))
	case cfg.Source == "":
		cfg.Source = "srv://" + cfg.Etcd.DiscoverySRV
	}
	if cfg.Size < 0 {
		errs = append(errs, fmt.Errorf("--size %d: a cluster has at least one member", cfg.Size))
	}
	if cfg.Size == 0 && strings.HasPrefix(cfg.Source, "srv:") {
		errs = append(errs, errors.New("--size N is missing (or ETCDINIT_SIZE): SRV records do not say how many members are meant to be there, and a partial answer must never become a smaller cluster"))
	}
	if cfg.Timeout < 0 {
		errs = append(errs, fmt.Errorf("--timeout %s is negative; 0 = no limit", cfg.Timeout))
	}
	switch cfg.Quorum {
	case "":
		cfg.Quorum = agent.QuorumAll
	case agent.QuorumAll, agent.QuorumNone:
	default:
		errs = append(errs, fmt.Errorf("--bootstrap-quorum %q is not all or none", cfg.Quorum))
	}
	if cfg.Quorum == agent.QuorumNone && len(cfg.Without) > 0 {
		errs = append(errs, errors.New("--without with --bootstrap-quorum=none: none asks nobody anyway"))
	}
	for _, s := range c.StringSlice("dns-server") {
		server, err := dnsServer(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("--dns-server %q is not IP or IP:port: %w", s, err))
		}
		cfg.DNSServers = append(cfg.DNSServers, server)
	}
	if err := discovery.CheckLocal(cfg.Interface); err != nil {
		errs = append(errs, fmt.Errorf("--interface: %w", err))
	}
	if s := c.String("self-ip"); s != "" {
		at, err := selfIP(s)
		if err != nil {
			errs = append(errs, err)
		}
		cfg.SelfIP, cfg.SelfPort = at.Addr().Unmap(), at.Port()
	}
	if s := c.String("owner"); s != "" {
		owner, err := parseOwner(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("--owner %q: %w", s, err))
		}
		cfg.Owner = owner
	}
	if err := errors.Join(append(errs, outputsApart(c, cfg.Etcd.File))...); err != nil {
		return usage(err)
	}
	return nil
}

// outputsApart refuses to write two outputs to one file, or over the
// configuration that is the same on every node.
func outputsApart(c *cli.Context, configFile string) error {
	type place struct{ flag, path string }
	places := []place{{"--config-file", configFile}}
	for _, flag := range []string{"config-out", "env-file", "report", "metrics-file"} {
		here := place{"--" + flag, c.String(flag)}
		for _, p := range places {
			if here.path != "" && sameFile(here.path, p.path) {
				return fmt.Errorf("%s %s is the file of %s: what is written to it would take its place; give it another name", here.flag, here.path, p.flag)
			}
		}
		places = append(places, here)
	}
	return nil
}

// isInput reports whether a path is a file that the command line reads: etcd's
// configuration, or a word of etcd's own command.
func (a *app) isInput(path string, c *cli.Context, command []string) bool {
	for _, word := range append([]string{c.String("config-file"), a.lookupEnv("ETCD_CONFIG_FILE")}, command...) {
		if _, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") {
			word = value
		}
		if word != "" && sameFile(path, word) {
			return true
		}
	}
	return false
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX != nil || errY != nil {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	return os.SameFile(x, y) && x.Mode().IsRegular()
}

// selfIP reads IP or IP:port; port 0 says that none was given.
func selfIP(s string) (netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return netip.AddrPortFrom(addr, 0), nil
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil || at.Port() == 0 {
		return netip.AddrPort{}, fmt.Errorf("--self-ip %q is not an IP address, nor IP:port", s)
	}
	return at, nil
}

func dnsServer(s string) (netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return netip.AddrPortFrom(addr, 53), nil
	}
	server, err := netip.ParseAddrPort(s)
	if err == nil && server.Port() == 0 {
		err = errors.New("port 0 is no port")
	}
	return server, err
}

// parseOwner reads USER[:GROUP]. Numbers need no user database, so they work
// in an image that has none. Without a group, a named user's own is taken.
func parseOwner(s string) (*seed.Owner, error) {
	name, group, hasGroup := strings.Cut(s, ":")
	owner := &seed.Owner{UID: -1, GID: -1}
	if uid, err := strconv.Atoi(name); err == nil {
		owner.UID, owner.GID = uid, uid
	} else {
		u, err := user.Lookup(name)
		if err != nil {
			return nil, err
		}
		if owner.UID, err = strconv.Atoi(u.Uid); err != nil {
			return nil, err
		}
		if owner.GID, err = strconv.Atoi(u.Gid); err != nil {
			return nil, err
		}
	}
	if hasGroup {
		gid, err := strconv.Atoi(group)
		if err != nil {
			g, err := user.LookupGroup(group)
			if err != nil {
				return nil, err
			}
			if gid, err = strconv.Atoi(g.Gid); err != nil {
				return nil, err
			}
		}
		owner.GID = gid
	}
	if owner.UID < 0 || owner.GID < 0 {
		return nil, errors.New("a negative number is no user or group")
	}
	return owner, nil
}
