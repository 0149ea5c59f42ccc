package etcdconf

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Load reads etcd's configuration as etcd itself would: from file where one is
// named there or in ETCD_CONFIG_FILE, else from the flags and ETCD_* variables.
// Its errors are *exit.Error.
func Load(file string, flags []Flag, environ []string) (*Config, error) {
	env := lookup(environ)
	if file == "" {
		file = env["ETCD_CONFIG_FILE"]
	}
	given, err := givenSettings(flags, env)
	if err != nil {
		return nil, err
	}
	c := &Config{File: file, settings: map[string]setting{}}
	if file != "" {
		err = c.fromFile(given)
	} else {
		err = c.fromSettings(given)
	}
	if err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return c, nil
}

// lookup is the environment as a map. Of two equal names the first counts, as
// in os.Getenv.
func lookup(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if _, twice := env[name]; ok && !twice {
			env[name] = value
		}
	}
	return env
}

// givenSettings are the flags, and the variables that no flag shadows. Variables
// that etcd does not know are none of our business.
func givenSettings(flags []Flag, env map[string]string) (map[string][]setting, error) {
	given := map[string][]setting{}
	known := allKeys()
	for _, f := range flags {
		k, ok := known[f.Name]
		if !ok {
			return nil, invalid("flag --"+f.Name+": etcd has no such flag", nil)
		}
		if k.kind == boolean && f.Value == "" {
			f.Value = "true"
		}
		given[f.Name] = []setting{{f.Value, "flag --" + f.Name}} // the last one counts
	}
	for name := range known {
		if v := env[variable(name)]; v != "" {
			given[name] = append(given[name], setting{v, "variable " + variable(name)})
		}
	}
	return given, nil
}

// fromSettings takes flags and variables: a flag beats its variable.
func (c *Config) fromSettings(given map[string][]setting) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		s := given[name][0]
		if s.value == "" && name != "initial-cluster-token" {
			continue // an empty flag is etcd's default
		}
		c.settings[name] = s
	}
	for _, k := range ownKeys() {
		s, ok := c.settings[k.flag]
		if !ok {
			continue
		}
		value, err := k.canonical(s.value)
		if err != nil {
			return invalid(s.place, err)
		}
		k.set(c, value)
	}
	return nil
}

// fromFile takes the file's keys alone, and refuses what says something else.
func (c *Config) fromFile(given map[string][]setting) error {
	d, data, err := readFile(c.File)
	if err != nil {
		return err
	}
	c.doc = data
	c.Warnings = d.warnings
	values := d.values()
	for _, k := range append(ownKeys(), refusedKeys()...) {
		value := values[k.flag]
		if k.kind == integer && value == "0" || k.kind == boolean && value == "false" {
			value = "" // treated as absent
		}
		if value == "" && !d.has(k.yamlPath()) {
			continue
		}
		place := d.place(k.yamlPath())
		canonical, err := k.canonicalOr(value)
		if err != nil {
			return invalid(place, err)
		}
		c.settings[k.flag] = setting{value, place}
		if k.value != nil {
			k.set(c, canonical)
		}
	}
	return c.compare(given)
}

// compare refuses a flag or variable that etcd would ignore because of the
// file, unless it says what the file says (or what etcd takes without the key).
func (c *Config) compare(given map[string][]setting) error {
	for _, k := range append(ownKeys(), refusedKeys()...) {
		for _, g := range given[k.flag] {
			want, err := k.canonicalOr(g.value)
			if err != nil {
				return invalid(g.place, err)
			}
			s, inFile := c.settings[k.flag]
			if !inFile || s.value == "" && k.flag != "initial-cluster-token" {
				fallback := k.fallback()
				if want == fallback || want == "" {
					continue
				}
				if k.path == "-" {
					return invalid(fmt.Sprintf("%s is %q, but etcd reads its configuration file %s, which has no key for that, and ignores flags and ETCD_* variables: take it away, or configure etcd without a file", g.place, g.value, c.File), nil)
				}
				return invalid(fmt.Sprintf("%s is %q, but etcd's configuration file %s has no %s, and with a configuration file etcd ignores flags and ETCD_* variables: put it into the file, or take it away",
					g.place, g.value, c.File, k.yamlPath()), nil)
			}
			have, err := k.canonicalOr(s.value)
			if err != nil {
				return invalid(s.place, err)
			}
			if want != have && (!k.isPath() || filepath.Clean(want) != filepath.Clean(have)) {
				return invalid(fmt.Sprintf("%s is %q, but %s is %q, and with a configuration file etcd ignores flags and ETCD_* variables: make them equal, or take one away",
					g.place, g.value, s.place, s.value), nil)
			}
		}
	}
	return nil
}

// canonicalOr is canonical with "" for an absent value.
func (k key) canonicalOr(value string) (string, error) {
	if value == "" {
		return "", nil
	}
	return k.canonical(value)
}
