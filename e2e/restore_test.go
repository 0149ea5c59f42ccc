//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// minors are the etcds that the tool has to serve, the oldest first. A usual run takes
// those that are given; the stage matrix takes all.
func minors(usual ...string) []string {
	if os.Getenv("ETCDINIT_E2E_MATRIX") == "" {
		return usual
	}
	return []string{"3.4", "3.5", "3.6", "3.7"}
}

// taken is a snapshot that an etcd of some minor has saved, and what is in it.
type taken struct {
	path     string
	version  string
	revision int64
	hash     uint32 // of the keys at that revision
}

// content is what the cluster of TestRestore writes before its snapshot is taken.
const restoredKeys = 200

// takeSnapshot runs one etcd, writes keys, a lease, a user, and compacts.
func takeSnapshot(t *testing.T, version string) taken {
	t.Helper()
	c := newCluster(t, shape{size: 1, family: "4"})
	c.CoreDNS(c.dns, c.zone)
	c.init()
	procs := c.start(version)
	h := c.hosts[0]
	lease := strings.Fields(h.Etcdctl("lease", "grant", "36000"))[1]
	h.Etcdctl("put", "leased", "kept", "--lease="+lease)
	var old int64
	for i := range restoredKeys {
		h.Put("key"+strconv.Itoa(i%50), "value"+strconv.Itoa(i))
		if i == 20 {
			old = c.SameHash(h)
		}
	}
	h.Etcdctl("compact", strconv.FormatInt(old, 10))
	h.Etcdctl("user", "add", "root:secret")
	h.Etcdctl("snapshot", "save", "snap.db")
	s := taken{path: filepath.Join(t.TempDir(), "snap.db"), version: version, revision: c.SameHash(h)}
	data := h.Read("snap.db")
	if err := os.WriteFile(s.path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	s.hash = hashKV(t, h, s.revision)
	for _, p := range procs {
		p.Kill()
	}
	return s
}

// wantEnd checks how a run ended, and what it said.
func wantEnd(t *testing.T, res lab.Result, status int, words ...string) {
	t.Helper()
	if res.Status != status {
		t.Errorf("status %d, want %d: %s%s", res.Status, status, res.Stdout, res.Stderr)
	}
	wantAll(t, "the output", res.Stdout+res.Stderr, words...)
}

// hashKV is the hash of a host's keys at a revision.
func hashKV(t *testing.T, h *lab.Host, revision int64) uint32 {
	t.Helper()
	var answer []struct {
		HashKV struct {
			Hash uint32 `json:"hash"`
		} `json:"HashKV"`
	}
	out := h.Etcdctl("endpoint", "hashkv", "--rev", strconv.FormatInt(revision, 10), "-w", "json")
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	return answer[0].HashKV.Hash
}

// TestRestore: three members with empty disks are born with the content of a snapshot of
// each minor, at once, by the command that gives birth without one; then one more joins.
func TestRestore(t *testing.T) {
	snapshots, all := map[string]taken{}, minors("3.6", "3.7")
	for _, version := range all {
		snapshots[version] = takeSnapshot(t, version)
	}
	for i, of := range all {
		for j, version := range all {
			s := snapshots[of]
			t.Run(of+" by "+version, func(t *testing.T) {
				switch {
				case i > j:
					c := newCluster(t, shape{size: 1, family: "4"})
					c.CoreDNS(c.dns, c.zone)
					res := c.hosts[0].Run(etcdinit, c.initArgs("--restore-snapshot", s.path, "--etcd-version", version+".0")...)
					wantEnd(t, res, 20, "was taken of etcd "+of, "does not read what is newer")
					return
				case i+1 < j:
					c := newCluster(t, shape{size: 1, family: "4"})
					c.CoreDNS(c.dns, c.zone)
					res := c.hosts[0].Run(etcdinit, c.initArgs("--restore-snapshot", s.path, "--etcd-version", version+".0")...)
					wantEnd(t, res, 20, "was taken of etcd "+of, "then upgrade")
					return
				}
				if i == j || len(all) > 2 {
					restores(t, s, version, 0)
				}
				if i != j || len(all) > 2 {
					restores(t, s, version, 1_000_000)
				}
			})
		}
	}
}

func restores(t *testing.T, s taken, version string, bump int64) {
	t.Helper()
	c := newCluster(t, shape{size: 4, family: "4"})
	all := c.hosts
	c.hosts, c.shape.size = all[:3], 3
	c.zone = c.records()
	c.CoreDNS(c.dns, c.zone)
	args := []string{"--restore-snapshot", s.path, "--restore-bump-revision", strconv.FormatInt(bump, 10), "--etcd-version", version + ".0", "--if-running", "join"}
	start := time.Now()
	c.Each(c.hosts, func(h *lab.Host) {
		res := h.Run(etcdinit, c.initArgs(args...)...)
		wantEnd(t, res, 0, "born with the content of the snapshot "+s.path)
	})
	t.Logf("%s by %s, bump %d: seeded after %v", s.version, version, bump, time.Since(start).Round(time.Millisecond))
	c.hosts[0].MustRun(etcdinit, "verify", "--deep", "--size", "3", "--config-file", "etcd.yaml")
	c.start(version)
	if got := c.SameHash(c.hosts...); got != s.revision+bump {
		t.Errorf("revision %d, want %d and %d more", got, s.revision, bump)
	}
	if bump == 0 {
		if got := hashKV(t, c.hosts[1], s.revision); got != s.hash {
			t.Errorf("hash %d, the source's is %d", got, s.hash)
		}
	} else {
		res := c.hosts[1].TryEtcdctl("get", "key1", "--rev", strconv.FormatInt(s.revision, 10))
		if !strings.Contains(res.Stderr, "required revision has been compacted") {
			t.Errorf("a read of an old revision: %+v", res)
		}
		res = c.hosts[1].TryEtcdctl("watch", "key1", "--rev", strconv.FormatInt(s.revision-1, 10))
		if !strings.Contains(res.Stdout+res.Stderr, "compacted") {
			t.Errorf("a watch from an old revision: %+v", res)
		}
	}
	if got := c.hosts[2].Get("key7"); got != "value157" {
		t.Errorf("key7 is %q", got)
	}
	if out := c.hosts[0].Etcdctl("lease", "list"); !strings.Contains(out, "found 1 leases") {
		t.Errorf("leases: %s", out)
	}
	if out := c.hosts[0].Etcdctl("user", "list"); strings.TrimSpace(out) != "root" {
		t.Errorf("users: %s", out)
	}
	c.hosts[0].Put("after", "the restore")
	time.Sleep(5 * time.Second) // etcd changes no members of a cluster that is younger
	c.hosts, c.shape.size = all, 4
	c.zone = c.records()
	c.UpdateCoreDNS(c.dns, c.zone)
	joiner := all[3]
	joiner.MustRun(etcdinit, c.initArgs(args...)...)
	joiner.Etcd(version, "--config-file", "run.yaml")
	joiner.MustRun(etcdinit, "promote", "--wait", "--timeout", "30s", "--config-file", "etcd.yaml")
	c.Healthy(all...)
	c.SameHash(all...)
	if got := joiner.Get("key7"); got != "value157" {
		t.Errorf("at the joiner key7 is %q: it was not sent what was restored", got)
	}
}

// TestRestoreDiffers: the file of one node has one more write in it: nobody commits, and
// both sides are named on either.
func TestRestoreDiffers(t *testing.T) {
	one, two := takeSnapshot(t, "3.6"), takeSnapshot(t, "3.6")
	c := newCluster(t, shape{size: 3, family: "4"})
	c.CoreDNS(c.dns, c.zone)
	c.Each(c.hosts, func(h *lab.Host) {
		path := one.path
		if h == c.hosts[1] {
			path = two.path
		}
		res := h.Run(etcdinit, c.initArgs("--restore-snapshot", path, "--timeout", "4s")...)
		wantEnd(t, res, 34, "restores the snapshot with SHA-256", "this node the snapshot with SHA-256")
	})
	for _, h := range c.hosts {
		h.MustRun(etcdinit, "inspect", "--config-file", "etcd.yaml")
		if _, err := h.Stat("data/member"); err == nil {
			t.Errorf("%s has a member directory", h.Name)
		}
	}
	// With one file everywhere, the next run goes on, and reads it no more than it has to.
	c.init("--restore-snapshot", one.path)
	c.start("3.6")
	c.SameHash(c.hosts...)
}

// TestRestoreElsewhere: data that are here are kept, and a cluster that runs is joined or
// refused as ever: the flag may stay in the unit.
func TestRestoreElsewhere(t *testing.T) {
	s := takeSnapshot(t, "3.7")
	c := newCluster(t, shape{size: 3, family: "4"})
	c.CoreDNS(c.dns, c.zone)
	c.init()
	procs := c.start("3.7")
	c.hosts[0].Put("alive", "yes")
	procs[1].Kill()
	c.hosts[1].MustRun(etcdinit, c.initArgs("--restore-snapshot", s.path)...)
	c.hosts[1].Etcd("3.7", "--config-file", "run.yaml")
	c.Healthy(c.hosts...)
	procs[2].Kill()
	c.hosts[2].Wipe("data", "run.yaml")
	wantEnd(t, c.hosts[2].Run(etcdinit, c.initArgs("--restore-snapshot", s.path)...), 42, "refusing to seed")
	if got := c.hosts[0].Get("alive"); got != "yes" {
		t.Errorf("alive is %q", got)
	}
	if got := c.hosts[0].Get("key1"); got != "" {
		t.Errorf("the snapshot is in a running cluster: %q", got)
	}
}

// TestRestoreByHTTP: a snapshot comes from a web server that breaks off again and again;
// one that is cut short is thrown away.
func TestRestoreByHTTP(t *testing.T) {
	s := takeSnapshot(t, "3.6")
	data, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, shape{size: 3, family: "4"})
	c.CoreDNS(c.dns, c.zone)
	l := c.dns.Listen(c.dns.Addr4().String() + ":8000")
	modified := time.Now().Add(-50 * time.Hour)
	asked := make(chan string, 100)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Header.Get("Range"):
		default:
		}
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Last-Modified", modified.UTC().Format(http.TimeFormat))
		w.Header().Set("ETag", `"one"`)
		from := 0
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
			w.Header().Set("Content-Length", strconv.Itoa(len(data)-from))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		}
		_, _ = w.Write(data[from:min(from+len(data)/3+1, len(data))]) //nolint:errcheck // it breaks off
	})}
	go srv.Serve(l)                       //nolint:errcheck // it ends with the test
	t.Cleanup(func() { _ = srv.Close() }) //nolint:errcheck // it breaks off anyway
	url := "http://" + l.Addr().String() + "/snap.db?token=secret"
	c.Each(c.hosts, func(h *lab.Host) {
		res := h.Run(etcdinit, c.initArgs("--restore-snapshot", url)...)
		wantEnd(t, res, 0, "born with the content of the snapshot http://"+l.Addr().String()+"/snap.db", "2 days old", "broke off")
		if strings.Contains(res.Stderr, "secret") {
			t.Errorf("%s prints the URL's parameters: %s", h.Name, res.Stderr)
		}
	})
	c.start("3.6")
	c.SameHash(c.hosts...)
	lone := newCluster(t, shape{size: 1, family: "4"})
	lone.CoreDNS(lone.dns, lone.zone)
	web := lone.dns.Listen(lone.dns.Addr4().String() + ":8000")
	go srv.Serve(web) //nolint:errcheck // it ends with the test
	wantEnd(t, lone.hosts[0].Run(etcdinit, lone.initArgs("--restore-snapshot", "http://"+web.Addr().String()+"/missing")...), 40, "404")
}
