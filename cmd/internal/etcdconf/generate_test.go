package etcdconf

import (
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// generator makes configurations that etcd accepts, in every spelling it does.
type generator struct{ *rand.Rand }

func (g generator) pick(from ...string) string { return from[g.IntN(len(from))] }

func (g generator) hostPort() string {
	return g.pick("10.0.0.1", "[2001:db8::1]", "0.0.0.0", "[::]", "localhost", "127.0.0.1") + ":" + g.pick("2380", "2379", "1", "65535")
}

func (g generator) urlList(scheme string) string {
	var all []string
	for range 1 + g.IntN(3) {
		u := scheme + "://" + g.hostPort()
		if !slices.Contains(all, u) {
			all = append(all, u)
		}
	}
	return strings.Join(all, g.pick(",", ", ", " ,"))
}

// values makes settings by flag name. Booleans and numbers are in their
// canonical spelling.
func (g generator) values() map[string]string {
	v := map[string]string{"log-level": "error", "data-dir": g.pick("/data", "./d", "relative dir", "/d:1")}
	maybe := func(name, value string) {
		if g.IntN(2) == 0 {
			v[name] = value
		}
	}
	maybe("name", g.pick("a", "no", "on", "123", "0x10", "1e3", "a: b", "#a", "~", "null", "é", "true", "1_000", "1:30"))
	maybe("wal-dir", "/wal")
	scheme := "http"
	if g.IntN(3) == 0 {
		scheme = "https"
		v["peer-cert-file"], v["peer-key-file"] = "c.pem", "k.pem"
		v["cert-file"], v["key-file"] = "cc.pem", "ck.pem"
		maybe("peer-client-cert-auth", "true")
		maybe("peer-trusted-ca-file", "ca.pem")
		maybe("peer-client-cert-file", "dial.pem")
		maybe("peer-client-key-file", "dialkey.pem")
		maybe("peer-cert-allowed-cn", g.pick("etcd", "etcd,root"))
		maybe("peer-cert-allowed-hostname", "a.example.org,b.example.org")
		maybe("client-cert-auth", "true")
		maybe("trusted-ca-file", "ca.pem")
		maybe("client-cert-allowed-hostname", "a.example.org")
	}
	maybe("listen-peer-urls", g.urlList(scheme))
	maybe("listen-client-urls", g.urlList(scheme))
	maybe("initial-advertise-peer-urls", g.urlList(scheme))
	v["advertise-client-urls"] = g.urlList(scheme)
	maybe("initial-cluster-token", g.pick("t1", "etcd-cluster", "007", "yes"))
	maybe("initial-cluster-state", g.pick("new", "existing"))
	maybe("max-learners", g.pick("2", "3"))
	switch g.IntN(3) {
	case 0:
		v["discovery-srv"] = "example.org"
		maybe("discovery-srv-name", "prod")
	case 1:
		v["initial-cluster"] = "a=" + scheme + "://10.0.0.1:2380"
	}
	maybe("snapshot-count", "5000")
	maybe("heartbeat-interval", "150")
	maybe("log-outputs", g.pick("stderr", "stderr,stdout"))
	maybe("backend-batch-interval", g.pick("100ms", "1m30s"))
	maybe("quota-backend-bytes", "8589934592")
	maybe("auto-compaction-retention", g.pick("1", "5m", "1h"))
	maybe("pre-vote", g.pick("false", "true"))
	maybe("cors", g.pick("*", "http://a.example.org:80"))
	maybe("cipher-suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
	maybe("socket-reuse-port", "true")
	return v
}

// file writes values as a person might, in YAML.
func (g generator) file(values map[string]string) string {
	top, sections := []string{}, map[string][]string{}
	known := allKeys()
	for _, flagName := range slices.Sorted(maps.Keys(values)) {
		k, value := known[flagName], values[flagName]
		var spelled string
		switch k.kind {
		case boolean, integer, unsigned, short, section, anything:
			spelled = value
		case list:
			spelled = "[" + strings.Join(strings.Split(value, ","), ", ") + "]"
		case duration:
			spelled = k.node(value).Value
		case text, urls:
			spelled = g.pick("'"+value+"'", `"`+value+`"`)
			if regexp.MustCompile(`^[/.a-z][a-z0-9/.]*$|^http[^, ]*$`).MatchString(value) && !slices.Contains([]string{"no", "on", "null", "true", "yes"}, value) {
				spelled = g.pick(spelled, value)
			}
		}
		if outer, inner, nested := strings.Cut(k.yamlPath(), "."); nested {
			sections[outer] = append(sections[outer], inner+": "+spelled)
			continue
		}
		top = append(top, flagName+": "+spelled+g.pick("", "", " # why", "\n", "\n# next"))
	}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		if g.IntN(2) == 0 {
			top = append(top, name+": {"+strings.Join(sections[name], ", ")+"}")
		} else {
			top = append(top, name+":\n  "+strings.Join(sections[name], "\n  "))
		}
	}
	g.Shuffle(len(top), func(i, j int) { top[i], top[j] = top[j], top[i] })
	return "# generated\n" + strings.Join(top, "\n") + "\n"
}
