package seed

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/internal/birth"
	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// Names below .etcdinit-disk/<disk ID>/.
const (
	diskFile  = "disk"
	boundWAL  = "wal" // in a separate wal-dir
	diskLimit = 1 << 16
)

// diskText is the file that makes a directory a disk with an ID.
type diskText struct {
	Version int    `json:"version"`
	DiskID  DiskID `json:"diskID"`
	WALDir  string `json:"walDir,omitempty"` // where it is separate
}

// token is what .etcdinit-disk holds on one side: in the data-dir, or in a
// separate wal-dir.
type token struct {
	side string // the directory that holds it
	// there: .etcdinit-disk is a directory.
	there bool
	ids   []DiskID // the directories in it that are named by an ID
	whole bool     // there is one, and its file says the same
	bound bool     // a seed has been moved into one of them
	odd   bool     // something is there that this program does not know
}

func (t token) root() string            { return filepath.Join(t.side, diskDir) }
func (t token) path(id DiskID) string   { return filepath.Join(t.root(), string(id)) }
func (t token) member(id DiskID) string { return filepath.Join(t.path(id), memberDir) }
func (t token) wal(id DiskID) string    { return filepath.Join(t.path(id), boundWAL) }

// tokens are both sides; wal is the zero value without a separate wal-dir.
type tokens struct {
	data, wal token
	separate  bool
}

func (t *tokens) sides() []*token {
	if t.separate {
		return []*token{&t.wal, &t.data}
	}
	return []*token{&t.data}
}

// same is the ID that all sides have, whole; "" if there is none.
func (t *tokens) same() DiskID {
	if !t.data.whole || t.separate && (!t.wal.whole || t.wal.ids[0] != t.data.ids[0]) {
		return ""
	}
	return t.data.ids[0]
}

func (t *tokens) bound() bool { return t.data.bound || t.wal.bound }

// paths lists the .etcdinit-disk directories that are there, but for those that
// hold nothing of ours.
func (t *tokens) paths() (list []string) {
	for _, side := range t.sides() {
		if side.there && (len(side.ids) > 0 || !side.odd) {
			list = append(list, side.root())
		}
	}
	return list
}

func readTokens(dirs layout) (t tokens, err error) {
	t.separate = dirs.separate
	if t.data, err = readToken(dirs.data, dirs.separate); err != nil || !dirs.separate {
		return t, err
	}
	t.wal, err = readToken(dirs.wal, true)
	return t, err
}

func readToken(side string, separate bool) (token, error) {
	t := token{side: side}
	if info, err := os.Lstat(t.root()); err != nil || !info.IsDir() {
		t.odd = err == nil
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			err = nil
		}
		return t, err
	}
	t.there = true
	entries, err := os.ReadDir(t.root())
	if errors.Is(err, fs.ErrNotExist) { // removed just now
		return token{side: side}, nil
	}
	if err != nil {
		return t, err
	}
	for _, entry := range entries {
		id := DiskID(entry.Name())
		if !entry.IsDir() || !id.Valid() {
			t.odd = true
			continue
		}
		t.ids = append(t.ids, id)
		inner, rerr := os.ReadDir(t.path(id))
		if rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			return t, rerr
		}
		for _, e := range inner {
			switch e.Name() {
			case diskFile:
			case memberDir, boundWAL:
				t.bound = true
			default:
				t.odd = true
			}
		}
	}
	if len(t.ids) == 1 && !t.odd {
		t.whole, err = isWhole(filepath.Join(t.path(t.ids[0]), diskFile), t.ids[0], separate)
	}
	return t, err
}

// isWhole tells whether the file at path says that its directory is the disk id.
func isWhole(path string, id DiskID, separate bool) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > diskLimit {
		return false, err
	}
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the directory
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	text := diskText{}
	uerr := json.Unmarshal(data, &text)
	return uerr == nil && text.Version == 1 && text.DiskID == id && (text.WALDir != "") == separate, nil
}

