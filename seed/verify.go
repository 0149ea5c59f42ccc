package seed

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/etcdinit/etcdinit/seed/internal/membersdb"
	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
)

// Verify is Inspect with damage as an error of kind Damaged. With deep it also
// reads every record of the log and every page of the database, and compares the
// two. It writes nothing. An empty directory is no error.
func Verify(dataDir, walDir string, deep bool) (*State, error) {
	dirs, err := newLayout(dataDir, walDir)
	if err != nil {
		return nil, err
	}
	if dirs, err = dirs.resolved(); err != nil {
		return nil, err
	}
	st, err := steady(dirs, func() (*State, error) { return verify(dirs, deep) })
	if err != nil {
		return nil, err
	}
	if st.Kind == Broken {
		return st, damaged(st)
	}
	return st, nil
}

func verify(dirs layout, deep bool) (*State, error) {
	st, fd, err := examine(dirs)
	if err != nil || st.Kind != Valid || !deep {
		return st, err
	}
	err = verifyDeep(st, fd)
	if d, ok := errors.AsType[*damage](err); ok {
		st.Kind, st.Reason, st.Pristine = Broken, d.reason, false
		return st, nil
	}
	return st, err
}

func damaged(st *State) error {
	return &Error{Kind: Damaged, Msg: "data directory is not valid: " + st.Reason + "; nothing was changed"}
}

func verifyDeep(st *State, fd *found) error {
	log, err := raftlog.Check(st.WALDir, fd.listing.segments)
	if err != nil {
		return readable(err)
	}
	if st.LogAlone {
		return nil
	}
	path := filepath.Join(st.DataDir, dbFile)
	if err := membersdb.Check(path, lockWait); err != nil {
		return dbError(err)
	}
	switch {
	case fd.db.ConsistentIndex > log.Last:
		return broken("%s has applied index %d, but the log in %s ends at %d", path, fd.db.ConsistentIndex, st.WALDir, log.Last)
	case log.Commit > log.Last:
		return broken("%s says that index %d is committed, but ends at %d", st.WALDir, log.Commit, log.Last)
	}
	return snapshotFile(st, fd, log)
}

// snapshotFile: a log whose beginning was purged starts from a snapshot, and up to
// etcd 3.7 one of those files must be there.
func snapshotFile(st *State, fd *found, log *raftlog.Log) error {
	if log.FirstIndex == 0 || !needsSnap(fd.db) {
		return nil
	}
	for _, name := range log.Snapshots {
		if slices.Contains(fd.listing.snaps, name+".snap") {
			return nil
		}
	}
	return broken("the log in %s begins at index %d and needs a snapshot, but %s has none of the %d that the log names",
		st.WALDir, log.FirstIndex, filepath.Join(st.DataDir, snapDir), len(log.Snapshots))
}

func needsSnap(db *membersdb.Contents) bool {
	var major, minor int
	n, err := fmt.Sscanf(db.StorageVersion, "%d.%d", &major, &minor)
	return err != nil || n != 2 || major < 3 || major == 3 && minor < 8
}
