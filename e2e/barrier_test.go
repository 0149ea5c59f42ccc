//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// barrierArgs are init's arguments with the default quorum.
func (c *cluster) barrierArgs(more ...string) []string {
	return append([]string{"init", "--config-file", "etcd.yaml", "--size", strconv.Itoa(c.shape.size), "--config-out", "run.yaml", "--timeout", "1m"}, more...)
}

func newBarrierCluster(t *testing.T, s shape) *cluster {
	t.Helper()
	c := newCluster(t, s)
	c.CoreDNS(c.dns, c.zone)
	return c
}

// meet is a first boot with the barrier.
func (c *cluster) meet(version string) {
	c.t.Helper()
	c.Each(c.hosts, func(h *lab.Host) {
		h.MustRun(etcdinit, c.barrierArgs()...)
		h.Etcd(version, "--config-file", "run.yaml")
	})
	c.Healthy(c.hosts...)
}

func (c *cluster) wantUntouched(h *lab.Host) {
	c.t.Helper()
	if seeded(h) {
		c.t.Errorf("%s was written to: %s", h.Name, h.Tree("data"))
	}
}

func seeded(h *lab.Host) bool {
	_, wal := h.Stat("data/member/wal")
	_, db := h.Stat("data/member/snap/db") // with a wal-dir of its own
	return wal == nil || db == nil
}

// pending reports whether a seed carries the mark that it is not released.
func pending(h *lab.Host) bool {
	marks, err := filepath.Glob(h.Path("data/member/etcdinit-pending*"))
	return err == nil && len(marks) > 0
}

func wantAll(t *testing.T, what, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%s lacks %q:\n%s", what, w, text)
		}
	}
}

// firstMark is the mark of a seed of the first edition that is not released.
const firstMark = "member/etcdinit-pending"

func output(r lab.Result) string { return r.Stdout + r.Stderr }

func kill(procs ...*lab.Proc) {
	for _, p := range procs {
		p.Kill()
	}
}

// TestBarrierBoot: a first boot with the default, of every version.
func TestBarrierBoot(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		shape         shape
	}{
		{"3.5", "3.5", shape{size: 3}},
		{"3.7, five, mutual TLS", "3.7", shape{size: 5, tls: true}},
		{"3.6, IPv6", "3.6", shape{size: 3, family: "6"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newBarrierCluster(t, tt.shape)
			c.meet(tt.version)
			c.works()
		})
	}
}

// TestBarrierLateThird: two wait for the third, and none runs before it.
func TestBarrierLateThird(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3})
	var early []*lab.Proc
	for _, h := range c.hosts[:2] {
		early = append(early, h.Start(etcdinit, c.barrierArgs()...))
	}
	early[0].WaitLog("awaiting", 10*time.Second)
	early[0].WaitLog("m3 (silent)", 10*time.Second)
	time.Sleep(time.Second)
	for i, h := range c.hosts[:2] {
		if !early[i].Running() {
			t.Fatalf("%s did not wait: %s", h.Name, early[i].Log())
		}
		c.wantUntouched(h)
	}
	c.hosts[2].MustRun(etcdinit, c.barrierArgs()...)
	for i := range early {
		if status := early[i].Wait(10 * time.Second); status != 0 {
			t.Fatalf("%s ended with %d: %s", c.hosts[i].Name, status, early[i].Log())
		}
	}
	c.start("3.6")
	c.works()
}

// TestBarrierTimeout: at the end of the time it says who is silent, and a
// later run goes on.
func TestBarrierTimeout(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3})
	r := c.hosts[0].WantStatus(34, etcdinit, c.barrierArgs("--timeout", "3s")...)
	wantAll(t, "the refusal", output(r), "timeout of 3s has passed", "m2 is silent", "m3 is silent", "nothing was written")
	c.wantUntouched(c.hosts[0])
}

