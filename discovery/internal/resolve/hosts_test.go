package resolve

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
)

func TestHosts(t *testing.T) {
	s := dnstest.New(t, zone, dnstest.Faults{})
	p := pass(t, time.Second, s.Addr())
	got, err := p.Hosts(t.Context(), []string{"A.example.com.", "a.example.com", "b.example.com", "2001:db8::1", "192.0.2.77"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"a.example.com": "192.0.2.10 2001:db8::10", "b.example.com": "192.0.2.11",
		"2001:db8::1": "2001:db8::1", "192.0.2.77": "192.0.2.77",
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	for name, addrs := range want {
		var list []string
		for _, a := range got[name].Addrs {
			list = append(list, a.String())
		}
		if strings.Join(list, " ") != addrs {
			t.Errorf("%s: got %v, want %s", name, list, addrs)
		}
	}
	if got["b.example.com"].TTL != time.Minute {
		t.Errorf("TTL %v", got["b.example.com"].TTL)
	}
	q := s.Queries()
	slices.Sort(q)
	if len(q) != 4 {
		t.Errorf("queries %q, want A and AAAA of two hosts", q)
	}
}

// TestHostsFamilyFails: a family that fails blocks nobody whom the other one
// finds; nobody is found by the one that fails.
func TestHostsFamilyFails(t *testing.T) {
	s := dnstest.New(t, zone, dnstest.Faults{Rewrite: func(m *dns.Msg) {
		if m.Question[0].Qtype == dns.TypeAAAA {
			m.Answer, m.Rcode = nil, dns.RcodeServerFailure
		}
	}})
	p := pass(t, time.Second, s.Addr())
	for _, p.has6 = range []bool{false, true} {
		got, err := p.Hosts(t.Context(), []string{"a.example.com"})
		if err != nil || len(got["a.example.com"].Addrs) != 1 {
			t.Errorf("IPv6 here: %t: got %v, %v", p.has6, got, err)
		}
	}
	_, err := p.Hosts(t.Context(), []string{"only6.example.com"})
	if err == nil || !strings.Contains(err.Error(), "only6.example.com: SERVFAIL") {
		t.Errorf("a host that may have an address: got %v", err)
	}
}
