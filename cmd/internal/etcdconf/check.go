package etcdconf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// check refuses what can never work, whatever discovery will say.
func (c *Config) check() error {
	for _, k := range refusedKeys() {
		s, ok := c.settings[k.flag]
		if !ok || s.value == "" {
			continue
		}
		if v, err := k.canonical(s.value); err != nil {
			return invalid(s.place, err)
		} else if k.kind != boolean || v == "true" {
			return refused(k.flag, s)
		}
	}
	for _, bad := range []struct {
		flag string
		err  error
	}{
		{"listen-peer-urls", checkBind(c.ListenPeerURLs)},
		{"listen-client-urls", checkBind(c.ListenClientURLs)},
		{"initial-advertise-peer-urls", checkHost(c.AdvertisePeerURLs)},
		{"advertise-client-urls", checkHost(c.AdvertiseClients)},
	} {
		if bad.err != nil {
			return invalid(c.place(bad.flag), bad.err)
		}
	}
	if s := c.InitialClusterState; s != "" && s != "new" && s != "existing" {
		return invalid(fmt.Sprintf("%s: %q is neither new nor existing", c.place("initial-cluster-state"), s), nil)
	}
	if _, err := c.InitialMembers(); err != nil {
		return err
	}
	if err := c.checkTLS(); err != nil {
		return err
	}
	if c.DataDir == "" {
		return c.noDataDir()
	}
	for _, dir := range []struct{ flag, path string }{{"data-dir", c.DataDir}, {"wal-dir", c.WALDir}} {
		if what := unexpanded(dir.path); what != "" {
			return invalid(fmt.Sprintf("%s is %s, with %s that no shell will take away: etcd would make a directory of just this name; write the path itself", c.place(dir.flag), dir.path, what), nil)
		}
	}
	return nil
}

// unexpanded names what a shell or a template would have replaced in a path. Neither
// etcd, nor a unit file, nor docker run --env-file does; "" where there is nothing.
func unexpanded(path string) string {
	switch {
	case strings.ContainsAny(path, "\"'`"):
		return "a quote"
	case strings.Contains(path, "$"):
		return "a $"
	case strings.HasPrefix(path, "~"), strings.Contains(path, "/~/"):
		return "a ~"
	case strings.ContainsAny(path, "{}"):
		return "a brace"
	case path != strings.TrimSpace(path):
		return "a blank at its end or beginning"
	}
	return ""
}

func (c *Config) noDataDir() error {
	const why = ": etcd would take NAME.etcd in its working directory, and the name is not known yet"
	if c.File != "" {
		return invalid(c.File+" has no data-dir"+why+"; add data-dir", nil)
	}
	return invalid("no data directory given"+why+"; give --data-dir, ETCD_DATA_DIR or --config-file", nil)
}

// checkTLS holds the URLs' schemes and the TLS sections against each other:
// etcd drops a certificate when the URL is http, and member IDs hash the scheme.
func (c *Config) checkTLS() error {
	for _, side := range []struct {
		tls    TLS
		prefix string
		listen []string
		flag   string
	}{
		{c.PeerTLS, "peer-", c.ListenPeerURLs, "listen-peer-urls"},
		{c.ClientTLS, "", c.ListenClientURLs, "listen-client-urls"},
	} {
		cert, keyFile := side.prefix+"cert-file", side.prefix+"key-file"
		if (side.tls.CertFile == "") != (side.tls.KeyFile == "") {
			have, missing := cert, keyFile
			if side.tls.CertFile == "" {
				have, missing = keyFile, cert
			}
			return invalid(fmt.Sprintf("%s is given, but %s is not: TLS needs both", c.place(have), c.called(missing)), nil)
		}
		for _, u := range side.listen {
			if secure(u) && !side.tls.Enabled() {
				return invalid(fmt.Sprintf("%s: %q is https, but there is no %s and %s (nor %s)", c.place(side.flag), u, c.called(cert), c.called(keyFile), c.called(side.prefix+"auto-tls")), nil)
			}
			if side.flag == "listen-peer-urls" && plain(u) && side.tls.Enabled() {
				return invalid(fmt.Sprintf("%s: %q is http, but %s configures TLS for peers: etcd would ignore the certificate; make it https", c.place(side.flag), u, c.tlsPlace()), nil)
			}
		}
	}
	return c.checkAdvertisedScheme()
}

