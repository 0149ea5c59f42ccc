package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/discovery"
)

// day is a TTL as zones have it where nobody thought of changes.
const day = 24 * time.Hour

// promptly is how soon an agent must see what has changed.
const promptly = maxRecheck + 3*time.Second

// TestLateAddress: what this node is found by may come after the agent, and is
// seen within seconds whatever the records' TTL is.
func TestLateAddress(t *testing.T) {
	t.Parallel()
	t.Run("a local address", func(t *testing.T) {
		t.Parallel()
		for _, ttl := range []time.Duration{0, day} {
			l := newLab(t, 1)
			l.ttl = ttl
			n := l.node(t, "m1")
			var there atomic.Bool
			r := n.start(t, limit(labTime), func(c *Config) {
				ip := c.SelfIP
				c.SelfIP = netip.Addr{}
				c.localAddrs = func(string) ([]netip.Addr, error) {
					if there.Load() {
						return []netip.Addr{ip}, nil
					}
					return nil, nil
				}
			})
			r.sees("this node's own record", "no peer has a local address")
			start := time.Now()
			there.Store(true)
			r.ok()
			if d := time.Since(start); d > lookHere+2*time.Second {
				t.Errorf("TTL %v: seen after %v", ttl, d)
			}
		}
	})
	t.Run("an interface", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 1)
		n := l.node(t, "m1")
		var there atomic.Bool
		r := n.start(t, limit(labTime), func(c *Config) {
			ip := c.SelfIP
			c.SelfIP, c.Interface = netip.Addr{}, "late0"
			c.localAddrs = func(iface string) ([]netip.Addr, error) {
				if !there.Load() {
					return discovery.LocalAddrs(iface)
				}
				return []netip.Addr{ip}, nil
			}
		})
		r.sees("this node's own record", `no interface "late0"`)
		there.Store(true)
		r.ok()
	})
	t.Run("an interface that never comes", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 1).node(t, "m1")
		n.start(t, limit(2*time.Second), func(c *Config) {
			c.SelfIP, c.Interface = netip.Addr{}, "late0"
		}).refused(exit.Config, "", `no interface "late0"`)
	})
	t.Run("a record", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 1)
		l.ttl = day
		n := l.node(t, "m1")
		l.dns("m1", l.ip(9))
		r := n.start(t, limit(labTime))
		r.sees("this node's own record", "no peer has a local address")
		start := time.Now()
		l.dns("m1", n.ip)
		r.ok()
		if d := time.Since(start); d > promptly {
			t.Errorf("seen after %v", d)
		}
	})
	t.Run("never", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 1)
		l.ttl = day
		n := l.node(t, "m1")
		l.dns("m1", l.ip(9))
		start := time.Now()
		n.start(t, limit(2*time.Second)).refused(exit.NotSelf, "", "no peer has a local address")
		if d := time.Since(start); d < time.Second || d > 10*time.Second {
			t.Errorf("refused after %v", d)
		}
	})
	t.Run("a last look right before the deadline", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 1)
		l.ttl = day
		n := l.node(t, "m1")
		l.dns("m1", l.ip(9))
		asked := make(chan time.Time, 100)
		provider := counted{labSource{l, "m1"}, asked}
		a := newAgent(n.config(t, limit(4*time.Second)))
		ctx, cancel := a.deadline(t.Context())
		defer cancel()
		deadline, _ := ctx.Deadline()
		if _, err := a.findSelf(ctx, provider); err == nil {
			t.Fatal("found")
		}
		close(asked)
		times := slices.Collect(func(yield func(time.Time) bool) {
			for at := range asked {
				if !yield(at) {
					return
				}
			}
		})
		if left := deadline.Sub(times[len(times)-1]); left > time.Second {
			t.Errorf("last asked %v before the deadline: %v", left, times)
		}
	})
}

