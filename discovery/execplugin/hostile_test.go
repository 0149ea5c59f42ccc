//go:build unix

package execplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
	"github.com/etcdinit/etcdinit/internal/run"
	"github.com/etcdinit/etcdinit/plugins"
)

// hostile is a plugin that answers whatever hurts: it starts from a good
// answer and spoils it in a few places.
type hostile struct{ *rand.Rand }

func (h hostile) pick(list ...any) any { return list[h.IntN(len(list))] }

func one[T any](h hostile, list ...T) T { return list[h.IntN(len(list))] }

func (h hostile) peer(i int) map[string]any {
	host := fmt.Sprintf("etcd-%d.example.org", i)
	p := map[string]any{
		"name": fmt.Sprintf("etcd-%d", i), "host": host, "port": 2380,
		"addrs":    []any{fmt.Sprintf("192.0.2.%d", 10+i)},
		"peerURLs": []any{"http://" + host + ":2380"}, "clientURLs": []any{"http://" + host + ":2379"},
	}
	for h.IntN(6) == 0 {
		switch h.IntN(8) {
		case 0:
			p["name"] = h.pick("", "a,b", "a=b", "etcd-0", "ETCD-0", "a\nb", "é", strings.Repeat("x", 300), nil, 7)
		case 1:
			p["host"] = h.pick("", "ETCD-0.example.org.", "etcd-0.example.org", "[::1]", "a b", "127.0.0.1", "192.0.2.10", "::ffff:192.0.2.10", "192.0.2", "fe80::1", "0.0.0.0", strings.Repeat("a.", 200), nil, []any{})
		case 2:
			p["port"] = h.pick(0, -1, 65535, 65536, 1e18, 2380.5, "2380", nil)
		case 3:
			p["addrs"] = h.pick([]any{}, []any{"192.0.2.10"}, []any{"127.0.0.1"}, []any{"::1"}, []any{"fe80::1"}, []any{"fe80::1%eth0"}, []any{"224.0.0.1"}, []any{"255.255.255.255"}, []any{"0.0.0.0"}, []any{"x"}, []any{nil}, []any{"::ffff:192.0.2.10", "192.0.2.10"}, nil)
		case 4:
			p["peerURLs"] = h.pick([]any{}, []any{"https://" + host + ":2380"}, []any{"http://etcd-0.example.org:2380"}, []any{"http://192.0.2.66:2380"}, []any{"http://x:0"}, []any{"http://x:2380/path"}, []any{"unix:///x"}, []any{"http://" + host + ":2380", "http://192.0.2.66:2380"}, []any{""})
		case 5:
			p["clientURLs"] = h.pick([]any{}, []any{"http://etcd-0.example.org:2379"}, []any{"http://" + host + ":2380"}, []any{"javascript:1"}, []any{"http://user@x:1"})
		case 6:
			delete(p, one(h, "name", "host", "port", "addrs", "peerURLs", "clientURLs"))
		case 7:
			p[one(h, "later", "isLearner", "learner", "id", "alias", "Alias", "TTL")] = h.pick(true, "x", map[string]any{}, nil)
		}
	}
	return p
}

// answer is what the plugin prints, and its exit status.
func (h hostile) answer() (doc []byte, status int) {
	n := one(h, 3, 3, 3, 3, 3, 3, 2, 4, 1, 0, 50)
	peers := make([]any, 0, n)
	for i := range n {
		peers = append(peers, h.peer(i))
	}
	fields := map[string]any{"version": 1, "peers": peers}
	if h.IntN(8) == 0 {
		fields["ttl"] = h.pick(0, 1, -1, 1e300, "1")
	}
	if h.IntN(12) == 0 {
		fields["version"] = h.pick(0, 2, "1", nil)
	}
	if h.IntN(12) == 0 {
		fields["error"] = map[string]any{"code": h.pick("retry", "config", "internal", "x", "", nil), "message": h.pick("m", "", "a\nb"), "retryAfter": h.pick(0, 1, -1, 1e300)}
		if h.IntN(2) == 0 {
			delete(fields, "peers")
		}
	}
	if h.IntN(12) == 0 {
		status = one(h, 1, 2, 127, 255)
	}
	b, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	switch h.IntN(12) {
	case 0:
		b = b[:h.IntN(len(b))]
	case 1:
		b[h.IntN(len(b))] = byte(h.IntN(256))
	case 2:
		b = append(b, b...)
	case 3:
		b = []byte(strings.Replace(string(b), `"host"`, `"host":"192.0.2.99","host"`, 1))
	}
	return b, status
}

