//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// The schedules of this file lose acknowledged writes, or end in two leaders of
// one cluster, where safety rests on what an agent has seen.

// trioWithTwin is a cluster of three, and a second machine that is to be m1.
func trioWithTwin(t *testing.T) (c *cluster, twin *lab.Host) {
	t.Helper()
	c = newCluster(t, shape{size: 3, family: "4"})
	twin = c.host("m1b")
	twin.Write("etcd.yaml", c.config())
	c.UseDNS([]*lab.Host{twin}, c.dns)
	return c, twin
}

// leadsTo is the zone in which the name m1 leads to a host.
func (c *cluster) leadsTo(m1 *lab.Host) *lab.Zone {
	return lab.NewZone("example.org", time.Second).SRV("_etcd-server", 2380, c.hosts...).
		RoundRobin("m1", m1).Addrs(c.hosts[1:]...)
}

// TestTwoDisksOfOne: the record of m1 moves from a machine that lives on to
// another one, as with a replaced VM or a pod that was deleted by force. Both
// machines run init, and etcd on each as soon as it may.
func TestTwoDisksOfOne(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		split         bool // resolvers differ for a while: each m1 is seen by one other member
		partition     bool // {m1, m2} | {m1b, m3}, once somebody is released
		late          [4]time.Duration
	}{
		{"one change", "3.4", false, false, [4]time.Duration{500 * time.Millisecond, 3 * time.Second, time.Second, 2 * time.Second}},
		{"one change, then a partition", "3.6", false, true, [4]time.Duration{}},
		{"one change", "3.7", false, false, [4]time.Duration{3 * time.Second, 500 * time.Millisecond, 2 * time.Second, time.Second}},
		{"two views", "3.6", true, false, [4]time.Duration{time.Second, 2 * time.Second, 500 * time.Millisecond, 3 * time.Second}},
		{"two views, then a partition", "3.4", true, true, [4]time.Duration{}},
		{"two views, then a partition", "3.7", true, true, [4]time.Duration{}},
	} {
		t.Run(tt.name+", "+tt.version, func(t *testing.T) {
			t.Parallel()
			c, y := trioWithTwin(t)
			x, m2, m3 := c.hosts[0], c.hosts[1], c.hosts[2]
			before, after := c.leadsTo(x), c.leadsTo(y)
			answer := func(q lab.Query) *dns.Msg {
				if tt.split && (q.From == y || q.From == m3) {
					return after.Answer(q)
				}
				return before.Answer(q)
			}
			script := c.Script(c.dns, answer)
			moved := func() { script.Answer(after.Answer) }
			args := c.barrierArgs("--timeout", "30s")
			nx := c.supervise(x, tt.version, tt.late[0], args...)
			n2 := c.supervise(m2, tt.version, tt.late[1], args...)
			var n3, ny *node
			if tt.split {
				n3 = c.supervise(m3, tt.version, tt.late[2], args...)
				ny = c.supervise(y, tt.version, tt.late[3], args...)
				n2.init.WaitLog("two hosts are m1", 20*time.Second)
				c.namesBothDisks(n2, nx, ny)
			} else {
				nx.init.WaitLog("m3 (silent)", 20*time.Second)
				n2.init.WaitLog("m3 (silent)", 20*time.Second)
				moved()
				time.Sleep(2 * time.Second)
				n3 = c.supervise(m3, tt.version, tt.late[2], args...)
				time.Sleep(2 * time.Second)
				ny = c.supervise(y, tt.version, tt.late[3], args...)
			}
			nodes := []*node{nx, n2, n3, ny}
			if tt.split {
				time.Sleep(2 * time.Second)
				for _, h := range []*lab.Host{x, m2, m3, y} {
					c.wantUntouched(h)
				}
				moved()
			}
			if tt.partition {
				c.Eventually("somebody is released", 40*time.Second, func() error {
					if slices.ContainsFunc(nodes, func(n *node) bool { return seeded(n.Host) && !pending(n.Host) }) {
						return nil
					}
					return errors.New("nobody")
				})
				for _, pair := range [][2]*lab.Host{{x, y}, {x, m3}, {m2, y}, {m2, m3}} {
					pair[0].Drop(pair[1])
					pair[1].Drop(pair[0])
				}
			}
			c.ended(ny, n3)
			if tt.partition {
				acks := c.eventuallyWrites(y, m3)
				for _, h := range []*lab.Host{x, m2} {
					if a, ok := write(h, "minority"); ok {
						t.Errorf("the other side of the partition acknowledges, too: %+v", append(acks, a))
					}
				}
				for _, h := range []*lab.Host{x, m2, m3, y} {
					h.Heal()
				}
			}
			c.ended(nodes...)
			if ny.status != 0 || n2.status != 0 || n3.status != 0 {
				t.Fatalf("m1b ended with %d, m2 with %d, m3 with %d; want 0", ny.status, n2.status, n3.status)
			}
			if nx.status != 42 && nx.status != 34 {
				t.Errorf("the machine that m1 does not lead to any more ended with %d; want 42 or 34\n%s", nx.status, nx.init.Log())
			}
			c.wantUntouched(x)
			c.Healthy(y, m2, m3)
			c.oneHistory(writeAll(3, y, m2, m3), y, m2, m3)
			c.noPanic(nodes...)
		})
	}
}

