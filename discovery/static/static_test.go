package static_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
	"github.com/etcdinit/etcdinit/discovery/static"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDiscover(t *testing.T) {
	server := dnstest.New(t, `
example.org. 60 SOA ns.example.org. admin.example.org. 1 3600 600 86400 30
a.example.org. 60 A 192.0.2.10
a.example.org. 60 AAAA 2001:db8::10
b.example.org. 60 CNAME vm.example.org.
vm.example.org. 60 A 192.0.2.11
c.example.org. 60 A 192.0.2.12
`, dnstest.Faults{})
	tests := []struct {
		name   string
		source string
		env    discovery.Env
		want   []string
		kind   discovery.Kind
		texts  []string
	}{
		{
			name: "names", source: "static:?peer=x=https://C.example.org.:2380&peer=https://a.example.org:2380&peer=b.y=https://b.example.org:2380",
			env: discovery.Env{PeerScheme: "https", ClientListeners: []discovery.Listener{{Scheme: "http", Port: 2379}}},
			want: []string{
				"a a.example.org:2380 [192.0.2.10 2001:db8::10] [https://a.example.org:2380] [http://a.example.org:2379] ",
				"b.y b.example.org:2380 [192.0.2.11] [https://b.example.org:2380] [http://b.example.org:2379] vm.example.org",
				"x c.example.org:2380 [192.0.2.12] [https://c.example.org:2380] [http://c.example.org:2379] ",
			},
		},
		{
			name: "several URLs", source: "static:?peer=a=http://a.example.org:2380,http://[2001:db8::99]:2380", env: discovery.Env{Size: 1},
			want: []string{"a a.example.org:2380 [192.0.2.10 2001:db8::10 2001:db8::99] [http://[2001:db8::99]:2380 http://a.example.org:2380] [] "},
		},
		{
			name: "addresses need no DNS", source: "static:?peer=http://192.0.2.1:2380&peer=http://[2001:DB8::1]:2380", env: discovery.Env{ResolvConf: "/nonexistent"},
			want: []string{
				"192.0.2.1 192.0.2.1:2380 [192.0.2.1] [http://192.0.2.1:2380] [] ",
				"2001:db8::1 2001:db8::1:2380 [2001:db8::1] [http://[2001:db8::1]:2380] [] ",
			},
		},
		{
			name: "a host without address", source: "static:?peer=http://a.example.org:2380&peer=http://z.example.org:2380",
			kind: discovery.Retry, texts: []string{"z.example.org: no A/AAAA record", "NXDOMAIN", "a.example.org=192.0.2.10", "dig A z.example.org"},
		},
		{
			name: "no nameserver", source: "static:?peer=http://a.example.org:2380", env: discovery.Env{ResolvConf: "/nonexistent"},
			kind: discovery.Retry, texts: []string{"no nameserver in /nonexistent"},
		},
		{
			name: "other size", source: "static:?peer=http://a.example.org:2380", env: discovery.Env{Size: 3},
			kind: discovery.Config, texts: []string{"lists 1 peers", "--size says 3"},
		},
		{
			name: "WB-37 other scheme", source: "static:?peer=http://192.0.2.1:2380", env: discovery.Env{PeerScheme: "https"},
			kind: discovery.Config, texts: []string{"'https'", "http://192.0.2.1:2380"},
		},
		{
			name: "one name twice", source: "static:?peer=a=http://192.0.2.1:2380&peer=a=http://192.0.2.2:2380",
			kind: discovery.Unusable, texts: []string{"two peers have the name a"},
		},
		{
			name: "one URL under two names", source: "static:?peer=a=http://192.0.2.1:2380&peer=b=http://192.0.2.1:2380",
			kind: discovery.Unusable, texts: []string{"192.0.2.1:2380 is listed twice"},
		},
		{
			name: "an illegal name", source: "static:?peer=a%20b=http://192.0.2.1:2380",
			kind: discovery.Unusable, texts: []string{`"a b"`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.env.ResolvConf == "" {
				tt.env.DNSServers = []netip.AddrPort{server.Addr()}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if tt.kind == discovery.Retry {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			}
			defer cancel()
			p, err := discovery.Registry{"static": static.New}.Open(tt.source, tt.env)
			var peers []discovery.Peer
			if err == nil {
				peers, err = discovery.Await(ctx, p, discovery.AwaitOptions{Env: tt.env, BackoffMin: time.Millisecond})
			}
			var e *discovery.Error
			if tt.kind != 0 {
				if !errors.As(err, &e) || e.Kind != tt.kind {
					t.Fatalf("got %v, %v, want kind %v", peers, err, tt.kind)
				}
				for _, s := range tt.texts {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("error %q lacks %q", err, s)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range peers {
				got = append(got, fmt.Sprintf("%s %s:%d %v %v %v %s", p.Name, p.Host, p.Port, p.Addrs, p.PeerURLs, p.ClientURLs, p.Alias))
			}
			if a, b := strings.Join(got, "\n"), strings.Join(tt.want, "\n"); a != b {
				t.Errorf("got\n%s\nwant\n%s", a, b)
			}
		})
	}
}

// TestAppears: a host that resolves later ends the wait.
func TestAppears(t *testing.T) {
	server := dnstest.New(t, "", dnstest.Faults{})
	env := discovery.Env{DNSServers: []netip.AddrPort{server.Addr()}}
	p, err := discovery.Registry{"static": static.New}.Open("static:?peer=http://a.example.org:2380", env)
	if err != nil {
		t.Fatal(err)
	}
	peers, err := discovery.Await(t.Context(), p, discovery.AwaitOptions{
		Env: env, BackoffMin: time.Millisecond,
		OnProgress: func(discovery.Progress) { server.Zone(t, "a.example.org. A 192.0.2.10\n") },
	})
	if err != nil || len(peers) != 1 || peers[0].Addrs[0] != netip.MustParseAddr("192.0.2.10") {
		t.Errorf("got %v, %v", peers, err)
	}
}
