package plugins

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ValidName says whether name may name a plugin (rule 1.1). A name is never a
// path.
func ValidName(name string) bool {
	if name == "" || len(name) > 64 || strings.ContainsAny(name[:1], "._-") {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

func (e *Error) check() error {
	switch {
	case e.Code == "":
		return breach("5.2", "the error has no code: %s", OneLine(e.Message, MaxMessage))
	case strings.TrimSpace(e.Message) == "":
		return breach("5.1", "the error (%s) has no message", OneLine(e.Code, 64))
	case e.RetryAfter < 0:
		return breach("5", "retryAfter is negative: %g", e.RetryAfter)
	}
	return nil
}

func (i *Info) check() error {
	switch {
	case !ValidName(i.Name):
		return breach("1.1", "info names the plugin %q, which is no plugin name", OneLine(i.Name, 80))
	case strings.TrimSpace(i.Version) == "":
		return breach("4", "info has no version")
	case len(i.ContractVersions) == 0:
		return breach("4", "info has no contractVersions")
	}
	seen := map[string]bool{}
	for _, p := range i.Parameters {
		switch {
		case p.Name == "":
			return breach("4", "info has a parameter without a name")
		case seen[p.Name]:
			return breach("4", "info has the parameter %q twice", OneLine(p.Name, 80))
		case Reserved(p.Name):
			return breach("3.3", "info has the parameter %q, a key that is etcdinit's own", OneLine(p.Name, 80))
		}
		seen[p.Name] = true
	}
	return nil
}

// Reserved says whether a key of the source is etcdinit's own and not handed
// on to the plugin (rule 3.3).
func Reserved(key string) bool {
	return key == "env" || key == "timeout" || strings.HasPrefix(key, "etcdinit-")
}

func (r *Response) checkPeers() error {
	if r.TTL < 0 {
		return breach("4.4", "ttl is negative: %g", r.TTL)
	}
	hosts, names, addrs := map[string]string{}, map[string]string{}, map[string]string{}
	var scheme string
	for i, p := range r.Peers {
		at := "peer " + strconv.Itoa(i+1) + " (" + OneLine(p.Host, 253) + ")"
		if err := p.check(at, &scheme); err != nil {
			return err
		}
		if other, ok := hosts[p.site(p.Host)]; ok {
			return breach("4.2", "%s and %s have one host", other, at)
		}
		hosts[p.site(p.Host)] = at
		if other, ok := names[strings.ToLower(p.Name)]; ok && p.Name != "" {
			return breach("4.2", "%s and %s have one name, %s", other, at, p.Name)
		}
		names[strings.ToLower(p.Name)] = at
		for _, a := range p.Addrs {
			if other, ok := addrs[p.site(a)]; ok && other != at {
				return breach("4.2", "%s and %s have one address, %s", other, at, a)
			}
			addrs[p.site(a)] = at
		}
	}
	return nil
}

// site is the host and the peer's port in one spelling.
func (p Peer) site(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return host + " " + strconv.Itoa(p.Port)
}

func (p Peer) check(at string, scheme *string) error {
	switch {
	case p.Host == "":
		return breach("4", "%s has no host", at)
	case !validHost(p.Host):
		return breach("4", "%s: the host is neither a host name nor an address without brackets", at)
	case p.Port < 0 || p.Port > 65535:
		return breach("4", "%s: port %d is not in 1 to 65535", at, p.Port)
	case strings.ContainsFunc(p.Name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' || r == '=' }):
		return breach("4", "%s: the name %q holds white space, a comma, an equals sign or what is not ASCII", at, OneLine(p.Name, 80))
	case len(p.Name) > 255:
		return breach("4", "%s: the name has %d bytes", at, len(p.Name))
	}
	for _, a := range p.Addrs {
		ip, err := netip.ParseAddr(a)
		switch {
		case err != nil:
			return breach("4", "%s: %q is no IP address", at, OneLine(a, 80))
		case ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast():
			return breach("4.3", "%s: %s is no address that a member can have", at, ip)
		}
	}
	for _, raw := range slices.Concat(p.PeerURLs, p.ClientURLs) {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" ||
			u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.String() != raw {
			return breach("4", "%s: the URL %q is not http://HOST:PORT or https://HOST:PORT", at, OneLine(raw, 80))
		}
		if n, err := strconv.Atoi(u.Port()); err != nil || n < 1 || n > 65535 || !validHost(u.Hostname()) {
			return breach("4", "%s: the URL %q has no host and port that can be", at, OneLine(raw, 80))
		}
	}
	for _, raw := range p.PeerURLs {
		s, _, _ := strings.Cut(raw, ":")
		if *scheme == "" {
			*scheme = s
		}
		if s != *scheme {
			return breach("4", "%s: the peer URL %s is %s, others are %s", at, raw, s, *scheme)
		}
	}
	return nil
}

// validHost says whether host is an IP address without a zone, or a host name:
// labels of letters, digits, "-" and "_", at most 253 bytes.
func validHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast()
	}
	host = strings.TrimSuffix(host, ".")
	if len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.ContainsFunc(label, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
		}) {
			return false
		}
	}
	// Digits only is a mistyped address: 192.0.2 or 192.0.2.300.
	last := host[strings.LastIndex(host, ".")+1:]
	return strings.Trim(last, "0123456789") != ""
}
