//go:build e2e

package rendezvous

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// realEtcd is the etcd of one minor, of ETCDINIT_TOOLS_DIR or of tools/build.
func realEtcd(t *testing.T, minor string) string {
	t.Helper()
	dir := os.Getenv("ETCDINIT_TOOLS_DIR")
	if dir == "" {
		dir = "../../../.cache/tools"
	}
	path, err := filepath.Abs(filepath.Join(dir, "etcd-"+minor, "etcd"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("ETCDINIT_E2E") == "required" {
			t.Fatal(err)
		}
		t.Skipf("no etcd %s: %v (tools/build etcd-%s makes it)", minor, err, minor)
	}
	return path
}

// flags are the TLS settings as etcd's flags; a minor that has no such flag gives nil.
func (t TLS) flags(minor string) []string {
	old := minor == "3.4" || minor == "3.5"
	args := []string{"--peer-cert-file=" + t.CertFile, "--peer-key-file=" + t.KeyFile}
	add := func(flag, value string) {
		if value != "" {
			args = append(args, flag+"="+value)
		}
	}
	add("--peer-trusted-ca-file", t.CAFile)
	if t.ClientCertAuth {
		args = append(args, "--peer-client-cert-auth")
	}
	if t.Auto {
		args = append(args, "--peer-auto-tls")
	}
	if t.ClientCertFile != "" {
		if minor == "3.4" {
			return nil
		}
		args = append(args, "--peer-client-cert-file="+t.ClientCertFile, "--peer-client-key-file="+t.ClientKeyFile)
	}
	if old && strings.Contains(t.AllowedHostname, ",") {
		return nil
	}
	add("--peer-cert-allowed-cn", t.AllowedCN)
	add("--peer-cert-allowed-hostname", t.AllowedHostname)
	add("--peer-crl-file", t.CRLFile)
	add("--cipher-suites", strings.Join(t.CipherSuites, ","))
	if minor == "3.4" && t.MinVersion+t.MaxVersion != "" {
		return nil
	}
	add("--tls-min-version", t.MinVersion)
	add("--tls-max-version", t.MaxVersion)
	if t.SkipClientSAN {
		if old {
			args = append(args, "--experimental-peer-skip-client-san-verification")
		} else {
			args = append(args, "--peer-skip-client-san-verification")
		}
	}
	return args
}

// gate is a peer that etcd dials: it notes whether etcd speaks to it.
type gate struct {
	url  string
	once sync.Once
	got  chan bool // true: a request; false: the handshake failed
}

func (g *gate) tell(ok bool) { g.once.Do(func() { g.got <- ok }) }

func newGate(t *testing.T, url string, conf *tls.Config) *gate {
	t.Helper()
	g := &gate{url: url, got: make(chan bool, 1)}
	l := listenOn(t, strings.TrimPrefix(url, "https://"))
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close() //nolint:errcheck // nothing was written
				if c.SetDeadline(time.Now().Add(5*time.Second)) != nil {
					return
				}
				s := tls.Server(c, conf)
				if s.HandshakeContext(t.Context()) != nil {
					g.tell(false)
					return
				}
				_, err := s.Read(make([]byte, 1)) // with TLS 1.3, a refusal comes after the handshake
				g.tell(err == nil)
			})
		}
	})
	t.Cleanup(func() {
		closeIt(t, l)
		wg.Wait()
	})
	return g
}

// listens waits until somebody does at url.
func listens(t *testing.T, url string) {
	t.Helper()
	var d net.Dialer
	for range 200 {
		c, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
		if err == nil {
			closeIt(t, c)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("nobody listens at %s", url)
}

// speaks reports whether url answers with HTTP over TLS at all.
func speaks(ctx context.Context, url string, conf *tls.Config) (ok bool, status int) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false, 0
	}
	resp, err := (&http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return false, 0
	}
	return resp.Body.Close() == nil, resp.StatusCode
}

