package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	miekg "github.com/miekg/dns"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// maxAddrs bounds the reverse lookups of one try: no etcd cluster has as many
// members.
const maxAddrs = 64

// reverse asks for the names of all addresses, in parallel. The answer is one
// of three.
//  1. The names of each address: at least one for every address.
//  2. nil: servers said of every address that it has none.
//  3. An error: some have and some have not, or somebody did not answer.
func (p *provider) reverse(ctx context.Context, pass *resolve.Pass, addrs []netip.Addr) (map[netip.Addr]resolve.Answer, error) {
	if len(addrs) > maxAddrs {
		return nil, p.unusable("%s has %d addresses, more than an etcd cluster has members", p.host, len(addrs))
	}
	answers := make([]resolve.Answer, len(addrs))
	errs := make([]error, len(addrs))
	var wg sync.WaitGroup
	for i, a := range addrs {
		wg.Go(func() {
			var name string
			if name, errs[i] = miekg.ReverseAddr(a.String()); errs[i] == nil {
				answers[i], errs[i] = pass.Ask(ctx, name, miekg.TypePTR)
			}
		})
	}
	wg.Wait()
	found := map[netip.Addr]resolve.Answer{}
	var named, unnamed []string
	var after time.Duration
	for i, a := range addrs {
		if errs[i] != nil {
			return nil, wrap("the name of "+a.String(), errs[i])
		}
		if answers[i].Outcome != resolve.Found {
			unnamed = append(unnamed, fmt.Sprintf("%s (%s)", a, answers[i].Said()))
			after = max(after, answers[i].Negative().After)
			continue
		}
		found[a] = answers[i]
		named = append(named, fmt.Sprintf("%s=%s", a, strings.Join(targets(answers[i]), ",")))
	}
	switch {
	case len(unnamed) == 0:
		return found, nil
	case len(named) == 0 && p.options.names == auto:
		return nil, nil //nolint:nilnil // the second of three answers
	}
	msg := "no reverse name for " + strings.Join(unnamed, ", ")
	if len(named) > 0 {
		msg += "; have " + strings.Join(named, " ")
	}
	return nil, &discovery.Error{
		Kind: discovery.Retry, Msg: msg, After: after,
		Hints: []string{"where some members never get a PTR record, names=address takes all names from the addresses"},
	}
}

