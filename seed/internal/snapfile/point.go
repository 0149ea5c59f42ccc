package snapfile

import (
	"fmt"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v2store"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// The namespaces of etcd's old store, in which a .snap file keeps the members.
const (
	clusterPrefix = "/0"
	keysPrefix    = "/1"
)

// WritePoint writes TERM-INDEX.snap into dir: the members at the point where the log
// goes on, and the cluster's version ("" for none). etcd up to 3.6 does not start from a log that begins behind a snapshot
// without it, and none sends its database to a joiner without the snapshot.
func WritePoint(dir string, cluster types.ID, members []*membership.Member, version string, index, term uint64, conf *raftpb.ConfState) (err error) {
	// etcd's packages panic on what they do not expect.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("write the snapshot file in %s: %v", dir, r)
		}
	}()
	store := v2store.New(clusterPrefix, keysPrefix)
	cl := membership.NewClusterFromMembers(zap.NewNop(), cluster, members)
	if v, verr := semver.NewVersion(version); verr == nil {
		cl.SetVersion(v, func(*zap.Logger, *semver.Version) {}, membership.ApplyV2storeOnly)
	}
	cl.Store(store)
	data, err := store.SaveNoCopy()
	if err != nil {
		return err
	}
	return snap.New(zap.NewNop(), dir).SaveSnap(&raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{
		Index: new(index), Term: new(term), ConfState: conf,
	}})
}
