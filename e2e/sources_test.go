//go:build e2e

package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// sourceArgs are init's arguments where the members come from a source that
// the configuration file does not name.
func (c *cluster) sourceArgs(source string, more ...string) []string {
	return c.initArgs(append([]string{"--discovery", source, "--plugin-dir", "plugins"}, more...)...)
}

// withoutSRV takes the source out of every host's configuration file.
func (c *cluster) withoutSRV() {
	c.t.Helper()
	for _, h := range c.hosts {
		h.Write("etcd.yaml", strings.ReplaceAll(c.config(), "discovery-srv: example.org\n", ""))
	}
}

// everywhere writes one file into all hosts.
func (c *cluster) everywhere(name, content string) {
	c.t.Helper()
	for _, h := range c.hosts {
		h.Write(name, content)
	}
}

// lines is a line for each member, made of its host.
func (c *cluster) lines(line func(h *lab.Host) string) string {
	var text strings.Builder
	for _, h := range c.hosts {
		text.WriteString(line(h) + "\n")
	}
	return text.String()
}

// plugin writes an executable into the plugin directory of hosts.
func (c *cluster) plugin(name string, content []byte, hosts ...*lab.Host) {
	c.t.Helper()
	for _, h := range hosts {
		h.Write("plugins/"+name, string(content))
		if err := os.Chmod(h.Path("plugins/"+name), 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
}

// reference is a script plugin of this repository.
func (c *cluster) reference(path string) {
	c.t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "plugins", path))
	if err != nil {
		c.t.Fatal(err)
	}
	c.plugin(filepath.Base(path), content, c.hosts...)
}

// hostsPlugin builds plugins/hosts, static, and returns where it is.
func hostsPlugin(t *testing.T) string {
	t.Helper()
	path, err := lab.Build(t.Context(), t.TempDir(), "./plugins/hosts")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// registry is a web server on the DNS server's host, and who asked it.
type registry struct {
	mu      sync.Mutex
	askedBy []netip.Addr
}

// serveWeb serves h; with conf over TLS.
func (c *cluster) serveWeb(port uint16, conf *tls.Config, h http.HandlerFunc) *registry {
	c.t.Helper()
	r := &registry{}
	listener := c.dns.Listen(netip.AddrPortFrom(c.dns.Addr4(), port).String())
	if conf != nil {
		listener = tls.NewListener(listener, conf)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if from, err := netip.ParseAddrPort(req.RemoteAddr); err == nil {
			r.mu.Lock()
			r.askedBy = append(r.askedBy, from.Addr().Unmap())
			r.mu.Unlock()
		}
		h(w, req)
	})}
	go func(l net.Listener) {
		_ = server.Serve(l) //nolint:errcheck // ends with the test, when its listener is closed
	}(listener)
	return r
}

func (r *registry) wantAsked(t *testing.T, hosts []*lab.Host) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range hosts {
		if !slices.Contains(r.askedBy, h.Addr4()) {
			t.Errorf("%s has not asked the web server; %v have", h.Name, r.askedBy)
		}
	}
}

// document is the peers document of the hosts, by name.
func (c *cluster) document() string {
	return "peers:\n" + strings.TrimSuffix(c.lines(func(h *lab.Host) string {
		return fmt.Sprintf("- {name: %s, host: %s, port: 2380}", h.Name, c.zone.FQDN(h))
	}), "\n") + "\n"
}

// pointers is a CoreDNS plugin for each address: its PTR record.
func (c *cluster) pointers() []string {
	var list []string
	for _, h := range c.hosts {
		for _, addr := range h.Addrs() {
			name, err := dns.ReverseAddr(addr.String())
			if err != nil {
				c.t.Fatal(err)
			}
			list = append(list, fmt.Sprintf("template IN PTR %s {\n\t\tanswer %q\n\t}", name, name+" 30 IN PTR "+c.zone.FQDN(h)+"."))
		}
	}
	return list
}

// source is a way to say who the members are. It prepares the hosts, and gives
// the source's URL and what is to be checked behind the boot.
type source struct {
	name  string
	shape shape
	use   func(c *cluster) (url string, after func())
	names func(c *cluster, i int) (name, host string) // nil: as in the zone
}

