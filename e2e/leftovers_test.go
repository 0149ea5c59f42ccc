//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestLeftovers: what stock etcd of each minor leaves behind, and what it starts
// from, is taken as it takes it.
func TestLeftovers(t *testing.T) {
	for _, version := range []string{"3.4", "3.5", "3.6", "3.7"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, shape{size: 1, family: "4"})
			c.CoreDNS(c.dns, c.zone)
			h := c.hosts[0]

			// Started before there was a seed: it ends, and leaves a bare database.
			h.Write("early.yaml", strings.ReplaceAll(c.config(), "discovery-srv: example.org\n", "name: m1\ninitial-cluster-state: existing\n"+
				"initial-advertise-peer-urls: http://m1.example.org:2380\ninitial-cluster: m1=http://m1.example.org:2380,m2=http://192.0.2.2:2380\nadvertise-client-urls: http://m1.example.org:2379\n"))
			early := h.Etcd(version, "--config-file", "early.yaml")
			if status := early.Wait(30 * time.Second); status == 0 {
				t.Fatalf("it ended with 0: %s", early.Log())
			}
			if _, err := h.Stat("data/member/snap/db"); err != nil {
				t.Fatal(err)
			}
			r := h.WantStatus(0, etcdinit, c.initArgs()...)
			wantAll(t, "the log", output(r), "started too early", "etcdinit-unused-member-1")
			if _, err := h.Stat("data/etcdinit-unused-member-1/snap/db"); err != nil {
				t.Error(err)
			}
			p := c.start(version)[0]
			h.Put("key", "value")
			p.Stop()

			// The log alone, behind a link.
			if err := os.Rename(h.Path("data/member/snap/db"), h.Path("db")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(h.Path("data/member"), h.Path("elsewhere")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(h.Path("elsewhere"), h.Path("data/member")); err != nil {
				t.Fatal(err)
			}
			r = h.WantStatus(0, etcdinit, c.initArgs()...)
			wantAll(t, "the log", output(r), "already initialised as m1", "a whole log and no database")
			p = c.start(version)[0]
			if got := h.Get("key"); got != "value" {
				t.Errorf("the key is %q", got)
			}
			c.named()
			p.Stop()

			// A proxy directory: no etcd starts.
			if err := os.Mkdir(h.Path("data/proxy"), 0o700); err != nil {
				t.Fatal(err)
			}
			r = h.WantStatus(44, etcdinit, c.initArgs()...)
			wantAll(t, "the refusal", output(r), "data/proxy exists")
			p = h.Etcd(version, "--config-file", "run.yaml")
			if status := p.Wait(20 * time.Second); status == 0 {
				t.Errorf("etcd ended with 0: %s", p.Log())
			}
		})
	}
}
