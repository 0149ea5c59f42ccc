// Package resolve asks DNS servers on behalf of the providers.
//
// It exists beside net.Resolver because a peer set needs what that hides:
// names are absolute (no search list), every answer says which server gave it,
// NXDOMAIN, NODATA, SERVFAIL and silence are told apart, a truncated answer is
// never used, and a negative answer's TTL is known. /etc/hosts is not read:
// it differs from host to host, and often says 127.0.1.1 of the host's own
// name, while all nodes must see the same set.
//
// A provider makes one Client, and one Pass for each Discover:
//
//	c := resolve.New(env)
//	pass, err := c.Pass()                               // re-reads resolv.conf
//	answer, err := pass.Ask(ctx, name, dns.TypeSRV)     // one question
//	hosts, err := pass.Hosts(ctx, []string{"a.example"}) // all A and AAAA
//
// Errors are *discovery.Error of kind Retry, but for an alias that leads
// nowhere, which turns Unusable at the deadline.
//
// # Which server's word counts
//
// Servers are asked in the order of resolv.conf (or --dns-server). The first
// one that answers decides: a record, NXDOMAIN and "no such record" all are
// answers. One that fails (SERVFAIL, REFUSED, a referral, garbage, silence,
// connection refused, network unreachable) is passed over for the next. So a
// server that knows the zone must stand before one that denies it: behind it,
// it is never asked. That is the rule of every stub resolver, and a second
// opinion after NXDOMAIN would let two nodes with different resolv.conf files
// see different sets.
package resolve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/discovery"
)

const (
	maxTimeout  = 2 * time.Second // of one exchange; resolv.conf may ask for less
	maxAttempts = 3               // rounds over servers that stayed silent; resolv.conf may ask for less
	maxAliases  = 8
	maxParallel = 16
	maxFile     = 1 << 20

	// maxNegative bounds how long a negative answer is believed. A zone may
	// say an hour, but the server asked is often the authority itself, where
	// a new record shows at once: Kubernetes says 30 s and publishes a pod
	// within one. Asking does not make a cache keep its answer for longer.
	maxNegative = 500 * time.Millisecond
)

// Client knows where to ask.
type Client struct {
	servers    []netip.AddrPort
	resolvConf string
	port       uint16 // of the servers in resolvConf
	local      []netip.Addr
	log        *zap.Logger
	told       *sync.Map // warnings that were given
	noEDNS     *sync.Map // servers that answer only without EDNS0
	family     int       // 4 or 6: no address of the other one is asked for; 0: both
	pod        bool      // this is a container of Kubernetes: only for hints
}

// Only makes the client ask for addresses of one family, 4 or 6; 0: both.
func (c *Client) Only(family int) { c.family = family }

// Family reads the value of an option: 4 or 6.
func Family(s string) (int, error) {
	switch s {
	case "4":
		return 4, nil
	case "6":
		return 6, nil
	}
	return 0, fmt.Errorf("%q, want 4 or 6", s)
}

// New is a client for the servers of env: its DNSServers, else those of its
// ResolvConf.
func New(env discovery.Env) *Client {
	c := &Client{servers: env.DNSServers, resolvConf: env.ResolvConf, port: 53, local: env.LocalAddrs, log: env.Log, told: &sync.Map{}, noEDNS: &sync.Map{}, pod: env.Pod}
	if c.resolvConf == "" {
		c.resolvConf = "/etc/resolv.conf"
	}
	if c.log == nil {
		c.log = zap.NewNop()
	}
	return c
}

// Pass is one try at the whole set. Its questions may be asked in parallel.
type Pass struct {
	servers  []netip.AddrPort
	timeout  time.Duration
	attempts int
	// has4 and has6: this host has a global address of the family, so that a
	// peer's address of that family may be its own.
	has4, has6 bool
	log        *zap.Logger
	told       *sync.Map
	noEDNS     *sync.Map
	family     int
	pod        bool

	mu     sync.Mutex
	silent map[netip.AddrPort]bool // asked last: they cost a timeout each
}

