package etcdconf

import (
	"bytes"
	"strings"
)

// pair is one etcd setting by flag name.
type pair struct{ flag, value string }

// pairs are the settings of a handoff. Empty ones must not be there at all.
//
// "existing" is the guard: an etcd that finds no data where its seed should be
// exits instead of electing itself leader of a new one-member cluster.
func (h Handoff) pairs() []pair {
	all := []pair{
		{"name", h.Name},
		{"initial-advertise-peer-urls", strings.Join(h.AdvertisePeerURLs, ",")},
		{"advertise-client-urls", strings.Join(h.AdvertiseClientURLs, ",")},
		{"listen-peer-urls", strings.Join(h.ListenPeerURLs, ",")},
		{"listen-client-urls", strings.Join(h.ListenClientURLs, ",")},
		{"initial-cluster-state", "existing"},
	}
	given := all[:0]
	for _, p := range all {
		if p.value != "" {
			given = append(given, p)
		}
	}
	return given
}

// emptied are the settings that would make etcd look for a cluster of its own
// accord, or make one. An empty variable is no variable to etcd, and undoes
// one that another EnvironmentFile holds.
func emptied() []string {
	return []string{
		"initial-cluster", "discovery", "discovery-srv", "discovery-srv-name", "discovery-proxy", "discovery-fallback",
		"discovery-endpoints", "discovery-token", "force-new-cluster",
	}
}

// EnvFile is the handoff in the syntax of systemd's EnvironmentFile, which a
// shell can read, too.
func EnvFile(h Handoff) []byte {
	var b bytes.Buffer
	for _, p := range h.pairs() {
		b.WriteString(variable(p.flag) + "=" + quoteEnv(p.value) + "\n")
	}
	for _, flag := range emptied() {
		b.WriteString(variable(flag) + "=\n")
	}
	return b.Bytes()
}

// CheckEnvFile refuses a handoff by environment where etcd reads a
// configuration file: it would not look at a single variable.
func (c *Config) CheckEnvFile() error {
	if c.File == "" {
		return nil
	}
	return invalid("etcd ignores ETCD_* variables when it has a configuration file ("+c.File+"): hand over with --config-out and start etcd with that file", nil)
}

// quoteEnv quotes only what needs it: not every reader of such files knows
// quotes. Within them, systemd and shells agree on these escapes.
func quoteEnv(value string) string {
	const plainChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/,@%+=[]"
	if value != "" && strings.Trim(value, plainChars) == "" {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`).Replace(value) + `"`
}

// ExecEnv is environ with the handoff in it: what it says is set, and what
// would make etcd look for a cluster is gone.
func ExecEnv(h Handoff, environ []string) []string {
	drop := map[string]bool{}
	for _, flag := range emptied() {
		drop[variable(flag)] = true
	}
	for _, p := range h.pairs() {
		drop[variable(p.flag)] = true
	}
	env := make([]string, 0, len(environ)+len(h.pairs()))
	for _, kv := range environ {
		if name, _, _ := strings.Cut(kv, "="); !drop[name] {
			env = append(env, kv)
		}
	}
	for _, p := range h.pairs() {
		env = append(env, variable(p.flag)+"="+p.value)
	}
	return env
}
