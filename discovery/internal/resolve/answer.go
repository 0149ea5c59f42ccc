package resolve

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// Outcome is what a server said.
type Outcome int

const (
	// Found says that there are records.
	Found Outcome = iota + 1
	// NoData says that the name exists, but not with this type (NOERROR without records).
	NoData
	// NXDomain says that the name does not exist.
	NXDomain
)

// Answer is the definite answer of one server to one question.
type Answer struct {
	Name       string // as asked: lower-case, without trailing dot
	Type       uint16
	Server     netip.AddrPort
	Outcome    Outcome
	Records    []dns.RR      // of the type asked, at the end of all aliases; empty unless Found
	Additional []dns.RR      // what the server sent along
	Alias      string        // the name behind the aliases, "" where there are none
	TTL        time.Duration // the longest of the records and aliases: for so long caches may give older ones
	Minimum    time.Duration // of a negative answer: how long caches keep it; 0: not said
	Withheld   bool          // no records, in the way of a resolver that has taken them out
}

// Dig is the question in the words of dig, to be pasted into a shell.
func Dig(name string, qtype uint16, server netip.AddrPort) string {
	s := "dig " + dns.TypeToString[qtype] + " " + name
	if server.IsValid() {
		s += " @" + server.Addr().String()
		if server.Port() != 53 {
			s += fmt.Sprintf(" -p %d", server.Port())
		}
	}
	return s
}

// Said is what the server said, and which one: "NXDOMAIN, SOA minimum 30 s, from 192.0.2.53:53".
func (a Answer) Said() string {
	s := "records"
	switch a.Outcome {
	case Found:
	case NoData:
		s = fmt.Sprintf("NOERROR but no %s records", dns.TypeToString[a.Type])
	case NXDomain:
		s = "NXDOMAIN"
	}
	if a.Minimum > 0 {
		s += fmt.Sprintf(", SOA minimum %d s,", int(a.Minimum.Seconds()))
	}
	return s + " from " + a.Server.String()
}

// Negative is the error of an answer without records: not yet.
func (a Answer) Negative() *discovery.Error {
	e := &discovery.Error{Kind: discovery.Retry, After: min(a.Minimum, maxNegative)}
	if a.Alias != "" {
		e.AtDeadline = discovery.Unusable
		e.Msg = fmt.Sprintf("%s is an alias of %s, which has no %s record: ", a.Name, a.Alias, dns.TypeToString[a.Type])
	}
	e.Msg += fmt.Sprintf("%s (%s)", a.Said(), Dig(a.Name, a.Type, a.Server))
	return e
}

// Ask asks the servers in turn until one answers definitely, and follows
// aliases. name is taken as absolute.
func (p *Pass) Ask(ctx context.Context, name string, qtype uint16) (Answer, error) {
	a := Answer{Name: hosturl.Canonical(name), Type: qtype}
	chain := []string{a.Name}
	for {
		at := chain[len(chain)-1]
		msg, server, err := p.any(ctx, at, qtype)
		if err != nil {
			return a, err
		}
		a.Server = server
		r := read(msg, at, qtype)
		a.TTL = max(a.TTL, r.ttl)
		for _, next := range r.aliases {
			chain = append(chain, next)
			if len(chain) > maxAliases || slices.Contains(chain[:len(chain)-1], next) {
				return a, &discovery.Error{
					Kind:       discovery.Retry,
					AtDeadline: discovery.Unusable,
					Msg: fmt.Sprintf("%s is an alias that does not end: %s (%s)",
						a.Name, strings.Join(chain, " -> "), Dig(a.Name, qtype, server)),
				}
			}
		}
		if len(chain) > 1 {
			a.Alias = chain[len(chain)-1]
		}
		if r.outcome == 0 { // an alias into a zone that this answer does not cover
			continue
		}
		a.Outcome, a.Records, a.Additional, a.Minimum = r.outcome, r.records, msg.Extra, r.minimum
		a.Withheld = withheld(msg, r)
		return a, nil
	}
}

// withheld tells an answer out of which a resolver has taken the records: it says
// so (RFC 8914), or it has looked elsewhere and gives no records and no SOA, as
// dnsmasq's stop-dns-rebind, unbound's private-address and home routers do with
// private addresses.
func withheld(msg *dns.Msg, r reading) bool {
	if r.outcome != NoData {
		return false
	}
	if opt := msg.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok && slices.Contains([]uint16{dns.ExtendedErrorCodeBlocked, dns.ExtendedErrorCodeCensored, dns.ExtendedErrorCodeFiltered}, e.InfoCode) {
				return true
			}
		}
	}
	return msg.RecursionAvailable && !msg.Authoritative && len(msg.Answer) == 0 && len(msg.Ns) == 0
}

