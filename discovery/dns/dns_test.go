package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	soa      = "@ 3600 SOA ns host 1 2 3 4 5\n"
	forward3 = `$ORIGIN example.org.
` + soa + `etcd 30 A 192.0.2.10
etcd 30 A 192.0.2.11
etcd 30 A 192.0.2.12
a 60 A 192.0.2.10
b 30 A 192.0.2.11
c 30 A 192.0.2.12
`
	arpa = "$ORIGIN 2.0.192.in-addr.arpa.\n" + soa
)

func TestDiscover(t *testing.T) {
	tests := []struct {
		name, zone, source string
		size               int
		want               string // each peer's host, addresses and TTL
		warn               string // in the log
		kind               discovery.Kind
		errs               []string
	}{
		{
			name: "reverse names", size: 3, source: "dns://etcd.example.org",
			zone: forward3 + arpa + "10 5 PTR A.example.org.\n11 5 PTR b.example.org.\n12 90 PTR c.example.org.\n",
			want: "a.example.org=192.0.2.10@1m0s b.example.org=192.0.2.11@30s c.example.org=192.0.2.12@1m30s",
		},
		{
			name: "no reverse names", size: 3, source: "dns://etcd.example.org",
			zone: forward3 + arpa,
			want: "192.0.2.10=192.0.2.10@30s 192.0.2.11=192.0.2.11@30s 192.0.2.12=192.0.2.12@30s",
			warn: "unstable",
		},
		{
			name: "addresses on purpose", size: 3, source: "dns://etcd.example.org?names=address",
			zone: forward3 + arpa + "10 5 PTR a.example.org.\n",
			want: "192.0.2.10=192.0.2.10@30s 192.0.2.11=192.0.2.11@30s 192.0.2.12=192.0.2.12@30s",
		},
		{
			name: "one reverse name missing", size: 3, source: "dns://etcd.example.org",
			zone: forward3 + arpa + "10 5 PTR a.example.org.\n11 5 PTR b.example.org.\n",
			kind: discovery.Retry, errs: []string{"no reverse name for 192.0.2.12 (NXDOMAIN", "have 192.0.2.10=a.example.org 192.0.2.11=b.example.org", "names=address"},
		},
		{
			name: "names demanded", size: 3, source: "dns://etcd.example.org?names=reverse",
			zone: forward3 + arpa,
			kind: discovery.Retry, errs: []string{"no reverse name for 192.0.2.10"},
		},
		{
			name: "a name that leads elsewhere", size: 3, source: "dns://etcd.example.org",
			zone: forward3 + arpa + "10 5 PTR b.example.org.\n11 5 PTR b.example.org.\n12 5 PTR c.example.org.\n",
			kind: discovery.Retry, errs: []string{"the reverse name of 192.0.2.10 does not lead back to it: b.example.org=192.0.2.11"},
		},
		{
			name: "a name that leads nowhere", size: 3, source: "dns://etcd.example.org",
			zone: forward3 + arpa + "10 5 PTR a.example.org.\n11 5 PTR b.example.org.\n12 5 PTR x.example.org.\n",
			kind: discovery.Retry, errs: []string{"the reverse names of etcd.example.org's addresses", "x.example.org"},
		},
		{
			name: "too few", size: 3, source: "dns://etcd.example.org",
			zone: "$ORIGIN example.org.\n" + soa + "etcd 30 A 192.0.2.10\netcd 30 A 192.0.2.11\n",
			kind: discovery.Retry, errs: []string{"got 2 of 3 addresses for etcd.example.org: 192.0.2.10, 192.0.2.11"},
		},
		{
			name: "too many", size: 2, source: "dns://etcd.example.org?names=address", zone: forward3,
			kind: discovery.Unusable, errs: []string{"got 3 of 2 peers"},
		},
		{
			name: "no such name", size: 3, source: "dns://etcd.example.org", zone: "$ORIGIN example.org.\n" + soa,
			kind: discovery.Retry, errs: []string{"etcd.example.org", "NXDOMAIN", "publishNotReadyAddresses"},
		},
		{
			name: "both families, one name each", size: 2, source: "dns://etcd.example.org",
			zone: `$ORIGIN example.org.
` + soa + `etcd 30 A 192.0.2.10
etcd 30 AAAA 2001:db8::10
etcd 30 A 192.0.2.11
etcd 30 AAAA 2001:db8::11
a 30 A 192.0.2.10
a 30 AAAA 2001:db8::10
b 30 A 192.0.2.11
b 30 AAAA 2001:db8::11
` + arpa + `10 30 PTR a.example.org.
11 30 PTR b.example.org.
$ORIGIN 0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.
` + soa + `0.1.0.0 30 PTR a.example.org.
1.1.0.0 30 PTR b.example.org.
`,
			want: "a.example.org=192.0.2.10,2001:db8::10@30s b.example.org=192.0.2.11,2001:db8::11@30s",
		},
		{
			name: "both families, no names", size: 1, source: "dns://etcd.example.org",
			zone: "$ORIGIN example.org.\n" + soa + "etcd 30 A 192.0.2.10\netcd 30 AAAA 2001:db8::10\n" + arpa,
			kind: discovery.Unusable, errs: []string{"both families and none has a name", "family=4"},
		},
		{
			name: "one family of two", size: 1, source: "dns://etcd.example.org?family=6",
			zone: "$ORIGIN example.org.\n" + soa + "etcd 30 A 192.0.2.10\netcd 30 AAAA 2001:db8::10\n",
			want: "2001:db8::10=2001:db8::10@30s", warn: "unstable",
		},
		{
			name: "the family is not there", size: 1, source: "dns://etcd.example.org?family=6",
			zone: "$ORIGIN example.org.\n" + soa + "etcd 30 A 192.0.2.10\n",
			kind: discovery.Retry, errs: []string{"no AAAA record", "NOERROR"},
		},
		{
			name: "not headless", size: 3, source: "dns://etcd.ns1.svc.cluster.local",
			zone: "$ORIGIN ns1.svc.cluster.local.\n" + soa + "etcd 30 A 192.0.2.77\n" + arpa + "77 30 PTR etcd.ns1.svc.cluster.local.\n",
			kind: discovery.Retry, errs: []string{"got 1 of 3 addresses", "clusterIP: None"},
		},
		{
			name: "not headless, size unknown", source: "dns://etcd.ns1.svc.cluster.local",
			zone: "$ORIGIN ns1.svc.cluster.local.\n" + soa + "etcd 30 A 192.0.2.77\n" + arpa + "77 30 PTR etcd.ns1.svc.cluster.local.\n",
			kind: discovery.Unusable, errs: []string{"clusterIP: None"},
		},
		{
			name: "two services name one pod", size: 1, source: "dns://peers.example.org",
			zone: "$ORIGIN example.org.\n" + soa + "peers 30 A 192.0.2.10\na.peers 30 A 192.0.2.10\na.web 30 A 192.0.2.10\n" +
				arpa + "10 30 PTR a.web.example.org.\n10 30 PTR a.peers.example.org.\n",
			want: "a.peers.example.org=192.0.2.10@30s",
		},
		{
			name: "two names and no reason to prefer one", size: 1, source: "dns://etcd.example.org",
			zone: "$ORIGIN example.org.\n" + soa + "etcd 30 A 192.0.2.10\na 30 A 192.0.2.10\nb 30 A 192.0.2.10\n" +
				arpa + "10 30 PTR a.example.org.\n10 30 PTR b.example.org.\n",
			kind: discovery.Unusable, errs: []string{"several names that lead back to it, a.example.org, b.example.org"},
		},
		{
			name: "pods without host names", size: 1, source: "dns://etcd.example.org",
			zone: "$ORIGIN example.org.\n" + soa + "etcd 30 A 192.0.2.10\n192-0-2-10.etcd 30 A 192.0.2.10\n" +
				arpa + "10 30 PTR 192-0-2-10.etcd.example.org.\n",
			kind: discovery.Unusable, errs: []string{"192-0-2-10.etcd.example.org=192.0.2.10 is named after its address", "hash-names=allow"},
		},
		{
			name: "pods without host names, allowed", size: 1, source: "dns://etcd.example.org?hash-names=allow",
			zone: "$ORIGIN example.org.\n" + soa + "etcd 30 A 192.0.2.10\n192-0-2-10.etcd 30 A 192.0.2.10\n" +
				arpa + "10 30 PTR 192-0-2-10.etcd.example.org.\n",
			want: "192-0-2-10.etcd.example.org=192.0.2.10@30s",
		},
		{
			name: "tasks of a swarm", size: 2, source: "dns://tasks.etcd",
			zone: "tasks.etcd. 30 A 192.0.2.10\ntasks.etcd. 30 A 192.0.2.11\n" +
				"db_etcd.1.k3j4h5lq0zvt8xv0aaymbvy1w.db_default. 30 A 192.0.2.10\ndb_etcd.2.p0o9i8u7y6tz3k2m1n4b5v6c7.db_default. 30 A 192.0.2.11\n" + arpa +
				"10 30 PTR db_etcd.1.k3j4h5lq0zvt8xv0aaymbvy1w.db_default.\n11 30 PTR db_etcd.2.p0o9i8u7y6tz3k2m1n4b5v6c7.db_default.\n",
			kind: discovery.Unusable, errs: []string{"a random ID (k3j4h5lq0zvt8xv0aaymbvy1w)", "a service of its own for each member"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := dnstest.New(t, tt.zone, dnstest.Faults{})
			core, logs := observer.New(zap.WarnLevel)
			env := discovery.Env{
				Pod:  true,
				Size: tt.size, DNSServers: []netip.AddrPort{srv.Addr()}, Log: zap.New(core),
				LocalAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")},
			}
			p, err := discovery.Registry{"dns": New}.Open(tt.source, env)
			if err != nil {
				t.Fatal(err)
			}
			peers, err := p.Discover(t.Context())
			if err == nil && tt.kind != 0 {
				err = discovery.Check(peers, tt.size)
			}
			if tt.kind != 0 {
				var e *discovery.Error
				if !errors.As(err, &e) || e.Kind != tt.kind {
					t.Fatalf("got %v, %v; want kind %v", peers, err, tt.kind)
				}
				for _, w := range tt.errs {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("no %q in: %v", w, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range peers {
				var addrs []string
				for _, a := range p.Addrs {
					addrs = append(addrs, a.String())
				}
				got = append(got, fmt.Sprintf("%s=%s@%s", p.Host, strings.Join(addrs, ","), p.TTL))
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
			if n := logs.FilterMessageSnippet("unstable").FilterMessageSnippet(tt.warn).Len(); n > 0 != (tt.warn != "") {
				t.Errorf("%d warnings: %v", n, logs.All())
			}
		})
	}
}

func TestPort(t *testing.T) {
	srv := dnstest.New(t, "$ORIGIN example.org.\n"+soa+"etcd 30 AAAA 2001:db8::10\n", dnstest.Faults{})
	tests := []struct {
		name, source, want string
		ports              []uint16
	}{
		{"given", "dns://etcd.example.org:12380?names=address", "https://[2001:db8::10]:12380", []uint16{2}},
		{"etcd's", "dns://etcd.example.org?names=address", "https://[2001:db8::10]:2381", []uint16{2381}},
		{"etcd has two", "dns://etcd.example.org?names=address", "https://[2001:db8::10]:2380", []uint16{1, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := discovery.Registry{"dns": New}.Open(tt.source, discovery.Env{
				DNSServers: []netip.AddrPort{srv.Addr()}, PeerPorts: tt.ports, PeerScheme: "https",
			})
			if err != nil {
				t.Fatal(err)
			}
			peers, err := p.Discover(t.Context())
			if err != nil || len(peers) != 1 || peers[0].PeerURLs[0] != tt.want {
				t.Errorf("got %v, %v, want %s", peers, err, tt.want)
			}
		})
	}
}

// TestServerFails: a server that cannot be asked is never an empty answer.
func TestServerFails(t *testing.T) {
	srv := dnstest.New(t, forward3+arpa, dnstest.Faults{Rcode: 2})
	p, err := discovery.Registry{"dns": New}.Open("dns://etcd.example.org?server="+srv.Addr().String(), discovery.Env{Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = p.Discover(ctx)
	var e *discovery.Error
	if !errors.As(err, &e) || e.Kind != discovery.Retry || !strings.Contains(err.Error(), "SERVFAIL") {
		t.Errorf("got %v", err)
	}
}

func TestSource(t *testing.T) {
	tests := []struct{ name, source, want string }{
		{"no host", "dns://", "the host is empty"},
		{"opaque", "dns:etcd.example.org", "want dns://HOST"},
		{"path", "dns://etcd.example.org/x", "want dns://HOST"},
		{"address", "dns://192.0.2.10:2380", "is an address"},
		{"port 0", "dns://etcd.example.org:0", `port "0"`},
		{"big port", "dns://etcd.example.org:65536", `port "65536"`},
		{"names", "dns://etcd.example.org?names=x", "want auto, reverse or address"},
		{"family", "dns://etcd.example.org?family=5", "want 4 or 6"},
		{"server", "dns://etcd.example.org?server=ns.example.org", "is not a DNS server's address"},
		{"unknown", "dns://etcd.example.org?prot=1", "unknown; known are names, hash-names, family, server"},
		{"twice", "dns://etcd.example.org?family=4&family=6", "given 2 times"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := discovery.Registry{"dns": New}.Open(tt.source, discovery.Env{})
			var e *discovery.Error
			if !errors.As(err, &e) || e.Kind != discovery.Config || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestReadme: the sections are there and every example opens.
func TestReadme(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, s := range []string{"Name", "Description", "Source", "Examples", "Errors"} {
		if !strings.Contains(text, "\n## "+s+"\n") {
			t.Errorf("section %s is missing", s)
		}
	}
	_, rest, _ := strings.Cut(text, "## Examples\n\n```\n")
	examples, _, _ := strings.Cut(rest, "```")
	lines := strings.Fields(examples)
	if len(lines) < 3 {
		t.Error("no examples")
	}
	for _, source := range lines {
		if _, err := (discovery.Registry{"dns": New}).Open(source, discovery.Env{}); err != nil {
			t.Errorf("%s: %v", source, err)
		}
	}
}
