//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// joinArgs are the arguments of init that also has a running cluster take a node in.
func (c *cluster) joinArgs(how string, more ...string) []string {
	return c.initArgs(append([]string{"--if-running", how}, more...)...)
}

// listed is a member as the running cluster has it.
type listed struct {
	ID        uint64   `json:"ID"`
	Name      string   `json:"name"`
	PeerURLs  []string `json:"peerURLs"`
	IsLearner bool     `json:"isLearner"`
}

// list is what the host's etcd lists.
func list(t *testing.T, h *lab.Host) []listed {
	t.Helper()
	var answer struct {
		Members []listed `json:"members"`
	}
	if err := json.Unmarshal([]byte(h.Etcdctl("member", "list", "-w", "json")), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Members
}

// TestReplace: a disk is lost, and the same command with the same file brings the
// member back under another ID.
func TestReplace(t *testing.T) {
	for _, version := range []string{"3.4", "3.5", "3.6", "3.7"} {
		t.Run(version, func(t *testing.T) {
			c := newCluster(t, shape{size: 3})
			c.CoreDNS(c.dns, c.zone)
			c.init()
			procs := c.start(version)
			c.hosts[0].Put("before", "lost")
			before := list(t, c.hosts[0])
			lost := c.hosts[2]
			procs[2].Kill()
			lost.Wipe("data", "run.yaml")
			time.Sleep(5 * time.Second) // etcd changes no members of a cluster that is younger
			start := time.Now()
			lost.MustRun(etcdinit, c.joinArgs("replace", "--replace-after", "0s")...)
			lost.Etcd(version, "--config-file", "run.yaml")
			lost.MustRun(etcdinit, "promote", "--wait", "--timeout", "30s", "--config-file", "etcd.yaml")
			t.Logf("from the lost disk to a voter: %v", time.Since(start).Round(time.Millisecond))
			c.Healthy(c.hosts...)
			c.works()
			if out := lost.MustRun(etcdinit, "promote", "--config-file", "run.yaml"); !strings.Contains(out, "votes\n") {
				t.Errorf("a voter is promoted again: %s", out)
			}
			for _, m := range list(t, c.hosts[1]) {
				for _, was := range before {
					if m.Name == lost.Name && was.ID == m.ID {
						t.Errorf("%s is back under its old ID", m.Name)
					}
				}
			}
			if got := lost.Get("before"); got != "lost" {
				t.Errorf("the key is %q", got)
			}
		})
	}
}

// TestGrow: records for five where three run. The old members keep what they have,
// and both new ones come in by the command that gave birth, at the same time, one
// after the other by etcd's own rule.
func TestGrow(t *testing.T) {
	for _, version := range []string{"3.4", "3.5", "3.6", "3.7"} {
		t.Run(version, func(t *testing.T) {
			c := newCluster(t, shape{size: 5})
			all := c.hosts
			c.hosts, c.shape.size = all[:3], 3
			c.zone = c.records()
			c.CoreDNS(c.dns, c.zone)
			c.init()
			procs := c.start(version)
			c.hosts[0].Put("before", "grown")
			c.hosts, c.shape.size = all, 5
			c.zone = c.records()
			c.UpdateCoreDNS(c.dns, c.zone)
			time.Sleep(5 * time.Second) // etcd changes no members of a cluster that is younger
			start := time.Now()
			c.Each(all[3:], func(h *lab.Host) {
				h.MustRun(etcdinit, c.joinArgs("join")...)
				h.Etcd(version, "--config-file", "run.yaml")
				h.MustRun(etcdinit, "promote", "--wait", "--timeout", "30s", "--config-file", "etcd.yaml")
			})
			t.Logf("3 to 5 voters: %v", time.Since(start).Round(time.Millisecond))
			c.Healthy(all...)
			c.works()
			for _, m := range list(t, all[4]) {
				if m.IsLearner {
					t.Errorf("%s is a learner", m.Name)
				}
			}
			procs[1].Kill() // an old member restarts with the same command: its data are kept
			all[1].MustRun(etcdinit, c.joinArgs("join")...)
			all[1].Etcd(version, "--config-file", "run.yaml")
			c.Healthy(all...)
		})
	}
}

// TestTakenUp: an operator who repairs manually removes the member, adds it as a learner, and
// restarts the service. The ID that was added manually is not used: it could be on
// another disk.
func TestTakenUp(t *testing.T) {
	c := newCluster(t, shape{size: 3, tls: true})
	c.CoreDNS(c.dns, c.zone)
	c.init()
	procs := c.start("3.6")
	lost, other := c.hosts[2], c.hosts[0]
	procs[2].Kill()
	lost.Wipe("data", "run.yaml")
	refused := lost.WantStatus(42, etcdinit, c.initArgs()...)
	if !strings.Contains(refused.Stderr, "member remove") || !strings.Contains(refused.Stderr, "--learner") {
		t.Errorf("refused without the commands: %s", refused.Stderr)
	}
	time.Sleep(5 * time.Second)
	url := "https://" + c.zone.FQDN(lost) + ":2380"
	for _, m := range list(t, other) {
		if m.Name == lost.Name {
			other.Etcdctl("member", "remove", strconv.FormatUint(m.ID, 16))
		}
	}
	c.Eventually("the learner is added", 20*time.Second, func() error {
		if r := other.TryEtcdctl("member", "add", "byhand", "--learner", "--peer-urls="+url); r.Status != 0 {
			return errors.New(r.Stderr)
		}
		return nil
	})
	var byHand uint64
	for _, m := range list(t, other) {
		if m.IsLearner {
			byHand = m.ID
		}
	}
	lost.MustRun(etcdinit, c.initArgs()...)
	lost.Etcd("3.6", "--config-file", "run.yaml")
	lost.MustRun(etcdinit, "promote", "--wait", "--timeout", "30s", "--config-file", "etcd.yaml")
	c.Healthy(c.hosts...)
	c.works()
	for _, m := range list(t, other) {
		if m.ID == byHand {
			t.Error("the ID that was added manually is in use")
		}
	}
}

// TestNotReached: the members see another host behind the new member's name. Then no
// voter is removed for a disk that is lost; and a learner that was added is removed
// again, since nobody calls it here.
func TestNotReached(t *testing.T) {
	c := newCluster(t, shape{size: 3})
	c.CoreDNS(c.dns, c.zone)
	c.init()
	procs := c.start("3.7")
	lost := c.hosts[2]
	procs[2].Kill()
	lost.Wipe("data", "run.yaml")
	time.Sleep(5 * time.Second)
	lost.DropCalls(c.hosts[:2]...)
	r := lost.WantStatus(34, etcdinit, c.joinArgs("replace", "--replace-after", "0s", "--timeout", "8s")...)
	if !strings.Contains(r.Stderr, "does not call this node when it calls the member whose disk is lost") {
		t.Errorf("the line does not say who does not call: %s", r.Stderr)
	}
	for _, m := range list(t, c.hosts[0]) {
		if m.Name == lost.Name {
			c.hosts[0].Etcdctl("member", "remove", strconv.FormatUint(m.ID, 16))
		}
	}
	if got := list(t, c.hosts[0]); len(got) != 2 {
		t.Fatalf("members %v: the voter was removed, or is still there", got)
	}
	r = lost.WantStatus(40, etcdinit, c.joinArgs("join")...)
	for _, want := range []string{"only 0 of its 2 voters call this node", "m1 has not called", "the learner was removed again"} {
		if !strings.Contains(r.Stderr, want) {
			t.Errorf("the line does not say %q: %s", want, r.Stderr)
		}
	}
	if got := list(t, c.hosts[0]); len(got) != 2 {
		t.Errorf("members %v, want the two that run", got)
	}
	if _, err := lost.Stat("data/member"); err == nil {
		t.Error("a seed is left in the data directory")
	}
	lost.Heal()
	lost.MustRun(etcdinit, c.joinArgs("join")...)
	lost.Etcd("3.7", "--config-file", "run.yaml")
	lost.MustRun(etcdinit, "promote", "--wait", "--timeout", "30s", "--config-file", "etcd.yaml")
	c.Healthy(c.hosts...)
	c.works()
}

// TestDeadLearner: somebody added a learner whose machine never comes. It keeps every
// other node out, until it has been silent for --replace-after; one that answers is left
// alone.
func TestDeadLearner(t *testing.T) {
	for _, version := range minors("3.7") {
		t.Run(version, func(t *testing.T) {
			c := newCluster(t, shape{size: 5, family: "4"})
			all := c.hosts
			c.hosts, c.shape.size = all[:3], 3
			c.zone = c.records()
			c.CoreDNS(c.dns, c.zone)
			c.init()
			c.start(version)
			c.hosts, c.shape.size = all, 5
			c.zone = c.records()
			c.UpdateCoreDNS(c.dns, c.zone)
			time.Sleep(5 * time.Second) // etcd changes no members of a cluster that is younger
			all[0].Etcdctl("member", "add", "m5", "--learner", "--peer-urls", "http://m5.example.org:2380")
			var dead uint64
			for _, m := range list(t, all[0]) {
				if m.IsLearner {
					dead = m.ID
				}
			}
			res := all[3].Run(etcdinit, c.joinArgs("join", "--replace-after", "1h", "--timeout", "6s")...)
			wantEnd(t, res, 34, "too many learner")
			res = all[3].Run(etcdinit, c.joinArgs("join", "--replace-after", "3s")...)
			wantEnd(t, res, 0, "removed a learner that kept this node out", strconv.FormatUint(dead, 16))
			all[3].Etcd(version, "--config-file", "run.yaml")
			all[3].MustRun(etcdinit, "promote", "--wait", "--timeout", "30s", "--config-file", "etcd.yaml")
			c.Healthy(all[:4]...)
			for _, m := range list(t, all[3]) {
				if m.ID == dead || m.IsLearner {
					t.Errorf("%+v is still listed", m)
				}
			}
		})
	}
}
