package discovery_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/discovery"
)

// named3 is three peers as Check gets them.
func named3() []discovery.Peer {
	peers := zone3(3)
	for i := range peers {
		peers[i].Name, _, _ = strings.Cut(peers[i].Host, ".")
		peers[i].PeerURLs = []string{"http://" + peers[i].Host + ":2380"}
		peers[i].ClientURLs = []string{"http://" + peers[i].Host + ":2379"}
	}
	return peers
}

func TestCheck(t *testing.T) {
	set := func(i int, ips ...string) func([]discovery.Peer) {
		return func(p []discovery.Peer) {
			p[i].Addrs = nil
			for _, ip := range ips {
				p[i].Addrs = append(p[i].Addrs, netip.MustParseAddr(ip))
			}
		}
	}
	all := func(fs ...func([]discovery.Peer)) func([]discovery.Peer) {
		return func(p []discovery.Peer) {
			for _, f := range fs {
				f(p)
			}
		}
	}
	const (
		ok       = discovery.Kind(0)
		retry    = discovery.Retry
		unusable = discovery.Unusable
	)
	tests := []struct {
		name   string
		size   int
		change func(p []discovery.Peer)
		kind   discovery.Kind
		texts  []string
	}{
		{"complete", 3, nil, ok, nil},
		{"any size", 0, nil, ok, nil},
		{"too few", 5, nil, retry, []string{"got 3 of 5", "etcd-0.example.com, etcd-1.example.com, etcd-2.example.com"}},
		{"SB-10 too many", 2, nil, unusable, []string{"got 3 of 2", "etcd-0.example.com, etcd-1.example.com, etcd-2.example.com", "service name suffix"}},
		{"too many, and bad", 2, func(p []discovery.Peer) { p[0].Port = 0 }, unusable, []string{"got 3 of 2"}},
		{"too few, and bad", 5, func(p []discovery.Peer) { p[0].Port = 0 }, unusable, []string{"port 0"}},
		{"no host", 3, func(p []discovery.Peer) { p[0].Host = "" }, unusable, []string{"host is empty"}},
		{"illegal host", 3, func(p []discovery.Peer) { p[0].Host = "a b" }, unusable, []string{`' '`}},
		{"many, with newlines", 2, func(p []discovery.Peer) { p[0].Host = "a\nb" }, unusable, []string{`"a\nb"`}},
		{"upper case", 3, func(p []discovery.Peer) { p[0].Host = "A" }, unusable, []string{"'A'"}},
		{"port 0", 3, func(p []discovery.Peer) { p[1].Port = 0 }, unusable, []string{"etcd-1", "port 0"}},
		{"no name", 3, func(p []discovery.Peer) { p[1].Name = "" }, unusable, []string{"name is empty"}},
		{"name with =", 3, func(p []discovery.Peer) { p[1].Name = "a=b" }, unusable, []string{`"a=b"`}},
		{"name with newline", 3, func(p []discovery.Peer) { p[1].Name = "a\nb" }, unusable, []string{`"a\nb"`}},
		{"long name", 3, func(p []discovery.Peer) { p[1].Name = strings.Repeat("a", 254) }, unusable, []string{"254"}},
		{"same name", 3, func(p []discovery.Peer) { p[1].Name = "etcd-0" }, unusable, []string{"two peers have the name etcd-0", "etcd-1.example.com:2380"}},
		{"same name but for case", 3, func(p []discovery.Peer) { p[1].Name = "ETCD-0" }, unusable, []string{"two peers"}},
		{"same host and port", 3, func(p []discovery.Peer) { p[1].Host, p[1].PeerURLs = p[0].Host, p[0].PeerURLs }, unusable, []string{"etcd-0.example.com:2380 is listed twice", "etcd-1"}},
		{"same URL", 3, func(p []discovery.Peer) { p[1].PeerURLs = append(p[1].PeerURLs, p[0].PeerURLs[0]) }, unusable, []string{"etcd-0 and etcd-1", "http://etcd-0.example.com:2380"}},
		{"same client URL", 3, func(p []discovery.Peer) { p[1].ClientURLs = p[0].ClientURLs }, unusable, []string{"http://etcd-0.example.com:2379"}},
		{"peer URL is client URL", 3, func(p []discovery.Peer) { p[1].ClientURLs = p[1].PeerURLs }, unusable, []string{"for peers and for clients"}},
		{"no URL", 3, func(p []discovery.Peer) { p[1].PeerURLs = nil }, unusable, []string{"no peer URL"}},
		{"URL of another host", 3, func(p []discovery.Peer) { p[1].PeerURLs = []string{"http://x.example.com:2380"} }, unusable, []string{"none of its peer URLs"}},
		{"URL with path", 3, func(p []discovery.Peer) { p[1].PeerURLs[0] += "/x" }, unusable, []string{"a path"}},
		{"URL without port", 3, func(p []discovery.Peer) { p[1].PeerURLs[0] = "http://etcd-1.example.com" }, unusable, []string{"no port"}},
		{"client URL with path", 3, func(p []discovery.Peer) { p[1].ClientURLs[0] += "/" }, unusable, []string{"a path"}},
		{"WB-34 URL without brackets", 3, func(p []discovery.Peer) { p[1].PeerURLs[0] = "http://2001:db8::10:2380" }, unusable, []string{"IPv6 address must be in brackets"}},
		{"URL in other spelling", 3, func(p []discovery.Peer) { p[1].PeerURLs[0] = "http://ETCD-1.example.com:2380" }, unusable, []string{"must be written"}},
		{"SB-04 no address", 3, set(2), retry, []string{"no address for etcd-2.example.com", "etcd-0=192.0.2.10"}},
		{"SB-12 same address and port", 3, set(1, "192.0.2.10"), unusable, []string{"ambiguous", "etcd-0.example.com", "etcd-1.example.com", "192.0.2.10"}},
		{"SB-12 one of several addresses", 3, set(1, "192.0.2.99", "192.0.2.10"), unusable, []string{"ambiguous", "192.0.2.10"}},
		{"same address, other port", 3, all(set(1, "192.0.2.10"), func(p []discovery.Peer) {
			p[1].Port, p[1].PeerURLs = 2381, []string{"http://etcd-1.example.com:2381"}
		}), ok, nil},
		{"SB-14 wildcard", 3, all(set(0, "203.0.113.9"), set(1, "203.0.113.9"), set(2, "203.0.113.9")), unusable, []string{"all 3 targets resolve to 203.0.113.9 - wildcard?"}},
		{"WB-32 loopback", 3, set(0, "127.0.1.1"), unusable, []string{"loopback", "/etc/hosts", "etcd-0.example.com=127.0.1.1"}},
		{"WB-32 loopback beside", 3, set(0, "127.0.1.1", "192.0.2.10"), unusable, []string{"loopback"}},
		{"IPv6 loopback", 3, set(0, "::1"), unusable, []string{"loopback"}},
		{"all loopback", 3, all(set(0, "127.0.0.1"), set(1, "127.0.0.2"), set(2, "127.0.0.3")), ok, nil},
		{"link-local", 3, set(0, "fe80::1", "192.0.2.10"), unusable, []string{"link-local", "fe80::1"}},
		{"link-local IPv4", 3, set(0, "169.254.1.1"), unusable, []string{"link-local"}},
		{"unspecified", 3, set(0, "0.0.0.0"), unusable, []string{"0.0.0.0"}},
		{"multicast", 3, set(0, "224.0.0.1"), unusable, []string{"224.0.0.1"}},
		{"broadcast", 3, set(0, "255.255.255.255"), unusable, []string{"255.255.255.255"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			peers := named3()
			if tt.change != nil {
				tt.change(peers)
			}
			err := discovery.Check(peers, tt.size)
			if kind(err) != tt.kind || (err == nil) != (tt.kind == 0) {
				t.Fatalf("got %v, want kind %v", err, tt.kind)
			}
			contains(t, err, tt.texts...)
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q has more than one line", err)
			}
		})
	}
	if err := discovery.Check(nil, 0); kind(err) != retry {
		t.Errorf("no peers: got %v", err)
	}
}