// TestE2 is the loss of a stock cluster, and that it cannot happen here. m1
// and m2 acknowledge a write that m3 never sees; m1 goes down; m2 loses its disk.
func TestE2(t *testing.T) {
	for _, version := range []string{"3.5", "3.6", "3.7"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3})
			c.Each(c.hosts, func(h *lab.Host) { h.MustRun(etcdinit, c.barrierArgs()...) })
			procs := c.start(version)
			c.hosts[0].Put("before", "1")
			procs[2].Kill()                                                          // m3 lags from here on
			c.Eventually("the write is acknowledged", 20*time.Second, func() error { // m3 may have led
				if r := c.hosts[0].TryEtcdctl("put", "acknowledged", "yes"); r.Status != 0 {
					return errors.New(r.Stderr)
				}
				return nil
			})
			kill(procs[0], procs[1])
			c.hosts[1].Wipe("data") // the disk is lost; m1 is down
			stock := func(h *lab.Host) *lab.Proc {
				var members []string
				for _, m := range c.hosts {
					members = append(members, fmt.Sprintf("%s=http://%s.example.org:2380", m.Name, m.Name))
				}
				return h.Etcd(version, "--name", h.Name, "--data-dir", c.Home+"/data", "--initial-cluster", strings.Join(members, ","), "--initial-cluster-token", "e2e",
					"--initial-advertise-peer-urls", "http://"+h.Name+".example.org:2380", "--listen-peer-urls", "http://0.0.0.0:2380",
					"--listen-client-urls", "http://0.0.0.0:2379", "--advertise-client-urls", "http://"+h.Name+".example.org:2379")
			}
			// With etcdinit: everybody else is down, then m3 is up. Never a seed.
			r := c.hosts[1].WantStatus(34, etcdinit, c.barrierArgs("--timeout", "3s")...)
			wantAll(t, "with all others down", output(r), "m1 is silent", "m3 is silent")
			m3 := c.hosts[2].Etcd(version, "--config-file", "run.yaml")
			r = c.hosts[1].WantStatus(42, etcdinit, c.barrierArgs("--timeout", "20s")...)
			wantAll(t, "with m3 up", output(r), "refusing to seed", "other members are running", "member remove", "member add m2 --learner")
			c.wantUntouched(c.hosts[1])
			// Even stock etcd with an empty disk cannot do harm here: the cluster ID that
			// it computes is not the one of the birth, so m3 does not elect with it.
			m3.Kill()
			wrong := stock(c.hosts[1])
			wrong.WaitLog("starting a new election", 20*time.Second)
			c.hosts[2].Etcd(version, "--config-file", "run.yaml").WaitLog("cluster ID mismatch", 20*time.Second)
			if r := c.hosts[2].TryEtcdctl("put", "x", "y"); r.Status == 0 {
				t.Error("m3 elects with a member of another cluster ID")
			}
			wrong.Kill()
			c.hosts[0].Etcd(version, "--config-file", "run.yaml")
			c.Healthy(c.hosts[0], c.hosts[2])
			if got := c.hosts[2].Get("acknowledged"); got != "yes" {
				t.Errorf("the acknowledged write is gone: %q", got)
			}
		})
	}
}

// TestLostDisks: which disk it is does not matter, nor how many are left.
// It stands for DL-01 (a majority wiped) and DL-14 (a volume that came back blank).
func TestLostDisks(t *testing.T) {
	for _, tt := range []struct {
		name string
		lost []int
	}{{"a minority", []int{2}}, {"the first", []int{0}}, {"a majority", []int{1, 2}}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3})
			c.Each(c.hosts, func(h *lab.Host) { h.MustRun(etcdinit, c.barrierArgs()...) })
			procs := c.start("3.6")
			for _, i := range tt.lost {
				procs[i].Kill()
				c.hosts[i].Wipe("data")
			}
			for _, i := range tt.lost {
				r := c.hosts[i].WantStatus(42, etcdinit, c.barrierArgs()...)
				wantAll(t, "the refusal", output(r), "refusing to seed", c.clusterID(), "2380", "member remove")
				c.wantUntouched(c.hosts[i])
			}
			for i, p := range procs {
				if !strings.Contains(fmt.Sprint(tt.lost), strconv.Itoa(i)) && !p.Running() {
					t.Errorf("%s stopped", c.hosts[i].Name)
				}
			}
		})
	}
}

func (c *cluster) clusterID() string {
	c.t.Helper()
	for _, h := range c.hosts {
		var s struct {
			ClusterID string `json:"clusterID"`
		}
		if r := h.Run(etcdinit, "inspect", "--data-dir", c.Home+"/data", "-o", "json"); r.Status == 0 {
			if err := json.Unmarshal([]byte(r.Stdout), &s); err == nil && s.ClusterID != "" {
				return s.ClusterID
			}
		}
	}
	return "cluster"
}

