package etcdconf

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"
	etcdflags "go.etcd.io/etcd/pkg/v3/flags"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// seen is a Config beside what etcd itself read; absent keys are etcd's default.
type seen struct{ ours, etcds string }

func compareWithEtcd(c *Config, e *embed.Config) map[string]seen {
	or := func(value, fallback string) string {
		if value == "" {
			return fallback
		}
		return value
	}
	list := func(us []string, fallback string) string { return or(strings.Join(us, ","), fallback) }
	theirs := func(us []url.URL) string { return types.URLs(us).String() }
	m := map[string]seen{
		"name":                        {or(c.Name, "default"), or(e.Name, "default")},
		"data-dir":                    {c.DataDir, e.Dir},
		"wal-dir":                     {c.WALDir, e.WalDir},
		"discovery-srv":               {c.DiscoverySRV, e.DNSCluster},
		"discovery-srv-name":          {c.DiscoverySRVName, e.DNSClusterServiceName},
		"initial-cluster-token":       {c.Token(), e.InitialClusterToken},
		"initial-cluster-state":       {or(c.InitialClusterState, "new"), e.ClusterState},
		"listen-peer-urls":            {list(c.ListenPeerURLs, defaultPeerURL), theirs(e.ListenPeerUrls)},
		"listen-client-urls":          {list(c.ListenClientURLs, defaultClientURL), theirs(e.ListenClientUrls)},
		"initial-advertise-peer-urls": {list(c.AdvertisePeerURLs, defaultPeerURL), theirs(e.AdvertisePeerUrls)},
		"max-learners":                {or(strconv.Itoa(c.MaxLearners), "0"), strconv.Itoa(e.MaxLearners)},
		"peer-tls":                    {tlsText(c.PeerTLS), etcdTLS(e, true)},
		"client-tls":                  {tlsText(c.ClientTLS), etcdTLS(e, false)},
	}
	if c.MaxLearners == 0 {
		m["max-learners"] = seen{"1", strconv.Itoa(e.MaxLearners)}
	}
	if len(c.AdvertiseClients) > 0 {
		m["advertise-client-urls"] = seen{strings.Join(c.AdvertiseClients, ","), theirs(e.AdvertiseClientUrls)}
	}
	if c.InitialCluster != "" {
		m["initial-cluster"] = seen{c.InitialCluster, e.InitialCluster}
	}
	return m
}

func tlsText(t TLS) string { return fmt.Sprintf("%+v", t) }

func etcdTLS(e *embed.Config, peer bool) string {
	i, auto := e.ClientTLSInfo, e.ClientAutoTLS
	if peer {
		i, auto = e.PeerTLSInfo, e.PeerAutoTLS
	}
	return tlsText(TLS{
		CertFile: i.CertFile, KeyFile: i.KeyFile, ClientCertFile: i.ClientCertFile, ClientKeyFile: i.ClientKeyFile,
		TrustedCAFile: i.TrustedCAFile, AllowedCN: strings.Join(i.AllowedCNs, ","), AllowedHostname: strings.Join(i.AllowedHostnames, ","),
		ClientCertAuth: i.ClientCertAuth, AutoTLS: auto,
	})
}

func reportDifferences(t *testing.T, c *Config, e *embed.Config) {
	t.Helper()
	m := compareWithEtcd(c, e)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if v := m[k]; v.ours != v.etcds {
			t.Errorf("%s: read as %s, etcd reads %s", k, v.ours, v.etcds)
		}
	}
}

// Every generated file must mean the same here and to etcd's own parser, as it
// is and after it was resolved; and nothing but the handoff may have changed.
func TestFilesAsEtcdReadsThem(t *testing.T) {
	dir := t.TempDir()
	for seed := range uint64(150) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		text := g.file(g.values())
		path := filepath.Join(dir, fmt.Sprintf("%d.yaml", seed))
		write(t, path, text)
		etcd, err := embed.ConfigFromFile(path)
		if err != nil {
			t.Fatalf("etcd: %v\n%s", err, text)
		}
		c, err := Load(path, nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		reportDifferences(t, c, etcd)
		checkResolvedByEtcd(t, c, etcd, path)
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, text)
		}
	}
}

