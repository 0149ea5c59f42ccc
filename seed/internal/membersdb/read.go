package membersdb

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/raftpb"
)

// ErrLocked means that another process, a running etcd as a rule, holds the database.
var ErrLocked = errors.New("locked by another process")

// maxMembers bounds what is read of the members bucket.
const maxMembers = 10_000

// Contents is what a database says of its member and cluster.
type Contents struct {
	Size            int64
	ConsistentIndex uint64
	Term            uint64
	StorageVersion  string // "" before etcd 3.6 has set it
	Members         []*membership.Member
	Removed         []types.ID
	HasKeys         bool              // the key bucket holds something
	ConfState       *raftpb.ConfState // as raft saved it; nil where it did not (etcd 3.4)
	ClusterVersion  string            // of the cluster that wrote it; "" where none is there
	Revision        int64             // the latest; 1 where there are no keys
	Keys            int64             // entries of the key bucket, old revisions too; of Count only
}

// Seeded reports whether the database is what Write makes, as far as it can be seen.
func (c *Contents) Seeded() bool {
	return c.fresh() && c.Term == 1 && len(c.Members) > 0 && c.ConsistentIndex == uint64(len(c.Members))
}

// Untouched reports whether the database is what WriteEmpty makes, as far as it can be seen.
func (c *Contents) Untouched() bool {
	return c.fresh() && c.Term == 0 && len(c.Members) == 0 && c.ConsistentIndex == 0
}

// fresh: no key, no removed member, and no etcd from 3.6 on has opened it.
func (c *Contents) fresh() bool {
	return !c.HasKeys && len(c.Removed) == 0 && c.StorageVersion == ""
}