// TestReplacement: the commands that the refusal prints work exactly as printed.
func TestReplacement(t *testing.T) {
	for _, version := range []string{"3.5", "3.6", "3.7"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3})
			c.Each(c.hosts, func(h *lab.Host) { h.MustRun(etcdinit, c.barrierArgs()...) })
			procs := c.start(version)
			c.hosts[0].Put("key", "value")
			procs[2].Kill()
			c.hosts[2].Wipe("data")
			r := c.hosts[2].WantStatus(42, etcdinit, c.barrierArgs("--report", "report.json")...)
			commands := c.commandsOf(c.hosts[2])
			if len(commands) == 0 {
				t.Fatalf("no commands in %s", output(r))
			}
			for _, command := range commands {
				c.as(c.hosts[2], version, command)
			}
			c.Eventually("m3 reads what was written before", 20*time.Second, func() error {
				if r := c.hosts[2].TryEtcdctl("get", "key", "--print-value-only"); r.Status != 0 || strings.TrimSpace(r.Stdout) != "value" {
					return errors.New(output(r))
				}
				return nil
			})
			if list := c.hosts[0].Etcdctl("member", "list"); strings.Count(list, "started") != 3 || strings.Contains(list, ", true") {
				t.Errorf("not three voters:\n%s", list)
			}
		})
	}
}

// commandsOf are the commands of the refusal that a run's --report has.
func (c *cluster) commandsOf(h *lab.Host) []string {
	c.t.Helper()
	var refusal struct {
		Commands []string `json:"commands"`
	}
	h.ReadJSON("report.json", &refusal)
	return refusal.Commands
}

// as runs a command exactly as it was printed, with etcd's and etcdinit's
// programs in PATH. It returns the process of one that goes on in the background.
func (c *cluster) as(h *lab.Host, version, command string) *lab.Proc {
	c.t.Helper()
	path := "PATH=" + filepath.Dir(c.Tool("etcd-"+version+"/etcd")) + ":" + filepath.Dir(etcdinit) + ":$PATH; "
	if background, ok := strings.CutSuffix(command, " &"); ok {
		p := h.Start("/bin/sh", "-c", path+"exec "+background)
		p.WaitLog("serving client traffic insecurely", 20*time.Second)
		return p
	}
	h.MustRun("/bin/sh", "-c", path+command)
	return nil
}

// TestBarrierViews: DNS tells the hosts something else, then the same.
func TestBarrierViews(t *testing.T) {
	c := newCluster(t, shape{size: 3})
	wrong := lab.NewZone("example.org", time.Second).SRV("_etcd-server", 2380, c.hosts[0], c.hosts[1], c.dns).Addrs(c.hosts[0], c.hosts[1], c.dns)
	zone := lab.NewZone("example.org", time.Second).SRV("_etcd-server", 2380, c.hosts...).Addrs(c.hosts...)
	good, bad := c.dns, c.host("dns2")
	c.CoreDNS(good, zone)
	c.CoreDNS(bad, wrong)
	c.UseDNS(c.hosts[:1], bad)
	var procs []*lab.Proc
	for _, h := range c.hosts {
		procs = append(procs, h.Start(etcdinit, c.barrierArgs()...))
	}
	procs[1].WaitLog("plans another cluster", 10*time.Second)
	procs[1].WaitLog("http://dns.example.org:2380", 10*time.Second)
	for i, h := range c.hosts {
		if !procs[i].Running() {
			t.Fatalf("%s did not wait: %s", h.Name, procs[i].Log())
		}
		c.wantUntouched(h)
	}
	c.UpdateCoreDNS(bad, zone)
	for i := range procs {
		if status := procs[i].Wait(30 * time.Second); status != 0 {
			t.Fatalf("%s ended with %d: %s", c.hosts[i].Name, status, procs[i].Log())
		}
	}
	c.start("3.7")
	c.works()
}

// TestBarrierPartition: for a while m1 hears nobody, or nobody reaches m1,
// which reaches all and commits. Nobody is released before all are.
func TestBarrierPartition(t *testing.T) {
	for _, tt := range []struct {
		name string
		cut  func(m1 *lab.Host, others ...*lab.Host)
		m1   state
	}{
		{"m1 hears nobody", (*lab.Host).Drop, waiting},
		{"nobody reaches m1", (*lab.Host).DropCalls, prepared},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3})
			tt.cut(c.hosts[0], c.hosts[1:]...)
			var procs []*lab.Proc
			for _, h := range c.hosts {
				procs = append(procs, h.Start(etcdinit, c.barrierArgs()...))
			}
			time.Sleep(6 * time.Second)
			want := tt.m1
			for i, h := range c.hosts {
				if !procs[i].Running() {
					t.Fatalf("%s did not wait: %s", h.Name, procs[i].Log())
				}
				c.wantDisk(h, want)
				want = waiting
			}
			c.hosts[0].Heal()
			c.endReleased(procs)
			c.start("3.6")
			c.works()
		})
	}
}

