//go:build e2e

package e2e

import (
	"net/netip"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// TestDeadFamily: the records give IPv4 and IPv6 addresses, and nothing gets
// through to the peer ports over one of the two. That costs no round.
func TestDeadFamily(t *testing.T) {
	for _, tool := range []string{"iptables", "ip6tables"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3})
			for _, h := range c.hosts {
				h.MustRun(c.Tool(tool), "-w", "-A", "INPUT", "-p", "tcp", "--dport", "2380", "-j", "DROP")
			}
			c.Each(c.hosts, func(h *lab.Host) {
				r := h.WantStatus(0, etcdinit, c.barrierArgs("--timeout", "20s")...)
				if r.Took > 6*time.Second {
					t.Errorf("%s took %v", h.Name, r.Took)
				}
			})
			c.start("3.6")
			c.works()
		})
	}
}

// TestNoHairpin: no member reaches its own URL, as behind a NAT or a load balancer
// that does not send packets back. etcd runs there, so its birth must work, too.
func TestNoHairpin(t *testing.T) {
	t.Run("dropped", func(t *testing.T) {
		t.Parallel()
		c := newBarrierCluster(t, shape{size: 3, family: "4"})
		for _, h := range c.hosts {
			h.MustRun(c.Tool("iptables"), "-w", "-A", "INPUT", "-s", h.Addr4().String(), "-p", "tcp", "--dport", "2380", "-j", "DROP")
		}
		c.meet("3.7")
		c.works()
	})
	t.Run("NAT", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, shape{size: 3, family: "4"})
		gateway := c.host("gateway")
		private := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 1, byte(n)}) }
		public := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(n)}) }
		zone := lab.NewZone("example.org", 30*time.Second).SRV("_etcd-server", 2380, c.hosts...)
		for i, h := range c.hosts {
			h.SetAddrs(public(11 + i)) // for the zone
		}
		zone.Addrs(c.hosts...)
		c.dns.SetAddrs(private(53))
		gateway.SetAddrs(private(1))
		gateway.MustRun("/bin/sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
		nat := func(args ...string) {
			gateway.MustRun(c.Tool("iptables"), append([]string{"-w", "-t", "nat", "-A"}, args...)...)
		}
		nat("POSTROUTING", "-p", "tcp", "--dport", "2380", "-j", "MASQUERADE")
		for i, h := range c.hosts {
			inside, outside := private(11+i), public(11+i).String()
			h.SetAddrs(inside)
			h.MustRun(c.Tool("ip"), "route", "add", "198.51.100.0/24", "via", private(1).String())
			gateway.MustRun(c.Tool("ip"), "addr", "add", outside+"/32", "dev", "eth0")
			nat("PREROUTING", "-d", outside, "-p", "tcp", "--dport", "2380", "!", "-s", inside.String(), "-j", "DNAT", "--to", netip.AddrPortFrom(inside, 2380).String())
			h.Setenv("ETCDINIT_SELF_IP", outside)
		}
		c.CoreDNS(c.dns, zone)
		c.UseDNS(c.hosts, c.dns)
		c.meet("3.6")
		c.works()
	})
}

// TestWithoutDiffers: members that leave out different others would be born on
// different rosters. Nobody is bound until all say the same.
func TestWithoutDiffers(t *testing.T) {
	t.Parallel()
	c := newBarrierCluster(t, shape{size: 3, family: "4"})
	procs := []*lab.Proc{
		c.hosts[0].Start(etcdinit, c.barrierArgs("--without", "m3")...),
		c.hosts[1].Start(etcdinit, c.barrierArgs()...),
	}
	stay := func() {
		t.Helper()
		time.Sleep(3 * time.Second)
		for i, p := range procs {
			if !p.Running() {
				t.Fatalf("%s did not wait: %s", c.hosts[i].Name, p.Log())
			}
			c.wantUntouched(c.hosts[i])
		}
	}
	procs[1].WaitLog("m3 (silent)", 10*time.Second)
	stay()
	procs = append(procs, c.hosts[2].Start(etcdinit, c.barrierArgs()...))
	const same = "give all members the same --without"
	procs[0].WaitLog("m2 waits for m3, which this node leaves out (--without): "+same, 10*time.Second)
	procs[1].WaitLog("m1 leaves out m3 (its --without), this node does not: "+same, 10*time.Second)
	stay()
	kill(procs...)
	var two []*lab.Proc
	for _, h := range c.hosts[:2] {
		two = append(two, h.Start(etcdinit, c.barrierArgs("--without", "m3")...))
	}
	for i, p := range two {
		if status := p.Wait(20 * time.Second); status != 0 {
			t.Fatalf("%s ended with %d: %s", c.hosts[i].Name, status, p.Log())
		}
		c.wantDisk(c.hosts[i], released)
		c.hosts[i].Etcd("3.6", "--config-file", "run.yaml")
	}
	c.Healthy(c.hosts[:2]...)
	c.oneHistory(writeAll(1, c.hosts[:2]...), c.hosts[:2]...)
}
