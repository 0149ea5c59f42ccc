package agent

import (
	"context"
	"net/netip"
	"testing"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/discovery"
)

// growing is a source that gives a part of the set, then all of it.
type growing struct {
	part, whole []discovery.Peer
	asked       int
}

func (g *growing) Discover(context.Context) ([]discovery.Peer, error) {
	g.asked++
	if g.asked < 3 {
		return nil, &discovery.Error{Kind: discovery.Retry, Msg: "not yet", Seen: g.part}
	}
	return g.whole, nil
}

// TestGlance: a restart is patient only while its own record may still come.
func TestGlance(t *testing.T) {
	peer := func(name, ip string) discovery.Peer {
		return discovery.Peer{Name: name, Host: name + ".example.org", Port: 2380, Addrs: []netip.Addr{netip.MustParseAddr(ip)}, PeerURLs: []string{"http://" + name + ".example.org:2380"}}
	}
	me, other, third := peer("m1", "192.0.2.1"), peer("m2", "192.0.2.2"), peer("m3", "192.0.2.3")
	for _, tt := range []struct {
		name    string
		part    []discovery.Peer
		patient bool
		asked   int
	}{
		{"nothing is there", nil, true, 1},
		{"another's is missing", []discovery.Peer{me, other}, true, 1},
		{"its own is missing", []discovery.Peer{other, third}, true, 3},
		{"its own is missing, and others wait for it", []discovery.Peer{other, third}, false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := &growing{part: tt.part, whole: []discovery.Peer{me, other, third}}
			a := newAgent(Config{Etcd: &etcdconf.Config{}, Log: zap.NewNop(), Size: 3, SelfIP: me.Addrs[0]})
			found, err := a.glance(t.Context(), g, tt.patient)
			if g.asked != tt.asked || (err == nil) != (tt.asked == 3) {
				t.Fatalf("asked %d times, want %d: %v", g.asked, tt.asked, err)
			}
			if err == nil && found.Peer().Name != "m1" {
				t.Errorf("it is %s", found.Peer().Name)
			}
		})
	}
}