func sources() []source {
	v4 := shape{size: 3, family: "4"}
	only := func(use func(c *cluster) string) func(*cluster) (string, func()) {
		return func(c *cluster) (string, func()) {
			url := use(c)
			return url, func() {}
		}
	}
	return []source{
		{name: "srv", shape: shape{size: 3}, use: only(func(c *cluster) string {
			c.CoreDNS(c.dns, c.zone)
			return "srv://example.org"
		})},
		{name: "dns, names by PTR", shape: shape{size: 3}, use: only(func(c *cluster) string {
			c.CoreDNS(c.dns, c.zone.RoundRobin("etcd", c.hosts...), c.pointers()...)
			return "dns://etcd.example.org"
		})},
		{name: "dns, names from the addresses", shape: v4, use: only(func(c *cluster) string {
			c.CoreDNS(c.dns, c.zone.RoundRobin("etcd", c.hosts...), "template IN PTR in-addr.arpa {\n\t\trcode NXDOMAIN\n\t}")
			return "dns://etcd.example.org:2380"
		}), names: byAddress},
		{name: "file", shape: v4, use: only(func(c *cluster) string {
			c.CoreDNS(c.dns, c.zone)
			c.everywhere("peers.yaml", c.document())
			return "file://" + c.Home + "/peers.yaml"
		})},
		{name: "http", shape: v4, use: func(c *cluster) (string, func()) {
			c.CoreDNS(c.dns, c.zone.Addrs(c.dns))
			web := c.serveWeb(8080, nil, func(w http.ResponseWriter, req *http.Request) {
				if req.URL.RequestURI() != "/peers.yaml?cluster=eu" {
					http.NotFound(w, req)
					return
				}
				_, _ = io.WriteString(w, c.document()) //nolint:errcheck // who asked may be gone
			})
			return "http://dns.example.org:8080/peers.yaml?cluster=eu", func() { web.wantAsked(c.t, c.hosts) }
		}},
		{name: "https, a CA and a bearer token", shape: v4, use: useHTTPS},
		{name: "exec, a shell script", shape: v4, use: only(func(c *cluster) string {
			c.CoreDNS(c.dns, c.zone)
			c.reference("shell/members")
			c.everywhere("members", c.lines(func(h *lab.Host) string { return h.Name + " " + c.zone.FQDN(h) }))
			return "exec:members?file=" + c.Home + "/members"
		})},
		{name: "exec, Python", shape: v4, use: only(func(c *cluster) string {
			c.Require("/usr/bin/python3") // a plugin has no PATH of its own
			c.reference("python/inventory")
			c.everywhere("inventory", "[web]\nw1 ansible_host=192.0.2.99\n[etcd_eu]\n"+c.lines(func(h *lab.Host) string {
				return fmt.Sprintf("n%s ansible_host=%s # a member", h.Name, h.Addr4())
			}))
			return "exec:inventory?file=" + c.Home + "/inventory&group=etcd_eu"
		}), names: func(c *cluster, i int) (name, host string) {
			return "n" + c.hosts[i].Name, c.hosts[i].Addr4().String()
		}},
		{name: "exec, a static Go binary", shape: shape{size: 3}, use: only(func(c *cluster) string {
			c.CoreDNS(c.dns, c.zone) // for etcd: init asks nobody
			binary, err := os.ReadFile(hostsPlugin(c.t))
			if err != nil {
				c.t.Fatal(err)
			}
			c.plugin("hosts", binary, c.hosts...)
			c.everywhere("hosts", "127.0.0.1 localhost\n"+c.lines(func(h *lab.Host) string {
				return fmt.Sprintf("%s %s\n%s %[2]s", h.Addr4(), c.zone.FQDN(h), h.Addr6())
			}))
			return "exec:hosts?match=m*.example.org&file=" + c.Home + "/hosts"
		})},
	}
}

// useHTTPS is a server with a certificate of a CA that only the source names,
// and that answers those who send the token.
func useHTTPS(c *cluster) (source string, after func()) {
	t := c.t
	t.Helper()
	c.CoreDNS(c.dns, c.zone.Addrs(c.dns))
	ca := c.NewCA("registry")
	cert, key := ca.Issue([]string{"dns.example.org"}, nil)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	const token = "e2e-token"
	web := c.serveWeb(443, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, c.document()) //nolint:errcheck // who asked may be gone
	})
	c.everywhere("registry/ca.pem", ca.PEM())
	c.everywhere("registry/wrong", "another-token\n")
	c.everywhere("registry/token", token+"\n")
	url := "https://dns.example.org/peers.yaml?etcdinit-ca-file=" + c.Home + "/registry/ca.pem"
	first := c.hosts[0]
	wantAll(t, "without a token", output(first.WantStatus(20, etcdinit, c.sourceArgs(url)...)), "401", "no token was sent")
	withWrong := url + "&etcdinit-token-file=" + c.Home + "/registry/wrong"
	wantAll(t, "with another token", output(first.WantStatus(20, etcdinit, c.sourceArgs(withWrong)...)), "401", "registry/wrong")
	other, _, _ := strings.Cut(url, "?")
	wantAll(t, "with the system's CAs", output(first.WantStatus(40, etcdinit, c.sourceArgs(other, "--timeout", "2s")...)), "certificate")
	c.wantUntouched(first)
	return url + "&etcdinit-token-file=" + c.Home + "/registry/token", func() { web.wantAsked(t, c.hosts) }
}

func byAddress(c *cluster, i int) (name, host string) {
	host = c.hosts[i].Addr4().String()
	return host, host
}

// TestSources: three hosts, and every way to say that they are three.
func TestSources(t *testing.T) {
	for _, s := range sources() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, s.shape)
			c.withoutSRV()
			url, after := s.use(c)
			c.sameConfig()
			c.Each(c.hosts, func(h *lab.Host) {
				h.MustRun(etcdinit, c.sourceArgs(url)...)
				h.Etcd("3.7", "--config-file", "run.yaml")
			})
			c.Healthy(c.hosts...)
			names := s.names
			if names == nil {
				names = func(c *cluster, i int) (name, host string) { return c.hosts[i].Name, c.zone.FQDN(c.hosts[i]) }
			}
			c.worksAs(names)
			after()
		})
	}
}

