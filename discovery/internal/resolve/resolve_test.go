package resolve

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const zone = `
example.com. 60 SOA ns.example.com. admin.example.com. 1 3600 600 86400 30
a.example.com. 60 A 192.0.2.10
a.example.com. 60 AAAA 2001:db8::10
b.example.com. 60 A 192.0.2.11
`

// pass is a pass over servers that are already running.
func pass(t *testing.T, timeout time.Duration, servers ...netip.AddrPort) *Pass {
	t.Helper()
	p, err := New(discovery.Env{DNSServers: servers, LocalAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}).Pass()
	if err != nil {
		t.Fatal(err)
	}
	p.timeout = timeout
	return p
}

// closed is an address where nothing listens.
func closed(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(c.LocalAddr().String())
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return addr
}

// TestServersInTurn: what is an answer ends the search, what is none does not
// (WB-07: which order of nameservers works).
func TestServersInTurn(t *testing.T) {
	good := dnstest.New(t, zone, dnstest.Faults{}).Addr()
	tests := []struct {
		name    string
		first   dnstest.Faults
		zone    string
		outcome Outcome
	}{
		{"NXDOMAIN decides", dnstest.Faults{}, "example.com. SOA ns.example.com. a.example.com. 1 2 3 4 5\n", NXDomain},
		{"NODATA decides", dnstest.Faults{}, "a.example.com. TXT here\n", NoData},
		{"SERVFAIL does not", dnstest.Faults{Rcode: dns.RcodeServerFailure}, zone, Found},
		{"REFUSED does not", dnstest.Faults{Rcode: dns.RcodeRefused}, zone, Found},
		{"NOTIMP does not", dnstest.Faults{Rcode: dns.RcodeNotImplemented}, zone, Found},
		{"a referral does not", dnstest.Faults{Lame: true}, zone, Found},
		{"silence does not", dnstest.Faults{Silent: true}, zone, Found},
		{"a truncated answer does not", dnstest.Faults{NoTCP: true, Rewrite: func(m *dns.Msg) { m.Truncated = true }}, zone, Found},
		{"garbage does not", dnstest.Faults{Raw: func(b []byte) []byte { return b[:len(b)-9] }}, zone, Found},
		{"an answer to another question does not", dnstest.Faults{Rewrite: func(m *dns.Msg) { m.Question[0].Name = "c.example.com." }}, zone, Found},
		{"an answer with another ID does not", dnstest.Faults{Rewrite: func(m *dns.Msg) { m.Id++ }}, zone, Found},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			first := dnstest.New(t, tt.zone, tt.first).Addr()
			p := pass(t, 100*time.Millisecond, first, good)
			a, err := p.Ask(t.Context(), "a.example.com", dns.TypeA)
			if err != nil || a.Outcome != tt.outcome {
				t.Fatalf("got %v, %v, want outcome %v", a, err, tt.outcome)
			}
			want := first
			if tt.outcome == Found {
				want = good
			}
			if a.Server != want {
				t.Errorf("answer from %s, want %s", a.Server, want)
			}
			// In the other order the good server always answers.
			a, err = pass(t, 100*time.Millisecond, good, first).Ask(t.Context(), "a.example.com", dns.TypeA)
			if err != nil || a.Outcome != Found {
				t.Fatalf("good server first: got %v, %v", a, err)
			}
		})
	}
}