// any is the answer of the first server that gives one.
func (p *Pass) any(ctx context.Context, name string, qtype uint16) (*dns.Msg, netip.AddrPort, error) {
	failures := map[netip.AddrPort]*failure{}
	var asked []netip.AddrPort
	for range p.attempts {
		for _, server := range p.order() {
			if f := failures[server]; f != nil && !f.silent {
				continue
			}
			msg, f := p.exchange(ctx, server, name, qtype)
			if f == nil {
				return msg, server, nil
			}
			if f.silent {
				p.setSilent(server)
			}
			if failures[server] == nil {
				asked = append(asked, server)
			}
			failures[server] = f
			if over(ctx) {
				break
			}
		}
		if over(ctx) {
			break
		}
	}
	return nil, netip.AddrPort{}, unanswered(p.pod, name, qtype, asked, failures)
}

// unanswered lists what each server had to say, and the likely reasons.
func unanswered(pod bool, name string, qtype uint16, asked []netip.AddrPort, failures map[netip.AddrPort]*failure) error {
	e := &discovery.Error{Kind: discovery.Retry}
	var texts []string
	var servfail, dead bool
	var telling netip.AddrPort // the first that answered, else the first
	for i, s := range asked {
		f := failures[s]
		if i == 0 || failures[telling].rcode < 0 && f.rcode >= 0 {
			telling = s
		}
		texts = append(texts, f.text)
		servfail = servfail || f.rcode == dns.RcodeServerFailure
		dead = dead || f.refused || f.silent
	}
	e.Msg = fmt.Sprintf("%s (%s)", strings.Join(texts, "; "), Dig(name, qtype, telling))
	if domain := domainOf(name); servfail && !strings.Contains(domain, ".") {
		e.Hints = append(e.Hints, fmt.Sprintf("%q is a single-label domain, which systemd-resolved does not resolve by default; ask the real server with --dns-server", domain))
	}
	if dead && pod {
		e.Hints = append(e.Hints, "where a service mesh captures DNS, its side-car may not run yet when an init container does")
	}
	return e
}

// domainOf is the name without the labels of a service: example.org of
// _etcd-server._tcp.example.org.
func domainOf(name string) string {
	for strings.HasPrefix(name, "_") {
		_, name, _ = strings.Cut(name, ".")
	}
	return name
}

// reading is what one message says about one name.
type reading struct {
	outcome Outcome // 0: the message ends at an alias
	aliases []string
	records []dns.RR
	ttl     time.Duration
	minimum time.Duration
}

// read takes the records of name out of the answer, through its aliases.
// Owner names compare without case.
func read(msg *dns.Msg, name string, qtype uint16) reading {
	var r reading
	seen := map[string]bool{name: true}
	for at := name; ; {
		var next string
		for _, rr := range msg.Answer {
			h := rr.Header()
			if h.Class != dns.ClassINET || canonical(h.Name) != at {
				continue
			}
			if c, ok := rr.(*dns.CNAME); ok && qtype != dns.TypeCNAME {
				next = canonical(c.Target)
				r.ttl = max(r.ttl, seconds(h.Ttl))
			}
			if h.Rrtype == qtype {
				r.records = append(r.records, rr)
				r.ttl = max(r.ttl, seconds(h.Ttl))
			}
		}
		if len(r.records) > 0 {
			r.outcome = Found
			return r
		}
		if next == "" {
			break
		}
		r.aliases = append(r.aliases, next)
		if seen[next] || len(r.aliases) > maxAliases { // Ask names the loop
			return r
		}
		seen[next] = true
		at = next
	}
	last := name
	if n := len(r.aliases); n > 0 {
		last = r.aliases[n-1]
	}
	covered := len(r.aliases) == 0
	for _, rr := range msg.Ns {
		if soa, ok := rr.(*dns.SOA); ok && dns.IsSubDomain(soa.Hdr.Name, dns.Fqdn(last)) {
			covered = true
			r.minimum = seconds(min(soa.Minttl, soa.Hdr.Ttl))
		}
	}
	switch {
	case msg.Rcode == dns.RcodeNameError:
		r.outcome = NXDomain
	case covered:
		r.outcome = NoData
	}
	return r
}

func canonical(name string) string { return hosturl.Canonical(name) }

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }
