// Package dnstest runs real DNS servers on loopback for tests: one zone file
// each, on UDP and TCP, with the manners and the faults of servers in the field.
package dnstest

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// Faults are the ways in which a server may misbehave.
type Faults struct {
	Rcode        int                 // answer everything so, if not 0
	Silent       bool                // answer nothing
	NoTCP        bool                // nothing listens on TCP
	NoEDNS       bool                // FORMERR for a question with EDNS0
	DropEDNS     bool                // no answer to a question with EDNS0
	OPTInAnswer  bool                // the question's OPT record comes before the answers
	IgnoreEDNS   bool                // keep to 512 bytes whatever is asked
	NoAdditional bool                // no addresses with SRV records
	NoSOA        bool                // negative answers without SOA
	Lame         bool                // refer to the root
	MixCase      bool                // owner names and targets in upper case
	OnlyA        bool                // additional section without AAAA
	Rewrite      func(m *dns.Msg)    // last change to an answer
	Before       func(q *dns.Msg)    // called with every question
	Raw          func([]byte) []byte // last change to an answer on the wire
}

// Server is a DNS server.
type Server struct {
	addr netip.AddrPort

	mu      sync.Mutex
	rrs     []dns.RR
	faults  Faults
	queries []string
}

// New starts a server with the zone file zone on a free port of 127.0.0.1. It
// stops when the test ends.
func New(tb testing.TB, zone string, faults Faults) *Server {
	tb.Helper()
	s := &Server{faults: faults}
	s.Zone(tb, zone)
	var pc net.PacketConn
	var l net.Listener
	for try := 0; ; try++ {
		var err error
		pc, err = net.ListenPacket("udp", "127.0.0.1:0") //nolint:noctx // a test's server lives as long as the test
		if err != nil {
			tb.Fatal(err)
		}
		s.addr = netip.MustParseAddrPort(pc.LocalAddr().String())
		if faults.NoTCP {
			break
		}
		l, err = net.Listen("tcp", s.addr.String()) //nolint:noctx // a test's server lives as long as the test
		if err == nil {
			break
		}
		if err := pc.Close(); err != nil || try == 20 {
			tb.Fatal("no port that is free on UDP and TCP", err)
		}
	}
	s.serve(tb, &dns.Server{PacketConn: pc, Handler: s})
	if l != nil {
		s.serve(tb, &dns.Server{Listener: l, Handler: s})
	}
	return s
}

func (s *Server) serve(tb testing.TB, d *dns.Server) {
	tb.Helper()
	up := make(chan struct{})
	down := make(chan error, 1)
	d.NotifyStartedFunc = func() { close(up) }
	go func() { down <- d.ActivateAndServe() }()
	<-up
	tb.Cleanup(func() {
		if err := d.Shutdown(); err != nil {
			tb.Error(err)
		}
		if err := <-down; err != nil {
			tb.Error(err)
		}
	})
}

// Addr is where the server listens.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Zone replaces the records by those of a zone file.
func (s *Server) Zone(tb testing.TB, zone string) {
	tb.Helper()
	var rrs []dns.RR
	p := dns.NewZoneParser(strings.NewReader(zone), ".", "zone")
	p.SetDefaultTTL(60)
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		rrs = append(rrs, rr)
	}
	if err := p.Err(); err != nil {
		tb.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rrs = rrs
}

// SetFaults replaces the faults; NoTCP stays as New was told.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Queries lists the questions asked so far: "SRV _etcd-server._tcp.example.org. udp".
func (s *Server) Queries() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.queries...)
}

