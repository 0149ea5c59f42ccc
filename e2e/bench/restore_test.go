//go:build e2e

package bench

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// restoreMB is how large the snapshot is, in megabytes; ETCDINIT_BENCH_MB says another size.
const restoreMB = 1250

// BenchmarkRestore measures a restore of one member, from a large snapshot, against
// etcdutl of two minors and against cp and sync, in turns.
func BenchmarkRestore(b *testing.B) {
	l := lab.New(b)
	l.Require("etcd-3.6/etcdutl", "etcd-3.7/etcdutl")
	h := l.Host("m1")
	size := restoreMB
	if text := os.Getenv("ETCDINIT_BENCH_MB"); text != "" {
		var err error
		size, err = strconv.Atoi(text)
		must(b, err)
	}
	source := "static:?peer=m1=http://" + h.Addr4().String() + ":2380"
	args := []string{"init", "--data-dir", l.Home + "/restored", "--listen-peer-urls", "http://0.0.0.0:2380", "--discovery", source, "--etcd-version", "3.6.0"}
	h.MustRun(etcdinit, "init", "--data-dir", l.Home+"/data", "--listen-peer-urls", "http://0.0.0.0:2380", "--discovery", source)
	largeSnapshot(b, h.Path("data/member/snap/db"), h.Path("snapshot.db"), size)
	h.Wipe("data")
	var ours, plain, utl6, utl7, copied samples
	restore := func(bump string) []string {
		return append(append([]string{}, args...), "--restore-snapshot", l.Home+"/snapshot.db", "--restore-bump-revision", bump)
	}
	timed := func(into *samples, program string, args ...string) {
		h.Wipe("restored")
		*into = append(*into, h.WantStatus(0, program, args...).Took)
	}
	for range max(3, runs(b)/3) {
		timed(&copied, "/bin/sh", "-c", "mkdir restored && cp snapshot.db restored/db && sync restored/db")
		timed(&plain, etcdinit, restore("0")...)
		timed(&ours, etcdinit, restore("1000000000")...)
		timed(&utl6, l.Tool("etcd-3.6/etcdutl"), "snapshot", "restore", "snapshot.db", "--data-dir", "restored", "--bump-revision", "1000000000", "--mark-compacted")
		timed(&utl7, l.Tool("etcd-3.7/etcdutl"), "snapshot", "restore", "snapshot.db", "--data-dir", "restored", "--bump-revision", "1000000000", "--mark-compacted")
	}
	h.Wipe("restored")
	most, err := strconv.ParseInt(strings.TrimSpace(h.MustRun(peak, append([]string{etcdinit}, restore("0")...)...)), 10, 64)
	must(b, err)
	results.keep(fmt.Sprintf("restore of %d MB", size), plain)
	results.keep("restore with 10⁹ more revisions", ours)
	results.keep("etcdutl 3.6 snapshot restore, the same", utl6)
	results.keep("etcdutl 3.7 snapshot restore, the same", utl7)
	results.keep("cp and sync", copied)
	results.add("restore with more revisions, against etcdutl 3.6", "≤ 0.55 ×", fmt.Sprintf("%.2f × (%v against %v)", ratio(ours, utl6), ours, utl6), ratio(ours, utl6) <= 0.55)
	results.add("the same, against etcdutl 3.7", "≤ 0.55 ×", fmt.Sprintf("%.2f × (%v against %v)", ratio(ours, utl7), ours, utl7), ratio(ours, utl7) <= 0.55)
	results.add("restore, against cp and sync", "≤ 1.1 ×", fmt.Sprintf("%.2f × (%v against %v)", ratio(plain, copied), plain, copied), ratio(plain, copied) <= 1.1)
	results.add("restore, most memory resident (the mapped database counts)", "", fmt.Sprintf("%d MB", most>>20), true)
}

// largeSnapshot fills a seed's database with keys of 10 KB, and writes it as a snapshot.
func largeSnapshot(b *testing.B, from, to string, megabytes int) {
	b.Helper()
	db, err := bolt.Open(from, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	must(b, err)
	value := make([]byte, 10<<10)
	_, err = rand.Read(value)
	must(b, err)
	for tx := range megabytes / 10 {
		must(b, db.Update(func(t *bolt.Tx) error {
			for i := range 1000 {
				var key [17]byte
				revision := int64(tx*1000 + i + 2)
				binary.BigEndian.PutUint64(key[:], uint64(revision))
				key[8] = '_'
				text, perr := proto.Marshal(&mvccpb.KeyValue{Key: fmt.Append(nil, "key", revision), Value: value, CreateRevision: revision, ModRevision: revision, Version: 1})
				if perr == nil {
					perr = t.Bucket([]byte("key")).Put(key[:], text)
				}
				if perr != nil {
					return perr
				}
			}
			return nil
		}))
	}
	must(b, db.Update(func(t *bolt.Tx) error { return t.Bucket([]byte("meta")).Put([]byte("storageVersion"), []byte("3.6.0")) }))
	must(b, db.Close())
	in, err := os.Open(filepath.Clean(from))
	must(b, err)
	out, err := os.Create(filepath.Clean(to))
	must(b, err)
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), in)
	must(b, err)
	_, err = out.Write(sum.Sum(nil))
	must(b, errors.Join(err, out.Sync(), out.Close(), in.Close()))
}