func TestNoServerAnswers(t *testing.T) {
	silent := dnstest.New(t, zone, dnstest.Faults{Silent: true})
	servfail := dnstest.New(t, zone, dnstest.Faults{Rcode: dns.RcodeServerFailure})
	dead := closed(t)
	p := pass(t, 50*time.Millisecond, silent.Addr(), servfail.Addr(), dead)
	p.pod = true
	_, err := p.Ask(t.Context(), "_etcd-server._tcp.cluster", dns.TypeSRV)
	var e *discovery.Error
	if !errors.As(err, &e) || e.Kind != discovery.Retry {
		t.Fatalf("got %v, want a Retry", err)
	}
	for _, want := range []string{
		"no answer within 50ms from " + silent.Addr().String(),
		"SERVFAIL from " + servfail.Addr().String(),
		dead.String() + ": connection refused",
		"dig SRV _etcd-server._tcp.cluster",
		"single-label domain",
		"mesh",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if n := len(silent.Queries()); n != 4 {
		t.Errorf("the silent server was asked %d times, want 4, half of them without EDNS0: a lost packet is not the end", n)
	}
	if n := len(servfail.Queries()); n != 1 {
		t.Errorf("the failing server was asked %d times in one pass, want 1", n)
	}
}

// TestSilentServerLast: a dead first nameserver costs its timeout once, not
// for every question.
func TestSilentServerLast(t *testing.T) {
	silent := dnstest.New(t, zone, dnstest.Faults{Silent: true})
	good := dnstest.New(t, zone, dnstest.Faults{})
	p := pass(t, 50*time.Millisecond, silent.Addr(), good.Addr())
	for range 5 {
		if _, err := p.Ask(t.Context(), "a.example.com", dns.TypeA); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(silent.Queries()); n != 2 {
		t.Errorf("the silent server was asked %d times, want once with EDNS0 and once without", n)
	}
}

// TestForgery: an answer with another ID, or to another question, does not
// keep the right one from being read.
func TestForgery(t *testing.T) {
	c, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		n, from, cause := c.ReadFrom(buf)
		q := new(dns.Msg)
		if cause != nil || q.Unpack(buf[:n]) != nil {
			return
		}
		send := func(change func(m *dns.Msg), ip string) {
			m := new(dns.Msg)
			m.SetReply(q)
			rr, cause := dns.NewRR("a.example.com. 60 A " + ip)
			if cause != nil {
				t.Error(cause)
			}
			m.Answer = []dns.RR{rr}
			change(m)
			raw, cause := m.Pack()
			if cause != nil {
				t.Error(cause)
			}
			if _, cause := c.WriteTo(raw, from); cause != nil {
				t.Error(cause)
			}
		}
		if _, cause := c.WriteTo([]byte{1, 2, 3}, from); cause != nil {
			t.Error(cause)
		}
		send(func(m *dns.Msg) { m.Id++ }, "203.0.113.1")
		send(func(m *dns.Msg) { m.Question[0].Name = "b.example.com." }, "203.0.113.2")
		send(func(m *dns.Msg) { m.Response = false }, "203.0.113.3")
		send(func(*dns.Msg) {}, "192.0.2.10")
	}()
	p := pass(t, time.Second, netip.MustParseAddrPort(c.LocalAddr().String()))
	a, err := p.Ask(t.Context(), "a.example.com", dns.TypeA)
	<-done
	if cause := c.Close(); cause != nil {
		t.Error(cause)
	}
	if err != nil || Addr(a.Records[0]) != netip.MustParseAddr("192.0.2.10") {
		t.Fatalf("got %v, %v", a, err)
	}
}

// TestCutRecord: a datagram that ends in the middle of a record and says TC=1
// is repeated over TCP, like one that ends between records.
func TestCutRecord(t *testing.T) {
	s := dnstest.New(t, zone, dnstest.Faults{})
	var cut atomic.Bool
	s.SetFaults(dnstest.Faults{Raw: func(b []byte) []byte {
		if cut.Swap(true) {
			return b
		}
		b[2] |= 2 // TC
		return b[:len(b)-13]
	}})
	a, err := pass(t, time.Second, s.Addr()).Ask(t.Context(), "a.example.com", dns.TypeA)
	if err != nil || a.Outcome != Found {
		t.Fatalf("got %v, %v", a, err)
	}
	if q := s.Queries(); len(q) != 2 || !strings.HasSuffix(q[1], " tcp") {
		t.Errorf("queries %q, want UDP, then TCP", q)
	}
}

// TestCutRecordNoTCP: SB-07, without TCP the reason is said.
func TestCutRecordNoTCP(t *testing.T) {
	s := dnstest.New(t, zone, dnstest.Faults{NoTCP: true, Raw: func(b []byte) []byte {
		b[2] |= 2 // TC
		return b[:len(b)-13]
	}})
	_, err := pass(t, time.Second, s.Addr()).Ask(t.Context(), "a.example.com", dns.TypeA)
	want := "answer truncated (TC=1), TCP to " + s.Addr().String() + " failed: connection refused"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestResolvConf: WB-05, the file is read anew at every pass, and its search
// list is not used (SB-14).
func TestResolvConf(t *testing.T) {
	s := dnstest.New(t, zone+"*.corp.example. A 203.0.113.9\n", dnstest.Faults{})
	path := filepath.Join(t.TempDir(), "resolv.conf")
	c := New(discovery.Env{ResolvConf: path})
	c.port = s.Addr().Port()
	want := func(text string) {
		t.Helper()
		_, err := c.Pass()
		var e *discovery.Error
		if !errors.As(err, &e) || e.Kind != discovery.Retry || !strings.Contains(err.Error(), text) {
			t.Fatalf("got %v, want a Retry with %q", err, text)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want("no nameserver in " + path + ": no such file")
	write("")
	want("no nameserver in " + path)
	write("nameserver localhost\n")
	want(`no nameserver in ` + path + `: "localhost" is no IP address`)
	write("search svc.cluster.local corp.example\nnameserver 127.0.0.1\nnameserver 127.0.0.1\noptions ndots:5 timeout:1 attempts:9\n")
	p, err := c.Pass()
	if err != nil {
		t.Fatal(err)
	}
	if p.timeout != time.Second || p.attempts != maxAttempts || len(p.servers) != 1 {
		t.Errorf("timeout %v, attempts %d, servers %v", p.timeout, p.attempts, p.servers)
	}
	if _, err := p.Hosts(t.Context(), []string{"b.example.com"}); err != nil {
		t.Fatal(err)
	}
	if a, err := p.Ask(t.Context(), "b", dns.TypeA); err != nil || a.Outcome != NXDomain {
		t.Fatalf("a short name must not be searched: %v, %v", a, err)
	}
	for _, q := range s.Queries() {
		if strings.Contains(q, "corp") || strings.Contains(q, "svc") {
			t.Errorf("query %q is from the search list", q)
		}
	}
	write("\xef\xbb\xbfNAMESERVER 127.0.0.1\r\nOptions timeout:1\r\n")
	if p, err := c.Pass(); err != nil || len(p.servers) != 1 || p.timeout != time.Second {
		t.Errorf("a file of another system: %v, %v", p, err)
	}
	write("nameserver 127.0.0.1\noptions timeout:30\n")
	if p, err := c.Pass(); err != nil || p.timeout != maxTimeout {
		t.Errorf("timeout %v, %v, want at most %v", p.timeout, err, maxTimeout)
	}
}

func TestNegativeAfter(t *testing.T) {
	tests := []struct {
		name string
		soa  string
		want time.Duration
	}{
		{"minimum 0", "example.com. 60 SOA a. b. 1 2 3 4 0\n", 0},
		{"TTL of the SOA is shorter", "example.com. 0 SOA a. b. 1 2 3 4 7\n", 0},
		{"Kubernetes says 30 s", "example.com. 30 SOA a. b. 1 2 3 4 30\n", maxNegative},
		{"an hour is not believed", "example.com. 9000 SOA a. b. 1 2 3 4 3600\n", maxNegative},
		{"none", "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := dnstest.New(t, tt.soa, dnstest.Faults{})
			a, err := pass(t, time.Second, s.Addr()).Ask(t.Context(), "x.example.com", dns.TypeSRV)
			if err != nil {
				t.Fatal(err)
			}
			if e := a.Negative(); e.After != tt.want || e.Kind != discovery.Retry {
				t.Errorf("got %v after %v, want %v", e, e.After, tt.want)
			}
		})
	}
}

func TestAliasChain(t *testing.T) {
	s := dnstest.New(t, zone+`
c1.example.com. CNAME c2.example.com.
c2.example.com. CNAME A.example.com.
self.example.com. CNAME self.example.com.
d1.example.com. CNAME d2.example.com.
d2.example.com. CNAME d3.example.com.
d3.example.com. CNAME d4.example.com.
d4.example.com. CNAME d5.example.com.
d5.example.com. CNAME d6.example.com.
d6.example.com. CNAME d7.example.com.
d7.example.com. CNAME d8.example.com.
d8.example.com. CNAME d9.example.com.
d9.example.com. CNAME a.example.com.
`, dnstest.Faults{})
	onlyFirst := func(m *dns.Msg) { // as a server that does not know the target's zone
		if len(m.Answer) > 1 {
			m.Answer, m.Ns = m.Answer[:1], nil
		}
	}
	for _, tt := range []struct {
		name    string
		rewrite func(m *dns.Msg)
		queries int
	}{{"one answer", nil, 1}, {"one link an answer", onlyFirst, 3}} {
		t.Run(tt.name, func(t *testing.T) {
			s.SetFaults(dnstest.Faults{Rewrite: tt.rewrite})
			before := len(s.Queries())
			p := pass(t, time.Second, s.Addr())
			a, err := p.Ask(t.Context(), "c1.example.com", dns.TypeA)
			if err != nil || a.Outcome != Found || a.Alias != "a.example.com" {
				t.Fatalf("got %+v, %v", a, err)
			}
			if n := len(s.Queries()) - before; n != tt.queries {
				t.Errorf("%d queries, want %d", n, tt.queries)
			}
			for _, name := range []string{"self.example.com", "d1.example.com"} {
				_, err := p.Ask(t.Context(), name, dns.TypeA)
				var e *discovery.Error
				if !errors.As(err, &e) || e.Kind != discovery.Retry || e.AtDeadline != discovery.Unusable {
					t.Errorf("%s: got %v, want a Retry that turns Unusable", name, err)
				}
			}
		})
	}
}

func TestServer(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.53": "192.0.2.53:53", "192.0.2.53:5353": "192.0.2.53:5353",
		"2001:db8::53": "[2001:db8::53]:53", "[2001:db8::53]": "[2001:db8::53]:53", "[2001:db8::53]:5353": "[2001:db8::53]:5353",
	} {
		if got, err := Server(in); err != nil || got.String() != want {
			t.Errorf("%s: got %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "ns.example.com", "192.0.2.53:0", "192.0.2.53:", "192.0.2", "192.0.2.53:99999"} {
		if got, err := Server(in); err == nil {
			t.Errorf("%q: got %s, want an error", in, got)
		}
	}
}

// FuzzRead: whatever a message says, reading it ends, and finds only records
// of the type and name, or their alias.
func FuzzRead(f *testing.F) {
	for _, rrs := range [][]string{
		{"a.example.com. 60 A 192.0.2.10"},
		{"a.example.com. 60 CNAME b.example.com.", "b.example.com. 60 A 192.0.2.11"},
		{"a.example.com. 60 CNAME b.example.com.", "b.example.com. 60 CNAME a.example.com."},
	} {
		m := new(dns.Msg)
		m.SetQuestion("a.example.com.", dns.TypeA)
		for _, s := range rrs {
			rr, err := dns.NewRR(s)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		raw, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := new(dns.Msg)
		if m.Unpack(raw) != nil {
			return
		}
		r := read(m, "a.example.com", dns.TypeA)
		if (r.outcome == Found) != (len(r.records) > 0) {
			t.Errorf("outcome %v with %d records", r.outcome, len(r.records))
		}
		if len(r.aliases) > maxAliases+1 {
			t.Errorf("%d aliases", len(r.aliases))
		}
		for _, rr := range r.records {
			if rr.Header().Rrtype != dns.TypeA {
				t.Errorf("record %v", rr)
			}
		}
	})
}

// TestTelling: the command to paste asks a server that answers, where one does.
func TestTelling(t *testing.T) {
	dead, says := netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:53")
	failures := map[netip.AddrPort]*failure{dead: {server: dead, text: "silence", silent: true, rcode: -1}, says: {server: says, text: "REFUSED", rcode: dns.RcodeRefused}}
	for _, tt := range []struct {
		asked []netip.AddrPort
		want  string
	}{
		{[]netip.AddrPort{dead, says}, "@192.0.2.2)"},
		{[]netip.AddrPort{says, dead}, "@192.0.2.2)"},
		{[]netip.AddrPort{dead}, "@192.0.2.1)"},
	} {
		for _, pod := range []bool{false, true} {
			err := unanswered(pod, "example.org", dns.TypeSRV, tt.asked, failures)
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("asked %v: %v does not name %s", tt.asked, err, tt.want)
			}
			if strings.Contains(err.Error(), "service mesh") != pod {
				t.Errorf("in a pod: %t: %v", pod, err)
			}
		}
	}
}
