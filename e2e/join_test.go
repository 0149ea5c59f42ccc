//go:build e2e

package e2e

import (
	"encoding/json"
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
