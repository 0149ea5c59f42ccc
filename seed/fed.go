package seed

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
	"github.com/etcdinit/etcdinit/seed/internal/snapfile"
	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// Fed is the plan of a joining member whose database is there already: as another member
// had it when it had applied Index. Its etcd asks the leader for what came after that,
// and for nothing else. The database must know the member, and its configuration must be
// the one that raft had: an image of which that does not hold is an error of kind
// Invalid. The caller has seen that Term was the source's before and after the read.
func (p *Plan) Fed(s *Staged) (*Plan, error) {
	if p.kind != RecordJoin && p.kind != RecordRescue {
		return nil, invalid("only a member of a running cluster is fed")
	}
	c := s.contents
	if c == nil {
		return nil, invalid("%s was not read by this run", s.Source)
	}
	conf := raftlog.Conf(c.Members)
	switch {
	case c.Term == 0 || c.ConsistentIndex == 0:
		return nil, invalid("the database of %s does not say which entry it has applied", s.Source)
	case c.ConfState == nil || !sameConf(conf, c.ConfState):
		return nil, invalid("the members in the database of %s are not those that its raft had", s.Source)
	case !slices.ContainsFunc(c.Members, func(m *membership.Member) bool { return m.ID == p.MemberID }):
		return nil, &Error{Kind: Changed, Msg: "the database of " + s.Source + " does not know member " + p.MemberID.String() + " yet"}
	}
	b := *p
	b.content = fed{staged: s, conf: conf}
	return &b, b.listFiles()
}

func sameConf(a, b *raftpb.ConfState) bool {
	same := func(x, y []uint64) bool {
		return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
	}
	return same(a.GetVoters(), b.GetVoters()) && same(a.GetLearners(), b.GetLearners()) && len(b.GetVotersOutgoing()) == 0 && len(b.GetLearnersNext()) == 0
}

// fed is the content of a member that another one has given its database to.
type fed struct {
	staged *Staged
	conf   *raftpb.ConfState
}

func (f fed) data(dir string, id raftlog.Identity) error {
	if err := os.Rename(filepath.Join(f.staged.dir, stagedDB), filepath.Join(dir, dbName)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return &Error{Kind: Changed, Msg: "the database that was staged in " + f.staged.dir + " is gone", Err: err}
		}
		return err
	}
	c := f.staged.contents
	if err := snapfile.WritePoint(dir, id.Cluster, c.Members, c.ClusterVersion, c.ConsistentIndex, c.Term, f.conf); err != nil {
		return err
	}
	return stage.Remove(f.staged.dir)
}

func (f fed) log(dir string, id raftlog.Identity) error {
	c := f.staged.contents
	return raftlog.WriteFrom(dir, id, c.ConsistentIndex, c.Term, f.conf)
}

// dbSize: the database is there already, and is not written to.
func (f fed) dbSize() int64 { return f.staged.Size + sectorSize }

// sectorSize covers what SkipScan would add.
const sectorSize = 1 << 16

// NewRescue makes the plan of a directory for a member that was added to a cluster as a
// voter, and that has never run: it takes that one's seat, so that the cluster has its
// quorum again. joined.Self has the peer URLs that this node really has, whatever the
// cluster lists. It is not pending: nobody can be asked.
func NewRescue(spec Spec, joined Joined) (*Plan, error) {
	p, err := NewJoiner(spec, joined)
	if err != nil {
		return nil, err
	}
	p.kind, p.Pending = RecordRescue, false
	err = p.listFiles()
	return p, err
}

// SeatOf is the member of a staged database with this ID, and its cluster's members.
func (s *Staged) SeatOf(id types.ID) (Member, bool) {
	for _, m := range s.Members {
		if m.ID == id {
			return m, true
		}
	}
	return Member{}, false
}

// joining: the pending seed of a member that a running cluster has added, on which no
// etcd has run.
func (st *State) joining() bool {
	return st.Kind == Valid && st.Pending && st.Pristine && st.Record != nil && st.Record.Kind == RecordJoin
}

// Replace puts the plan's directory in the place of the pending seed of the same joining
// member, in one step: one of the two is there at any moment. A file system that cannot
// do that, and a separate wal-dir, are errors.ErrUnsupported. After an error the seed that
// was there stays.
func (p *Plan) Replace(ctx context.Context, log *zap.Logger) (err error) {
	if !stage.Supported || p.dirs.separate {
		return errors.ErrUnsupported
	}
	a := &apply{Plan: p, log: log, act: "seeding", over: true}
	defer func() {
		a.done = true // the directory was there
		err = errors.Join(err, a.end())
	}()
	if err = a.prepare(); err != nil {
		return a.explain(err)
	}
	st, _, err := examine(a.dirs)
	if err != nil {
		return err
	}
	if st.MemberID != p.MemberID || st.ClusterID != p.ClusterID {
		return changed(p.DataDir)
	}
	for _, step := range []func() error{a.space, a.stageDB, a.stageWAL, a.finish} {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := step(); err != nil {
			return a.explain(err)
		}
	}
	if err := stage.Exchange(a.data.Path(memberDir), filepath.Join(a.dirs.data, memberDir)); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		return a.explain(err)
	}
	if err := stage.SyncDir(a.dirs.data); err != nil {
		return a.explain(err)
	}
	return nil
}
