package etcdconf

import (
	"context"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEnvFile(t *testing.T) {
	const want = `ETCD_NAME=etcd-0
ETCD_INITIAL_ADVERTISE_PEER_URLS=http://etcd-0.example.org:2380
ETCD_ADVERTISE_CLIENT_URLS=http://etcd-0.example.org:2379,http://[2001:db8::1]:2379
ETCD_INITIAL_CLUSTER_STATE=existing
ETCD_INITIAL_CLUSTER=
ETCD_DISCOVERY=
ETCD_DISCOVERY_SRV=
ETCD_DISCOVERY_SRV_NAME=
ETCD_DISCOVERY_PROXY=
ETCD_DISCOVERY_FALLBACK=
ETCD_DISCOVERY_ENDPOINTS=
ETCD_DISCOVERY_TOKEN=
ETCD_FORCE_NEW_CLUSTER=
`
	if got := string(EnvFile(exampleHandoff("http"))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	h := exampleHandoff("http")
	h.ListenPeerURLs = []string{"http://127.0.0.2:2380"}
	if got := string(EnvFile(h)); !strings.Contains(got, "\nETCD_LISTEN_PEER_URLS=http://127.0.0.2:2380\n") {
		t.Errorf("--listen-self is lost:\n%s", got)
	}
}

// A shell reads the file back as it was meant, whatever the name holds; its
// rules within double quotes are systemd's, too.
func TestEnvFileQuoting(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh to read the file with")
	}
	for _, name := range []string{"a b", `a"b`, `a\b`, "a$HOME", "a`id`b", "a'b", "é", "a#b", "~", "a;b", "*", `\\"$x`, "%h"} {
		path := filepath.Join(t.TempDir(), "env")
		write(t, path, string(EnvFile(Handoff{Name: name})))
		out, err := exec.CommandContext(context.Background(), sh, "-c", `. "$1"; printf %s "$ETCD_NAME"`, "sh", path).CombinedOutput()
		if err != nil || string(out) != name {
			t.Errorf("name %q reads back as %q (%v)", name, out, err)
		}
	}
}

func TestCheckEnvFile(t *testing.T) {
	if err := (&Config{File: "/etc/etcd.yaml"}).CheckEnvFile(); err == nil || !strings.Contains(err.Error(), "--config-out") {
		t.Errorf("a file that makes etcd ignore its environment: %v", err)
	}
	if err := (&Config{}).CheckEnvFile(); err != nil {
		t.Error(err)
	}
}

func TestExecEnv(t *testing.T) {
	before := []string{"PATH=/bin", "ETCD_NAME=old", "ETCD_INITIAL_CLUSTER=a=http://a.example.org:2380", "ETCD_INITIAL_CLUSTER_STATE=new", "ETCD_DISCOVERY_SRV=example.org", "ETCD_DATA_DIR=/d", "ETCD_DISCOVERY=", "ETCD_FORCE_NEW_CLUSTER=true"}
	kept := slices.Clone(before)
	got := ExecEnv(exampleHandoff("http"), before)
	want := []string{
		"PATH=/bin", "ETCD_DATA_DIR=/d", "ETCD_NAME=etcd-0", "ETCD_INITIAL_ADVERTISE_PEER_URLS=http://etcd-0.example.org:2380",
		"ETCD_ADVERTISE_CLIENT_URLS=http://etcd-0.example.org:2379,http://[2001:db8::1]:2379", "ETCD_INITIAL_CLUSTER_STATE=existing",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if !slices.Equal(before, kept) {
		t.Errorf("the environment that was given has changed: %q", before)
	}
}

func TestExecFlags(t *testing.T) {
	tests := []struct {
		name, args string
		file       string
		want       []Flag
	}{
		{"nothing", "etcd", "", nil},
		{"two words", "etcd --data-dir /d -name a", "", []Flag{{"data-dir", "/d"}, {"name", "a"}}},
		{"one word", "etcd --data-dir=/d -name=a=b", "", []Flag{{"data-dir", "/d"}, {"name", "a=b"}}},
		{"booleans take no word", "etcd --peer-auto-tls --pre-vote --name a", "", []Flag{{"peer-auto-tls", "true"}, {"pre-vote", "true"}, {"name", "a"}}},
		{"boolean with a value", "etcd --peer-auto-tls=false --name a", "", []Flag{{"peer-auto-tls", "false"}, {"name", "a"}}},
		{"file", "etcd --config-file /e.yaml", "/e.yaml", nil},
		{"file with one dash", "etcd -config-file=/e.yaml", "/e.yaml", nil},
		{"a word ends flags", "etcd gateway start --name a", "", nil},
		{"two dashes end flags", "etcd --name a -- --data-dir /d", "", []Flag{{"name", "a"}}},
		{"flags that etcd may know one day", "etcd --future x --name a", "", []Flag{{"name", "a"}}},
		{"a value that looks like a flag", "etcd --name --data-dir", "", []Flag{{"name", "--data-dir"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file, got, err := ExecFlags(strings.Fields(tt.args))
			if err != nil || file != tt.file || !slices.Equal(got, tt.want) {
				t.Errorf("got %q %v %v, want %q %v", file, got, err, tt.file, tt.want)
			}
		})
	}
	if _, _, err := ExecFlags([]string{"etcd", "--name"}); err == nil || !strings.Contains(err.Error(), "--name") {
		t.Errorf("a flag without a value: %v", err)
	}
}

func TestExec(t *testing.T) {
	peer := "http://etcd-0.example.org:2380"
	env := []string{"ETCD_NAME=etcd-0", "ETCD_INITIAL_ADVERTISE_PEER_URLS=" + peer, "ETCD_INITIAL_CLUSTER_STATE=existing"}
	h := Handoff{Name: "etcd-0", AdvertisePeerURLs: []string{peer}}
	narrow := h
	narrow.ListenPeerURLs = []string{"http://127.0.0.2:2380"}
	tests := []struct {
		name     string
		config   string // the file that was read, "" for none
		flags    []Flag // without a file: what Load was told
		h        Handoff
		args     string
		environ  []string
		resolved string
		wantArgs string
		wantEnv  []string
	}{
		{"environment", "", []Flag{{"data-dir", "/d"}}, h, "etcd --data-dir /d", nil, "", "etcd --data-dir /d", env},
		{"our own flag is handed on", "", []Flag{{"data-dir", "/d"}, {"initial-cluster-token", "t"}, {"discovery-srv", "example.org"}}, h, "etcd", []string{"ETCD_DATA_DIR=/x"}, "", "etcd", append(slices.Clone(env), "ETCD_DATA_DIR=/d", "ETCD_INITIAL_CLUSTER_TOKEN=t")},
		{"equal flags are taken out", "", []Flag{{"data-dir", "/d"}}, h, "etcd -name etcd-0 --data-dir=/d --initial-advertise-peer-urls=" + peer + " --initial-cluster-state existing", nil, "", "etcd --data-dir=/d", env},
		{"empty bootstrap flags are taken out", "", []Flag{{"data-dir", "/d"}}, h, "etcd --data-dir /d --initial-cluster= --discovery-srv= --force-new-cluster=false --discovery-dial-timeout 3s", nil, "", "etcd --data-dir /d", env},
		{"a variable that a flag shadows is taken out", "", []Flag{{"data-dir", "/d"}}, h, "etcd --data-dir /d", []string{"ETCD_DATA_DIR=/d", "A=b"}, "", "etcd --data-dir /d", append([]string{"A=b"}, env...)},
		{"listen-self", "", []Flag{{"data-dir", "/d"}, {"listen-peer-urls", "http://0.0.0.0:2380"}}, narrow, "etcd --data-dir /d --listen-peer-urls http://0.0.0.0:2380", nil, "", "etcd --data-dir /d", []string{env[0], env[1], "ETCD_LISTEN_PEER_URLS=http://127.0.0.2:2380", env[2]}},
		{"file in flag", "/e.yaml", nil, h, "etcd --config-file /e.yaml --logger zap", nil, "/run/e.yaml", "etcd --logger zap --config-file=/run/e.yaml", env},
		{"file in one word", "/e.yaml", nil, h, "etcd -config-file=/e.yaml", nil, "/run/e.yaml", "etcd --config-file=/run/e.yaml", env},
		{"file in variable", "/e.yaml", nil, h, "etcd", []string{"ETCD_CONFIG_FILE=/e.yaml"}, "/run/e.yaml", "etcd --config-file=/run/e.yaml", env},
		{"file here alone", "/e.yaml", nil, h, "etcd -- x", nil, "/run/e.yaml", "etcd --config-file=/run/e.yaml -- x", env},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &Config{File: tt.config}
			if tt.config == "" {
				var err error
				if c, err = Load("", tt.flags, tt.environ); err != nil {
					t.Fatal(err)
				}
			}
			argv, environ, err := c.Exec(tt.h, strings.Fields(tt.args), tt.environ, tt.resolved)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(argv, " "); got != tt.wantArgs {
				t.Errorf("runs %q, want %q", got, tt.wantArgs)
			}
			slices.Sort(environ)
			want := slices.Sorted(slices.Values(tt.wantEnv))
			if !slices.Equal(environ, want) {
				t.Errorf("environment %q\nwant        %q", environ, want)
			}
			if tt.config == "" {
				etcdTakes(t, argv, environ)
			}
		})
	}
}

// etcdTakes fails when etcd would exit because a flag shadows a variable, or
// would not see the handoff.
func etcdTakes(t *testing.T, argv, environ []string) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("etcd exits: %v", r)
		}
	}()
	e, err := parseAsEtcd(t, argv[1:], slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return !strings.HasPrefix(kv, "ETCD_") }))
	if err != nil {
		t.Fatal(err)
	}
	if e.Name != "etcd-0" || e.ClusterState != "existing" || e.AdvertisePeerUrls[0].Host != "etcd-0.example.org:2380" || e.Dir != "/d" {
		t.Errorf("etcd reads name %q, state %q, peer URLs %v, data-dir %q", e.Name, e.ClusterState, e.AdvertisePeerUrls, e.Dir)
	}
}