// ServeDNS answers as a server of the zone does.
func (s *Server) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	faults, rrs := s.faults, s.rrs
	network := w.LocalAddr().Network()
	s.queries = append(s.queries, fmt.Sprintf("%s %s %s", dns.TypeToString[q.Question[0].Qtype], q.Question[0].Name, network))
	s.mu.Unlock()
	if faults.Before != nil {
		faults.Before(q)
	}
	if faults.Silent || faults.DropEDNS && q.IsEdns0() != nil {
		return
	}
	m := answer(rrs, q, faults)
	size := dns.MinMsgSize
	if opt := q.IsEdns0(); opt != nil && !faults.IgnoreEDNS {
		size = int(opt.UDPSize())
		if !faults.NoEDNS {
			m.SetEdns0(opt.UDPSize(), false)
		}
	}
	if opt := q.IsEdns0(); opt != nil && faults.OPTInAnswer {
		m.Answer = append([]dns.RR{opt}, m.Answer...)
	}
	if faults.Rewrite != nil {
		faults.Rewrite(m)
	}
	m.Compress = true
	if network == "udp" {
		m.Truncate(size)
	}
	raw, err := m.Pack()
	if err != nil {
		return
	}
	if faults.Raw != nil {
		raw = faults.Raw(raw)
	}
	_, _ = w.Write(raw) //nolint:errcheck // the client may be gone: that is its test
}

func answer(rrs []dns.RR, q *dns.Msg, faults Faults) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	switch {
	case faults.Rcode != 0:
		return m.SetRcode(q, faults.Rcode)
	case faults.NoEDNS && q.IsEdns0() != nil:
		return m.SetRcode(q, dns.RcodeFormatError)
	case faults.Lame:
		m.Ns = append(m.Ns, &dns.NS{
			Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeNS, Class: dns.ClassINET, Ttl: 60},
			Ns:  "a.root-servers.example.",
		})
		return m
	}
	m.Authoritative = true
	name, qtype := q.Question[0].Name, q.Question[0].Qtype
	exists := false
	for range 10 {
		var next string
		found, ok := lookup(rrs, name)
		exists = ok
		for _, rr := range found {
			if c, ok := rr.(*dns.CNAME); ok && qtype != dns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
				next = c.Target
			} else if rr.Header().Rrtype == qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	if !exists {
		m.Rcode = dns.RcodeNameError
	}
	if !hasType(m.Answer, qtype) && !faults.NoSOA {
		for _, rr := range rrs {
			if rr.Header().Rrtype == dns.TypeSOA && dns.IsSubDomain(rr.Header().Name, name) {
				m.Ns = append(m.Ns, rr)
			}
		}
	}
	if !faults.NoAdditional {
		additional(m, rrs, faults.OnlyA)
	}
	if faults.MixCase {
		mixCase(m)
	}
	return m
}

func additional(m *dns.Msg, rrs []dns.RR, onlyA bool) {
	done := map[string]bool{}
	for _, rr := range m.Answer {
		srv, ok := rr.(*dns.SRV)
		if !ok || done[srv.Target] {
			continue
		}
		done[srv.Target] = true
		found, _ := lookup(rrs, srv.Target)
		for _, a := range found {
			if t := a.Header().Rrtype; t == dns.TypeA || t == dns.TypeAAAA && !onlyA {
				m.Extra = append(m.Extra, a)
			}
		}
	}
}

// lookup is the records of a name, those of a wildcard if it has none, and
// whether the name exists.
func lookup(rrs []dns.RR, name string) (found []dns.RR, exists bool) {
	for _, rr := range rrs {
		h := rr.Header()
		if strings.EqualFold(h.Name, name) {
			found = append(found, rr)
		}
		exists = exists || dns.IsSubDomain(name, h.Name)
	}
	if exists {
		return found, true
	}
	for off, end := dns.NextLabel(name, 0); !end; off, end = dns.NextLabel(name, off) {
		for _, rr := range rrs {
			if strings.EqualFold(rr.Header().Name, "*."+name[off:]) {
				c := dns.Copy(rr)
				c.Header().Name = name
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			return found, true
		}
	}
	return nil, false
}

func hasType(rrs []dns.RR, qtype uint16) bool {
	for _, rr := range rrs {
		if rr.Header().Rrtype == qtype {
			return true
		}
	}
	return false
}

func mixCase(m *dns.Msg) {
	for i, rr := range m.Answer {
		c := dns.Copy(rr)
		c.Header().Name = strings.ToUpper(c.Header().Name)
		if srv, ok := c.(*dns.SRV); ok {
			srv.Target = strings.ToUpper(srv.Target)
		}
		m.Answer[i] = c
	}
}