// tlsPlace is what makes the peer side https.
func (c *Config) tlsPlace() string {
	if c.PeerTLS.CertFile != "" {
		return c.place("peer-cert-file")
	}
	return c.place("peer-auto-tls")
}

func (c *Config) checkAdvertisedScheme() error {
	for _, u := range c.AdvertisePeerURLs {
		switch {
		case secure(u) && !c.PeerTLS.Enabled():
			return invalid(fmt.Sprintf("%s: %q is https, but without %s and %s the peers speak http, and with discovery-srv they are looked for under _etcd-server; make them agree", c.place("initial-advertise-peer-urls"), u, c.called("peer-cert-file"), c.called("peer-key-file")), nil)
		case plain(u) && c.PeerTLS.Enabled():
			return invalid(fmt.Sprintf("%s: %q is http, but %s configures TLS for peers, and with discovery-srv they are looked for under _etcd-server-ssl; make them agree", c.place("initial-advertise-peer-urls"), u, c.tlsPlace()), nil)
		}
	}
	if len(c.ListenClientURLs) == 0 || !allSecure(c.ListenClientURLs) {
		return nil
	}
	for _, u := range c.AdvertiseClients {
		if plain(u) {
			return invalid(fmt.Sprintf("%s: %q is http, but %s is https alone (%s)", c.place("advertise-client-urls"), u, c.place("listen-client-urls"), strings.Join(c.ListenClientURLs, ",")), nil)
		}
	}
	return nil
}

func secure(u string) bool { return strings.HasPrefix(u, "https://") }
func plain(u string) bool  { return strings.HasPrefix(u, "http://") }

func allSecure(us []string) bool {
	return !slices.ContainsFunc(us, func(u string) bool { return !secure(u) })
}

// CheckListen refuses peer listeners that other members cannot reach. self are
// this member's addresses as discovery knows them, where they are known: a
// cluster that lives on loopback altogether may listen there.
func (c *Config) CheckListen(size int, self ...netip.Addr) error {
	if size < 2 || slices.ContainsFunc(self, netip.Addr.IsLoopback) {
		return nil
	}
	if len(c.ListenPeerURLs) == 0 {
		return invalid(fmt.Sprintf("listen-peer-urls is absent, so etcd listens on %s, where the other %d members cannot reach it; set it, for example to %s", defaultPeerURL, size-1, c.exampleListen()), nil)
	}
	for _, l := range c.PeerListeners() {
		ip, err := netip.ParseAddr(l.Host)
		local := l.Host == "localhost" || len(self) > 0 && err == nil && ip.IsLoopback()
		if !local {
			return nil
		}
	}
	return invalid(fmt.Sprintf("%s is %q, where the other %d members cannot reach it; set it, for example to %s",
		c.place("listen-peer-urls"), strings.Join(c.ListenPeerURLs, ","), size-1, c.exampleListen()), nil)
}

func (c *Config) exampleListen() string {
	if c.PeerTLS.Enabled() {
		return "https://0.0.0.0:2380"
	}
	return "http://0.0.0.0:2380"
}

// CheckAdvertise refuses configured advertise URLs that say something else
// than discovery does. Absent ones are filled in at the handoff. Client URLs are no
// identity, so the configuration decides: only localhost is refused, which no other
// member's clients can use.
func (c *Config) CheckAdvertise(size int, peerURLs, clientURLs []string) error {
	if err := c.checkAdvertise("initial-advertise-peer-urls", size, c.AdvertisePeerURLs, peerURLs); err != nil {
		return err
	}
	return c.checkAdvertise("advertise-client-urls", size, c.AdvertiseClients, clientURLs)
}

func (c *Config) checkAdvertise(flag string, size int, configured, discovered []string) error {
	if len(configured) == 0 || len(discovered) > 0 && sameURLs(configured, discovered) {
		return nil
	}
	says := "discovery says nothing of it"
	if len(discovered) > 0 {
		says = fmt.Sprintf("discovery says %q", strings.Join(discovered, ","))
	}
	value := strings.Join(configured, ",")
	for _, u := range configured {
		if l, ok := listener(u); size > 1 && ok && !l.Unix() && isLocalhost(l.Host) && !slices.ContainsFunc(discovered, onLocalhost) {
			return invalid(fmt.Sprintf("%s is %q, which no other of the %d members can use; %s: take the key away, and it is filled in", c.place(flag), value, size, says), nil)
		}
	}
	if len(discovered) == 0 || flag == "advertise-client-urls" {
		return nil
	}
	return invalid(fmt.Sprintf("%s is %q, but %s: take the key away, and it is filled in, or correct the records", c.place(flag), value, says), nil)
}

