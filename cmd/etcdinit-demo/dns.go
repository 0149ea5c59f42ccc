package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/miekg/dns"
)

const (
	domain     = "demo.example."
	serverName = "_etcd-server._tcp." + domain
	clientName = "_etcd-client._tcp." + domain
)

// records is what the zone holds: the host names by address.
type records struct {
	port  uint16
	hosts map[string]netip.Addr // absolute name -> address
	order []string
}

// dnsServer answers for the zone on one loopback port, UDP and TCP.
type dnsServer struct {
	addr     netip.AddrPort
	udp, tcp *dns.Server
	zone     records

	mu    sync.Mutex
	asked map[string]int
}

// serveDNS starts the server on a free port.
func serveDNS(zone records) (*dnsServer, error) {
	// TCP first: connections of other programs use up its ports, not those of UDP.
	stream, err := net.Listen("tcp4", "127.0.0.1:0") //nolint:noctx // a listener of its own life
	if err != nil {
		return nil, fmt.Errorf("no loopback TCP port for the DNS server: %w", err)
	}
	addr, err := netip.ParseAddrPort(stream.Addr().String())
	if err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	packets, err := net.ListenPacket("udp4", addr.String()) //nolint:noctx // as above
	if err != nil {
		return nil, errors.Join(fmt.Errorf("no loopback UDP port for the DNS server: %w", err), stream.Close())
	}
	s := &dnsServer{addr: addr, zone: zone, asked: map[string]int{}}
	handler := dns.HandlerFunc(s.answer)
	s.udp = &dns.Server{PacketConn: packets, Handler: handler}
	s.tcp = &dns.Server{Listener: stream, Handler: handler}
	for _, server := range []*dns.Server{s.udp, s.tcp} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		failed := make(chan error, 1)
		go func() { failed <- server.ActivateAndServe() }()
		select {
		case <-started:
		case err := <-failed:
			return nil, err
		}
	}
	return s, nil
}

// set changes the zone.
func (s *dnsServer) set(zone records) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone = zone
}

func (s *dnsServer) stop() error { return errors.Join(s.udp.Shutdown(), s.tcp.Shutdown()) }

// summary says what the agents asked.
func (s *dnsServer) summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("The agents asked DNS %d times for the members and %d times for client URLs.", s.asked[serverName], s.asked[clientName])
}

func (s *dnsServer) answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	m.Authoritative = true
	name := dns.CanonicalName(q.Question[0].Name)
	s.count(name)
	s.mu.Lock()
	zone := s.zone
	s.mu.Unlock()
	switch addr, known := zone.hosts[name]; {
	case name == serverName && q.Question[0].Qtype == dns.TypeSRV:
		for _, host := range zone.order {
			m.Answer = append(m.Answer, &dns.SRV{Hdr: header(name, dns.TypeSRV), Port: zone.port, Target: host})
			m.Extra = append(m.Extra, &dns.A{Hdr: header(host, dns.TypeA), A: zone.hosts[host].AsSlice()})
		}
	case known && q.Question[0].Qtype == dns.TypeA:
		m.Answer = append(m.Answer, &dns.A{Hdr: header(name, dns.TypeA), A: addr.AsSlice()})
	default:
		if !known && name != serverName {
			m.Rcode = dns.RcodeNameError
		}
		m.Ns = []dns.RR{&dns.SOA{Hdr: header(domain, dns.TypeSOA), Ns: "ns." + domain, Mbox: "hostmaster." + domain, Serial: 1, Refresh: 60, Retry: 60, Expire: 60, Minttl: 1}}
	}
	if opt := q.IsEdns0(); opt != nil {
		m.SetEdns0(opt.UDPSize(), false)
		if w.LocalAddr().Network() == "udp" {
			m.Truncate(int(opt.UDPSize()))
		}
	}
	if err := w.WriteMsg(m); err != nil {
		s.count("answers that could not be sent")
	}
}

func (s *dnsServer) count(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[name]++
}

func header(name string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: 5}
}
