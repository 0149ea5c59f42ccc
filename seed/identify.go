package seed

import (
	"errors"
	"io/fs"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
)

// Identity is whose a directory with data is.
type Identity struct {
	MemberID  types.ID
	ClusterID types.ID
	Record    *Record // nil where there is none that can be used
}

// Identify reads whose a directory is from the heads of its log segments and from
// the record. It does not touch the database, so it also works while an etcd runs
// on it. Without a log the error is of kind Foreign.
func Identify(dataDir, walDir string) (Identity, error) {
	dirs, err := newLayout(dataDir, walDir)
	if err == nil {
		dirs, err = dirs.resolved()
	}
	if err != nil {
		return Identity{}, err
	}
	l, err := list(dirs)
	if err != nil {
		return Identity{}, readError(err)
	}
	if len(l.segments) == 0 {
		return Identity{}, &Error{Kind: Foreign, Msg: dirs.data + " holds no member: there is no WAL segment in " + dirs.wal}
	}
	id, err := raftlog.Identify(dirs.wal, l.segments)
	if err != nil {
		if err = readable(err); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return Identity{}, err
		}
		return Identity{}, &Error{Kind: Damaged, Msg: "data directory is not valid", Err: err}
	}
	found := Identity{MemberID: id.Member, ClusterID: id.Cluster}
	if rec, err := openRecord(filepath.Join(dirs.data, recordFileName)); err == nil && rec.MemberID == id.Member && rec.ClusterID == id.Cluster {
		found.Record = rec
	}
	return found, nil
}
