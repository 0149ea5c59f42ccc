package agent

import (
	"context"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

func wantWarning(t *testing.T, res *Result, words ...string) {
	t.Helper()
	text := strings.Join(res.Warnings, "\n")
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in the warnings %q", w, res.Warnings)
		}
	}
}

// TestRecordsOfData: what discovery says of a directory with data.
func TestRecordsOfData(t *testing.T) {
	t.Parallel()
	nobody := func(t *testing.T) *node { // the records name nobody here
		t.Helper()
		n := released(t)
		n.dns("m1", n.lab.ip(9))
		return n
	}
	t.Run("this member", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		res := n.start(t).ok()
		if res.Action != Kept || len(res.Warnings) > 0 || strings.Contains(res.Message, "DNS not used") {
			t.Errorf("%+v", res)
		}
	})
	t.Run("another member", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.dns("m1", n.lab.ip(9))
		n.dns("m2", n.ip)
		before := tree(t, n.data)
		n.start(t).refused(exit.Foreign, "foreign-data", "belongs to m1", "this node is m2", "attach the volume (PVC) of m2")
		if tree(t, n.data) != before {
			t.Error("the data have changed")
		}
	})
	t.Run("another member, from an old cache", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.ttl = time.Second
		n.dns("m1", n.lab.ip(9))
		n.dns("m2", n.ip)
		r := n.start(t)
		r.sees("stale records to expire", "the records name m2 for this address, the data are m1's")
		n.dns("m1", n.ip)
		n.dns("m2", n.lab.ip(2))
		r.ok()
	})
	t.Run("the same name at another address", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		other := newLab(t, 0)
		other.subnet, other.port = n.subnet, n.port+1
		for _, name := range n.names {
			other.dns(name, n.addrs[name])
		}
		n.lab = other
		n.start(t).refused(exit.Foreign, "foreign-data", "etcdctl member update", "if the volume (PVC) is left from an earlier cluster")
	})
	t.Run("nobody, and nobody is there", func(t *testing.T) {
		t.Parallel()
		n := nobody(t)
		res := n.start(t).ok()
		if res.Action != Kept {
			t.Errorf("%+v", res)
		}
		wantWarning(t, res, "discovery does not agree with the data that are here, which are kept", "no peer has a local address")
	})
	t.Run("nobody, and this member runs elsewhere", func(t *testing.T) {
		t.Parallel()
		n := nobody(t)
		cluster := n.state(t).ClusterID.String()
		n.serve(t, n.lab.ip(9), fakeEtcd(cluster, func() []listed { return n.list(t, "m1", "m2") }))
		n.start(t).refused(exit.Foreign, "disk-copied", "an etcd of its cluster "+cluster, n.lab.ip(9), "this is a copy of its disk, or two machines are this member")
	})
	t.Run("nobody, and another run of this member is there", func(t *testing.T) {
		t.Parallel()
		n := nobody(t)
		n.serve(t, n.lab.ip(9), fakeAgent(fixedAnswer(n.boundAnswer(t, rendezvous.Committed, n.state(t).Record.Roster, "another run"))))
		n.start(t).refused(exit.Foreign, "disk-copied", "another run of etcdinit with this member's ID")
	})
	t.Run("nobody, and an etcd of another cluster is there", func(t *testing.T) {
		t.Parallel()
		n := nobody(t)
		n.serve(t, n.lab.ip(9), fakeEtcd("c9", func() []listed { return n.list(t, "m1", "m2") }))
		res := n.start(t).ok()
		wantWarning(t, res, "at this member's own URL: running")
	})
	t.Run("not usable", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.breakDNS("m1", &discovery.Error{Kind: discovery.Unusable, Msg: "two peers have one name"})
		res := n.start(t).ok()
		wantWarning(t, res, "which are kept: two peers have one name")
		if !strings.Contains(res.Message, "DNS not used") {
			t.Error(res.Message)
		}
	})
	t.Run("a plugin that does not know", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.start(t, func(c *Config) { c.Source = "gone:x" }).refused(exit.Config, "", "unknown scheme")
	})
	t.Run("more members", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.dns("m4", n.lab.ip(4))
		n.dns("m5", n.lab.ip(5))
		wantWarning(t, n.start(t).ok(), "stored 3 members, discovered 5", "+m4=", "member add (--learner)")
	})
	t.Run("fewer members", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.forget("m3")
		wantWarning(t, n.start(t).ok(), "stored 3 members, discovered 2", "-m3=")
	})
	t.Run("another configuration", func(t *testing.T) {
		t.Parallel()
		n := released(t)
		n.flags = append(n.flags, etcdFlag("name", "other"), etcdFlag("advertise-client-urls", "http://192.0.2.1:2379"))
		res := n.start(t).ok()
		wantWarning(t, res, `name is "other"`, "the stored value is used")
		if got := res.Handoff.AdvertiseClientURLs; !slices.Equal(got, []string{"http://192.0.2.1:2379"}) {
			t.Errorf("client URLs are %q, want those of the configuration", got)
		}
	})
}

