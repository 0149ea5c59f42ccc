//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// membersReport is what `etcdinit members -o json` prints, as far as it is read here.
type membersReport struct {
	Members []struct {
		Name     string   `json:"name"`
		Standing string   `json:"standing"`
		Commands []string `json:"commands"`
	} `json:"members"`
	Records string `json:"recordsError"`
	Cluster string `json:"clusterError"`
}

// members runs the command with a status, and returns the standing of each member.
func (c *cluster) members(h *lab.Host, status int) (standing map[string]string, commands map[string][]string) {
	c.t.Helper()
	var report membersReport
	c.Eventually("the new records are served", 15*time.Second, func() error { // CoreDNS reads its zone every second or so
		report = membersReport{}
		res := h.Run(etcdinit, "members", "--config-file", "etcd.yaml", "--size", strconv.Itoa(c.shape.size), "-o", "json")
		if err := json.Unmarshal([]byte(res.Stdout), &report); err != nil {
			return fmt.Errorf("%w: %s%s", err, res.Stdout, res.Stderr)
		}
		if report.Records != "" || report.Cluster != "" || res.Status != status {
			return fmt.Errorf("status %d, want %d: %s%s", res.Status, status, res.Stdout, res.Stderr)
		}
		return nil
	})
	standing, commands = map[string]string{}, map[string][]string{}
	for _, m := range report.Members {
		standing[m.Name], commands[m.Name] = m.Standing, m.Commands
	}
	return standing, commands
}

// TestMembers: a cluster of three shrinks by a record that is taken out and the command
// that is printed, and grows again; what is down is told. With and without TLS.
func TestMembers(t *testing.T) {
	for _, tls := range []bool{false, true} {
		t.Run("tls "+strconv.FormatBool(tls), func(t *testing.T) {
			c := newCluster(t, shape{size: 3, family: "4", tls: tls})
			all := c.hosts
			c.CoreDNS(c.dns, c.zone)
			c.init()
			procs := c.start("3.6")
			standing, _ := c.members(all[0], 0)
			if len(standing) != 3 || standing["m2"] != "same" {
				t.Errorf("a whole cluster: %v", standing)
			}
			if out := all[1].MustRun(etcdinit, "members", "--config-file", "etcd.yaml", "--size", "3"); !strings.Contains(out, "3 of 3 voters are well") {
				t.Errorf("printed: %s", out)
			}

			procs[2].Kill()
			standing, _ = c.members(all[0], 34)
			if standing["m3"] != "silent" || standing["m1"] != "same" {
				t.Errorf("m3 is down: %v", standing)
			}

			c.hosts, c.shape.size = all[:2], 2 // it is to leave
			c.zone = c.records()
			c.UpdateCoreDNS(c.dns, c.zone)
			standing, commands := c.members(all[0], 34)
			if standing["m3"] != "no record" || len(commands["m3"]) != 1 {
				t.Fatalf("m3 has no record: %v, %v", standing, commands)
			}
			c.as(all[0], "3.6", commands["m3"][0])
			if standing, _ = c.members(all[1], 0); len(standing) != 2 {
				t.Errorf("after it left: %v", standing)
			}

			c.hosts, c.shape.size = all, 3 // and comes back
			c.zone = c.records()
			c.UpdateCoreDNS(c.dns, c.zone)
			all[2].Wipe("data", "run.yaml")
			standing, _ = c.members(all[0], 34)
			if standing["m3"] != "not in the cluster" {
				t.Errorf("m3 is to come: %v", standing)
			}
			time.Sleep(5 * time.Second) // etcd changes no members of a cluster that is younger
			all[2].MustRun(etcdinit, c.joinArgs("join")...)
			if standing, _ = c.members(all[0], 34); standing["m3"] != "never started" {
				t.Errorf("m3 was added: %v", standing)
			}
			all[2].Etcd("3.6", "--config-file", "run.yaml")
			c.Healthy(all...)
			all[2].MustRun(etcdinit, "promote", "--wait", "--timeout", "30s", "--config-file", "etcd.yaml")
			if standing, _ = c.members(all[2], 0); len(standing) != 3 {
				t.Errorf("back: %v", standing)
			}
		})
	}
}
