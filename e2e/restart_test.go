//go:build e2e

package e2e

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// killAll is kill -9 of all servers: what a power cut does to processes.
func killAll(procs []*lab.Proc) {
	for _, p := range procs {
		p.Kill()
	}
}

// A second run of init writes nothing into the data directory, before etcd has
// run and after, and says the same to etcd.
func TestSecondRunChangesNoByte(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3})
	c.CoreDNS(c.dns, c.zone)
	again := func(when string) {
		t.Helper()
		for _, h := range c.hosts {
			tree, handoff := h.Tree("data"), h.Read("run.yaml")
			h.MustRun(etcdinit, c.initArgs()...)
			if h.Tree("data") != tree {
				t.Errorf("%s: a second init %s changed the data directory", h.Name, when)
			}
			if got := h.Read("run.yaml"); got != handoff {
				t.Errorf("%s: a second init %s handed over\n%s\nwhere the first said\n%s", h.Name, when, got, handoff)
			}
		}
	}
	c.init()
	again("before etcd ran")
	procs := c.start("3.7")
	c.works()
	for _, p := range procs {
		p.Stop()
	}
	again("after etcd stopped")
	procs = c.start("3.7")
	c.works()
	killAll(procs)
	again("after etcd was killed")
	c.start("3.7")
	c.works()
}

// All hosts go down, and come back before their DNS does: init does not need
// it. (Peers that have names find each other when it is back.)
func TestRestartOfAllWithDNSDead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3})
	c.CoreDNS(c.dns, c.zone)
	c.init()
	procs := c.start("3.7")
	c.works()
	c.hosts[0].Put("before", "the power cut")
	killAll(procs)
	c.dns.Unplug()
	c.Each(c.hosts, func(h *lab.Host) {
		tree, handoff := h.Tree("data"), h.Read("run.yaml")
		h.Wipe("run.yaml") // /run does not survive a reboot
		h.MustRun(etcdinit, c.initArgs()...)
		if h.Tree("data") != tree {
			t.Errorf("%s: init without DNS changed the data directory", h.Name)
		}
		if got := h.Read("run.yaml"); got != handoff {
			t.Errorf("%s: init without DNS handed over\n%s\nwhere with DNS it was\n%s", h.Name, got, handoff)
		}
		h.Etcd("3.7", "--config-file", "run.yaml")
	})
	c.dns.Plug()
	c.Healthy(c.hosts...)
	c.works()
	if got := c.hosts[2].Get("before"); got != "the power cut" {
		t.Errorf("after the restart the key is %q", got)
	}
}

// A host comes back under its name with another address, first while the
// records still have the old one, then when they have the new one.
func TestHostWithANewAddress(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3, family: "4"})
	c.zone.TTL = 1
	script := c.Script(c.dns, c.zone.Answer)
	c.init()
	procs := c.start("3.7")
	c.works()
	moved := c.hosts[1]
	procs[1].Kill()
	moved.SetAddrs(netip.MustParseAddr("192.0.2.77"))

	tree := moved.Tree("data")
	moved.MustRun(etcdinit, c.initArgs()...) // nobody has the new address in the records
	c.zone = c.records()
	script.Answer(c.zone.Answer)
	moved.MustRun(etcdinit, c.initArgs()...)
	if moved.Tree("data") != tree {
		t.Error("the data directory changed with the address")
	}
	moved.Etcd("3.7", "--config-file", "run.yaml")
	c.Healthy(c.hosts...)
	c.works()
}

// Two hosts come back with each other's address while a cache answers the old
// ones for 30 s more: to each the records say that it is the other. The data
// directory says who it is; the records are believed only once they are fresh.
func TestSwappedAddressesBehindACache(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3, family: "4"})
	c.CoreDNS(c.dns, c.zone, "cache 30")
	c.init()
	procs := c.start("3.7")
	c.works()
	a, b := c.hosts[1], c.hosts[2]
	procs[1].Kill()
	procs[2].Kill()
	addrA, addrB := a.Addr4(), b.Addr4()
	a.SetAddrs(netip.MustParseAddr("192.0.2.99"))
	b.SetAddrs(addrA)
	a.SetAddrs(addrB)
	c.zone = c.records()
	c.UpdateCoreDNS(c.dns, c.zone)

	trees := map[*lab.Host]string{a: a.Tree("data"), b: b.Tree("data")}
	handoffs := map[*lab.Host]string{a: a.Read("run.yaml"), b: b.Read("run.yaml")}
	if stale := c.Lookup(c.dns, c.zone.FQDN(a), dns.TypeA); !strings.HasSuffix(stale, addrA.String()) {
		t.Fatalf("the cache has forgotten the old address before the test began: %s", stale)
	}
	c.Each([]*lab.Host{a, b}, func(h *lab.Host) {
		h.MustRun(etcdinit, c.initArgs()...)
		if h.Tree("data") != trees[h] {
			t.Errorf("%s: the data directory changed", h.Name)
		}
		if h.Read("run.yaml") != handoffs[h] {
			t.Errorf("%s: etcd would be told another identity:\n%s", h.Name, h.Read("run.yaml"))
		}
	})
	a.Etcd("3.7", "--config-file", "run.yaml")
	b.Etcd("3.7", "--config-file", "run.yaml")
	c.Healthy(c.hosts...)
	c.works()
}

// Two disks are in each other's host, and the records are right: that is 43,
// once the records' TTL has passed, and nothing is touched.
func TestSwappedDisks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3})
	c.zone.TTL = 1
	c.Script(c.dns, c.zone.Answer)
	c.init()
	a, b := c.hosts[0], c.hosts[1]
	a.MustRun("mv", "data", "own")
	a.MustRun("cp", "-a", b.Path("data"), "data")
	tree := a.Tree("data")
	a.Wipe("run.yaml")
	result := a.WantStatus(43, etcdinit, c.initArgs()...)
	for _, said := range []string{"m1", "m2"} {
		if !strings.Contains(result.Stderr, said) {
			t.Errorf("the refusal does not name %s:\n%s", said, result.Stderr)
		}
	}
	if a.Tree("data") != tree {
		t.Error("the other member's data were touched")
	}
	if _, err := a.Stat("run.yaml"); err == nil {
		t.Error("etcd got a configuration for the other member's data")
	}
}

// While etcd runs, its directory is left alone: init says busy.
func TestRunningServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 1})
	c.CoreDNS(c.dns, c.zone)
	c.boot("3.7")
	c.hosts[0].WantStatus(32, etcdinit, c.initArgs()...)
	c.works()
}
