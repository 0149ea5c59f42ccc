package srv_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
	"github.com/etcdinit/etcdinit/discovery/srv"
)

const soa = "example.com. 60 SOA ns.example.com. admin.example.com. 1 3600 600 86400 30\n"

// zone is n of the records and m of the addresses.
func zone(n, m int) string {
	var z strings.Builder
	z.WriteString(soa)
	for i := range n {
		fmt.Fprintf(&z, "_etcd-server._tcp.example.com. 60 SRV 0 0 2380 etcd-%d.example.com.\n", i)
	}
	for i := range m {
		fmt.Fprintf(&z, "etcd-%d.example.com. 60 A 192.0.2.1%d\n", i, i)
	}
	return z.String()
}

// TestWaits: what comes later ends the wait, and only the whole does.
func TestWaits(t *testing.T) {
	noSOA := dnstest.Faults{NoSOA: true}
	type step struct {
		zone   string
		faults dnstest.Faults
		text   string
	}
	tests := []struct {
		name  string
		steps []step // what each try meets; the last one is complete
	}{
		{"SB-01 one by one", []step{
			{zone(1, 3), noSOA, "got 1 of 3 SRV records for _etcd-server._tcp.example.com"},
			{zone(1, 3), noSOA, "got 1 of 3"},
			{zone(2, 3), noSOA, "etcd-0.example.com:2380, etcd-1.example.com:2380"},
			{zone(3, 3), noSOA, ""},
		}},
		{"SB-03 withheld", []step{
			{"_etcd-server._tcp.example.com. TXT x\n", noSOA, "NOERROR but no SRV records"},
			{zone(3, 3), noSOA, ""},
		}},
		{"SB-04 an address is late", []step{
			{zone(3, 2), noSOA, "etcd-2.example.com: no A/AAAA record"},
			{zone(3, 3), noSOA, ""},
		}},
		{"SB-07 TCP opens", []step{
			{zone(3, 3), dnstest.Faults{Rewrite: func(m *dns.Msg) { m.Truncated = true }}, "answer truncated (TC=1), TCP to 127.0.0.1:"},
			{zone(3, 3), noSOA, ""},
		}},
		{"WB-04 flapping", []step{
			{zone(2, 3), noSOA, "got 2 of 3"},
			{"", noSOA, "NXDOMAIN"},
			{"", noSOA, "NXDOMAIN"},
			{zone(2, 3), noSOA, "got 2 of 3"},
			{zone(3, 3), dnstest.Faults{Rcode: dns.RcodeServerFailure}, "SERVFAIL"},
			{zone(3, 3), noSOA, ""},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := dnstest.New(t, tt.steps[0].zone, tt.steps[0].faults)
			core, logged := observer.New(zap.WarnLevel)
			env := discovery.Env{Size: 3, DNSServers: []netip.AddrPort{server.Addr()}, Log: zap.New(core)}
			p, err := discovery.Registry{"srv": srv.New}.Open("srv://example.com", env)
			if err != nil {
				t.Fatal(err)
			}
			i := 0
			peers, err := discovery.Await(t.Context(), p, discovery.AwaitOptions{
				Env: env, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond,
				OnProgress: func(p discovery.Progress) {
					if (p.Err == nil) != (tt.steps[i].text == "") || p.Err != nil && !strings.Contains(p.Err.Error(), tt.steps[i].text) {
						t.Errorf("try %d: got %v, want %q", i, p.Err, tt.steps[i].text)
					}
					i++
					if i < len(tt.steps) {
						server.Zone(t, tt.steps[i].zone)
						server.SetFaults(tt.steps[i].faults)
					}
				},
			})
			if err != nil || len(peers) != 3 || i != len(tt.steps) {
				t.Errorf("got %v, %v after %d tries, want 3 peers after %d", peers, err, i, len(tt.steps))
			}
			if n := logged.Len(); n > 0 {
				t.Errorf("%d warnings in the end: %v", n, logged.All())
			}
		})
	}
}