// TestSwapped: a host that is called as another member waits, and takes the
// records as they are where it was told who it is, or has data.
func TestSwapped(t *testing.T) {
	t.Parallel()
	called := func(name string) func(*Config) {
		return func(c *Config) {
			ip := c.SelfIP
			c.SelfIP = netip.Addr{}
			c.localAddrs = func(string) ([]netip.Addr, error) { return []netip.Addr{ip}, nil }
			c.hostname = func() (string, error) { return name, nil }
		}
	}
	alone := func(c *Config) { c.Quorum = QuorumNone }
	swapped := func(t *testing.T) *node {
		t.Helper()
		l := newLab(t, 2)
		l.ttl = day
		n := l.node(t, "m2")
		l.dns("m1", n.ip)
		l.dns("m2", l.ip(1))
		return n
	}
	t.Run("it waits", func(t *testing.T) {
		t.Parallel()
		n := swapped(t)
		r := n.start(t, alone, called("m2"), limit(labTime))
		r.sees("this node's own record", `called "m2", which is m2=`, "by its addresses it is m1=", "--self-name")
		n.dns("m1", n.lab.ip(1))
		n.dns("m2", n.ip)
		if res := r.ok(); res.Name != "m2" {
			t.Errorf("it is %s", res.Name)
		}
	})
	t.Run("at the deadline", func(t *testing.T) {
		t.Parallel()
		n := swapped(t)
		n.start(t, alone, called("m2"), limit(2*time.Second)).refused(exit.NotSelf, "", "m2=", "m1=", "--self-ip")
		if got := tree(t, n.data); got != "" {
			t.Error("something was written", got)
		}
	})
	t.Run("it is told by name", func(t *testing.T) {
		t.Parallel()
		if res := swapped(t).start(t, alone, called("m2"), func(c *Config) { c.SelfName = "m1" }, limit(labTime)).ok(); res.Name != "m1" {
			t.Errorf("it is %s", res.Name)
		}
	})
	t.Run("it is told by address", func(t *testing.T) {
		t.Parallel()
		n := swapped(t)
		res := n.start(t, alone, called("m2"), func(c *Config) { c.SelfIP = netip.MustParseAddr(n.ip) }, limit(labTime)).ok()
		if res.Name != "m1" {
			t.Errorf("it is %s", res.Name)
		}
	})
	t.Run("it has data", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		if res := n.start(t, called("m2"), limit(labTime)).ok(); res.Name != "m1" || res.Action != Kept {
			t.Errorf("%+v", res)
		}
	})
	t.Run("the records are swapped while it waits for others", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 2)
		n := l.node(t, "m1")
		r := n.start(t, called("m1"), limit(labTime))
		r.sees("m2")
		l.dns("m1", l.ip(2))
		l.dns("m2", n.ip)
		time.Sleep(2 * lookAgain)
		l.dns("m1", n.ip)
		l.dns("m2", l.ip(2))
		l.node(t, "m2").start(t).ok()
		if res := r.ok(); res.Name != "m1" {
			t.Errorf("it is %s", res.Name)
		}
	})
}

// TestDiscoverWaits: only where it is told for how long.
func TestDiscoverWaits(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.ttl = day
	n := l.node(t, "m1")
	l.dns("m1", l.ip(9))
	for _, wait := range []bool{false, true} {
		start := time.Now()
		found, err := Discover(t.Context(), n.config(t, limit(2*time.Second), func(c *Config) { c.WaitForSelf = wait }))
		if found == nil || len(found.Peers) != 1 || found.Self != -1 {
			t.Fatalf("got %+v, %v", found, err)
		}
		wantRefusal(t, err, exit.NotSelf, "", "no peer has a local address")
		if d := time.Since(start); d > time.Second != wait {
			t.Errorf("wait: %t, it took %v", wait, d)
		}
	}
	time.AfterFunc(time.Second, func() { l.dns("m1", n.ip) })
	found, err := Discover(t.Context(), n.config(t, limit(labTime), func(c *Config) { c.WaitForSelf = true }))
	if err != nil || found.Self != 0 {
		t.Errorf("got %+v, %v", found, err)
	}
}

type counted struct {
	discovery.Provider
	asked chan time.Time
}

func (c counted) Discover(ctx context.Context) ([]discovery.Peer, error) {
	c.asked <- time.Now()
	return c.Provider.Discover(ctx)
}

// TestStaleRecordsOfData: a restart and verify ask again soon too, and end at
// the deadline.
func TestStaleRecordsOfData(t *testing.T) {
	t.Parallel()
	swapped := func(t *testing.T) *node {
		t.Helper()
		n := released(t)
		n.ttl = day
		n.dns("m1", n.lab.ip(9))
		n.dns("m2", n.ip)
		return n
	}
	t.Run("a restart", func(t *testing.T) {
		t.Parallel()
		n := swapped(t)
		r := n.start(t, limit(labTime))
		r.sees("stale records to expire")
		start := time.Now()
		n.dns("m1", n.ip)
		n.dns("m2", n.lab.ip(2))
		r.ok()
		if d := time.Since(start); d > promptly {
			t.Errorf("seen after %v", d)
		}
	})
	t.Run("a restart at the deadline", func(t *testing.T) {
		t.Parallel()
		swapped(t).start(t, limit(2*time.Second)).refused(exit.Foreign, "foreign-data", "belongs to m1", "this node is m2")
	})
	t.Run("verify at the deadline", func(t *testing.T) {
		t.Parallel()
		n := swapped(t)
		ctx, cancel := context.WithTimeout(t.Context(), labTime)
		defer cancel()
		_, err := Check(ctx, n.config(t, limit(2*time.Second)), n.state(t))
		wantRefusal(t, err, exit.Foreign, "foreign-data", "belongs to m1")
		if ctx.Err() != nil {
			t.Error("--timeout is not obeyed")
		}
	})
}
