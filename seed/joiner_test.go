package seed_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/etcdinit/etcdinit/seed"
)

// joinedAs is what a running cluster of p's other members would say of p's own.
func joinedAs(p *seed.Plan) seed.Joined {
	j := seed.Joined{ClusterID: 0xc0ffee, Self: p.Self}
	j.Self.ID, j.Self.IsLearner = 0xabcdef, true
	for _, m := range p.Members {
		if m.ID == p.MemberID {
			m = j.Self
			m.Name, m.ClientURLs = "", nil
		}
		j.Members = append(j.Members, m)
	}
	return j
}

func mustJoiner(tb testing.TB, spec seed.Spec) *seed.Plan {
	tb.Helper()
	p, err := seed.NewJoiner(spec, joinedAs(mustPlan(tb, spec)))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func mustJoin(tb testing.TB, spec seed.Spec) *seed.Plan {
	tb.Helper()
	p := mustJoiner(tb, spec)
	if err := p.Apply(tb.Context(), nop); err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestJoiner: the directory of a member that was added says who it is before any
// etcd has run on it, and what the record cannot know comes from the record's list.
func TestJoiner(t *testing.T) {
	for _, separate := range []bool{false, true} {
		t.Run(fmt.Sprint("separate wal-dir: ", separate), func(t *testing.T) {
			spec := trio(t.TempDir(), "m2")
			if separate {
				spec.WALDir = t.TempDir()
			}
			p := mustJoin(t, spec)
			st, err := seed.Verify(spec.DataDir, spec.WALDir, true)
			if err != nil {
				t.Fatal(err)
			}
			if st.Kind != seed.Valid || !st.Pending || !st.Pristine || st.MemberID != 0xabcdef || st.ClusterID != 0xc0ffee || len(st.Members) != 3 {
				t.Fatalf("%+v", st)
			}
			if st.Self == nil || st.Self.Name != "m2" || !st.Self.IsLearner || len(st.Self.ClientURLs) == 0 || !st.Compare(p).SameMember {
				t.Errorf("self: %+v", st.Self)
			}
			if st.Record == nil || st.Record.Kind != seed.RecordJoin || st.Record.PlanDigest != "" {
				t.Errorf("record: %+v", st.Record)
			}
			if err := errors.Join(seed.Confirm(st), seed.Release(st)); err != nil {
				t.Fatal(err)
			}
			if st = mustInspect(t, spec); st.Pending || !st.Pristine {
				t.Errorf("after the release: %+v", st)
			}
			if err := p.Apply(t.Context(), nop); kindOf(err) != seed.Changed {
				t.Errorf("applied twice: %v", err)
			}
		})
	}
}

// TestJoinerGivenUp: the seed of a member that did not come in is moved aside, and
// says nothing about a birth.
func TestJoinerGivenUp(t *testing.T) {
	spec := trio(t.TempDir(), "m2")
	mustJoin(t, spec)
	aside, err := seed.Withdraw(spec.DataDir, "", nop)
	if err != nil || len(aside) != 1 || !strings.HasPrefix(filepath.Base(aside[0]), "etcdinit-not-joined-") {
		t.Fatalf("%v, %v", aside, err)
	}
	st := mustInspect(t, spec)
	if st.Kind != seed.Empty || len(st.Withdrawn) != 0 {
		t.Errorf("%+v", st)
	}
	mustJoin(t, spec)
}

func TestNewJoinerRefuses(t *testing.T) {
	spec := trio(t.TempDir(), "m2")
	for name, spoil := range map[string]func(*seed.Joined){
		"no ID":        func(j *seed.Joined) { j.Self.ID = 0 },
		"no cluster":   func(j *seed.Joined) { j.ClusterID = 0 },
		"no name":      func(j *seed.Joined) { j.Self.Name = "" },
		"no peer URLs": func(j *seed.Joined) { j.Self.PeerURLs = nil },
	} {
		j := joinedAs(mustPlan(t, spec))
		spoil(&j)
		if _, err := seed.NewJoiner(spec, j); kindOf(err) != seed.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestJoinerRecordIsChecked: a record of a join that does not list its own member
// is no record.
func TestJoinerRecordIsChecked(t *testing.T) {
	spec := trio(t.TempDir(), "m2")
	mustJoin(t, spec)
	path := filepath.Join(spec.DataDir, "member", "etcdinit-seed.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), `"id": "abcdef"`, `"id": "abcde"`, 1))
	if st := mustInspect(t, spec); st.Kind != seed.Broken || !strings.Contains(st.Reason, "members do not have its own") {
		t.Errorf("%+v", st)
	}
}

// TestBootJoiner: a running etcd adds a learner, which boots from a joiner's seed,
// without being told of any other member, and comes to vote. Inspect knows it in
// each state.
func TestBootJoiner(t *testing.T) {
	peer, client := freeURL(t), freeURL(t)
	first := t.TempDir()
	mustApply(t, seed.Spec{
		DataDir: first, Token: "join", Self: "a",
		Members: []seed.Member{{Name: "a", PeerURLs: []string{peer}, ClientURLs: []string{client}}},
	})
	a := start(t, first, "", "a", peer, client)
	defer a.Close()
	newPeer, newClient := freeURL(t), freeURL(t)
	added, err := a.Server.AddMember(t.Context(), learnerAt(newPeer))
	if err != nil {
		t.Fatal(err)
	}
	joined := seed.Joined{ClusterID: a.Server.Cluster().ID()}
	for _, m := range added {
		member := seed.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.IsLearner}
		joined.Members = append(joined.Members, member)
		if m.IsLearner {
			joined.Self = member
		}
	}
	joined.Self.Name, joined.Self.ClientURLs = "b", []string{newClient}
	spec := seed.Spec{DataDir: t.TempDir(), Token: "join"}
	p, err := seed.NewJoiner(spec, joined)
	if err == nil {
		err = p.Apply(t.Context(), nop)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err = seed.Release(mustInspect(t, spec)); err != nil {
		t.Fatal(err)
	}
	cfg := embed.NewConfig()
	cfg.Dir, cfg.Name, cfg.InitialCluster, cfg.ClusterState = spec.DataDir, "b", "", embed.ClusterStateFlagExisting
	listen(t, cfg, newPeer, newClient)
	b, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("the learner was not ready within 30 s")
	}
	deadline := time.Now().Add(20 * time.Second)
	for err = errors.New("not tried"); err != nil && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		_, err = a.Server.PromoteMember(t.Context(), uint64(p.MemberID))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err = b.Server.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k"), Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	b.Close()
	st, err := seed.Verify(spec.DataDir, "", true)
	if err != nil {
		t.Fatal(err)
	}
	if st.Pristine || st.Self == nil || st.Self.Name != "b" || st.Self.IsLearner || len(st.Members) != 2 || st.ClusterID != joined.ClusterID {
		t.Errorf("after etcd has run: %+v", st)
	}
}

func learnerAt(peer string) membership.Member {
	u, err := types.NewURLs([]string{peer})
	if err != nil {
		panic(err)
	}
	now := time.Now()
	return *membership.NewMemberAsLearner("", u, "join", &now)
}
