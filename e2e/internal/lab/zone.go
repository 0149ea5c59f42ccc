//go:build e2e

package lab

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Zone is what a DNS server of the lab serves.
type Zone struct {
	Origin string // without trailing dot
	TTL    int    // seconds

	srv  []srvRecord
	addr []addrRecord
}

type srvRecord struct {
	service, target string
	port            int
}

type addrRecord struct {
	name string
	addr netip.Addr
}

// NewZone is an empty zone.
func NewZone(origin string, ttl time.Duration) *Zone {
	return &Zone{Origin: origin, TTL: int(ttl / time.Second)}
}

// Records is the zone example.org in which _etcd-server._tcp names all hosts
// at port 2380, with the addresses of each.
func Records(hosts []*Host) *Zone {
	return NewZone("example.org", 30*time.Second).SRV("_etcd-server", 2380, hosts...).Addrs(hosts...)
}

// SRV adds a record of a service for each host: "_etcd-server", say.
func (z *Zone) SRV(service string, port int, hosts ...*Host) *Zone {
	for _, h := range hosts {
		z.srv = append(z.srv, srvRecord{service + "._tcp." + z.Origin, h.Name + "." + z.Origin, port})
	}
	return z
}

// Addrs adds the addresses that the hosts have now.
func (z *Zone) Addrs(hosts ...*Host) *Zone {
	for _, h := range hosts {
		for _, addr := range h.Addrs() {
			z.addr = append(z.addr, addrRecord{h.Name + "." + z.Origin, addr})
		}
	}
	return z
}

// RoundRobin adds a name that has the addresses of all hosts.
func (z *Zone) RoundRobin(name string, hosts ...*Host) *Zone {
	for _, h := range hosts {
		for _, addr := range h.Addrs() {
			z.addr = append(z.addr, addrRecord{name + "." + z.Origin, addr})
		}
	}
	return z
}

// FQDN is a host's name in the zone, without trailing dot.
func (z *Zone) FQDN(h *Host) string { return h.Name + "." + z.Origin }

// records are the zone's records in the form of a zone file.
func (z *Zone) records() []string {
	var lines []string
	for _, r := range z.srv {
		lines = append(lines, fmt.Sprintf("%s. %d IN SRV 0 0 %d %s.", r.service, z.TTL, r.port, r.target))
	}
	for _, r := range z.addr {
		kind := "A"
		if r.addr.Is6() {
			kind = "AAAA"
		}
		lines = append(lines, fmt.Sprintf("%s. %d IN %s %s", r.name, z.TTL, kind, r.addr))
	}
	return lines
}

// file is the zone as a master file with this serial.
func (z *Zone) file(serial int) string {
	return fmt.Sprintf("$ORIGIN %[1]s.\n@ %[2]d IN SOA ns.%[1]s. hostmaster.%[1]s. %[3]d 3600 600 86400 1\n@ %[2]d IN NS ns.%[1]s.\nns %[2]d IN A 192.0.2.53\n%[4]s\n",
		z.Origin, z.TTL, serial, strings.Join(z.records(), "\n"))
}

// Answer is the zone's answer to a question, with the addresses of SRV targets
// in the additional section.
func (z *Zone) Answer(q Query) *dns.Msg {
	reply := new(dns.Msg).SetReply(q.Msg)
	reply.Authoritative = true
	exists := false
	extra := map[string]bool{}
	var all []dns.RR
	for _, line := range z.records() {
		rr, err := dns.NewRR(line)
		if err != nil {
			reply.Rcode = dns.RcodeServerFailure
			return reply
		}
		all = append(all, rr)
		if !strings.EqualFold(rr.Header().Name, q.Name) {
			continue
		}
		exists = true
		if rr.Header().Rrtype == q.Type {
			reply.Answer = append(reply.Answer, rr)
			if srv, ok := rr.(*dns.SRV); ok {
				extra[srv.Target] = true
			}
		}
	}
	for _, rr := range all {
		if rr.Header().Rrtype != dns.TypeSRV && extra[rr.Header().Name] {
			reply.Extra = append(reply.Extra, rr)
		}
	}
	if len(reply.Answer) == 0 {
		if soa, err := dns.NewRR(fmt.Sprintf("%[1]s. 1 IN SOA ns.%[1]s. hostmaster.%[1]s. 1 3600 600 86400 1", z.Origin)); err == nil {
			reply.Ns = []dns.RR{soa}
		}
		if !exists {
			reply.Rcode = dns.RcodeNameError
		}
	}
	return reply
}
