//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// answer is what an agent says of itself: the format that
// cmd/internal/rendezvous/README.md specifies.
type answer struct {
	Digest    string `json:"digest"`
	MemberID  string `json:"memberID"`
	Nonce     string `json:"nonce"`
	State     state  `json:"state"`
	Disk      string `json:"disk"`
	ClusterID string `json:"clusterID"`
	Roster    []struct {
		Member string `json:"member"`
		Disk   string `json:"disk"`
	} `json:"roster"`
}

type state string

const (
	waiting   state = "waiting"
	prepared  state = "prepared"
	committed state = "committed"
	released  state = "released"

	statePath = "/etcdinit/v2/state"
)

// says is what the agent on a host tells every caller that asks for its state.
func (c *cluster) says(h *lab.Host) (answer, error) {
	var a answer
	url := "http://" + netip.AddrPortFrom(h.Addr4(), 2380).String() + statePath
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return a, err
	}
	response, err := c.dns.HTTP(nil).Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	if response.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s answers %s", h.Name, response.Status)
	}
	err = json.NewDecoder(response.Body).Decode(&a)
	return a, err
}

// wantState waits until the agent on a host says that it is in a state.
func (c *cluster) wantState(h *lab.Host, want state) answer {
	c.t.Helper()
	var a answer
	c.Eventually(h.Name+" is "+string(want), 20*time.Second, func() (err error) {
		if a, err = c.says(h); err == nil && a.State != want {
			err = fmt.Errorf("it says %q", a.State)
		}
		return err
	})
	return a
}

// staysIn checks that a host's agent says one thing, and that its disk agrees.
func (c *cluster) staysIn(h *lab.Host, want state) {
	c.t.Helper()
	if a, err := c.says(h); err != nil || a.State != want {
		c.t.Fatalf("%s says %q, %v; want %q", h.Name, a.State, err, want)
	}
	c.wantDisk(h, want)
}

func (c *cluster) wantDisk(h *lab.Host, s state) {
	c.t.Helper()
	if s == waiting || s == prepared {
		c.wantUntouched(h)
		if _, err := h.Stat("data/.etcdinit-disk"); (err == nil) != (s == prepared) {
			c.t.Fatalf("the disk of %s is not that of a %s agent: disk ID: %v", h.Name, s, err)
		}
		return
	}
	if !seeded(h) || pending(h) != (s == committed) {
		c.t.Fatalf("the disk of %s is not that of a %s agent: seeded %t, pending %t", h.Name, s, seeded(h), pending(h))
	}
}

// TestBarrierKilledInEachState kills agents while a tracer holds the third one at
// a system call, where it answers nobody. What the others have become by then
// depends on what they had heard of it; it must be what the test allows, it must
// stay, and a run that is started again must go on from there.
func TestBarrierKilledInEachState(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		hold          string  // the system call at which m3 is held; "": it is absent
		allowed       []state // of m1 and m2
		killed        []int
	}{
		{"waiting, the third is absent", "3.6", "", []state{waiting}, []int{0}},
		{"the third gets its disk ID", "3.7", "mkdirat", []state{waiting, prepared}, []int{0, 1}},
		{"the third commits", "3.6", "fallocate", []state{prepared, committed}, []int{0, 1}},
		{"the third commits, all are killed", "3.5", "fallocate", []state{prepared, committed}, []int{0, 1, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3, family: "4"})
			procs := make([]*lab.Proc, len(c.hosts))
			for i, h := range c.hosts[:2] {
				procs[i] = h.Start(etcdinit, c.barrierArgs()...)
			}
			if tt.hold != "" {
				procs[2] = c.held(c.hosts[2], tt.hold)
			}
			time.Sleep(3 * time.Second)
			before := make([]answer, 2)
			for i, h := range c.hosts[:2] {
				var err error
				if before[i], err = c.says(h); err != nil || !slices.Contains(tt.allowed, before[i].State) {
					t.Fatalf("%s says %q, %v; want one of %q\n%s", h.Name, before[i].State, err, tt.allowed, procs[i].Log())
				}
			}
			time.Sleep(3 * time.Second) // some rounds more change nothing
			for i, h := range c.hosts[:2] {
				c.staysIn(h, before[i].State)
			}
			for _, i := range tt.killed {
				if !procs[i].Running() {
					t.Fatalf("%s has ended: %s", c.hosts[i].Name, procs[i].Log())
				}
				killTree(procs[i])
			}
			for _, i := range tt.killed {
				if i < 2 {
					c.wantDisk(c.hosts[i], before[i].State)
				}
				procs[i] = c.hosts[i].Start(etcdinit, c.barrierArgs()...)
			}
			for _, i := range tt.killed { // as its disk says, and another run
				if len(tt.killed) == 3 {
					break // nobody is held any more
				}
				after := c.wantState(c.hosts[i], before[i].State)
				if after.Nonce == before[i].Nonce || after.Disk != before[i].Disk || after.ClusterID != before[i].ClusterID || after.Digest != before[i].Digest {
					t.Errorf("%s said %+v, and after the kill %+v", c.hosts[i].Name, before[i], after)
				}
			}
			if len(tt.killed) < 3 {
				if procs[2] != nil {
					killTree(procs[2])
				}
				procs[2] = c.hosts[2].Start(etcdinit, c.barrierArgs()...)
			}
			c.endReleased(procs)
			c.start(tt.version)
			c.isCluster(c.clusterIDOf(c.hosts[0]))
		})
	}
}

