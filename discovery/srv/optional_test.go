package srv_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
	"github.com/etcdinit/etcdinit/discovery/srv"
)

// TestOptional: client records, and addresses of the second family, stop nothing
// however they fail. What failed is told once.
func TestOptional(t *testing.T) {
	isClient := func(q dns.Question) bool { return strings.HasPrefix(q.Name, "_etcd-client.") }
	isAAAA := func(q dns.Question) bool { return q.Qtype == dns.TypeAAAA }
	isA := func(q dns.Question) bool { return q.Qtype == dns.TypeA }
	v6 := strings.NewReplacer(" A 192.0.2.1", " AAAA 2001:db8::1").Replace(zone(3, 3))
	tests := []struct {
		name  string
		zone  string
		fails func(q dns.Question) bool
		warn  string
	}{
		{"client records", zone(3, 3), isClient, "no client records: "},
		{"AAAA", zone(3, 3), isAAAA, "the AAAA records of"},
		{"A", v6, isA, "the A records of"},
	}
	for _, tt := range tests {
		for _, rcode := range []int{dns.RcodeRefused, dns.RcodeServerFailure, -1} {
			name := tt.name + " " + dns.RcodeToString[rcode]
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := dnstest.New(t, tt.zone, dnstest.Faults{NoAdditional: true, Rewrite: func(m *dns.Msg) {
					switch {
					case !tt.fails(m.Question[0]):
					case rcode < 0:
						m.Id++ // nobody's answer
					default:
						m.Answer, m.Rcode = nil, rcode
					}
				}})
				core, logged := observer.New(zap.WarnLevel)
				env := discovery.Env{
					Size: 3, DNSServers: []netip.AddrPort{server.Addr()}, Log: zap.New(core),
					LocalAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")},
				}
				p, err := discovery.Registry{"srv": srv.New}.Open("srv://example.com", env)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				for range 2 {
					peers, err := p.Discover(t.Context())
					if err != nil || len(peers) != 3 || len(peers[0].Addrs) != 1 {
						t.Fatalf("got %v, %v", peers, err)
					}
				}
				if d := time.Since(start); d > 8*time.Second {
					t.Errorf("it took %v", d)
				}
				want := 1
				if tt.name != "client records" {
					want = 3 // hosts
				}
				if n := logged.FilterMessageSnippet(tt.warn).Len(); n != want || logged.Len() != want {
					t.Errorf("%d warnings, want %d: %v", n, want, logged.All())
				}
			})
		}
	}
}

// TestClientURLsGiven: where etcd's configuration has them, nobody is asked.
func TestClientURLsGiven(t *testing.T) {
	for _, tt := range []struct {
		source string
		asked  bool
	}{{"srv://example.com", false}, {"srv://example.com?client=etcd-client", true}} {
		server := dnstest.New(t, zone(3, 3), dnstest.Faults{})
		env := discovery.Env{Size: 3, DNSServers: []netip.AddrPort{server.Addr()}, ClientURLs: []string{"http://etcd-0.example.com:2379"}}
		p, err := discovery.Registry{"srv": srv.New}.Open(tt.source, env)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Discover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if asked := strings.Contains(strings.Join(server.Queries(), " "), "_etcd-client"); asked != tt.asked {
			t.Errorf("%s: asked %t: %q", tt.source, asked, server.Queries())
		}
	}
}
