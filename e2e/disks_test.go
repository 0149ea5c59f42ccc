//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// The tests of this file are about disks: copied, mounted late, lost in the middle
// of a birth, shared, and started before their time.

// TestCopiedDisk: the disk of a running member is copied to a machine whose
// address nobody has in DNS.
func TestCopiedDisk(t *testing.T) {
	t.Parallel()
	c := newBarrierCluster(t, shape{size: 3, family: "4"})
	twin := c.host("copy")
	c.UseDNS([]*lab.Host{twin}, c.dns)
	twin.Write("etcd.yaml", c.config())
	c.meet("3.6")
	c.hosts[0].Put("key", "value")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", c.hosts[0].Path("data"), twin.Path("data")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := twin.Tree("data")
	r := twin.WantStatus(43, etcdinit, c.barrierArgs("--timeout", "20s")...)
	wantAll(t, "the refusal", output(r), "m1", c.clusterIDOf(c.hosts[0]), "http://m1.example.org:2380", "copy of its disk")
	if twin.Tree("data") != before {
		t.Error("the copy was written to")
	}
	c.works()
}

// TestLateMount: m1 and m2 hold an acknowledged write, and their volumes are
// mounted a moment after their agents have looked. They must not go on saying
// that their disks are empty: m3, whose disk is lost, would be seeded with them.
func TestLateMount(t *testing.T) {
	for _, version := range []string{"3.4", "3.5"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3})
			mount, umount := c.Tool("mount"), c.Tool("umount")
			volume := func(h *lab.Host) {
				h.MustRun(mount, "--bind", c.Home+"/volume", c.Home+"/data")
			}
			c.Each(c.hosts, func(h *lab.Host) {
				h.Write("volume/lost+found/.keep", "")
				h.Write("data/.keep", "")
				volume(h)
				h.MustRun(etcdinit, c.barrierArgs()...)
			})
			procs := c.start(version)
			kill(procs[2])
			acks := c.eventuallyWrites(c.hosts[0], c.hosts[1])
			kill(procs[:2]...)
			for _, h := range c.hosts {
				h.MustRun(umount, c.Home+"/data")
			}
			nodes := []*node{c.supervise(c.hosts[0], version, 0, c.barrierArgs()...), c.supervise(c.hosts[1], version, 0, c.barrierArgs()...)}
			for _, n := range nodes {
				n.init.WaitLog("m3 (silent)", 20*time.Second)
			}
			volume(c.hosts[0])
			volume(c.hosts[1])
			n3 := c.supervise(c.hosts[2], version, 0, c.barrierArgs("--timeout", "30s")...) // its disk is lost
			c.ended(append(nodes, n3)...)
			if n3.status != 42 {
				t.Errorf("m3 ended with %d, want 42: %s", n3.status, n3.init.Log())
			}
			c.wantUntouched(c.hosts[2])
			for _, n := range nodes {
				if n.status != 0 {
					t.Fatalf("%s ended with %d: %s", n.Name, n.status, n.init.Log())
				}
				wantAll(t, "the log of "+n.Name, n.init.Log(), "has changed: deciding anew")
			}
			c.Healthy(c.hosts[:2]...)
			c.oneHistory(append(acks, writeAll(1, c.hosts[:2]...)...), c.hosts[:2]...)
		})
	}
}