// TestToken: another token is a refusal while the seed is pending, and a warning
// with both names afterwards, with and without DNS.
func TestToken(t *testing.T) {
	t.Parallel()
	t.Run("pending", func(t *testing.T) {
		t.Parallel()
		_, nodes, _ := pendingTrio(t, 1)
		n := nodes[0]
		n.flags = append(n.flags, etcdFlag("initial-cluster-token", "another"))
		n.start(t).refused(exit.Foreign, "another-token", labToken, "another", "set the token back", "mv "+n.data+"/member ")
		if !n.state(t).Pending {
			t.Error("the seed has changed")
		}
	})
	for _, dns := range []bool{true, false} {
		t.Run(map[bool]string{true: "released", false: "released, without DNS"}[dns], func(t *testing.T) {
			t.Parallel()
			n := released(t)
			if !dns {
				n.breakDNS("m1", &discovery.Error{Kind: discovery.Retry, Msg: "no DNS"})
			}
			n.flags = append(n.flags, etcdFlag("initial-cluster-token", "another"))
			res := n.start(t).ok()
			wantWarning(t, res, "initial-cluster-token is another, the data were made for "+labToken)
			if res.Action != Kept || len(res.Warnings) != 1 {
				t.Errorf("%+v", res)
			}
		})
	}
}