// worksAs checks that what is written on each host is read on the next, that
// all stores are equal, and that every member has its name and its URLs.
func (c *cluster) worksAs(names func(c *cluster, i int) (name, host string)) {
	c.t.Helper()
	for i, h := range c.hosts {
		next := c.hosts[(i+1)%len(c.hosts)]
		h.Put("from-"+h.Name, "value of "+h.Name)
		if got := next.Get("from-" + h.Name); got != "value of "+h.Name {
			c.t.Errorf("%s reads %q where %s wrote", next.Name, got, h.Name)
		}
	}
	c.SameHash(c.hosts...)
	var want, got []string
	for i := range c.hosts {
		name, host := names(c, i)
		want = append(want, fmt.Sprintf("%s [http://%s:2380] [http://%[2]s:2379] false", name, host))
	}
	for _, m := range c.hosts[0].Members() {
		got = append(got, fmt.Sprintf("%s %v %v %v", m.Name, m.PeerURLs, m.ClientURLs, m.IsLearner))
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("members:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// answering is the plugin registry that answers discover with the commands' output.
func answering(commands string) []byte {
	return fmt.Appendf(nil, `#!/bin/sh
case $(cat) in
*'"verb":"info"'*) echo '{"version":1,"info":{"name":"registry","version":"1.0","contractVersions":[1]}}' ;;
*) %s ;;
esac
`, commands)
}

// response is a plugin's answer that names hosts of the zone.
func response(hosts ...string) string {
	var peers []string
	for _, name := range hosts {
		peers = append(peers, fmt.Sprintf(`{"name":%q,"host":%q}`, name, name+".example.org"))
	}
	return `{"version":1,"peers":[` + strings.Join(peers, ",") + `]}`
}

// A plugin says retry on one host: all wait for it, and then boot.
func TestPluginSaysRetry(t *testing.T) {
	t.Parallel()
	c := newBarrierCluster(t, shape{size: 3})
	c.withoutSRV()
	whole := "echo '" + response("m1", "m2", "m3") + "'"
	c.plugin("registry", answering(whole), c.hosts[:2]...)
	c.plugin("registry", answering("[ -e "+c.Home+`/registered ] || {
	echo '{"version":1,"error":{"code":"retry","message":"2 of 3 members are registered: m1 m2","retryAfter":1}}'; exit 1; }
	`+whole), c.hosts[2])
	agents := make([]*lab.Proc, len(c.hosts))
	for i, h := range c.hosts {
		agents[i] = h.Start(etcdinit, c.sourceArgs("exec:registry")...)
	}
	agents[2].WaitLog("2 of 3 members are registered: m1 m2", 20*time.Second)
	for _, agent := range agents[:2] {
		agent.WaitLog("m3 (silent)", 20*time.Second)
	}
	time.Sleep(2 * time.Second) // it is asked again, and says the same
	for i, h := range c.hosts {
		if !agents[i].Running() {
			t.Fatalf("%s did not wait: %s", h.Name, agents[i].Log())
		}
		c.wantUntouched(h)
	}
	c.hosts[2].Write("registered", "")
	for i, agent := range agents {
		if status := agent.Wait(30 * time.Second); status != 0 {
			t.Fatalf("%s ended with %d: %s", c.hosts[i].Name, status, agent.Log())
		}
	}
	c.start("3.7")
	c.works()
}

// The plugin of one host lies: nobody runs, and all say what the difference is.
func TestPluginLies(t *testing.T) {
	t.Parallel()
	c := newBarrierCluster(t, shape{size: 3})
	c.withoutSRV()
	c.UpdateCoreDNS(c.dns, c.zone.Addrs(c.dns)) // the lie resolves
	c.plugin("registry", answering("echo '"+response("m1", "m2", "m3")+"'"), c.hosts[0], c.hosts[2])
	c.plugin("registry", answering("echo '"+response("m1", "m2", "dns")+"'"), c.hosts[1])
	results := make([]lab.Result, len(c.hosts))
	c.Each(c.hosts, func(h *lab.Host) {
		results[slices.Index(c.hosts, h)] = h.WantStatus(34, etcdinit, c.sourceArgs("exec:registry", "--timeout", "10s")...)
	})
	for i, want := range [][]string{
		{"m2 plans another cluster", "-m3=http://m3.example.org:2380", "+dns=http://dns.example.org:2380"},
		{"m1 plans another cluster", "-dns=http://dns.example.org:2380", "+m3=http://m3.example.org:2380", "dns is silent"},
		{"m2 plans another cluster", "-m3=http://m3.example.org:2380", "+dns=http://dns.example.org:2380"},
	} {
		wantAll(t, c.hosts[i].Name, output(results[i]), append(want, "nothing was written")...)
		c.wantUntouched(c.hosts[i])
	}
}
