package agent

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/seed"
)

// consulting is an agent "c" with an empty disk whose member voted in a running
// cluster of a, b and c, and that answers at its own peer URL.
func consulting(t *testing.T) (a *agent, f *fakeCluster, url string) {
	t.Helper()
	a = wordsAgent(t, "c", "a", "b", "c")
	f = newFakeCluster()
	for i, m := range a.plan.Members {
		for j := range f.list.Members {
			if f.list.Members[j].Name == m.Name {
				f.list.Members[j].PeerURLs = a.plan.Members[i].PeerURLs
			}
		}
	}
	f.list.Members[2].IsLearner = false
	f.mute[learnerID] = 1 << 20 // it is gone
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url = "http://" + l.Addr().String()
	if err = l.Close(); err != nil {
		t.Fatal(err)
	}
	a.barrier, err = rendezvous.Open(t.Context(), rendezvous.Config{
		Start: rendezvous.Start{Plan: meetingPlan(a.plan), State: rendezvous.Waiting}, Listen: []string{url}, Clock: bootTime, Log: a.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.barrier.Close(); err != nil {
			t.Error(err)
		}
	})
	a.lookout = &lookout{}
	a.IfRunning = Replace
	a.Admit = func([]string, rendezvous.DialFunc) (Cluster, error) { return f, nil }
	return a, f, url
}

// calls is what an etcd does at a member's URL, for the member with this ID.
func calls(t *testing.T, url, from string, to types.ID, peerURLs string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/raft/stream/message/"+from, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"X-Server-From": from, "X-Raft-To": to.String(), "X-Etcd-Cluster-ID": "c0ffee", "X-PeerURLs": peerURLs} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Fatalf("HTTP %d, %v: a member that joins answers 404", resp.StatusCode, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func (a *agent) mustConsult(t *testing.T) Running {
	t.Helper()
	if err := a.consult(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a.cluster.says
}

// TestSteady: a voter is only removed where all others are well, reach this process at
// its URL, and it answers nowhere; and all that in each look for --replace-after.
func TestSteady(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(a *agent, f *fakeCluster)
		why   string
	}{
		{"all is well", func(*agent, *fakeCluster) {}, ""},
		{"it runs elsewhere", func(_ *agent, f *fakeCluster) { f.mute[learnerID] = 0 }, "it runs elsewhere"},
		{"another voter is silent", func(_ *agent, f *fakeCluster) { f.mute[2] = 1 << 20 }, "no answer"},
		{"another voter lags behind", func(_ *agent, f *fakeCluster) { f.set(2, func(s *admit.Status) { s.Applied = 8000 }) }, "has applied entry 8000 of 9000"},
		{"an alarm", func(_ *agent, f *fakeCluster) {
			f.set(1, func(s *admit.Status) { s.Errors = []string{"alarm:CORRUPT"} })
		}, "alarm:CORRUPT"},
		{"no leader", func(_ *agent, f *fakeCluster) { f.set(1, func(s *admit.Status) { s.Leader = 0 }) }, "is the leader"},
		{"another term", func(_ *agent, f *fakeCluster) { f.set(2, func(s *admit.Status) { s.Term = 5 }) }, "does not follow the leader"},
		{"a learner", func(_ *agent, f *fakeCluster) {
			f.list.Members = append(f.list.Members, admit.Member{ID: 9, Name: "d", IsLearner: true, PeerURLs: []string{"http://d:2380"}})
		}, "it has a learner"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, f, url := consulting(t)
			for _, from := range []string{"1", "2"} {
				calls(t, url, from, learnerID, "http://"+from+":2380")
			}
			tt.spoil(a, f)
			says := a.mustConsult(t)
			if says.Mine != OldVoter || says.Steady != (tt.why == "") || tt.why != "" && !strings.Contains(a.cluster.why, tt.why) {
				t.Errorf("%+v, %q; want %q", says, a.cluster.why, tt.why)
			}
		})
	}
}

// TestNotDead: a voter that sees another host behind the lost member's name keeps it
// from being removed.
func TestNotDead(t *testing.T) {
	a, _, url := consulting(t)
	calls(t, url, "1", learnerID, "http://a:2380")
	calls(t, url, "2", 77, "http://b:2380") // for somebody else
	if says := a.mustConsult(t); says.Steady || !strings.Contains(a.cluster.why, "b (ID 2) does not call this node") {
		t.Errorf("%+v, %q", says, a.cluster.why)
	}
	calls(t, url, "2", learnerID, "http://b:2380")
	if says := a.mustConsult(t); !says.Steady {
		t.Errorf("%+v, %q", says, a.cluster.why)
	}
}