// vote lets a log say that its member has voted: an etcd has run on it.
func (n *node) vote(t *testing.T) {
	t.Helper()
	w, err := wal.Open(zap.NewNop(), filepath.Join(n.data, "member", "wal"), &walpb.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := w.ReadAll(); err != nil {
		t.Fatal(err)
	}
	if err := w.Save(&raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(7)), Commit: new(uint64(3))}, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEtcdHasRun: a pending seed on which somebody has started etcd is kept, with
// a warning in the report, and its mark goes.
func TestEtcdHasRun(t *testing.T) {
	t.Parallel()
	_, nodes, _ := pendingTrio(t, 1)
	n := nodes[0]
	n.vote(t)
	dry, err := Init(t.Context(), n.config(t), true)
	if err != nil || dry.Action != WouldKeep || !n.state(t).Pending {
		t.Errorf("dry run: %+v, %v, pending: %t", dry, err, n.state(t).Pending)
	}
	res := n.start(t).ok()
	wantWarning(t, res, "was not released, yet an etcd has run on it", "is etcd started before this program is done?")
	if s := n.state(t); res.Action != Kept || s.Pending || s.Pristine {
		t.Errorf("%+v, pending: %t", res, s.Pending)
	}
	again := n.start(t).ok()
	if len(again.Warnings) > 0 {
		t.Errorf("told again: %q", again.Warnings)
	}
}

// first makes of an empty directory a pending seed of the first edition.
func (n *node) first(t *testing.T) {
	t.Helper()
	if err := n.plan(t).Apply(t.Context(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	member := filepath.Join(n.data, "member")
	if err := os.Remove(filepath.Join(member, "etcdinit-seed.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(member, "etcdinit-pending"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFirstEdition: a pending seed of the first edition is released by an etcd of
// its own cluster only.
func TestFirstEdition(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (n *node, cluster string) {
		t.Helper()
		n = newLab(t, 3).node(t, "m1")
		n.first(t)
		s := n.state(t)
		if !s.Pending || s.Record != nil {
			t.Fatalf("not a seed of the first edition: %+v", s)
		}
		return n, s.ClusterID.String()
	}
	t.Run("nobody is there", func(t *testing.T) {
		t.Parallel()
		n, _ := begin(t)
		r := n.start(t, limit(4*time.Second))
		r.sees("1 of 3 members ready, awaiting", "m2 (silent)", "m3 is silent")
		r.refused(exit.Disagree, "first-edition-seed", "an earlier version of etcdinit has made it", "m2 is silent", "mv "+n.data+"/member "+n.data+"/member.first-edition")
		if !n.state(t).Pending {
			t.Error("it was released")
		}
	})
	t.Run("an etcd lists it as not started, twice", func(t *testing.T) {
		t.Parallel()
		n, cluster := begin(t)
		n.serve(t, n.lab.ip(2), fakeEtcd(cluster, func() []listed { return n.list(t, "m2") }))
		began := time.Now()
		if res := n.start(t).ok(); res.Action != Kept {
			t.Errorf("%+v", res)
		}
		if took := time.Since(began); took < time.Second {
			t.Errorf("released after %v: the two looks must be a second apart", took)
		}
		if n.state(t).Pending {
			t.Error("still pending")
		}
	})
	t.Run("an etcd lists it as started", func(t *testing.T) {
		t.Parallel()
		n, cluster := begin(t)
		n.serve(t, n.lab.ip(2), fakeEtcd(cluster, func() []listed { return n.list(t, "m1", "m2") }))
		n.start(t).refused(exit.Unsafe, "disk-copied", "has already run and published itself")
		if !n.state(t).Pending {
			t.Error("it was released")
		}
	})
	t.Run("nobody is asked", func(t *testing.T) {
		t.Parallel()
		n, _ := begin(t)
		if res := n.start(t, none).ok(); res.Action != Kept || n.state(t).Pending {
			t.Errorf("%+v", res)
		}
	})
	t.Run("another token", func(t *testing.T) {
		t.Parallel()
		n, _ := begin(t)
		n.flags = append(n.flags, etcdFlag("initial-cluster-token", "another"))
		n.start(t).refused(exit.Foreign, "another-token", "the initial-cluster-token another one, and the configuration says another")
	})
}

func none(c *Config) { c.Quorum = QuorumNone }

// TestNobodyAsked: --bootstrap-quorum=none.
func TestNobodyAsked(t *testing.T) {
	t.Parallel()
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 3).node(t, "m1")
		res := n.start(t, none).ok()
		wantWarning(t, res, "no peer is asked", "NOT recognised")
		if s := n.state(t); res.Action != Seeded || s.Pending || s.Record.Kind != seed.RecordComputed || s.ClusterID != n.plan(t).ClusterID {
			t.Errorf("%+v, %+v", res, s)
		}
	})
	t.Run("empty, with the default token", func(t *testing.T) {
		t.Parallel()
		n := newLab(t, 2).node(t, "m1")
		n.flags = append(n.flags, etcdFlag("initial-cluster-token", "etcd-cluster"))
		wantWarning(t, n.start(t, none).ok(), "initial-cluster-token is the default", "even number of members (2)")
	})
	t.Run("pending", func(t *testing.T) {
		t.Parallel()
		_, nodes, _ := pendingTrio(t, 1)
		n := nodes[0]
		n.start(t, none).refused(exit.Config, "pending", "bound to 3 disks and not released", "etcdinit withdraw --data-dir "+n.data)
		if !n.state(t).Pending {
			t.Error("released")
		}
	})
}

// TestExisting: initial-cluster-state existing is never a reason for a fresh seed.
func TestExisting(t *testing.T) {
	t.Parallel()
	n := newLab(t, 3).node(t, "m1")
	n.flags = append(n.flags, etcdFlag("initial-cluster-state", "existing"))
	n.start(t).refused(exit.Unsafe, "initial-cluster-state-existing", "refusing to seed", "member add --learner")
	r := released(t)
	r.flags = append(r.flags, etcdFlag("initial-cluster-state", "existing"))
	r.start(t).ok()
}

// TestPackageDefault: the one-member cluster of a distribution's package is told
// by name.
func TestPackageDefault(t *testing.T) {
	t.Parallel()
	n := newLab(t, 3).node(t, "m1")
	plan, err := seed.New(seed.Spec{
		DataDir: n.data, Token: "etcd-cluster", Self: "default",
		Members: []seed.Member{{Name: "default", PeerURLs: []string{"http://localhost:2380"}, ClientURLs: []string{"http://localhost:2379"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(t.Context(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{3, 0} {
		r := n.start(t, func(c *Config) { c.Size = size; c.Registry = sized(n) })
		r.refused(exit.Foreign, "package-default", "that etcdinit seeded", "3-member cluster", "mv "+n.data)
	}
	// A package's etcd leaves no record.
	if err := os.Remove(filepath.Join(n.data, "member", "etcdinit-seed.json")); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{3, 0} {
		r := n.start(t, func(c *Config) { c.Size = size; c.Registry = sized(n) })
		r.refused(exit.Foreign, "package-default", "that the etcd package started", "3-member cluster", "systemctl stop etcd\nmv "+n.data)
	}
}

type sizedSource struct{ labSource }

func (sizedSource) Sized() bool { return true }

// sized is the lab's source as one that knows how many members there are.
func sized(n *node) discovery.Registry {
	return discovery.Registry{"lab": func(_ *url.URL, _ discovery.Env) (discovery.Provider, error) {
		return sizedSource{labSource{n.lab, n.asker}}, nil
	}}
}

// growing is a source that gives a part of the set, then all of it.
type growing struct {
	part, whole []discovery.Peer
	asked       int
}

func (g *growing) Discover(context.Context) ([]discovery.Peer, error) {
	g.asked++
	if g.asked < 3 {
		return nil, &discovery.Error{Kind: discovery.Retry, Msg: "not yet", Seen: g.part}
	}
	return g.whole, nil
}

// TestGlimpse: a restart is patient only while its own record may still come.
func TestGlimpse(t *testing.T) {
	t.Parallel()
	peer := func(name, ip string) discovery.Peer {
		return discovery.Peer{Name: name, Host: name + ".example.org", Port: 2380, Addrs: []netip.Addr{netip.MustParseAddr(ip)}, PeerURLs: []string{"http://" + name + ".example.org:2380"}}
	}
	me, other, third := peer("m1", "192.0.2.1"), peer("m2", "192.0.2.2"), peer("m3", "192.0.2.3")
	for _, tt := range []struct {
		name    string
		part    []discovery.Peer
		patient bool
		asked   int
	}{
		{"nothing is there", nil, true, 1},
		{"another's is missing", []discovery.Peer{me, other}, true, 1},
		{"its own is missing", []discovery.Peer{other, third}, true, 3},
		{"its own is missing, and others wait for it", []discovery.Peer{other, third}, false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := &growing{part: tt.part, whole: []discovery.Peer{me, other, third}}
			a := newAgent(Config{Etcd: &etcdconf.Config{}, Log: zap.NewNop(), Size: 3, SelfIP: me.Addrs[0]})
			found, err := a.glimpse(t.Context(), g, tt.patient)
			if g.asked != tt.asked || (err == nil) != (tt.asked == 3) {
				t.Fatalf("asked %d times, want %d: %v", g.asked, tt.asked, err)
			}
			if err == nil && (found.Peer().Name != "m1" || found.Addr != me.Addrs[0]) {
				t.Errorf("it is %s at %s", found.Peer().Name, found.Addr)
			}
		})
	}
}
