//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// node is a host as a supervisor runs it: init, and etcd once init ended with 0.
type node struct {
	*lab.Host
	init   *lab.Proc
	etcd   *lab.Proc // nil: it never started
	status int       // of init; read it after done
	done   chan struct{}
}

// supervise starts init on a host, and etcd so long after its end.
func (c *cluster) supervise(h *lab.Host, version string, late time.Duration, args ...string) *node {
	c.t.Helper()
	n := &node{Host: h, init: h.Start(etcdinit, args...), done: make(chan struct{})}
	ctx := c.t.Context()
	pause := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		defer close(n.done)
		for n.init.Running() {
			if !pause(10 * time.Millisecond) {
				return
			}
		}
		if n.status = n.init.Wait(time.Second); n.status == 0 && pause(late) {
			n.etcd = h.Etcd(version, "--config-file", "run.yaml")
		}
	}()
	c.t.Cleanup(func() { <-n.done })
	return n
}

// ended waits for a node's init, and for the start of its etcd if there is one.
func (c *cluster) ended(nodes ...*node) {
	c.t.Helper()
	for _, n := range nodes {
		c.Eventually("the end of init on "+n.Name, 90*time.Second, func() error {
			select {
			case <-n.done:
				return nil
			default:
				return fmt.Errorf("it runs: %s", lastLine(n.init.Log()))
			}
		})
	}
}

// ack is a write that an etcd has acknowledged.
type ack struct {
	key, by, cluster string
	revision         int64
}

// write puts a key through a host's etcd.
func write(h *lab.Host, key string) (ack, bool) {
	r := h.TryEtcdctl("--command-timeout=3s", "--dial-timeout=2s", "-w", "json", "put", key, "by "+h.Name)
	var answer struct {
		Header struct {
			ClusterID uint64 `json:"cluster_id"`
			Revision  int64  `json:"revision"`
		} `json:"header"`
	}
	if r.Status != 0 || json.Unmarshal([]byte(r.Stdout), &answer) != nil {
		return ack{}, false
	}
	return ack{key, h.Name, strconv.FormatUint(answer.Header.ClusterID, 16), answer.Header.Revision}, true
}

// writeAll writes through every etcd that runs, in turn, and returns what was
// acknowledged.
func writeAll(times int, hosts ...*lab.Host) []ack {
	var acks []ack
	for i := range times {
		for _, h := range hosts {
			if a, ok := write(h, fmt.Sprintf("%s-%s-%d", h.Name, time.Now().Format("150405.000"), i)); ok {
				acks = append(acks, a)
			}
		}
	}
	return acks
}

// oneHistory checks that acknowledged writes are those of one cluster, that no
// two of them are the same revision, and that every reader has all of them.
func (c *cluster) oneHistory(acks []ack, readers ...*lab.Host) {
	c.t.Helper()
	if len(acks) == 0 {
		c.t.Fatal("no write was acknowledged")
	}
	at := make(map[int64]ack)
	for _, a := range acks {
		if a.cluster != acks[0].cluster {
			c.t.Errorf("two clusters acknowledge writes: %+v and %+v", acks[0], a)
		}
		if other, taken := at[a.revision]; taken {
			c.t.Errorf("two acknowledged writes are one revision: %+v and %+v", other, a)
		}
		at[a.revision] = a
	}
	for _, h := range readers {
		for _, a := range acks {
			c.Eventually(fmt.Sprintf("%s reads %+v", h.Name, a), 20*time.Second, func() error {
				r := h.TryEtcdctl("--command-timeout=5s", "get", a.key, "--print-value-only")
				if got := strings.TrimSpace(r.Stdout); r.Status != 0 || got != "by "+a.by {
					return fmt.Errorf("status %d: %q %s", r.Status, got, lastLine(r.Stderr))
				}
				return nil
			})
		}
	}
}

// noPanic checks the logs of the etcds that ran.
func (c *cluster) noPanic(nodes ...*node) {
	c.t.Helper()
	for _, n := range nodes {
		if n.etcd == nil {
			continue
		}
		for line := range strings.Lines(n.etcd.Log()) {
			if strings.Contains(line, "panic") || strings.Contains(line, `"level":"fatal"`) {
				c.t.Errorf("etcd of %s: %.400s", n.Name, line)
			}
		}
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
