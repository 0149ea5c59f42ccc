package discovery

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// Check holds a peer set against the rules that no source may weaken. The set
// must have exactly size peers (any number where size is 0), each with a legal
// name, a host, a port, at least one address and well-formed URLs; names,
// host:port pairs, URLs and address:port pairs are unique; no address is
// link-local, and none is a loopback address unless all are; and no name is
// made from an address or a random ID (CheckStable).
//
// Too few peers and a peer without an address are *Error of kind Retry; every
// other breach is Unusable.
func Check(peers []Peer, size int) error {
	if size > 0 && len(peers) > size {
		return &Error{
			Kind: Unusable,
			Msg:  fmt.Sprintf("got %d of %d peers: %s", len(peers), size, hosts(peers)),
			Hints: []string{
				"where two clusters share one name, give each a service name suffix (discovery-srv-name), or set --size to the whole number of members",
			},
		}
	}
	for _, p := range peers {
		if err := checkPeer(p); err != nil {
			return err
		}
	}
	if err := checkUnique(peers); err != nil {
		return err
	}
	if len(peers) == 0 || len(peers) < size {
		return &Error{
			Kind: Retry,
			Msg:  fmt.Sprintf("got %d of %s peers: %s", len(peers), atLeastOne(size), hosts(peers)),
			Seen: peers,
		}
	}
	if err := checkAddrs(peers); err != nil {
		return err
	}
	return CheckStable(peers)
}

func atLeastOne(size int) string {
	if size == 0 {
		return "at least 1"
	}
	return strconv.Itoa(size)
}

func unusable(format string, args ...any) error {
	return &Error{Kind: Unusable, Msg: fmt.Sprintf(format, args...)}
}

func checkPeer(p Peer) error {
	if err := hosturl.CheckHost(p.Host); err != nil {
		return unusable("peer %s: %v", label(p), err)
	}
	if p.Port == 0 {
		return unusable("peer %s: port 0 is no port", label(p))
	}
	if err := checkName(p.Name); err != nil {
		return unusable("peer %s: %v", label(p), err)
	}
	if len(p.PeerURLs) == 0 {
		return unusable("peer %s has no peer URL", label(p))
	}
	for _, list := range [][]string{p.PeerURLs, p.ClientURLs} {
		for _, raw := range list {
			u, err := hosturl.Parse(raw)
			if err != nil {
				return unusable("peer %s: URL %q: %v", label(p), raw, err)
			}
			if u.String() != raw {
				return unusable("peer %s: URL %q must be written %q", label(p), raw, u)
			}
		}
	}
	own := false
	for _, raw := range p.PeerURLs {
		own = own || strings.HasSuffix(raw, "://"+hosturl.Join(p.Host, p.Port))
	}
	if !own {
		return unusable("peer %s: none of its peer URLs %s is on %s", label(p), strings.Join(p.PeerURLs, ", "), hosturl.Join(p.Host, p.Port))
	}
	return nil
}

// checkName allows what needs no quoting in a flag, a file of variables or an
// initial-cluster list.
func checkName(name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	if len(name) > 253 {
		return fmt.Errorf("the name has %d characters, at most 253 are allowed", len(name))
	}
	for _, r := range name {
		alnum := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !alnum && !strings.ContainsRune("-_.:", r) {
			return fmt.Errorf("the name %q has the character %q, a member name is of letters, digits and '-', '_', '.', ':'", name, r)
		}
	}
	return nil
}

