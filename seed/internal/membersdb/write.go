// Package membersdb writes the bbolt database of a member that has not started
// yet, and reads one without mapping or changing it.
package membersdb

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/raftpb"
)

// Write makes the database at path, which must not exist: the ten buckets of a
// stock etcd, the members, and consistent_index, term and confState as after the
// log's N configuration changes. The caller makes it durable.
func Write(path string, members []*membership.Member) error {
	return create(path, func(tx *bolt.Tx) error { return fill(tx, members) })
}

// WriteEmpty makes the database of a member that joins a running cluster: the ten
// buckets, all empty. The caller makes it durable.
func WriteEmpty(path string) error { return create(path, buckets) }

// Rewrite makes the database at path, which comes from a snapshot, that of a member
// that is born with others: their members in place of those that it had, and
// consistent_index, term and confState as after the log's N configuration changes. All
// else stays, also auth, leases and alarms. bump is added to the latest revision, and
// all up to there is marked as compacted, so that a watch of the old life ends instead
// of waiting for revisions that another history has; 0 leaves the revisions as they
// are. It returns the latest revision. The caller makes it durable.
func Rewrite(path string, members []*membership.Member, bump uint64) (revision int64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("rewrite %s: %v", path, r)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, NoSync: true, NoGrowSync: true,
	})
	if err != nil {
		return 0, err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, b := range []string{string(schema.Members.Name()), string(schema.MembersRemoved.Name())} {
			if err = tx.DeleteBucket([]byte(b)); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				return err
			}
		}
		for _, b := range schema.AllBuckets {
			if _, err = tx.CreateBucketIfNotExists(b.Name()); err != nil {
				return fmt.Errorf("bucket %s: %w", b.Name(), err)
			}
		}
		if err = put(tx, members); err != nil {
			return err
		}
		revision, err = bumped(tx, bump)
		return err
	})
	return revision, errors.Join(err, db.Close())
}

// bumped adds bump to the latest revision. A key of the key bucket is a revision: eight
// bytes, "_", and eight bytes of what came within it.
func bumped(tx *bolt.Tx, bump uint64) (int64, error) {
	keys := tx.Bucket(schema.Key.Name())
	latest := uint64(1) // of an etcd without keys
	if k, _ := keys.Cursor().Last(); len(k) >= 8 {
		latest = binary.BigEndian.Uint64(k)
	}
	if bump == 0 {
		return int64(latest), nil
	}
	if bump > math.MaxInt64-latest {
		return 0, fmt.Errorf("revision %d cannot be raised by %d", latest, bump)
	}
	latest += bump
	key := append(binary.BigEndian.AppendUint64(nil, latest), '_', 0, 0, 0, 0, 0, 0, 0, 0)
	return int64(latest), errors.Join(keys.Put(key, nil), tx.Bucket(schema.Meta.Name()).Put(schema.ScheduledCompactKeyName, key)) //nolint:gosec // see above
}

// create makes the database at path and fills it in one transaction.
func create(path string, fill func(*bolt.Tx) error) (err error) {
	// bbolt panics on some write errors.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("write %s: %v", path, r)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout:        time.Second,
		NoFreelistSync: true, // as etcd opens it
		FreelistType:   bolt.FreelistArrayType,
		NoSync:         true, // synced once, by the caller
		NoGrowSync:     true,
	})
	if err != nil {
		return err
	}
	return errors.Join(db.Update(fill), db.Close())
}

func buckets(tx *bolt.Tx) error {
	for _, b := range schema.AllBuckets {
		if _, err := tx.CreateBucket(b.Name()); err != nil {
			return fmt.Errorf("bucket %s: %w", b.Name(), err)
		}
	}
	return nil
}

func fill(tx *bolt.Tx, members []*membership.Member) error {
	if err := buckets(tx); err != nil {
		return err
	}
	return put(tx, members)
}

// put writes the members, and consistent_index, term and confState as after the log's
// N configuration changes.
func put(tx *bolt.Tx, members []*membership.Member) error {
	var conf raftpb.ConfState
	bucket := tx.Bucket(schema.Members.Name())
	for _, m := range members {
		value, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("member %s: %w", m.Name, err)
		}
		if err := bucket.Put(schema.BackendMemberKey(m.ID), value); err != nil {
			return fmt.Errorf("member %s: %w", m.Name, err)
		}
		if m.IsLearner {
			conf.Learners = append(conf.Learners, uint64(m.ID))
		} else {
			conf.Voters = append(conf.Voters, uint64(m.ID))
		}
	}
	confState, err := json.Marshal(&conf)
	if err != nil {
		return err
	}
	meta := tx.Bucket(schema.Meta.Name())
	return errors.Join(
		meta.Put(schema.MetaConsistentIndexKeyName, binary.BigEndian.AppendUint64(nil, uint64(len(members)))),
		meta.Put(schema.MetaTermKeyName, binary.BigEndian.AppendUint64(nil, 1)),
		meta.Put(schema.MetaConfStateName, confState),
	)
}
