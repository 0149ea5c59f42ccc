package seed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/etcdinit/etcdinit/seed/internal/membersdb"
	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
)

// lockWait is how long a reader waits for a lock on the database: an etcd that is
// just ending gets the time, a running one is told within a second.
const lockWait = 500 * time.Millisecond

// Inspect tells what a data directory holds. It writes nothing, not even a
// modification time, and reads little: the head of each WAL segment, and the
// members and meta buckets of the database. walDir is "" for the default.
//
// The answer is one of four.
//  1. Empty: nothing of an etcd is there, or only what an unfinished run of this
//     program left (Leftovers).
//  2. Valid: log and database are there and belong together.
//  3. Broken: anything else of an etcd, with the first Reason.
//  4. An error: the directory cannot be read, or a running etcd holds it (Busy).
func Inspect(dataDir, walDir string) (*State, error) {
	dirs, err := newLayout(dataDir, walDir)
	if err != nil {
		return nil, err
	}
	dirs, err = dirs.resolved()
	if err != nil {
		return nil, err
	}
	return steady(dirs, func() (*State, error) {
		st, _, err := examine(dirs)
		return st, err
	})
}

// found is what examine read beside the State.
type found struct {
	listing *listing
	log     *raftlog.Log
	db      *membersdb.Contents
	// half: our own database whose log never appeared; it may be taken away.
	half bool
	// bare: a database that no etcd has ever had anything to put into.
	bare   bool
	tokens tokens
}

// examine decides what is there. All damage ends in State.Reason here.
func examine(dirs layout) (st *State, fd *found, err error) {
	dirs, err = dirs.resolved()
	if err != nil {
		return nil, nil, err
	}
	st = &State{Kind: Empty, DataDir: dirs.data, WALDir: dirs.wal}
	fd = &found{}
	fd.listing, err = list(dirs)
	if err != nil {
		return nil, nil, readError(err)
	}
	l := fd.listing
	st.Ignored, st.Leftovers, st.Foreign, st.Withdrawn, st.Staged = l.ignored, l.leftovers, l.foreign, l.withdrawn, l.staged
	st.Segments, st.DBSize, st.Modified = len(l.segments), l.dbSize, l.modified
	st.Pending, st.Misplaced = l.pending || len(l.marks) > 0, l.misplaced
	fd.tokens, err = readTokens(dirs)
	if err != nil {
		return nil, nil, readError(err)
	}
	err = judge(dirs, st, fd)
	if d, ok := errors.AsType[*damage](err); ok {
		st.Kind, st.Reason, err = Broken, d.reason, nil
		st.LogLost = d.lost
		st.Pristine = false
	}
	if err == nil {
		fd.disks(st)
	}
	return st, fd, err
}

// damage is a reason why a directory is Broken. lost: votes may be gone with it.
type damage struct {
	reason string
	lost   bool
}

func (d *damage) Error() string { return d.reason }

func broken(format string, args ...any) error { return &damage{fmt.Sprintf(format, args...), false} }

func lost(format string, args ...any) error { return &damage{fmt.Sprintf(format, args...), true} }

func judge(dirs layout, st *State, fd *found) error {
	if err := halves(dirs, st, fd); err != nil || st.Kind == Empty {
		return err
	}
	log, err := raftlog.Inspect(dirs.wal, fd.listing.segments)
	if err != nil {
		return readable(err)
	}
	var db *membersdb.Contents
	if fd.listing.db {
		db, err = membersdb.Read(filepath.Join(dirs.data, dbFile), lockWait)
		err = dbError(err)
	} else {
		db, err = replayed(dirs, st, fd.listing, log)
	}
	if err != nil {
		return err
	}
	fd.log, fd.db = log, db
	st.MemberID, st.ClusterID = log.Member, log.Cluster
	st.Removed = db.Removed
	stored := db.Members
	if len(stored) == 0 {
		stored = log.Bootstrap // an etcd that was stopped before it had applied its first entries
	}
	for _, m := range stored {
		st.Members = append(st.Members, fromEtcd(m))
	}
	for i := range st.Members {
		if st.Members[i].ID == st.MemberID {
			st.Self = &st.Members[i]
		}
	}
	st.Pristine = log.Pristine
	st.PackageDefault = packageDefault(st.Members)
	if st.Pending && fd.listing.linked == filepath.Join(dirs.data, memberDir) {
		return broken("%s is a symbolic link, and the seed in it is not released yet: name its target's parent as data-dir", fd.listing.linked)
	}
	if !st.LogAlone {
		err = together(dirs, st, log, db)
	}
	if err == nil {
		err = recorded(dirs, st, fd)
	}
	return err
}