// TestNegativeTTL: WB-03, the provider passes on how long NXDOMAIN is believed.
func TestNegativeTTL(t *testing.T) {
	server := dnstest.New(t, soa, dnstest.Faults{})
	p, err := discovery.Registry{"srv": srv.New}.Open("srv://example.com", discovery.Env{Size: 3, DNSServers: []netip.AddrPort{server.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range []string{soa, zone(3, 2)} { // the name, and one target
		server.Zone(t, z)
		_, err = p.Discover(t.Context())
		var e *discovery.Error
		if !errors.As(err, &e) || e.Kind != discovery.Retry || e.After != 500*time.Millisecond {
			t.Errorf("got %v, want a Retry after 500 ms", err)
		}
	}
}

// TestSameOnEveryNode: SB-09, whatever the order, the case and the repetitions
// of the records are.
func TestSameOnEveryNode(t *testing.T) {
	server := dnstest.New(t, zone(3, 3), dnstest.Faults{})
	env := discovery.Env{
		Size: 3, DNSServers: []netip.AddrPort{server.Addr()}, PeerScheme: "http",
		ClientListeners: []discovery.Listener{{Scheme: "http", Port: 2379}},
	}
	r := rand.New(rand.NewPCG(3, 4))
	var mu sync.Mutex
	var want []discovery.Peer
	for i := range 60 {
		mu.Lock()
		plain := r.IntN(4) == 0
		mu.Unlock()
		server.SetFaults(dnstest.Faults{Rewrite: func(m *dns.Msg) {
			mu.Lock()
			defer mu.Unlock()
			for range r.IntN(3) {
				if n := len(m.Answer); n > 0 {
					c := dns.Copy(m.Answer[r.IntN(n)])
					c.Header().Ttl = 60
					m.Answer = append(m.Answer, c)
				}
			}
			for _, list := range [][]dns.RR{m.Answer, m.Extra} {
				r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
				for i := range list {
					c := dns.Copy(list[i])
					if c.Header().Rrtype != dns.TypeOPT && r.IntN(2) == 0 {
						c.Header().Name = strings.ToUpper(c.Header().Name)
					}
					if s, ok := c.(*dns.SRV); ok && r.IntN(2) == 0 {
						s.Target = strings.ToUpper(s.Target)
						s.Weight = uint16(r.IntN(100))
					}
					list[i] = c
				}
			}
		}, NoAdditional: plain})
		p, err := discovery.Registry{"srv": srv.New}.Open("srv://EXAMPLE.com", env)
		if err != nil {
			t.Fatal(err)
		}
		got, err := discovery.Await(t.Context(), p, discovery.AwaitOptions{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = got
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("run %d: got\n%v\nwant\n%v", i, got, want)
		}
	}
}

// TestNobodyListens: WB-10, WB-05, a dead resolver and an empty resolv.conf
// are waited for, and named at the deadline.
func TestNobodyListens(t *testing.T) {
	dead := dnstest.New(t, "", dnstest.Faults{NoTCP: true}).Addr()
	dead = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.77"), dead.Port()) // the server is on 127.0.0.1 only
	tests := []struct {
		name  string
		env   discovery.Env
		texts []string
	}{
		{"WB-10 connection refused", discovery.Env{Pod: true, DNSServers: []netip.AddrPort{dead}}, []string{dead.String() + ": connection refused", "mesh"}},
		{"WB-05 no nameserver", discovery.Env{ResolvConf: "/nonexistent/resolv.conf"}, []string{"no nameserver in /nonexistent/resolv.conf", "--dns-server"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.env.Size = 3
			p, err := discovery.Registry{"srv": srv.New}.Open("srv://example.com", tt.env)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err = discovery.Await(ctx, p, discovery.AwaitOptions{Env: tt.env, BackoffMin: time.Millisecond})
			var e *discovery.Error
			if !errors.As(err, &e) || e.Kind != discovery.Retry {
				t.Fatalf("got %v, want a Retry", err)
			}
			for _, s := range append(tt.texts, "_etcd-server._tcp.example.com", "gave up at attempt ") {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q lacks %q", err, s)
				}
			}
		})
	}
}
