//go:build unix

package execplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
	"github.com/etcdinit/etcdinit/plugins"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// install copies the plugins of testdata to a directory that is ours alone.
func install(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	files, err := filepath.Glob("testdata/*.sh")
	if err != nil || len(files) == 0 {
		tb.Fatal("no plugins in testdata", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

func provide(tb testing.TB, source string, env discovery.Env) discovery.Provider {
	tb.Helper()
	p, err := discovery.Registry{"exec": New}.Open(source, env)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestDiscover(t *testing.T) {
	dir := install(t)
	p := provide(t, "exec:good.sh", discovery.Env{PluginDirs: []string{dir}, PeerPorts: []uint16{12380}})
	got, err := p.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []discovery.Peer{
		{Host: "b.example.org", Port: 12380, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.11")}, TTL: 7 * time.Second},
		{Host: "a.example.org", Port: 2381, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}, ClientURLs: []string{"http://a.example.org:2379"}, TTL: 7 * time.Second},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestHostsAreResolved: an answer without addresses is completed by DNS, or is
// none.
func TestHostsAreResolved(t *testing.T) {
	const zone = `$ORIGIN example.org.
a 30 A 192.0.2.10
`
	srv := dnstest.New(t, zone, dnstest.Faults{})
	dir := t.TempDir()
	script := `#!/bin/sh
case $(cat) in
*'"info"'*) echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}' ;;
*) echo '{"version":1,"peers":[{"host":"A.example.org."},{"host":"b.example.org"},{"host":"192.0.2.12"}]}' ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "named"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p := provide(t, "exec:named", discovery.Env{PluginDirs: []string{dir}, DNSServers: []netip.AddrPort{srv.Addr()}})
	_, err := p.Discover(t.Context())
	var e *discovery.Error
	if !errors.As(err, &e) || e.Kind != discovery.Retry || !strings.Contains(err.Error(), "plugin named named hosts") || !strings.Contains(err.Error(), "b.example.org") {
		t.Errorf("got %v", err)
	}
	srv.Zone(t, zone+"b 30 A 192.0.2.11\n")
	got, err := p.Discover(t.Context())
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	for i, want := range []string{"[192.0.2.10]", "[192.0.2.11]", "[192.0.2.12]"} {
		if fmt.Sprint(got[i].Addrs) != want {
			t.Errorf("%s has %v, want %s", got[i].Host, got[i].Addrs, want)
		}
	}
}

// TestAddressesNeedNoNameserver: hosts that are addresses are asked of nobody,
// so that a host without a nameserver, or with none yet, goes on.
func TestAddressesNeedNoNameserver(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
case $(cat) in
*'"info"'*) echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}' ;;
*) echo '{"version":1,"peers":[{"host":"192.0.2.10"},{"host":"2001:db8::11"}]}' ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "addresses"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p := provide(t, "exec:addresses", discovery.Env{PluginDirs: []string{dir}, ResolvConf: filepath.Join(dir, "absent")})
	got, err := p.Discover(t.Context())
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	for i, want := range []string{"[192.0.2.10]", "[2001:db8::11]"} {
		if fmt.Sprint(got[i].Addrs) != want {
			t.Errorf("%s has %v, want %s", got[i].Host, got[i].Addrs, want)
		}
	}
}

// TestPort: a peer's own port counts, then that of its URL, then that of etcd's
// configuration.
func TestPort(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
case $(cat) in
*'"info"'*) echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}' ;;
*) echo '{"version":1,"peers":[
 {"host":"192.0.2.10","port":2381,"peerURLs":["http://192.0.2.10:2381"]},
 {"host":"2001:db8::11","peerURLs":["http://[2001:db8::11]:2382"]},
 {"host":"192.0.2.12"}]}' ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "ports"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := provide(t, "exec:ports", discovery.Env{PluginDirs: []string{dir}, PeerPorts: []uint16{12380}}).Discover(t.Context())
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	for i, want := range []uint16{2381, 2382, 12380} {
		if got[i].Port != want {
			t.Errorf("%s has port %d, want %d", got[i].Host, got[i].Port, want)
		}
	}
}

// TestMisbehaviour: each thing a plugin can do wrong has its own message and
// the status that follows from the kind.
func TestMisbehaviour(t *testing.T) {
	dir := install(t)
	chmod := func(name string, mode os.FileMode) {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"world-writable.sh", "not-executable.sh"} {
		b, err := os.ReadFile(filepath.Join(dir, "good.sh"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	chmod("world-writable.sh", 0o757)
	chmod("not-executable.sh", 0o644)
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string // of the plugin, with its parameters
		kind  discovery.Kind
		after time.Duration
		want  []string
	}{
		{name: "hangs.sh?timeout=300ms", kind: discovery.Retry, want: []string{"gave no answer within", "was killed", "last line on stderr: asking the registry", "deadline exceeded"}},
		{name: "info-hangs.sh?timeout=200ms", kind: discovery.Retry, want: []string{"gave no answer within", "was killed"}},
		{name: "floods.sh", kind: discovery.Plugin, want: []string{"printed more than 1048576 bytes to stdout and was killed"}},
		{name: "half.sh", kind: discovery.Plugin, want: []string{"breaks rule 2.3", "half a document", `a.exam"`}},
		{name: "garbage.sh", kind: discovery.Plugin, want: []string{"breaks rule 2.3", "is not JSON", "Traceback"}},
		{name: "silent.sh", kind: discovery.Plugin, want: []string{"breaks rule 2.3", "nothing on stdout"}},
		{name: "null.sh", kind: discovery.Plugin, want: []string{"breaks rule 2.3", "holds null"}},
		{name: "two.sh", kind: discovery.Plugin, want: []string{"breaks rule 2.3", "more than one document"}},
		{name: "not-utf8.sh", kind: discovery.Plugin, want: []string{"breaks rule 2.3", "not UTF-8"}},
		{name: "crashes.sh", kind: discovery.Plugin, want: []string{"exited with status 3 and no answer", "cannot open /var/lib/registry"}},
		{name: "killed.sh", kind: discovery.Plugin, want: []string{"was killed by signal killed"}},
		{name: "daemon.sh", kind: discovery.Plugin, want: []string{"exited with status 0", "left behind held its stdout or stderr open"}},
		{name: "daemon-setsid.sh", kind: discovery.Plugin, want: []string{"exited with status 0", "left behind held its stdout or stderr open"}},
		{name: "retry.sh", kind: discovery.Retry, after: 7 * time.Second, want: []string{"says: 1 of 3 are registered"}},
		{name: "retry-long.sh", kind: discovery.Retry, after: 300 * time.Second, want: []string{"says: later"}},
		{name: "config.sh", kind: discovery.Config, want: []string{"says: zone is not a zone"}},
		{name: "internal.sh", kind: discovery.Plugin, want: []string{"says: no registry"}},
		{name: "newcode.sh", kind: discovery.Plugin, want: []string{"ask elsewhere", `unknown code "moved"`}},
		{name: "nomessage.sh", kind: discovery.Plugin, want: []string{"breaks rule 5.1", "no message"}},
		{name: "error-0.sh", kind: discovery.Plugin, want: []string{"breaks rule 2.9", "exit status 0 with an error: not yet"}},
		{name: "peers-1.sh", kind: discovery.Plugin, want: []string{"breaks rule 2.9", "exit status 1 with peers"}},
		{name: "both.sh", kind: discovery.Plugin, want: []string{"breaks rule 2.9", "peers and error at once"}},
		{name: "wrong-answer.sh", kind: discovery.Plugin, want: []string{"breaks rule 2.9", "response to discover holds info"}},
		{name: "version-2.sh", kind: discovery.Plugin, want: []string{"breaks rule 4.6", "says version 2, the request said 1"}},
		{name: "contract-2.sh", kind: discovery.Plugin, want: []string{"speaks versions [2 3] of the plugin contract, this etcdinit only 1"}},
		{name: "duplicate-field.sh", kind: discovery.Plugin, want: []string{"breaks rule 4.5", "peers is given twice"}},
		{name: "case-field.sh", kind: discovery.Plugin, want: []string{"breaks rule 4.5", "Peers must be spelt peers"}},
		{name: "port-string.sh", kind: discovery.Plugin, want: []string{"breaks rule 4", "field peers.port is a string"}},
		{name: "bad-addr.sh", kind: discovery.Plugin, want: []string{"breaks rule 4", `"192.0.2.300" is no IP address`}},
		{name: "same-addr.sh", kind: discovery.Plugin, want: []string{"breaks rule 4.2", "one address"}},
		{name: "same-host.sh", kind: discovery.Plugin, want: []string{"breaks rule 4.2", "one host"}},
		{name: "parameters.sh", kind: discovery.Config, want: []string{"needs the parameter zone (where)", "exec:parameters.sh?zone="}},
		{name: "parameters.sh?zone=a&prot=1", kind: discovery.Config, want: []string{`has no parameter "prot"; it has: zone, port`}},
		{name: "takes-none.sh?zone=a", kind: discovery.Config, want: []string{`has no parameter "zone"; it has: none`}},
		{name: "no-interpreter.sh", kind: discovery.Plugin, want: []string{"its interpreter /nonexistent/interpreter -x is not here"}},
		{name: "world-writable.sh", kind: discovery.Plugin, want: []string{"is refused: everybody may write it (mode 0757)", "chmod o-w " + dir}},
		{name: "not-executable.sh", kind: discovery.Plugin, want: []string{"is not executable (mode 0644)", "chmod 755 " + dir}},
		{name: "directory", kind: discovery.Plugin, want: []string{"is refused: it is no regular file"}},
		{name: "dangling", kind: discovery.Plugin, want: []string{"cannot be looked at", "no such file"}},
		{name: "missing", kind: discovery.Plugin, want: []string{"plugin missing is not in " + dir, "there are: ", "good.sh"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			p := provide(t, "exec:"+tt.name, discovery.Env{PluginDirs: []string{dir}})
			got, err := p.Discover(t.Context())
			if err == nil {
				t.Fatalf("no error, but %v", got)
			}
			var e *discovery.Error
			if !errors.As(err, &e) || got != nil {
				t.Fatalf("%T %v with %v", err, err, got)
			}
			if e.Kind != tt.kind || e.After != tt.after {
				t.Errorf("kind %v after %s, want %v after %s: %v", e.Kind, e.After, tt.kind, tt.after, err)
			}
			name, _, _ := strings.Cut(tt.name, "?")
			for _, w := range append(tt.want, "plugin "+name) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("no %q in: %v", w, err)
				}
			}
			if strings.ContainsAny(err.Error(), "\n\r\t") {
				t.Errorf("more than one line: %q", err)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// TestKilledAsGroup: at the deadline what the plugin started dies too.
func TestKilledAsGroup(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "alive")
	script := fmt.Sprintf("#!/bin/sh\nsh -c 'sleep 0.4; echo x > %s' &\nwait\n", mark)
	if err := os.WriteFile(filepath.Join(dir, "forks"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p := provide(t, "exec:forks?timeout=200ms", discovery.Env{PluginDirs: []string{dir}})
	if _, err := p.Discover(t.Context()); err == nil {
		t.Fatal("no error")
	}
	time.Sleep(time.Second)
	if _, err := os.Stat(mark); err == nil {
		t.Error("the plugin's child lived on")
	}
}

// TestCancel: the caller's end is the plugin's end, and no broken contract.
func TestCancel(t *testing.T) {
	dir := install(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("SIGTERM")
	time.AfterFunc(200*time.Millisecond, func() { cancel(cause) })
	start := time.Now()
	_, err := provide(t, "exec:hangs.sh", discovery.Env{PluginDirs: []string{dir}}).Discover(ctx)
	var e *discovery.Error
	if !errors.As(err, &e) || e.Kind != discovery.Retry || !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("took %s", d)
	}
}

// TestUnknownFieldsIgnored: rule 4.5.
func TestUnknownFieldsIgnored(t *testing.T) {
	p := provide(t, "exec:unknown-field.sh", discovery.Env{PluginDirs: []string{install(t)}})
	got, err := p.Discover(t.Context())
	if err != nil || len(got) != 1 || got[0].Host != "192.0.2.10" {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestSurroundings: rules 2.1, 2.4, 2.5, 2.6.
func TestSurroundings(t *testing.T) {
	t.Setenv("ETCDINIT_TEST_SEEN", "yes = yes")
	t.Setenv("ETCDINIT_TEST_HIDDEN", "no")
	core, logs := observer.New(zap.DebugLevel)
	dir := install(t)
	p := provide(t, "exec:environment.sh?env=ETCDINIT_TEST_SEEN&env=ETCDINIT_TEST_UNSET", discovery.Env{PluginDirs: []string{dir}, Log: zap.New(core)})
	if _, err := p.Discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	var saw []string
	for _, e := range logs.FilterMessageSnippet("saw ").All() {
		saw = append(saw, strings.TrimPrefix(e.Message, "saw "))
		if e.ContextMap()["plugin"] != "environment.sh" {
			t.Errorf("the line does not name the plugin: %v", e)
		}
	}
	if len(saw) != 3 || saw[0] != "ETCDINIT_TEST_SEEN=yes = yes" || !strings.Contains(saw[1], "etcdinit-plugin-") || saw[2] != "args=0" {
		t.Errorf("the plugin saw %q", saw)
	}
	if _, err := os.Stat(saw[1]); err == nil {
		t.Errorf("%s is still there", saw[1])
	}
}

func TestStderrIsBounded(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	p := provide(t, "exec:floods-stderr.sh", discovery.Env{PluginDirs: []string{install(t)}, Log: zap.New(core)})
	if _, err := p.Discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, all := logs.FilterMessageSnippet("the rest is dropped").Len(), logs.Len(); n != 1 || all < 200 || all > 265 {
		t.Errorf("%d lines, %d of them say that the rest is dropped", all, n)
	}
}

func TestRequest(t *testing.T) {
	p, err := open(mustParse(t, "exec:good.sh?a=%3C%26%3E&b=1&timeout=5s"), discovery.Env{PluginDirs: []string{install(t)}, Size: 3, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	x, err := p.exchange(t.Context(), p.request())
	if err != nil {
		t.Fatal(err)
	}
	if s := string(x.Request); strings.Count(s, "\n") != 1 || !strings.Contains(s, `"a":"<&>"`) || strings.Contains(s, `": `) {
		t.Errorf("not one compact line with plain letters: %s", s)
	}
	var req plugins.Request
	if err := json.Unmarshal(x.Request, &req); err != nil {
		t.Fatal(err)
	}
	if req.Size != 3 || req.Token != "t" || req.Timeout < 4 || req.Timeout > 5 || len(req.Parameters) != 2 || req.Node.Hostname == "" {
		t.Errorf("got %+v", req)
	}
}

func mustParse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestSource(t *testing.T) {
	tests := []struct{ name, source, want string }{
		{"host", "exec://hosts", "a name and never a path"},
		{"path", "exec:///bin/hosts", "a name and never a path"},
		{"relative path", "exec:../hosts", "no plugin name"},
		{"dots", "exec:..", "no plugin name"},
		{"upper case", "exec:Hosts", "no plugin name"},
		{"empty", "exec:", "no plugin name"},
		{"long", "exec:" + strings.Repeat("a", 65), "no plugin name"},
		{"twice", "exec:hosts?a=1&a=2", "a is given 2 times"},
		{"timeout", "exec:hosts?timeout=5", "timeout=5 is no duration"},
		{"negative timeout", "exec:hosts?timeout=-5s", "is no duration"},
		{"variable", "exec:hosts?env=A%3DB", "names no environment variable"},
		{"reserved", "exec:hosts?etcdinit-x=1", "reserved"},
		{"semicolon", "exec:hosts?a;b", "cannot be read"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := discovery.Registry{"exec": New}.Open(tt.source, discovery.Env{})
			var e *discovery.Error
			if !errors.As(err, &e) || e.Kind != discovery.Config || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestList(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		a + "/one": 0o755, b + "/one": 0o755, b + "/two": 0o644, b + "/README": 0o644, a + "/.hidden": 0o755,
	} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, f := range List([]string{a, "/nonexistent", b}) {
		got = append(got, fmt.Sprint(f.Name, " ", f.Path, " ", f.Shadowed, " ", f.Err != nil))
	}
	want := []string{"one " + a + "/one false false", "one " + b + "/one true false", "two " + b + "/two false true"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if path, err := Find([]string{"/nonexistent", a + "/one", a, b}, "one"); err != nil || path != a+"/one" {
		t.Errorf("found %s, %v", path, err)
	}
}

func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	dir := install(t)
	if err := os.Chown(filepath.Join(dir, "good.sh"), 4711, 4711); err != nil {
		t.Fatal(err)
	}
	_, err := Find([]string{dir}, "good.sh")
	if err == nil || !strings.Contains(err.Error(), "it belongs to uid 4711, not to root or to uid 0") {
		t.Errorf("got %v", err)
	}
}