// TestStartedOnPending: somebody starts etcd on a seed that was not released. The
// others, bound to the same roster or about to be, take it for what it is.
func TestStartedOnPending(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		third         state
		pending       func(c *cluster)
	}{
		{"all are pending", "3.4", committed, func(c *cluster) {
			procs, _ := c.frozenReleases(time.Minute)
			for _, p := range procs {
				killTree(p)
			}
		}},
		{"the third is prepared", "3.7", prepared, (*cluster).twoCommit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3, family: "4"})
			tt.pending(c)
			m1 := c.hosts[0]
			c.wantDisk(m1, committed)
			id := c.clusterID()
			n2 := c.supervise(c.hosts[1], tt.version, 0, c.barrierArgs()...)
			var n3 *node
			if tt.third == prepared { // it must have seen that m2 is bound
				n3 = c.supervise(c.hosts[2], tt.version, 0, c.barrierArgs()...)
				n2.init.WaitLog("m3 has not committed yet", 20*time.Second)
			}
			n2.init.WaitLog("m1 (silent)", 20*time.Second)
			c.staysIn(c.hosts[1], committed)
			c.wantDisk(c.hosts[2], tt.third)
			started := m1.Etcd(tt.version, "--name", "m1", "--data-dir", c.Home+"/data", "--initial-cluster-state", "existing",
				"--initial-advertise-peer-urls", "http://m1.example.org:2380", "--listen-peer-urls", "http://0.0.0.0:2380",
				"--advertise-client-urls", "http://m1.example.org:2379", "--listen-client-urls", "http://0.0.0.0:2379")
			if n3 == nil {
				n3 = c.supervise(c.hosts[2], tt.version, 0, c.barrierArgs()...)
			}
			c.ended(n2, n3)
			for _, n := range []*node{n2, n3} {
				if n.status != 0 {
					t.Fatalf("%s ended with %d: %s", n.Name, n.status, n.init.Log())
				}
			}
			c.Healthy(c.hosts...)
			c.isCluster(id)
			started.Stop()
			r := m1.WantStatus(0, etcdinit, c.barrierArgs()...)
			wantAll(t, "the next run on m1", output(r), "already initialised as m1")
			m1.Etcd(tt.version, "--config-file", "run.yaml")
			c.Healthy(c.hosts...)
			c.isCluster(id)
		})
	}
}

// twoCommit ends with agents that are killed: m1 and m2 have committed, m3 is
// prepared. m3 is stopped where it begins to commit; whether the two have heard
// of its proposal before is chance, so it is tried again.
func (c *cluster) twoCommit() {
	c.t.Helper()
	var procs []*lab.Proc
	for _, h := range c.hosts[:2] {
		procs = append(procs, h.Start(etcdinit, c.barrierArgs()...))
	}
	both := func() bool { return pending(c.hosts[0]) && pending(c.hosts[1]) }
	for try := 0; try < 20 && !both(); try++ {
		third := c.held(c.hosts[2], "fallocate")
		for deadline := time.Now().Add(3 * time.Second); !both() && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		killTree(third)
	}
	for i, h := range c.hosts[:2] {
		c.wantState(h, committed)
		kill(procs[i])
		c.wantDisk(h, committed)
	}
	c.wantDisk(c.hosts[2], prepared)
}

// TestRosterLost: m3 loses its disk after m1 and m2 have committed to it. They say
// so, with both disks, and the commands that they print lead to a new birth.
func TestRosterLost(t *testing.T) {
	t.Parallel()
	c := newBarrierCluster(t, shape{size: 3, family: "4"})
	c.twoCommit()
	first := c.clusterID()
	c.hosts[2].Wipe("data")
	third := c.hosts[2].Start(etcdinit, c.barrierArgs("--timeout", "2m")...)
	var lost string
	for _, h := range c.hosts[:2] { // as printed, one node after the other, while init runs on the others
		other := c.hosts[0]
		if h == c.hosts[0] {
			other = c.hosts[1]
		}
		waits := other.Start(etcdinit, c.barrierArgs("--timeout", "2m")...)
		r := h.WantStatus(34, etcdinit, c.barrierArgs("--timeout", "6s", "--report", "report.json")...)
		third.WaitLog("is bound to a roster with another disk for m3", 10*time.Second)
		now := c.wantState(c.hosts[2], prepared)
		wantAll(t, "the refusal of "+h.Name, output(r), "the first one was lost, or moved from its name", now.Disk, "no write can have been acknowledged", "etcdinit withdraw")
		if lost == "" {
			lost = c.seat(h, now.MemberID)
		}
		wantAll(t, "the refusal of "+h.Name, output(r), lost)
		commands := c.commandsOf(h)
		if len(commands) == 0 {
			t.Fatalf("no commands in %s", output(r))
		}
		for _, command := range commands {
			c.as(h, "3.6", command)
		}
		c.wantUntouched(h)
		waits.Kill()
	}
	procs := []*lab.Proc{c.hosts[0].Start(etcdinit, c.barrierArgs()...), c.hosts[1].Start(etcdinit, c.barrierArgs()...), third}
	c.endReleased(procs)
	c.start("3.6")
	c.works()
	if again := c.clusterIDOf(c.hosts[0]); again == first {
		t.Errorf("the new birth has the cluster ID of the one that was withdrawn: %s", again)
	}
}

