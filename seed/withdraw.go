package seed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// Withdraw moves a pending seed that no etcd has run on aside, and returns where
// its parts are; nothing is deleted. Afterwards the directory is Empty, without a
// disk ID. The caller must have the proof that no write can have been acknowledged.
//
// With a separate wal-dir the mark of an unfinished seed goes back into member/
// first, then the segment moves, then member/: where that is cut short, Inspect
// knows what is left as a pending seed, or as half of one.
func Withdraw(dataDir, walDir string, log *zap.Logger) (aside []string, err error) {
	if !stage.Supported {
		return nil, unsupported("withdrawing a seed")
	}
	dirs, err := newLayout(dataDir, walDir)
	if err == nil {
		dirs, err = dirs.resolved()
	}
	if err != nil {
		return nil, err
	}
	if _, err = withdrawable(dirs); err != nil { // what is refused is not touched
		return nil, err
	}
	var held locks
	defer func() { err = errors.Join(err, held.release()) }()
	for _, dir := range dirs.all() {
		if _, err = held.acquire(dir); err != nil {
			return nil, explainWithdraw(dirs, err)
		}
	}
	if _, err = clean(dirs); err != nil {
		return nil, explainWithdraw(dirs, err)
	}
	st, err := withdrawable(dirs)
	if err != nil {
		return nil, err
	}
	w := &withdrawal{dirs: dirs, st: st}
	if err := w.run(); err != nil {
		return w.aside, explainWithdraw(dirs, err)
	}
	log.Info("withdrew pending seed", zap.String("dir", dirs.data), zap.Stringer("cluster_id", st.ClusterID), zap.Strings("aside", w.aside))
	return w.aside, nil
}

func explainWithdraw(dirs layout, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Write, Msg: "cannot withdraw the seed in " + dirs.data, Err: err}
}

// withdrawable lets nothing pass but a pending seed on which no etcd has run.
func withdrawable(dirs layout) (*State, error) {
	st, err := steady(dirs, func() (*State, error) {
		st, _, err := examine(dirs)
		return st, err
	})
	if err != nil {
		return nil, err
	}
	switch {
	case st.Kind == Broken:
		return nil, damaged(st)
	case st.Kind == Empty:
		return nil, &Error{Kind: Foreign, Msg: st.DataDir + " holds no seed to withdraw; nothing was changed"}
	case !st.Pristine:
		return nil, &Error{Kind: Foreign, Msg: "an etcd has run in " + st.DataDir + ": its data is not withdrawn; nothing was changed"}
	case !st.Pending:
		return nil, &Error{Kind: Foreign, Msg: "the seed in " + st.DataDir + " is released, and cannot be withdrawn; nothing was changed"}
	}
	return st, nil
}

// withdrawal is one run of Withdraw under the locks.
type withdrawal struct {
	dirs  layout
	st    *State
	aside []string
}

func (w *withdrawal) run() (err error) {
	member := filepath.Join(w.dirs.data, memberDir)
	h, err := stage.OpenHandle(member)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := sameSeed(w.st, h); err != nil {
		return err
	}
	if w.dirs.separate {
		segment := filepath.Join(w.dirs.wal, raftlog.FirstSegment)
		log, err := os.Open(segment) //nolint:gosec // the operator names the directory
		if err != nil {
			return err
		}
		defer log.Close() //nolint:errcheck // opened for reading
		// What was looked at is what is open now.
		if now, err := look(w.dirs); err != nil || now != w.st.Sight {
			return errors.Join(otherNow(w.st, nil), err)
		}
		if err := h.WriteFile(filepath.Base(halfFile), halfText); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := h.Sync(); err != nil {
			return err
		}
		if err := w.move(w.dirs.wal, segment, func(moved string) bool { return mine(moved, log) }); err != nil {
			return err
		}
	}
	return w.move(w.dirs.data, member, func(moved string) bool {
		info, err := os.Lstat(moved)
		return err == nil && stage.IDOf(info) == h.ID() && h.Has(marksOf(w.st)[0])
	})
}

// prefix begins the name of what is moved aside. A join says nothing about a birth,
// so its name is another one.
func (w *withdrawal) prefix() string {
	if w.st.Record != nil && w.st.Record.Kind == RecordJoin {
		return leftPrefix
	}
	return asidePrefix
}

// move renames path into a fresh directory in dir, durably. Where that is not the
// seed that was looked at, or it has been released meanwhile, it goes back.
func (w *withdrawal) move(dir, path string, own func(moved string) bool) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	target := ""
	for n := 1; target == ""; n++ {
		try := filepath.Join(dir, w.prefix()+w.st.ClusterID.String())
		if n > 1 {
			try += fmt.Sprintf("-%d", n)
		}
		err := stage.MakeDir(try, inherited(info))
		switch {
		case err == nil:
			target = try
		case !errors.Is(err, fs.ErrExist):
			return err
		}
	}
	if err := stage.SyncDir(dir); err != nil {
		return err
	}
	moved := filepath.Join(target, filepath.Base(path))
	if err := stage.Rename(path, moved); err != nil {
		return err
	}
	if !own(moved) {
		return errors.Join(otherNow(w.st, nil), stage.Rename(moved, path))
	}
	w.aside = append(w.aside, target)
	return errors.Join(stage.SyncDir(target), stage.SyncDir(dir))
}