// What etcd's parser refuses is refused here, not when etcd starts.
func TestFilesThatEtcdRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"not yaml": "a: b: c\n", "tab": "data-dir: /d\n\tname: a\n", "a list": "- a\n", "a word": "etcd\n",
		"number as name": "name: 12\n", "boolean as name": "name: no\n", "float as token": "initial-cluster-token: 1.5\n",
		"sequence as urls": "listen-peer-urls: [http://10.0.0.1:2380]\n", "text as boolean": "peer-transport-security: {client-cert-auth: maybe}\n",
		"text as section": "peer-transport-security: x\n", "text as number": "max-learners: few\n", "fraction": "max-learners: 1.5\n",
		"state": "initial-cluster-state: exists\n", "listen on a name": "listen-peer-urls: http://a.example.org:2380\n",
		"no host": "listen-client-urls: http://:2379\n", "no host advertised": "initial-advertise-peer-urls: http://:2380\n",
		"section as name": "name: {a: b}\n", "unknown alias": "name: *a\n", "odd key": "{a: b}: c\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "etcd.yaml")
			if text = "log-level: error\n" + text; name == "a list" || name == "a word" {
				text = strings.TrimPrefix(text, "log-level: error\n")
			}
			write(t, path, text)
			if _, err := embed.ConfigFromFile(path); err == nil {
				t.Error("etcd takes it")
			}
			if name != "a list" && name != "a word" {
				write(t, path, "data-dir: /d\n"+text)
			}
			if _, err := Load(path, nil, nil); err == nil {
				t.Error("taken")
			} else if !strings.Contains(err.Error(), path) {
				t.Errorf("error %q does not name the file", err)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func exampleHandoff(scheme string) Handoff {
	return Handoff{
		Name:                "etcd-0",
		AdvertisePeerURLs:   []string{scheme + "://etcd-0.example.org:2380"},
		AdvertiseClientURLs: []string{scheme + "://etcd-0.example.org:2379", scheme + "://[2001:db8::1]:2379"},
	}
}

// checkResolvedByEtcd has etcd read the resolved file: it must say what etcd
// read before, but for the handoff.
func checkResolvedByEtcd(t *testing.T, c *Config, before *embed.Config, path string) {
	t.Helper()
	h := exampleHandoff(strings.Split(before.AdvertiseClientUrls[0].String(), ":")[0])
	resolved, err := c.Resolved(h)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path+".resolved", string(resolved))
	after, err := embed.ConfigFromFile(path + ".resolved")
	if err != nil {
		t.Fatalf("etcd does not read the resolved file: %v\n%s", err, resolved)
	}
	if after.Name != h.Name || after.ClusterState != "existing" || after.DNSCluster != "" || after.DNSClusterServiceName != "" ||
		types.URLs(after.AdvertisePeerUrls).String() != strings.Join(normalURLs(h.AdvertisePeerURLs), ",") ||
		types.URLs(after.AdvertiseClientUrls).String() != strings.Join(normalURLs(h.AdvertiseClientURLs), ",") {
		t.Errorf("etcd reads other than the handoff:\n%s", resolved)
	}
	if after.InitialCluster != embed.NewConfig().InitialCluster {
		t.Errorf("initial-cluster is still %q", after.InitialCluster)
	}
	for _, e := range []*embed.Config{before, after} {
		e.Name, e.ClusterState, e.DNSCluster, e.DNSClusterServiceName, e.InitialCluster = "", "", "", "", ""
		e.AdvertisePeerUrls, e.AdvertiseClientUrls = nil, nil
	}
	b, a := exported(before), exported(after)
	for _, field := range slices.Sorted(maps.Keys(b)) {
		if b[field] != a[field] {
			t.Errorf("resolving changed %s from %s to %s\n%s", field, b[field], a[field], resolved)
		}
	}
	again := *c
	again.doc, again.File = resolved, path
	if second, err := again.Resolved(h); err != nil || string(second) != string(resolved) {
		t.Errorf("resolving the resolved file: error %v, gives\n%s\nafter\n%s", err, second, resolved)
	}
}