func checkUnique(peers []Peer) error {
	names := map[string]Peer{}
	sites := map[string]Peer{}
	urls := map[string]Peer{}
	for _, p := range peers {
		site := hosturl.Join(p.Host, p.Port)
		if q, ok := sites[site]; ok {
			return unusable("%s is listed twice, as %s (%s) and as %s (%s)",
				site, q.Name, strings.Join(q.PeerURLs, ", "), p.Name, strings.Join(p.PeerURLs, ", "))
		}
		sites[site] = p
		if q, ok := names[strings.ToLower(p.Name)]; ok {
			return unusable("two peers have the name %s: %s and %s; give each member a host name, or a name, of its own",
				p.Name, hosturl.Join(q.Host, q.Port), site)
		}
		names[strings.ToLower(p.Name)] = p
		for _, list := range [][]string{p.PeerURLs, p.ClientURLs} {
			for _, u := range list {
				if q, ok := urls[u]; ok {
					if q.Name == p.Name {
						return unusable("peer %s has one URL, %s, for peers and for clients: the record of a peer needs the port of its listen-peer-urls, that of a client the port of its listen-client-urls", label(p), u)
					}
					return unusable("peers %s and %s have the same URL %s", q.Name, p.Name, u)
				}
				urls[u] = p
			}
		}
	}
	return nil
}

func checkAddrs(peers []Peer) error {
	var missing, found []string
	for _, p := range peers {
		if len(p.Addrs) == 0 {
			missing = append(missing, p.Host)
		} else {
			found = append(found, table([]Peer{p}))
		}
	}
	if len(missing) > 0 {
		return &Error{
			Kind: Retry,
			Msg:  fmt.Sprintf("no address for %s; have %s", strings.Join(missing, ", "), orNone(found)),
			Seen: peers,
		}
	}
	if err := checkSpecial(peers); err != nil {
		return err
	}
	return checkShared(peers)
}

// checkSpecial refuses the addresses that mean another host on every host.
func checkSpecial(peers []Peer) error {
	var loops []string
	all := true
	for _, p := range peers {
		for _, a := range p.Addrs {
			switch {
			case a.IsLinkLocalUnicast() || a.Zone() != "":
				return unusable("%s has the link-local address %s, which other hosts cannot use", label(p), a)
			case a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
				return unusable("%s has the address %s, which is no host's address", label(p), a)
			case a.IsLoopback():
				loops = append(loops, fmt.Sprintf("%s=%s", p.Host, a))
			default:
				all = false
			}
		}
	}
	if len(loops) > 0 && !all {
		return unusable("a loopback address is no member address: %s; where the name comes from /etc/hosts, take it out there; all peers: %s",
			strings.Join(loops, ", "), table(peers))
	}
	return nil
}

// checkShared refuses two peers that are one address and one port.
func checkShared(peers []Peer) error {
	owners := map[netip.AddrPort][]Peer{}
	var shared []netip.AddrPort
	for _, p := range peers {
		for _, a := range p.Addrs {
			at := netip.AddrPortFrom(a, p.Port)
			owners[at] = append(owners[at], p)
			if len(owners[at]) == 2 {
				shared = append(shared, at)
			}
		}
	}
	if len(shared) == 0 {
		return nil
	}
	slices.SortFunc(shared, netip.AddrPort.Compare)
	at := shared[0]
	if n := len(peers); n > 2 && len(owners[at]) == n {
		return unusable("all %d targets resolve to %s - wildcard? (%s)", n, at.Addr(), hosts(peers))
	}
	return unusable("ambiguous: %s are all %s; each member needs an address or a port of its own; all peers: %s",
		hosts(owners[at]), at, table(peers))
}

// label is how a message calls a peer.
func label(p Peer) string {
	switch {
	case p.Host == "":
		return plain(p.Name)
	case p.Name == "" || p.Name == p.Host:
		return plain(p.Host)
	}
	return plain(p.Name) + " (" + plain(p.Host) + ")"
}

// plain keeps an error in one line, whatever a source calls its peers.
func plain(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

func hosts(peers []Peer) string {
	var list []string
	for _, p := range peers {
		list = append(list, plain(p.Host))
	}
	return orNone(list)
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// table is every peer with its addresses: a=192.0.2.10 b=192.0.2.11,2001:db8::11.
func table(peers []Peer) string {
	var list []string
	for _, p := range peers {
		name := p.Name
		if name == "" {
			name = p.Host
		}
		list = append(list, plain(name)+"="+addrList(p.Addrs))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}

func addrList(addrs []netip.Addr) string {
	var list []string
	for _, a := range addrs {
		list = append(list, a.String())
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ",")
}
