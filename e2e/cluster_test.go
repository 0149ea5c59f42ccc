//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// cluster is hosts with one configuration file, a DNS host and its zone.
type cluster struct {
	*lab.Lab
	t     *testing.T
	dns   *lab.Host
	hosts []*lab.Host
	zone  *lab.Zone
	shape shape
}

// shape is what differs from cluster to cluster; the zero value but for size
// is plain HTTP on IPv4 and IPv6.
type shape struct {
	size   int
	tls    bool
	family string // "4", "6"; "": both
	extra  string // more lines of etcd.yaml
}

// newCluster makes the hosts, each with the same etcd.yaml, and starts nothing.
func newCluster(t *testing.T, s shape) *cluster {
	t.Helper()
	c := &cluster{Lab: lab.New(t), t: t, shape: s}
	c.dns = c.host("dns")
	for i := range s.size {
		c.hosts = append(c.hosts, c.host(fmt.Sprintf("m%d", i+1)))
	}
	c.zone = c.records()
	if s.tls {
		c.PKI(c.hosts, c.zone)
	}
	c.UseDNS(c.hosts, c.dns)
	for _, h := range c.hosts {
		h.Write("etcd.yaml", c.config())
	}
	return c
}

// host makes a host with addresses of the cluster's family only.
func (c *cluster) host(name string) *lab.Host {
	c.t.Helper()
	h := c.Host(name)
	switch c.shape.family {
	case "4":
		h.SetAddrs(h.Addr4())
	case "6":
		h.SetAddrs(h.Addr6())
	}
	return h
}

// records is the zone as the hosts are now.
func (c *cluster) records() *lab.Zone {
	service := "_etcd-server"
	if c.shape.tls {
		service = "_etcd-server-ssl"
	}
	return lab.NewZone("example.org", 30*time.Second).SRV(service, 2380, c.hosts...).Addrs(c.hosts...)
}

// config is etcd's static configuration, the same for every host.
func (c *cluster) config() string {
	scheme, everywhere := "http", "0.0.0.0"
	if c.shape.family != "4" {
		everywhere = "[::]"
	}
	var tls strings.Builder
	if c.shape.tls {
		scheme = "https"
		for _, side := range []string{"client", "peer"} {
			fmt.Fprintf(&tls, "%[1]s-transport-security:\n  cert-file: %[2]s/pki/member.crt\n  key-file: %[2]s/pki/member.key\n"+
				"  trusted-ca-file: %[2]s/pki/ca.crt\n  client-cert-auth: true\n", side, c.Home)
		}
	}
	return fmt.Sprintf(`# the same file on every node
data-dir: %[1]s/data
listen-peer-urls: %[2]s://%[3]s:2380
listen-client-urls: %[2]s://%[3]s:2379
initial-cluster-token: e2e
discovery-srv: example.org
%[4]s%[5]s`, c.Home, scheme, everywhere, tls.String(), c.shape.extra)
}

// initArgs are the arguments of init on every host.
func (c *cluster) initArgs(more ...string) []string {
	return append([]string{
		"init", "--config-file", "etcd.yaml", "--size", strconv.Itoa(c.shape.size),
		"--config-out", "run.yaml", "--timeout", "1m",
	}, more...)
}

// init runs etcdinit init on all hosts at once; it must succeed on each.
func (c *cluster) init(more ...string) {
	c.t.Helper()
	c.Each(c.hosts, func(h *lab.Host) { h.MustRun(etcdinit, c.initArgs(more...)...) })
}

// start starts the servers of a version on all hosts at once, with what init
// left for them and no other flag, and waits until all are healthy.
func (c *cluster) start(version string) []*lab.Proc {
	c.t.Helper()
	procs := make([]*lab.Proc, len(c.hosts))
	for i, h := range c.hosts {
		procs[i] = h.Etcd(version, "--config-file", "run.yaml")
	}
	c.Healthy(c.hosts...)
	return procs
}

// boot is a first boot of all hosts at once: init, then etcd, on each as soon
// as it can.
func (c *cluster) boot(version string) {
	c.t.Helper()
	c.Each(c.hosts, func(h *lab.Host) {
		h.MustRun(etcdinit, c.initArgs()...)
		h.Etcd(version, "--config-file", "run.yaml")
	})
	c.Healthy(c.hosts...)
}

// works checks what makes a cluster: a key written on one host is read on
// another, all stores are equal, and every member has the name and the URLs
// that the records give it.
func (c *cluster) works() {
	c.t.Helper()
	key := fmt.Sprintf("key-%d", time.Now().UnixNano())
	first, last := c.hosts[0], c.hosts[len(c.hosts)-1]
	first.Put(key, "value")
	if got := last.Get(key); got != "value" {
		c.t.Errorf("%s reads %q where %s wrote %q", last.Name, got, first.Name, "value")
	}
	c.SameHash(c.hosts...)
	c.named()
}

