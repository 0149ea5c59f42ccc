package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/seed"
)

// TestGate is the whole product of what a promotion is decided from, against the
// rules in words.
func TestGate(t *testing.T) {
	seen := map[Promote]int{}
	for n := range 1 << 9 {
		bit := func(i int) bool { return n>>i&1 == 1 }
		g := Gate{
			Listed: bit(0), Learner: bit(1), Answers: bit(2), Mute: bit(3), Well: bit(4), Near: bit(5), VotersWell: bit(6), Verified: bit(7), Differs: bit(8),
		}
		got := g.Next()
		seen[got]++
		safe := g.Listed && g.Learner && g.Answers && g.Well && g.Near && g.VotersWell && g.Verified && !g.Differs
		if got == PromoteNow && !safe {
			t.Errorf("promoted: %+v", g)
		}
		bad := g.Verified && g.Differs && g.Learner
		if got == PromoteRefuse && !bad {
			t.Errorf("removed for its data: %+v", g)
		}
		if (got == PromoteGone) != !g.Listed || (got == PromoteDone) != (g.Listed && !g.Learner) {
			t.Errorf("%d: %+v", got, g)
		}
		if got == PromoteNudge && g.Answers {
			t.Errorf("given an entry, though it answers: %+v", g)
		}
	}
	for p := PromoteDone; p <= PromoteNow; p++ {
		if seen[p] == 0 {
			t.Errorf("no gate leads to %d", p)
		}
	}
}

// fakeCluster is a cluster of a leader "a", a follower "b" and the learner "c", which
// is the member of the directory under test.
type fakeCluster struct {
	list     admit.List
	status   map[types.ID]admit.Status
	mute     map[types.ID]int // how often a member does not answer yet
	hash     map[types.ID]admit.Hash
	asked    []int64 // the revisions that were hashed
	hashErr  error
	promote  []error // what each try gives; after them it works
	listErr  []error
	promoted bool
	agreed   int // how many endpoints list what is to be removed
	removed  []types.ID
	touched  int
}

const learnerID = types.ID(0xabcdef)

func newFakeCluster() *fakeCluster {
	f := &fakeCluster{
		list: admit.List{ClusterID: 0xc0ffee, Members: []admit.Member{
			{ID: 1, Name: "a", PeerURLs: []string{"http://a:2380"}, ClientURLs: []string{"http://a:2379"}},
			{ID: 2, Name: "b", PeerURLs: []string{"http://b:2380"}, ClientURLs: []string{"http://b:2379"}},
			{ID: learnerID, Name: "c", PeerURLs: []string{"http://c:2380"}, ClientURLs: []string{"http://c:2379"}, IsLearner: true},
		}},
		status: map[types.ID]admit.Status{}, mute: map[types.ID]int{}, hash: map[types.ID]admit.Hash{},
	}
	for _, m := range f.list.Members {
		f.status[m.ID] = admit.Status{MemberID: m.ID, Leader: 1, Version: "3.7.3", Term: 4, Committed: 9000, Applied: 9000, Revision: 5001, IsLearner: m.IsLearner}
		f.hash[m.ID] = admit.Hash{Hash: 7, CompactRevision: -1}
	}
	return f
}

func (f *fakeCluster) set(id types.ID, change func(*admit.Status)) {
	s := f.status[id]
	change(&s)
	f.status[id] = s
}

func next(list *[]error) (err error) {
	if len(*list) > 0 {
		err, *list = (*list)[0], (*list)[1:]
	}
	return err
}

func (f *fakeCluster) List(context.Context) (admit.List, error) {
	if err := next(&f.listErr); err != nil {
		return admit.List{}, err
	}
	return f.list, nil
}

func (f *fakeCluster) StatusOf(ctx context.Context, m admit.Member) (admit.Status, error) {
	if len(m.ClientURLs) == 0 {
		return admit.Status{}, &admit.Error{Reason: admit.Unreachable, What: "ask " + m.Name, Err: errors.New("no answer")}
	}
	return f.Status(ctx, m.ClientURLs[0])
}

