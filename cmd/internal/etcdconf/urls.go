package etcdconf

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/etcdinit/etcdinit/internal/hosturl"
)

const (
	defaultPeerURL   = "http://localhost:2380"
	defaultClientURL = "http://localhost:2379"
)

// Listener is one listen URL, taken apart. A unix socket has its path in Host
// and no port.
type Listener struct {
	Scheme, Host string // Host without brackets
	Port         uint16
}

// String returns the listen URL.
func (l Listener) String() string { return l.URL(l.Host) }

// URL is the listen URL with another host.
func (l Listener) URL(host string) string {
	if l.Unix() {
		return l.Scheme + "://" + l.Host
	}
	return l.Scheme + "://" + hosturl.Join(host, l.Port)
}

// Unix says whether it is a unix socket.
func (l Listener) Unix() bool { return l.Scheme == "unix" || l.Scheme == "unixs" }

// Narrow is the listener on addr alone where it listens on every address of
// the node (0.0.0.0, [::]); every other one stays as it is.
func (l Listener) Narrow(addr netip.Addr) Listener {
	if ip, err := netip.ParseAddr(l.Host); err == nil && ip.IsUnspecified() && addr.IsValid() {
		l.Host = addr.String()
	}
	return l
}

// ListenSelf narrows the listen URLs on every address of the node (0.0.0.0,
// [::]) to addr; others stay as they are, and equal ones become one.
func ListenSelf(listen []string, addr netip.Addr) []string {
	var narrowed []string
	for _, raw := range listen {
		if l, ok := listener(raw); ok {
			raw = l.Narrow(addr).String()
		}
		if !slices.Contains(narrowed, raw) {
			narrowed = append(narrowed, raw)
		}
	}
	return narrowed
}

// PeerListeners returns listen-peer-urls, etcd's default where absent.
func (c *Config) PeerListeners() []Listener { return listeners(c.ListenPeerURLs, defaultPeerURL) }

// ClientListeners returns listen-client-urls, etcd's default where absent.
func (c *Config) ClientListeners() []Listener {
	return listeners(c.ListenClientURLs, defaultClientURL)
}

func listeners(raw []string, fallback string) []Listener {
	if len(raw) == 0 {
		raw = []string{fallback}
	}
	var all []Listener
	for _, r := range raw {
		if l, ok := listener(r); ok {
			all = append(all, l)
		}
	}
	return all
}

func listener(raw string) (Listener, bool) {
	u, err := url.Parse(raw)
	if err != nil {
		return Listener{}, false
	}
	l := Listener{Scheme: u.Scheme}
	if l.Unix() {
		l.Host = u.Host + u.Path
		return l, true
	}
	at, ok := hosturl.Split(raw)
	return Listener{Scheme: at.Scheme, Host: at.Host, Port: at.Port}, ok
}

// parseURLs reads a comma separated list as etcd does: blanks around an entry
// are dropped and the list is sorted. "" is no list.
func parseURLs(value string) ([]string, error) {
	if value == "" {
		return nil, nil
	}
	parts := strings.Split(value, ",")
	all := make([]string, 0, len(parts))
	for _, p := range parts {
		u, err := parseURL(strings.TrimSpace(p))
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	slices.Sort(all)
	return all, nil
}

func parseURL(raw string) (string, error) {
	bad := func(format string, args ...any) (string, error) {
		return "", invalid(fmt.Sprintf("%q: ", raw)+fmt.Sprintf(format, args...), nil)
	}
	if raw == "" {
		return "", invalid("an empty URL (a comma too many?)", nil)
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return bad("not a URL of the form http://host:port")
	}
	hostPort, _, _ := strings.Cut(rest, "/")
	socket := Listener{Scheme: strings.ToLower(scheme)}.Unix() // its name may have any number of colons
	if meant, bare := hosturl.Unbracketed(hostPort); bare && !socket {
		return bad("an IPv6 address must be in brackets: %s://%s", scheme, meant)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return bad("not a URL: %v", unwrapURL(err))
	}
	switch u.Scheme {
	case "unix", "unixs":
		return u.String(), nil
	case "http", "https":
	default:
		return bad("the scheme must be http, https, unix or unixs, not %q", u.Scheme)
	}
	switch {
	case u.Port() == "":
		return bad("not of the form %s://host:port: the port is missing", u.Scheme)
	case u.Path != "":
		return bad("no path may follow the port")
	case u.User != nil || strings.ContainsAny(rest, "?#"): // an empty query or fragment as well
		return bad("nothing may stand in it but scheme, host and port")
	}
	if _, ok := hosturl.Split(raw); !ok {
		return bad("%s is no port number", u.Port())
	}
	return u.String(), nil
}

func unwrapURL(err error) error {
	if u, ok := err.(*url.Error); ok { //nolint:errorlint // url.Parse returns it bare
		return u.Err
	}
	return err
}

// checkBind holds listen URLs to what etcd can bind.
func checkBind(raw []string) error {
	for _, r := range raw {
		l, ok := listener(r)
		if !ok || l.Unix() || l.Host == "localhost" || net.ParseIP(l.Host) != nil {
			continue
		}
		if l.Host == "" {
			return invalid(fmt.Sprintf("%q: the address to listen on is missing; use %s to listen on all", r, l.URL("0.0.0.0")), nil)
		}
		return invalid(fmt.Sprintf("%q: etcd listens on IP addresses only, not on the name %q; use %s to listen on all", r, l.Host, l.URL("0.0.0.0")), nil)
	}
	return nil
}

// checkHost holds advertise URLs to having a host.
func checkHost(raw []string) error {
	for _, r := range raw {
		if l, ok := listener(r); ok && !l.Unix() && l.Host == "" {
			return invalid(fmt.Sprintf("%q: the host is missing", r), nil)
		}
	}
	return nil
}
