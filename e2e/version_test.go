//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// One directory serves every server: what was seeded once is booted by each
// minor from the same bytes.
func TestEveryVersionFromTheSameBytes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3})
	c.CoreDNS(c.dns, c.zone)
	c.init()
	seeds := map[*lab.Host]string{}
	for _, h := range c.hosts {
		h.MustRun("cp", "-a", "data", "seed")
		seeds[h] = h.Tree("data")
	}
	for _, version := range lab.Versions() {
		t.Run(version, func(t *testing.T) {
			for _, h := range c.hosts {
				h.Wipe("data")
				h.MustRun("cp", "-a", "seed", "data")
				if h.Tree("data") != seeds[h] {
					t.Fatalf("%s: the copy differs from the seed", h.Name)
				}
			}
			procs := c.start(version)
			c.works()
			for _, p := range procs {
				p.Kill()
			}
		})
	}
}

// Servers of different minors form one cluster from their seeds.
func TestMixedVersions(t *testing.T) {
	for _, versions := range [][]string{{"3.4", "3.5", "3.5"}, {"3.5", "3.6", "3.5"}, {"3.7", "3.6", "3.7"}} {
		t.Run(strings.Join(versions, "+"), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, shape{size: 3})
			c.CoreDNS(c.dns, c.zone)
			c.init()
			for i, h := range c.hosts {
				h.Etcd(versions[i], "--config-file", "run.yaml")
			}
			c.Healthy(c.hosts...)
			c.works()
		})
	}
}

// A seeded cluster is upgraded and downgraded member by member, as any other.
// As with any other, 3.7 panics on what 3.5 wrote to its log where no snapshot
// has been taken since: so some are taken.
func TestRollingUpgradeAndDowngrade(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{size: 3, extra: "snapshot-count: 10\n"})
	c.CoreDNS(c.dns, c.zone)
	c.init()
	procs := c.start("3.5")
	c.works()
	c.clusterVersion("3.5")
	c.hosts[0].Put("written by", "3.5")

	c.roll(procs, "3.6")
	c.clusterVersion("3.6")
	for i := range 20 {
		c.hosts[i%3].Put("fill", strconv.Itoa(i))
	}
	for _, p := range procs {
		p.WaitLog(`"msg":"saved snapshot`, 10*time.Second)
	}
	c.roll(procs, "3.7")
	c.clusterVersion("3.7")
	if got := c.hosts[1].Get("written by"); got != "3.5" {
		t.Errorf("after two upgrades the key is %q", got)
	}

	c.hosts[0].Etcdctl("downgrade", "validate", "3.6")
	c.hosts[0].Etcdctl("downgrade", "enable", "3.6")
	for _, h := range c.hosts {
		c.Eventually("storage version 3.6 on "+h.Name, 30*time.Second, func() error {
			status := h.Etcdctl("endpoint", "status", "-w", "json")
			if !strings.Contains(status, `"storageVersion":"3.6.0"`) {
				return fmt.Errorf("status %s", status)
			}
			return nil
		})
	}
	c.roll(procs, "3.6")
	c.clusterVersion("3.6")
	if got := c.hosts[2].Get("written by"); got != "3.5" {
		t.Errorf("after the downgrade the key is %q", got)
	}
	c.works()
}

// roll replaces the servers one after the other; each host runs init again
// before, as it does at every start.
func (c *cluster) roll(procs []*lab.Proc, version string) {
	c.t.Helper()
	for i, h := range c.hosts {
		procs[i].Stop()
		h.MustRun(etcdinit, c.initArgs()...)
		procs[i] = h.Etcd(version, "--config-file", "run.yaml")
		c.Healthy(c.hosts...)
	}
	c.works()
}

// clusterVersion waits until the cluster has agreed on a version.
func (c *cluster) clusterVersion(want string) {
	c.t.Helper()
	c.Eventually("cluster version "+want, 30*time.Second, func() error {
		got, err := c.hosts[0].ClusterVersion()
		if err == nil && !strings.HasPrefix(got, want+".") {
			err = fmt.Errorf("it is %s", got)
		}
		return err
	})
}

// Two seeded members and one that bootstraps as etcd always did are one
// cluster, no matter which comes first.
func TestWithAStockMember(t *testing.T) {
	for _, version := range lab.Versions() {
		for _, order := range []string{"first", "last"} {
			t.Run(version+", stock member "+order, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, shape{size: 3})
				c.CoreDNS(c.dns, c.zone)
				seeded, stock := c.hosts[:2], c.hosts[2]
				bootSeeded := func() {
					c.Each(seeded, func(h *lab.Host) {
						h.MustRun(etcdinit, c.initArgs("--bootstrap-quorum", "none")...) // the stock member is no agent
						h.Etcd(version, "--config-file", "run.yaml")
					})
				}
				if order == "first" {
					c.stock(stock, version).WaitLog("starting", 10*time.Second)
					bootSeeded()
				} else {
					bootSeeded()
					c.Healthy(seeded...)
					c.stock(stock, version)
				}
				c.Healthy(c.hosts...)
				c.works()
			})
		}
	}
}

// stock starts etcd on a host with the list of members and without a seed.
func (c *cluster) stock(h *lab.Host, version string) *lab.Proc {
	c.t.Helper()
	var initial []string
	for _, m := range c.hosts {
		initial = append(initial, fmt.Sprintf("%s=http://%s:2380", m.Name, c.zone.FQDN(m)))
	}
	return h.Etcd(version, "--name", h.Name, "--data-dir", "data",
		"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-token", "e2e", "--initial-cluster-state", "new",
		"--listen-peer-urls", "http://[::]:2380", "--initial-advertise-peer-urls", "http://"+c.zone.FQDN(h)+":2380",
		"--listen-client-urls", "http://[::]:2379", "--advertise-client-urls", "http://"+c.zone.FQDN(h)+":2379")
}