// useUp takes every ID of one side away for good: each by one rename into a staging
// directory, by its own name, so that an ID which another run has made meanwhile
// stays. From then on no rename can bind it.
func (t *token) useUp(dir *stage.Dir) error {
	if !t.there {
		return nil
	}
	for _, id := range t.ids {
		err := stage.Rename(t.path(id), dir.Path("used-"+string(id)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := stage.SyncDir(t.root()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(t.root()); err != nil && !errors.Is(err, fs.ErrNotExist) && !notEmpty(err) {
		return err
	}
	return stage.SyncDir(t.side)
}

func notEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist)
}

// sync makes one side durable.
func (t *token) sync(id DiskID) error {
	if err := stage.SyncFile(filepath.Join(t.path(id), diskFile)); err != nil {
		return err
	}
	for _, dir := range []string{t.path(id), t.root(), t.side} {
		if err := stage.SyncDir(dir); err != nil {
			return err
		}
	}
	return stage.SyncParent(t.side)
}

// disks decides what the .etcdinit-disk directories say of an Empty directory, and
// that they are leftovers of a Valid one.
func (fd *found) disks(st *State) {
	t := &fd.tokens
	for _, side := range t.sides() {
		if side.odd {
			st.Foreign = append(st.Foreign, side.root())
		}
	}
	switch {
	case st.Kind == Empty && t.bound():
		st.Unfinished = true
	case st.Kind == Empty && t.same() != "" && !fd.half:
		st.DiskID = t.same()
		return
	}
	if st.Kind != Broken {
		st.Leftovers = append(st.Leftovers, t.paths()...)
	}
}

// Prepare gives an empty directory its disk ID, durably, and the separate wal-dir
// the same one. Where they have one already, it is only made durable once more.
// An ID that is on one side only, or that differs, is replaced on both sides: it
// may have been said to others, and must never be bound on one side alone.
func Prepare(spec Spec, log *zap.Logger) (err error) {
	if !stage.Supported {
		return unsupported("preparing a data directory")
	}
	dirs, err := newLayout(spec.DataDir, spec.WALDir)
	if err != nil {
		return err
	}
	a := &apply{Plan: bare(spec, dirs), log: log, act: "preparing", bare: true}
	defer func() { err = errors.Join(err, a.end()) }()
	if err = a.prepare(); err != nil {
		return a.explain(err)
	}
	id, err := a.identify()
	if err != nil {
		return a.explain(err)
	}
	a.done = true
	log.Info("prepared data directory", zap.String("dir", a.DataDir), zap.String("disk_id", string(id)))
	return nil
}

// identify makes the disk ID, unless it is there.
func (a *apply) identify() (DiskID, error) {
	for tries := range 4 {
		t, err := readTokens(a.dirs)
		if err != nil {
			return "", err
		}
		if id := t.same(); id != "" && !t.bound() {
			for _, side := range t.sides() {
				if err = side.sync(id); err != nil {
					return "", err
				}
			}
			return id, nil
		}
		if tries == 0 {
			err = a.openStages()
		}
		if err == nil {
			err = a.replaceTokens(&t)
		}
		if err != nil && !notEmpty(err) {
			return "", err
		}
	}
	return "", &Error{Kind: Changed, Msg: "another process gives " + a.DataDir + " its disk ID at the same time"}
}

func (a *apply) openStages() (err error) {
	if err = a.space(); err != nil {
		return err
	}
	if a.data, err = stage.New(a.dirs.data); err == nil && a.dirs.separate {
		a.wal, err = stage.New(a.dirs.wal)
	}
	return err
}

// stageOf is the staging directory beside a token.
func (a *apply) stageOf(side *token) *stage.Dir {
	if side.side == a.dirs.wal {
		return a.wal
	}
	return a.data
}

// replaceTokens makes a new ID on all sides. It is durable, and taken for one, only
// when identify has found it on all of them.
func (a *apply) replaceTokens(t *tokens) error {
	text := diskText{Version: 1, DiskID: birth.NewDiskID()}
	if a.dirs.separate {
		text.WALDir = a.dirs.wal
	}
	data, err := json.Marshal(text)
	if err != nil {
		return err
	}
	for _, side := range t.sides() {
		if side.odd {
			return &Error{Kind: Write, Msg: side.root() + " holds something that etcdinit has not made there: move it aside"}
		}
		if err := side.useUp(a.stageOf(side)); err != nil {
			return err
		}
	}
	for _, side := range t.sides() {
		dir, name := a.stageOf(side), "new-"+string(text.DiskID)
		inner := filepath.Join(name, string(text.DiskID))
		err := dir.Mkdir(inner)
		if err == nil {
			err = dir.WriteFile(filepath.Join(inner, diskFile), string(data)+"\n")
		}
		if err == nil {
			err = dir.Finish(name, a.owner)
		}
		if err == nil {
			// It fails on a directory that is not empty, on every file system: two
			// runs never make two IDs.
			err = stage.Rename(dir.Path(name), side.root())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unfinished completes a commit that was cut short between its two renames, or
// takes it back: nothing of it has been said to anybody. Taken back, the disk has
// its ID again.
func unfinished(dirs layout, fd *found) (err error) {
	t := &fd.tokens
	if id := t.same(); id != "" {
		if ok, err := sound(dirs, fd, id); err != nil {
			return err
		} else if ok {
			if fd.bare {
				if _, err := moveAside(dirs, filepath.Join(dirs.data, memberDir)); err != nil {
					return err
				}
			}
			return settleBound(dirs, t, id, fd.half)
		}
	}
	for _, side := range t.sides() {
		for _, id := range side.ids {
			for _, path := range []string{side.wal(id), side.member(id)} {
				if err := removeBound(side.side, path); err != nil {
					return err
				}
			}
		}
	}
	if fd.half {
		return removeHalf(dirs)
	}
	return nil
}

// sound tells whether what is bound, with what is settled of it, is the whole seed
// of the disk id.
func sound(dirs layout, fd *found, id DiskID) (bool, error) {
	t := &fd.tokens
	at := layout{data: t.data.path(id), wal: filepath.Join(t.data.path(id), innerWALDir), separate: dirs.separate}
	if dirs.separate {
		at.wal = t.wal.wal(id)
	}
	if fd.half {
		at.data = dirs.data
	}
	st, _, err := examine(at)
	return err == nil && st.Kind == Valid && st.Pristine && st.Record != nil && st.Record.DiskID == id, err
}

func settleBound(dirs layout, t *tokens, id DiskID, half bool) error {
	if !half {
		if err := clearSkeleton(dirs); err != nil {
			return err
		}
		if err := stage.Rename(t.data.member(id), filepath.Join(dirs.data, memberDir)); err != nil {
			return err
		}
		if err := stage.SyncDir(dirs.data); err != nil {
			return err
		}
	}
	if dirs.separate {
		if err := stage.Rename(filepath.Join(t.wal.wal(id), raftlog.FirstSegment), filepath.Join(dirs.wal, raftlog.FirstSegment)); err != nil {
			return err
		}
		if err := stage.SyncDir(dirs.wal); err != nil {
			return err
		}
	}
	if err := spend(t); err != nil || !dirs.separate {
		return err
	}
	return removeDurably(filepath.Join(dirs.data, halfFile))
}

// spend uses up the IDs of all sides, each in a staging directory of its own. The
// log's side comes first: while the data's is there, nobody says "committed".
func spend(t *tokens) error {
	// The seed that has settled is durable before: the database, then its log.
	for _, side := range slices.Backward(t.sides()) {
		if err := stage.SyncDir(side.side); err != nil {
			return err
		}
	}
	for _, side := range t.sides() {
		if !side.there {
			continue
		}
		dir, err := stage.New(side.side)
		if err != nil {
			return err
		}
		if err := errors.Join(side.useUp(dir), dir.Remove()); err != nil {
			return err
		}
	}
	return nil
}

// removeBound takes back what was bound: by one rename into a staging directory.
func removeBound(side, path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, err := stage.New(side)
	if err != nil {
		return err
	}
	err = stage.Rename(path, dir.Path("bound"))
	if err == nil {
		err = stage.SyncDir(filepath.Dir(path))
	}
	return errors.Join(err, dir.Remove())
}

// choose decides, under the locks, what happens to the disk IDs that are there: one
// is bound, or all are used up.
func (a *apply) choose() error {
	id := a.tokens.same()
	switch {
	case a.born() && id == a.DiskID:
		a.disk = id
	case a.born() && a.Pending:
		return changed(a.DataDir)
	}
	return nil
}

func changed(dir string) error {
	return &Error{Kind: Changed, Msg: "the disk ID changed meanwhile in " + dir + ": run again"}
}

// checkBirth refuses a plan that Born made of what does not fit.
func (p *Plan) checkBirth() error {
	if !p.born() {
		return nil
	}
	if a, b, shared := p.Roster.Shared(); shared {
		return invalid("members %s and %s have the same disk ID %s: they share a directory, or one is a copy", a, b, p.Roster.Disk(a))
	}
	for _, seat := range p.Roster {
		if !seat.Disk.Valid() {
			return invalid("disk ID %q of member %s is not one", seat.Disk, seat.Member)
		}
		if !slices.ContainsFunc(p.Members, func(m Member) bool { return m.ID.String() == seat.Member }) {
			return invalid("the roster names member %s, which the plan has not", seat.Member)
		}
	}
	switch {
	case p.DiskID == "":
		return invalid("the roster has no disk for member %s", p.MemberID)
	case !p.Pending && len(p.Roster) != 1:
		return invalid("only the birth of one member needs no release, not of %d", len(p.Roster))
	}
	return nil
}

func unsupported(what string) error {
	return &Error{Kind: Write, Msg: what + " is not supported on this operating system", Err: errors.ErrUnsupported}
}
