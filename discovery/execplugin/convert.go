package execplugin

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/hosturl"
	"github.com/etcdinit/etcdinit/plugins"
)

const (
	defaultPort = 2380
	maxTTL      = 24 * time.Hour
)

// node is what a plugin may know of this host; what the system does not tell
// is absent.
func (p *provider) node() plugins.Node {
	var n plugins.Node
	if host, err := os.Hostname(); err == nil {
		n.Hostname = host
	}
	addrs := p.env.LocalAddrs
	if len(addrs) == 0 {
		var err error
		if addrs, err = discovery.LocalAddrs(""); err != nil {
			p.log.Debug("the addresses of this host are not known to the plugin", zap.Error(err))
		}
	}
	for _, a := range addrs {
		if a = a.Unmap(); a.IsGlobalUnicast() {
			n.Addresses = append(n.Addresses, a.String())
		}
	}
	return n
}

// peers makes discovery's peers of an answer that keeps the contract. The
// hosts that it gives no addresses of are asked of DNS, all or none.
func (p *provider) peers(ctx context.Context, answer plugins.Response) ([]discovery.Peer, error) {
	peers := make([]discovery.Peer, 0, len(answer.Peers))
	var ask []string
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
		if len(w.Addrs) == 0 {
			if ip, err := netip.ParseAddr(hosturl.Canonical(w.Host)); err == nil {
				peer.Addrs = []netip.Addr{ip} // no nameserver is needed for it
			} else {
				ask = append(ask, w.Host)
			}
		}
		peers = append(peers, peer)
	}
	if len(ask) == 0 {
		return peers, nil
	}
	pass, err := p.dns.Pass()
	if err != nil {
		return nil, err
	}
	hosts, err := pass.Hosts(ctx, ask)
	if err != nil {
		return nil, fmt.Errorf("plugin %s named hosts that DNS must know: %w", p.name, err)
	}
	for i := range peers {
		if q := &peers[i]; len(q.Addrs) == 0 {
			h := hosts[hosturl.Canonical(q.Host)]
			q.Addrs, q.Alias, q.TTL = h.Addrs, h.Alias, max(q.TTL, h.TTL)
		}
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
		if u, ok := hosturl.Split(raw); ok {
			return u.Port
		}
	}
	if len(p.env.PeerPorts) == 1 {
		return p.env.PeerPorts[0]
	}
	return defaultPort
}
