// Package dns finds peers by the addresses of one name: a headless service, or
// a round-robin name. Each address is one member, or none is.
package dns

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

const defaultPort = 2380

// provider asks for the addresses of one host name.
type provider struct {
	host    string
	port    uint16
	options options
	env     discovery.Env
	dns     *resolve.Client
}

// New is the discovery.Factory of
//
//	dns://HOST[:PORT][?names=auto|reverse|address][&hash-names=allow][&family=4|6][&server=IP[:PORT]]
//
// Without a port it is that of etcd's peer URLs where they have one port, else
// 2380. server may be repeated, and stands before --dns-server and
// resolv.conf.
func New(source *url.URL, env discovery.Env) (discovery.Provider, error) {
	bad := func(format string, args ...any) (discovery.Provider, error) {
		return nil, &discovery.Error{
			Kind: discovery.Config,
			Msg:  fmt.Sprintf("discovery source dns://%s: ", source.Host) + fmt.Sprintf(format, args...),
		}
	}
	if source.Opaque != "" || strings.Trim(source.Path, "/") != "" {
		return bad("want dns://HOST[:PORT], such as dns://etcd.example.org:2380, and nothing but options after it")
	}
	p := &provider{host: hosturl.Canonical(source.Hostname()), port: defaultPort, env: env}
	if p.env.Log == nil {
		p.env.Log = zap.NewNop()
	}
	if p.env.PeerScheme == "" {
		p.env.PeerScheme = "http"
	}
	if err := hosturl.CheckHost(p.host); err != nil {
		return bad("%v; want a host name, such as dns://etcd.example.org:2380", err)
	}
	if isAddress(p.host) {
		return bad("%s is an address, want a host name with the addresses of all members; for a fixed list there is static:", p.host)
	}
	if len(env.PeerPorts) == 1 {
		p.port = env.PeerPorts[0]
	}
	var err error
	if s := source.Port(); s != "" {
		if p.port, err = hosturl.Port(s); err != nil {
			return bad("%v", err)
		}
	}
	if p.options, err = readOptions(source.RawQuery); err != nil {
		return bad("%v", err)
	}
	if len(p.options.servers) > 0 {
		p.env.DNSServers = p.options.servers
	}
	p.dns = resolve.New(p.env)
	p.dns.Only(p.options.family)
	return p, nil
}

// Discover asks once. The answer is one of three.
//  1. A peer for every address of the name, each with a host name that leads
//     back to the address, or all named by their addresses.
//  2. A Retry: the name does not exist or has too few addresses, some of them
//     have a host name and some have none yet, or no server answered.
//  3. An Unusable error: an answer that waiting will not fix.
func (p *provider) Discover(ctx context.Context) ([]discovery.Peer, error) {
	pass, err := p.dns.Pass()
	if err != nil {
		return nil, wrap(p.host, err)
	}
	hosts, err := pass.Hosts(ctx, []string{p.host})
	if err != nil {
		return nil, p.missing(err)
	}
	name := hosts[p.host]
	addrs := name.Addrs
	if n := p.env.Size; len(addrs) < n {
		e := &discovery.Error{
			Kind: discovery.Retry,
			Msg:  fmt.Sprintf("got %d of %d addresses for %s: %s", len(addrs), n, p.host, join(addrs)),
			Seen: p.byAddress(addrs, 0),
		}
		if len(addrs) == 1 && p.env.Kubernetes(p.host) {
			e.Hints = append(e.Hints, "if that is the virtual address of the Service, it is not headless: it needs clusterIP: None")
		}
		return nil, e
	}
	if p.options.names == byAddress {
		return p.byAddress(addrs, name.TTL), nil
	}
	found, err := p.reverse(ctx, pass, addrs)
	if err != nil {
		return nil, err
	}
	if found == nil { // no address has a name
		return p.unnamed(addrs, name.TTL)
	}
	return p.byName(ctx, pass, addrs, found, name.TTL)
}

// missing adds to the resolver's error what usually is behind it.
func (p *provider) missing(err error) error {
	var e *discovery.Error
	if !errors.As(err, &e) {
		return wrap(p.host, err)
	}
	c := *e
	if !p.env.Pod {
		return &c
	}
	c.Hints = append(c.Hints, "on Kubernetes a headless service publishes pods before they are ready only with publishNotReadyAddresses: true")
	return &c
}

// wrap puts a name before a Retry of the resolver.
func wrap(what string, err error) error {
	var e *discovery.Error
	if !errors.As(err, &e) {
		return &discovery.Error{Kind: discovery.Retry, Msg: what, Err: err}
	}
	c := *e
	c.Msg = what + ": " + e.Msg
	return &c
}
