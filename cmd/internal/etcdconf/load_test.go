package etcdconf

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

// load runs Load on a file with the given text ("" for none); FILE in want
// stands for its path.
func load(t *testing.T, text string, flags []Flag, environ ...string) (*Config, string, error) {
	t.Helper()
	file := ""
	if text != "" {
		file = filepath.Join(t.TempDir(), "etcd.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(file, flags, environ)
	return c, file, err
}

const static = `data-dir: /data
listen-peer-urls: http://0.0.0.0:2380
listen-client-urls: http://0.0.0.0:2379
initial-cluster-token: t1
`

func TestLoadRefuses(t *testing.T) {
	tests := []struct {
		name  string
		file  string
		flags []Flag
		env   []string
		want  []string // all in the error
	}{
		{"ipv6 without brackets in file", static + "initial-advertise-peer-urls: http://2001:db8::10:2380\n", nil, nil, []string{"FILE:5: initial-advertise-peer-urls", "IPv6 address must be in brackets", "http://[2001:db8::10]:2380"}},
		{"ipv6 without brackets and port", "data-dir: /d\nlisten-peer-urls: http://2001:db8::10\n", nil, nil, []string{"FILE:2: listen-peer-urls", "IPv6 address must be in brackets"}},
		{"ipv6 without brackets in variable", "", []Flag{{"data-dir", "/d"}}, []string{"ETCD_LISTEN_CLIENT_URLS=http://2001:db8::10:2379"}, []string{"variable ETCD_LISTEN_CLIENT_URLS", "IPv6 address must be in brackets"}},
		{"ipv6 without brackets in flag", "", []Flag{{"data-dir", "/d"}, {"listen-peer-urls", "http://fe80::1:2380"}}, nil, []string{"flag --listen-peer-urls", "IPv6 address must be in brackets"}},
		{"ipv6 without brackets in initial-cluster", static + "initial-cluster: a=http://2001:db8::10:2380\n", nil, nil, []string{"FILE:5: initial-cluster", "member a", "IPv6 address must be in brackets"}},
		{"url without port", "data-dir: /d\nlisten-peer-urls: http://10.0.0.1\n", nil, nil, []string{"FILE:2: listen-peer-urls", "the port is missing"}},
		{"url with path", "data-dir: /d\nadvertise-client-urls: http://10.0.0.1:2379/x\n", nil, nil, []string{"FILE:2: advertise-client-urls", "no path"}},
		{"url with an empty query", "data-dir: /d\nadvertise-client-urls: http://10.0.0.1:2379?\n", nil, nil, []string{"FILE:2: advertise-client-urls", "but scheme, host and port"}},
		{"url with an empty fragment", "data-dir: /d\nadvertise-client-urls: http://10.0.0.1:2379#\n", nil, nil, []string{"FILE:2: advertise-client-urls", "but scheme, host and port"}},
		{"url with a port too high", "data-dir: /d\nadvertise-client-urls: http://10.0.0.1:65536\n", nil, nil, []string{"FILE:2: advertise-client-urls", "65536 is no port number"}},
		{"url with scheme", "data-dir: /d\nadvertise-client-urls: ftp://10.0.0.1:2379\n", nil, nil, []string{"FILE:2", "scheme", `"ftp"`}},
		{"url without scheme", "data-dir: /d\nadvertise-client-urls: 10.0.0.1:2379\n", nil, nil, []string{"FILE:2", "http://host:port"}},
		{"comma too many", "data-dir: /d\nlisten-peer-urls: http://10.0.0.1:2380,\n", nil, nil, []string{"FILE:2", "comma"}},
		{"listen on a name", "data-dir: /d\nlisten-peer-urls: http://etcd-0.example.org:2380\n", nil, nil, []string{"FILE:2: listen-peer-urls", "IP addresses only", "etcd-0.example.org"}},
		{"listen on nothing", "data-dir: /d\nlisten-client-urls: http://:2379\n", nil, nil, []string{"FILE:2: listen-client-urls", "http://0.0.0.0:2379"}},
		{"advertise nothing", "data-dir: /d\nadvertise-client-urls: http://:2379\n", nil, nil, []string{"FILE:2: advertise-client-urls", "host is missing"}},
		{"urls as a sequence", "data-dir: /d\nlisten-peer-urls: [http://10.0.0.1:2380]\n", nil, nil, []string{"FILE:2: listen-peer-urls", "commas"}},
		{"boolean", "data-dir: /d\npeer-transport-security:\n  client-cert-auth: maybe\n", nil, nil, []string{"FILE:3: peer-transport-security.client-cert-auth", "true or false"}},
		{"boolean variable", "", nil, []string{"ETCD_DATA_DIR=/d", "ETCD_PEER_AUTO_TLS=yes"}, []string{"variable ETCD_PEER_AUTO_TLS", `"yes"`, "true nor false"}},
		{"name that is a boolean to YAML 1.1", "data-dir: /d\nname: no\n", nil, nil, []string{"FILE:2: name", "text", "bool", "quotes"}},
		{"token that is a number", "data-dir: /d\ninitial-cluster-token: 12\n", nil, nil, []string{"FILE:2: initial-cluster-token", "text", "number", "quotes"}},
		{"section that is none", "data-dir: /d\npeer-transport-security: cert.pem\n", nil, nil, []string{"FILE:2: peer-transport-security", "section", "string"}},
		{"number", "data-dir: /d\nmax-learners: few\n", nil, nil, []string{"FILE:2: max-learners", "whole number"}},
		{"number variable", "", nil, []string{"ETCD_DATA_DIR=/d", "ETCD_MAX_LEARNERS=1.5"}, []string{"variable ETCD_MAX_LEARNERS", `"1.5"`}},
		{"state", static + "initial-cluster-state: exists\n", nil, nil, []string{"FILE:5: initial-cluster-state", `"exists"`}},
		{"yaml", "data-dir: /d\n\tname: a\n", nil, nil, []string{"FILE:2: not YAML"}},
		{"yaml of another shape", "- a\n- b\n", nil, nil, []string{"FILE:1", "a sequence"}},
		{"a word", "etcd\n", nil, nil, []string{"FILE:1", "a single value"}},
		{"duplicate key", "data-dir: /a\nname: x\ndata-dir: /b\n", nil, nil, []string{"FILE:3", `"data-dir"`, "twice", "line 1"}},
		{"duplicate unknown key", static + "future: 1\nfuture: 2\n", nil, nil, []string{"FILE:6", `"future"`, "line 5"}},
		{"duplicate key within a section", "data-dir: /a\npeer-transport-security:\n  cert-file: a\n  cert-file: b\n", nil, nil, []string{"FILE:4", `"cert-file"`, "line 3"}},
		{"one key in two cases", "Name: a\ndata-dir: /d\nname: b\n", nil, nil, []string{"FILE:3", `"name"`, `"Name"`, "line 1"}},
		{"no file", "", nil, []string{"ETCD_CONFIG_FILE=/nonexistent/etcd.yaml"}, []string{"/nonexistent/etcd.yaml", "no such file"}},
		{"no data dir in file", "name: a\n", nil, nil, []string{"FILE has no data-dir"}},
		{"no data dir", "", nil, nil, []string{"--data-dir", "ETCD_DATA_DIR"}},

		{"variable against file", static, nil, []string{"ETCD_DATA_DIR=/other"}, []string{"variable ETCD_DATA_DIR", `"/other"`, "FILE:1: data-dir", `"/data"`, "ignores"}},
		{"flag against file", static, []Flag{{"initial-cluster-token", "t2"}}, nil, []string{"flag --initial-cluster-token", `"t2"`, "FILE:4", `"t1"`}},
		{"variable against file behind an equal flag", static, []Flag{{"data-dir", "/data"}}, []string{"ETCD_DATA_DIR=/other"}, []string{"variable ETCD_DATA_DIR", "FILE:1"}},
		{"variable that the file lacks", static, nil, []string{"ETCD_WAL_DIR=/wal"}, []string{"variable ETCD_WAL_DIR", "has no wal-dir", "FILE"}},
		{"name that the file lacks", static, nil, []string{"ETCD_NAME=a"}, []string{"variable ETCD_NAME", "has no name"}},
		{"tls flag that the file lacks", static, []Flag{{"peer-cert-file", "c.pem"}}, nil, []string{"flag --peer-cert-file", "has no peer-transport-security.cert-file"}},
		{"unknown flag", "", []Flag{{"datadir", "/d"}}, nil, []string{"flag --datadir"}},

		{"v2 discovery", static + "discovery: https://discovery.example.org/abc\n", nil, nil, []string{"FILE:5: discovery", "https://discovery.example.org/abc", "discovery-srv"}},
		{"v2 discovery variable", "", nil, []string{"ETCD_DATA_DIR=/d", "ETCD_DISCOVERY=https://discovery.example.org/abc"}, []string{"variable ETCD_DISCOVERY", "discovery-srv"}},
		{"v3 discovery", static + "discovery-config:\n  client: {endpoints: [http://10.0.0.1:2379]}\n  token: x\n", nil, nil, []string{"FILE:5: discovery-config", "discovery-srv"}},
		{"v3 discovery variable", "", nil, []string{"ETCD_DATA_DIR=/d", "ETCD_DISCOVERY_ENDPOINTS=http://10.0.0.1:2379"}, []string{"variable ETCD_DISCOVERY_ENDPOINTS", "discovery-srv"}},
		{"force new cluster", static + "force-new-cluster: true\n", nil, nil, []string{"FILE:5: force-new-cluster", "cluster of its own"}},
		{"force new cluster variable", "", nil, []string{"ETCD_DATA_DIR=/d", "ETCD_FORCE_NEW_CLUSTER=1"}, []string{"variable ETCD_FORCE_NEW_CLUSTER"}},

		{"https listener without certificate", "data-dir: /d\nlisten-peer-urls: https://0.0.0.0:2380\n", nil, nil, []string{"FILE:2: listen-peer-urls", "https", "no peer-transport-security.cert-file and peer-transport-security.key-file (nor peer-transport-security.auto-tls)"}},
		{"https client listener without certificate", "data-dir: /d\nlisten-client-urls: https://0.0.0.0:2379\n", nil, nil, []string{"FILE:2: listen-client-urls", "no client-transport-security.cert-file"}},
		{"http listener with certificate", static + "peer-transport-security: {cert-file: c, key-file: k}\n", nil, nil, []string{"FILE:2: listen-peer-urls", "http://0.0.0.0:2380", "FILE:5: peer-transport-security.cert-file"}},
		{"http listener with auto-tls", static + "peer-transport-security: {auto-tls: true}\n", nil, nil, []string{"FILE:2: listen-peer-urls", "FILE:5: peer-transport-security.auto-tls"}},
		{"certificate without key", static + "client-transport-security: {cert-file: c}\n", nil, nil, []string{"FILE:5: client-transport-security.cert-file", "client-transport-security.key-file is not"}},
		{"key without certificate", "", []Flag{{"data-dir", "/d"}, {"peer-key-file", "k"}}, nil, []string{"flag --peer-key-file", "peer-cert-file is not"}},
		{"https advertised without tls", static + "initial-advertise-peer-urls: https://etcd-0.example.org:2380\n", nil, nil, []string{"FILE:5: initial-advertise-peer-urls", "https://etcd-0.example.org:2380", "_etcd-server;"}},
		{"http advertised with tls", "data-dir: /d\ninitial-advertise-peer-urls: http://a.example.org:2380\npeer-transport-security: {cert-file: c, key-file: k}\n", nil, nil, []string{"FILE:2", "http", "FILE:3", "_etcd-server-ssl"}},
		{"http advertised to clients of https", "data-dir: /d\nadvertise-client-urls: http://a.example.org:2379\nlisten-client-urls: https://0.0.0.0:2379\nclient-transport-security: {cert-file: c, key-file: k}\n", nil, nil, []string{"FILE:2: advertise-client-urls", "FILE:3: listen-client-urls"}},
		{"initial-cluster", static + "initial-cluster: a\n", nil, nil, []string{"FILE:5: initial-cluster", "NAME=http://host:port"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, file, err := load(t, tt.file, tt.flags, tt.env...)
			if err == nil {
				t.Fatal("no error")
			}
			var configuration *exit.Error
			if !errors.As(err, &configuration) {
				t.Errorf("%T is not *Error", err)
			}
			if strings.ContainsAny(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			for _, want := range tt.want {
				if want = strings.ReplaceAll(want, "FILE", file); !strings.Contains(err.Error(), want) {
					t.Errorf("error %q has no %q", err, want)
				}
			}
		})
	}
}

func TestLoadTakes(t *testing.T) {
	tests := []struct {
		name  string
		file  string
		flags []Flag
		env   []string
		got   func(*Config) string
		want  string
	}{
		{"file", static, nil, nil, func(c *Config) string { return c.DataDir + " " + c.InitialClusterToken }, "/data t1"},
		{"json", `{"data-dir": "/d", "listen-peer-urls": "http://10.0.0.1:2380"}`, nil, nil, func(c *Config) string { return c.DataDir + " " + c.ListenPeerURLs[0] }, "/d http://10.0.0.1:2380"},
		{"urls are sorted, blanks dropped", "data-dir: /d\nlisten-peer-urls: 'http://10.0.0.2:2380, http://10.0.0.1:2380'\n", nil, nil, func(c *Config) string { return strings.Join(c.ListenPeerURLs, " ") }, "http://10.0.0.1:2380 http://10.0.0.2:2380"},
		{"wal-dir of the same file", "data-dir: /d\nwal-dir: /wal\n", nil, nil, func(c *Config) string { return c.DataDir + " " + c.WALDir }, "/d /wal"},
		{"unknown keys", static + "future: {a: [1]}\n", nil, nil, func(c *Config) string { return c.DataDir }, "/data"},
		{"unknown variables", static, nil, []string{"ETCD_FUTURE=x", "ETCD_VERSION=3.6.0", "ETCDCTL_API=3", "ETCD_UNSUPPORTED_ARCH=arm64"}, func(c *Config) string { return c.DataDir }, "/data"},
		{"variables equal to the file", static, []Flag{{"data-dir", "/data"}}, []string{"ETCD_DATA_DIR=/data/", "ETCD_LISTEN_PEER_URLS=http://0.0.0.0:2380 "}, func(c *Config) string { return c.DataDir }, "/data"},
		{"variables equal to etcd's defaults", static, nil, []string{"ETCD_NAME=default", "ETCD_INITIAL_CLUSTER_STATE=new", "ETCD_AUTO_TLS=0"}, func(c *Config) string { return c.Name + c.InitialClusterState }, ""},
		{"empty variables beside a file", static, nil, []string{"ETCD_NAME=", "ETCD_INITIAL_CLUSTER=", "ETCD_DISCOVERY="}, func(c *Config) string { return c.Name }, ""},
		{"flag beats variable", "", []Flag{{"data-dir", "/flag"}}, []string{"ETCD_DATA_DIR=/variable"}, func(c *Config) string { return c.DataDir }, "/flag"},
		{"empty flag shadows its variable", "", []Flag{{"data-dir", "/d"}, {"name", ""}}, []string{"ETCD_NAME=a"}, func(c *Config) string { return c.Name }, ""},
		{"last flag counts", "", []Flag{{"data-dir", "/a"}, {"data-dir", "/b"}}, nil, func(c *Config) string { return c.DataDir }, "/b"},
		{"first variable counts", "", nil, []string{"ETCD_DATA_DIR=/a", "ETCD_DATA_DIR=/b"}, func(c *Config) string { return c.DataDir }, "/a"},
		{"empty variable is none", "", []Flag{{"data-dir", "/d"}}, []string{"ETCD_NAME="}, func(c *Config) string { return c.Name }, ""},
		{"token default", "data-dir: /d\n", nil, nil, token, "etcd-cluster default"},
		{"token default said", "data-dir: /d\ninitial-cluster-token: etcd-cluster\n", nil, nil, token, "etcd-cluster default"},
		{"token null is absent", "data-dir: /d\ninitial-cluster-token:\n", nil, nil, token, "etcd-cluster default"},
		{"token empty is empty to etcd", "data-dir: /d\ninitial-cluster-token: ''\n", nil, nil, token, " default"},
		{"token", static, nil, nil, token, "t1"},
		{"boolean as YAML 1.1 reads it", "data-dir: /d\npeer-transport-security: {client-cert-auth: on}\n", nil, nil, func(c *Config) string { return strconv.FormatBool(c.PeerTLS.ClientCertAuth) }, "true"},
		{"case", "Data-Dir: /d\n", nil, nil, func(c *Config) string { return c.DataDir }, "/d"},
		{"merge key", "base: &b {data-dir: /d}\n<<: *b\n", nil, nil, func(c *Config) string { return c.DataDir }, "/d"},
		{"allowed-cn of 3.4", "data-dir: /d\npeer-transport-security: {allowed-cn: etcd}\n", nil, nil, func(c *Config) string { return c.PeerTLS.AllowedCN }, "etcd"},
		{"discovery's harmless keys", static + "discovery-fallback: exit\ndiscovery-proxy: ''\ndiscovery: ''\ndiscovery-config: {}\n", nil, nil, func(c *Config) string { return c.DataDir }, "/data"},
		{"force-new-cluster false", static + "force-new-cluster: false\n", nil, nil, func(c *Config) string { return c.DataDir }, "/data"},
		{"unix socket beside TLS", "data-dir: /d\nlisten-client-urls: https://0.0.0.0:2379,http://127.0.0.1:2379,unixs://etcd.sock:1\nclient-transport-security: {cert-file: c, key-file: k}\n", nil, nil, func(c *Config) string { return strings.Join(c.ListenClientURLs, " ") }, "http://127.0.0.1:2379 https://0.0.0.0:2379 unixs://etcd.sock:1"},
		{"frozen initial-cluster is read, not followed", static + "initial-cluster: etcd-0=http://etcd-0.example.com:2380\n", nil, nil, func(c *Config) string { return c.InitialCluster }, "etcd-0=http://etcd-0.example.com:2380"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _, err := load(t, tt.file, tt.flags, tt.env...)
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.got(c); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func token(c *Config) string {
	if c.TokenIsDefault() {
		return c.Token() + " default"
	}
	return c.Token()
}

func TestConfigFileByVariable(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": "data-dir: /a\n", "b.yaml": "data-dir: /b\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	variable := []string{"ETCD_CONFIG_FILE=" + filepath.Join(dir, "b.yaml")}
	for file, want := range map[string]string{"": "/b", filepath.Join(dir, "a.yaml"): "/a"} {
		c, err := Load(file, nil, variable)
		if err != nil {
			t.Fatal(err)
		}
		if c.DataDir != want {
			t.Errorf("--config-file %q: data-dir %q, want %q", file, c.DataDir, want)
		}
	}
}

// Load must not write, and must leave what it was given alone.
func TestLoadKeepsItsArguments(t *testing.T) {
	flags := []Flag{{"data-dir", "/d"}, {"peer-auto-tls", ""}}
	env := []string{"ETCD_NAME=a"}
	before := slices.Clone(flags)
	if _, err := Load("", flags, env); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, flags) || env[0] != "ETCD_NAME=a" {
		t.Errorf("flags are %v now", flags)
	}
}
