package discovery

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// LocalAddrs lists the addresses that can be a member's: all global unicast
// and loopback addresses of the interfaces that are up, or of the one named.
// Link-local addresses never are. An interface that is down or has no address
// yet is a Retry, and so is one that does not exist, which may be made later: at
// the deadline that is an *Error of kind Config.
func LocalAddrs(iface string) ([]netip.Addr, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, &Error{Kind: Retry, Msg: "list the network interfaces", Err: err}
	}
	var names []string
	var out []netip.Addr
	for _, i := range all {
		names = append(names, i.Name)
		if iface != "" && i.Name != iface {
			continue
		}
		if i.Flags&net.FlagUp == 0 {
			if iface != "" {
				return nil, &Error{Kind: Retry, Msg: fmt.Sprintf("interface %s is down", iface)}
			}
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, &Error{Kind: Retry, Msg: "list the addresses of interface " + i.Name, Err: err}
		}
		if iface != "" && len(usable(addrs)) == 0 {
			return nil, &Error{Kind: Retry, Msg: fmt.Sprintf("interface %s has no global address", iface)}
		}
		out = append(out, usable(addrs)...)
		if iface != "" {
			return sortedAddrs(out), nil
		}
	}
	if iface != "" {
		return nil, &Error{
			Kind: Retry, AtDeadline: Config,
			Msg: fmt.Sprintf("there is no interface %q; this host has %s", iface, strings.Join(names, ", ")),
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
