package discovery_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/discovery"
)

// TestStableNames: what is made from an address or drawn at random is refused
// with the way out; what only looks a little like it is a name like any other.
func TestStableNames(t *testing.T) {
	v4 := []string{"192.0.2.10", "192.0.2.11", "192.0.2.12"}
	tests := []struct {
		name  string
		hosts string   // of peers
		addrs []string // theirs, where they are not IPv4
		why   string   // in the refusal; empty: they are stable
	}{
		{"ordinals", "etcd-0.example.com etcd-1.example.com etcd-2.example.com", nil, ""},
		{"short", "node1 db2 cafe", nil, ""},
		{"words of hexadecimal digits", "cafe.example.com deadbeef.example.com decade.example.com", nil, ""},
		{"one word", "deadbeef", nil, ""},
		{"long numbers", "node100001.example.com node100002.example.com node100003.example.com", nil, ""},
		{"a pattern", "dc1r2u3n4h5.example.com dc1r2u3n4h6.example.com dc2r2u31n4h6.example.com", nil, ""},
		{"racks", "rack-1-2-3-4.example.com rack-1-2-3-5.example.com rack-1-2-3-6.example.com", nil, ""},
		{"rows", "host-1-2-3-4.example.com host-1-2-3-5.example.com", nil, ""},
		{"dates", "db-2024-01-31.example.com db-2024-02-01.example.com", nil, ""},
		{"long words", "frankfurt1prod.example.com amsterdam1prod.example.com london1prod.example.com", nil, ""},
		{"a domain with an ID", "etcd-0.c1x2y3z4w5v6.cache.example.com etcd-1.c1x2y3z4w5v6.cache.example.com", nil, ""},
		{"one, in a domain with an ID", "etcd-0.c1x2y3z4w5v6.cache.example.com", nil, ""},
		{"clusters", "etcd-0.ns.svc.a.local etcd-0.ns.svc.b.local etcd-0.ns.svc.c.local", nil, ""},
		{"the last octet", "node10.example.com node11.example.com node12.example.com", nil, ""},
		{"two dashes", "a--b.example.com cafe--1.example.com", nil, ""},
		{"addresses alone", "192.0.2.10 192.0.2.11", nil, ""},
		{"a replica's words", "db-prod-west1.example.com db-prod-west2.example.com", nil, ""},

		{"hexadecimal", "c000020a.addr.dc1.consul c000020b.addr.dc1.consul", nil, "NODE.node.DC.consul"},
		{"hexadecimal, IPv6", "20010db8000000000000000000000010.addr.dc1.consul", []string{"2001:db8::10"}, "its address 2001:db8::10"},
		{"dashed", "192-0-2-10.example.com etcd-1.example.com", nil, "its address 192.0.2.10 (192-0-2-10)"},
		{"dashed, of another address", "10-9-8-7.example.com 10-9-8-8.example.com", nil, "an address (10-9-8-7)"},
		{"dashed, with a prefix", "ip-10-0-0-1.ec2.internal ip-10-0-0-2.ec2.internal", nil, "an address (ip-10-0-0-1)"},
		{"dashed, in a longer name", "etcd-192-0-2-10.nip.io etcd-192-0-2-11.nip.io", nil, "its address"},
		{"dashed, alone", "ip-10-0-0-1.ec2.internal", nil, "an address"},
		{"dashed, across clusters", "192-0-2-10.ns.pod.a.local 192-0-2-11.ns.pod.b.local", nil, "its address"},
		{"dashed, the same across clusters", "10-0-0-1.pod.a.local 10-0-0-1.pod.b.local", nil, "an address (10-0-0-1)"},
		{"dashed, IPv6", "2001-db8--10.example.com", []string{"2001:db8::10"}, "its address"},
		{"dashed, IPv6 in full", "x.2001-0db8-0000-0000-0000-0000-0000-0010.example.com", []string{"2001:db8::10"}, "its address"},
		{"reversed", "10-2-0-192.dsl.example.com", nil, "its address"},
		{"a number", "3221225994.example.com", nil, "its address"},
		{"with dots", "192.0.2.10.nip.io 192.0.2.11.nip.io", nil, "its address"},
		{"with dots, reversed", "static.10.2.0.192.clients.example.com static.11.2.0.192.clients.example.com", nil, "its address"},
		{"of a cloud's task", "0123456789abcdef0123456789abcdef.etcd.local", nil, "a random ID"},
		{"a hash", "3339386563373330.etcd.ns.svc.cluster.local", nil, "pod hostname / subdomain not set"},
		{"a Deployment's pod", "etcd-7d9f8c6b5-x2x4z.example.com etcd-7d9f8c6b5-lk9tw.example.com", nil, "a random ID (etcd-7d9f8c6b5-"},
		{"a container's ID", "f3a9b1c2d4e5.example.com 0b1c9d8e7f6a.example.com", nil, "a random ID ("},
		{"a UUID", "8c5d3e2a-1b4f-4c6d-9e8f-0a1b2c3d4e5f.example.com", nil, "a random ID"},
		{"a task, in the middle", "db_etcd.1.k3j4h5lq0zv.db_default db_etcd.2.p0o9i8u7y6t.db_default", nil, "a service of its own for each member"},
		{"a task of a service of one", "etcd1.1.k3j4h5lq0zvt8xv0aaymbvy1w.db_default", nil, "a random ID"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addrs := tt.addrs
			if addrs == nil {
				addrs = v4
			}
			peers := func() (list []discovery.Peer) {
				for i, host := range strings.Fields(tt.hosts) {
					list = append(list, discovery.Peer{Host: host, Port: 2380, Addrs: []netip.Addr{netip.MustParseAddr(addrs[i])}})
				}
				return list
			}
			set := peers()
			_, err := discovery.Await(t.Context(), &fake{answers: []answer{{peers: set}}}, discovery.AwaitOptions{Size: len(set)})
			if tt.why == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if e := (*discovery.Error)(nil); !errors.As(err, &e) || e.Kind != discovery.Unusable || !strings.Contains(err.Error(), tt.why) {
				t.Fatalf("got %v, want %q", err, tt.why)
			}
			for what, change := range map[string]func(*discovery.Peer, int){
				"as it is":          func(p *discovery.Peer, _ int) { p.AsIs = true },
				"with a name given": func(p *discovery.Peer, i int) { p.Name = "etcd-" + string(rune('a'+i)) },
			} {
				set = peers()
				for i := range set {
					change(&set[i], i)
				}
				if _, err := discovery.Await(t.Context(), &fake{answers: []answer{{peers: set}}}, discovery.AwaitOptions{Size: len(set)}); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// TestStableGivenName: a name that a source gives must last too, whatever its
// host is.
func TestStableGivenName(t *testing.T) {
	set := []discovery.Peer{{Name: "etcd-c000020a", Host: "etcd-0.example.com", Port: 2380, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}}
	_, err := discovery.Await(t.Context(), &fake{answers: []answer{{peers: set}}}, discovery.AwaitOptions{Size: 1})
	if kind(err) != discovery.Unusable {
		t.Errorf("got %v", err)
	}
}