// held starts an agent that is stopped for a minute where it enters a system
// call the first time.
func (c *cluster) held(h *lab.Host, call string) *lab.Proc {
	c.t.Helper()
	return c.traced(h, call, "delay_enter=60000000:when=1")
}

// traced starts an agent under a tracer that injects a fault into a system call.
func (c *cluster) traced(h *lab.Host, call, fault string, more ...string) *lab.Proc {
	c.t.Helper()
	args := append([]string{"-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call, "-e", "inject=" + call + ":" + fault}, more...)
	return h.Start("/usr/bin/strace", append(append(args, etcdinit), c.barrierArgs()...)...)
}

// killTree kills a tracer and what it traces.
func killTree(p *lab.Proc) {
	for _, pid := range children(p.PID()) {
		_ = syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
	}
	p.Kill()
}

// children are the processes that a process has started.
func children(pid int) []int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var list []int
	for field := range strings.FieldsSeq(string(data)) {
		if n, err := strconv.Atoi(field); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// TestBarrierKilledReleased: m2 is killed between its release and its end, so
// the others may never have heard of it. Its etcd tells them.
func TestBarrierKilledReleased(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3, family: "4"})
	procs := make([]*lab.Proc, len(c.hosts))
	for i, h := range c.hosts {
		if i != 1 {
			procs[i] = h.Start(etcdinit, c.barrierArgs()...)
		}
	}
	procs[1] = c.traced(c.hosts[1], "unlinkat", "delay_exit=60000000", "-P", c.Home+"/data/member")
	c.Eventually("m2 has removed its mark", 20*time.Second, func() error {
		if !seeded(c.hosts[1]) || pending(c.hosts[1]) {
			return errors.New("it has not")
		}
		return nil
	})
	if !procs[1].Running() {
		t.Fatalf("m2 has ended: %s", procs[1].Log())
	}
	killTree(procs[1])
	c.wantDisk(c.hosts[1], released)
	procs[1] = c.hosts[1].Start(etcdinit, c.barrierArgs()...)
	if status := procs[1].Wait(20 * time.Second); status != 0 {
		t.Fatalf("m2 ended with %d: %s", status, procs[1].Log())
	}
	c.hosts[1].Etcd("3.7", "--config-file", "run.yaml")
	c.endReleased(procs)
	for _, i := range []int{0, 2} {
		c.hosts[i].Etcd("3.7", "--config-file", "run.yaml")
	}
	c.Healthy(c.hosts...)
	c.isCluster(c.clusterIDOf(c.hosts[0]))
}

// endReleased waits for the end of all agents; each must have been released.
func (c *cluster) endReleased(procs []*lab.Proc) {
	c.t.Helper()
	for i, h := range c.hosts {
		if status := procs[i].Wait(30 * time.Second); status != 0 {
			c.t.Fatalf("%s ended with %d: %s", h.Name, status, procs[i].Log())
		}
		c.wantDisk(h, released)
	}
}

// isCluster checks that what runs is one working cluster: the one planned.
func (c *cluster) isCluster(planned string) {
	c.t.Helper()
	c.works()
	for _, h := range c.hosts {
		if got := c.clusterIDOf(h); got != planned {
			c.t.Errorf("%s runs cluster %s, planned was %s", h.Name, got, planned)
		}
	}
}

// clusterIDOf is the cluster that a host's running etcd says it is of.
func (c *cluster) clusterIDOf(h *lab.Host) string {
	c.t.Helper()
	var status []struct {
		Status struct {
			Header struct {
				ClusterID uint64 `json:"cluster_id"`
			} `json:"header"`
		} `json:"Status"`
	}
	if err := json.Unmarshal([]byte(h.Etcdctl("endpoint", "status", "-w", "json")), &status); err != nil || len(status) != 1 {
		c.t.Fatalf("%s: endpoint status: %v, %d answers", h.Name, err, len(status))
	}
	return strconv.FormatUint(status[0].Status.Header.ClusterID, 16)
}
