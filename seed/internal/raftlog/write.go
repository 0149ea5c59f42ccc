// Package raftlog writes the write-ahead log that a stock etcd begins with, and
// reads one without changing it.
package raftlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// FirstSegment is the name of the segment that a fresh log consists of.
const FirstSegment = "0000000000000000-0000000000000000.wal"

// Identity is what every segment says in its metadata record.
type Identity struct {
	Member  types.ID
	Cluster types.ID
}

// SegmentSize is the preallocated length of a segment in bytes.
func SegmentSize() int64 { return wal.SegmentSizeBytes }

// Write makes the directory dir, which must not exist, and in it the one segment
// that a stock etcd has written before its first vote: metadata, the empty
// snapshot, one ConfChange a member, and the state {term 1, vote 0, commit N}.
// members must be in ascending order of their IDs. The caller makes it durable.
func Write(dir string, id Identity, members []*membership.Member) error {
	entries, err := bootstrapEntries(members)
	if err != nil {
		return err
	}
	state := &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(len(members)))}
	return create(dir, id, func(w *wal.WAL) error { return w.Save(state, entries) })
}

// WriteBehind is Write with the record of a snapshot behind the configuration changes:
// what the members begin with is a database, and a member that joins later must be sent it.
// Without that record the leader's log seems to begin at nothing, and a joiner gets the
// log alone.
func WriteBehind(dir string, id Identity, members []*membership.Member) error {
	entries, err := bootstrapEntries(members)
	if err != nil {
		return err
	}
	n := uint64(len(members))
	state := &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(n)}
	return create(dir, id, func(w *wal.WAL) error {
		if err := w.Save(state, entries); err != nil {
			return err
		}
		return w.SaveSnapshot(&walpb.Snapshot{Index: new(n), Term: new(uint64(1)), ConfState: Conf(members)})
	})
}

// WriteFrom makes the log of a member whose database has applied index, of that term: it
// begins behind that point, and the member has voted for nobody.
func WriteFrom(dir string, id Identity, index, term uint64, conf *raftpb.ConfState) error {
	return create(dir, id, func(w *wal.WAL) error {
		if err := w.Save(&raftpb.HardState{Term: new(term), Vote: new(uint64(0)), Commit: new(index)}, nil); err != nil {
			return err
		}
		return w.SaveSnapshot(&walpb.Snapshot{Index: new(index), Term: new(term), ConfState: conf})
	})
}

// Conf is the configuration that a list of members stands for.
func Conf(members []*membership.Member) *raftpb.ConfState {
	conf := &raftpb.ConfState{}
	for _, m := range members {
		if m.IsLearner {
			conf.Learners = append(conf.Learners, uint64(m.ID))
		} else {
			conf.Voters = append(conf.Voters, uint64(m.ID))
		}
	}
	return conf
}

// WriteEmpty makes the directory dir, which must not exist, and in it the one
// segment that a stock etcd begins with when it joins a running cluster: metadata
// and the empty snapshot, and nothing else. The leader sends all the rest. The
// caller makes it durable.
func WriteEmpty(dir string, id Identity) error {
	return create(dir, id, func(*wal.WAL) error { return nil })
}

// create makes a log with its metadata and the empty snapshot, and lets fill add
// records.
func create(dir string, id Identity, fill func(*wal.WAL) error) (err error) {
	// etcd's wal package panics where its own clean-up fails.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("write %s: %v", filepath.Join(dir, FirstSegment), r)
		}
	}()
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{
		NodeID:    new(uint64(id.Member)),
		ClusterID: new(uint64(id.Cluster)),
	})
	if err != nil {
		return err
	}
	w, err := wal.Create(zap.NewNop(), dir, metadata)
	if err != nil {
		return err
	}
	w.SetUnsafeNoFsync() // everything is synced once, by the caller
	err = errors.Join(fill(w), w.Close())
	// The next segment was being prepared in the background; the log removes it
	// on Close unless preparing it had failed.
	for _, name := range []string{"0.tmp", "1.tmp"} {
		if rerr := os.Remove(filepath.Join(dir, name)); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

func bootstrapEntries(members []*membership.Member) ([]*raftpb.Entry, error) {
	entries := make([]*raftpb.Entry, 0, len(members))
	for i, m := range members {
		// The log's copy of a member has no client URLs: those are published later.
		inLog := membership.Member{
			ID:             m.ID,
			RaftAttributes: m.RaftAttributes,
			Attributes:     membership.Attributes{Name: m.Name},
		}
		ctx, err := json.Marshal(inLog)
		if err != nil {
			return nil, fmt.Errorf("member %s: %w", m.Name, err)
		}
		change := raftpb.ConfChangeAddNode
		if m.IsLearner {
			change = raftpb.ConfChangeAddLearnerNode
		}
		data, err := proto.Marshal(&raftpb.ConfChange{Type: change.Enum(), NodeId: new(uint64(m.ID)), Context: ctx})
		if err != nil {
			return nil, fmt.Errorf("member %s: %w", m.Name, err)
		}
		entries = append(entries, &raftpb.Entry{
			Type:  raftpb.EntryConfChange.Enum(),
			Term:  new(uint64(1)),
			Index: new(uint64(i + 1)),
			Data:  data,
		})
	}
	return entries, nil
}
