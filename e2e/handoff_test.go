//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// An etcd that does not find its seed must stop: it exits 1 and has written no
// WAL, whatever form the handoff had. With its seed it serves.
func TestEtcdWithoutItsSeedStops(t *testing.T) {
	forms := []struct {
		name  string
		start func(c *cluster, h *lab.Host, version string, lose bool) *lab.Proc
	}{
		{"config-out", withConfigOut},
		{"env-file", withEnvFile},
		{"exec with a configuration file", withExecFile},
		{"exec with the environment", withExecEnv},
	}
	for _, version := range lab.Versions() {
		for _, form := range forms {
			t.Run(version+", "+form.name, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, shape{size: 1})
				c.CoreDNS(c.dns, c.zone)
				h := c.hosts[0]
				p := form.start(c, h, version, true)
				if status := p.Wait(30 * time.Second); status != 1 {
					t.Errorf("etcd %s without its seed ended with status %d, want 1\n%s", version, status, p.Log())
				}
				logs, err := filepath.Glob(h.Path("data/member/wal/*.wal"))
				if err != nil || len(logs) > 0 {
					t.Errorf("etcd %s without its seed wrote %v (%v)", version, logs, err)
				}
				h.Wipe("data")
				form.start(c, h, version, false)
				c.Healthy(h)
				c.works()
			})
		}
	}
}

func withConfigOut(c *cluster, h *lab.Host, version string, lose bool) *lab.Proc {
	h.MustRun(etcdinit, c.initArgs()...)
	if lose {
		h.Wipe("data/member")
	}
	return h.Etcd(version, "--config-file", "run.yaml")
}

// environ configures etcd by variables alone, and etcdinit too.
func environ(c *cluster, h *lab.Host) {
	h.Setenv("ETCD_DATA_DIR", c.Home+"/data")
	h.Setenv("ETCD_LISTEN_PEER_URLS", "http://[::]:2380")
	h.Setenv("ETCD_LISTEN_CLIENT_URLS", "http://[::]:2379")
	h.Setenv("ETCD_INITIAL_CLUSTER_TOKEN", "e2e")
	h.Setenv("ETCD_DISCOVERY_SRV", "example.org")
	h.Setenv("ETCDINIT_SIZE", strconv.Itoa(c.shape.size))
	h.Setenv("ETCDINIT_TIMEOUT", "1m")
}

func withEnvFile(c *cluster, h *lab.Host, version string, lose bool) *lab.Proc {
	environ(c, h)
	h.MustRun(etcdinit, "init", "--env-file", "etcd.env")
	if lose {
		h.Wipe("data/member")
	}
	for lines := bufio.NewScanner(strings.NewReader(h.Read("etcd.env"))); lines.Scan(); {
		key, value, found := strings.Cut(lines.Text(), "=")
		if found && !strings.HasPrefix(key, "#") {
			h.SetenvRaw(key, strings.Trim(value, `"'`)) // a later EnvironmentFile wins, also with an empty value
		}
	}
	defer h.Clearenv() // etcdinit has none of it
	return h.Etcd(version)
}

func withExecFile(c *cluster, h *lab.Host, version string, lose bool) *lab.Proc {
	return h.Start(etcdinit, "exec", "--config-file", "etcd.yaml", "--size", "1", "--timeout", "1m",
		"--", losing(c, h, version, lose), "--config-file", "etcd.yaml")
}

func withExecEnv(c *cluster, h *lab.Host, version string, lose bool) *lab.Proc {
	environ(c, h)
	return h.Start(etcdinit, "exec", "--", losing(c, h, version, lose))
}

// losing is an etcd that loses its seed before it starts.
func losing(c *cluster, h *lab.Host, version string, lose bool) string {
	if !lose {
		return c.Tool("etcd-" + version)
	}
	h.Write("etcd", fmt.Sprintf("#!/bin/sh\nrm -rf %s/data/member\nexec %s \"$@\"\n", c.Home, c.Tool("etcd-"+version)))
	h.MustRun("chmod", "755", "etcd")
	return c.Home + "/etcd"
}

// A three-member cluster whose etcds get all they know from variables, and
// one that etcdinit itself becomes.
func TestHandoffForms(t *testing.T) {
	t.Run("env-file", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, shape{size: 3})
		c.CoreDNS(c.dns, c.zone)
		c.Each(c.hosts, func(h *lab.Host) {
			withEnvFile(c, h, "3.7", false)
		})
		c.Healthy(c.hosts...)
		c.works()
	})
	t.Run("exec", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, shape{size: 3})
		c.CoreDNS(c.dns, c.zone)
		c.Each(c.hosts, func(h *lab.Host) {
			h.Start(etcdinit, "exec", "--config-file", "etcd.yaml", "--size", "3",
				"--listen-self", "--", c.Tool("etcd-3.7"), "--config-file", "etcd.yaml")
		})
		c.Healthy(c.hosts...)
		c.works()
	})
}
