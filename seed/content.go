package seed

import (
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/etcdinit/etcdinit/seed/internal/membersdb"
	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
)

// content is what a plan fills a directory with. Apply stages it without knowing
// which one it is.
type content interface {
	// data writes the database into the directory dir, which is empty, and beside it what
	// tells etcd where the log goes on, unless the log is the whole history.
	data(dir string, id raftlog.Identity) error
	// log makes the directory dir and the first segment in it.
	log(dir string, id raftlog.Identity) error
	// dbSize is an upper bound of the database's size in bytes.
	dbSize() int64
}

// bootstrap is the content of a member that is born with its cluster: the members,
// in the log and in the members bucket.
type bootstrap struct {
	// members is the one slice that both are written from.
	members []*membership.Member
	self    *membership.Member
}

func (b bootstrap) data(dir string, _ raftlog.Identity) error {
	return membersdb.Write(filepath.Join(dir, dbName), b.unpublished())
}

func (b bootstrap) log(dir string, id raftlog.Identity) error {
	return raftlog.Write(dir, id, b.members)
}

func (b bootstrap) dbSize() int64 { return dbSize(b.members) }

// unpublished is the members as the bucket has them before anybody has run: to
// etcd a member with client URLs has run, and would be refused its first start.
// Only our own entry has some, since the handoff reads them there.
func (b bootstrap) unpublished() []*membership.Member {
	list := make([]*membership.Member, 0, len(b.members))
	for _, m := range b.members {
		entry := *m
		if m != b.self {
			entry.ClientURLs = nil
		}
		list = append(list, &entry)
	}
	return list
}

// joiner is the content of a member that a running cluster has taken in: nothing
// but who it is. The leader sends all the rest.
type joiner struct{}

func (joiner) data(dir string, _ raftlog.Identity) error {
	return membersdb.WriteEmpty(filepath.Join(dir, dbName))
}

func (joiner) log(dir string, id raftlog.Identity) error { return raftlog.WriteEmpty(dir, id) }

func (joiner) dbSize() int64 { return dbSize(nil) }

// bare is a plan without a seed, for what is done in an empty directory before
// there is one. A seed needs no less room than a joiner's.
func bare(spec Spec, dirs layout) *Plan {
	return &Plan{DataDir: dirs.data, WALDir: dirs.wal, dirs: dirs, owner: spec.Owner, content: joiner{}}
}
