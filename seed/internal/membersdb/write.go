// Package membersdb writes the bbolt database of a member that has not started
// yet, and reads one without mapping or changing it.
package membersdb

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
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