// eventuallyWrites waits for writes through each of the hosts.
func (c *cluster) eventuallyWrites(hosts ...*lab.Host) (acks []ack) {
	c.t.Helper()
	for _, h := range hosts {
		c.Eventually(h.Name+" acknowledges a write", 30*time.Second, func() error {
			a, ok := write(h, h.Name+"-"+time.Now().Format("150405.000"))
			if !ok {
				return errors.New("no answer")
			}
			acks = append(acks, a)
			return nil
		})
	}
	return acks
}

// namesBothDisks checks that a node which waits tells the disks of both twins.
func (c *cluster) namesBothDisks(n *node, twins ...*node) {
	c.t.Helper()
	for _, twin := range twins {
		a := c.wantState(twin.Host, prepared)
		n.init.WaitLog(a.Disk, 10*time.Second)
	}
}

// TestFrozenAddress: a member moves while the others wait. The resolver tells the
// new address, and they look there within two seconds.
func TestFrozenAddress(t *testing.T) {
	t.Parallel()
	c, y := trioWithTwin(t)
	x, m2, m3 := c.hosts[0], c.hosts[1], c.hosts[2]
	before, after := c.leadsTo(x), c.leadsTo(y)
	script := c.Script(c.dns, before.Answer)
	old := x.Start(etcdinit, c.barrierArgs()...)
	second := m2.Start(etcdinit, c.barrierArgs()...)
	second.WaitLog("m3 (silent)", 20*time.Second)
	old.Kill()                                 // the pod is gone, and a new one comes up elsewhere
	script.Answer(func(q lab.Query) *dns.Msg { // m2's resolver does not know it yet
		if q.From == m2 {
			return before.Answer(q)
		}
		return after.Answer(q)
	})
	first, third := y.Start(etcdinit, c.barrierArgs()...), m3.Start(etcdinit, c.barrierArgs()...)
	third.WaitLog("the disk has its ID", 20*time.Second) // all but m2 have found each other
	second.WaitLog("m1 (silent)", 20*time.Second)
	script.Forget()
	script.Answer(after.Answer)
	var told time.Time
	c.Eventually("the resolver tells m2", 10*time.Second, func() error {
		for _, q := range script.Asked() {
			if q.From == m2 {
				told = q.At
				return nil
			}
		}
		return errors.New("m2 has not asked")
	})
	second.WaitLog("the disk has its ID", 20*time.Second)
	if took := time.Since(told); took > 2*time.Second {
		t.Errorf("m2 found m1 %v after its resolver had told", took)
	}
	for _, p := range []*lab.Proc{first, second, third} {
		if status := p.Wait(30 * time.Second); status != 0 {
			t.Fatalf("status %d: %s", status, p.Log())
		}
	}
	for _, h := range []*lab.Host{y, m2, m3} {
		h.Etcd("3.6", "--config-file", "run.yaml")
	}
	c.Healthy(y, m2, m3)
}

// TestSameAddressTwice: two machines have the address of m1, as after a clone. m2
// reaches the one, m3 the other, and each of them reaches itself. Nothing is
// seeded; when the clone is gone, all go on.
func TestSameAddressTwice(t *testing.T) {
	t.Parallel()
	c, y := trioWithTwin(t)
	x, m2, m3 := c.hosts[0], c.hosts[1], c.hosts[2]
	var peers []string
	for _, h := range c.hosts {
		peers = append(peers, fmt.Sprintf("peer=%s=http://%s", h.Name, netip.AddrPortFrom(h.Addr4(), 2380)))
	}
	y.SetAddrs(x.Addr4())
	neighbour := func(h *lab.Host, ip netip.Addr, mac string) {
		h.MustRun(c.Tool("ip"), "neigh", "replace", ip.String(), "lladdr", mac, "nud", "permanent", "dev", "eth0")
	}
	neighbour(m2, x.Addr4(), c.mac(x))
	neighbour(m3, x.Addr4(), c.mac(y))
	for _, h := range []*lab.Host{x, y} {
		neighbour(h, m2.Addr4(), c.mac(m2))
		neighbour(h, m3.Addr4(), c.mac(m3))
	}
	args := c.barrierArgs("--timeout", "40s", "--discovery", "static:?"+strings.Join(peers, "&"))
	var nodes []*node
	for _, h := range []*lab.Host{x, m2, m3, y} {
		h.Write("etcd.yaml", strings.ReplaceAll(c.config(), "discovery-srv: example.org\n", ""))
		nodes = append(nodes, c.supervise(h, "3.6", time.Second, args...))
	}
	time.Sleep(6 * time.Second)
	for _, n := range nodes {
		if !n.init.Running() {
			t.Errorf("%s did not wait: %s", n.Name, n.init.Log())
		}
		c.wantUntouched(n.Host)
	}
	if t.Failed() {
		return
	}
	nodes[3].init.Kill()
	y.Unplug()
	neighbour(m3, x.Addr4(), c.mac(x))
	c.ended(nodes...)
	c.Healthy(c.hosts...)
	c.oneHistory(writeAll(1, c.hosts...), c.hosts...)
	c.wantUntouched(y)
}

