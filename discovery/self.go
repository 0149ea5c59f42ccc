package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// Local is what this host knows of itself.
type Local struct {
	Addrs    []netip.Addr // see LocalAddrs
	Explicit netip.Addr   // --self-ip: the only address that counts, on an interface or not
	Name     string       // --self-name: decides, whatever the addresses say
	NameHint string       // etcd's name: breaks ties; naming another peer is a contradiction
	Hostname string       // breaks ties between peers that share an address
	Ports    []uint16     // of listen-peer-urls: break ties

	// Interfaces, where set, tells which interface has an address. It is only asked for
	// messages.
	Interfaces func() map[netip.Addr]string
}

// MatchSelf finds which of the peers this host is. Peers must have passed
// Check.
//
// --self-name decides alone. Else a peer matches that has one of the local
// addresses: link-local ones never count, loopback ones only if every address
// of every peer is loopback. If several peers match, the listen port decides,
// then etcd's name, then, between peers that share the address, the host name.
// No match, more than one, or an etcd name that is another peer's, is an
// *Error of kind NotSelf that lists both sides. An etcd name that is no peer's
// changes nothing: the caller warns.
func MatchSelf(peers []Peer, local Local) (int, error) {
	m := matcher{peers: peers, local: local}
	if local.Name != "" {
		return m.byName()
	}
	mine := m.mine()
	matches := m.byAddr(mine)
	if len(matches) == 0 {
		return 0, m.fail("no peer has a local address", mine, "; set the member name explicitly with --self-name, or its address with --self-ip")
	}
	matches = m.breakTies(matches, mine)
	if len(matches) > 1 {
		var list []string
		for _, i := range matches {
			list = append(list, fmt.Sprintf("%s (%s)", peers[i].Name, m.where(common(peers[i].Addrs, mine))))
		}
		return 0, m.fail("ambiguous: this host is "+strings.Join(list, " and "), mine,
			"; set the member name explicitly with --self-name, or its address with --self-ip, or leave an interface or address out with --interface")
	}
	return matches[0], m.contradiction(matches[0])
}

// Swapped tells whether this host, which its addresses say is peers[self], has a
// host name that is exactly another peer's: DNS may be stale, and name this host's
// address for another one. --self-name, --self-ip and etcd's name settle it, and
// so does an address that both peers share. It is an *Error of kind NotSelf.
func Swapped(peers []Peer, self int, local Local) error {
	m := matcher{peers: peers, local: local}
	if local.Name != "" || local.Explicit.IsValid() || slices.Contains(m.named(local.NameHint), self) {
		return nil
	}
	hostname := hosturl.Canonical(local.Hostname)
	is := func(p Peer) bool {
		return hostname != "" && (strings.EqualFold(p.Name, hostname) || p.Host == hostname)
	}
	if is(peers[self]) {
		return nil
	}
	mine := m.mine()
	for _, p := range peers {
		if !is(p) || len(common(p.Addrs, mine)) > 0 {
			continue
		}
		q := peers[self]
		return m.fail(fmt.Sprintf("this host is called %q, which is %s=%s, but by its addresses it is %s=%s: the records may be old, or the addresses of the two are swapped",
			local.Hostname, plain(p.Name), addrList(p.Addrs), plain(q.Name), addrList(q.Addrs)), mine,
			"; correct the records or the host name, or say which member this is with --self-name or --self-ip")
	}
	return nil
}

// MaxTTL is how long caches may go on giving older answers than these: a
// mismatch is final only after it.
func MaxTTL(peers []Peer) time.Duration {
	var ttl time.Duration
	for _, p := range peers {
		ttl = max(ttl, p.TTL)
	}
	return ttl
}

type matcher struct {
	peers []Peer
	local Local
}

func (m matcher) byName() (int, error) {
	found := m.named(m.local.Name)
	switch len(found) {
	case 1:
		return found[0], m.contradiction(found[0])
	case 0:
		return 0, m.fail(fmt.Sprintf("no peer is called %q (--self-name)", m.local.Name), m.mine(), "")
	}
	return 0, m.fail(fmt.Sprintf("ambiguous: %d peers are called %q (--self-name), give the whole host name", len(found), m.local.Name), m.mine(), "")
}

