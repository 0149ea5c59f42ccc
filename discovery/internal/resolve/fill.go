package resolve

import (
	"context"
	"net/netip"
	"slices"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// Fill gives peers that a source wrote down their addresses: those of the host
// and of every host in their peer URLs. It asks DNS only for what is no IP
// address. The result is a copy.
func (c *Client) Fill(ctx context.Context, peers []discovery.Peer) ([]discovery.Peer, error) {
	out := slices.Clone(peers)
	var names []string
	for _, p := range out {
		names = append(names, hostsOf(p)...)
	}
	isName := func(s string) bool { _, err := netip.ParseAddr(s); return err != nil }
	pass := &Pass{}
	if slices.ContainsFunc(names, isName) {
		var err error
		if pass, err = c.Pass(); err != nil {
			return nil, err
		}
	}
	hosts, err := pass.Hosts(ctx, names)
	if err != nil {
		return nil, err
	}
	for i := range out {
		p := &out[i]
		p.Addrs = slices.Clone(p.Addrs)
		for _, name := range hostsOf(*p) {
			h := hosts[name]
			p.Addrs = append(p.Addrs, h.Addrs...)
			p.TTL = max(p.TTL, h.TTL)
			if name == hosturl.Canonical(p.Host) {
				p.Alias = h.Alias
			}
		}
		slices.SortFunc(p.Addrs, netip.Addr.Compare)
		p.Addrs = slices.Compact(p.Addrs)
	}
	return out, nil
}

// hostsOf is every host that a peer is reached by.
func hostsOf(p discovery.Peer) []string {
	hosts := []string{hosturl.Canonical(p.Host)}
	for _, raw := range p.PeerURLs {
		if u, err := hosturl.Parse(raw); err == nil && !slices.Contains(hosts, u.Host) {
			hosts = append(hosts, u.Host)
		}
	}
	return hosts
}