func TestExecRefuses(t *testing.T) {
	h := exampleHandoff("http")
	tests := []struct {
		name, config, args, resolved string
		environ                      []string
		want                         []string
	}{
		{"initial-cluster", "", "etcd --initial-cluster a=http://a.example.org:2380", "", nil, []string{"--initial-cluster ", "a=http://a.example.org:2380", "take it away"}},
		{"name", "", "etcd -name=etcd-1", "", nil, []string{"--name", "etcd-1", "etcd-0"}},
		{"state", "", "etcd --initial-cluster-state=new", "", nil, []string{"--initial-cluster-state", `"new"`, `"existing"`}},
		{"discovery", "", "etcd --discovery-srv example.org", "", nil, []string{"--discovery-srv", "example.org"}},
		{"v2 discovery", "", "etcd --discovery https://discovery.example.org/x", "", nil, []string{"--discovery "}},
		{"v3 discovery", "", "etcd --discovery-endpoints=http://10.0.0.1:2379", "", nil, []string{"--discovery-endpoints"}},
		{"force new cluster", "", "etcd --force-new-cluster", "", nil, []string{"--force-new-cluster", "cluster of its own"}},
		{"peer urls", "", "etcd --initial-advertise-peer-urls=http://other.example.org:2380", "", nil, []string{"--initial-advertise-peer-urls", "other.example.org", "etcd-0.example.org"}},
		{"name beside a file", "/e.yaml", "etcd --config-file /e.yaml --name etcd-1", "/run/e.yaml", nil, []string{"--name", "etcd-1"}},
		{"malformed", "", "etcd --initial-advertise-peer-urls=here", "", nil, []string{"--initial-advertise-peer-urls", "http://host:port"}},
		{"no value", "", "etcd --name", "", nil, []string{"--name"}},
		{"another file", "/e.yaml", "etcd --config-file /f.yaml", "/run/e.yaml", nil, []string{"/e.yaml", "/f.yaml"}},
		{"another file in variable", "", "etcd", "", []string{"ETCD_CONFIG_FILE=/f.yaml"}, []string{"none", "/f.yaml"}},
		{"no resolved file", "/e.yaml", "etcd", "", nil, []string{"/e.yaml", "--config-out"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			argv, _, err := (&Config{File: tt.config}).Exec(h, strings.Fields(tt.args), tt.environ, tt.resolved)
			if err == nil {
				t.Fatalf("no error; would run %q", argv)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q has no %q", err, want)
				}
			}
		})
	}
}

func TestListenSelf(t *testing.T) {
	tests := []struct{ name, listen, addr, want string }{
		{"ipv4", "http://0.0.0.0:2380", "127.0.0.2", "http://127.0.0.2:2380"},
		{"ipv6", "https://[::]:2380", "2001:db8::1", "https://[2001:db8::1]:2380"},
		{"ipv6 wildcard, ipv4 member", "http://[::]:2380", "10.0.0.1", "http://10.0.0.1:2380"},
		{"others stay", "http://10.0.0.9:2380 http://localhost:2380 unix://etcd.sock:1", "10.0.0.1", "http://10.0.0.9:2380 http://localhost:2380 unix://etcd.sock:1"},
		{"both wildcards become one", "http://0.0.0.0:2380 http://[::]:2380", "10.0.0.1", "http://10.0.0.1:2380"},
		{"no address", "http://0.0.0.0:2380", "", "http://0.0.0.0:2380"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var addr netip.Addr
			if tt.addr != "" {
				addr = netip.MustParseAddr(tt.addr)
			}
			if got := strings.Join(ListenSelf(strings.Fields(tt.listen), addr), " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