// seat is the disk of a member in the roster that a host's seed is bound to.
func (c *cluster) seat(h *lab.Host, member string) string {
	c.t.Helper()
	var record struct {
		Roster []struct {
			Member string `json:"member"`
			Disk   string `json:"disk"`
		} `json:"roster"`
	}
	h.ReadJSON("data/member/etcdinit-seed.json", &record)
	for _, s := range record.Roster {
		if s.Member == member {
			return s.Disk
		}
	}
	c.t.Fatalf("no seat of %s in %+v", member, record.Roster)
	return ""
}

// memberOf is the member ID that a host's seed was made for.
func (c *cluster) memberOf(h *lab.Host) string {
	c.t.Helper()
	var record struct {
		MemberID string `json:"memberID"`
	}
	h.ReadJSON("data/member/etcdinit-seed.json", &record)
	return record.MemberID
}

// TestOneDirectoryTwice: two agents of one member on one directory, as two pods
// with one volume. There is one seed, and the second agent takes it for its own.
func TestOneDirectoryTwice(t *testing.T) {
	t.Run("the only member", func(t *testing.T) {
		t.Parallel()
		c := newBarrierCluster(t, shape{size: 1})
		h := c.hosts[0]
		for range 8 {
			var procs []*lab.Proc
			for range 3 {
				procs = append(procs, h.Start(etcdinit, c.barrierArgs()...))
			}
			id := ""
			for _, p := range procs {
				if status := p.Wait(30 * time.Second); status != 0 {
					t.Fatalf("status %d: %s", status, p.Log())
				}
				if id == "" {
					id = c.clusterID()
				}
				wantAll(t, "the log", p.Log(), id)
			}
			c.wantDisk(h, released)
			h.Wipe("data")
		}
		h.MustRun(etcdinit, c.barrierArgs()...)
		c.start("3.7")
		c.works()
	})
	t.Run("one of three, on one host", func(t *testing.T) {
		t.Parallel()
		c := newBarrierCluster(t, shape{size: 3})
		first, second := c.hosts[0].Start(etcdinit, c.barrierArgs()...), c.hosts[0].Start(etcdinit, c.barrierArgs()...)
		c.Each(c.hosts[1:], func(h *lab.Host) { h.MustRun(etcdinit, c.barrierArgs()...) })
		for _, p := range []*lab.Proc{first, second} {
			if status := p.Wait(20 * time.Second); status != 0 {
				t.Fatalf("status %d: %s", status, p.Log())
			}
		}
		id := c.clusterID()
		c.start("3.7")
		c.isCluster(id)
	})
	t.Run("one of three, on two hosts", func(t *testing.T) {
		t.Parallel()
		c := newBarrierCluster(t, shape{size: 3, family: "4"})
		twin := c.host("twin")
		c.UseDNS([]*lab.Host{twin}, c.dns)
		twin.Write("etcd.yaml", c.config())
		c.share(c.hosts[0], twin)
		second := twin.Start(etcdinit, c.barrierArgs("--self-name", "m1")...)
		c.Each(c.hosts, func(h *lab.Host) { h.MustRun(etcdinit, c.barrierArgs()...) })
		if status := second.Wait(20 * time.Second); status != 0 {
			t.Fatalf("the second machine ended with %d: %s", status, second.Log())
		}
		id, disk := c.clusterID(), c.diskOf(c.hosts[0])
		if seat := c.seat(c.hosts[1], c.memberOf(c.hosts[0])); seat != disk {
			t.Errorf("m2 is born with disk %s for m1, whose directory says %s", seat, disk)
		}
		c.start("3.7")
		c.isCluster(id)
	})
	t.Run("two members", func(t *testing.T) {
		t.Parallel()
		c := newBarrierCluster(t, shape{size: 3, family: "4"})
		c.share(c.hosts[0], c.hosts[1])
		var nodes []*node
		for _, h := range c.hosts {
			nodes = append(nodes, c.supervise(h, "3.7", 0, c.barrierArgs("--timeout", "8s")...))
		}
		c.ended(nodes...)
		for _, n := range nodes {
			if n.status != 20 && n.status != 34 { // the first that sees it ends, and is silent
				t.Errorf("%s ended with %d, want 20: %s", n.Name, n.status, n.init.Log())
			}
			if n.status == 20 {
				wantAll(t, "the refusal of "+n.Name, n.init.Log(), "have one disk ID", c.preparedDisk(c.hosts[0]))
			}
			c.wantUntouched(n.Host)
		}
	})
}

