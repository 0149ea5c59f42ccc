package file

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write puts text into a file that was left alone since age.
func write(t *testing.T, path, text string, age time.Duration) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	when := time.Now().Add(-age)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string, env discovery.Env) discovery.Provider {
	t.Helper()
	p, err := discovery.Registry{"file": New}.Open("file://"+path, env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const yaml3 = `# a comment
peers:
  - {name: c, host: 192.0.2.12, port: 2380}
  - host: 192.0.2.11
    port: 2380
    clientURLs: [http://192.0.2.11:4001]
  - name: a
    peerURLs:
      - http://[2001:DB8::10]:2380
      - http://192.0.2.10:2380
`

const json3 = `{
  "peers": [
    {"name": "c", "host": "192.0.2.12", "port": 2380},
    {"host": "192.0.2.11", "port": 2380, "clientURLs": ["http://192.0.2.11:4001"]},
    {"name": "a", "peerURLs": ["http://[2001:DB8::10]:2380", "http://192.0.2.10:2380"]}
  ]
}`

const want3 = "192.0.2.11 192.0.2.11:2380 [192.0.2.11] [http://192.0.2.11:2380] [http://192.0.2.11:4001]\n" +
	"a 192.0.2.10:2380 [192.0.2.10 2001:db8::10] [http://192.0.2.10:2380 http://[2001:db8::10]:2380] []\n" +
	"c 192.0.2.12:2380 [192.0.2.12] [http://192.0.2.12:2380] []\n"

func TestDiscover(t *testing.T) {
	const entry = "peers:\n- {name: a, host: 192.0.2.10, port: 2380}\n"
	want3 := strings.Replace(want3, "a 192.0.2.10:2380 ", "a 2001:db8::10:2380 ", 1)
	tests := []struct {
		name, text, want string
		size             int
		kind             discovery.Kind
		texts            []string
	}{
		{name: "YAML", text: yaml3, want: want3},
		{name: "JSON", text: json3, want: want3},
		{name: "JSON in one line with newline", text: strings.ReplaceAll(json3, "\n", " ") + "\n", want: want3, size: 3},
		{name: "fewer than the size", text: yaml3, size: 5, kind: discovery.Retry, texts: []string{"got 3 of 5 peers: 192.0.2.12, 192.0.2.11, "}},
		{name: "more than the size", text: yaml3, size: 2, kind: discovery.Unusable, texts: []string{"got 3 of 2 peers"}},
		{name: "empty", text: " \n", kind: discovery.Retry, texts: []string{"file is empty"}},
		{name: "comments", text: "# soon\n", kind: discovery.Retry, texts: []string{"no content yet"}},
		{name: "no peers", text: "peers: []\n", kind: discovery.Retry, texts: []string{"no peers yet"}},
		{name: "half of the JSON", text: json3[:80], kind: discovery.Config, texts: []string{"half written?", "attempt "}},
		{name: "half a line of YAML", text: "peers:\n- name: a\n  ho", kind: discovery.Config, texts: []string{"half written?", "attempt "}},
		{name: "bad YAML", text: "peers:\n- name: [\n- x\n", kind: discovery.Config, texts: []string{"line "}},
		{name: "a tab", text: "peers:\n\t- name: a\n", kind: discovery.Config, texts: []string{"line 2"}},
		{name: "bad JSON", text: "{\"peers\": [\n{]}\n", kind: discovery.Config, texts: []string{"line 2: "}},
		{name: "two JSON objects", text: "{\"peers\": [{\"host\":\"a\",\"port\":1}]}\n{}\n", kind: discovery.Config, texts: []string{"line 1: '{' follows"}},
		{name: "two YAML documents", text: entry + "---\n" + entry, kind: discovery.Config, texts: []string{"more than one YAML document"}},
		{name: "unknown key", text: "peers:\n- host: a.example.org\n  port: 1\n  prot: 2\n", kind: discovery.Config, texts: []string{"line 4", `"prot"`, "known are"}},
		{name: "unknown key at the top", text: "members:\n- host: a\n", kind: discovery.Config, texts: []string{"line 1", "members"}},
		{name: "unknown key in JSON", text: "{\"peers\": [\n{\"prot\": 1}]}", kind: discovery.Config, texts: []string{`"prot"`}},
		{name: "a list", text: "- a\n- b\n", kind: discovery.Config, texts: []string{"line 1"}},
		{name: "not a port", text: "peers:\n- {host: a.example.org, port: many}\n", kind: discovery.Config, texts: []string{"line 2"}},
		{name: "a port too large", text: "peers:\n- {host: a.example.org, port: 65536}\n", kind: discovery.Config, texts: []string{"line 2"}},
		{name: "no port", text: "peers:\n- {name: b, host: a.example.org}\n", kind: discovery.Config, texts: []string{"line 2: peer 1 (b): no port"}},
		{name: "no host", text: entry + "- name: b\n", kind: discovery.Config, texts: []string{"line 3: peer 2 (b): no host"}},
		{name: "host and URLs", text: "peers:\n- {host: a, port: 1, peerURLs: [\"http://a:1\"]}\n", kind: discovery.Config, texts: []string{"one of the two"}},
		{name: "host is a URL", text: "peers:\n- {host: \"http://a.example.org\", port: 1}\n", kind: discovery.Config, texts: []string{"peerURLs"}},
		{name: "WB-34 without brackets", text: "peers:\n- peerURLs: [\"http://2001:db8::10:2380\"]\n", kind: discovery.Config, texts: []string{"line 2", "IPv6 address must be in brackets"}},
		{name: "bad client URL", text: "peers:\n- {host: a, port: 1, clientURLs: [a]}\n", kind: discovery.Config, texts: []string{"clientURLs", "no scheme"}},
		{name: "the same key twice", text: "peers:\n- {host: a, host: b, port: 1}\n", kind: discovery.Config, texts: []string{"line 2"}},
		{name: "the same peer twice", text: entry + "- {name: b, host: 192.0.2.10, port: 2380}\n", kind: discovery.Unusable, texts: []string{"listed twice"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "peers")
			write(t, path, tt.text, time.Minute)
			env := discovery.Env{Size: tt.size, ResolvConf: "/nonexistent"}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			peers, err := discovery.Await(ctx, open(t, path, env), discovery.AwaitOptions{Env: env, BackoffMin: 10 * time.Millisecond})
			if tt.kind == 0 {
				if got := render(peers); err != nil || got != tt.want {
					t.Errorf("got\n%s%v\nwant\n%s", got, err, tt.want)
				}
				return
			}
			var e *discovery.Error
			if !errors.As(err, &e) || e.Kind != tt.kind {
				t.Fatalf("got %v, %v, want kind %v", peers, err, tt.kind)
			}
			for _, s := range append(tt.texts, path+": ") {
				if !strings.Contains(err.Error(), s) && (s != path+": " || tt.kind != discovery.Unusable) {
					t.Errorf("error %q lacks %q", err, s)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q has more than one line", err)
			}
		})
	}
}

func render(peers []discovery.Peer) string {
	var b strings.Builder
	for _, p := range peers {
		fmt.Fprintf(&b, "%s %s:%d %v %v %v\n", p.Name, p.Host, p.Port, p.Addrs, p.PeerURLs, p.ClientURLs)
	}
	return b.String()
}

// TestReread: the file may appear late, grow, and be half of what it will be.
func TestReread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers.yaml")
	half, _, _ := strings.Cut(yaml3, "  - name: a")
	steps := []struct {
		text  string
		age   time.Duration
		texts string
	}{
		{"", 0, "no such file yet"},
		{half, 0, "written a moment ago"}, // valid, and two peers of three
		{half, -time.Hour, "written a moment ago"},
		{yaml3, time.Second, ""},
	}
	p := open(t, path, discovery.Env{})
	for i, s := range steps {
		if s.text != "" {
			write(t, path, s.text, s.age)
		}
		peers, err := p.Discover(t.Context())
		if s.texts == "" {
			if err != nil || len(peers) != 3 {
				t.Fatalf("step %d: got %v, %v", i, peers, err)
			}
			continue
		}
		var e *discovery.Error
		if !errors.As(err, &e) || e.Kind != discovery.Retry || !strings.Contains(err.Error(), s.texts) || e.After > quiet {
			t.Fatalf("step %d: got %v, want a Retry with %q", i, err, s.texts)
		}
	}
}

// TestClockAhead: a file of a host whose clock is ahead is read once it was
// left alone for a while.
func TestClockAhead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers.yaml")
	write(t, path, yaml3, -time.Hour)
	p := open(t, path, discovery.Env{})
	start := time.Now()
	peers, err := discovery.Await(t.Context(), p, discovery.AwaitOptions{BackoffMin: time.Millisecond})
	if err != nil || len(peers) != 3 || time.Since(start) < quiet {
		t.Errorf("got %v, %v after %v", peers, err, time.Since(start))
	}
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	write(t, big, strings.Repeat("# x\n", maxSize/4+1), time.Minute)
	for path, text := range map[string]string{dir: "not a regular file", big: "larger than", filepath.Join(big, "x"): "not a directory"} {
		_, err := open(t, path, discovery.Env{}).Discover(t.Context())
		var e *discovery.Error
		if !errors.As(err, &e) || e.Kind != discovery.Config || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v, want a Config error with %q", path, err, text)
		}
	}
}

