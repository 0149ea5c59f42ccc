package seed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// Clean removes what an earlier run that was killed has left in the data directory
// and the WAL directory, under their locks, and returns the paths. It removes
// only what carries this program's mark: staging directories, the disk ID beside a
// seed, and the half of a seed whose log had not been renamed into its separate
// wal-dir yet. A commit that was cut short between its two renames is completed,
// or taken back. Inspect the directory again afterwards.
func Clean(dataDir, walDir string) ([]string, error) {
	dirs, err := newLayout(dataDir, walDir)
	if err == nil {
		dirs, err = dirs.resolved()
	}
	if err != nil {
		return nil, err
	}
	// Nothing to remove is the rule, and needs neither a lock nor write access.
	st, _, err := examine(dirs)
	if err != nil || len(st.Leftovers) == 0 {
		return nil, err
	}
	var held locks
	for _, dir := range dirs.all() {
		if err == nil && exists(dir) { // one of two volumes may be lost
			_, err = held.acquire(dir)
		}
	}
	var removed []string
	if err == nil {
		removed, err = clean(dirs)
	}
	if err = errors.Join(err, held.release()); err != nil {
		return removed, explainClean(dirs, err)
	}
	return removed, nil
}

// locks are the directories that are locked, in the order data-dir, wal-dir.
type locks []*stage.Lock

// acquire locks a directory; held is false where its file system has no locks.
func (l *locks) acquire(path string) (held bool, err error) {
	lock, held, err := stage.Acquire(path)
	if errors.Is(err, stage.ErrBusy) {
		return false, &Error{Kind: Busy, Msg: "another etcdinit is working in " + path, Err: stage.ErrBusy}
	}
	if err != nil {
		return false, err
	}
	*l = append(*l, lock)
	return held, nil
}

func (l *locks) release() error {
	var errs []error
	for _, lock := range *l {
		errs = append(errs, lock.Release())
	}
	*l = nil
	return errors.Join(errs...)
}

func explainClean(dirs layout, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Write, Msg: "cannot remove what an earlier run left in " + dirs.data, Err: err}
}

// clean is Clean under the locks. Where there are none, another run may be at work:
// what was there a moment ago is gone, or what was not is there.
func clean(dirs layout) ([]string, error) {
	removed, err := cleanFound(dirs)
	if e, ok := errors.AsType[*Error](err); ok {
		return removed, e
	}
	if errors.Is(err, fs.ErrNotExist) || notEmpty(err) {
		err = &Error{Kind: Busy, Msg: "another etcdinit is working in " + dirs.data, Err: err}
	}
	return removed, err
}

func cleanFound(dirs layout) (removed []string, err error) {
	st, fd, err := examine(dirs)
	if err != nil {
		return nil, err
	}
	member := filepath.Join(dirs.data, memberDir)
	disks := fd.tokens.paths()
	switch {
	case len(disks) > 0 && st.Kind == Valid:
		err = spend(&fd.tokens)
	case st.Unfinished:
		err = unfinished(dirs, fd)
	default:
		disks = nil // an ID on one side only is Prepare's to replace
	}
	if err != nil {
		return nil, err
	}
	removed = append(removed, disks...)
	for _, path := range st.Leftovers {
		if filepath.Base(path) == diskDir || st.Unfinished && path == member {
			continue
		}
		switch path {
		case member:
			if !fd.half {
				continue
			}
			err = removeHalf(dirs)
		case filepath.Join(dirs.data, halfFile), filepath.Join(dirs.data, pendingFile):
			if st.Kind == Broken {
				continue
			}
			err = removeDurably(path)
		default:
			if !stage.Ours(path) {
				continue
			}
			err = stage.Remove(path)
		}
		if err != nil {
			return removed, err
		}
		removed = append(removed, path)
	}
	return removed, nil
}

// removeHalf takes a database away whose log never appeared: it goes back into a
// staging directory, so that a removal that is cut short is still recognised.
func removeHalf(dirs layout) error {
	dir, err := stage.New(dirs.data)
	if err != nil {
		return err
	}
	member := filepath.Join(dirs.data, memberDir)
	err = stage.Rename(member, dir.Path(memberDir))
	if err == nil && hasSegments(dirs.wal) { // without locks, the run that made it may be alive
		err = errors.Join(&Error{Kind: Busy, Msg: "another etcdinit is working in " + dirs.data}, stage.Rename(dir.Path(memberDir), member))
	}
	if err == nil {
		err = stage.SyncDir(dirs.data)
	}
	if err != nil {
		return err
	}
	return dir.Remove()
}

// clearSkeleton removes the empty directories that the seed is going to take the
// place of. A directory that is not empty stays, and so does a mount point.
func clearSkeleton(dirs layout) error {
	for _, name := range []string{innerWALDir, snapDir, memberDir} {
		path := filepath.Join(dirs.data, name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return &Error{Kind: Write, Msg: path + " is in the way of the seed; if it is a mount point, mount the volume at data-dir or use wal-dir", Err: err}
		}
	}
	return nil
}

// moveAside gives a member directory that no etcd has ever used a name that says so,
// and returns it. A log that has appeared meanwhile goes back with it.
func moveAside(dirs layout, member string) (aside string, err error) {
	for n := 1; ; n++ {
		aside = filepath.Join(dirs.data, unusedPrefix+strconv.Itoa(n))
		err = stage.Rename(member, aside)
		if err == nil || !errors.Is(err, fs.ErrExist) && !notEmpty(err) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	if hasSegments(filepath.Join(aside, "wal")) || dirs.separate && hasSegments(dirs.wal) {
		return "", errors.Join(&Error{Kind: Changed, Msg: "a log has appeared in " + dirs.wal + " meanwhile: run again"}, stage.Rename(aside, member))
	}
	return aside, stage.SyncDir(dirs.data)
}

// removeDurably removes a file and syncs its directory, also when the file was
// gone already: an earlier run may have been killed between the two.
func removeDurably(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := stage.SyncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
