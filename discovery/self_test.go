package discovery_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/discovery"
)

func addrs(list string) []netip.Addr {
	var out []netip.Addr
	for s := range strings.FieldsSeq(list) {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// peersOf reads "name host:port addr addr" lines.
func peersOf(lines ...string) []discovery.Peer {
	var out []discovery.Peer
	for _, l := range lines {
		f := strings.Fields(l)
		port := uint16(2380)
		host, digits, ok := strings.Cut(f[1], ":")
		if ok {
			port = netip.MustParseAddrPort("192.0.2.1:" + digits).Port()
		}
		out = append(out, discovery.Peer{Name: f[0], Host: host, Port: port, Addrs: addrs(strings.Join(f[2:], " "))})
	}
	return out
}

func TestMatchSelf(t *testing.T) {
	zone := []string{"etcd-0 etcd-0.example.com 192.0.2.10", "etcd-1 etcd-1.example.com 192.0.2.11", "etcd-2 etcd-2.example.com 192.0.2.12"}
	dual := []string{"etcd-0 etcd-0.example.com 192.0.2.10 2001:db8::10", "etcd-1 etcd-1.example.com 192.0.2.11 2001:db8::11"}
	crossed := []string{"etcd-0 etcd-0.example.com 192.0.2.10", "etcd-1 etcd-1.example.com 2001:db8::11"}
	shared := []string{"etcd-a etcd-a.example.com:2380 192.0.2.10", "etcd-b etcd-b.example.com:2381 192.0.2.10"}
	loop := []string{"a a.example.com 127.0.0.1", "b b.example.com 127.0.0.2"}
	nat := []string{"etcd-0 etcd-0.example.com 203.0.113.10", "etcd-1 etcd-1.example.com 203.0.113.11"}
	tests := []struct {
		name  string
		peers []string
		local discovery.Local
		want  string // "" is NotSelf
		texts []string
	}{
		{"one address", zone, discovery.Local{Addrs: addrs("192.0.2.11")}, "etcd-1", nil},
		{"WB-27 none", zone, discovery.Local{Addrs: addrs("192.0.2.99 2001:db8::99")}, "", []string{
			"192.0.2.99,2001:db8::99", "etcd-0=192.0.2.10", "etcd-1=192.0.2.11", "etcd-2=192.0.2.12", "set the member name explicitly", "--self-name", "--self-ip",
		}},
		{"WB-27 no address at all", zone, discovery.Local{}, "", []string{"local none"}},
		{"WB-28 on the second interface", zone, discovery.Local{Addrs: addrs("127.0.0.1 10.0.0.5 192.0.2.11")}, "etcd-1", nil},
		{"WB-31 NAT", nat, discovery.Local{Addrs: addrs("10.0.0.10")}, "", []string{"set the member name explicitly", "--self-name", "--self-ip", "10.0.0.10", "etcd-0=203.0.113.10"}},
		{"WB-31 NAT with a name", nat, discovery.Local{Addrs: addrs("10.0.0.10"), Name: "etcd-0"}, "etcd-0", nil},
		{"WB-31 NAT with an address", nat, discovery.Local{Addrs: addrs("10.0.0.10"), Explicit: netip.MustParseAddr("203.0.113.11")}, "etcd-1", nil},
		{"--self-ip that is nobody's", zone, discovery.Local{Addrs: addrs("192.0.2.11"), Explicit: netip.MustParseAddr("192.0.2.99")}, "", []string{"192.0.2.99 (--self-ip)"}},
		{"--self-ip decides among several", zone, discovery.Local{Addrs: addrs("192.0.2.10 192.0.2.11"), Explicit: netip.MustParseAddr("192.0.2.11")}, "etcd-1", nil},
		{"--self-name against the address", zone, discovery.Local{Addrs: addrs("192.0.2.10"), Name: "etcd-1"}, "etcd-1", nil},
		{"--self-name is a host", zone, discovery.Local{Name: "ETCD-2.example.com."}, "etcd-2", nil},
		{"--self-name is nobody's", zone, discovery.Local{Addrs: addrs("192.0.2.10"), Name: "etcd-9"}, "", []string{`"etcd-9"`, "--self-name", "etcd-0=192.0.2.10"}},
		{"--self-name of two", []string{"e.a e.a 192.0.2.1", "e.b e.b 192.0.2.2"}, discovery.Local{Name: "e"}, "", []string{"ambiguous", "2 peers"}},
		{"WB-36 IPv6 only host", dual, discovery.Local{Addrs: addrs("2001:db8::11")}, "etcd-1", nil},
		{"WB-36 both families", dual, discovery.Local{Addrs: addrs("192.0.2.11 2001:db8::11")}, "etcd-1", nil},
		{"WB-36 crossed", crossed, discovery.Local{Addrs: addrs("192.0.2.10 2001:db8::11"), Hostname: "etcd-0"}, "", []string{
			"ambiguous", "etcd-0 (192.0.2.10)", "etcd-1 (2001:db8::11)", "--self-name",
		}},
		{"WB-36 crossed, on two interfaces", crossed, discovery.Local{
			Addrs:      addrs("192.0.2.10 2001:db8::11"),
			Interfaces: func() map[netip.Addr]string { return map[netip.Addr]string{netip.MustParseAddr("192.0.2.10"): "eth0"} },
		}, "", []string{"etcd-0 (192.0.2.10 on eth0)", "etcd-1 (2001:db8::11)", "--interface"}},
		{"WB-36 crossed, etcd's name", crossed, discovery.Local{Addrs: addrs("192.0.2.10 2001:db8::11"), NameHint: "etcd-0"}, "etcd-0", nil},
		{"SB-12 one address, nothing else known", shared, discovery.Local{Addrs: addrs("192.0.2.10")}, "", []string{"ambiguous", "etcd-a (192.0.2.10)", "etcd-b (192.0.2.10)"}},
		{"SB-12 --self-name", shared, discovery.Local{Addrs: addrs("192.0.2.10"), Name: "etcd-b"}, "etcd-b", nil},
		{"SB-12 the port decides", shared, discovery.Local{Addrs: addrs("192.0.2.10"), Ports: []uint16{2381}}, "etcd-b", nil},
		{"SB-12 the port before the host name", shared, discovery.Local{Addrs: addrs("192.0.2.10"), Ports: []uint16{2381}, Hostname: "etcd-a"}, "etcd-b", nil},
		{"SB-12 a port of neither", shared, discovery.Local{Addrs: addrs("192.0.2.10"), Ports: []uint16{9}}, "", []string{"ambiguous"}},
		{"SB-12 etcd's name", shared, discovery.Local{Addrs: addrs("192.0.2.10"), NameHint: "etcd-b", Hostname: "etcd-a"}, "etcd-b", nil},
		{"SB-12 the host name", shared, discovery.Local{Addrs: addrs("192.0.2.10"), Hostname: "ETCD-A"}, "etcd-a", nil},
		{"SB-12 the whole host name", shared, discovery.Local{Addrs: addrs("192.0.2.10"), Hostname: "etcd-a.internal."}, "etcd-a", nil},
		{"the port against etcd's name", shared, discovery.Local{Addrs: addrs("192.0.2.10"), Ports: []uint16{2380}, NameHint: "etcd-b"}, "", []string{`"etcd-b"`}},
		{"etcd's name agrees", zone, discovery.Local{Addrs: addrs("192.0.2.10"), NameHint: "ETCD-0"}, "etcd-0", nil},
		{"WB-42 etcd's name is another peer's", zone, discovery.Local{Addrs: addrs("192.0.2.10"), NameHint: "etcd-1"}, "", []string{
			`etcd's name is "etcd-1"`, "etcd-1=192.0.2.11", "etcd-0=192.0.2.10", "local 192.0.2.10",
		}},
		{"WB-42 etcd's name is nobody's", zone, discovery.Local{Addrs: addrs("192.0.2.10"), NameHint: "controller", Hostname: "controller"}, "etcd-0", nil},
		{"etcd's name against --self-name", zone, discovery.Local{Addrs: addrs("192.0.2.10"), Name: "etcd-0", NameHint: "etcd-1"}, "", []string{"by --self-name"}},
		{"loopback does not count", zone, discovery.Local{Addrs: addrs("127.0.0.1")}, "", []string{"local none (and 127.0.0.1, which do not count)"}},
		{"loopback counts if all are", loop, discovery.Local{Addrs: addrs("127.0.0.2 192.0.2.1")}, "b", nil},
		{"loopback of one peer only", append(slices.Clone(loop), zone[0]), discovery.Local{Addrs: addrs("127.0.0.1")}, "", nil},
		{"link-local never", []string{"a a.example.com fe80::1"}, discovery.Local{Addrs: addrs("fe80::1%eth0")}, "", []string{"do not count"}},
		{"mapped IPv4", zone, discovery.Local{Addrs: addrs("::ffff:192.0.2.12")}, "etcd-2", nil},
		{"no peers", nil, discovery.Local{Addrs: addrs("127.0.0.1")}, "", []string{"peers none"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			peers := peersOf(tt.peers...)
			for round := range 2 { // the order of the peers decides nothing
				i, err := discovery.MatchSelf(peers, tt.local)
				switch {
				case tt.want == "" && kind(err) != discovery.NotSelf:
					t.Fatalf("got %d, %v, want NotSelf", i, err)
				case tt.want != "" && (err != nil || peers[i].Name != tt.want):
					t.Fatalf("got %d, %v, want %s", i, err, tt.want)
				}
				if tt.want == "" && round == 0 { // else the list is in the other order
					contains(t, err, tt.texts...)
				}
				slices.Reverse(peers)
			}
		})
	}
}

// TestSwapped: a host that is called exactly as another peer is not taken for the
// one that its address names, unless somebody said who it is.
func TestSwapped(t *testing.T) {
	zone := peersOf("etcd-0 etcd-0.example.com 192.0.2.10", "etcd-1 etcd-1.example.com 192.0.2.11")
	shared := peersOf("etcd-0 etcd-0.example.com:2380 192.0.2.10", "etcd-1 etcd-1.example.com:2381 192.0.2.10")
	clusters := peersOf("etcd-0.a etcd-0.a 192.0.2.10", "etcd-0.b etcd-0.b 192.0.2.11")
	tests := []struct {
		name    string
		peers   []discovery.Peer
		local   discovery.Local
		swapped bool
	}{
		{"another's", zone, discovery.Local{Hostname: "etcd-1"}, true},
		{"another's, in capitals", zone, discovery.Local{Hostname: "ETCD-1"}, true},
		{"another's, the whole host", zone, discovery.Local{Hostname: "etcd-1.example.com."}, true},
		{"another's, and etcd's name is nobody's", zone, discovery.Local{Hostname: "etcd-1", NameHint: "default"}, true},
		{"its own", zone, discovery.Local{Hostname: "etcd-0"}, false},
		{"its own, the whole host", zone, discovery.Local{Hostname: "etcd-0.example.com"}, false},
		{"in another domain", zone, discovery.Local{Hostname: "etcd-1.example.org"}, false},
		{"nobody's", zone, discovery.Local{Hostname: "worker-1"}, false},
		{"none", zone, discovery.Local{}, false},
		{"--self-name", zone, discovery.Local{Hostname: "etcd-1", Name: "etcd-0"}, false},
		{"--self-ip", zone, discovery.Local{Hostname: "etcd-1", Explicit: netip.MustParseAddr("192.0.2.10")}, false},
		{"etcd's name", zone, discovery.Local{Hostname: "etcd-1", NameHint: "etcd-0"}, false},
		{"two members on one host", shared, discovery.Local{Hostname: "etcd-1"}, false},
		{"the same label in two clusters", clusters, discovery.Local{Hostname: "etcd-0"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.local.Addrs = addrs("192.0.2.10")
			err := discovery.Swapped(tt.peers, 0, tt.local)
			if (kind(err) == discovery.NotSelf) != tt.swapped || !tt.swapped && err != nil {
				t.Fatalf("got %v, want swapped: %t", err, tt.swapped)
			}
			if tt.swapped {
				contains(t, err, "etcd-0=192.0.2.10", "etcd-1=192.0.2.11", "--self-name", "--self-ip")
			}
		})
	}
}

func TestMaxTTL(t *testing.T) {
	if got := discovery.MaxTTL([]discovery.Peer{{TTL: time.Second}, {TTL: time.Minute}, {}}); got != time.Minute {
		t.Errorf("got %v", got)
	}
	if got := discovery.MaxTTL(nil); got != 0 {
		t.Errorf("got %v", got)
	}
}

func TestLocalAddrs(t *testing.T) {
	all, err := discovery.LocalAddrs("")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(all, netip.MustParseAddr("127.0.0.1")) {
		t.Skip("no 127.0.0.1 here:", all)
	}
	for _, a := range all {
		if a.IsLinkLocalUnicast() || a.Is4In6() {
			t.Errorf("%s is listed", a)
		}
	}
	_, err = discovery.LocalAddrs("nosuch0")
	if e := (*discovery.Error)(nil); !errors.As(err, &e) || e.Kind != discovery.Retry || e.AtDeadline != discovery.Config {
		t.Fatalf("got %v, want a Retry that is Config at the deadline", err)
	}
	contains(t, err, `"nosuch0"`, "lo")
}
