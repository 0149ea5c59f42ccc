//go:build e2e

package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// TestRescue: somebody adds a voter with a wrong URL to a cluster of one, and its quorum
// is gone. The node that was meant takes the seat; the same service and the command that
// is printed do the rest.
func TestRescue(t *testing.T) {
	for _, version := range minors("3.7") {
		t.Run(version, func(t *testing.T) {
			if version == "3.4" { // an image of it does not say which term it is of
				return
			}
			c := newCluster(t, shape{size: 2, family: "4"})
			all := c.hosts
			c.hosts, c.shape.size = all[:1], 1
			c.zone = c.records()
			c.CoreDNS(c.dns, c.zone)
			c.init()
			c.start(version)
			one, two := all[0], all[1]
			one.Put("before", "kept")
			c.hosts, c.shape.size = all, 2
			c.zone = c.records()
			c.UpdateCoreDNS(c.dns, c.zone)

			rescue := func(id string, more ...string) lab.Result {
				return two.Run(etcdinit, append([]string{
					"rescue", "--as-member", id, "--endpoints", "http://m1.example.org:2379", "--config-file", "etcd.yaml", "--size", "2", "--timeout", "20s",
				}, more...)...)
			}
			// While there is a quorum there is nothing to rescue, and a member that has run is never taken.
			ids := list(t, one)
			wantEnd(t, rescue(strconv.FormatUint(ids[0].ID, 16)), 42, "NO  the cluster has no quorum", "NO  that has never run")

			one.Etcdctl("member", "add", "m2", "--peer-urls", "http://wrong.example.org:2380")
			res := one.TryEtcdctl("put", "quorum", "gone", "--command-timeout", "3s")
			if res.Status == 0 {
				t.Fatal("there is a quorum: the test tests nothing")
			}
			out := one.Etcdctl("member", "list", "--consistency=s")
			if version == "3.5" || !strings.Contains(out, "unstarted") {
				out = one.Run(c.Tool("etcd-3.6/etcdctl"), "--endpoints", "http://127.0.0.1:2379", "member", "list", "--consistency=s").Stdout
			}
			id := ""
			for line := range strings.Lines(out) {
				if strings.Contains(line, "wrong.example.org") {
					id, _, _ = strings.Cut(line, ",")
				}
			}
			if id == "" {
				t.Fatalf("the list: %s", out)
			}
			wantEnd(t, rescue("abcdef"), 42, "NO  all that answer list the member")
			wantEnd(t, rescue(id, "--dry-run"), 0, "would seed", "2 of 2")
			if _, err := two.Stat("data"); err == nil {
				t.Error("a dry run has written something")
			}
			res = rescue(id)
			wantEnd(t, res, 0, "seeded", "member update "+id+" --peer-urls=http://m2.example.org:2380")
			wantEnd(t, rescue(id), 42, "NO  the data directory here is empty")
			two.MustRun(etcdinit, c.initArgs()...)
			two.Etcd(version, "--config-file", "run.yaml")
			for line := range strings.Lines(res.Stdout) {
				if command, ok := strings.CutPrefix(strings.TrimSpace(line), "1. "); ok {
					c.as(two, version, command)
				}
			}
			c.Healthy(all...)
			c.SameHash(all...)
			if got := two.Get("before"); got != "kept" {
				t.Errorf("the key is %q", got)
			}
			for _, m := range list(t, two) {
				if m.Name == "m2" && m.PeerURLs[0] != "http://m2.example.org:2380" {
					t.Errorf("m2 is at %v", m.PeerURLs)
				}
			}
		})
	}
}
