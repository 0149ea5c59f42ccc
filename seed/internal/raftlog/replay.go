package raftlog

import (
	"encoding/json"
	"path"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Replay is Check, and also says what members the committed entries make, as etcd
// finds out when it starts with a log and no database.
func Replay(dir string, names []string) (*Log, error) {
	l, err := newLog(dir, names)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if err := l.head(filepath.Join(dir, name), i == 0, len(names) == 1); err != nil {
			return nil, err
		}
	}
	r := &replay{}
	if err := l.body(dir, names, r); err != nil {
		return nil, err
	}
	r.apply(l)
	return l, nil
}

// replay keeps the entries that change the members.
type replay struct{ changes []change }

type change struct {
	index uint64
	do    func(*Log)
}

// add takes note of an entry. One that comes again takes the place of those from
// its index on: a new leader has overwritten them.
func (r *replay) add(e *raftpb.Entry) {
	r.changes = slices.DeleteFunc(r.changes, func(c change) bool { return c.index >= e.GetIndex() })
	var do func(*Log)
	switch e.GetType() {
	case raftpb.EntryConfChange:
		do = configurationOf(e.GetData())
	case raftpb.EntryNormal:
		do = attributesOf(e.GetData())
	case raftpb.EntryConfChangeV2: // etcd writes none
	}
	if do != nil {
		r.changes = append(r.changes, change{e.GetIndex(), do})
	}
}

func (r *replay) apply(l *Log) {
	for _, c := range r.changes {
		if c.index <= l.Commit {
			c.do(l)
		}
	}
	slices.SortFunc(l.Members, func(a, b *membership.Member) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
}

func (l *Log) member(id types.ID) *membership.Member {
	for _, m := range l.Members {
		if m.ID == id {
			return m
		}
	}
	return nil
}

func configurationOf(data []byte) func(*Log) {
	var cc raftpb.ConfChange
	if proto.Unmarshal(data, &cc) != nil {
		return nil
	}
	id := types.ID(cc.GetNodeId())
	if cc.GetType() == raftpb.ConfChangeRemoveNode {
		return func(l *Log) {
			l.Members = slices.DeleteFunc(l.Members, func(m *membership.Member) bool { return m.ID == id })
			l.Removed = append(l.Removed, id)
		}
	}
	var context membership.ConfigChangeContext
	if json.Unmarshal(cc.GetContext(), &context) != nil || context.ID != id {
		return nil
	}
	return func(l *Log) {
		known := l.member(id)
		switch {
		case slices.Contains(l.Removed, id):
		case known == nil:
			m := context.Member
			l.Members = append(l.Members, &m)
		case context.IsPromote:
			known.IsLearner = false
		case cc.GetType() == raftpb.ConfChangeUpdateNode:
			known.PeerURLs = context.PeerURLs
		}
	}
}

// attributesOf reads a member's published name and client URLs: as etcd 3.6 writes
// them, or as the older ones did, in a request to a path of their old store.
func attributesOf(data []byte) func(*Log) {
	var id types.ID
	var attributes membership.Attributes
	var r etcdserverpb.InternalRaftRequest
	if proto.Unmarshal(data, &r) == nil && r.GetClusterMemberAttrSet() != nil {
		set := r.GetClusterMemberAttrSet()
		id = types.ID(set.GetMember_ID())
		attributes.Name, attributes.ClientURLs = set.GetMemberAttributes().GetName(), set.GetMemberAttributes().GetClientUrls()
	} else if id, attributes = oldAttributes(data); id == 0 {
		return nil
	}
	return func(l *Log) {
		if m := l.member(id); m != nil {
			m.Attributes = attributes
		}
	}
}

// oldAttributes reads the request PUT /0/members/ID/attributes.
func oldAttributes(data []byte) (types.ID, membership.Attributes) {
	const method, where, value = 2, 3, 4
	fields := map[protowire.Number]string{}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return 0, membership.Attributes{}
		}
		data = data[n:]
		if kind == protowire.BytesType {
			text, _ := protowire.ConsumeBytes(data)
			fields[number] = string(text)
		}
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return 0, membership.Attributes{}
		}
		data = data[n:]
	}
	dir, last := path.Split(fields[where])
	id, err := types.IDFromString(path.Base(dir))
	var attributes membership.Attributes
	if fields[method] != "PUT" || last != "attributes" || path.Dir(path.Clean(dir)) != "/0/members" || err != nil ||
		json.Unmarshal([]byte(fields[value]), &attributes) != nil {
		return 0, membership.Attributes{}
	}
	return id, attributes
}