// exported prints what a configuration file can set, but for discovery.
func exported(e *embed.Config) map[string]string {
	m := map[string]string{"PeerTLSInfo": etcdTLS(e, true), "ClientTLSInfo": etcdTLS(e, false)}
	v := reflect.ValueOf(*e)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if _, done := m[f.Name]; done || !f.IsExported() || f.Name == "FlagsExplicitlySet" || f.Name == "DiscoveryCfg" ||
			slices.Contains([]reflect.Kind{reflect.Func, reflect.Pointer, reflect.Interface}, f.Type.Kind()) {
			continue
		}
		m[f.Name] = fmt.Sprintf("%+v", v.Field(i).Interface())
	}
	return m
}

// parseAsEtcd does what etcd's main does without a configuration file.
func parseAsEtcd(t *testing.T, args, environ []string) (*embed.Config, error) {
	t.Helper()
	e := embed.NewConfig()
	fs := flag.NewFlagSet("etcd", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	e.AddFlags(fs)
	state := etcdflags.NewSelectiveStringValue("new", "existing")
	fs.Var(state, "initial-cluster-state", "")
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	fatal := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zap.FatalLevel), zap.WithFatalHook(zapcore.WriteThenPanic))
	if err := etcdflags.SetFlagsFromEnv(fatal, "ETCD", fs); err != nil {
		return nil, err
	}
	e.ListenPeerUrls = etcdflags.UniqueURLsFromFlag(fs, "listen-peer-urls")
	e.AdvertisePeerUrls = etcdflags.UniqueURLsFromFlag(fs, "initial-advertise-peer-urls")
	e.ListenClientUrls = etcdflags.UniqueURLsFromFlag(fs, "listen-client-urls")
	e.AdvertiseClientUrls = etcdflags.UniqueURLsFromFlag(fs, "advertise-client-urls")
	e.CORS = etcdflags.UniqueURLsMapFromFlag(fs, "cors")
	e.HostWhitelist = etcdflags.UniqueStringsMapFromFlag(fs, "host-whitelist")
	e.ClientTLSInfo.AllowedHostnames = etcdflags.StringsFromFlag(fs, "client-cert-allowed-hostname")
	e.PeerTLSInfo.AllowedCNs = etcdflags.StringsFromFlag(fs, "peer-cert-allowed-cn")
	e.PeerTLSInfo.AllowedHostnames = etcdflags.StringsFromFlag(fs, "peer-cert-allowed-hostname")
	e.CipherSuites = etcdflags.StringsFromFlag(fs, "cipher-suites")
	e.MaxConcurrentStreams = etcdflags.Uint32FromFlag(fs, "max-concurrent-streams")
	e.LogOutputs = etcdflags.UniqueStringsFromFlag(fs, "log-outputs")
	e.ClusterState = state.String()
	return e, nil
}

// Flags and variables must mean the same here and to etcd's own parser, which
// flag beats which variable included; and the file that is made of them must
// say to etcd what they said.
func TestFlagsAndVariablesAsEtcdReadsThem(t *testing.T) {
	dir := t.TempDir()
	for seed := range uint64(80) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			g := generator{rand.New(rand.NewPCG(seed, 2))}
			var args, environ []string
			var ours []Flag
			values := g.values()
			for _, name := range slices.Sorted(maps.Keys(values)) {
				switch g.IntN(3) {
				case 0:
					environ = append(environ, variable(name)+"="+values[name])
				case 1:
					args = append(args, "--"+name+"="+values[name])
				default:
					args = append(args, "-"+name+"="+values[name])
				}
			}
			etcd, err := parseAsEtcd(t, args, environ)
			if err != nil {
				t.Fatal(err)
			}
			_, ours, err = ExecFlags(append([]string{"etcd"}, args...))
			if err != nil {
				t.Fatal(err)
			}
			c, err := Load("", ours, environ)
			if err != nil {
				t.Fatal(err)
			}
			reportDifferences(t, c, etcd)
			c.File = ""
			checkResolvedByEtcd(t, c, etcd, filepath.Join(dir, strconv.FormatUint(seed, 10)))
			if t.Failed() {
				t.Logf("args %q environment %q", args, environ)
			}
		})
	}
}

