//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/discovery/rendezvous"
	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// says is what the agent on a host tells whoever asks for its state.
func (c *cluster) says(h *lab.Host) (rendezvous.Answer, error) {
	var a rendezvous.Answer
	url := "http://" + netip.AddrPortFrom(h.Addr4(), 2380).String() + rendezvous.Path
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
func (c *cluster) wantState(h *lab.Host, want rendezvous.State) rendezvous.Answer {
	c.t.Helper()
	var a rendezvous.Answer
	c.Eventually(h.Name+" is "+string(want), 20*time.Second, func() (err error) {
		if a, err = c.says(h); err == nil && a.State != want {
			err = fmt.Errorf("it says %q", a.State)
		}
		return err
	})
	return a
}

// staysIn checks that a host's agent says one thing, and that its disk agrees.
func (c *cluster) staysIn(h *lab.Host, want rendezvous.State) {
	c.t.Helper()
	if a, err := c.says(h); err != nil || a.State != want {
		c.t.Fatalf("%s says %q, %v; want %q", h.Name, a.State, err, want)
	}
	c.wantDisk(h, want)
}

func (c *cluster) wantDisk(h *lab.Host, s rendezvous.State) {
	c.t.Helper()
	if s == rendezvous.Waiting {
		c.wantUntouched(h)
		return
	}
	if !seeded(h) || pending(h) != (s == rendezvous.Committed) {
		c.t.Fatalf("the disk of %s is not that of a %s agent: seeded %t, pending %t", h.Name, s, seeded(h), pending(h))
	}
}

// TestBarrierKilledInEachState kills agents at a known moment. m3 does not
// reach itself at its own URL until it is healed, so it waits while everybody
// hears it: the two others commit, and cannot be released.
func TestBarrierKilledInEachState(t *testing.T) {
	const waiting, committed = rendezvous.Waiting, rendezvous.Committed
	for _, tt := range []struct {
		name, version string
		agents        int                // that run when it happens
		states        []rendezvous.State // theirs
		killed        []int
	}{
		{"waiting, the third is absent", "3.6", 2, []rendezvous.State{waiting, waiting}, []int{0}},
		{"waiting, the others are committed", "3.7", 3, []rendezvous.State{committed, committed, waiting}, []int{2}},
		{"committed", "3.6", 3, []rendezvous.State{committed, committed, waiting}, []int{0}},
		{"all, committed and waiting", "3.5", 3, []rendezvous.State{committed, committed, waiting}, []int{0, 1, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newBarrierCluster(t, shape{size: 3, family: "4"})
			c.hosts[2].Drop(c.hosts[2])
			procs := make([]*lab.Proc, len(c.hosts))
			for i, h := range c.hosts[:tt.agents] {
				procs[i] = h.Start(etcdinit, c.barrierArgs()...)
			}
			before := make([]rendezvous.Answer, len(c.hosts))
			for i, want := range tt.states {
				before[i] = c.wantState(c.hosts[i], want)
			}
			time.Sleep(3 * time.Second) // some rounds more change nothing
			for i, want := range tt.states {
				c.staysIn(c.hosts[i], want)
			}
			for _, i := range tt.killed {
				if !procs[i].Running() {
					t.Fatalf("%s has ended: %s", c.hosts[i].Name, procs[i].Log())
				}
				procs[i].Kill()
				c.wantDisk(c.hosts[i], tt.states[i])
			}
			for _, i := range tt.killed {
				procs[i] = c.hosts[i].Start(etcdinit, c.barrierArgs()...)
			}
			for _, i := range tt.killed { // as its disk says, and another run
				after := c.wantState(c.hosts[i], tt.states[i])
				if after.Nonce == before[i].Nonce || after.ClusterID != before[i].ClusterID || after.Digest != before[i].Digest {
					t.Errorf("%s said %+v, and after the kill %+v", c.hosts[i].Name, before[i], after)
				}
			}
			c.hosts[2].Heal()
			for i, h := range c.hosts {
				if procs[i] == nil {
					procs[i] = h.Start(etcdinit, c.barrierArgs()...)
				}
			}
			c.endReleased(procs)
			c.start(tt.version)
			c.isCluster(before[0].ClusterID)
		})
	}
}

// TestBarrierKilledReleased: m2 is killed between its release and its end. m1
// does not reach it since before it committed, so it waits a second for m1.
func TestBarrierKilledReleased(t *testing.T) {
	c := newBarrierCluster(t, shape{size: 3, family: "4"})
	c.hosts[1].Drop(c.hosts[1])
	procs := make([]*lab.Proc, len(c.hosts))
	for i, h := range c.hosts {
		procs[i] = h.Start(etcdinit, c.barrierArgs()...)
	}
	for _, i := range []int{0, 2} {
		c.wantState(c.hosts[i], rendezvous.Committed)
	}
	time.Sleep(3 * time.Second) // m2 knows that they are
	c.hosts[1].Heal()
	c.hosts[1].DropCalls(c.hosts[0])
	if status := procs[2].Wait(20 * time.Second); status != 0 {
		t.Fatalf("m3 ended with %d: %s", status, procs[2].Log())
	}
	before := c.wantState(c.hosts[1], rendezvous.Released)
	procs[1].Kill()
	if status := procs[1].Wait(time.Second); status != -1 {
		t.Fatalf("m2 ended with %d before the kill: %s", status, procs[1].Log())
	}
	c.wantDisk(c.hosts[1], rendezvous.Released)
	c.staysIn(c.hosts[0], rendezvous.Committed)
	c.hosts[2].Etcd("3.7", "--config-file", "run.yaml") // which lets m1 go
	c.hosts[1].Heal()
	procs[1] = c.hosts[1].Start(etcdinit, c.barrierArgs()...)
	c.endReleased(procs)
	for _, h := range c.hosts[:2] {
		h.Etcd("3.7", "--config-file", "run.yaml")
	}
	c.Healthy(c.hosts...)
	c.isCluster(before.ClusterID)
}

// endReleased waits for the end of all agents; each must have been released.
func (c *cluster) endReleased(procs []*lab.Proc) {
	c.t.Helper()
	for i, h := range c.hosts {
		if status := procs[i].Wait(30 * time.Second); status != 0 {
			c.t.Fatalf("%s ended with %d: %s", h.Name, status, procs[i].Log())
		}
		c.wantDisk(h, rendezvous.Released)
	}
}

// isCluster checks that what runs is one working cluster: the one planned.
func (c *cluster) isCluster(planned rendezvous.ID) {
	c.t.Helper()
	c.works()
	for _, h := range c.hosts {
		if got := c.clusterIDOf(h); got != string(planned) {
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