func onLocalhost(u string) bool {
	l, ok := listener(u)
	return ok && isLocalhost(l.Host)
}

func isLocalhost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// sameURLs compares two sets of URLs; host names are one in any case and with
// or without a trailing dot.
func sameURLs(a, b []string) bool { return slices.Equal(normalURLs(a), normalURLs(b)) }

func normalURLs(us []string) []string {
	all := make([]string, 0, len(us))
	for _, u := range us {
		if l, ok := listener(u); ok && !l.Unix() {
			u = l.URL(strings.TrimSuffix(strings.ToLower(l.Host), "."))
		}
		all = append(all, u)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Peer is a member as initial-cluster, or somebody else, lists it.
type Peer struct {
	Name string
	URLs []string
}

// InitialMembers returns the members of initial-cluster by name; none where it
// is absent. It never makes the plan: a list that was frozen with one member
// would bootstrap a second cluster when that member's disk comes back empty.
func (c *Config) InitialMembers() ([]Peer, error) {
	if c.InitialCluster == "" {
		return nil, nil
	}
	byName := map[string][]string{}
	for part := range strings.SplitSeq(c.InitialCluster, ",") {
		name, raw, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" {
			return nil, invalid(fmt.Sprintf("%s: %q is not of the form NAME=http://host:port", c.place("initial-cluster"), part), nil)
		}
		u, err := parseURL(raw)
		if err != nil {
			return nil, invalid(c.place("initial-cluster")+": member "+name, err)
		}
		byName[name] = append(byName[name], u)
	}
	members := make([]Peer, 0, len(byName))
	for name, us := range byName {
		slices.Sort(us)
		members = append(members, Peer{name, us})
	}
	slices.SortFunc(members, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return members, nil
}

// CheckInitialAlone refuses an initial-cluster that can agree with no discovery: it
// contradicts the size or the rest of the configuration. 0 is an unknown size.
func (c *Config) CheckInitialAlone(size int) error {
	members, err := c.InitialMembers()
	if err != nil || len(members) == 0 {
		return err
	}
	place, seen := c.place("initial-cluster"), map[string]string{}
	if size > 0 && size != len(members) {
		return invalid(fmt.Sprintf("%s lists %d members, but the size is %d: take initial-cluster away, it is not needed here, or make them agree", place, len(members), size), nil)
	}
	for _, m := range members {
		for _, u := range normalURLs(m.URLs) {
			if other, twice := seen[u]; twice {
				return invalid(fmt.Sprintf("%s: %s is of member %s and of member %s", place, u, other, m.Name), nil)
			}
			seen[u] = m.Name
			if secure(u) && !c.PeerTLS.Enabled() || plain(u) && c.PeerTLS.Enabled() {
				return invalid(fmt.Sprintf("%s: %q of member %s does not fit the rest of the configuration, by which peers speak %s", place, u, m.Name, schemeOf(c.PeerTLS.Enabled())), nil)
			}
		}
	}
	own := c.AdvertisePeerURLs
	if len(own) > 0 && !slices.ContainsFunc(members, func(m Peer) bool { return sameURLs(m.URLs, own) }) {
		return invalid(fmt.Sprintf("%s lists no member with the URLs of %s (%s): it lists %s", place, c.place("initial-advertise-peer-urls"), strings.Join(own, ","), describePeers(members)), nil)
	}
	return nil
}

func schemeOf(tls bool) string {
	if tls {
		return "https"
	}
	return "http"
}

// CheckInitialCluster refuses an initial-cluster that lists other members than
// discovery found. Names may differ: stock etcd numbers members where it does
// not know them, and no ID depends on a name.
func (c *Config) CheckInitialCluster(discovered []Peer) error {
	members, err := c.InitialMembers()
	if err != nil || len(members) == 0 {
		return err
	}
	if samePeers(members, discovered) {
		return nil
	}
	return invalid(fmt.Sprintf("%s lists %s, but discovery found %s: take initial-cluster away, it is not needed here, or correct the records",
		c.place("initial-cluster"), describePeers(members), describePeers(discovered)), nil)
}

// peerURLs are the URLs of each peer, in an order that does not depend on names.
func peerURLs(peers []Peer) []string {
	all := make([]string, 0, len(peers))
	for _, p := range peers {
		all = append(all, strings.Join(normalURLs(p.URLs), ","))
	}
	slices.Sort(all)
	return all
}
