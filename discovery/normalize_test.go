package discovery_test

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/discovery"
)

// TestAwaitSameOnEveryNode: SB-09, WB-42, the order, the case, trailing dots
// and repetitions of an answer change nothing.
func TestAwaitSameOnEveryNode(t *testing.T) {
	env := discovery.Env{
		PeerScheme:      "https",
		ClientListeners: []discovery.Listener{{Scheme: "https", Port: 2379}, {Scheme: "http", Port: 2381}, {Scheme: "https", Port: 2379}},
	}
	addr := netip.MustParseAddr
	base := []discovery.Peer{
		{Host: "etcd-0.example.com", Port: 2380, Addrs: []netip.Addr{addr("192.0.2.10"), addr("2001:db8::10")}, TTL: 30},
		{Host: "etcd-1.example.com", Port: 2380, Addrs: []netip.Addr{addr("192.0.2.11")}},
		{Host: "etcd-1.example.org", Port: 2380, Addrs: []netip.Addr{addr("192.0.2.12")}},
		{Host: "2001:db8::13", Port: 2380, Addrs: []netip.Addr{addr("2001:db8::13")}},
		{Host: "other.example.com", Name: "given", Port: 2380, Addrs: []netip.Addr{addr("192.0.2.14")}, ClientURLs: []string{"https://client.example.com:1"}},
	}
	await := func(peers []discovery.Peer) []discovery.Peer {
		got, err := discovery.Await(t.Context(), &fake{answers: []answer{{peers: peers}}}, discovery.AwaitOptions{Size: 5, Env: env})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := await(base)
	var names []string
	for _, p := range want {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "2001:db8::13 etcd-0 etcd-1.example.com etcd-1.example.org given" {
		t.Errorf("names %s", got)
	}
	if got := strings.Join(want[1].ClientURLs, " "); got != "http://etcd-0.example.com:2381 https://etcd-0.example.com:2379" {
		t.Errorf("client URLs %s", got)
	}
	if got := strings.Join(want[4].ClientURLs, " "); got != "https://client.example.com:1" {
		t.Errorf("client URLs of the source %s", got)
	}
	if got := strings.Join(want[0].PeerURLs, " "); got != "https://[2001:db8::13]:2380" {
		t.Errorf("WB-34: peer URLs %s", got)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var peers []discovery.Peer
		for _, i := range r.Perm(len(base)) {
			for range 1 + r.IntN(2) {
				p := base[i]
				p.Host = respell(r, p.Host)
				p.Addrs = nil
				for _, j := range r.Perm(len(base[i].Addrs)) {
					a := base[i].Addrs[j]
					if a.Is4() && r.IntN(2) == 0 {
						a = netip.AddrFrom16(a.As16())
					}
					p.Addrs = append(p.Addrs, a)
				}
				if r.IntN(2) == 0 {
					p.PeerURLs = []string{"HTTPS://" + respell(r, strings.TrimPrefix(want[0].PeerURLs[0], "https://"))}
					if base[i].Host != want[0].Host {
						p.PeerURLs = nil
					}
				}
				peers = append(peers, p)
			}
		}
		r.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
		if got := await(peers); !reflect.DeepEqual(got, want) {
			t.Fatalf("%v\ngives %v\nwant  %v", peers, got, want)
		}
	}
}

// respell changes the case and, of a name, the trailing dot.
func respell(r *rand.Rand, host string) string {
	b := []byte(host)
	for i := range b {
		if r.IntN(2) == 0 {
			b[i] = strings.ToUpper(string(b[i]))[0]
		}
	}
	if r.IntN(2) == 0 && !strings.Contains(host, ":") {
		return string(b) + "."
	}
	return string(b)
}

// TestAwaitLeavesItsInput: a provider may return what it keeps.
func TestAwaitLeavesItsInput(t *testing.T) {
	kept := []discovery.Peer{{
		Host: "B.example.com.", Port: 1, PeerURLs: []string{"http://b.example.com:2", "http://B.example.com:1"},
		Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1")},
	}}
	before := kept[0].Host + kept[0].PeerURLs[0] + kept[0].Addrs[0].String()
	if _, err := discovery.Await(t.Context(), &fake{answers: []answer{{peers: kept}}}, discovery.AwaitOptions{Size: 1}); err != nil {
		t.Fatal(err)
	}
	if after := kept[0].Host + kept[0].PeerURLs[0] + kept[0].Addrs[0].String(); after != before {
		t.Errorf("got %s, want %s", after, before)
	}
}