// TestBarrierKilled: agents are killed in each state, and run again.
func TestBarrierKilled(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3})
	waiting := c.hosts[0].Start(etcdinit, c.barrierArgs()...)
	waiting.WaitLog("awaiting", 10*time.Second)
	waiting.Kill()
	c.wantUntouched(c.hosts[0])
	var procs []*lab.Proc
	for _, h := range c.hosts {
		procs = append(procs, h.Start(etcdinit, c.barrierArgs()...))
	}
	c.Eventually("somebody is seeded", 20*time.Second, func() error {
		if !slices.ContainsFunc(c.hosts, seeded) {
			return errors.New("no WAL yet")
		}
		return nil
	})
	kill(procs...) // each is waiting, committed, or released
	c.meet("3.5")
	c.works()
}

// TestBarrierCommittedStays: all have committed, nobody is released, and all crash.
// The seeds stay, and the next run goes on.
func TestBarrierCommittedStays(t *testing.T) {
	t.Parallel()
	c := newBarrierCluster(t, shape{size: 3, family: "4"})
	procs, _ := c.frozenReleases(time.Minute)
	for i, h := range c.hosts {
		killTree(procs[i])
		c.wantDisk(h, committed)
	}
	r := c.hosts[0].WantStatus(34, etcdinit, c.barrierArgs("--timeout", "3s")...)
	wantAll(t, "the refusal", output(r), "m2 is silent", "the seed in", "stays, not released")
	c.wantDisk(c.hosts[0], committed)
	id := c.clusterID()
	c.meet("3.6")
	for _, h := range c.hosts {
		c.wantDisk(h, released)
	}
	c.isCluster(id)
}

// TestFirstEditionSeed: a seed of the first edition that was never released has
// no roster. It is released where an etcd of its own cluster waits for it, and
// the commands of the refusal are the way to a new birth.
func TestFirstEditionSeed(t *testing.T) {
	seeds := func(t *testing.T) *cluster {
		t.Helper()
		t.Parallel()
		c := newBarrierCluster(t, shape{size: 3})
		c.Each(c.hosts, func(h *lab.Host) {
			h.MustRun(etcdinit, c.barrierArgs("--bootstrap-quorum", "none")...)
			h.Wipe("data/member/etcdinit-seed.json")
			h.Write("data/"+firstMark, "")
		})
		return c
	}
	refused := func(c *cluster, h *lab.Host, words ...string) (commands []string) {
		c.t.Helper()
		r := h.WantStatus(34, etcdinit, c.barrierArgs("--timeout", "3s", "--report", "report.json")...)
		wantAll(c.t, "the refusal", output(r), append(words, "an earlier version of etcdinit has made it", "stays, not released")...)
		if !pending(h) {
			c.t.Errorf("%s was released", h.Name)
		}
		return c.commandsOf(h)
	}
	t.Run("released by its own cluster", func(t *testing.T) {
		c := seeds(t)
		id := c.clusterID()
		refused(c, c.hosts[0], "m2 is silent")
		for _, h := range c.hosts[1:] {
			h.Wipe("data/" + firstMark)
			h.Etcd("3.6", "--config-file", "run.yaml")
		}
		c.Healthy(c.hosts[1:]...)
		c.hosts[0].MustRun(etcdinit, c.barrierArgs()...)
		c.wantDisk(c.hosts[0], released)
		c.hosts[0].Etcd("3.6", "--config-file", "run.yaml")
		c.Healthy(c.hosts...)
		c.isCluster(id)
	})
	t.Run("not by another cluster", func(t *testing.T) {
		c := seeds(t)
		for _, h := range c.hosts[1:] {
			h.Wipe("data")
			h.MustRun(etcdinit, append(c.barrierArgs("--bootstrap-quorum", "none"), "--config-file", c.token(h, "another"))...)
			h.Etcd("3.6", "--config-file", "run.yaml")
		}
		c.Healthy(c.hosts[1:]...)
		r := c.hosts[0].WantStatus(42, etcdinit, c.barrierArgs("--timeout", "4s")...)
		wantAll(t, "the refusal", output(r), c.clusterID(), c.clusterIDOf(c.hosts[1]))
		if !pending(c.hosts[0]) {
			t.Error("it was released")
		}
	})
	t.Run("the commands", func(t *testing.T) {
		c := seeds(t)
		c.Each(c.hosts, func(h *lab.Host) {
			for _, command := range refused(c, h) {
				c.as(h, "3.6", command)
			}
		})
		c.meet("3.6")
		c.works()
	})
}

