// Package srv finds peers by DNS SRV records, as etcd's --discovery-srv does,
// but all of them or none.
package srv

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// provider asks for the records of one service in one domain.
type provider struct {
	domain    string
	service   string // the peers' whole label, without underscore
	other     string // the label of the other scheme; "" where the label was given
	client    string // the clients' whole label; "" if not asked for
	hashNames bool   // names that change with the address are wanted
	env       discovery.Env
	dns       *resolve.Client
	told      sync.Map // warnings that were given
}

// clientTime bounds the question for client records, which need not be there.
const clientTime = time.Second

// New is the discovery.Factory of
//
//	srv://DOMAIN[?service=LABEL][&name=SUFFIX][&server=IP[:PORT]][&client=off|LABEL][&hash-names=allow][&family=4|6]
//
// It asks for _etcd-server-ssl._tcp.DOMAIN where peers speak TLS, else for
// _etcd-server._tcp.DOMAIN. name, or etcd's discovery-srv-name, is appended to
// the label; service is the whole label. server may be repeated, and stands
// before --dns-server and resolv.conf.
func New(source *url.URL, env discovery.Env) (discovery.Provider, error) {
	p := &provider{env: env}
	if p.env.Log == nil {
		p.env.Log = zap.NewNop()
	}
	if p.env.PeerScheme == "" {
		p.env.PeerScheme = "http"
	}
	if p.env.ClientScheme == "" {
		p.env.ClientScheme = "http"
	}
	bad := func(format string, args ...any) (discovery.Provider, error) {
		return nil, &discovery.Error{
			Kind: discovery.Config,
			Msg:  fmt.Sprintf("discovery source srv://%s: ", source.Host) + fmt.Sprintf(format, args...),
		}
	}
	if source.Opaque != "" || strings.Trim(source.Path, "/") != "" || source.Port() != "" {
		return bad("want srv://DOMAIN, such as srv://example.org, and nothing but options after the domain")
	}
	p.domain = hosturl.Canonical(source.Host)
	if err := hosturl.CheckHost(p.domain); err != nil {
		return bad("%v; want a domain, such as srv://example.org", err)
	}
	if _, err := netip.ParseAddr(p.domain); err == nil {
		return bad("%s is an address, want a domain, such as srv://example.org", p.domain)
	}
	o, err := readOptions(source.RawQuery)
	if err != nil {
		return bad("%v", err)
	}
	if len(o.servers) > 0 {
		p.env.DNSServers = o.servers
	}
	p.hashNames = o.hashNames
	p.labels(o)
	for _, name := range []string{p.service, p.other, p.client} {
		if len("_"+name+"._tcp."+p.domain) > 253 {
			return bad("the name %s is longer than 253 characters", p.owner(name))
		}
	}
	p.dns = resolve.New(p.env)
	p.dns.Only(o.family)
	return p, nil
}

func (p *provider) labels(o options) {
	suffix := o.name
	if suffix == "" {
		suffix = p.env.ServiceSuffix
	}
	if suffix != "" {
		suffix = "-" + suffix
	}
	ssl := func(label string, tls bool) string {
		if tls {
			label += "-ssl"
		}
		return label + suffix
	}
	tls := p.env.PeerScheme == "https"
	p.service, p.other = ssl("etcd-server", tls), ssl("etcd-server", !tls)
	if o.service != "" {
		p.service, p.other = o.service, ""
	}
	p.client = ssl("etcd-client", p.env.ClientScheme == "https")
	switch {
	case o.client == "" && len(p.env.ClientURLs) > 0:
		p.client = "" // this node's are known, and nobody needs the others'
	case o.client == "":
	case o.client == "off":
		p.client = ""
	default:
		p.client = o.client
	}
}

// owner is the name that holds the records of a label.
func (p *provider) owner(label string) string {
	return "_" + label + "._tcp." + p.domain
}

// Discover asks once. The answer is one of three.
//  1. All records, every target with its addresses.
//  2. A Retry: the name does not exist, has no or too few records, a target
//     has no address, or no server answered.
//  3. An Unusable or Config error: records that waiting will not fix.
func (p *provider) Discover(ctx context.Context) ([]discovery.Peer, error) {
	pass, err := p.dns.Pass()
	if err != nil {
		return nil, wrap(p.owner(p.service), err)
	}
	a, err := pass.Ask(ctx, p.owner(p.service), dns.TypeSRV)
	if err != nil {
		return nil, docker(pass, wrap("no SRV records", err))
	}
	if a.Outcome != resolve.Found {
		return nil, docker(pass, p.negative(ctx, pass, a))
	}
	peers, err := p.peers(a)
	if err != nil {
		return nil, err
	}
	clients := p.askClients(ctx, pass)
	err = p.addresses(ctx, pass, a, peers)
	found := <-clients
	if err != nil {
		return nil, err
	}
	p.clients(found, peers)
	return peers, nil
}

// docker adds what to do where Docker's own DNS was asked, which has no SRV
// records of its containers.
func docker(pass *resolve.Pass, err error) error {
	own := netip.AddrFrom4([4]byte{127, 0, 0, 11})
	var e *discovery.Error
	if !errors.As(err, &e) || !slices.ContainsFunc(pass.Servers(), func(s netip.AddrPort) bool { return s.Addr() == own }) {
		return err
	}
	c := *e
	c.Hints = append([]string{"127.0.0.11 is Docker's own DNS, which has no SRV records for containers: give them one network alias and use dns://ALIAS:2380, or list them (static:)"}, e.Hints...)
	return &c
}

