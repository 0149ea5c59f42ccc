package seed

import (
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// Names below the data directory.
const (
	memberDir   = "member"
	snapDir     = "member/snap"
	dbName      = "db"
	dbFile      = "member/snap/" + dbName
	innerWALDir = "member/wal"
	// pendingFile is the mark of the first edition; today's has the cluster ID
	// behind it.
	pendingFile    = "member/etcdinit-pending"
	recordFileName = "member/etcdinit-seed.json"
	// diskDir holds the disk ID of an empty directory.
	diskDir = ".etcdinit-disk"
	// asidePrefix begins the names of what Withdraw has moved aside.
	asidePrefix = "etcdinit-withdrawn-"
	// leftPrefix is the same for the seed of a member that did not come in.
	leftPrefix = "etcdinit-not-joined-"
	// unusedPrefix begins the names of a member directory that was moved aside because
	// an etcd had made it and never used it.
	unusedPrefix = "etcdinit-unused-member-"
	// proxyDir is what the v2 proxy of etcd has kept its data in.
	proxyDir = "proxy"
	// halfFile is beside a database whose log, in a wal-dir of its own, has not
	// been renamed into its place yet.
	halfFile = "member/etcdinit-no-wal-yet"

	pendingText = "etcdinit: seeded, but not released: another member may still be without its seed\n"
	halfText    = "etcdinit: this database waits for its write-ahead log\n"
)

// layout is where a member's files lie.
type layout struct {
	data string
	wal  string
	// separate: the WAL does not lie in the member directory, so that no single
	// rename can commit both.
	separate bool
}

// all lists the directories that are locked, in this order.
func (l layout) all() []string {
	if l.separate {
		return []string{l.data, l.wal}
	}
	return []string{l.data}
}

// markName is the name in member/ of the mark "not released yet".
func markName(cluster types.ID) string {
	return filepath.Base(pendingFile) + "-" + cluster.String()
}

func newLayout(dataDir, walDir string) (layout, error) {
	if dataDir == "" {
		return layout{}, invalid("no data-dir given")
	}
	data, err := filepath.Abs(dataDir)
	if err != nil {
		return layout{}, invalid("data-dir %s: %v", dataDir, err)
	}
	l := layout{data: data, wal: filepath.Join(data, innerWALDir)}
	if walDir == "" {
		return l, nil
	}
	wal, err := filepath.Abs(walDir)
	if err != nil {
		return layout{}, invalid("wal-dir %s: %v", walDir, err)
	}
	return l.withWAL(wal, data, wal)
}

// resolved is the layout again, with symbolic links followed: two names for one
// directory are one directory.
func (l layout) resolved() (layout, error) {
	if !l.separate {
		return l, nil
	}
	return layout{data: l.data}.withWAL(l.wal, resolve(l.data), resolve(l.wal))
}

// withWAL adds the wal-dir; data and at are what is compared.
func (l layout) withWAL(wal, data, at string) (layout, error) {
	member := filepath.Join(data, memberDir)
	switch {
	case at == filepath.Join(data, innerWALDir):
		l.wal, l.separate = filepath.Join(l.data, innerWALDir), false
		return l, nil
	case at == data:
		return layout{}, invalid("wal-dir %s is the data-dir itself: leave wal-dir out, or give the WAL a directory of its own", wal)
	case within(member, at):
		return layout{}, invalid("wal-dir %s lies inside %s, which appears as a whole: leave wal-dir out, or choose a directory outside of it", wal, filepath.Join(l.data, memberDir))
	}
	l.wal, l.separate = wal, true
	return l, nil
}

// resolve follows symbolic links as far as the path exists.
func resolve(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolve(parent), filepath.Base(path))
}

// within tells whether path is dir or lies below it.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+string(filepath.Separator))
}

// dbSize is an upper bound of the database's size: bbolt grows a file to the size
// of its memory map, which starts at 32 KiB and doubles.
func dbSize(members []*membership.Member) int64 {
	need := int64(24 << 10)
	for _, m := range members {
		need += 256 + int64(len(m.Name))
		for _, u := range append(m.PeerURLs[:len(m.PeerURLs):len(m.PeerURLs)], m.ClientURLs...) {
			need += int64(len(u)) + 8
		}
	}
	size := int64(32 << 10)
	for size < need {
		size *= 2
	}
	return size
}