// token writes the configuration of another initial-cluster-token, and returns
// the file's name.
func (c *cluster) token(h *lab.Host, token string) string {
	c.t.Helper()
	h.Write(token+".yaml", strings.ReplaceAll(c.config(), "initial-cluster-token: e2e", "initial-cluster-token: "+token))
	return token + ".yaml"
}

// TestBarrierStorm: agents with a short time and a supervisor's back-off.
func TestBarrierStorm(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3})
	c.Each(c.hosts, func(h *lab.Host) {
		for try := range 20 {
			if h.Run(etcdinit, c.barrierArgs("--timeout", "2s")...).Status == 0 {
				return
			}
			time.Sleep(time.Duration(try%4) * 300 * time.Millisecond)
		}
		t.Errorf("%s was never released", h.Name)
	})
	c.start("3.6")
	c.works()
}

// TestWithout: a member that never came is left out, and must come in later.
func TestWithout(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3})
	c.Each(c.hosts[:2], func(h *lab.Host) {
		h.MustRun(etcdinit, c.barrierArgs("--without", "m3")...)
		h.Etcd("3.6", "--config-file", "run.yaml")
	})
	c.Healthy(c.hosts[:2]...)
	c.hosts[2].WantStatus(42, etcdinit, c.barrierArgs()...)
	c.hosts[2].WantStatus(20, etcdinit, c.barrierArgs("--without", "m1", "--without", "m2")...)
	c.hosts[2].WantStatus(20, etcdinit, c.barrierArgs("--without", "m4")...)
}

// TestGrown: five members are discovered where three run (field case WB-58).
func TestGrown(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3})
	c.meet("3.6")
	more := []*lab.Host{c.host("m4"), c.host("m5")}
	all := append(append([]*lab.Host{}, c.hosts...), more...)
	c.UseDNS(more, c.dns)
	c.UpdateCoreDNS(c.dns, lab.NewZone("example.org", time.Second).SRV("_etcd-server", 2380, all...).Addrs(all...))
	for _, h := range more {
		h.Write("etcd.yaml", c.config())
		r := h.WantStatus(42, etcdinit, "init", "--config-file", "etcd.yaml", "--size", "5", "--timeout", "1m")
		wantAll(t, "the refusal", output(r), "3 members", "cluster", "of 5 members", "member add "+h.Name+" --learner")
		c.wantUntouched(h)
	}
}

// TestLiveEtcdSurvivesListener: etcds of the cluster run and dial an agent's
// listener all the time; none of them stops.
func TestLiveEtcdSurvivesListener(t *testing.T) {
	for _, version := range lab.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3})
			c.Each(c.hosts, func(h *lab.Host) { h.MustRun(etcdinit, c.barrierArgs()...) })
			procs := c.start(version)
			procs[2].Kill()
			// An agent of another cluster's third member sits at its address.
			agent := c.hosts[2].Start(etcdinit, "init", "--data-dir", c.Home+"/other", "--listen-peer-urls", "http://0.0.0.0:2380", "--listen-client-urls", "http://0.0.0.0:2379",
				"--initial-cluster-token", "other", "--timeout", "1m", "--self-name", "m3",
				"--discovery", "static:?peer=m3=http://m3.example.org:2380&peer=x=http://192.0.2.1:2380&peer=y=http://192.0.2.2:2380")
			agent.WaitLog("awaiting", 10*time.Second)
			for range 50 {
				c.hosts[0].Put("key", "value") // messages to the third member
			}
			time.Sleep(3 * time.Second)
			if !procs[0].Running() || !procs[1].Running() || !agent.Running() {
				t.Fatalf("running: m1 %t, m2 %t, agent %t\n%s", procs[0].Running(), procs[1].Running(), agent.Running(), agent.Log())
			}
			c.Healthy(c.hosts[0], c.hosts[1])
			agent.Stop()
		})
	}
}