// negative is the error for a label that has no records. Where the label of
// the other scheme has some, the two configurations contradict each other.
func (p *provider) negative(ctx context.Context, pass *resolve.Pass, a resolve.Answer) error {
	e := a.Negative()
	e.Msg = "no SRV records: " + e.Msg
	if a.Outcome == resolve.NXDomain && a.Alias == "" {
		e.Hints = append(e.Hints, fmt.Sprintf("is %q the right domain?", p.domain))
	}
	if p.env.Pod {
		e.Hints = append(e.Hints, "on Kubernetes a headless service publishes pods before they are ready only with publishNotReadyAddresses: true, and its port must be named "+p.service)
	}
	if p.other == "" {
		return e
	}
	other, err := pass.Ask(ctx, p.owner(p.other), dns.TypeSRV)
	if err != nil || other.Outcome != resolve.Found {
		return e
	}
	peer, there := "http", "https"
	if p.env.PeerScheme == "https" {
		peer, there = there, peer
	}
	return &discovery.Error{
		Kind: discovery.Config,
		Msg: fmt.Sprintf("etcd's peer scheme is '%s', for which '%s' has no records (%s), but '%s', the label for '%s', has %d: change etcd's peer TLS configuration, or the records",
			peer, "_"+p.service+"._tcp."+p.domain, a.Said(), "_"+p.other+"._tcp."+p.domain, there, len(other.Records)),
	}
}

// addresses completes the peers: from the additional section where that says
// all, else by asking.
func (p *provider) addresses(ctx context.Context, pass *resolve.Pass, a resolve.Answer, peers []discovery.Peer) error {
	names := make([]string, len(peers))
	for i := range peers {
		names[i] = peers[i].Host
	}
	hosts, ok := pass.Complete(a, names)
	if !ok {
		var err error
		if hosts, err = pass.Hosts(ctx, names); err != nil {
			return wrap("targets of "+a.Name, err)
		}
	}
	for i := range peers {
		h := hosts[peers[i].Host]
		peers[i].Addrs, peers[i].Alias = h.Addrs, h.Alias
		peers[i].TTL = max(peers[i].TTL, h.TTL)
	}
	return p.stable(a, peers)
}

// published is what was said of the client records; no records where they are
// not asked for.
type published struct {
	answer resolve.Answer
	err    error
}

// askClients asks for the client records while the addresses are looked up.
func (p *provider) askClients(ctx context.Context, pass *resolve.Pass) <-chan published {
	answer := make(chan published, 1)
	if p.client == "" {
		answer <- published{}
		return answer
	}
	go func() {
		soon, cancel := context.WithTimeout(ctx, clientTime)
		defer cancel()
		a, err := pass.Ask(soon, p.owner(p.client), dns.TypeSRV)
		answer <- published{a, err}
	}()
	return answer
}

// clients adds the client URLs of the peers that are published. Those that are
// not, Await takes from listen-client-urls: they are optional, and no failure
// here is one of discovery.
func (p *provider) clients(found published, peers []discovery.Peer) {
	a := found.answer
	switch {
	case p.client == "":
		return
	case found.err != nil:
		p.warn("client records", fmt.Sprintf("no client records: %v; client URLs are taken from listen-client-urls; the option client=off, or advertise-client-urls in etcd's configuration, asks for none", found.err))
		return
	}
	p.env.Log.Debug("asked for client URLs", zap.String("name", a.Name), zap.String("said", a.Said()))
	for _, rr := range a.Records {
		r, ok := rr.(*dns.SRV)
		if !ok || r.Port == 0 {
			continue
		}
		for i := range peers {
			if peers[i].Host != hosturl.Canonical(r.Target) {
				continue
			}
			where := fmt.Sprintf("the client record %s leads to %s", a.Name, hosturl.Join(peers[i].Host, r.Port))
			if r.Port == peers[i].Port || slices.Contains(p.env.PeerPorts, r.Port) {
				p.warn("peer port "+strconv.Itoa(int(r.Port)), where+", which is the peer port: such records are left out")
				continue
			}
			if !p.listens(r.Port) {
				p.warn("client port "+strconv.Itoa(int(r.Port)), where+", but listen-client-urls has only port "+p.clientPorts()+": right only where that port is mapped to it")
			}
			u := hosturl.URL{Scheme: p.env.ClientScheme, Host: peers[i].Host, Port: r.Port}
			peers[i].ClientURLs = append(peers[i].ClientURLs, u.String())
		}
	}
}

// listens tells whether etcd listens on a port for clients, as far as is known.
func (p *provider) listens(port uint16) bool {
	return len(p.env.ClientListeners) == 0 ||
		slices.ContainsFunc(p.env.ClientListeners, func(l discovery.Listener) bool { return l.Port == port })
}

func (p *provider) clientPorts() string {
	var ports []string
	for _, l := range p.env.ClientListeners {
		ports = append(ports, strconv.Itoa(int(l.Port)))
	}
	slices.Sort(ports)
	return strings.Join(slices.Compact(ports), ", ")
}

// warn says something once: records are asked for again and again.
func (p *provider) warn(what, msg string) {
	if _, told := p.told.LoadOrStore(what, true); !told {
		p.env.Log.Warn(msg)
	}
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
