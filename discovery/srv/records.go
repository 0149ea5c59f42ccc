package srv

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// peers reads the records: each host and port once, in the records' order. It
// refuses what no later answer with these records can fix, before it counts.
func (p *provider) peers(a resolve.Answer) ([]discovery.Peer, error) {
	var peers []discovery.Peer
	var priorities []uint16
	for _, rr := range a.Records {
		r, ok := rr.(*dns.SRV)
		if !ok {
			continue
		}
		peer := discovery.Peer{Host: hosturl.Canonical(r.Target), Port: r.Port, TTL: a.TTL}
		same := func(q discovery.Peer) bool { return q.Host == peer.Host && q.Port == peer.Port }
		if slices.ContainsFunc(peers, same) {
			continue
		}
		if err := p.target(a, r, peer.Host); err != nil {
			return nil, err
		}
		u := hosturl.URL{Scheme: p.env.PeerScheme, Host: peer.Host, Port: peer.Port}
		peer.PeerURLs = []string{u.String()}
		peers = append(peers, peer)
		priorities = append(priorities, r.Priority)
	}
	if err := p.ports(a, peers, priorities); err != nil {
		return nil, err
	}
	if len(peers) == 1 && peers[0].Host == p.domain && p.env.Size != 1 {
		return nil, p.unusable(a, "the one SRV target is the domain itself, %s%s", p.domain, p.headless(p.domain, ": each member needs a record with its own host", ": the service is not headless, it needs clusterIP: None"))
	}
	return peers, p.count(a, peers)
}

// target refuses a record by itself.
func (p *provider) target(a resolve.Answer, r *dns.SRV, host string) error {
	if host == "" {
		return p.unusable(a, "the SRV target is '.', which says that the domain does not have this service")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return p.unusable(a, "SRV target is an IP address, %s, but it must be a host name", host)
	}
	if r.Port == 0 {
		return p.unusable(a, "SRV target %s has port 0%s", host,
			p.headless(host, ", where the peer port belongs", ": ask for a named port, and see that the service is headless and the pods' names are set (pod hostname / subdomain not set?)"))
	}
	if err := hosturl.CheckHost(host); err != nil {
		return p.unusable(a, "SRV target: %v", err)
	}
	return nil
}

// headless is advice for Kubernetes where this is one, else the other words.
func (p *provider) headless(host, elsewhere, kubernetes string) string {
	if p.env.Kubernetes(p.domain) || discovery.PodHash(host) {
		return kubernetes
	}
	return elsewhere
}

// ports compares with the port that this node's etcd listens on: all nodes
// have one configuration. A node that was told who it is may be behind another
// port.
func (p *provider) ports(a resolve.Answer, peers []discovery.Peer, priorities []uint16) error {
	if len(p.env.PeerPorts) == 0 || len(peers) == 0 {
		return nil
	}
	for _, peer := range peers {
		if slices.Contains(p.env.PeerPorts, peer.Port) {
			return nil
		}
	}
	var want []string
	for _, port := range p.env.PeerPorts {
		want = append(want, strconv.Itoa(int(port)))
	}
	hint := ""
	for i, priority := range priorities {
		if slices.Contains(p.env.PeerPorts, priority) {
			hint = fmt.Sprintf("; priority %d, port %d: fields swapped? (SRV is: priority weight port target)", priority, peers[i].Port)
			break
		}
	}
	got := peers[0].Port
	switch {
	case hint != "":
	case p.listens(got) && len(p.env.ClientListeners) > 0:
		hint = "; that is the client port (listen-client-urls)"
	case got == 1: // what some servers say where they know no port
		hint = "; publish the peer port"
	case p.env.MappedPorts:
		return nil
	default:
		hint = "; where that port is mapped to it (docker -p, Nomad, NAT), say which member this node is: --self-name, or --self-ip with its address in the records"
	}
	return p.unusable(a, "SRV port %d, configured peer port %s (target %s)%s", got, strings.Join(want, " or "), peers[0].Host, hint)
}

func (p *provider) count(a resolve.Answer, peers []discovery.Peer) error {
	n := p.env.Size
	if n == 0 || len(peers) == n {
		return nil
	}
	var seen []string
	for _, peer := range peers {
		seen = append(seen, hosturl.Join(peer.Host, peer.Port))
	}
	slices.Sort(seen)
	list := strings.Join(seen, ", ")
	if len(peers) > n {
		return p.unusable(a, "got %d of %d records: %s; do two clusters share the name? give each a service name suffix (discovery-srv-name), or set --size to the number of all members",
			len(peers), n, list)
	}
	return &discovery.Error{
		Kind: discovery.Retry,
		Msg: fmt.Sprintf("got %d of %d SRV records for %s from %s: %s (%s)",
			len(peers), n, a.Name, a.Server, list, resolve.Dig(a.Name, a.Type, a.Server)),
		Seen: peers,
	}
}

// stable refuses names that change when the address does, unless they are
// allowed.
func (p *provider) stable(a resolve.Answer, peers []discovery.Peer) error {
	for i := range peers {
		peers[i].AsIs = p.hashNames
	}
	if err := discovery.CheckStable(peers); err != nil {
		return p.unusable(a, "%v (the option hash-names=allow takes it as it is)", err)
	}
	return nil
}

func (p *provider) unusable(a resolve.Answer, format string, args ...any) error {
	return &discovery.Error{
		Kind: discovery.Unusable,
		Msg:  fmt.Sprintf(format, args...) + fmt.Sprintf(" (%s)", resolve.Dig(a.Name, a.Type, a.Server)),
	}
}
