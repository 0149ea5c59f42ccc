package seed_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/etcdinit/etcdinit/seed"
)

// host runs one etcd with some keys and adds a member at peer.
func host(t *testing.T, peer string, learner bool) (e *embed.Etcd, added types.ID, joined seed.Joined) {
	t.Helper()
	own, client := freeURL(t), freeURL(t)
	dir := t.TempDir()
	mustApply(t, seed.Spec{DataDir: dir, Token: "fed", Self: "one", Members: []seed.Member{{Name: "one", PeerURLs: []string{own}, ClientURLs: []string{client}}}})
	e = start(t, dir, "", "one", own, client)
	t.Cleanup(e.Close)
	for i := range 300 {
		if _, err := e.Server.Put(t.Context(), &etcdserverpb.PutRequest{Key: fmt.Append(nil, "k", i), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	urls, err := types.NewURLs([]string{peer})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	m := membership.NewMember("", urls, "", &now)
	if learner {
		m = membership.NewMemberAsLearner("", urls, "", &now)
	}
	list, err := e.Server.AddMember(t.Context(), *m)
	if err != nil {
		t.Fatal(err)
	}
	joined = seed.Joined{ClusterID: e.Server.Cluster().ID(), Self: seed.Member{ID: m.ID, Name: "two", PeerURLs: []string{peer}, IsLearner: learner}}
	for _, l := range list {
		joined.Members = append(joined.Members, seed.Member{ID: l.ID, Name: l.Name, PeerURLs: l.PeerURLs, ClientURLs: l.ClientURLs, IsLearner: l.IsLearner})
	}
	return e, m.ID, joined
}

// whole is a snapshot in memory that is kept byte for byte.
func whole(data []byte) seed.Snapshot {
	s := source(data)
	s.Whole = true
	return s
}

// TestFedBoots: a learner whose database came from another member catches up from there,
// and an image that does not know it, or of another point, is refused.
func TestFedBoots(t *testing.T) {
	peer, client := freeURL(t), freeURL(t)
	e, id, joined := host(t, peer, true)
	spec := seed.Spec{DataDir: filepath.Join(t.TempDir(), "data"), Token: "fed"}
	staged := mustStage(t, spec, whole(snapshotOf(t, e)))
	if staged.Index == 0 || staged.Term == 0 {
		t.Errorf("staged %+v", staged)
	}
	plan, err := seed.NewJoiner(spec, joined)
	if err != nil {
		t.Fatal(err)
	}
	fed, err := plan.Fed(staged)
	if err != nil {
		t.Fatal(err)
	}
	if err = fed.Apply(t.Context(), nop); err != nil {
		t.Fatal(err)
	}
	st, err := seed.Verify(spec.DataDir, "", true)
	if err != nil || !st.Pristine || !st.Pending || st.MemberID != id || st.Self == nil || st.Self.Name != "two" || len(st.Members) != 2 {
		t.Fatalf("%+v, %v", st, err)
	}
	if err := seed.Release(st); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Server.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("later"), Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	joiner := start(t, spec.DataDir, "", "two", peer, client)
	defer joiner.Close()
	for range 100 {
		if got, err := joiner.Server.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("m"), Serializable: true, CountOnly: true}); err == nil && got.Count == 301 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("the fed member does not catch up")
}

// TestFedRefuses: an image from before the add does not know the member: a later one is
// waited for.
func TestFedRefuses(t *testing.T) {
	data, _ := aSnapshot(t)
	_, _, joined := host(t, freeURL(t), true)
	spec := seed.Spec{DataDir: filepath.Join(t.TempDir(), "data"), Token: "fed"}
	plan, err := seed.NewJoiner(spec, joined)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Fed(mustStage(t, spec, whole(data))); kindOf(err) != seed.Changed {
		t.Errorf("%v, want Changed", err)
	}
	if _, err := mustPlan(t, trio(t.TempDir(), "m1")).Fed(mustStage(t, spec, whole(data))); kindOf(err) != seed.Invalid {
		t.Errorf("a birth is fed: %v", err)
	}
}

// TestRescueBoots: a voter was added at a URL where nobody is, and the quorum went with
// it. A directory that takes its seat brings the quorum back.
func TestRescueBoots(t *testing.T) {
	e, id, joined := host(t, "http://127.0.0.1:1", false)
	right, client := freeURL(t), freeURL(t)
	joined.Self.PeerURLs = []string{right}
	spec := seed.Spec{DataDir: filepath.Join(t.TempDir(), "data"), Token: "fed"}
	staged := mustStage(t, spec, whole(snapshotOf(t, e)))
	if m, ok := staged.SeatOf(id); !ok || m.Name != "" {
		t.Errorf("the seat: %+v, %v", m, ok)
	}
	plan, err := seed.NewRescue(spec, joined)
	if err != nil {
		t.Fatal(err)
	}
	if plan, err = plan.Fed(staged); err != nil {
		t.Fatal(err)
	}
	if err = plan.Apply(t.Context(), nop); err != nil {
		t.Fatal(err)
	}
	st, err := seed.Verify(spec.DataDir, "", true)
	if err != nil || st.Pending || !st.Pristine || st.Self == nil || st.Self.Name != "two" || st.Self.PeerURLs[0] != right || st.Record.Kind != seed.RecordRescue {
		t.Fatalf("%+v, %v", st, err)
	}
	two := start(t, spec.DataDir, "", "two", right, client)
	defer two.Close()
	if _, err := e.Server.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("again"), Value: []byte("v")}); err != nil {
		t.Errorf("the quorum is not back: %v", err)
	}
}