// replayed is what a database would say that is not there: etcd makes it anew from a
// log that reaches back to the first entry (measured on 3.4 to 3.7), so such data
// are whole. A pending seed is another matter: it is this program's, and had one.
func replayed(dirs layout, st *State, l *listing, log *raftlog.Log) (*membersdb.Contents, error) {
	missing := fmt.Sprintf("%s holds %d WAL segments but %s is missing", dirs.wal, len(l.segments), filepath.Join(dirs.data, dbFile))
	switch {
	case st.Pending && log.Pristine:
		return nil, broken("%s, and the seed is pending: no etcd has run on it", missing)
	case log.FirstIndex > 0, len(l.snaps) > 0:
		return nil, lost("%s%s, and the log alone does not reach back to the first entry", missing, l.hint(dirs))
	case dirs.separate && !exists(filepath.Join(dirs.data, memberDir)):
		st.Misplaced = true
		return nil, broken("%s%s", missing, l.hint(dirs))
	}
	whole, err := raftlog.Replay(dirs.wal, l.segments)
	if err != nil {
		return nil, readable(err)
	}
	st.LogAlone = true
	return &membersdb.Contents{Members: whole.Members, Removed: whole.Removed}, nil
}

// recorded reads the record. It is a hint, and the log rules; but a pending seed
// cannot be judged without it, and a record of another seed shows that log and
// database do not belong together.
func recorded(dirs layout, st *State, fd *found) error {
	l := fd.listing
	path := filepath.Join(dirs.data, recordFileName)
	for _, id := range l.marks {
		if id != st.ClusterID {
			return broken("%s is for another cluster than the log in %s, which is of cluster %s: they do not belong together",
				filepath.Join(dirs.data, memberDir, markName(id)), dirs.wal, st.ClusterID)
		}
	}
	if !l.record {
		if len(l.marks) > 0 {
			return broken("the seed is pending, but %s is missing: without it nobody can tell whom it waits for", path)
		}
		return nil
	}
	rec, err := openRecord(path)
	if err != nil {
		st.RecordProblem = fmt.Sprintf("%s cannot be used: %v", path, err)
		if st.Pending {
			return broken("the seed is pending, but %s", st.RecordProblem)
		}
		return nil
	}
	if rec.MemberID != st.MemberID || rec.ClusterID != st.ClusterID {
		st.RecordProblem = fmt.Sprintf("%s is of member %s of cluster %s, but the log in %s is of %s of %s",
			path, rec.MemberID, rec.ClusterID, dirs.wal, st.MemberID, st.ClusterID)
		return broken("%s: they do not belong together", st.RecordProblem)
	}
	if st.Pending && rec.Kind == RecordComputed {
		return broken("the seed is pending, but %s names no roster", path)
	}
	st.Record = rec
	st.joins(fd)
	return nil
}

