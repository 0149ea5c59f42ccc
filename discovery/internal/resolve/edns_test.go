package resolve

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
)

// TestEDNSMistaken: a server, or something on the way, that does not know EDNS0
// is asked without it: soon, and from then on at once.
func TestEDNSMistaken(t *testing.T) {
	tests := []struct {
		name   string
		faults dnstest.Faults
		waits  bool
	}{
		{"FORMERR", dnstest.Faults{NoEDNS: true}, false},
		{"dropped", dnstest.Faults{DropEDNS: true}, true},
		{"dropped, no TCP", dnstest.Faults{DropEDNS: true, NoTCP: true}, true},
		{"OPT among the answers", dnstest.Faults{OPTInAnswer: true}, false},
		{"unreadable", dnstest.Faults{NoTCP: true, Raw: func(raw []byte) []byte {
			if len(raw) > 11 && raw[11] > 0 { // it has an OPT record
				return raw[:len(raw)-3]
			}
			return raw
		}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := dnstest.New(t, zone, tt.faults)
			p := pass(t, 2*time.Second, s.Addr())
			for i := range 3 {
				start := time.Now()
				a, err := p.Ask(t.Context(), "b.example.com", dns.TypeA)
				if err != nil || a.Outcome != Found || len(a.Records) != 1 {
					t.Fatalf("got %v, %v", a, err)
				}
				if d := time.Since(start); d > 1500*time.Millisecond || (i > 0 || !tt.waits) && d > ednsPatience/2 {
					t.Errorf("question %d took %v", i, d)
				}
			}
		})
	}
}

// TestMisplacedOPT: where the sections are shifted without EDNS0 too, nothing
// counts.
func TestMisplacedOPT(t *testing.T) {
	s := dnstest.New(t, zone, dnstest.Faults{Rewrite: func(m *dns.Msg) {
		m.Answer = append([]dns.RR{&dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}}, m.Answer...)
	}})
	p := pass(t, time.Second, s.Addr())
	if a, err := p.Ask(t.Context(), "b.example.com", dns.TypeA); err == nil || !strings.Contains(err.Error(), "OPT record") {
		t.Errorf("got %v, %v", a, err)
	}
}

// TestWithheld: a resolver that takes private addresses out of its answers is
// told of, one that has none is not.
func TestWithheld(t *testing.T) {
	const z = "example.com. SOA ns.example.com. admin.example.com. 1 3600 600 86400 30\nb.example.com. TXT x\n"
	tests := []struct {
		name    string
		rewrite func(m *dns.Msg)
		want    bool
	}{
		{"the zone's own server", func(*dns.Msg) {}, false},
		{"the zone's own server, without SOA", func(m *dns.Msg) { m.Ns = nil }, false},
		{"a resolver", func(m *dns.Msg) { m.Authoritative, m.RecursionAvailable = false, true }, false},
		{"a resolver, no SOA", func(m *dns.Msg) { m.Authoritative, m.RecursionAvailable, m.Ns = false, true, nil }, true},
		{"it says so", func(m *dns.Msg) {
			if opt := m.IsEdns0(); opt != nil {
				opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked})
			}
		}, true},
		{"a resolver, no SOA, and the other family fails", func(m *dns.Msg) {
			m.Authoritative, m.RecursionAvailable, m.Ns = false, true, nil
			if m.Question[0].Qtype == dns.TypeAAAA {
				m.Rcode = dns.RcodeRefused
			}
		}, true},
		{"no such name", func(m *dns.Msg) {
			m.Authoritative, m.RecursionAvailable, m.Ns, m.Rcode = false, true, nil, dns.RcodeNameError
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := dnstest.New(t, z, dnstest.Faults{Rewrite: tt.rewrite})
			p := pass(t, time.Second, s.Addr())
			_, err := p.host(t.Context(), "b.example.com")
			if err == nil {
				t.Fatal("found")
			}
			if got := strings.Contains(strings.Join(err.Hints, " "), "withholds private addresses"); got != tt.want {
				t.Errorf("told %t: %v", got, err)
			}
		})
	}
}
