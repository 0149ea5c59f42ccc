package seed_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/etcdinit/etcdinit/seed"
)

// FuzzInspect damages a valid directory. Whatever is done to it, reading answers,
// and changes nothing. A change is six bytes: which file, what to do, where (three
// bytes, of which the lowest bits matter most), and a value.
func FuzzInspect(f *testing.F) {
	log, db := sample(f)
	for _, change := range [][]byte{
		{0, 0, 0, 0, 0, 1},     // log: first byte
		{0, 0, 0, 0, 16, 0xff}, // log: metadata's length
		{0, 1, 0, 0, 100, 0},   // log: cut
		{1, 0, 0, 0, 16, 1},    // database: magic
		{1, 1, 0, 0x20, 0, 0},  // database: cut to two pages
		{1, 2, 0, 0x30, 0, 0},  // database: a zeroed page
		{1, 0, 0, 0x30, 8, 3},  // database: a page's type
		{1, 3, 0, 0x10, 40, 9}, // database: a page number
		{0, 0, 0, 0, 60, 7, 1, 0, 0, 0x40, 10, 0xff},
	} {
		f.Add(change)
	}
	f.Fuzz(func(t *testing.T, changes []byte) {
		root := t.TempDir()
		files := [][]byte{slices.Clone(log), slices.Clone(db)}
		for len(changes) >= 6 && len(changes) <= 120 {
			damageFile(files, changes[:6])
			changes = changes[6:]
		}
		readDamaged(t, root, files)
	})
}

// TestDamage is FuzzInspect's search without its memory: some hundred random
// changes, the same ones in every run.
func TestDamage(t *testing.T) {
	log, db := sample(t)
	random := rand.New(rand.NewPCG(1, 2))
	kinds := map[seed.Kind]int{}
	for range 400 {
		root := t.TempDir()
		files := [][]byte{slices.Clone(log), slices.Clone(db)}
		for range 1 + random.IntN(3) {
			change := make([]byte, 6)
			for i := range change {
				change[i] = byte(random.IntN(256))
			}
			damageFile(files, change)
		}
		kinds[readDamaged(t, root, files)]++
	}
	if kinds[seed.Broken] < 50 || kinds[seed.Valid] < 10 {
		t.Errorf("the changes are not worth much: %v", kinds)
	}
}

// readDamaged lays the two files out in root and reads them.
func readDamaged(t *testing.T, root string, files [][]byte) seed.Kind {
	t.Helper()
	write(t, filepath.Join(root, "member", "wal", firstSegment), string(files[0]))
	write(t, filepath.Join(root, "member", "snap", "db"), string(files[1]))
	before := tree(t, root)
	st, err := seed.Inspect(root, "")
	if err != nil {
		t.Fatalf("inspect: %v", err)
	}
	if st.Kind == seed.Empty {
		t.Error("a damaged directory counts as empty")
	}
	_, err = seed.Verify(root, "", true)
	if err != nil && kindOf(err) != seed.Damaged {
		t.Errorf("verify: %v", err)
	}
	if err == nil && st.Kind == seed.Broken {
		t.Errorf("broken to Inspect, and fine to Verify: %s", st.Reason)
	}
	if !slices.Equal(before, tree(t, root)) {
		t.Error("reading has changed the directory")
	}
	return st.Kind
}

func damageFile(files [][]byte, c []byte) {
	i := int(c[0]) % len(files)
	file := files[i]
	if len(file) < 8 {
		return
	}
	at := (int(c[2])<<16 | int(c[3])<<8 | int(c[4])) % (len(file) - 7)
	switch c[1] % 5 {
	case 0:
		file[at] ^= c[5]
	case 1:
		files[i] = file[:at]
	case 2:
		clear(file[at:min(at+4096, len(file))])
	case 3:
		binary.NativeEndian.PutUint64(file[at:], uint64(c[5]))
	case 4:
		copy(file[at:], file[:min(4096, len(file)-at)])
	}
}

// sample is a log and a database with some hundred keys in many pages, so that
// there are branches to damage.
func sample(tb testing.TB) (log, db []byte) {
	tb.Helper()
	dir := tb.TempDir()
	mustApply(tb, trio(dir, "m1"))
	edit(tb, dir, func(tx *bolt.Tx) error {
		for i := range uint64(600) {
			key := binary.BigEndian.AppendUint64(nil, i)
			if err := tx.Bucket([]byte("key")).Put(key, make([]byte, 200)); err != nil {
				return err
			}
		}
		return nil
	})
	segment, _ := content(filepath.Join(dir, "member", "wal", firstSegment))
	log = slices.Concat(segment, make([]byte, 1024))
	db, err := os.ReadFile(filepath.Join(dir, "member", "snap", "db"))
	if err != nil {
		tb.Fatal(err)
	}
	return log, db
}