// joins fills in what the bucket of a joining member cannot say yet: until its etcd
// has published, it has no entry, or one without a name.
func (st *State) joins(fd *found) {
	if st.Record.Kind != RecordJoin && st.Record.Kind != RecordRescue {
		return
	}
	st.Fed = fd.log.Fed && fd.log.Commit == fd.db.ConsistentIndex
	st.Pristine = fd.log.Bare && fd.db.Untouched() || st.Fed
	if len(st.Members) == 0 {
		st.Members = slices.Clone(st.Record.Members)
		st.Self = nil
	}
	self := st.Record.self()
	for i := range st.Members {
		m := &st.Members[i]
		if m.ID != st.MemberID {
			continue
		}
		if m.Name == "" {
			m.Name, m.ClientURLs = self.Name, self.ClientURLs
		}
		if st.Record.Kind == RecordRescue && st.Pristine {
			m.PeerURLs = st.Record.PeerURLs // what the cluster lists is what was wrong
		}
		st.Self = m
		return
	}
	if !slices.Contains(st.Removed, st.MemberID) {
		st.Self = self // the log has not come that far
	}
}

// halves decides from the names alone, and sets the kind Empty or Valid.
func halves(dirs layout, st *State, fd *found) error {
	l := fd.listing
	db := filepath.Join(dirs.data, dbFile)
	where := dirs.wal
	if dirs.separate {
		where = "wal-dir " + dirs.wal
	}
	switch {
	case l.refusal != "":
		return broken("%s", l.refusal)
	case dirs.separate && len(l.innerSegments) > 0:
		return broken("%s holds %d WAL segments, but wal-dir is %s (%d segments there): two logs, of which etcd would use the second; move the wrong one aside",
			filepath.Join(dirs.data, innerWALDir), len(l.innerSegments), dirs.wal, len(l.segments))
	case len(l.segments) == 0 && !l.db && len(l.snaps) == 0:
		st.Kind, st.Pending = Empty, false
		return l.nothing(dirs, st)
	case len(l.segments) == 0 && l.db:
		if l.half && fd.ownHalf(dirs, st) {
			st.Kind = Empty
			return nil
		}
		if bare, err := l.bareDB(db); err != nil || bare {
			st.Kind, st.Pending, fd.bare = Empty, false, true
			st.Unused = filepath.Join(dirs.data, memberDir)
			return err
		}
		return lost("%s exists but %s is missing or empty%s: the log is lost, and with it what this member has voted", db, where, l.hint(dirs))
	case len(l.segments) == 0:
		return lost("%s exists but %s is missing or empty%s", filepath.Join(dirs.data, snapDir, l.snaps[0]), where, l.hint(dirs))
	}
	st.Kind = Valid
	return nil
}

// bareDB tells the database of an etcd that was started too early, with
// initial-cluster-state: existing: it makes an empty one, asks for the cluster, and
// ends. No log was ever there, so nothing was voted.
func (l *listing) bareDB(path string) (bool, error) {
	if l.record || l.pending || l.half || len(l.marks) > 0 || len(l.snaps) > 0 || len(l.ignored) > 0 || l.memberForeign || l.linked != "" {
		return false, nil
	}
	bare, err := membersdb.Bare(path, lockWait)
	if errors.Is(err, membersdb.ErrLocked) || errors.Is(err, fs.ErrPermission) {
		return false, dbError(err)
	}
	return err == nil && bare, nil // what cannot be read is not empty
}

// nothing: there is no file of an etcd. What else an etcd leaves behind is still
// evidence that one has lived here.
func (l *listing) nothing(dirs layout, st *State) error {
	member := filepath.Join(dirs.data, memberDir)
	if l.linked != "" {
		return broken("%s is a symbolic link in a directory without data: a seed appears by one rename, and cannot replace it; give its target as data-dir or wal-dir instead", l.linked)
	}
	for _, path := range slices.Concat(l.ignored, l.foreign) {
		if within(member, path) || slices.Contains(l.ignored, path) {
			return lost("%s exists, but neither %s nor a WAL segment in %s: what is left of another life of this directory",
				path, filepath.Join(dirs.data, dbFile), dirs.wal)
		}
	}
	if l.record || len(l.marks) > 0 {
		return lost("%s is what is left of a seed, but neither %s nor a WAL segment in %s exists: what is left of another life of this directory",
			member, filepath.Join(dirs.data, dbFile), dirs.wal)
	}
	if l.pending {
		st.Leftovers = append(st.Leftovers, filepath.Join(dirs.data, pendingFile))
	}
	return nil
}

