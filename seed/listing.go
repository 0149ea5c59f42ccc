package seed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// listing is what the names in a data directory say.
type listing struct {
	segments      []string // in the WAL directory, ascending
	innerSegments []string // in member/wal, where the WAL directory is another
	snaps         []string // *.snap
	db            bool
	dbSize        int64
	modified      time.Time
	pending, half bool
	record        bool
	marks         []types.ID // the clusters that a mark "not released yet" is for
	memberForeign bool       // member/ holds what is neither ours nor etcd's
	refusal       string     // names alone are reason enough
	misplaced     bool       // what was named is there and is no directory
	withdrawn     []types.ID // the clusters whose pending seed was moved aside
	linked        string     // member/ or a directory in it that is a symbolic link

	ignored, leftovers, foreign []string
	staged                      []string // the databases of snapshots, see Stage
}

// list reads the names. A directory that does not exist is empty. What another
// process commits meanwhile appears by a rename, between the reading of one
// directory and the next; then they are read again.
func list(dirs layout) (*listing, error) {
	for {
		before := appeared(dirs)
		l, err := listOnce(dirs)
		if err != nil || appeared(dirs) == before {
			return l, err
		}
	}
}

// appeared tells which of the directories that a commit renames are there.
func appeared(dirs layout) (there [2]bool) {
	for i, dir := range []string{filepath.Join(dirs.data, memberDir), dirs.wal} {
		_, err := os.Lstat(dir)
		there[i] = err == nil
	}
	return there
}

func listOnce(dirs layout) (*listing, error) {
	l := &listing{}
	member := filepath.Join(dirs.data, memberDir)
	steps := []struct {
		dir  string
		each func(path string, entry fs.DirEntry)
	}{
		{dirs.data, func(path string, entry fs.DirEntry) { l.inData(dirs, path, entry) }},
		{member, func(path string, entry fs.DirEntry) { l.inMember(path, entry) }},
		{filepath.Join(member, "snap"), l.inSnap},
		{dirs.wal, func(path string, entry fs.DirEntry) { l.inWAL(dirs, path, entry) }},
	}
	if dirs.separate {
		steps = append(steps, struct {
			dir  string
			each func(path string, entry fs.DirEntry)
		}{filepath.Join(member, "wal"), func(_ string, entry fs.DirEntry) {
			if _, _, ok := raftlog.ParseName(entry.Name()); ok {
				l.innerSegments = append(l.innerSegments, entry.Name())
			}
		}})
	}
	for _, step := range steps {
		entries, err := os.ReadDir(step.dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if info, lerr := os.Lstat(step.dir); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
				l.misplaced = l.misplaced || step.dir == dirs.data || step.dir == dirs.wal
				l.refuse("%s is a symbolic link to something that does not exist", step.dir)
			}
			continue
		case errors.Is(err, syscall.ENOTDIR):
			l.misplaced = l.misplaced || step.dir == dirs.data || step.dir == dirs.wal
			l.refuse("%s is not a directory", step.dir)
			continue
		case err != nil:
			return nil, err
		}
		for _, entry := range entries {
			step.each(filepath.Join(step.dir, entry.Name()), entry)
		}
	}
	l.strayWAL(dirs)
	return l, nil
}

func (l *listing) refuse(format string, args ...any) {
	if l.refusal == "" {
		l.refusal = fmt.Sprintf(format, args...)
	}
}

func (l *listing) inData(dirs layout, path string, entry fs.DirEntry) {
	name := entry.Name()
	switch {
	case name == memberDir:
		l.link(path, entry)
	case name == proxyDir:
		l.refuse("%s exists: no etcd starts from a data directory with a member and a proxy in it (its v2 proxy is long gone); move %s aside", path, path)
	case name == "lost+found", name == diskDir: // of the latter, see readToken
	case keepsSnapshot(path):
		l.staged = append(l.staged, path)
	case stage.Ours(path):
		l.leftovers = append(l.leftovers, path)
	case dirs.separate && within(path, dirs.wal), dirs.separate && within(resolve(path), resolve(dirs.wal)):
		// the wal-dir, or on the way to it
	case name == "snap" && exists(filepath.Join(path, "db")), name == "wal" && hasSegments(path):
		l.refuse("%s exists: %s looks like a member directory; is data-dir one level too deep?", path, dirs.data)
	default:
		l.foreign = append(l.foreign, path)
		if id, ok := withdrawnFrom(path); ok && !slices.Contains(l.withdrawn, id) {
			l.withdrawn = append(l.withdrawn, id)
		}
	}
}

