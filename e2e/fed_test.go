//go:build e2e

package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// snapshotsSent counts the databases that the servers have sent to others.
func snapshotsSent(t *testing.T, hosts []*lab.Host) (n int) {
	t.Helper()
	for _, h := range hosts {
		out := h.MustRun("/bin/sh", "-c", "curl -fsS http://127.0.0.1:2379/metrics")
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "etcd_network_snapshot_send_success{") {
				fields := strings.Fields(line)
				v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
				if err != nil {
					t.Fatal(err)
				}
				n += int(v)
			}
		}
	}
	return n
}

// TestFed: what a joining member needs comes from a follower's database, and the leader
// sends only the tail of its log, although the log does not reach back to the beginning:
// no database is sent. On 3.4 it is, and one line says why.
func TestFed(t *testing.T) {
	for _, version := range minors("3.6") {
		t.Run(version, func(t *testing.T) {
			c := newCluster(t, shape{size: 4, family: "4", extra: "snapshot-count: 500\n"})
			all := c.hosts
			c.hosts, c.shape.size = all[:3], 3
			c.zone = c.records()
			c.CoreDNS(c.dns, c.zone)
			c.init()
			c.start(version)
			keys := 9000
			if version == "3.4" { // Debian builds it without the JSON gateway
				keys = 40
				for i := range keys {
					all[0].Put("key"+strconv.Itoa(i), "value")
				}
			} else {
				c.puts(all[0], keys)
			}
			before := snapshotsSent(t, all[:3])
			c.hosts, c.shape.size = all, 4
			c.zone = c.records()
			c.UpdateCoreDNS(c.dns, c.zone)
			joiner := all[3]
			res := joiner.Run(etcdinit, c.joinArgs("join", "--etcd-version", version+".30")...)
			fed := version != "3.4"
			if fed {
				wantEnd(t, res, 0, "fed: the database came from another member")
			} else {
				wantEnd(t, res, 0, "not fed: the leader sends the whole database")
			}
			joiner.MustRun(etcdinit, "inspect", "--config-file", "etcd.yaml")
			start := time.Now()
			joiner.Etcd(version, "--config-file", "run.yaml")
			joiner.MustRun(etcdinit, "promote", "--wait", "--timeout", "30s", "--config-file", "etcd.yaml")
			t.Logf("from the start of etcd to a voter: %v", time.Since(start).Round(time.Millisecond))
			c.Healthy(all...)
			c.SameHash(all...)
			if sent := snapshotsSent(t, all[:3]) - before; fed && sent != 0 {
				t.Errorf("%d databases were sent by the members", sent)
			}
			if got := joiner.Get("key" + strconv.Itoa(keys-1)); got != "value" {
				t.Errorf("the last key is %q", got)
			}
		})
	}
}

// puts writes keys one by one, over one connection.
func (c *cluster) puts(h *lab.Host, keys int) {
	c.t.Helper()
	client := h.HTTP(nil)
	for i := range keys {
		body := fmt.Sprintf(`{"key": %q, "value": "dmFsdWU="}`, base64.StdEncoding.EncodeToString([]byte("key"+strconv.Itoa(i))))
		resp, err := client.Post("http://"+h.Addr4().String()+":2379/v3/kv/put", "application/json", strings.NewReader(body)) //nolint:noctx // the client has a timeout
		if err != nil {
			c.t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			c.t.Fatalf("put %d: %s", i, resp.Status)
		}
		if err := resp.Body.Close(); err != nil {
			c.t.Fatal(err)
		}
	}
}
