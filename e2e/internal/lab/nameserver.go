//go:build e2e

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// CoreDNS serves the zone on a host; the lines of extra are plugins for its
// Corefile ("cache 30"). UpdateCoreDNS changes the zone.
func (l *Lab) CoreDNS(h *Host, zone *Zone, extra ...string) *Proc {
	l.t.Helper()
	h.Write("zone.1", zone.file(1))
	h.Write("zone", zone.file(1))
	h.Write("Corefile", fmt.Sprintf(".:53 {\n\tbind %s\n\terrors\n\tlog\n\t%s\n\tfile %s/zone %s {\n\t\treload 200ms\n\t}\n}\n",
		join(h.Addrs(), " "), strings.Join(extra, "\n\t"), l.Home, zone.Origin))
	p := h.Start(l.Tool("coredns"), "-conf", "Corefile")
	l.answers(h, p, zone)
	return p
}

// UpdateCoreDNS changes the zone that CoreDNS on the host has; caches in front
// of it go on as they do.
func (l *Lab) UpdateCoreDNS(h *Host, zone *Zone) {
	l.t.Helper()
	h.mu.Lock()
	h.updates++
	serial := 1 + h.updates
	h.mu.Unlock()
	h.Write("zone", zone.file(serial))
}

// Dnsmasq serves the zone on a host.
func (l *Lab) Dnsmasq(h *Host, zone *Zone) *Proc {
	l.t.Helper()
	args := []string{
		"--no-daemon", "--conf-file=/dev/null", "--no-hosts", "--no-resolv", "--user=root", "--pid-file=", "--log-queries",
		"--bind-interfaces", "--listen-address=" + join(h.Addrs(), ","), "--local=/" + zone.Origin + "/", fmt.Sprintf("--local-ttl=%d", zone.TTL),
	}
	for _, r := range zone.srv {
		args = append(args, fmt.Sprintf("--srv-host=%s,%s,%d", r.service, r.target, r.port))
	}
	for _, r := range zone.addr {
		args = append(args, fmt.Sprintf("--host-record=%s,%s", r.name, r.addr))
	}
	p := h.Start(l.Tool("dnsmasq"), args...)
	l.answers(h, p, zone)
	return p
}

// Bind serves the zone on a host with BIND's named.
func (l *Lab) Bind(h *Host, zone *Zone) *Proc {
	l.t.Helper()
	h.Write("zone", zone.file(1))
	v4, v6 := "none;", "none;"
	for _, addr := range h.Addrs() {
		if addr.Is4() {
			v4 = addr.String() + ";"
		} else {
			v6 = addr.String() + ";"
		}
	}
	h.Write("named.conf", fmt.Sprintf(`options {
	directory %[1]q; pid-file none; session-keyfile %[2]q; managed-keys-directory %[1]q;
	listen-on { %[3]s }; listen-on-v6 { %[4]s }; recursion no; dnssec-validation no; minimal-responses no;
};
controls { };
zone %[5]q { type primary; file "zone"; };
`, l.Home, l.Home+"/session.key", v4, v6, zone.Origin))
	p := h.Start(l.Tool("named"), "-g", "-n", "1", "-c", l.Home+"/named.conf")
	l.answers(h, p, zone)
	return p
}

// answers waits until a server answers for the zone.
func (l *Lab) answers(h *Host, p *Proc, zone *Zone) {
	l.t.Helper()
	l.Eventually("a DNS answer from "+h.Name, 20*time.Second, func() error {
		if !p.Running() {
			l.t.Fatalf("%s: %s ended\n%s", h.Name, p.line, lastLines(p.Log(), 20))
		}
		query := new(dns.Msg).SetQuestion(zone.Origin+".", dns.TypeSOA)
		ctx, cancel := context.WithTimeout(l.ctx, time.Second)
		defer cancel()
		conn, err := h.Dial(ctx, "udp", netip.AddrPortFrom(h.Addrs()[0], 53).String())
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // a datagram socket
		reply, _, err := new(dns.Client).ExchangeWithConnContext(ctx, query, &dns.Conn{Conn: conn})
		if err == nil && reply.Rcode == dns.RcodeServerFailure {
			err = errors.New("SERVFAIL")
		}
		return err
	})
}