// Read reads the database at path. It waits at most wait for a lock.
func Read(path string, wait time.Duration) (*Contents, error) {
	f, size, err := open(path, wait)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	p, err := openPages(f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c, err := p.contents()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.Size = size
	return c, nil
}

// InUse tells whether another process, a running etcd as a rule, has the database in f open
// for writing: what is copied of it then is of no one moment. f is not read.
func InUse(f *os.File, wait time.Duration) bool {
	return errors.Is(lockShared(f, wait), ErrLocked)
}

// Bare tells whether the database at path is one that etcd has made and put nothing
// into: no member, no key, no index that was applied. Its buckets need not all be
// there.
func Bare(path string, wait time.Duration) (bare bool, err error) {
	f, size, err := open(path, wait)
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	p, err := openPages(f, size)
	if err == nil {
		bare, err = p.bare()
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return bare, nil
}

// bare: every bucket is empty, but for zeros in the meta bucket.
func (p *pageFile) bare() (bool, error) {
	buckets := map[string][]byte{}
	err := p.each(p.root, 0, func(el element) error {
		if !el.bucket {
			return fmt.Errorf("root: %q is no bucket", el.key)
		}
		buckets[string(el.key)] = slices.Clone(el.value)
		return nil
	})
	if err != nil {
		return false, err
	}
	bare := true
	for name, value := range buckets {
		err := p.eachInBucket(value, func(el element) error {
			bare = bare && name == string(schema.Meta.Name()) && !el.bucket && len(bytes.Trim(el.value, "\x00")) == 0
			return nil
		})
		if err != nil {
			return false, fmt.Errorf("bucket %q: %w", name, err)
		}
	}
	return bare, nil
}

// Check visits every page of the database at path: each must be in use once or
// free, and its keys in order.
func Check(path string, wait time.Duration) error {
	f, size, err := open(path, wait)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	p, err := openPages(f, size)
	if err == nil {
		err = p.walk()
	}
	if err == nil {
		err = boltCheck(path)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func open(path string, wait time.Duration) (*os.File, int64, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the directory
	if err != nil {
		return nil, 0, err
	}
	size, err := statSize(f)
	if err == nil {
		err = lockShared(f, wait)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f, size, nil
}

func (p *pageFile) contents() (*Contents, error) {
	buckets := map[string][]byte{}
	err := p.each(p.root, 0, func(el element) error {
		if !el.bucket {
			return fmt.Errorf("root: %q is no bucket", el.key)
		}
		buckets[string(el.key)] = slices.Clone(el.value)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c := &Contents{}
	for _, step := range []struct {
		bucket string
		read   func(element) error
	}{
		{string(schema.Meta.Name()), c.meta},
		{string(schema.Members.Name()), c.member},
		{string(schema.MembersRemoved.Name()), c.removed},
	} {
		value, ok := buckets[step.bucket]
		if !ok {
			return nil, fmt.Errorf("bucket %q is missing", step.bucket)
		}
		if err = p.eachInBucket(value, step.read); err != nil {
			return nil, fmt.Errorf("bucket %q: %w", step.bucket, err)
		}
	}
	slices.SortFunc(c.Members, func(a, b *membership.Member) int { return compareIDs(a.ID, b.ID) })
	slices.SortFunc(c.Removed, compareIDs)
	keys, ok := buckets[string(schema.Key.Name())]
	if !ok {
		return nil, fmt.Errorf("bucket %q is missing", schema.Key.Name())
	}
	pg, err := p.bucketPage(keys)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", schema.Key.Name(), err)
	}
	c.HasKeys = pg.count > 0
	if c.Revision, err = p.lastRevision(pg, 0); err != nil {
		c.Revision = 0 // it is only shown; Check finds the damage
	}
	err = nil
	if value, ok := buckets[string(schema.Cluster.Name())]; ok {
		err = p.eachInBucket(value, func(el element) error {
			if string(el.key) == string(schema.ClusterClusterVersionKeyName) {
				c.ClusterVersion = string(el.value)
			}
			return nil
		})
	}
	return c, err
}

// lastRevision follows the last entry of each page below pg to the last key.
func (p *pageFile) lastRevision(pg *page, depth int) (int64, error) {
	switch {
	case depth > maxDepth:
		return 0, fmt.Errorf("page %d: deeper than %d levels", pg.id, maxDepth)
	case pg.count == 0:
		return 1, nil
	case pg.flags != flagLeaf && pg.flags != flagBranch:
		return 0, fmt.Errorf("page %d: neither branch nor leaf (flags %#x)", pg.id, pg.flags)
	}
	el, err := pg.element(pg.count - 1)
	switch {
	case err != nil:
		return 0, err
	case pg.flags == flagBranch:
		next, err := p.page(el.child)
		if err != nil {
			return 0, err
		}
		return p.lastRevision(next, depth+1)
	case len(el.key) < 8:
		return 0, fmt.Errorf("page %d: the last key is %d bytes, no revision", pg.id, len(el.key))
	}
	return int64(binary.BigEndian.Uint64(el.key)), nil //nolint:gosec // etcd's own revisions are signed
}

// Count is Read that also walks the key bucket.
func Count(path string, wait time.Duration) (*Contents, error) {
	f, size, err := open(path, wait)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	c, err := count(f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func count(f *os.File, size int64) (*Contents, error) {
	p, err := openPages(f, size)
	if err != nil {
		return nil, err
	}
	c, err := p.contents()
	if err != nil {
		return nil, err
	}
	c.Size = size
	var keys []byte
	err = p.each(p.root, 0, func(el element) error {
		if el.bucket && string(el.key) == string(schema.Key.Name()) {
			keys = slices.Clone(el.value)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, p.eachInBucket(keys, func(element) error {
		c.Keys++
		return nil
	})
}

// eachInBucket calls fn for every entry of the bucket whose entry holds value.
func (p *pageFile) eachInBucket(value []byte, fn func(element) error) error {
	p.seen = map[uint64]bool{}
	defer func() { p.seen = nil }()
	pg, err := p.bucketPage(value)
	if err != nil {
		return err
	}
	return p.eachIn(pg, 0, fn)
}

func (c *Contents) meta(el element) error {
	number := func() (uint64, error) {
		if len(el.value) != 8 {
			return 0, fmt.Errorf("%s: %d bytes, want 8", el.key, len(el.value))
		}
		return binary.BigEndian.Uint64(el.value), nil
	}
	var err error
	switch string(el.key) {
	case string(schema.MetaConsistentIndexKeyName):
		c.ConsistentIndex, err = number()
	case string(schema.MetaTermKeyName):
		c.Term, err = number()
	case string(schema.MetaConfStateName):
		conf := &raftpb.ConfState{}
		if json.Unmarshal(el.value, conf) == nil { // only a fed seed asks for it
			c.ConfState = conf
		}
	case string(schema.MetaStorageVersionName):
		c.StorageVersion = string(el.value)
	}
	return err
}

func (c *Contents) member(el element) error {
	id, err := types.IDFromString(string(el.key))
	if err != nil {
		return fmt.Errorf("key %q is not a member ID", el.key)
	}
	m := &membership.Member{}
	if err := json.Unmarshal(el.value, m); err != nil {
		return fmt.Errorf("member %s: %w", id, err)
	}
	if m.ID != id {
		return fmt.Errorf("member %s: its entry says %s", id, m.ID)
	}
	if len(c.Members) == maxMembers {
		return fmt.Errorf("more than %d members", maxMembers)
	}
	c.Members = append(c.Members, m)
	return nil
}

func (c *Contents) removed(el element) error {
	id, err := types.IDFromString(string(el.key))
	if err != nil {
		return fmt.Errorf("key %q is not a member ID", el.key)
	}
	c.Removed = append(c.Removed, id)
	return nil
}

func compareIDs(a, b types.ID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// walk visits every page once.
func (p *pageFile) walk() error {
	p.seen = map[uint64]bool{}
	free, err := p.freePages()
	if err != nil {
		return err
	}
	var visit func(depth int) func(el element) error
	visit = func(depth int) func(el element) error {
		return func(el element) error {
			if !el.bucket {
				return nil
			}
			pg, err := p.bucketPage(el.value)
			if err == nil {
				err = p.eachIn(pg, depth, visit(depth+1))
			}
			if err != nil {
				return fmt.Errorf("bucket %q: %w", el.key, err)
			}
			return nil
		}
	}
	if err := p.each(p.root, 0, visit(1)); err != nil {
		return err
	}
	if p.freelist == noFreelist {
		return nil
	}
	for _, id := range free {
		if p.seen[id] {
			return fmt.Errorf("page %d: free and in use", id)
		}
		p.seen[id] = true
	}
	for id := uint64(2); id < p.pages; id++ {
		if !p.seen[id] {
			return fmt.Errorf("page %d: neither free nor in use", id)
		}
	}
	return nil
}

// boltCheck asks bbolt for its own opinion. The walk has shown before that there
// is nothing it could stumble over.
func boltCheck(path string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("bbolt: %v", r)
		}
	}()
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return err
	}
	return errors.Join(db.View(func(tx *bolt.Tx) error {
		var first error
		for err := range tx.Check() {
			if first == nil {
				first = err
			}
		}
		return first
	}), db.Close())
}
