package execplugin

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/plugins"
)

const (
	defaultPort = 2380
	maxTTL      = 24 * time.Hour
)

// node is what a plugin may know of this host; what the system does not tell
// is absent.
func node() plugins.Node {
	var n plugins.Node
	if host, err := os.Hostname(); err == nil {
		n.Hostname = host
	}
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return n
	}
	var addrs []netip.Addr
	for _, a := range nets {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			addrs = append(addrs, p.Addr().Unmap())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range slices.Compact(addrs) {
		n.Addresses = append(n.Addresses, a.String())
	}
	return n
}

// peers makes discovery's peers of an answer that keeps the contract.
func (p *provider) peers(_ context.Context, answer plugins.Response) ([]discovery.Peer, error) {
	peers := make([]discovery.Peer, 0, len(answer.Peers))
	for _, w := range answer.Peers {
		peer := discovery.Peer{
			Name: w.Name, Host: w.Host, Port: p.port(w),
			PeerURLs: w.PeerURLs, ClientURLs: w.ClientURLs, TTL: seconds(answer.TTL, maxTTL),
		}
		for _, a := range w.Addrs {
			ip, err := netip.ParseAddr(a)
			if err != nil {
				return nil, p.failure(discovery.Plugin, "gave "+strconv.Quote(a)+", which is no IP address")
			}
			peer.Addrs = append(peer.Addrs, ip)
		}
		peers = append(peers, peer)
	}
	return peers, nil
}

// port is the peer's port: its own, that of its URL, that of etcd's
// configuration, etcd's default.
func (p *provider) port(w plugins.Peer) uint16 {
	if w.Port > 0 && w.Port <= 65535 {
		return uint16(w.Port)
	}
	for _, raw := range w.PeerURLs {
		if u, err := url.Parse(raw); err == nil {
			if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
				return uint16(n)
			}
		}
	}
	if len(p.env.PeerPorts) == 1 {
		return p.env.PeerPorts[0]
	}
	return defaultPort
}
