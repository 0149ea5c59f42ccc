package seed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// Apply makes the plan's directory, whole or not at all: everything is built in a
// staging directory inside the data directory, synced, and renamed. It refuses a
// directory that is not Empty any more once it is locked.
//
// Until the rename a cancelled ctx ends it: the staging directory is removed and
// the context's cause returned. From the rename on it finishes. After an error
// nothing is committed, unless the error says so.
func (p *Plan) Apply(ctx context.Context, log *zap.Logger) (err error) {
	if !stage.Supported {
		return unsupported("seeding a data directory")
	}
	if err = p.checkBirth(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	a := &apply{Plan: p, log: log, act: "seeding"}
	defer func() { err = errors.Join(err, a.end()) }()
	if err := a.prepare(); err != nil {
		return a.explain(err)
	}
	for _, step := range a.steps() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := step(); err != nil {
			return a.explain(err)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := a.commit(); err != nil {
		return a.explain(err)
	}
	log.Info("seeded data directory",
		zap.String("dir", p.DataDir), zap.String("wal_dir", p.WALDir),
		zap.Stringer("member_id", p.MemberID), zap.Stringer("cluster_id", p.ClusterID))
	return nil
}

// apply is one run of Apply.
type apply struct {
	*Plan
	log   *zap.Logger
	dirs  layout // with symbolic links followed
	owner *stage.Owner
	act   string // for messages
	bare  bool   // no seed is wanted, only a disk ID
	over  bool   // the pending seed of a joining member is there, and stays until it is replaced

	made   []string // directories that were missing
	locks  locks
	shared bool       // somebody else may be at work in a directory that we made
	data   *stage.Dir // holds member/
	wal    *stage.Dir // holds wal/: data, or a directory in the separate wal-dir
	done   bool

	unused string // a member directory that is moved aside
	disk   DiskID // the ID that is bound; "" for none
	tokens tokens
	own    []*os.File // what was staged, held open: nobody else gets its inode
}

func (a *apply) steps() []func() error {
	return []func() error{a.space, a.stageDB, a.stageWAL, a.finish}
}

// prepare makes the directories, locks them, and looks again.
func (a *apply) prepare() error {
	steps := []func() error{
		func() (err error) {
			a.dirs, err = a.Plan.dirs.resolved()
			return err
		},
		a.look, // a directory that is to be refused is not touched, not even by a lock
		func() error { return a.take(a.dirs.data) },
		a.chooseOwner,
		func() error {
			if !a.dirs.separate {
				return nil
			}
			return a.take(a.dirs.wal)
		},
		a.clean,
		a.look,
		a.choose,
		a.clear,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// clear makes room for member/.
func (a *apply) clear() error {
	if a.over {
		return nil
	}
	if a.unused == "" {
		return clearSkeleton(a.dirs)
	}
	aside, err := moveAside(a.dirs, a.unused)
	if err == nil {
		a.log.Warn(a.unused+" was made by an etcd that was started too early, and was never used: it is "+aside+" now", zap.String("from", a.unused), zap.String("to", aside))
	}
	return err
}

// take makes a directory where it is missing, and locks it.
func (a *apply) take(path string) error {
	if err := a.mkdir(path); err != nil {
		return err
	}
	return a.lock(path)
}

func (a *apply) clean() error {
	removed, err := clean(a.dirs)
	for _, path := range removed {
		a.log.Info("removed incomplete staging directory "+path+" from an earlier run", zap.String("dir", path))
	}
	return err
}

func (a *apply) look() error {
	st, fd, err := examine(a.dirs)
	if err != nil {
		return err
	}
	if err := a.refuse(st); err != nil {
		return err
	}
	a.tokens, a.unused = fd.tokens, st.Unused
	return nil
}

// refuse lets nothing but an empty directory pass.
func (a *apply) refuse(st *State) error {
	switch st.Kind {
	case Empty:
		if a.over {
			break
		}
		return nil
	case Broken:
		return damaged(st)
	case Valid:
		if a.over && st.joining() {
			return nil
		}
		if !a.bare && !st.Compare(a.Plan).SameMember {
			return &Error{Kind: Foreign, Msg: fmt.Sprintf("%s holds member %s of cluster %s, not member %s; nothing was changed",
				st.DataDir, st.MemberID, st.ClusterID, a.MemberID)}
		}
	}
	return &Error{Kind: Changed, Msg: st.DataDir + " was initialised by another process meanwhile; run again to use it"}
}

func (a *apply) mkdir(path string) error {
	made, err := stage.MkdirAll(path, func(existing fs.FileInfo) *stage.Owner {
		if a.Plan.owner != nil {
			return (*stage.Owner)(a.Plan.owner)
		}
		return inherited(existing)
	})
	a.made = append(a.made, made...)
	return err
}

func (a *apply) lock(path string) error {
	held, err := a.locks.acquire(path)
	a.shared = a.shared || err != nil || !held
	if errors.Is(err, fs.ErrNotExist) { // it was there a moment ago
		return &Error{Kind: Busy, Msg: "another etcdinit is working in " + path, Err: err}
	}
	if err == nil && !held {
		a.log.Warn("the file system has no directory locks: let only one etcdinit run at a time", zap.String("dir", path))
	}
	return err
}

// inherited is the owner to copy: only root can give files away, everybody else
// owns what he writes.
func inherited(info fs.FileInfo) *stage.Owner {
	owner, ok := stage.OwnerOf(info)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return &owner
}

func (a *apply) chooseOwner() error {
	info, err := os.Stat(a.dirs.data)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		a.log.Warn("data directory can be entered by others than its owner; etcd recommends 0700",
			zap.String("dir", a.dirs.data), zap.String("seen", modeAndOwner(info)))
	}
	if a.Plan.owner == nil {
		a.owner = inherited(info)
		return nil
	}
	a.owner = (*stage.Owner)(a.Plan.owner)
	if !writableBy(info, *a.owner) {
		a.log.Warn("etcd may be unable to write in its data directory: chown it",
			zap.String("dir", a.dirs.data), zap.String("seen", modeAndOwner(info)),
			zap.String("etcd_user", fmt.Sprintf("%d:%d", a.owner.UID, a.owner.GID)))
	}
	return nil
}

func writableBy(info fs.FileInfo, user stage.Owner) bool {
	owner, ok := stage.OwnerOf(info)
	mode := info.Mode().Perm()
	return !ok || user.UID == 0 || owner.UID == user.UID && mode&0o200 != 0 ||
		owner.GID == user.GID && mode&0o020 != 0 || mode&0o002 != 0
}

// space refuses a file system that etcd would fill: a segment and the one that
// etcd prepares at its start, and the database.
func (a *apply) space() error {
	wal, db := 2*raftlog.SegmentSize(), a.content.dbSize()
	if !a.dirs.separate {
		return enough(a.dirs.data, wal+db)
	}
	same, err := stage.SameDevice(nearest(a.dirs.data), nearest(a.dirs.wal))
	if err != nil {
		return err
	}
	if same {
		return enough(a.dirs.wal, wal+db)
	}
	return errors.Join(enough(a.dirs.data, db), enough(a.dirs.wal, wal))
}

func enough(path string, need int64) error {
	free, known, err := stage.Free(nearest(path))
	if err != nil {
		return err
	}
	if known && free < need {
		const mib = 1 << 20
		return &Error{Kind: Write, Msg: fmt.Sprintf("%s needs %d MiB, %d MiB free: two WAL segments of 64 MB and the database; use a larger volume",
			path, (need+mib-1)/mib, free/mib)}
	}
	return nil
}

func (a *apply) stageDB() (err error) {
	if a.data, err = stage.New(a.dirs.data); err != nil {
		return err
	}
	if err = a.data.Mkdir(snapDir); err != nil {
		return err
	}
	record, err := a.Record().text()
	if err != nil {
		return err
	}
	if err := a.data.WriteFile(recordFileName, record); err != nil {
		return err
	}
	if a.Pending {
		if err := a.data.WriteFile(a.mark(), pendingText); err != nil {
			return err
		}
	}
	if a.dirs.separate {
		if err := a.data.WriteFile(halfFile, halfText+"digest "+a.Digest()+"\nwal-dir "+a.dirs.wal+"\n"); err != nil {
			return err
		}
	}
	id := raftlog.Identity{Member: a.MemberID, Cluster: a.ClusterID}
	return stage.Private(func() error { return a.content.data(a.data.Path(snapDir), id) })
}

func (a *apply) stageWAL() (err error) {
	a.wal = a.data
	if a.dirs.separate {
		if a.wal, err = stage.New(a.dirs.wal); err != nil {
			return err
		}
	}
	id := raftlog.Identity{Member: a.MemberID, Cluster: a.ClusterID}
	return stage.Private(func() error { return a.content.log(a.wal.Path(a.stagedWAL()), id) })
}

// stagedWAL is the log's directory within its staging directory.
func (a *apply) stagedWAL() string {
	if a.dirs.separate {
		return "wal"
	}
	return innerWALDir
}

func (a *apply) finish() error {
	if a.dirs.separate {
		if err := a.wal.Finish("wal", a.owner); err != nil {
			return err
		}
	}
	return a.data.Finish(memberDir, a.owner)
}

// end removes what is not needed any more, and after an error also the directories
// that were made for nothing, unless another process may be at work in them: one that
// locks a directory that is removed under him holds nothing.
func (a *apply) end() error {
	for _, dir := range []*stage.Dir{a.wal, a.data} {
		if dir == nil {
			continue
		}
		if err := dir.Remove(); err != nil {
			a.log.Warn("staging directory stays until the next run", zap.String("dir", dir.Path("")), zap.Error(err))
		}
	}
	if !a.done && !a.shared {
		stage.Unmake(a.made)
	}
	var errs []error
	for _, f := range a.own {
		errs = append(errs, f.Close())
	}
	return errors.Join(append(errs, a.locks.release())...)
}

// explain makes an error of a system call one line for the person on call.
func (a *apply) explain(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	msg := a.act + " " + a.DataDir + " failed"
	if a.done {
		msg = a.act + " " + a.DataDir + " failed at its very end"
	}
	path := a.DataDir
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		path = nearest(pe.Path)
	}
	switch {
	case errors.Is(err, syscall.EROFS):
		msg += ": " + path + " is on a read-only file system: mount the volume read-write"
	case errors.Is(err, fs.ErrPermission):
		msg += fmt.Sprintf(": %s cannot be written by uid %d, gid %d", describe(path), os.Geteuid(), os.Getegid())
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		msg += ": no space (or quota) left for two WAL segments of 64 MB and the database: use a larger volume"
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, syscall.ENOLCK):
		msg += ": the file system of " + path + " has no file locks, and etcd does not start without: use another volume (NFS: mount it without nolock)"
	}
	return &Error{Kind: Write, Msg: msg, Err: err}
}

// nearest is path or its nearest parent that exists.
func nearest(path string) string {
	for !exists(path) && filepath.Dir(path) != path {
		path = filepath.Dir(path)
	}
	return path
}