// TestRipe: the time begins anew with each look that is not steady, and for
// another directory.
func TestRipe(t *testing.T) {
	a, f, url := consulting(t)
	a.ReplaceAfter = 30 * time.Millisecond
	look := func() Running {
		for _, from := range []string{"1", "2"} {
			calls(t, url, from, learnerID, "http://"+from+":2380")
		}
		return a.mustConsult(t)
	}
	if look().Ripe {
		t.Fatal("ripe at the first look")
	}
	time.Sleep(2 * a.ReplaceAfter)
	f.mute[2] = 1
	if says := look(); says.Ripe || says.Steady {
		t.Errorf("b was silent: %+v", says)
	}
	if says := look(); says.Ripe || !says.Steady {
		t.Errorf("the first steady look after that: %+v", says)
	}
	time.Sleep(2 * a.ReplaceAfter)
	f.listErr = []error{&admit.Error{Reason: admit.NoQuorum, What: "list", Err: errors.New("no leader")}}
	if says := look(); !says.Hindered {
		t.Errorf("no quorum: %+v", says)
	}
	if says := look(); says.Ripe {
		t.Errorf("ripe across a look without a quorum: %+v", says)
	}
	time.Sleep(2 * a.ReplaceAfter)
	if says := look(); !says.Ripe {
		t.Errorf("not ripe after %v of steady looks: %+v", a.ReplaceAfter, says)
	}
	a.cluster.forget()
	if says := look(); says.Ripe {
		t.Error("ripe for another directory")
	}
}

// TestRemoveAgain: what is removed is looked at again, in a quorum of lists.
func TestRemoveAgain(t *testing.T) {
	a, f, _ := consulting(t)
	a.mustConsult(t)
	if removed, err := a.remove(t.Context(), Outcome{Rule: RuleReplace}); removed || err != nil || len(f.removed) > 0 {
		t.Errorf("removed %v by lists that do not agree: %v", f.removed, err)
	}
	if a.cluster.says.Asked {
		t.Error("the cluster is not asked again")
	}
	f.agreed = 2
	a.mustConsult(t)
	if removed, err := a.remove(t.Context(), Outcome{Rule: RuleReplace}); !removed || err != nil || len(f.removed) != 1 || f.removed[0] != learnerID {
		t.Errorf("removed %t, %v: %v", removed, f.removed, err)
	}
	if a.cluster.replaced != learnerID {
		t.Error("what was removed is forgotten")
	}
}

// TestConsultRefuses: clusters that are not the one, and members that no record has.
func TestConsultRefuses(t *testing.T) {
	a, f, _ := consulting(t)
	f.list.Members = append(f.list.Members, admit.Member{ID: 9, Name: "d", PeerURLs: []string{"http://d:2380"}})
	if says := a.mustConsult(t); !says.Strangers {
		t.Errorf("%+v", says)
	}
	a.view.Peers = []rendezvous.PeerView{{Now: rendezvous.Runs, Last: rendezvous.Sighting{Kind: rendezvous.Etcd, ClusterID: "bad", URL: "http://a:2380"}}}
	if says := a.mustConsult(t); !says.Several || !strings.Contains(a.cluster.why, "bad at http://a:2380") {
		t.Errorf("another cluster on the client port: %+v, %q", says, a.cluster.why)
	}
}

// TestJoiningListed: that a list lacks this disk's learner is believed after a while.
func TestJoiningListed(t *testing.T) {
	a, f, url := consulting(t)
	a.disk, a.state.MemberID, a.state.ClusterID = DiskJoining, learnerID, f.list.ClusterID
	a.state.Record = &seed.Record{Kind: seed.RecordJoin}
	f.list.Members[2].IsLearner, f.list.Members[2].Name, f.list.Members[2].ClientURLs = true, "", nil
	calls(t, url, "1", learnerID, "http://a:2380")
	if says := a.mustConsult(t); !says.OnDisk || says.Mine != NewLearner || says.Proved {
		t.Errorf("one of two has called: %+v", says)
	}
	calls(t, url, "2", learnerID, "http://localhost:2380")
	if says := a.mustConsult(t); !says.Proved || !says.Localhost {
		t.Errorf("both have called, one of them as localhost: %+v", says)
	}
	f.list.Members = f.list.Members[:2]
	if says := a.mustConsult(t); says.OnDisk || !says.Hindered {
		t.Errorf("not listed, seen once: %+v", says)
	}
	a.cluster.gone -= goneTime
	if says := a.mustConsult(t); says.OnDisk || says.Hindered {
		t.Errorf("not listed for a while: %+v", says)
	}
}