func (f *fakeCluster) Status(_ context.Context, endpoint string) (admit.Status, error) {
	for _, m := range f.list.Members {
		if len(m.ClientURLs) == 0 || m.ClientURLs[0] != endpoint {
			continue
		}
		if f.mute[m.ID] > 0 {
			f.mute[m.ID]--
			break
		}
		return f.status[m.ID], nil
	}
	return admit.Status{}, &admit.Error{Reason: admit.Unreachable, What: "ask " + endpoint, Err: errors.New("no answer")}
}

func (f *fakeCluster) Promote(_ context.Context, id types.ID) error {
	if err := next(&f.promote); err != nil {
		return err
	}
	f.promoted = true
	for i := range f.list.Members {
		if f.list.Members[i].ID == id {
			f.list.Members[i].IsLearner = false
		}
	}
	return nil
}

func (f *fakeCluster) Remove(_ context.Context, id types.ID) error {
	f.removed = append(f.removed, id)
	return nil
}

func (f *fakeCluster) Touch(context.Context, admit.Member) error { f.touched++; return nil }

func (f *fakeCluster) AddLearner(context.Context, []string) (admit.Member, admit.List, error) {
	return admit.Member{}, admit.List{}, errors.New("a promotion adds nobody")
}

func (f *fakeCluster) Agreed(context.Context, admit.Member) int { return f.agreed }

func (*fakeCluster) Close() error { return nil }

func (f *fakeCluster) Hash(_ context.Context, m admit.Member, revision int64) (admit.Hash, error) {
	f.asked = append(f.asked, revision)
	if err := f.hashErr; err != nil {
		f.hashErr = nil
		return admit.Hash{}, err
	}
	return f.hash[m.ID], nil
}

// hasher has a Close of its own.
type hasher struct{ *fakeCluster }

func (hasher) Close() {}

// run promotes the learner of a directory that has joined f.
func (f *fakeCluster) run(ctx context.Context, t *testing.T, timeout time.Duration) (bool, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	joined := seed.Joined{ClusterID: 0xc0ffee}
	for _, m := range f.list.Members {
		member := seed.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.IsLearner}
		joined.Members = append(joined.Members, member)
		if m.ID == learnerID {
			joined.Self = member
		}
	}
	if joined.Self.ID == 0 { // it was removed before this run
		joined.Self = seed.Member{ID: learnerID, Name: "c", PeerURLs: []string{"http://c:2380"}, IsLearner: true}
		joined.Members = append(joined.Members, joined.Self)
	}
	plan, err := seed.NewJoiner(seed.Spec{DataDir: dir}, joined)
	if err == nil {
		err = plan.Apply(context.WithoutCancel(ctx), zap.NewNop())
	}
	if err != nil {
		t.Fatal(err)
	}
	changed, _, err := PromoteMember(ctx, Promotion{
		Etcd: &etcdconf.Config{DataDir: dir, ListenClientURLs: []string{"http://c:2379"}}, Wait: true, Timeout: timeout, Log: zap.NewNop(), OnWait: func(Wait) {},
		Admit: func([]string, rendezvous.DialFunc) (Promoter, error) { return f, nil },
		Peers: func() (Hasher, error) { return hasher{f}, nil },
	})
	return changed, err
}