// TestConfigMap: Kubernetes replaces a mounted file by swapping a link.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	swap := func(to, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, to), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, to, "peers.yaml"), text, time.Minute)
		tmp := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(to, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("..1", "peers:\n- {host: 192.0.2.10, port: 2380}")
	path := filepath.Join(dir, "peers.yaml")
	if err := os.Symlink("..data/peers.yaml", path); err != nil {
		t.Fatal(err)
	}
	p := open(t, path, discovery.Env{Size: 3})
	if _, err := p.Discover(t.Context()); err == nil || !strings.Contains(err.Error(), "got 1 of 3") {
		t.Errorf("got %v", err)
	}
	swap("..2", yaml3)
	if peers, err := p.Discover(t.Context()); err != nil || len(peers) != 3 {
		t.Errorf("got %v, %v", peers, err)
	}
}

func TestHosts(t *testing.T) {
	server := dnstest.New(t, "a.example.org. A 192.0.2.10\n", dnstest.Faults{})
	path := filepath.Join(t.TempDir(), "peers.yaml")
	write(t, path, "peers:\n- {host: a.example.org, port: 2380}\n- {host: b.example.org, port: 2380}\n", time.Minute)
	p := open(t, path, discovery.Env{DNSServers: []netip.AddrPort{server.Addr()}})
	_, err := p.Discover(t.Context())
	if err == nil || !strings.Contains(err.Error(), path+": b.example.org: no A/AAAA record") {
		t.Errorf("got %v", err)
	}
}