// mac is the hardware address of a host.
func (c *cluster) mac(h *lab.Host) string {
	c.t.Helper()
	fields := strings.Fields(h.MustRun(c.Tool("ip"), "-o", "link", "show", "eth0"))
	if i := slices.Index(fields, "link/ether"); i >= 0 {
		return fields[i+1]
	}
	c.t.Fatalf("no hardware address of %s in %q", h.Name, fields)
	return ""
}

// TestFrozenRelease: one member is frozen between its decision to release and the
// removal of its mark. The two others crash, and meanwhile an empty machine gets
// its address. When it thaws, two machines could be that member; only the disk
// that was born with the two others ever is.
func TestFrozenRelease(t *testing.T) {
	t.Parallel()
	c, y := trioWithTwin(t)
	c.CoreDNS(c.dns, c.zone)
	procs, frozen := c.frozenReleases(10 * time.Second)
	x := c.hosts[frozen]
	others := slices.Delete(slices.Clone(c.hosts), frozen, frozen+1)
	for i, p := range procs {
		if i != frozen {
			killTree(p)
		}
	}
	at, elsewhere := x.Addr4(), netip.MustParseAddr("192.0.2.99")
	x.SetAddrs(elsewhere)
	y.SetAddrs(at)
	args := c.barrierArgs("--timeout", "80s")
	ny := c.supervise(y, "3.6", 0, args...)
	n2, n3 := c.supervise(others[0], "3.6", 0, args...), c.supervise(others[1], "3.6", 0, args...)
	n2.init.WaitLog("the first one was lost, or moved from its name", 15*time.Second)
	n2.init.WaitLog(c.diskOf(x), 15*time.Second)
	n2.init.WaitLog(c.wantState(y, prepared).Disk, 15*time.Second)
	ny.init.WaitLog("is bound to a roster with another disk for "+x.Name, 15*time.Second)
	if status := procs[frozen].Wait(40 * time.Second); status != 0 {
		t.Fatalf("%s ended with %d after the thaw: %s", x.Name, status, procs[frozen].Log())
	}
	thawed := x.Etcd("3.6", "--config-file", "run.yaml")
	time.Sleep(3 * time.Second)
	if a, ok := write(x, "early"); ok {
		t.Errorf("a write is acknowledged while two of three wait: %+v", a)
	}
	for _, n := range []*node{ny, n2, n3} {
		if !n.init.Running() {
			t.Errorf("%s did not wait: %s", n.Name, n.init.Log())
		}
	}
	c.wantUntouched(y)
	// The address goes back, and all that were born together are released.
	y.SetAddrs(elsewhere)
	x.SetAddrs(at)
	c.ended(n2, n3)
	c.Healthy(c.hosts...)
	c.oneHistory(writeAll(1, c.hosts...), c.hosts...)
	c.noPanic(n2, n3, &node{Host: x, etcd: thawed})
	ny.init.Kill()
	c.wantUntouched(y)
}

// frozenReleases starts an agent on each host, and returns when all have
// committed and one of them is held for a while where it removes its mark: the
// first that knew all disks to be bound. It answers nobody meanwhile.
func (c *cluster) frozenReleases(first time.Duration) (procs []*lab.Proc, frozen int) {
	c.t.Helper()
	for _, h := range c.hosts {
		procs = append(procs, c.traced(h, "unlinkat", fmt.Sprintf("delay_enter=%d:when=1", first.Microseconds()), "-P", c.Home+"/data/member"))
	}
	for _, p := range procs {
		p.WaitLog("committed:", 30*time.Second)
	}
	frozen = -1
	c.Eventually("one is held in its release", 10*time.Second, func() error {
		for i, h := range c.hosts {
			if _, err := c.says(h); err != nil && pending(h) && procs[i].Running() {
				frozen = i
				return nil
			}
		}
		return errors.New("all answer")
	})
	for i, h := range c.hosts {
		if !procs[i].Running() || !pending(h) {
			c.t.Fatalf("%s is released: %s", h.Name, procs[i].Log())
		}
	}
	return procs, frozen
}

// diskOf is the ID of the disk that a host's seed was made on.
func (c *cluster) diskOf(h *lab.Host) string {
	c.t.Helper()
	var record struct {
		DiskID string `json:"diskID"`
	}
	h.ReadJSON("data/member/etcdinit-seed.json", &record)
	if record.DiskID == "" {
		c.t.Fatalf("no disk ID in the record of %s", h.Name)
	}
	return record.DiskID
}
