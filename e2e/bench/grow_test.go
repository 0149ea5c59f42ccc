//go:build e2e

package bench

import (
	"crypto/rand"
	"encoding/binary"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// grow makes a seeded directory what a busy etcd would have made of it: 2 GB
// of keys in the database and five WAL segments.
func grow(b *testing.B, dir string) {
	b.Helper()
	value := make([]byte, 1<<20)
	_, err := rand.Read(value)
	must(b, err)
	db, err := bolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	must(b, err)
	for tx := range 20 {
		must(b, db.Update(func(t *bolt.Tx) error {
			keys, bucketErr := t.CreateBucketIfNotExists([]byte("key"))
			if bucketErr != nil {
				return bucketErr
			}
			for i := range 100 {
				var key [17]byte // revision: main, '_', sub
				binary.BigEndian.PutUint64(key[:], uint64(tx*100+i+2))
				key[8] = '_'
				if putErr := keys.Put(key[:], value); putErr != nil {
					return putErr
				}
			}
			return nil
		}))
	}
	must(b, db.Sync())
	must(b, db.Close())

	w, err := wal.Open(zap.NewNop(), filepath.Join(dir, "member", "wal"), &walpb.Snapshot{})
	must(b, err)
	_, state, entries, err := w.ReadAll()
	must(b, err)
	w.SetUnsafeNoFsync()
	last := entries[len(entries)-1].GetIndex()
	for i := range uint64(5 * 64) {
		index := last + 1 + i
		state.Commit, state.Term = &index, new(uint64(2))
		must(b, w.Save(state, []*raftpb.Entry{{Term: new(uint64(2)), Index: &index, Type: raftpb.EntryNormal.Enum(), Data: value}}))
	}
	must(b, w.Close())
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
