package discovery_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/srv"
	"github.com/etcdinit/etcdinit/discovery/static"
)

// The same source on every node; the addresses tell the nodes apart.
func Example() {
	registry := discovery.Registry{"srv": srv.New, "static": static.New}
	env := discovery.Env{
		PeerScheme:      "https",
		ClientListeners: []discovery.Listener{{Scheme: "https", Port: 2379}},
	}
	provider, err := registry.Open("static:?peer=b=https://192.0.2.11:2380&peer=a=https://192.0.2.10:2380", env)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	peers, err := discovery.Await(ctx, provider, discovery.AwaitOptions{Size: 2, Env: env})
	if err != nil {
		fmt.Println(err)
		return
	}
	self, err := discovery.MatchSelf(peers, discovery.Local{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.11")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, p := range peers {
		fmt.Println(p.Name, p.PeerURLs, p.ClientURLs, i == self)
	}
	// Output:
	// a [https://192.0.2.10:2380] [https://192.0.2.10:2379] false
	// b [https://192.0.2.11:2380] [https://192.0.2.11:2379] true
}

// A source that is misspelled is told what there is.
func ExampleRegistry_Open() {
	registry := discovery.Registry{"srv": srv.New, "static": static.New}
	_, err := registry.Open("dnssrv://example.org", discovery.Env{})
	fmt.Println(err)
	// Output:
	// discovery source "dnssrv://example.org": unknown scheme "dnssrv"; known schemes: srv, static
}