// Pass reads resolv.conf anew, which may have been empty at boot.
func (c *Client) Pass() (*Pass, error) {
	p := &Pass{
		servers:  c.servers,
		timeout:  maxTimeout,
		attempts: 2,
		log:      c.log,
		told:     c.told,
		noEDNS:   c.noEDNS,
		family:   c.family,
		pod:      c.pod,
		silent:   map[netip.AddrPort]bool{},
	}
	if len(p.servers) == 0 {
		if err := p.read(c.resolvConf, c.port); err != nil {
			return nil, err
		}
	}
	local := c.local
	if len(local) == 0 {
		var err error
		if local, err = discovery.LocalAddrs(""); err != nil {
			return nil, err
		}
	}
	for _, a := range local {
		if a = a.Unmap(); !a.IsLoopback() {
			p.has4 = p.has4 || a.Is4() && p.wants(dns.TypeA)
			p.has6 = p.has6 || a.Is6() && p.wants(dns.TypeAAAA)
		}
	}
	return p, nil
}

func (p *Pass) read(path string, port uint16) error {
	none := func(err error) error {
		return &discovery.Error{
			Kind:  discovery.Retry,
			Msg:   "no nameserver in " + path,
			Err:   err,
			Hints: []string{"the network may not be up yet; a server can be named with --dns-server"},
		}
	}
	f, err := os.Open(path) //nolint:gosec // the path is the operator's
	if err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return none(err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	err = errors.Join(err, f.Close())
	if err != nil {
		return none(err)
	}
	conf, err := dns.ClientConfigFromReader(bytes.NewReader(plainConf(text)))
	if err != nil {
		return none(err)
	}
	var bad []string
	for _, s := range conf.Servers {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			bad = append(bad, s)
			continue
		}
		if at := netip.AddrPortFrom(addr, port); !slices.Contains(p.servers, at) {
			p.servers = append(p.servers, at)
		}
	}
	if len(p.servers) == 0 {
		if len(bad) > 0 {
			return none(fmt.Errorf("%q is no IP address", bad[0]))
		}
		return none(nil)
	}
	p.timeout = min(time.Duration(conf.Timeout)*time.Second, maxTimeout)
	p.attempts = min(conf.Attempts, maxAttempts)
	return nil
}

// plainConf takes from resolv.conf what an editor on another system left in it: a
// byte order mark, and keywords in capitals.
func plainConf(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var out []byte
	for line := range bytes.Lines(text) {
		line = bytes.TrimLeft(line, " \t")
		keyword := line
		if i := bytes.IndexAny(line, " \t"); i >= 0 {
			keyword = line[:i]
		}
		out = append(append(out, bytes.ToLower(keyword)...), line[len(keyword):]...)
	}
	return out
}

// order is the servers in turn, those that stayed silent in this pass last.
func (p *Pass) order() []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out, last []netip.AddrPort
	for _, s := range p.servers {
		if p.silent[s] {
			last = append(last, s)
		} else {
			out = append(out, s)
		}
	}
	return append(out, last...)
}

func (p *Pass) setSilent(s netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent[s] = true
}

// wants tells whether addresses of a record type are asked for.
func (p *Pass) wants(qtype uint16) bool {
	return p.family == 0 || (p.family == 4) == (qtype == dns.TypeA)
}

// Servers are those that are asked.
func (p *Pass) Servers() []netip.AddrPort { return slices.Clone(p.servers) }

func (p *Pass) withoutEDNS(s netip.AddrPort) bool {
	_, there := p.noEDNS.Load(s)
	return there
}

func (p *Pass) setWithoutEDNS(s netip.AddrPort) {
	if _, there := p.noEDNS.LoadOrStore(s, true); !there {
		p.log.Info("a DNS server, or something on the way to it, drops questions with EDNS0: it is asked without (dig +noedns)", zap.Stringer("server", s))
	}
}

// tell warns of something once.
func (p *Pass) tell(what, msg string) {
	if _, told := p.told.LoadOrStore(what, true); !told {
		p.log.Warn(msg)
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// Server reads the address of a DNS server: an IP address, with or without a
// port; an IPv6 address with a port stands in brackets.
func Server(s string) (netip.AddrPort, error) {
	if at, err := netip.ParseAddrPort(s); err == nil && at.Port() != 0 {
		return at, nil
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not a DNS server's address, want IP or IP:port, [IP]:port for IPv6", s)
	}
	return netip.AddrPortFrom(addr, 53), nil
}