func TestPathWithSpecials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my peers%.yaml")
	write(t, path, yaml3, time.Minute)
	u := &url.URL{Scheme: "file", Path: path}
	p, err := discovery.Registry{"file": New}.Open(u.String(), discovery.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if peers, err := p.Discover(t.Context()); err != nil || len(peers) != 3 {
		t.Errorf("got %v, %v", peers, err)
	}
}

// FuzzParse: no file panics; what is read obeys the rules that parse promises.
func FuzzParse(f *testing.F) {
	for _, s := range []string{yaml3, json3, "peers:\n- {host: a, port: 1}", "{}", "peers: &a [*a]\n", "a: b\n", "\xff", "{\"peers\":[null]}", "peers: [~]\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		peers, err := parse(text)
		if err != nil {
			if len(peers) > 0 {
				t.Errorf("%d peers beside the error %v", len(peers), err)
			}
			return
		}
		if len(peers) == 0 {
			t.Error("no peers, and no error")
		}
		for _, p := range peers {
			if p.Host == "" || p.Port == 0 {
				t.Errorf("peer %+v", p)
			}
		}
	})
}

// TestEveryCut: no beginning of a JSON file is taken for a file.
func TestEveryCut(t *testing.T) {
	for n := range len(json3) {
		var half *halfError
		if peers, err := parse([]byte(json3[:n])); !errors.As(err, &half) {
			t.Errorf("%d bytes: got %v, %v", n, peers, err)
		}
	}
}
