package seed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed/internal/membersdb"
	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
	"github.com/etcdinit/etcdinit/seed/internal/snapfile"
	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

const (
	// stagedDB and stagedInfo are what a staging directory holds that keeps the database
	// of a snapshot. The second one is written when the first is whole and durable.
	stagedDB   = dbName
	stagedInfo = "snapshot.json"
	// rewriteRoom is what the members of a cluster add to a database, in bytes.
	rewriteRoom = 8 << 20
)

// Snapshot is what Stage reads.
type Snapshot struct {
	// Name is the file or URL, for messages and the record.
	Name string
	// Open begins the stream. Size is its length in bytes, -1 where that is not known;
	// modified is when it was taken, zero where that is not known.
	Open func(context.Context) (r io.ReadCloser, size int64, modified time.Time, err error)
	// SHA256 is what the whole stream must have, in hexadecimal; "" for any.
	SHA256 string
	// Unchecked takes a stream without a digest at its end, or with a wrong one.
	Unchecked bool
	// Room is how many bytes the database may need, where the stream does not say.
	Room int64
	// Over stages beside the pending seed of a joining member (see Plan.Replace); else
	// the directory must be empty.
	Over bool
	// Whole keeps the database byte for byte: it is not rewritten (see Plan.Fed).
	Whole bool
	// Progress, where it is not nil, is called with the bytes read and the size.
	Progress func(read, size int64)
}

// Content is what a snapshot holds.
type Content struct {
	Source   string    `json:"source"`            // the file or URL
	Modified time.Time `json:"modified,omitzero"` // when it was taken, as its file or server says
	SHA256   string    `json:"sha256"`            // of the database, which is the digest at the snapshot's end
	File     string    `json:"fileSHA256,omitempty"`
	Size     int64     `json:"size"` // of the database in bytes
	Verified bool      `json:"verified"`
	Revision int64     `json:"revision"`
	// Bump is added to the revision of what is restored, and all up to there compacted.
	Bump    uint64   `json:"bump,omitempty"`
	Version string   `json:"version,omitempty"` // storage or cluster version: 3.6.0
	Members []Member `json:"members,omitempty"` // of the cluster that it was taken of
	Keys    int64    `json:"keys,omitempty"`    // entries, old revisions too; of ReadSnapshot only
}

// Staged is a database from a snapshot that lies beside a data directory, whole and
// durable, until Apply makes it a seed or Unstage removes it.
type Staged struct {
	Content
	// Index and Term are those of the last entry that the database has applied.
	Index, Term uint64
	dir         string
	contents    *membersdb.Contents // nil where an earlier run has staged it
}

// Stage reads a snapshot into a staging directory in the data directory of spec, in one
// pass: what is read is hashed and written at once. A snapshot that an earlier run has
// staged from the same source is used again, once it has been hashed. The error tells
// what is wrong with the snapshot (Invalid), or what could not be written (Write); the
// staging directory is gone then.
func Stage(ctx context.Context, spec Spec, s Snapshot, log *zap.Logger) (_ *Staged, err error) {
	dirs, err := newLayout(spec.DataDir, spec.WALDir)
	if err != nil {
		return nil, err
	}
	a := &apply{Plan: bare(spec, dirs), log: log, act: "staging a snapshot in", bare: true, over: s.Over}
	defer func() {
		a.done = err == nil // the directories stay with what is staged in them
		err = errors.Join(err, a.end())
	}()
	if err = a.prepare(); err != nil {
		return nil, a.explain(err)
	}
	r, size, modified, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()                                                        //nolint:errcheck // opened for reading
	if f, isFile := r.(*os.File); isFile && membersdb.InUse(f, lockWait) { // the lock goes with the file
		return nil, inUse(s.Name)
	}
	again, err := reuse(ctx, a.dirs, s, size, modified)
	if err != nil || again != nil {
		return again, err
	}
	if err = unstage(a.dirs); err != nil {
		return nil, a.explain(err)
	}
	if err = room(a.dirs, max(size, s.Room)); err != nil {
		return nil, a.explain(err)
	}
	dir, err := stage.New(a.dirs.data)
	if err != nil {
		return nil, a.explain(err)
	}
	staged, err := fill(ctx, dir, r, s, size, modified)
	if err != nil {
		var bad *snapfile.Error
		if errors.As(err, &bad) {
			err = invalid("%s cannot be restored: %s", s.Name, bad.Msg)
		}
		return nil, errors.Join(a.explainCopy(s, err), dir.Remove())
	}
	return staged, nil
}