// share makes one directory the data-dir of two hosts.
func (c *cluster) share(a, b *lab.Host) {
	c.t.Helper()
	a.Write("data/lost+found/.keep", "")
	b.Write("data/.keep", "")
	b.MustRun(c.Tool("mount"), "--bind", a.Path("data"), c.Home+"/data")
}

// TestVolumeLost: the log has a volume of its own, and one of the two is lost.
// Before the disk is bound, it just gets another ID; afterwards nothing is touched.
func TestVolumeLost(t *testing.T) {
	for _, lost := range []string{"data", "wal"} {
		t.Run(lost+", prepared", func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3, family: "4", extra: "wal-dir: wal\n"})
			m1, m3 := c.hosts[0], c.hosts[2]
			m1.DropCalls(m3) // m3 does not reach m1, and stays waiting
			var procs []*lab.Proc
			for _, h := range c.hosts {
				procs = append(procs, h.Start(etcdinit, c.barrierArgs()...))
			}
			before := c.wantState(m1, prepared).Disk
			c.wantState(c.hosts[1], prepared)
			kill(procs[0])
			m1.Wipe(lost)
			procs[0] = m1.Start(etcdinit, c.barrierArgs()...)
			after := c.wantState(m1, prepared).Disk
			if after == before {
				t.Errorf("half of disk %s is still said to be it", before)
			}
			m1.Heal()
			c.endReleased(procs)
			if got := c.diskOf(m1); got != after {
				t.Errorf("seeded on disk %s, said was %s", got, after)
			}
			c.start("3.6")
			c.works()
		})
		t.Run(lost+", pending", func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3, family: "4", extra: "wal-dir: wal\n"})
			procs, _ := c.frozenReleases(time.Minute)
			for _, p := range procs {
				killTree(p)
			}
			m1 := c.hosts[0]
			m1.Wipe(lost)
			others := []*node{c.supervise(c.hosts[1], "3.6", 0, c.barrierArgs("--timeout", "5s")...), c.supervise(c.hosts[2], "3.6", 0, c.barrierArgs("--timeout", "5s")...)}
			before := m1.Tree("data") + m1.Tree("wal")
			r := m1.WantStatus(44, etcdinit, c.barrierArgs("--timeout", "5s")...)
			wantAll(t, "the refusal", output(r), "nothing was changed")
			if m1.Tree("data")+m1.Tree("wal") != before {
				t.Error("something was written")
			}
			c.ended(others...)
			for _, n := range others { // they do not know that m1 has committed
				if n.status != 34 {
					t.Errorf("%s ended with %d, want 34: %s", n.Name, n.status, n.init.Log())
				}
			}
		})
	}
}

// preparedDisk is the ID of a disk that is prepared.
func (c *cluster) preparedDisk(h *lab.Host) string {
	c.t.Helper()
	dirs, err := filepath.Glob(h.Path("data/.etcdinit-disk/*"))
	if err != nil || len(dirs) != 1 {
		return fmt.Sprintf("%d disk IDs in the directory of %s", len(dirs), h.Name)
	}
	return filepath.Base(dirs[0])
}