// hint says of a separate wal-dir which of the two is populated.
func (l *listing) hint(dirs layout) string {
	if !dirs.separate {
		return ""
	}
	if len(l.segments) > 0 {
		return fmt.Sprintf(" (populated: wal-dir %s, empty: data-dir %s)", dirs.wal, dirs.data)
	}
	return fmt.Sprintf(" (populated: data-dir %s, empty: wal-dir %s)", dirs.data, dirs.wal)
}

// ownHalf: the mark is ours and no etcd has touched the database beside it.
func (fd *found) ownHalf(dirs layout, st *State) bool {
	l := fd.listing
	if !dirs.separate || len(l.snaps) > 0 && !fd.restores(dirs) || len(l.ignored) > 0 || l.memberForeign {
		return false
	}
	db, err := membersdb.Read(filepath.Join(dirs.data, dbFile), lockWait)
	if err != nil || !db.Untouched() && !db.Seeded() && !fd.restores(dirs) {
		return false
	}
	fd.half = true
	st.Pending = false
	st.Leftovers = append(slices.DeleteFunc(st.Leftovers, func(path string) bool {
		return path == filepath.Join(dirs.data, halfFile)
	}), filepath.Join(dirs.data, memberDir))
	return true
}

// restores: the record beside the database is that of a seed whose database came from
// elsewhere.
func (fd *found) restores(dirs layout) bool {
	rec, err := openRecord(filepath.Join(dirs.data, recordFileName))
	return err == nil && (rec.Restored != nil || rec.Kind == RecordJoin || rec.Kind == RecordRescue)
}

// together decides whether a log and a database are halves of one member.
func together(dirs layout, st *State, log *raftlog.Log, db *membersdb.Contents) error {
	path := filepath.Join(dirs.data, dbFile)
	inDB := slices.ContainsFunc(db.Members, func(m *membership.Member) bool { return m.ID == log.Member })
	switch {
	case len(db.Members) > 0 && !inDB && !slices.Contains(db.Removed, log.Member):
		return lost("%s is the log of member %s, but %s knows only %s: they do not belong together", dirs.wal, log.Member, path, idList(db.Members))
	case log.Whole && db.ConsistentIndex > log.Last:
		return lost("%s has applied index %d, but the log in %s ends at %d: they do not belong together", path, db.ConsistentIndex, dirs.wal, log.Last)
	case db.ConsistentIndex > 0 && log.FirstIndex > db.ConsistentIndex+1:
		return lost("%s has applied index %d, but the log in %s begins at %d: entries between them are lost", path, db.ConsistentIndex, dirs.wal, log.FirstIndex)
	case log.Pristine && len(db.Members) > 0 && !sameIDs(log.Bootstrap, db.Members):
		return lost("%s was written for the members %s, %s for %s: they do not belong together", dirs.wal, idList(log.Bootstrap), path, idList(db.Members))
	}
	st.Kind = Valid
	return nil
}

func sameIDs(a, b []*membership.Member) bool {
	return slices.EqualFunc(a, b, func(x, y *membership.Member) bool { return x.ID == y.ID })
}

func idList(members []*membership.Member) string {
	ids := make(types.IDSlice, 0, len(members))
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids.String()
}

// readable tells damage from a directory that cannot be read.
func readable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return readError(err)
	}
	return lost("%s", err)
}

func dbError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, membersdb.ErrLocked) {
		return &Error{Kind: Busy, Msg: "an etcd (or another program) is using this data directory", Err: err}
	}
	return readable(err)
}

// readError is for what kept us from looking.
func readError(err error) error {
	msg := "cannot read"
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		msg = "cannot read " + describe(pe.Path)
	}
	return &Error{Kind: Write, Msg: msg, Err: err}
}

// describe names a path with its mode and owner, as far as they can be seen.
func describe(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return path
	}
	return fmt.Sprintf("%s (%s)", path, modeAndOwner(info))
}
