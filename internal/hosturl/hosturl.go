// Package hosturl reads and writes the URLs that etcd members listen on and
// advertise: scheme://host:port and nothing else.
package hosturl

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// URL is one advertised URL in its canonical parts.
type URL struct {
	Scheme string // "http" or "https"
	Host   string // lower-case, without trailing dot; an IP address without brackets
	Port   uint16
}

// String gives the one spelling that is stored, hashed and compared.
func (u URL) String() string { return u.Scheme + "://" + Join(u.Host, u.Port) }

// Join is host:port, with brackets around an IPv6 address.
func Join(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Canonical is the one spelling of a host: lower-case, without a trailing dot; an
// IP address in its shortest form, IPv4 unmapped.
func Canonical(host string) string {
	host = lower(strings.TrimSuffix(host, "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return host
}

// lower folds ASCII only: DNS knows no other letters, and folding more would
// make two different names one.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, s)
}

// Parse reads scheme://host:port. What is missing or too much is named.
func Parse(raw string) (URL, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return URL{}, errors.New("no scheme, want http://host:port or https://host:port")
	}
	scheme = lower(scheme)
	if scheme != "http" && scheme != "https" {
		return URL{}, fmt.Errorf("scheme %q, want http or https", scheme)
	}
	if i := strings.IndexAny(rest, "/?#@"); i >= 0 {
		what := map[byte]string{'/': "a path", '?': "a query", '#': "a fragment", '@': "a user"}[rest[i]]
		return URL{}, fmt.Errorf("%s is not allowed, want %s://host:port and nothing else", what, scheme)
	}
	if meant, bare := Unbracketed(rest); bare {
		return URL{}, fmt.Errorf("IPv6 address must be in brackets: %s", meant)
	}
	host, digits, err := net.SplitHostPort(rest)
	if err != nil {
		return URL{}, fmt.Errorf("no port, want %s://host:port", scheme)
	}
	port, err := Port(digits)
	if err != nil {
		return URL{}, err
	}
	if strings.HasPrefix(rest, "[") {
		if ip, err := netip.ParseAddr(host); err != nil || !ip.Is6() {
			return URL{}, fmt.Errorf("%q in brackets is not an IPv6 address", host)
		}
	}
	u := URL{Scheme: scheme, Host: Canonical(host), Port: port}
	if err := CheckHost(u.Host); err != nil {
		return URL{}, err
	}
	return u, nil
}

// Split takes a URL of etcd's configuration apart, whose host may be a name in any
// spelling, empty, or an address of no host (0.0.0.0), and whose port may be 0.
func Split(raw string) (URL, bool) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return URL{}, false
	}
	host, digits, err := net.SplitHostPort(rest)
	if err != nil {
		return URL{}, false
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return URL{}, false
	}
	return URL{Scheme: lower(scheme), Host: host, Port: uint16(port)}, true
}

// Host is the host of a URL; "" if it has none.
func Host(raw string) string {
	u, _ := Split(raw)
	return u.Host
}

// Unbracketed finds an IPv6 address without its brackets in host:port, and
// returns what was meant, with PORT for a port that is missing.
func Unbracketed(hostPort string) (meant string, found bool) {
	if strings.Count(hostPort, ":") < 2 || strings.ContainsAny(hostPort, "[]@") {
		return "", false
	}
	at := strings.LastIndex(hostPort, ":")
	if ip, err := netip.ParseAddr(hostPort[:at]); err == nil && ip.Is6() && at+1 < len(hostPort) {
		return "[" + ip.String() + "]" + hostPort[at:], true
	}
	return "[" + strings.TrimSuffix(hostPort, ":") + "]:PORT", true
}

// Port reads a port number from 1 to 65535.
func Port(digits string) (uint16, error) {
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || digits != strconv.FormatUint(n, 10) {
		return 0, fmt.Errorf("port %q is not a number from 1 to 65535", digits)
	}
	return uint16(n), nil
}

// CheckHost tells whether a canonical host may stand in a URL: an IP address
// or a host name of legal labels.
func CheckHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return fmt.Errorf("host %q has a zone, which means nothing to other hosts", host)
		}
		return nil
	}
	if host == "" {
		return errors.New("the host is empty")
	}
	if len(host) > 253 {
		return fmt.Errorf("host name of %d characters, at most 253 are allowed", len(host))
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return fmt.Errorf("host %q has a label of %d characters, want 1 to 63", host, len(label))
		}
		for _, r := range []byte(label) {
			alnum := '0' <= r && r <= '9' || 'a' <= r && r <= 'z'
			if !alnum && r != '-' && r != '_' {
				return fmt.Errorf("host %q has the character %q, a host name is of letters, digits and '-'", host, r)
			}
		}
	}
	return nil
}
