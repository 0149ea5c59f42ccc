package discovery

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// LocalAddrs lists the addresses that can be a member's: all global unicast
// and loopback addresses of the interfaces that are up. Link-local addresses
// never are. which may narrow that: names of interfaces, addresses and networks
// (10.0.0.0/8), with commas between; what has a ! before it is left out, such as
// a virtual address that moves between hosts.
//
// An interface that is down or has no address yet is a Retry, and so is one that
// does not exist, which may be made later, and a network without an address here:
// at the deadline that is an *Error of kind Config. What cannot be read is one at
// once.
func LocalAddrs(which string) ([]netip.Addr, error) {
	c, err := parseChoice(which)
	if err != nil {
		return nil, err
	}
	hosts, err := hostInterfaces()
	if err != nil {
		return nil, err
	}
	return c.of(hosts)
}

// LocalInterfaces tells which interface has each address that can be a member's, as far
// as the system tells.
func LocalInterfaces() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	hosts, err := hostInterfaces()
	if err != nil {
		return names
	}
	for _, i := range hosts {
		for _, a := range i.addrs {
			names[a] = i.name
		}
	}
	return names
}

func hostInterfaces() ([]hostInterface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, &Error{Kind: Retry, Msg: "list the network interfaces", Err: err}
	}
	var hosts []hostInterface
	for _, i := range all {
		h := hostInterface{name: i.Name, up: i.Flags&net.FlagUp != 0}
		if h.up {
			addrs, err := i.Addrs()
			if err != nil {
				return nil, &Error{Kind: Retry, Msg: "list the addresses of interface " + i.Name, Err: err}
			}
			h.addrs = usable(addrs)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// CheckLocal tells whether which can be read; see LocalAddrs.
func CheckLocal(which string) error {
	_, err := parseChoice(which)
	return err
}

// hostInterface is a network interface of this host.
type hostInterface struct {
	name  string
	up    bool
	addrs []netip.Addr
}

// choice is which local addresses count.
type choice struct {
	text                  string
	names, notNames       []string
	networks, notNetworks []netip.Prefix
}

func parseChoice(text string) (choice, error) {
	c := choice{text: text}
	if text == "" {
		return c, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		what, not := strings.CutPrefix(strings.TrimSpace(word), "!")
		names, networks := &c.names, &c.networks
		if not {
			names, networks = &c.notNames, &c.notNetworks
		}
		prefix, err := netip.ParsePrefix(what)
		addr, addrErr := netip.ParseAddr(what)
		switch {
		case what == "" || strings.Contains(what, "/") && err != nil:
			return c, &Error{Kind: Config, Msg: fmt.Sprintf("interface %q: %q is no interface and no network such as 10.0.0.0/8", text, word)}
		case err == nil:
			*networks = append(*networks, prefix.Masked())
		case addrErr == nil:
			*networks = append(*networks, netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()))
		default:
			*names = append(*names, what)
		}
	}
	return c, nil
}

// of chooses among the addresses of a host.
func (c choice) of(all []hostInterface) ([]netip.Addr, error) {
	inside := func(networks []netip.Prefix, a netip.Addr) bool {
		return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
	}
	var names []string
	var out, passed []netip.Addr
	for _, i := range all {
		names = append(names, i.name)
		named := slices.Contains(c.names, i.name)
		if named && !i.up {
			return nil, &Error{Kind: Retry, Msg: fmt.Sprintf("interface %s is down", i.name)}
		}
		if named && len(i.addrs) == 0 {
			return nil, &Error{Kind: Retry, Msg: fmt.Sprintf("interface %s has no global address", i.name)}
		}
		for _, a := range i.addrs {
			wanted := len(c.names)+len(c.networks) == 0 || named || inside(c.networks, a)
			if wanted && !slices.Contains(c.notNames, i.name) && !inside(c.notNetworks, a) {
				out = append(out, a)
			} else {
				passed = append(passed, a)
			}
		}
	}
	for _, name := range c.names {
		if !slices.Contains(names, name) {
			return nil, &Error{
				Kind: Retry, AtDeadline: Config,
				Msg: fmt.Sprintf("there is no interface %q; this host has %s", name, strings.Join(names, ", ")),
			}
		}
	}
	if c.text != "" && len(out) == 0 {
		return nil, &Error{
			Kind: Retry, AtDeadline: Config,
			Msg: fmt.Sprintf("no address of this host is in %q; it has %s", c.text, addrList(sortedAddrs(passed))),
		}
	}
	return sortedAddrs(out), nil
}

func usable(addrs []net.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		if ip = ip.Unmap(); ok && (ip.IsGlobalUnicast() || ip.IsLoopback()) {
			out = append(out, ip)
		}
	}
	return out
}