// TestPromote: what a promotion meets, and how it ends.
func TestPromote(t *testing.T) {
	passes := func(r admit.Reason) error {
		return &admit.Error{Reason: r, What: "promote", Err: errors.New(r.String())}
	}
	for _, tt := range []struct {
		name    string
		arrange func(f *fakeCluster)
		status  exit.Status // 0: it votes
		words   string
	}{
		{"all is well", func(*fakeCluster) {}, 0, ""},
		{"it votes already", func(f *fakeCluster) { f.list.Members[2].IsLearner = false }, 0, ""},
		{"somebody else was faster", func(f *fakeCluster) {
			f.promote = []error{passes(admit.NotLearner)}
		}, 0, ""},
		{"not in sync for etcd yet", func(f *fakeCluster) { f.promote = []error{passes(admit.NotInSync), passes(admit.Unhealthy)} }, 0, ""},
		{"no quorum for a moment", func(f *fakeCluster) { f.listErr = []error{passes(admit.NoQuorum), passes(admit.Unreachable)} }, 0, ""},
		{"the peer port is not there yet", func(f *fakeCluster) { f.hashErr = passes(admit.Unreachable) }, 0, ""},
		{"removed", func(f *fakeCluster) { f.list.Members = f.list.Members[:2] }, exit.Unsafe, "is not listed by cluster c0ffee"},
		{"another cluster answers", func(f *fakeCluster) { f.list.ClusterID = 9 }, exit.Unsafe, "cluster 9 answers"},
		{"no access", func(f *fakeCluster) { f.listErr = []error{passes(admit.Denied)} }, exit.Config, "ETCDINIT_USER"},
		{"a voter is down", func(f *fakeCluster) { f.mute[2] = 1 << 20 }, exit.Disagree, "no answer"},
		{"an alarm", func(f *fakeCluster) { f.set(2, func(s *admit.Status) { s.Errors = []string{"alarm:NOSPACE"} }) }, exit.Disagree, "b says: alarm:NOSPACE"},
		{"no leader", func(f *fakeCluster) {
			for _, id := range []types.ID{1, 2} {
				f.set(id, func(s *admit.Status) { s.Leader = 0 })
			}
		}, exit.Disagree, "no leader"},
		{"it lags behind", func(f *fakeCluster) { f.set(learnerID, func(s *admit.Status) { s.Applied, s.Revision = 8000, 4001 }) }, exit.Disagree, "has applied entry 8000 of 9000"},
		{"it is in an older term", func(f *fakeCluster) { f.set(learnerID, func(s *admit.Status) { s.Term = 3 }) }, exit.Disagree, "in term 3 of 4"},
		{"other keys", func(f *fakeCluster) { f.hash[learnerID] = admit.Hash{Hash: 8, CompactRevision: -1} }, exit.Differs, "the hash of its keys is 8"},
		// An empty member has applied all entries of a log that seems to begin with the
		// restored database, and hashes like the others at its own revision, 1.
		{"no keys at all", func(f *fakeCluster) { f.set(learnerID, func(s *admit.Status) { s.Revision = 1 }) }, exit.Differs, "is at revision 1 instead of 5001"},
		{"another compaction", func(f *fakeCluster) { f.hash[learnerID] = admit.Hash{Hash: 7, CompactRevision: 12} }, exit.Disagree, "a compaction is under way"},
		{"a voter is down when keys are compared", func(f *fakeCluster) {
			f.hash[learnerID] = admit.Hash{Hash: 8, CompactRevision: -1}
			f.hashErr = passes(admit.Unreachable)
		}, exit.Differs, "the hash of its keys is 8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeCluster()
			tt.arrange(f)
			voted := !f.list.Members[len(f.list.Members)-1].IsLearner
			changed, err := f.run(t.Context(), t, time.Second)
			if got := exit.Of(err); got != tt.status || !strings.Contains(fmt.Sprint(err), tt.words) {
				t.Fatalf("status %d, %v; want %d, %q", got, err, tt.status, tt.words)
			}
			if f.promoted != (tt.status == 0 && !voted) || changed != f.promoted {
				t.Errorf("promoted %t, changed %t", f.promoted, changed)
			}
			if want := tt.status == exit.Differs; (len(f.removed) == 1 && f.removed[0] == learnerID) != want {
				t.Errorf("removed %v", f.removed)
			}
			for _, revision := range f.asked {
				if revision != 5001 {
					t.Errorf("hashed at revision %d, and not at the voter's", revision)
				}
			}
		})
	}
}

// TestPromoteNudge: a learner that does not come up on an idle cluster gets an entry.
func TestPromoteNudge(t *testing.T) {
	f := newFakeCluster()
	f.mute[learnerID] = 20
	if _, err := f.run(t.Context(), t, 30*time.Second); err != nil || f.touched == 0 {
		t.Errorf("%v, %d entries", err, f.touched)
	}
}

// TestPromoteInterrupted: a signal is no refusal.
func TestPromoteInterrupted(t *testing.T) {
	f := newFakeCluster()
	f.mute[1] = 1 << 20
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("interrupted")) })
	if _, err := f.run(ctx, t, 0); err == nil || !strings.Contains(err.Error(), "interrupted while waiting for a promotion") {
		t.Errorf("%v", err)
	}
}
