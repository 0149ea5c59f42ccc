//go:build e2e

package e2e

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// blocksOf are the commands of a page that CI runs, by their names.
func blocksOf(t *testing.T, page string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string][]string{}
	for _, m := range regexp.MustCompile("(?s)<!-- run: ([a-z]+) -->\n```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		blocks[m[1]] = strings.Split(strings.TrimSpace(m[2]), "\n")
	}
	return blocks
}

// TestLifeOfACluster: the page about it, word for word but for the two places of the
// configuration, from the birth to the day that etcdinit is left.
func TestLifeOfACluster(t *testing.T) {
	blocks := blocksOf(t, "../docs/life-of-a-cluster.md")
	const version = "3.6"
	c := newCluster(t, shape{size: 5, family: "4"})
	all := c.hosts
	place := strings.NewReplacer("/etc/etcd/etcd.yaml", "etcd.yaml", "/run/etcd/etcd.yaml", "run.yaml")
	var mu sync.Mutex // several hosts at once
	used, procs := map[string]bool{}, map[*lab.Host]*lab.Proc{}
	run := func(h *lab.Host, block string) {
		t.Helper()
		mu.Lock()
		used[block] = true
		mu.Unlock()
		if len(blocks[block]) == 0 {
			t.Fatalf("the page has no block %q", block)
		}
		for _, command := range blocks[block] {
			if p := c.as(h, version, place.Replace(command)); p != nil {
				mu.Lock()
				procs[h] = p
				mu.Unlock()
			}
		}
	}
	records := func(hosts []*lab.Host, serve func(*lab.Host, *lab.Zone)) {
		c.hosts, c.shape.size = hosts, len(hosts)
		c.zone = c.records()
		serve(c.dns, c.zone)
	}
	stop := func(h *lab.Host) { procs[h].Kill() }

	records(all[:3], func(h *lab.Host, z *lab.Zone) { c.CoreDNS(h, z) })
	for _, h := range all {
		h.Setenv("ETCDINIT_REPLACE_AFTER", "2s")
	}
	c.Each(all[:3], func(h *lab.Host) { run(h, "start") })
	c.Healthy(all[:3]...)
	all[0].Put("born", "once")

	stop(all[1]) // a restart
	run(all[1], "start")
	c.Healthy(all[:3]...)

	time.Sleep(5 * time.Second) // etcd changes no members of a cluster that is younger
	stop(all[2])
	all[2].Wipe("data", "run.yaml")
	run(all[2], "start")
	run(all[2], "promote")
	c.Healthy(all[:3]...)

	records(all, c.UpdateCoreDNS)
	c.Each(all[3:], func(h *lab.Host) { run(h, "grow") })
	c.Healthy(all...)
	run(all[0], "members")

	stop(all[4])
	records(all[:4], c.UpdateCoreDNS)
	used["shrink"] = true
	removal := ""
	c.Eventually("the removal is printed", 20*time.Second, func() error {
		res := all[0].Run("/bin/sh", "-c", strings.Replace(place.Replace(blocks["shrink"][0]), "etcdinit", etcdinit, 1))
		for line := range strings.Lines(res.Stdout) {
			if strings.Contains(line, "member remove") {
				removal = strings.TrimSpace(line)
				return nil
			}
		}
		return os.ErrNotExist
	})
	c.as(all[0], version, removal)
	if n := len(list(t, all[0])); n != 4 {
		t.Errorf("%d members, want 4", n)
	}

	stop(all[0])
	run(all[0], "leave")
	c.Healthy(all[:4]...)
	if got := all[3].Get("born"); got != "once" {
		t.Errorf("the key is %q", got)
	}
	for name := range blocks {
		if !used[name] {
			t.Errorf("the block %q was not run", name)
		}
	}
}