// A flag beats its variable, and an empty variable is none. (etcd itself exits
// when both are there; no variable may be handed to it that a flag shadows.)
func TestEtcdExitsOnShadowedVariable(t *testing.T) {
	for _, value := range []string{"ETCD_NAME=b", "ETCD_NAME=a", "ETCD_NAME="} {
		t.Run(value, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("etcd's parser takes a variable beside its flag now: Exec need not take it out")
				}
			}()
			if _, err := parseAsEtcd(t, []string{"--name=a"}, []string{value}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Every flag of the etcd that this module builds with is known, and whether it
// takes a value: else a command line would be misread.
func TestKnowsEtcdsFlags(t *testing.T) {
	e := embed.NewConfig()
	fs := flag.NewFlagSet("etcd", flag.ContinueOnError)
	e.AddFlags(fs)
	known := allKeys()
	fs.VisitAll(func(f *flag.Flag) {
		k, ok := known[f.Name]
		if !ok {
			t.Errorf("flag --%s is not known", f.Name)
			return
		}
		b, isBool := f.Value.(interface{ IsBoolFlag() bool })
		if isBool = isBool && b.IsBoolFlag(); isBool != (k.kind == boolean) {
			t.Errorf("flag --%s: boolean %v, but kind %d", f.Name, isBool, k.kind)
		}
		if isDuration := strings.Contains(fmt.Sprintf("%T", f.Value), "durationValue"); isDuration != (k.kind == duration) {
			t.Errorf("flag --%s: duration %v, but kind %d", f.Name, isDuration, k.kind)
		}
	})
}

// A URL list is accepted and ordered as etcd's own types do.
func TestURLsAsEtcdReadsThem(t *testing.T) {
	for _, list := range []string{
		"http://10.0.0.1:2380", " https://[2001:db8::1]:2380 ,http://a:1", "unix://sock:1", "unix://sock:1:2", "unix://::1:2", "unixs:///run/etcd.sock", "HTTP://A.Example.org:2380",
		"http://10.0.0.1", "http://10.0.0.1:2380/x", "ftp://10.0.0.1:21", "10.0.0.1:2380", "http://a:b", "", ",", "http://[::1:2380",
	} {
		want, etcdErr := types.NewURLs(strings.Split(list, ","))
		got, err := parseURLs(list)
		if list == "" {
			continue // "" is no list to etcd's configuration
		}
		if (err == nil) != (etcdErr == nil) {
			t.Errorf("%q: %v here, %v to etcd", list, err, etcdErr)
		} else if err == nil && strings.Join(got, ",") != want.String() {
			t.Errorf("%q: %v here, %v to etcd", list, got, want)
		}
	}
}

// embedKeys are the paths of all keys that etcd's parser reads, by the tags of its
// configuration; the unexported parts of it have the names that the error of a
// wrong type shows.
func embedKeys() []string {
	var paths []string
	for f := range reflect.TypeFor[embed.Config]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		paths = append(paths, name)
	}
	paths = append(paths, "listen-peer-urls", "listen-client-urls", "listen-client-http-urls", "initial-advertise-peer-urls", "advertise-client-urls",
		"cors", "host-whitelist", "client-transport-security", "peer-transport-security", "feature-gates", "socket-options.reuse-port", "socket-options.reuse-address")
	for _, side := range []string{"client-transport-security.", "peer-transport-security."} {
		for _, name := range []string{"cert-file", "key-file", "client-cert-file", "client-key-file", "client-cert-auth", "trusted-ca-file", "auto-tls", "allowed-cn", "allowed-hostname", "skip-client-san-verification"} {
			paths = append(paths, side+name)
		}
	}
	return paths
}
