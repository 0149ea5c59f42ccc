package etcdconf

import (
	"fmt"
	"slices"
	"strings"
)

// argument is one of etcd's flags in a command line: args[first:last].
type argument struct {
	Flag
	first, last int
}

// arguments finds etcd's flags in a command line whose first word is etcd, by
// the rules of Go's flag package: one dash or two, and the first word that is
// no flag ends them.
func arguments(args []string) ([]argument, error) {
	known := allKeys()
	var all []argument
	for i := 1; i < len(args); {
		word := args[i]
		if len(word) < 2 || word[0] != '-' || word == "--" {
			break
		}
		name, value, given := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
		a := argument{Flag: Flag{name, value}, first: i, last: i + 1}
		switch {
		case given:
		case known[name].kind == boolean && known[name].flag != "", slices.Contains([]string{"version", "help", "h"}, name):
			a.Value = "true"
		case i+1 < len(args):
			a.Value, a.last = args[i+1], i+2
		default:
			return nil, invalid("etcd's command line: flag --"+name+" has no value", nil)
		}
		all = append(all, a)
		i = a.last
	}
	return all, nil
}

// ExecFlags returns what an etcd command line (args[0] is etcd itself) says:
// its configuration file, and the flags that etcd knows.
func ExecFlags(args []string) (file string, flags []Flag, err error) {
	all, err := arguments(args)
	known := allKeys()
	for _, a := range all {
		if a.Name == "config-file" {
			file = a.Value
		} else if _, ok := known[a.Name]; ok {
			flags = append(flags, a.Flag)
		}
	}
	return file, flags, err
}

// ExecFile is the configuration file that etcd, run with args and environ,
// would read; "" for none.
func ExecFile(args, environ []string) (string, error) {
	file, _, err := ExecFlags(args)
	if file == "" {
		file = lookup(environ)["ETCD_CONFIG_FILE"]
	}
	return file, err
}

// ExecArgs is an etcd command line (args[0] is etcd itself) for the handoff.
// With a resolved configuration file it names that file in place of its own.
// A flag that says what the handoff says is taken out, since etcd exits when a
// flag and a variable name the same setting; one that says otherwise is an
// error, since a flag would win.
func ExecArgs(h Handoff, args []string, resolved string) ([]string, error) {
	all, err := arguments(args)
	if err != nil {
		return nil, err
	}
	want := map[string]string{}
	for _, flag := range emptied() {
		want[flag] = ""
	}
	for _, p := range h.pairs() {
		want[p.flag] = p.value
	}
	drop := make([]bool, len(args))
	end := min(1, len(args))
	for _, a := range all {
		end = a.last
		value, ours := want[a.Name]
		if a.Name == "config-file" {
			ours, value, a.Value = resolved != "", "", ""
		}
		if !ours && !strings.HasPrefix(a.Name, "discovery-") {
			continue
		}
		narrowed := a.Name == "listen-peer-urls" || a.Name == "listen-client-urls" // as --listen-self asks
		if same, err := sameSetting(a.Flag, value); err != nil {
			return nil, err
		} else if !same && ours && !narrowed {
			return nil, contradiction(a.Flag, value)
		}
		for i := a.first; i < a.last; i++ {
			drop[i] = true
		}
	}
	out := make([]string, 0, len(args)+1)
	for i, word := range args {
		if i == end && resolved != "" {
			out = append(out, "--config-file="+resolved)
		}
		if !drop[i] {
			out = append(out, word)
		}
	}
	if end == len(args) && resolved != "" {
		out = append(out, "--config-file="+resolved)
	}
	return out, nil
}

func sameSetting(f Flag, value string) (bool, error) {
	k, ok := allKeys()[f.Name]
	if !ok {
		return f.Value == value, nil
	}
	have, err := k.canonicalOr(f.Value)
	if err != nil {
		return false, invalid("etcd's command line: flag --"+f.Name, err)
	}
	if k.kind == boolean && have == "false" {
		have = ""
	}
	want, err := k.canonicalOr(value)
	return have == want || have == "" && value == "", err
}

func contradiction(f Flag, value string) error {
	const where = "etcd's command line: flag --"
	switch {
	case f.Name == "initial-cluster", strings.HasPrefix(f.Name, "discovery"):
		return invalid(fmt.Sprintf("%s%s is %q: the member list is in the seeded directory, and with this flag an etcd that misses it would make a cluster of its own; take it away", where, f.Name, f.Value), nil)
	case f.Name == "initial-cluster-state":
		return invalid(fmt.Sprintf("%s%s is %q: an etcd that misses its seeded directory must stop, so it is handed over as %q; take it away", where, f.Name, f.Value, value), nil)
	case f.Name == "force-new-cluster":
		return refused(f.Name, setting{f.Value, where + f.Name})
	default:
		return invalid(fmt.Sprintf("%s%s is %q, but this member is %q: take it away, it is handed over", where, f.Name, f.Value, value), nil)
	}
}

// Exec is the command line and the environment that etcd is to be run with.
// resolved is the path that Resolved was written to; it is needed where etcd
// has a configuration file, here or in its own command line or environment.
func (c *Config) Exec(h Handoff, args, environ []string, resolved string) (argv, env []string, err error) {
	named, err := ExecFile(args, environ)
	switch {
	case err != nil:
		return nil, nil, err
	case named != "" && named != c.File:
		return nil, nil, invalid(fmt.Sprintf("etcd would read the configuration file %s, but %s was read here: name the same one, or none, in etcd's command line and in ETCD_CONFIG_FILE", named, c.source()), nil)
	case c.File != "" && resolved == "":
		return nil, nil, invalid("etcd reads a configuration file ("+c.File+") and so ignores variables and flags: the resolved file must be written first (--config-out)", nil)
	case c.File == "":
		resolved = ""
	}
	argv, err = ExecArgs(h, args, resolved)
	if err != nil {
		return nil, nil, err
	}
	env = ExecEnv(h, environ)
	if c.File != "" {
		return argv, without(env, "ETCD_CONFIG_FILE"), nil
	}
	return argv, c.passFlags(h, argv, env), nil
}

func (c *Config) source() string {
	if c.File == "" {
		return "none"
	}
	return c.File
}

// passFlags hands on, as variables, what only our own command line said, and
// takes out a variable that a flag of etcd's shadows: etcd exits on both.
func (c *Config) passFlags(h Handoff, argv, env []string) []string {
	settled := map[string]bool{}
	for _, flag := range emptied() {
		settled[flag] = true
	}
	for _, p := range h.pairs() {
		settled[p.flag] = true
	}
	all, _ := arguments(argv) //nolint:errcheck // ExecArgs has read them
	for _, a := range all {
		settled[a.Name] = true
		env = without(env, variable(a.Name))
	}
	for _, flag := range sortedKeys(c.settings) {
		if s := c.settings[flag]; !settled[flag] && strings.HasPrefix(s.place, "flag ") {
			env = append(without(env, variable(flag)), variable(flag)+"="+s.value)
		}
	}
	return env
}

func without(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
}
