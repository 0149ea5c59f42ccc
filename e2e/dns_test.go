//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// Records appear one by one while all hosts ask: nobody seeds before the set
// is whole, and then all seed the same cluster.
func TestRecordsThatAppearOneByOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3})
	var published atomic.Int32
	script := c.Script(c.dns, func(q lab.Query) *dns.Msg {
		n := published.Load()
		return lab.NewZone("example.org", time.Second).SRV("_etcd-server", 2380, c.hosts[:n]...).Addrs(c.hosts[:n]...).Answer(q)
	})
	agents := make([]*lab.Proc, len(c.hosts))
	for i, h := range c.hosts {
		agents[i] = h.Start(etcdinit, c.initArgs()...)
	}
	for n := range 3 {
		published.Store(int32(n))
		script.Forget()
		c.Eventually("each host has asked twice", 30*time.Second, func() error { return askedTwice(script, c.hosts) })
		for i, h := range c.hosts {
			if !agents[i].Running() {
				t.Fatalf("%s: init ended with %d of 3 records", h.Name, n)
			}
			if _, err := h.Stat("data/member"); !os.IsNotExist(err) {
				t.Fatalf("%s: seeded with %d of 3 records (%v)", h.Name, n, err)
			}
		}
	}
	published.Store(3)
	for i, h := range c.hosts {
		if status := agents[i].Wait(30 * time.Second); status != 0 {
			t.Fatalf("%s: init: status %d", h.Name, status)
		}
	}
	c.start("3.7")
	c.works()
}

func askedTwice(script *lab.Script, hosts []*lab.Host) error {
	times := map[*lab.Host]int{}
	for _, q := range script.Asked() {
		if q.Type == dns.TypeSRV {
			times[q.From]++
		}
	}
	for _, h := range hosts {
		if times[h] < 2 {
			return fmt.Errorf("%s has asked %d times", h.Name, times[h])
		}
	}
	return nil
}

// A complete answer is one exchange: nobody asks for addresses that came along.
func TestOneExchange(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3})
	script := c.Script(c.dns, c.zone.Answer)
	c.init()
	servers := map[*lab.Host]int{}
	for _, q := range script.Asked() {
		switch {
		case q.Type != dns.TypeSRV:
			t.Errorf("%s asked for %s %s, which it had been told", q.From.Name, dns.TypeToString[q.Type], q.Name)
		case q.Name == "_etcd-server._tcp.example.org.":
			servers[q.From]++
		}
	}
	for _, h := range c.hosts {
		if servers[h] != 1 {
			t.Errorf("%s asked for the members %d times", h.Name, servers[h])
		}
	}
}

// An answer that does not fit is asked again over TCP.
func TestTruncatedAnswers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3})
	script := c.Script(c.dns, func(q lab.Query) *dns.Msg {
		reply := c.zone.Answer(q)
		if !q.TCP {
			reply.Truncated, reply.Extra = true, nil
			if len(reply.Answer) > 1 {
				reply.Answer = reply.Answer[:1]
			}
		}
		return reply
	})
	c.boot("3.7")
	c.works()
	tcp := map[*lab.Host]bool{}
	for _, q := range script.Asked() {
		if q.TCP && q.Type == dns.TypeSRV {
			tcp[q.From] = true
		}
	}
	for _, h := range c.hosts {
		if !tcp[h] {
			t.Errorf("%s has not asked over TCP", h.Name)
		}
	}
}

// The first nameserver is dead: silent, refusing, or broken in the head.
func TestFirstNameserverDead(t *testing.T) {
	failing := func(q lab.Query) *dns.Msg { return new(dns.Msg).SetRcode(q.Msg, dns.RcodeServerFailure) }
	silent := func(lab.Query) *dns.Msg { return nil }
	tests := []struct {
		name  string
		first func(c *cluster) netip.Addr
	}{
		{"no such host", func(*cluster) netip.Addr { return netip.MustParseAddr("192.0.2.200") }},
		{"no server on the host", func(c *cluster) netip.Addr { return c.Host("ns0").Addr4() }},
		{"silent", func(c *cluster) netip.Addr { h := c.Host("ns0"); c.Script(h, silent); return h.Addr4() }},
		{"SERVFAIL", func(c *cluster) netip.Addr { h := c.Host("ns0"); c.Script(h, failing); return h.Addr4() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, shape{size: 1})
			c.CoreDNS(c.dns, c.zone)
			c.hosts[0].Resolv(test.first(c), c.dns.Addr4())
			c.boot("3.7")
			c.works()
		})
	}
}

// When the set never becomes whole, or is another than asked for, init ends
// with its own status and has touched nothing.
func TestNothingIsSeededFromAWrongSet(t *testing.T) {
	tests := []struct {
		name   string
		zone   func(c *cluster) *lab.Zone
		status int
	}{
		{"a record is missing", func(c *cluster) *lab.Zone {
			return lab.NewZone("example.org", time.Second).SRV("_etcd-server", 2380, c.hosts[:2]...).Addrs(c.hosts...)
		}, 30},
		{"a target has no address", func(c *cluster) *lab.Zone {
			return lab.NewZone("example.org", time.Second).SRV("_etcd-server", 2380, c.hosts...).Addrs(c.hosts[:2]...)
		}, 30},
		{"one more than asked for", func(c *cluster) *lab.Zone {
			return lab.NewZone("example.org", time.Second).SRV("_etcd-server", 2380, slices.Concat(c.hosts, []*lab.Host{c.dns})...).Addrs(slices.Concat(c.hosts, []*lab.Host{c.dns})...)
		}, 40},
		{"this host is not among them", func(c *cluster) *lab.Zone {
			return lab.NewZone("example.org", time.Second).SRV("_etcd-server", 2380, slices.Concat(c.hosts[1:], []*lab.Host{c.dns})...).Addrs(slices.Concat(c.hosts[1:], []*lab.Host{c.dns})...)
		}, 41},
		{"the other service only", func(c *cluster) *lab.Zone {
			return lab.NewZone("example.org", time.Second).SRV("_etcd-server-ssl", 2380, c.hosts...).Addrs(c.hosts...)
		}, 20},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, shape{size: 3})
			c.Script(c.dns, test.zone(c).Answer)
			h := c.hosts[0]
			h.Write("data/lost+found/keep", "a foreign file")
			tree := h.Tree("data")
			h.WantStatus(test.status, etcdinit, c.initArgs("--timeout", "4s")...)
			if h.Tree("data") != tree {
				t.Error("the data directory was touched")
			}
			if _, err := h.Stat("run.yaml"); err == nil {
				t.Error("etcd got a configuration")
			}
		})
	}
}

// A signal ends the wait with its own status and leaves nothing.
func TestSignalWhileWaiting(t *testing.T) {
	for signal, status := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, shape{size: 3})
			script := c.Script(c.dns, func(q lab.Query) *dns.Msg {
				return lab.NewZone("example.org", time.Second).SRV("_etcd-server", 2380, c.hosts[:2]...).Addrs(c.hosts...).Answer(q)
			})
			h := c.hosts[0]
			agent := h.Start(etcdinit, c.initArgs()...)
			c.Eventually("it has asked twice", 30*time.Second, func() error { return askedTwice(script, c.hosts[:1]) })
			agent.Signal(signal)
			if got := agent.Wait(10 * time.Second); got != status {
				t.Errorf("status %d, want %d", got, status)
			}
			if _, err := h.Stat("data/member"); !os.IsNotExist(err) {
				t.Errorf("something was written (%v)", err)
			}
		})
	}
}