// contradiction refuses an etcd name that is another peer's.
func (m matcher) contradiction(self int) error {
	hinted := m.named(m.local.NameHint)
	if len(hinted) == 0 || slices.Contains(hinted, self) {
		return nil
	}
	p, q := m.peers[self], m.peers[hinted[0]]
	by := "by its addresses"
	if m.local.Name != "" {
		by = "by --self-name"
	}
	return m.fail(fmt.Sprintf("etcd's name is %q, which is %s=%s, but %s this host is %s=%s",
		m.local.NameHint, q.Name, addrList(q.Addrs), by, p.Name, addrList(p.Addrs)), m.mine(),
		"; take the name out of etcd's configuration, or start this volume on its own host")
}

// mine is every local address that can be a member's.
func (m matcher) mine() []netip.Addr {
	all := m.local.Addrs
	if m.local.Explicit.IsValid() {
		all = []netip.Addr{m.local.Explicit}
	}
	loopback := len(m.peers) > 0
	for _, p := range m.peers {
		for _, a := range p.Addrs {
			loopback = loopback && a.Unmap().IsLoopback()
		}
	}
	var out []netip.Addr
	for _, a := range all {
		a = a.Unmap().WithZone("")
		if a.IsLinkLocalUnicast() || a.IsLoopback() && !loopback {
			continue
		}
		out = append(out, a)
	}
	return sortedAddrs(out)
}

func (m matcher) byAddr(mine []netip.Addr) []int {
	var out []int
	for i, p := range m.peers {
		if len(common(p.Addrs, mine)) > 0 {
			out = append(out, i)
		}
	}
	return out
}

func (m matcher) breakTies(matches []int, mine []netip.Addr) []int {
	narrow := func(keep func(i int) bool) {
		if len(matches) < 2 {
			return
		}
		var left []int
		for _, i := range matches {
			if keep(i) {
				left = append(left, i)
			}
		}
		if len(left) > 0 {
			matches = left
		}
	}
	narrow(func(i int) bool { return slices.Contains(m.local.Ports, m.peers[i].Port) })
	narrow(func(i int) bool { return slices.Contains(m.named(m.local.NameHint), i) })
	// Peers that match by different addresses are crossed records or several
	// hosts in one: there a host name, which is nobody's decision, proves nothing.
	for _, i := range matches {
		if !slices.Equal(common(m.peers[i].Addrs, mine), common(m.peers[matches[0]].Addrs, mine)) {
			return matches
		}
	}
	hostname := hosturl.Canonical(m.local.Hostname)
	named := m.named(hostname)
	if len(named) == 0 {
		named = m.named(firstLabel(hostname))
	}
	narrow(func(i int) bool { return slices.Contains(named, i) })
	return matches
}

// named is the peers that s names: by name or host, else by the host's first label.
func (m matcher) named(s string) []int {
	if s == "" {
		return nil
	}
	s = hosturl.Canonical(s)
	var exact, first []int
	for i, p := range m.peers {
		switch {
		case strings.EqualFold(p.Name, s) || p.Host == s:
			exact = append(exact, i)
		case firstLabel(p.Host) == s:
			first = append(first, i)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return first
}

func (m matcher) fail(what string, mine []netip.Addr, advice string) error {
	local := addrList(mine)
	if m.local.Explicit.IsValid() {
		local += " (--self-ip)"
	} else if skipped := len(m.local.Addrs) - len(mine); skipped > 0 {
		local += fmt.Sprintf(" (and %s, which do not count)", addrList(without(m.local.Addrs, mine)))
	}
	return &Error{Kind: NotSelf, Msg: fmt.Sprintf("%s: local %s; peers %s%s", what, local, table(m.peers), advice)}
}

// where is addresses with their interfaces.
func (m matcher) where(addrs []netip.Addr) string {
	names := map[netip.Addr]string{}
	if m.local.Interfaces != nil {
		names = m.local.Interfaces()
	}
	var list []string
	for _, a := range sortedAddrs(addrs) {
		text := a.String()
		if name := names[a]; name != "" {
			text += " on " + name
		}
		list = append(list, text)
	}
	return strings.Join(list, ",")
}

func common(a, b []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, x := range a {
		if slices.Contains(b, x.Unmap()) {
			out = append(out, x.Unmap())
		}
	}
	return out
}

func without(a, b []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, x := range a {
		if !slices.Contains(b, x.Unmap()) {
			out = append(out, x)
		}
	}
	return sortedAddrs(out)
}
