package seed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// Confirm makes what Inspect has found durable, before it is said to others: the
// run that made it may have been killed before its last sync. It opens for reading
// only. Where the directory is not any more what st says, the error is Busy.
func Confirm(st *State) error {
	if !stage.Supported {
		return unsupported("making a data directory durable")
	}
	dirs, err := newLayout(st.DataDir, st.WALDir)
	if err == nil {
		dirs, err = dirs.resolved()
	}
	if err == nil {
		err = confirm(dirs, st)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, fs.ErrNotExist) {
		return otherNow(st, err)
	}
	if err != nil {
		return &Error{Kind: Write, Msg: "cannot make " + st.DataDir + " durable", Err: err}
	}
	now, err := look(dirs)
	if err == nil && now != st.Sight {
		err = otherNow(st, nil)
	}
	return err
}

func confirm(dirs layout, st *State) error {
	switch {
	case st.Kind == Empty && st.DiskID != "":
		t, err := readTokens(dirs)
		if err != nil {
			return err
		}
		if t.same() != st.DiskID || t.bound() {
			return otherNow(st, nil)
		}
		for _, side := range t.sides() {
			if err := side.sync(st.DiskID); err != nil {
				return err
			}
		}
		return nil
	case st.Kind == Valid:
		// A disk ID that is still there could be bound once more.
		t, err := readTokens(dirs)
		if err != nil {
			return err
		}
		if len(t.paths()) > 0 {
			return &Error{Kind: Changed, Msg: "the seed in " + st.DataDir + " is not finished: its disk ID is still there"}
		}
		return confirmSeed(dirs, st)
	}
	return &Error{Kind: Changed, Msg: st.DataDir + " holds nothing to be made durable"}
}

func confirmSeed(dirs layout, st *State) error {
	l, err := list(dirs)
	if err != nil {
		return err
	}
	if len(l.segments) == 0 {
		return otherNow(st, nil)
	}
	member := filepath.Join(dirs.data, memberDir)
	files := []string{filepath.Join(dirs.wal, l.segments[0])}
	if l.db {
		files = append(files, filepath.Join(dirs.data, dbFile))
	}
	if l.record {
		files = append(files, filepath.Join(dirs.data, recordFileName))
	}
	for _, name := range l.markNames() {
		files = append(files, filepath.Join(member, name))
	}
	for _, path := range files {
		if err := stage.SyncFile(path); err != nil {
			return err
		}
	}
	for _, dir := range []string{filepath.Join(dirs.data, snapDir), dirs.wal, member, dirs.data} {
		if err := stage.SyncDir(dir); err != nil {
			return err
		}
	}
	if dirs.separate {
		if err := stage.SyncParent(dirs.wal); err != nil {
			return err
		}
	}
	return stage.SyncParent(dirs.data)
}

// otherNow: the caller has to inspect again, and to decide anew.
func otherNow(st *State, cause error) error {
	return &Error{Kind: Changed, Msg: st.DataDir + " has changed since it was inspected: run again", Err: cause}
}

// Release removes the mark "not released yet" durably, and only from the very
// directory that st describes: member/ is opened, its identity must be that of
// st.Sight and its record must name st's cluster and disk; the mark is removed
// through that handle. A mark that is gone already is a success. Anything else is
// an error of kind Busy: inspect and decide again.
func Release(st *State) error {
	return withMember(st, "release", func(h *stage.Handle) error {
		for _, name := range marksOf(st) {
			if err := h.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return h.Sync()
	})
}

// Unrelease puts the mark back, durably and through the same checks as Release.
func Unrelease(st *State) error {
	return withMember(st, "take back the release of", func(h *stage.Handle) error {
		name := marksOf(st)[0]
		if err := h.WriteFile(name, pendingText); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return h.Sync()
	})
}

// marksOf lists the names of st's mark; the second edition's come with a record.
func marksOf(st *State) []string {
	old := filepath.Base(pendingFile)
	if st.Record == nil {
		return []string{old}
	}
	return []string{markName(st.ClusterID), old}
}

// withMember calls fn with a handle of member/, once it is known to be the one
// that st describes; and afterwards it must still be.
func withMember(st *State, what string, fn func(*stage.Handle) error) (err error) {
	if !stage.Supported {
		return unsupported("releasing a seed")
	}
	if st.Kind != Valid || !st.Sight.member.Known() {
		return &Error{Kind: Changed, Msg: st.DataDir + " holds no seed to " + what}
	}
	path := filepath.Join(st.DataDir, memberDir)
	h, err := stage.OpenHandle(path)
	if err != nil {
		return otherNow(st, err)
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := sameSeed(st, h); err != nil {
		return err
	}
	if err := fn(h); err != nil {
		return &Error{Kind: Write, Msg: "cannot " + what + " the seed in " + st.DataDir, Err: err}
	}
	if info, err := os.Lstat(path); err != nil || stage.IDOf(info) != h.ID() {
		return otherNow(st, err)
	}
	return nil
}

// sameSeed: the open directory is the one that st describes.
func sameSeed(st *State, h *stage.Handle) error {
	if h.ID() != st.Sight.member {
		return otherNow(st, nil)
	}
	f, err := h.Open(filepath.Base(recordFileName))
	if errors.Is(err, fs.ErrNotExist) && st.Record == nil {
		return nil
	}
	if err != nil {
		return otherNow(st, err)
	}
	rec, err := readRecord(f)
	err = errors.Join(err, f.Close())
	if err != nil || st.Record == nil || rec.ClusterID != st.ClusterID || rec.DiskID != st.Record.DiskID || rec.MemberID != st.MemberID {
		return otherNow(st, err)
	}
	return nil
}