// named checks names and URLs of all members.
func (c *cluster) named() {
	c.t.Helper()
	scheme := "http"
	if c.shape.tls {
		scheme = "https"
	}
	var want []string
	for _, h := range c.hosts {
		host := scheme + "://" + c.zone.FQDN(h)
		want = append(want, fmt.Sprintf("%s [%s:2380] [%s:2379] false", h.Name, host, host))
	}
	var got []string
	for _, m := range c.hosts[0].Members() {
		got = append(got, fmt.Sprintf("%s %v %v %v", m.Name, m.PeerURLs, m.ClientURLs, m.IsLearner))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		c.t.Errorf("members:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// sameConfig checks that all hosts have the same file, byte for byte.
func (c *cluster) sameConfig() {
	c.t.Helper()
	for _, h := range c.hosts {
		if h.Read("etcd.yaml") != c.hosts[0].Read("etcd.yaml") {
			c.t.Fatalf("%s has another etcd.yaml than %s", h.Name, c.hosts[0].Name)
		}
	}
}

// One file on every host, all hosts at once, and a cluster: over the numbers
// of members, address families, with and without TLS, and the DNS servers.
func TestParallelBoot(t *testing.T) {
	coredns := func(c *cluster) { c.CoreDNS(c.dns, c.zone) }
	dnsmasq := func(c *cluster) { c.Dnsmasq(c.dns, c.zone) }
	bind := func(c *cluster) { c.Bind(c.dns, c.zone) }
	tests := []struct {
		name    string
		shape   shape
		serve   func(c *cluster)
		version string
	}{
		{"1 member, CoreDNS, dual stack", shape{size: 1}, coredns, "3.7"},
		{"3 members, CoreDNS, dual stack", shape{size: 3}, coredns, "3.7"},
		{"5 members, dnsmasq, IPv4", shape{size: 5, family: "4"}, dnsmasq, "3.6"},
		{"3 members, BIND, IPv6", shape{size: 3, family: "6"}, bind, "3.5"},
		{"3 members, dnsmasq, IPv6", shape{size: 3, family: "6"}, dnsmasq, "3.7"},
		{"1 member, BIND, mutual TLS, IPv4", shape{size: 1, tls: true, family: "4"}, bind, "3.5"},
		{"3 members, CoreDNS, mutual TLS, IPv6", shape{size: 3, tls: true, family: "6"}, coredns, "3.6"},
		{"5 members, BIND, mutual TLS, dual stack", shape{size: 5, tls: true}, bind, "3.7"},
		{"3 members, dnsmasq, mutual TLS, IPv4", shape{size: 3, tls: true, family: "4"}, dnsmasq, "3.4"},
		{"3 members, CoreDNS, the log in a directory of its own", shape{size: 3, extra: "wal-dir: wal\n"}, coredns, "3.6"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, test.shape)
			test.serve(c)
			c.sameConfig()
			c.boot(test.version)
			c.works()
		})
	}
}

// Client URLs that the records publish are the ones that members advertise.
func TestClientRecordsGiveClientURLs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3})
	c.CoreDNS(c.dns, c.records().SRV("_etcd-client", 2379, c.hosts...))
	c.boot("3.7")
	c.works()
}

// A member's address can be an address, too: no name is ever asked.
func TestStaticPeersByAddress(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3, family: "4"})
	var source []string
	for _, h := range c.hosts {
		source = append(source, fmt.Sprintf("peer=%s=http://%s", h.Name, netip.AddrPortFrom(h.Addr4(), 2380)))
	}
	c.Each(c.hosts, func(h *lab.Host) {
		h.Resolv(netip.MustParseAddr("192.0.2.200")) // nobody there
		h.Write("etcd.yaml", strings.ReplaceAll(c.config(), "discovery-srv: example.org\n", ""))
		h.MustRun(etcdinit, c.initArgs("--discovery", "static:?"+strings.Join(source, "&"))...)
	})
	c.start("3.7")
	c.hosts[0].Put("key", "value")
	c.SameHash(c.hosts...)
	for i, m := range c.hosts[0].Members() {
		h := c.hosts[i]
		if m.Name != h.Name || len(m.ClientURLs) != 1 || m.ClientURLs[0] != fmt.Sprintf("http://%s:2379", h.Addr4()) {
			t.Errorf("member %+v, want %s at %s", m, h.Name, h.Addr4())
		}
	}
}
