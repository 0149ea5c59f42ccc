package seed_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdinit/etcdinit/internal/birth"
	"github.com/etcdinit/etcdinit/seed"
)

// freeURL is a URL on loopback that nobody listens on.
func freeURL(tb testing.TB) string {
	tb.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return "http://" + l.Addr().String()
}

// listen points an embedded server at its two URLs.
func listen(tb testing.TB, cfg *embed.Config, peer, client string) {
	tb.Helper()
	p, err := url.Parse(peer)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := url.Parse(client)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*p}, []url.URL{*p}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*c}, []url.URL{*c}
	discard(cfg)
}

// start boots an embedded server that is told what the handoff would tell it:
// its name and URLs, and that the cluster exists. It has no initial-cluster.
func start(t *testing.T, dir, wal, name, peer, client string) *embed.Etcd {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.WalDir, cfg.Name = dir, wal, name
	cfg.InitialCluster, cfg.ClusterState = "", embed.ClusterStateFlagExisting
	listen(t, cfg, peer, client)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e
	case <-time.After(30 * time.Second):
		e.Close()
		t.Fatal("etcd was not ready within 30 s")
	}
	return nil
}

// TestBoot starts an etcd on a seed, writes, restarts, and reads.
func TestBoot(t *testing.T) {
	for _, tc := range []struct {
		name     string
		separate bool
	}{
		{name: "one directory"},
		{name: "separate wal-dir", separate: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, wal := t.TempDir(), ""
			if tc.separate {
				wal = t.TempDir()
			}
			peer, client := freeURL(t), freeURL(t)
			p := mustApply(t, seed.Spec{
				DataDir: dir, WALDir: wal, Token: "boot", Self: "solo",
				Members: []seed.Member{{Name: "solo", PeerURLs: []string{peer}, ClientURLs: []string{client}}},
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()

			e := start(t, dir, wal, "solo", peer, client)
			if e.Server.MemberID() != p.MemberID || e.Server.Cluster().ID() != p.ClusterID {
				t.Errorf("etcd is %s of %s, planned %s of %s", e.Server.MemberID(), e.Server.Cluster().ID(), p.MemberID, p.ClusterID)
			}
			if _, err := e.Server.Put(ctx, &etcdserverpb.PutRequest{Key: []byte("k"), Value: []byte("v")}); err != nil {
				t.Fatal(err)
			}
			if _, err := seed.Inspect(dir, wal); kindOf(err) != seed.Busy {
				t.Errorf("Inspect beside a running etcd: %v, want Busy", err)
			}
			e.Close()

			st, err := seed.Verify(dir, wal, true)
			if err != nil {
				t.Fatal(err)
			}
			if st.Pristine || st.Kind != seed.Valid || st.Self == nil || st.Self.Name != "solo" {
				t.Errorf("after etcd has run: %+v", st)
			}

			e = start(t, dir, wal, "solo", peer, client)
			defer e.Close()
			got, err := e.Server.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("k")})
			if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" {
				t.Errorf("after a restart: %v, %v", got, err)
			}
		})
	}
}

// TestBootTrio starts three servers together that were born with one cluster ID,
// which no etcd would compute, and lets them elect.
func TestBootTrio(t *testing.T) {
	var members []seed.Member
	for i := range 3 {
		members = append(members, seed.Member{
			Name: fmt.Sprint("m", i), PeerURLs: []string{freeURL(t)}, ClientURLs: []string{freeURL(t)},
		})
	}
	type boot struct {
		e   *embed.Etcd
		err error
	}
	booted := make(chan boot)
	var plans []*seed.Plan
	var seats []seed.Seat
	for _, m := range members {
		spec := seed.Spec{DataDir: t.TempDir(), Token: "trio", Self: m.Name, Members: members}
		p := mustPlan(t, spec)
		plans = append(plans, p)
		seats = append(seats, seed.Seat{Member: p.MemberID.String(), Disk: mustPrepare(t, spec)})
	}
	roster := birth.Sort(seats)
	for i, m := range members {
		dir := plans[i].DataDir
		if err := plans[i].Born(roster, true).Apply(t.Context(), nop); err != nil {
			t.Fatal(err)
		}
		st, err := seed.Inspect(dir, "")
		if err == nil {
			err = seed.Release(st)
		}
		if err != nil {
			t.Fatal(err)
		}
		cfg := embed.NewConfig()
		cfg.Dir, cfg.Name, cfg.InitialCluster, cfg.ClusterState = dir, m.Name, "", embed.ClusterStateFlagExisting
		listen(t, cfg, m.PeerURLs[0], m.ClientURLs[0])
		go func() {
			e, err := embed.StartEtcd(cfg)
			booted <- boot{e, err}
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var servers []*embed.Etcd
	for range members {
		b := <-booted
		if b.err != nil {
			t.Fatal(b.err)
		}
		t.Cleanup(b.e.Close)
		servers = append(servers, b.e)
	}
	for _, e := range servers {
		select {
		case <-e.Server.ReadyNotify():
		case <-ctx.Done():
			t.Fatalf("%s was not ready within 30 s", e.Config().Name)
		}
	}
	if _, err := servers[0].Server.Put(ctx, &etcdserverpb.PutRequest{Key: []byte("k"), Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	for _, e := range servers {
		got, err := e.Server.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("k")})
		if err != nil || len(got.Kvs) != 1 {
			t.Errorf("%s: %v, %v", e.Config().Name, got, err)
		}
		if id := e.Server.Cluster().ID(); uint64(id) != roster.ClusterID(plans[0].Digest()) || id == plans[0].ClusterID {
			t.Errorf("%s is of cluster %s", e.Config().Name, id)
		}
		if n := len(e.Server.Cluster().Members()); n != 3 {
			t.Errorf("%s knows %d members", e.Config().Name, n)
		}
	}
}