// TestRehearsalAgainstEtcd: in each case, an agent and a real etcd with the same
// configuration say the same of one caller, and of one peer that they dial.
func TestRehearsalAgainstEtcd(t *testing.T) {
	ca, other := newAuthority(t, "the CA"), newAuthority(t, "another CA")
	issue := func(name string, change func(*leaf)) TLS {
		l := loopback()
		if change != nil {
			change(&l)
		}
		return ca.issue(name, l)
	}
	usage := func(u x509.ExtKeyUsage) func(*leaf) {
		return func(l *leaf) { l.usage = []x509.ExtKeyUsage{u} }
	}
	names := func(list ...string) func(*leaf) {
		return func(l *leaf) { l.ips, l.names = nil, list }
	}
	me, peer := issue("me", nil), issue("peer", nil)
	far := issue("far", func(l *leaf) { l.ips = []net.IP{net.IPv4(192, 0, 2, 9)} })
	revoked, listPEM, unrevoked := ca.revoke("crl.der", false, 2), ca.revoke("crl.pem", true, 2), ca.revoke("none.der", false, 7)
	upTo12 := func(c *tls.Config) {
		c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
	}
	for _, tt := range []struct {
		name   string
		config func(*TLS) // of the agent and of etcd
		peer   TLS        // who calls them, and whom they call
		minors []string   // none: all
		speaks func(*tls.Config)
	}{
		{"good", nil, peer, nil, nil},
		{"no client certificates asked", func(c *TLS) { c.ClientCertAuth = false }, peer, nil, nil},
		{"files beside auto-tls", func(c *TLS) { c.Auto = true }, issue("elsewhere", names("etcd.example.org")), nil, nil},
		{"another CA", nil, other.issue("stranger", loopback()), nil, nil},
		{"expired", nil, issue("old", func(l *leaf) { l.before, l.after = -2*time.Hour, -time.Hour }), nil, nil},
		{"not yet valid", nil, issue("early", func(l *leaf) { l.before, l.after = time.Hour, 2*time.Hour }), nil, nil},
		{"no SAN", nil, issue("nosan", names()), nil, nil},
		{"another address", nil, far, nil, nil},
		{"another address, skipped", func(c *TLS) { c.SkipClientSAN = true }, far, nil, nil},
		{"localhost by name", nil, issue("local", names("localhost")), nil, nil},
		{"localhost by name beside another address", nil, issue("local", func(l *leaf) { l.names, l.ips = []string{"localhost"}, []net.IP{net.IPv4(192, 0, 2, 9)} }), nil, nil},
		{"a name that leads nowhere", nil, issue("nowhere", names("etcd.invalid")), nil, nil},
		{"wildcard without PTR", nil, issue("wild", names("*.invalid")), nil, nil},
		{"server only", nil, issue("server", usage(x509.ExtKeyUsageServerAuth)), nil, nil},
		{"client only", nil, issue("client", usage(x509.ExtKeyUsageClientAuth)), nil, nil},
		{"any usage", nil, issue("any", usage(x509.ExtKeyUsageAny)), nil, nil},
		{"no usage", nil, issue("none", func(l *leaf) { l.usage = nil }), nil, nil},
		{"allowed CN", func(c *TLS) { c.AllowedCN = "peer" }, peer, nil, nil},
		{"another CN", func(c *TLS) { c.AllowedCN = "etcd" }, peer, nil, nil},
		{"list of CNs", func(c *TLS) { c.AllowedCN = "etcd,peer" }, peer, []string{"3.6", "3.7"}, nil},
		{"list of other CNs", func(c *TLS) { c.AllowedCN = "etcd,peers" }, peer, nil, nil},
		{"allowed host", func(c *TLS) { c.AllowedHostname = "127.0.0.1" }, peer, nil, nil},
		{"another host", func(c *TLS) { c.AllowedHostname = "etcd.example.org" }, peer, nil, nil},
		{"list of hosts", func(c *TLS) { c.AllowedHostname = "etcd.example.org,127.0.0.1" }, peer, []string{"3.6", "3.7"}, nil},
		{"list of other hosts", func(c *TLS) { c.AllowedHostname = "etcd.example.org,127.0.0.2" }, peer, []string{"3.6", "3.7"}, nil},
		{"a CN is no host", func(c *TLS) { c.AllowedHostname = "peer" }, peer, nil, nil},
		{"revoked", func(c *TLS) { c.CRLFile = revoked }, peer, nil, nil},
		{"revoked, in PEM", func(c *TLS) { c.CRLFile = listPEM }, peer, nil, nil},
		{"not revoked", func(c *TLS) { c.CRLFile = unrevoked }, peer, nil, nil},
		{"no revocation list", func(c *TLS) { c.CRLFile = ca.path }, peer, []string{"3.6", "3.7"}, nil},
		{"1.3 and up to 1.2", func(c *TLS) { c.MinVersion = "TLS1.3" }, peer, []string{"3.5", "3.6", "3.7"}, upTo12},
		{"up to 1.2", func(c *TLS) { c.MaxVersion = "TLS1.2" }, peer, []string{"3.5", "3.6", "3.7"}, upTo12},
		{"up to 1.2 and 1.3", func(c *TLS) { c.MaxVersion = "TLS1.2" }, peer, []string{"3.5", "3.6", "3.7"}, func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }},
		{"its cipher suite", func(c *TLS) { c.CipherSuites = []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"} }, peer, nil, upTo12},
		{"another cipher suite", func(c *TLS) { c.CipherSuites = []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"} }, peer, nil, upTo12},
	} {
		minors := tt.minors
		if minors == nil {
			minors = []string{"3.4", "3.5", "3.6", "3.7"}
		}
		for _, minor := range minors {
			t.Run(tt.name+"/"+minor, func(t *testing.T) {
				bin := realEtcd(t, minor)
				config := me
				if tt.config != nil {
					tt.config(&config)
				}
				args := config.flags(minor)
				if args == nil {
					t.Fatalf("etcd %s has no flag for this", minor)
				}
				cert, err := tls.LoadX509KeyPair(tt.peer.CertFile, tt.peer.KeyFile)
				if err != nil {
					t.Fatal(err)
				}
				urls := freeURLs(t, "https", 4) // the agent, etcd, etcd's peer, etcd's clients
				caller := &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true}
				server := &tls.Config{Certificates: []tls.Certificate{cert}}
				if tt.speaks != nil {
					tt.speaks(caller)
					tt.speaks(server)
				}
				g := newGate(t, urls[2], server)

				agent := startAt(t, []string{urls[0], urls[2]}, 0, config)
				ok, status := speaks(t.Context(), urls[0]+Path, caller)
				agentTakesCall := ok && status == http.StatusOK
				agentTakesPeer := agent.Round(t.Context()).Peers[0].Last.Trust == Trusted

				clients := strings.Replace(urls[3], "https", "http", 1)
				dir := t.TempDir()
				var out strings.Builder
				cmd := exec.CommandContext(t.Context(), bin, append([]string{
					"--name=me", "--data-dir=" + dir + "/data", "--listen-peer-urls=" + urls[1], "--initial-advertise-peer-urls=" + urls[1],
					"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients, "--initial-cluster=me=" + urls[1] + ",peer=" + urls[2],
				}, args...)...)
				cmd.Env, cmd.Stdout, cmd.Stderr = []string{"PATH=/nonexistent"}, &out, &out
				g.once = sync.Once{} // the agent has been there
				g.got = make(chan bool, 1)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				exited := make(chan struct{})
				go func() {
					defer close(exited)
					_ = cmd.Wait() //nolint:errcheck // it is killed
				}()
				stop := func() {
					_ = cmd.Process.Kill() //nolint:errcheck // it may have gone
					<-exited
				}
				defer stop()
				var etcdTakesPeer bool
				select {
				case etcdTakesPeer = <-g.got:
				case <-exited:
					t.Fatalf("etcd exits:\n%s", out.String())
				case <-time.After(30 * time.Second):
					stop()
					t.Fatalf("etcd does not dial its peer:\n%s", out.String())
				}
				listens(t, urls[1])
				etcdTakesCall, _ := speaks(t.Context(), urls[1]+"/version", caller)
				if agentTakesCall != etcdTakesCall || agentTakesPeer != etcdTakesPeer {
					stop()
					t.Errorf("its calls: taken by the agent %t, by etcd %t; dialled: taken by the agent %t, by etcd %t\n%s", agentTakesCall, etcdTakesCall, agentTakesPeer, etcdTakesPeer, lastLines(out.String()))
				}
			})
		}
	}
}

func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool {
		return !strings.Contains(l, "tls") && !strings.Contains(l, "reject") && !strings.Contains(l, "cert")
	})
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}