// link notes a symbolic link where etcd expects a directory: etcd follows it.
func (l *listing) link(path string, entry fs.DirEntry) {
	if entry.Type()&fs.ModeSymlink != 0 && l.linked == "" {
		l.linked = path
	}
}

// withdrawnFrom tells the cluster of a seed that Withdraw has moved aside, and that
// is still there with its mark: it was never released.
func withdrawnFrom(path string) (types.ID, bool) {
	text, ok := strings.CutPrefix(filepath.Base(path), asidePrefix)
	if !ok {
		return 0, false
	}
	text, _, _ = strings.Cut(text, "-") // a second one has a number
	id, err := types.IDFromString(text)
	return id, err == nil && exists(filepath.Join(path, memberDir, markName(id)))
}

func (l *listing) inMember(path string, entry fs.DirEntry) {
	id, isMark := markOf(entry.Name())
	switch name := entry.Name(); {
	case name == "snap", name == "wal":
		l.link(path, entry)
	case isMark:
		l.marks = append(l.marks, id)
	case name == filepath.Base(pendingFile):
		l.pending = true
	case name == filepath.Base(recordFileName):
		l.record = true
	case name == filepath.Base(halfFile):
		l.half = true
		l.leftovers = append(l.leftovers, path)
	case ignorable(name), name == ".touch", strings.HasPrefix(name, "wal.broken."):
		l.ignored = append(l.ignored, path)
	default:
		l.memberForeign = true
		l.foreign = append(l.foreign, path)
	}
}

// markOf takes the cluster ID out of a mark's name.
func markOf(name string) (types.ID, bool) {
	text, ok := strings.CutPrefix(name, filepath.Base(pendingFile)+"-")
	if !ok {
		return 0, false
	}
	id, err := types.IDFromString(text)
	return id, err == nil && markName(id) == name
}

// markNames lists the marks "not released yet" that are in member/.
func (l *listing) markNames() (names []string) {
	if l.pending {
		names = append(names, filepath.Base(pendingFile))
	}
	for _, id := range l.marks {
		names = append(names, markName(id))
	}
	return names
}

func (l *listing) inSnap(path string, entry fs.DirEntry) {
	name := entry.Name()
	switch {
	case name == "db":
		l.db = true
		if info, err := os.Stat(path); err == nil {
			l.dbSize = info.Size()
		}
	case ignorable(name), strings.HasPrefix(name, "tmp"), strings.HasPrefix(name, "db.tmp."):
		l.ignored = append(l.ignored, path)
	case strings.HasSuffix(name, ".snap"):
		l.snaps = append(l.snaps, name)
	case strings.HasSuffix(name, ".snap.db"):
	default:
		l.memberForeign = true
		l.foreign = append(l.foreign, path)
	}
}

func (l *listing) inWAL(dirs layout, path string, entry fs.DirEntry) {
	name := entry.Name()
	_, _, isSegment := raftlog.ParseName(name)
	switch {
	case isSegment:
		l.segments = append(l.segments, name)
		if info, err := os.Stat(path); err == nil && info.ModTime().After(l.modified) {
			l.modified = info.ModTime()
		}
	case ignorable(name):
		l.ignored = append(l.ignored, path)
	case name == "lost+found", dirs.separate && name == diskDir:
	case dirs.separate && stage.Ours(path):
		l.leftovers = append(l.leftovers, path)
	case dirs.separate && within(resolve(path), resolve(dirs.data)):
	default:
		l.foreign = append(l.foreign, path)
	}
}

// strayWAL: etcd takes any *.wal for a log, and then does not start from it.
func (l *listing) strayWAL(dirs layout) {
	if len(l.segments) > 0 {
		return
	}
	for _, path := range slices.Concat(l.foreign, l.ignored) {
		if filepath.Dir(path) == dirs.wal && strings.HasSuffix(path, ".wal") {
			l.refuse("%s is not the name of a WAL segment, but etcd would take it for one", path)
		}
	}
}

// ignorable names the files that etcd itself leaves beside its living ones.
func ignorable(name string) bool {
	return strings.HasSuffix(name, ".broken") || strings.HasSuffix(name, ".tmp")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func hasSegments(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		_, _, ok := raftlog.ParseName(e.Name())
		return ok
	})
}

func modeAndOwner(info fs.FileInfo) string {
	text := "mode " + info.Mode().String()
	if o, ok := stage.OwnerOf(info); ok {
		text += fmt.Sprintf(", owner %d:%d", o.UID, o.GID)
	}
	return text
}
