package seed_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed"
)

// kindOf is the kind of a seed error, 0 where it is none.
func kindOf(err error) seed.ErrorKind {
	if e, ok := errors.AsType[*seed.Error](err); ok {
		return e.Kind
	}
	return 0
}

// content is a file's beginning without trailing zeros, and its size. All that a
// seed writes is in its first pages.
func content(path string) ([]byte, int64) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, 0
	}
	buf := make([]byte, 1<<20)
	n, _ := io.ReadFull(f, buf)
	return bytes.TrimRight(buf[:n], "\x00"), info.Size()
}

var nop = zap.NewNop()

// appendState lets a log say that its member has voted.
func appendState(t testing.TB, segment string) {
	t.Helper()
	dir := filepath.Dir(segment)
	w, err := wal.Open(nop, dir, &walpb.Snapshot{})
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

// bump lets a database look as if an etcd had applied more.
func bump(t testing.TB, data string) {
	t.Helper()
	edit(t, data, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), []byte{0, 0, 0, 0, 0, 0, 0, 70})
	})
}