// TestHostilePlugin: whatever a plugin answers, there is either the whole set
// with all rules kept, or an error of a known kind. The rules are written down
// here once more, so that Check is not its own judge.
func TestHostilePlugin(t *testing.T) {
	dir := install(t)
	dns := dnstest.New(t, "$ORIGIN example.org.\n@ 3600 SOA ns host 1 2 3 4 5\netcd-0 30 A 192.0.2.10\netcd-1 30 A 192.0.2.11\netcd-2 30 A 127.0.0.1\n", dnstest.Faults{})
	const tries, size = 5000, 3
	accepted, kinds := 0, map[discovery.Kind]int{}
	local := netip.MustParseAddr("192.0.2.11")
	for seed := range uint64(tries) {
		h := hostile{rand.New(rand.NewPCG(seed, 42))}
		doc, status := h.answer()
		env := discovery.Env{
			Size: size, PluginDirs: []string{dir}, DNSServers: []netip.AddrPort{dns.Addr()}, LocalAddrs: []netip.Addr{local},
			ClientListeners: []discovery.Listener{{Scheme: "http", Port: 2379}},
		}
		p, err := open(&url.URL{Scheme: "exec", Opaque: "good.sh"}, env)
		if err != nil {
			t.Fatal(err)
		}
		p.info = &plugins.Info{}
		p.call = func(context.Context, run.Call) (run.Result, error) {
			return run.Result{Stdout: doc, Status: status}, nil
		}
		// One try: a Retry, which would be asked again, ends it.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		peers, err := discovery.Await(ctx, p, discovery.AwaitOptions{Env: env, OnProgress: func(s discovery.Progress) {
			if s.Err != nil {
				cancel()
			}
		}})
		again := ctx.Err() != nil
		cancel()
		if err != nil {
			var e *discovery.Error
			switch {
			case again:
				kinds[discovery.Retry]++
			case !errors.As(err, &e):
				t.Errorf("seed %d: %v is no *discovery.Error", seed, err)
			default:
				kinds[e.Kind]++
			}
			if len(peers) > 0 {
				t.Errorf("seed %d: peers beside %v", seed, err)
			}
			continue
		}
		accepted++
		if broken := rules(peers, size); broken != "" {
			t.Errorf("seed %d: %s\nof %s\nbecame %v", seed, broken, doc, peers)
		}
		self, err := discovery.MatchSelf(peers, discovery.Local{Addrs: []netip.Addr{local}})
		if err == nil && (len(peers[self].Addrs) == 0 || !strings.Contains(fmt.Sprint(peers[self].Addrs), local.String())) {
			t.Errorf("seed %d: self is %v", seed, peers[self])
		}
	}
	t.Logf("%d answers taken, errors %v", accepted, kinds)
	if accepted < tries/50 || kinds[discovery.Plugin] < tries/10 || kinds[discovery.Retry] < tries/50 || kinds[discovery.Unusable] < tries/50 {
		t.Errorf("the answers are too much alike: %d taken, errors %v", accepted, kinds)
	}
}

// rules says which rule a set breaks, "" none.
func rules(peers []discovery.Peer, size int) string {
	if len(peers) != size {
		return fmt.Sprintf("%d peers", len(peers))
	}
	seen := map[string]string{}
	once := func(key, owner string) bool {
		was, ok := seen[key]
		seen[key] = owner
		return !ok || was == owner
	}
	loopback, other := 0, 0
	var scheme string
	for _, p := range peers {
		if p.Name == "" || strings.ContainsAny(p.Name, ",= \n") || !once("name "+strings.ToLower(p.Name), p.Host) {
			return "the name " + p.Name
		}
		if p.Host == "" || p.Host != strings.ToLower(p.Host) || strings.HasSuffix(p.Host, ".") || p.Port == 0 {
			return "the host " + p.Host
		}
		if len(p.Addrs) == 0 {
			return "no address of " + p.Name
		}
		for _, a := range p.Addrs {
			if a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || a.Zone() != "" || a.Is4In6() {
				return "the address " + a.String()
			}
			if !once(fmt.Sprint(a, " ", p.Port), p.Name) {
				return "two peers at " + a.String()
			}
			if a.IsLoopback() {
				loopback++
			} else {
				other++
			}
		}
		if len(p.PeerURLs) == 0 {
			return "no peer URL of " + p.Name
		}
		for i, u := range append(p.PeerURLs, p.ClientURLs...) {
			parsed, err := url.Parse(u)
			if err != nil || parsed.Port() == "" || parsed.Port() == "0" || parsed.Path != "" || parsed.User != nil || parsed.Scheme != "http" && parsed.Scheme != "https" {
				return "the URL " + u
			}
			if !once("url "+u, fmt.Sprint(p.Name, i < len(p.PeerURLs))) {
				return "the URL " + u + " twice"
			}
			if i < len(p.PeerURLs) {
				if scheme == "" {
					scheme = parsed.Scheme
				}
				if parsed.Scheme != scheme {
					return "two schemes"
				}
			}
		}
	}
	if loopback > 0 && other > 0 {
		return "loopback among others"
	}
	return ""
}
