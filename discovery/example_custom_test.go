package discovery_test

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed" //nolint:depguard // the one place that shows how a program brings the two together
)

// inventory is a source of our own: names and addresses that a program has.
type inventory map[string]netip.Addr

// Discover gives all members, or an error, never a part of them.
func (i inventory) Discover(context.Context) ([]discovery.Peer, error) {
	var peers []discovery.Peer
	for name, addr := range i {
		peers = append(peers, discovery.Peer{Name: name, Host: addr.String(), Port: 2380})
	}
	return peers, nil
}

// newInventory is its discovery.Factory.
func newInventory(*url.URL, discovery.Env) (discovery.Provider, error) {
	return inventory{"a": netip.MustParseAddr("192.0.2.10")}, nil
}

// agent seeds dir for the member that this host is. A cluster of more members
// also needs the barrier of package rendezvous before the first etcd starts:
// without it, a member that lost its disk may come back under its old name.
func agent(ctx context.Context, dir string, local []netip.Addr) (*seed.Plan, error) {
	env := discovery.Env{Size: 1, ClientListeners: []discovery.Listener{{Scheme: "http", Port: 2379}}}
	source, err := discovery.Registry{"inventory": newInventory}.Open("inventory:", env)
	if err != nil {
		return nil, err
	}
	peers, err := discovery.Await(ctx, source, discovery.AwaitOptions{Env: env})
	if err != nil {
		return nil, err
	}
	self, err := discovery.MatchSelf(peers, discovery.Local{Addrs: local})
	if err != nil {
		return nil, err
	}
	spec := seed.Spec{DataDir: dir, Token: "etcd-cluster-1", Self: peers[self].Name}
	for _, p := range peers {
		spec.Members = append(spec.Members, seed.Member{Name: p.Name, PeerURLs: p.PeerURLs, ClientURLs: p.ClientURLs})
	}
	plan, err := seed.New(spec)
	if err != nil {
		return nil, err
	}
	if err := plan.Apply(ctx, zap.NewNop()); err != nil {
		return nil, err
	}
	return plan, nil
}

// A program that embeds etcdinit brings a source of its own: a Provider, a
// Registry that knows it, and the steps from there to a seeded directory.
func Example_customAgent() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "etcd-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if rerr := os.RemoveAll(dir); rerr != nil {
			fmt.Println(rerr)
		}
	}()
	plan, err := agent(ctx, dir, []netip.Addr{netip.MustParseAddr("192.0.2.10")}) // else discovery.LocalAddrs("")
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := seed.Inspect(dir, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Self.Name, plan.Self.PeerURLs, plan.Self.ClientURLs, state.Kind)
	// Output:
	// a [http://192.0.2.10:2380] [http://192.0.2.10:2379] valid
}