// TestStatePortUnderAttack: a scanner, a slow-loris and a lying neighbour.
func TestStatePortUnderAttack(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3})
	attacker := c.host("attacker")
	agent := c.hosts[0].Start(etcdinit, c.barrierArgs()...)
	agent.WaitLog("awaiting", 10*time.Second)
	target := netip.AddrPortFrom(c.hosts[0].Addr4(), 2380).String()
	var held []net.Conn
	for i := range 400 {
		conn, err := attacker.Dial(t.Context(), "tcp", target)
		if err != nil {
			continue
		}
		text := "GET /etcdinit/v2/state HTTP/1.1\r\nHost: x\r\nEtcdinit-Call: 1 x released -\r\nX: "
		switch i % 4 {
		case 0:
			text = "\x16\x03\x01\x02\x00\x01\x00"
		case 1:
			text = strings.Repeat("A", 1<<16)
		case 2:
			text = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
		}
		_, _ = io.WriteString(conn, text) //nolint:errcheck // it may have been cut
		held = append(held, conn)
	}
	defer func() {
		for _, conn := range held {
			_ = conn.Close() //nolint:errcheck // as above
		}
	}()
	c.Each(c.hosts[1:], func(h *lab.Host) { h.MustRun(etcdinit, c.barrierArgs()...) })
	if status := agent.Wait(20 * time.Second); status != 0 {
		t.Fatalf("m1 ended with %d: %s", status, agent.Log())
	}
	c.start("3.6")
	c.works()
}

// TestTwoOfOne: a second host claims to be m1; its address leads to the first.
func TestTwoOfOne(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3})
	twin := c.host("twin")
	c.UseDNS([]*lab.Host{twin}, c.dns)
	twin.Write("etcd.yaml", c.config())
	first := c.hosts[0].Start(etcdinit, c.barrierArgs()...)
	first.WaitLog("awaiting", 10*time.Second)
	r := twin.WantStatus(34, etcdinit, c.barrierArgs("--self-name", "m1", "--timeout", "4s")...)
	wantAll(t, "the refusal", output(r), "two agents have the identity of m1")
	c.wantUntouched(twin)
}

// TestCertificates: what is wrong with a certificate is said before etcd runs.
func TestCertificates(t *testing.T) {
	c := newCluster(t, shape{size: 3, tls: true})
	c.CoreDNS(c.dns, c.zone)
	other := c.NewCA("another CA")
	cert, key := other.Issue([]string{"m2.example.org"}, nil)
	c.hosts[1].Write("pki/member.crt", cert)
	c.hosts[1].Write("pki/member.key", key)
	second := c.hosts[1].Start(etcdinit, c.barrierArgs()...)
	second.WaitLog("another CA", 10*time.Second) // its own certificate, at once
	r := c.hosts[0].WantStatus(34, etcdinit, c.barrierArgs("--timeout", "5s")...)
	wantAll(t, "the refusal", output(r), "m2 has a certificate that etcd refuses", "another CA", "does not know")
}

// TestSourceAddress: a wildcard certificate and no PTR records, which etcd refuses,
// is told before anything is seeded.
func TestSourceAddress(t *testing.T) {
	c := newCluster(t, shape{size: 3, tls: true})
	c.CoreDNS(c.dns, c.zone)
	ca := c.NewCA("the CA")
	for _, h := range c.hosts {
		cert, key := ca.Issue([]string{"*.example.org"}, nil)
		h.Write("pki/ca.crt", ca.PEM())
		h.Write("pki/member.crt", cert)
		h.Write("pki/member.key", key)
	}
	c.Each(c.hosts, func(h *lab.Host) {
		r := h.WantStatus(34, etcdinit, c.barrierArgs("--timeout", "6s")...)
		wantAll(t, "the refusal of "+h.Name, output(r), "refuses this node's certificate", "*.example.org, and the call comes from "+h.Addr4().String(), "peer-skip-client-san-verification")
	})
}

// TestProbe: discover --probe shows what each peer is.
func TestProbe(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3})
	waiting := c.hosts[1].Start(etcdinit, c.barrierArgs()...)
	waiting.WaitLog("awaiting", 10*time.Second)
	out := c.hosts[0].MustRun(etcdinit, "discover", "--probe", "--config-file", "etcd.yaml", "--size", "3")
	wantAll(t, "the probe", out, "m2", "waiting", "m3", "silent")
	dry := c.hosts[0].Run(etcdinit, c.barrierArgs("--dry-run")...)
	wantAll(t, "the dry run", output(dry), "would wait", "m3 is silent")
	c.wantUntouched(c.hosts[0])
}