// targets are the names of a PTR answer, sorted.
func targets(a resolve.Answer) []string {
	var names []string
	for _, rr := range a.Records {
		if ptr, ok := rr.(*miekg.PTR); ok {
			names = append(names, hosturl.Canonical(ptr.Ptr))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// byName makes a peer of each host name that leads back to its address. The
// addresses of one host name, of both families say, are one peer.
func (p *provider) byName(ctx context.Context, pass *resolve.Pass, addrs []netip.Addr, found map[netip.Addr]resolve.Answer, ttl time.Duration) ([]discovery.Peer, error) {
	var ask []string
	for _, a := range addrs {
		for _, name := range targets(found[a]) {
			if err := hosturl.CheckHost(name); err != nil || isAddress(name) {
				return nil, p.unusable("the PTR record of %s names %q, which is no host name", a, name)
			}
			ask = append(ask, name)
		}
	}
	hosts, err := pass.Hosts(ctx, ask)
	if err != nil {
		return nil, p.leadsNowhere(err)
	}
	byHost := map[string]discovery.Peer{}
	for _, a := range addrs {
		name, err := p.choose(a, targets(found[a]), hosts)
		if err != nil {
			return nil, err
		}
		h := hosts[name]
		peer, ok := byHost[name]
		if !ok {
			peer = p.peer(name, max(ttl, h.TTL))
			peer.Alias = h.Alias
		}
		peer.TTL = max(peer.TTL, found[a].TTL)
		peer.Addrs = append(peer.Addrs, a)
		byHost[name] = peer
	}
	peers := make([]discovery.Peer, 0, len(byHost))
	for _, peer := range byHost {
		peers = append(peers, peer)
	}
	slices.SortFunc(peers, func(a, b discovery.Peer) int { return strings.Compare(a.Host, b.Host) })
	if len(peers) == 1 && p.env.Size != 1 && (peers[0].Host == p.host || len(addrs) == 1) {
		advice := "each member's address must be among its addresses"
		if p.env.Kubernetes(p.host) {
			advice = "the service is not headless, it needs clusterIP: None"
		}
		return nil, p.unusable("%s has the one address %s, whose name is %s: %s", p.host, join(addrs), peers[0].Host, advice)
	}
	return peers, p.stable(peers)
}

// choose takes the name that leads back to the address: the one below the
// source's own name where there are several.
func (p *provider) choose(a netip.Addr, names []string, hosts map[string]resolve.Host) (string, error) {
	var back []string
	for _, name := range names {
		if slices.Contains(hosts[name].Addrs, a) {
			back = append(back, name)
		}
	}
	if len(back) > 1 {
		below := slices.DeleteFunc(slices.Clone(back), func(name string) bool { return !strings.HasSuffix(name, "."+p.host) })
		if len(below) > 0 {
			back = below
		}
	}
	switch len(back) {
	case 1:
		return back[0], nil
	case 0:
		var list []string
		for _, name := range names {
			list = append(list, name+"="+join(hosts[name].Addrs))
		}
		return "", &discovery.Error{
			Kind:  discovery.Retry,
			Msg:   fmt.Sprintf("the reverse name of %s does not lead back to it: %s", a, strings.Join(list, " ")),
			Hints: []string{"names=address takes all names from the addresses"},
		}
	}
	return "", p.unusable("%s has several names that lead back to it, %s, and none of them alone is below %s; leave one PTR record", a, strings.Join(back, ", "), p.host)
}

func (p *provider) leadsNowhere(err error) error {
	err = wrap("the reverse names of "+p.host+"'s addresses", err)
	var e *discovery.Error
	if errors.As(err, &e) {
		e.Hints = append(e.Hints, "names=address takes all names from the addresses")
	}
	return err
}

// unnamed is the set where nobody has a name.
func (p *provider) unnamed(addrs []netip.Addr, ttl time.Duration) ([]discovery.Peer, error) {
	if slices.ContainsFunc(addrs, netip.Addr.Is4) && slices.ContainsFunc(addrs, netip.Addr.Is6) {
		return nil, p.unusable("%s has addresses of both families and none has a name, so nobody can tell which two are one member: %s; say family=4 or family=6, or publish PTR records", p.host, join(addrs))
	}
	p.env.Log.Warn("the members are named by their addresses, for which DNS has no names: such a name is unstable, a member whose address changes is another member; publish PTR records, or say names=address",
		zap.String("host", p.host), zap.String("addresses", join(addrs)))
	return p.byAddress(addrs, ttl), nil
}

// byAddress makes a peer of each address.
func (p *provider) byAddress(addrs []netip.Addr, ttl time.Duration) []discovery.Peer {
	peers := make([]discovery.Peer, 0, len(addrs))
	for _, a := range addrs {
		peer := p.peer(a.String(), ttl)
		peer.Addrs = []netip.Addr{a}
		peers = append(peers, peer)
	}
	return peers
}

func (p *provider) peer(host string, ttl time.Duration) discovery.Peer {
	u := hosturl.URL{Scheme: p.env.PeerScheme, Host: host, Port: p.port}
	return discovery.Peer{Host: host, Port: p.port, PeerURLs: []string{u.String()}, TTL: ttl}
}

// stable refuses names such as 192-0-2-10, which Kubernetes makes of the address
// of a pod that has no host name, unless they are allowed.
func (p *provider) stable(peers []discovery.Peer) error {
	for i := range peers {
		peers[i].AsIs = p.options.hashNames
	}
	if err := discovery.CheckStable(peers); err != nil {
		return p.unusable("the PTR records of %s's addresses: %v (the option hash-names=allow takes it as it is)", p.host, err)
	}
	return nil
}

func (p *provider) unusable(format string, args ...any) error {
	return &discovery.Error{Kind: discovery.Unusable, Msg: fmt.Sprintf(format, args...)}
}
