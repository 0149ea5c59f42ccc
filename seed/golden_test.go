package seed_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed"
)

// update rewrites the golden files: `tools/build etcd-3.7`, then
// `go test ./seed -run StockWAL -update`.
var update = flag.Bool("update", false, "write the golden files with the etcd of .cache/tools")

const firstSegment = "0000000000000000-0000000000000000.wal"

// trio is the cluster that the golden files were made for.
func trio(dir, self string) seed.Spec {
	return seed.Spec{
		DataDir: dir,
		Token:   "tok",
		Self:    self,
		Members: []seed.Member{
			{Name: "m1", PeerURLs: []string{"http://127.0.0.1:23801"}, ClientURLs: []string{"http://127.0.0.1:23791"}},
			{Name: "m2", PeerURLs: []string{"http://127.0.0.1:23802"}, ClientURLs: []string{"http://127.0.0.1:23792"}},
			{Name: "m3", PeerURLs: []string{"http://127.0.0.1:23803"}, ClientURLs: []string{"http://127.0.0.1:23793"}},
		},
	}
}

func mustPlan(tb testing.TB, spec seed.Spec) *seed.Plan {
	tb.Helper()
	p, err := seed.New(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func mustApply(tb testing.TB, spec seed.Spec) *seed.Plan {
	tb.Helper()
	p := mustPlan(tb, spec)
	if err := p.Apply(tb.Context(), zap.NewNop()); err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestIDs holds the IDs against those that real etcd servers gave themselves.
func TestIDs(t *testing.T) {
	p := mustPlan(t, trio(t.TempDir(), "m1"))
	if want := types.ID(0x4036b1db24775ea0); p.MemberID != want {
		t.Errorf("member ID %s, want %s", p.MemberID, want)
	}
	if want := types.ID(0x64d937c925e41b58); p.ClusterID != want {
		t.Errorf("cluster ID %s, want %s", p.ClusterID, want)
	}
}

// TestStockWAL compares the log with the one that a stock etcd 3.7 wrote for the
// same members, to the last byte of its preallocated length.
func TestStockWAL(t *testing.T) {
	golden := filepath.Join("testdata", "etcd-3.7.wal.golden")
	if *update {
		if err := os.WriteFile(golden, bytes.TrimRight(stockWAL(t), "\x00"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mustApply(t, trio(dir, "m1"))
	got, err := os.ReadFile(filepath.Join(dir, "member", "wal", firstSegment))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 64_000_000 {
		t.Errorf("segment is %d bytes, stock etcd makes it 64000000", len(got))
	}
	if trimmed := bytes.TrimRight(got, "\x00"); !bytes.Equal(trimmed, want) {
		t.Errorf("log differs from the stock one at byte %d:\ngot  %q\nwant %q", firstDifference(trimmed, want), trimmed, want)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "member", "wal"))
	if err != nil || len(entries) != 1 {
		t.Errorf("wal holds %v, %v; want the one segment", entries, err)
	}
}

// stockWAL starts the etcd of .cache/tools as m1 and returns its first segment.
func stockWAL(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, filepath.Join("..", ".cache", "tools", "etcd-3.7", "etcd"),
		"--name=m1", "--data-dir="+dir, "--initial-cluster-token=tok",
		"--initial-cluster=m1=http://127.0.0.1:23801,m2=http://127.0.0.1:23802,m3=http://127.0.0.1:23803",
		"--listen-peer-urls=http://127.0.0.1:23801", "--initial-advertise-peer-urls=http://127.0.0.1:23801",
		"--listen-client-urls=http://127.0.0.1:23791", "--advertise-client-urls=http://127.0.0.1:23791")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		if werr := cmd.Wait(); werr == nil {
			t.Error("etcd ended by itself")
		}
	}()
	return waitForWAL(t, filepath.Join(dir, "member", "wal", firstSegment), "\x08\x01\x10\x00\x18\x03")
}

// waitForWAL returns a segment once it holds the bootstrap's state record: alone,
// a member of three never gets beyond asking for votes that nobody gives.
func waitForWAL(t *testing.T, path, state string) []byte {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(state)) {
			return data
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("etcd wrote no bootstrap state within 20 s")
	return nil
}

// TestEmbeddedWAL compares with what the etcd of our own go.mod writes, now: up to
// the vote that follows the bootstrap. (An embedded server that has no quorum
// cannot be closed, so it has one member.)
func TestEmbeddedWAL(t *testing.T) {
	peer, client := freeURL(t), freeURL(t)
	spec := seed.Spec{
		DataDir: t.TempDir(), Token: "live", Self: "a",
		Members: []seed.Member{
			{Name: "a", PeerURLs: []string{peer}},
		},
	}
	p := mustApply(t, spec)

	cfg := embed.NewConfig()
	cfg.Dir, cfg.Name = t.TempDir(), "a"
	cfg.InitialClusterToken = "live"
	cfg.InitialCluster = "a=" + peer
	listen(t, cfg, peer, client)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if got := e.Server.MemberID(); got != p.MemberID {
		t.Errorf("etcd gives itself the ID %s, we gave it %s", got, p.MemberID)
	}
	if got := e.Server.Cluster().ID(); got != p.ClusterID {
		t.Errorf("etcd gives the cluster the ID %s, we gave it %s", got, p.ClusterID)
	}
	want := bytes.TrimRight(waitForWAL(t, filepath.Join(cfg.Dir, "member", "wal", firstSegment), "\x08\x01\x10\x00\x18\x01"), "\x00")
	full, err := os.ReadFile(filepath.Join(spec.DataDir, "member", "wal", firstSegment))
	if err != nil {
		t.Fatal(err)
	}
	got := bytes.TrimRight(full, "\x00")
	if len(want) < len(got) || !bytes.Equal(got, want[:len(got)]) {
		t.Errorf("log differs from etcd's at byte %d:\ngot  %q\nwant %q", firstDifference(got, want), got, want)
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func discard(cfg *embed.Config) {
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
}
