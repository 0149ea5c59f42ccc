package discovery

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// normalize gives the one spelling of a peer set: whatever the order, the case
// or the duplicates of the answer, every node gets the same slice.
func normalize(peers []Peer, env Env) []Peer {
	out := make([]Peer, 0, len(peers))
	for _, p := range peers {
		out = append(out, normalizePeer(p, env))
	}
	slices.SortFunc(out, byHost)
	out = merge(out)
	name(out)
	members := map[string]int{}
	for _, p := range out {
		members[p.Host]++
	}
	for i := range out { // of two on one host, nobody knows who listens where
		if len(out[i].ClientURLs) == 0 && members[out[i].Host] == 1 {
			out[i].ClientURLs = clientURLs(out[i].Host, env.ClientListeners)
		}
	}
	slices.SortFunc(out, func(a, b Peer) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), byHost(a, b))
	})
	return out
}

func byHost(a, b Peer) int {
	return cmp.Or(
		strings.Compare(a.Host, b.Host),
		cmp.Compare(a.Port, b.Port),
		strings.Compare(a.Name, b.Name),
		slices.Compare(a.PeerURLs, b.PeerURLs),
		slices.Compare(a.ClientURLs, b.ClientURLs),
	)
}

func normalizePeer(p Peer, env Env) Peer {
	p.PeerURLs = normalizeURLs(p.PeerURLs)
	p.ClientURLs = normalizeURLs(p.ClientURLs)
	p.Host = hosturl.Canonical(p.Host)
	p.Alias = hosturl.Canonical(p.Alias)
	if p.Host == "" && len(p.PeerURLs) > 0 {
		if u, err := hosturl.Parse(p.PeerURLs[0]); err == nil {
			p.Host, p.Port = u.Host, u.Port
		}
	}
	if len(p.PeerURLs) == 0 && p.Host != "" && p.Port != 0 {
		u := hosturl.URL{Scheme: cmp.Or(env.PeerScheme, "http"), Host: p.Host, Port: p.Port}
		p.PeerURLs = []string{u.String()}
	}
	addrs := make([]netip.Addr, 0, len(p.Addrs)+1)
	for _, a := range p.Addrs {
		addrs = append(addrs, a.Unmap())
	}
	if ip, err := netip.ParseAddr(p.Host); err == nil && len(addrs) == 0 {
		addrs = append(addrs, ip)
	}
	p.Addrs = sortedAddrs(addrs)
	return p
}

func sortedAddrs(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// normalizeURLs leaves a URL that cannot be read as it is: Check names it.
func normalizeURLs(urls []string) []string {
	var out []string
	for _, raw := range urls {
		if u, err := hosturl.Parse(raw); err == nil {
			raw = u.String()
		}
		out = append(out, raw)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// merge makes one of the repetitions of the very same record. Two records that
// differ in more than addresses or client URLs stay two, for Check to refuse.
func merge(sorted []Peer) []Peer {
	out := sorted[:0]
	for _, p := range sorted {
		if len(out) > 0 {
			last := &out[len(out)-1]
			if last.Host == p.Host && last.Port == p.Port && last.Name == p.Name && slices.Equal(last.PeerURLs, p.PeerURLs) {
				last.Addrs = sortedAddrs(append(last.Addrs, p.Addrs...))
				last.ClientURLs = normalizeURLs(append(last.ClientURLs, p.ClientURLs...))
				last.TTL = max(last.TTL, p.TTL)
				last.AsIs = last.AsIs || p.AsIs
				last.Alias = cmp.Or(last.Alias, p.Alias)
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

// name names the peers whose source did not: the first label of the host where
// no other peer has it, else the whole host.
func name(peers []Peer) {
	taken := map[string]int{}
	for _, p := range peers {
		if p.Name != "" {
			taken[p.Name]++
		} else {
			taken[firstLabel(p.Host)]++
		}
	}
	for i := range peers {
		if p := &peers[i]; p.Name == "" {
			p.Name = firstLabel(p.Host)
			if taken[p.Name] > 1 {
				p.Name = p.Host
			}
		}
	}
}

// firstLabel is the first label of a host name, and the whole of an address.
func firstLabel(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	label, _, _ := strings.Cut(host, ".")
	return label
}

func clientURLs(host string, listeners []Listener) []string {
	var urls []string
	for _, l := range listeners {
		if l.Port != 0 && host != "" {
			urls = append(urls, hosturl.URL{Scheme: cmp.Or(l.Scheme, "http"), Host: host, Port: l.Port}.String())
		}
	}
	return normalizeURLs(urls)
}
