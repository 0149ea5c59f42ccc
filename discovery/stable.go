package discovery

import (
	"encoding/hex"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// CheckStable refuses names that are made from an address or a random ID: they
// change with the host or the container, while a member keeps its name, its URL
// and its ID for life. What a person wrote down (Peer.AsIs) is taken, and so is
// an address in the place of a name. It is part of Check.
func CheckStable(peers []Peer) error {
	shared := sharedLabels(peers)
	for _, p := range peers {
		if _, err := netip.ParseAddr(p.Host); p.AsIs || err == nil && (p.Name == "" || p.Name == p.Host) {
			continue
		}
		name := p.Name
		if name == "" || name == firstLabel(p.Host) {
			name = p.Host // also what follows the first label must stay
		}
		if why := unstable(strings.ToLower(name), p, peers, shared); why != "" {
			return unusable("peer %s=%s is named after %s, so it would be another member as soon as that changes: %s",
				label(p), addrList(p.Addrs), why, wayOut(p))
		}
	}
	return nil
}

// sharedLabels is how many labels at their end all hosts have in common: those
// name no member.
func sharedLabels(peers []Peer) int {
	var first []string
	n := 0
	for i, p := range peers {
		labels := strings.Split(p.Host, ".")
		slices.Reverse(labels)
		if i == 0 {
			first, n = labels, len(labels)-1
			if len(peers) == 1 && swarm(p.Host) {
				n = 1
			}
			continue
		}
		n = min(n, len(labels)-1)
		for j := range n {
			if labels[j] != first[j] {
				n = j
				break
			}
		}
	}
	return n
}

// unstable is what a name is made of that will change; empty where it is stable,
// as far as anybody can tell.
func unstable(name string, p Peer, peers []Peer, shared int) string {
	labels := strings.Split(name, ".")
	own := len(labels)
	if name == p.Host {
		own -= shared
	}
	for i, l := range labels {
		if a := addressIn(l, p.Addrs, i, own); a != "" {
			return a
		}
		if i < own && isRandom(l, i, peers) {
			return "a random ID (" + l + ")"
		}
	}
	for _, a := range p.Addrs {
		back := strings.Split(a.String(), ".")
		slices.Reverse(back)
		for _, s := range []string{a.String(), strings.Join(back, ".")} { // 10.0.0.1.nip.io, static.1.0.0.10.example.com
			if strings.Contains("."+name+".", "."+s+".") {
				return "its address " + a.String()
			}
		}
	}
	return ""
}

// addressIn finds an address in a label: one of the peer's own in any of the
// usual spellings, or, before the domain, one that nobody would write otherwise.
func addressIn(label string, addrs []netip.Addr, place, domain int) string {
	for _, a := range addrs {
		for _, s := range spellings(a) {
			if strings.Contains("-"+label+"-", "-"+s+"-") {
				return "its address " + a.String() + " (" + label + ")"
			}
		}
	}
	if place >= domain {
		return ""
	}
	if place == 0 && isHash(label) {
		return "a hash of its address (" + label + ")"
	}
	if m := regexp.MustCompile(`^(?:ip-|ec2-)?(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})$`).FindStringSubmatch(label); m != nil {
		octets := m[1:]
		if !slices.ContainsFunc(octets, func(s string) bool { n, err := strconv.Atoi(s); return err != nil || n > 255 }) {
			return "an address (" + label + ")"
		}
	}
	return ""
}

// PodHash reports whether a host's first label is what Kubernetes DNS makes of the
// address of a pod that has no host name.
func PodHash(host string) bool { return isHash(firstLabel(host)) }

// isHash knows the labels that Kubernetes DNS makes of an address: the eight
// digits of a hash, each by the code of its character.
func isHash(label string) bool {
	raw, err := hex.DecodeString(label)
	return err == nil && len(raw) == 8 && strings.Trim(string(raw), "0123456789abcdef") == ""
}

// spellings are the ways in which an address is put into a label: 192-0-2-10,
// 10-2-0-192, c000020a, 3221225994, 2001-db8--10.
func spellings(a netip.Addr) []string {
	raw := a.AsSlice()
	dash := strings.NewReplacer(".", "-", ":", "-")
	list := []string{dash.Replace(a.String()), dash.Replace(a.StringExpanded()), hex.EncodeToString(raw)}
	if a.Is4() {
		var back []string
		n := 0
		for _, b := range raw {
			back = slices.Insert(back, 0, strconv.Itoa(int(b)))
			n = n<<8 | int(b)
		}
		list = append(list, strings.Join(back, "-"))
		if n >= 1e7 { // else it may be a number that somebody chose
			list = append(list, strconv.Itoa(n))
		}
	}
	return list
}

// isRandom tells whether a label is an ID that somebody drew. The same place in
// the other peers' hosts tells it from a name with a pattern, such as
// dc1r2u3n4h5: there the letters are the same.
func isRandom(label string, place int, peers []Peer) bool {
	switch {
	case regexp.MustCompile(`(^|[-_])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`).MatchString(label):
		return true // a UUID
	case regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz]*[2456789][bcdfghjklmnpqrstvwxz2456789]*-[bcdfghjklmnpqrstvwxz2456789]{5}$`).MatchString(label):
		parts := strings.Split(label, "-")
		if n := len(parts[len(parts)-2]); n >= 8 && n <= 10 {
			return true // a pod of a Deployment
		}
	}
	return isID(label) && !patterned(label, place, peers)
}

// isID knows a container's ID, a task's, and their like: long, in one piece, and
// letters and digits mixed up.
func isID(label string) bool {
	if len(label) < 10 || !regexp.MustCompile(`^[a-z0-9]*$`).MatchString(label) {
		return false
	}
	isDigit := func(c byte) bool { return '0' <= c && c <= '9' }
	changes := 0
	for i := 1; i < len(label); i++ {
		if isDigit(label[i]) != isDigit(label[i-1]) {
			changes++
		}
	}
	hexadecimal := regexp.MustCompile(`^[0-9a-f]*$`).MatchString(label) && slices.Contains([]int{12, 16, 32, 40, 64}, len(label))
	return changes >= 4 || changes >= 2 && (hexadecimal || len(label) == 25)
}

// patterned tells whether all peers have the same letters at a place, and differ
// in numbers only.
func patterned(label string, place int, peers []Peer) bool {
	number := regexp.MustCompile(`\d+`)
	for _, p := range peers {
		labels := strings.Split(strings.ToLower(p.Host), ".")
		if place >= len(labels) || number.ReplaceAllString(labels[place], "#") != number.ReplaceAllString(label, "#") {
			return false
		}
	}
	return len(peers) > 1
}

// wayOut is what to do about a name that will not last, by what made it.
func wayOut(p Peer) string {
	labels := strings.Split(p.Host, ".")
	in := func(i int, s string) bool { return len(labels) > i && labels[i] == s }
	switch {
	case in(1, "addr") && strings.HasSuffix(p.Host, ".consul"):
		return "Consul names a target so where the service is registered with an address of its own; leave that out, and the target is NODE.node.DC.consul"
	case isHash(labels[0]) || slices.Contains(labels, "svc"):
		return "pod hostname / subdomain not set? a StatefulSet sets them, for the headless Service that it names"
	case swarm(p.Host):
		return "a task of Docker Swarm has its random ID in its name; make a service of its own for each member, and list them (static:)"
	}
	return "give each member a name that stays, such as etcd-0" + optional(strings.Join(labels[1:], "."))
}

// swarm knows SERVICE.SLOT.TASK.NETWORK, Docker's name of a task's container.
func swarm(host string) bool {
	labels := strings.Split(host, ".")
	if len(labels) < 3 || !isID(labels[2]) {
		return false
	}
	_, err := strconv.Atoi(labels[1])
	return err == nil
}

func optional(domain string) string {
	if domain == "" {
		return ""
	}
	return "." + domain
}
