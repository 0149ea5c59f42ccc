package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/static"
)

// TestMappedPorts: etcd listens on one port, and the records have another.
func TestMappedPorts(t *testing.T) {
	t.Parallel()
	const nat = "static:?peer=m1=http://203.0.113.1:23100&peer=m2=http://203.0.113.1:23101"
	ip := netip.MustParseAddr("203.0.113.1")
	for _, tt := range []struct {
		name string
		set  func(*Config)
		want string // empty: ambiguous
	}{
		{"nothing but the address that they share", func(c *Config) { c.SelfIP = ip }, ""},
		{"--self-ip with the port", func(c *Config) { c.SelfIP, c.SelfPort = ip, 23101 }, "m2"},
		{"--self-name", func(c *Config) { c.SelfIP, c.SelfName = netip.Addr{}, "m2" }, "m2"},
		{"initial-advertise-peer-urls", func(c *Config) {
			c.SelfIP, c.Etcd.AdvertisePeerURLs = ip, []string{"http://203.0.113.1:23101"}
		}, "m2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newLab(t, 2).node(t, "m1")
			r := n.start(t, limit(labTime), tt.set, func(c *Config) {
				c.Source, c.Registry, c.Quorum = nat, discovery.Registry{"static": static.New}, QuorumNone
				c.Etcd.ListenPeerURLs = []string{"http://0.0.0.0:2380"}
			})
			if tt.want == "" {
				r.refused(exit.NotSelf, "", "ambiguous", "m1", "m2", "--self-name")
				return
			}
			if res := r.ok(); res.Name != tt.want {
				t.Errorf("it is %s", res.Name)
			}
		})
	}
}

// TestEnvPorts: what a source is told of this node's ports.
func TestEnvPorts(t *testing.T) {
	t.Parallel()
	n := newLab(t, 1).node(t, "m1")
	for _, tt := range []struct {
		name   string
		set    func(*Config)
		mapped bool
		ports  []uint16
	}{
		{"found by address", func(c *Config) { c.SelfIP = netip.Addr{} }, false, []uint16{n.port}},
		{"--self-ip", func(*Config) {}, true, []uint16{n.port}},
		{"--self-ip with a port", func(c *Config) { c.SelfPort = 7 }, true, []uint16{7}},
		{"--self-name", func(c *Config) { c.SelfIP, c.SelfName = netip.Addr{}, "m1" }, true, []uint16{n.port}},
		{"advertised", func(c *Config) {
			c.SelfIP, c.Etcd.AdvertisePeerURLs = netip.Addr{}, []string{"http://m1.example.org:9"}
		}, false, []uint16{9}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := newAgent(n.config(t, tt.set)).env()
			if env.MappedPorts != tt.mapped || !slices.Equal(env.PeerPorts, tt.ports) {
				t.Errorf("got %v, mapped %t; want %v, %t", env.PeerPorts, env.MappedPorts, tt.ports, tt.mapped)
			}
		})
	}
}
