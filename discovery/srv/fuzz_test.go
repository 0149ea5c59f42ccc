package srv

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"testing"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
)

// FuzzRecords: whatever records come, the peers made of them have hosts, ports
// and URLs, are as many as expected, and each is there once.
func FuzzRecords(f *testing.F) {
	for _, rrs := range [][]string{
		{"_etcd-server._tcp.example.com. 60 SRV 0 0 2380 etcd-0.example.com.", "_etcd-server._tcp.example.com. 60 SRV 1 0 2380 ETCD-0.example.com."},
		{"_etcd-server._tcp.example.com. 60 SRV 0 0 0 ."},
		{"_etcd-server._tcp.example.com. 60 SRV 0 0 1 192.0.2.1."},
		{"_etcd-server._tcp.example.com. 60 SRV 2380 0 1 a\\000b.example.com."},
	} {
		m := new(dns.Msg)
		m.SetQuestion("_etcd-server._tcp.example.com.", dns.TypeSRV)
		for _, s := range rrs {
			rr, err := dns.NewRR(s)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		raw, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, 1)
	}
	u, err := url.Parse("srv://example.com")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte, size int) {
		m := new(dns.Msg)
		if m.Unpack(raw) != nil || size < 1 {
			return
		}
		made, err := New(u, discovery.Env{Size: size, PeerPorts: []uint16{2380}})
		if err != nil {
			t.Fatal(err)
		}
		p, ok := made.(*provider)
		if !ok {
			t.Fatalf("%T", made)
		}
		peers, err := p.peers(resolve.Answer{Name: "_etcd-server._tcp.example.com", Type: dns.TypeSRV, Outcome: resolve.Found, Records: m.Answer})
		var e *discovery.Error
		if err != nil {
			if !errors.As(err, &e) || len(peers) > 0 && e.Kind != discovery.Retry && e.Kind != discovery.Unusable {
				t.Errorf("got %v", err)
			}
			return
		}
		if len(peers) != size {
			t.Errorf("%d peers, want %d", len(peers), size)
		}
		for i := range peers {
			peers[i].Name = fmt.Sprintf("m%d", i) // two may be on one host, at two ports
			peers[i].Addrs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})}
		}
		if err := discovery.Check(peers, size); err != nil {
			t.Errorf("the peers do not pass Check: %v", err)
		}
	})
}