// explainCopy tells a read that failed from a write that did.
func (a *apply) explainCopy(s Snapshot, err error) error {
	var e *Error
	var path *fs.PathError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &path) && filepath.Base(path.Path) == stagedDB:
		return a.explain(err)
	}
	return fmt.Errorf("reading %s: %w", s.Name, err)
}

// room: the database, the members that are written into it, and two segments of a log.
func room(dirs layout, size int64) error {
	wal := 2 * raftlog.SegmentSize()
	if !dirs.separate {
		return roomFor(dirs.data, size+rewriteRoom+wal)
	}
	return errors.Join(roomFor(dirs.data, size+rewriteRoom), roomFor(dirs.wal, wal))
}

func roomFor(path string, need int64) error {
	free, known, err := stage.Free(nearest(path))
	if err != nil {
		return err
	}
	if known && free < need {
		const mib = 1 << 20
		return &Error{Kind: Write, Msg: fmt.Sprintf("%s needs %d MiB for the snapshot's database and two WAL segments of 64 MB, %d MiB free: use a larger volume", path, (need+mib-1)/mib, free/mib)}
	}
	return nil
}

// fill copies the database, reads what it says, and makes both durable.
func fill(ctx context.Context, dir *stage.Dir, r io.Reader, s Snapshot, size int64, modified time.Time) (*Staged, error) {
	var db *os.File
	err := stage.Private(func() (err error) {
		db, err = os.OpenFile(dir.Path(stagedDB), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return nil, err
	}
	sum, err := copyInto(ctx, db, r, s, size)
	if err == nil && s.SHA256 != "" && s.SHA256 != sum.File && s.SHA256 != sum.SHA256 {
		err = invalid("%s is not the snapshot that was asked for: its SHA-256 is %s, not %s", s.Name, sum.File, s.SHA256)
	}
	if err == nil && !s.Whole {
		err = membersdb.SkipScan(db)
	}
	if err == nil {
		err = db.Sync()
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	contents, err := membersdb.Read(dir.Path(stagedDB), lockWait)
	if err != nil {
		return nil, invalid("%s cannot be restored: the database in it is damaged: %v", s.Name, err)
	}
	staged := &Staged{Content: content0(s.Name, modified, sum, contents), dir: dir.Path(""), Index: contents.ConsistentIndex, Term: contents.Term, contents: contents}
	text, err := json.MarshalIndent(staged.Content, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := dir.WriteFile(stagedInfo, string(text)+"\n"); err != nil {
		return nil, err
	}
	if err := stage.SyncFile(dir.Path(stagedInfo)); err != nil {
		return nil, err
	}
	return staged, stage.SyncDir(dir.Path(""))
}

// copyInto copies, or shares the blocks of a file where the file system can do that; then
// it is only read.
func copyInto(ctx context.Context, db *os.File, r io.Reader, s Snapshot, size int64) (snapfile.Sum, error) {
	progress := func(read int64) {
		if s.Progress != nil {
			s.Progress(read, size)
		}
	}
	src, isFile := r.(*os.File)
	if !isFile || !snapfile.Clone(db, src) {
		return snapfile.Copy(ctx, db, r, s.Unchecked, progress)
	}
	// What counts is what is here: the source may be written to meanwhile.
	sum, err := snapfile.Copy(ctx, io.Discard, db, s.Unchecked, progress)
	if err != nil {
		return sum, err
	}
	return sum, db.Truncate(sum.Size)
}

func content0(source string, modified time.Time, sum snapfile.Sum, c *membersdb.Contents) Content {
	out := Content{
		Source: source, Modified: modified.UTC().Truncate(time.Second), SHA256: sum.SHA256, File: sum.File, Size: sum.Size, Verified: sum.Verified,
		Revision: c.Revision, Version: c.ClusterVersion, Keys: c.Keys,
	}
	if modified.IsZero() {
		out.Modified = time.Time{}
	}
	if c.StorageVersion != "" {
		out.Version = c.StorageVersion
	}
	for _, m := range c.Members {
		out.Members = append(out.Members, fromEtcd(m))
	}
	return out
}

// reuse finds a snapshot that an earlier run has staged from the same source, and hashes
// it once more.
func reuse(ctx context.Context, dirs layout, s Snapshot, size int64, modified time.Time) (*Staged, error) {
	for _, dir := range stagedIn(dirs) {
		staged, err := openStaged(dir)
		if err != nil || staged.Source != s.Name || modified.IsZero() || !staged.Modified.Equal(modified.UTC().Truncate(time.Second)) ||
			!staged.Verified && !s.Unchecked || s.SHA256 != "" && s.SHA256 != staged.File && s.SHA256 != staged.SHA256 ||
			size >= 0 && size != staged.Size && size != staged.Size+sha256.Size {
			continue
		}
		sum, err := hashOf(ctx, filepath.Join(dir, stagedDB), staged.Size, func(read int64) {
			if s.Progress != nil {
				s.Progress(read, staged.Size)
			}
		})
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil && sum == staged.SHA256 {
			return staged, nil
		}
	}
	return nil, nil //nolint:nilnil // there is none to use
}

// hashOf is the hash of a staged database as it came. The empty freelist that it was
// given is in its meta page and behind its end: both are as they were before for the hash.
func hashOf(ctx context.Context, path string, size int64, progress func(int64)) (_ string, err error) {
	f, err := os.Open(path) //nolint:gosec // in the data directory
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	r, err := membersdb.Unskipped(f, size)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	buf := make([]byte, 1<<20)
	var read int64
	for {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		n, err := r.Read(buf)
		_, _ = h.Write(buf[:n]) // a hash never fails
		read += int64(n)
		progress(read)
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// stagedIn lists the staging directories that keep a whole snapshot.
func stagedIn(dirs layout) (list []string) {
	entries, err := os.ReadDir(dirs.data)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if path := filepath.Join(dirs.data, entry.Name()); keepsSnapshot(path) {
			list = append(list, path)
		}
	}
	return list
}

// keepsSnapshot: a staging directory with a whole snapshot in it.
func keepsSnapshot(path string) bool {
	return stage.Ours(path) && exists(filepath.Join(path, stagedInfo)) && exists(filepath.Join(path, stagedDB))
}

func openStaged(dir string) (*Staged, error) {
	text, err := os.ReadFile(filepath.Join(dir, stagedInfo)) //nolint:gosec // in the data directory
	if err != nil {
		return nil, err
	}
	s := &Staged{dir: dir}
	return s, json.Unmarshal(text, &s.Content)
}

// Unstage removes the snapshots that earlier runs have staged in a data directory, under
// its lock, and returns their paths.
func Unstage(dataDir, walDir string) ([]string, error) {
	dirs, err := newLayout(dataDir, walDir)
	if err == nil {
		dirs, err = dirs.resolved()
	}
	if err != nil {
		return nil, err
	}
	list := stagedIn(dirs)
	if len(list) == 0 {
		return nil, nil
	}
	var held locks
	_, err = held.acquire(dirs.data)
	if err == nil {
		err = unstage(dirs)
	}
	if err = errors.Join(err, held.release()); err != nil {
		return nil, explainClean(dirs, err)
	}
	return list, nil
}

func unstage(dirs layout) error {
	for _, dir := range stagedIn(dirs) {
		if err := stage.Remove(dir); err != nil {
			return err
		}
	}
	return nil
}

// There reports whether what was staged is still there.
func (s *Staged) There() bool { return keepsSnapshot(s.dir) }

// Restoring is the plan of a birth that has a snapshot's content: a copy. All members
// must restore the same one, with the same bump: both are part of the digest. Apply
// uses the staged database up; it ends with Changed where that is gone.
func (p *Plan) Restoring(s *Staged, bump uint64) (*Plan, error) {
	seeds, ok := p.content.(bootstrap)
	if !ok || p.kind == RecordJoin {
		return nil, invalid("only a birth restores a snapshot")
	}
	b := *p
	c := s.Content
	c.Bump = bump
	c.Keys = 0
	b.Restored = &c
	b.content = restored{bootstrap: seeds, staged: s, bump: bump}
	return &b, b.listFiles()
}

// Staging is the plan while the snapshot of source is not known yet: its digest is no
// other plan's, so nobody agrees to it. Apply must not be called.
func (p *Plan) Staging(source string) *Plan {
	b := *p
	b.Restored = &Content{Source: source}
	return &b
}

// restored is the content of a member that is born with a snapshot's keys.
type restored struct {
	bootstrap
	staged *Staged
	bump   uint64
}

func (r restored) data(dir string, id raftlog.Identity) error {
	path := filepath.Join(dir, dbName)
	if err := os.Rename(filepath.Join(r.staged.dir, stagedDB), path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return &Error{Kind: Changed, Msg: "the snapshot that was staged in " + r.staged.dir + " is gone", Err: err}
		}
		return err
	}
	if _, err := membersdb.Rewrite(path, r.unpublished(), r.bump); err != nil {
		return err
	}
	n := uint64(len(r.members))
	if err := snapfile.WritePoint(dir, id.Cluster, bareMembers(r.members), "", n, 1, raftlog.Conf(r.members)); err != nil {
		return err
	}
	return stage.Remove(r.staged.dir)
}

func (r restored) log(dir string, id raftlog.Identity) error {
	return raftlog.WriteBehind(dir, id, r.members)
}

// dbSize: the database is there already; the members are written into it.
func (r restored) dbSize() int64 { return rewriteRoom }

// bareMembers are members as the log has them, without client URLs.
func bareMembers(members []*membership.Member) []*membership.Member {
	list := make([]*membership.Member, 0, len(members))
	for _, m := range members {
		list = append(list, &membership.Member{ID: m.ID, RaftAttributes: m.RaftAttributes, Attributes: membership.Attributes{Name: m.Name}})
	}
	return list
}

func inUse(path string) error {
	return &Error{Kind: Busy, Msg: path + " is in use by a running etcd (or another program): take a snapshot of it (etcdctl snapshot save)", Err: membersdb.ErrLocked}
}

// ReadSnapshot tells what a snapshot holds. It reads it twice, and writes nothing: the
// digest at its end is held against what is before it. Without digest, or with a wrong
// one, it is an error of kind Invalid, unless unchecked is set.
func ReadSnapshot(ctx context.Context, path string, unchecked bool, progress func(read, size int64)) (*Content, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, &Error{Kind: Invalid, Msg: "cannot read the snapshot", Err: err}
	}
	defer f.Close() //nolint:errcheck // opened for reading
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, invalid("%s is no file (%s)", path, info.Mode())
	}
	sum, err := snapfile.Copy(ctx, io.Discard, f, unchecked, func(read int64) {
		if progress != nil {
			progress(read, info.Size())
		}
	})
	var bad *snapfile.Error
	switch {
	case errors.As(err, &bad):
		return nil, invalid("%s is not to be used: %s", path, bad.Msg)
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	c, err := membersdb.Count(path, lockWait)
	if errors.Is(err, membersdb.ErrLocked) {
		return nil, inUse(path)
	}
	if err != nil {
		return nil, invalid("%s is not to be used: the database in it is damaged: %v", path, err)
	}
	out := content0(path, info.ModTime(), sum, c)
	return &out, nil
}

// String names the snapshot, its revision, and when it was taken.
func (c *Content) String() string {
	if c.SHA256 == "" {
		return c.Source + ", not read yet"
	}
	text := c.Source + ", revision " + strconv.FormatInt(c.Revision, 10)
	if c.Bump > 0 {
		text += fmt.Sprintf(" (+%d)", c.Bump)
	}
	if !c.Modified.IsZero() {
		text += ", of " + c.Modified.Format(time.RFC3339)
	}
	if len(c.SHA256) >= 12 {
		text += ", SHA-256 " + c.SHA256[:12] + "…"
	}
	return text
}