func join(addrs []netip.Addr, by string) string {
	words := make([]string, 0, len(addrs))
	for _, addr := range addrs {
		words = append(words, addr.String())
	}
	return strings.Join(words, by)
}

// Query is one question that a scripted server was asked.
type Query struct {
	Msg  *dns.Msg
	Name string // as asked, with trailing dot
	Type uint16
	TCP  bool
	From *Host // nil where it came from no host of the lab
	Nth  int   // how often this name and type were asked, this time included
	At   time.Time
}

// Script is a DNS server that answers as a Go function says.
type Script struct {
	lab *Lab

	mu     sync.Mutex
	answer func(Query) *dns.Msg
	asked  []Query
}

// Script serves DNS on a host: what answer returns is sent, nil is silence.
// Zone.Answer is the answer of an ordinary server.
func (l *Lab) Script(h *Host, answer func(q Query) *dns.Msg) *Script {
	l.t.Helper()
	s := &Script{lab: l, answer: answer}
	for _, addr := range h.Addrs() {
		at := netip.AddrPortFrom(addr, 53).String()
		s.serve(&dns.Server{PacketConn: h.ListenPacket(at)})
		s.serve(&dns.Server{Listener: h.Listen(at)})
	}
	return s
}

// Answer changes what is answered from now on.
func (s *Script) Answer(answer func(q Query) *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// Asked are all questions so far.
func (s *Script) Asked() []Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Query(nil), s.asked...)
}

// Forget starts the list of questions anew.
func (s *Script) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = nil
}

func (s *Script) serve(server *dns.Server) {
	server.Handler = dns.HandlerFunc(s.handle)
	go func() {
		_ = server.ActivateAndServe() //nolint:errcheck // ends with the test, when its socket is closed
	}()
}

func (s *Script) handle(w dns.ResponseWriter, msg *dns.Msg) {
	if len(msg.Question) != 1 {
		return
	}
	q := Query{Msg: msg, Name: msg.Question[0].Name, Type: msg.Question[0].Qtype, At: time.Now(), Nth: 1}
	q.TCP = w.RemoteAddr().Network() == "tcp"
	if from, err := netip.ParseAddrPort(w.RemoteAddr().String()); err == nil {
		q.From = s.lab.hostOf(from.Addr().Unmap())
	}
	s.mu.Lock()
	for _, before := range s.asked {
		if before.Name == q.Name && before.Type == q.Type {
			q.Nth++
		}
	}
	s.asked = append(s.asked, q)
	answer := s.answer
	s.mu.Unlock()
	if reply := answer(q); reply != nil {
		_ = w.WriteMsg(reply) //nolint:errcheck // who asked may be gone
	}
}

func (l *Lab) hostOf(addr netip.Addr) *Host {
	for _, h := range l.allHosts() {
		if slices.Contains(h.Addrs(), addr) {
			return h
		}
	}
	return nil
}

// Lookup is what the server on a host answers now, as text, one line a record
// of the answer section.
func (l *Lab) Lookup(server *Host, name string, kind uint16) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, 2*time.Second)
	defer cancel()
	conn, err := server.Dial(ctx, "udp", netip.AddrPortFrom(server.Addrs()[0], 53).String())
	l.must(err)
	defer conn.Close() //nolint:errcheck // a datagram socket
	reply, _, err := new(dns.Client).ExchangeWithConnContext(ctx, new(dns.Msg).SetQuestion(dns.Fqdn(name), kind), &dns.Conn{Conn: conn})
	l.must(err)
	lines := make([]string, 0, len(reply.Answer))
	for _, rr := range reply.Answer {
		lines = append(lines, rr.String())
	}
	return strings.Join(lines, "\n")
}
