package seed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// move is one rename of a commit.
type move struct {
	from, to string
	own      *os.File // what is to be at to
	settle   bool     // it is durable before the commit goes on
}

// mine tells whether what is at path is what this run has staged.
func mine(path string, own *os.File) bool {
	named, err := os.Lstat(path)
	if err != nil {
		return false
	}
	info, err := own.Stat()
	return err == nil && os.SameFile(named, info)
}

// hold opens what was staged, so that it can be told from what others bring.
func (a *apply) hold(path string) (*os.File, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the directory
	if err == nil {
		a.own = append(a.own, f)
	}
	return f, err
}

// moves are the renames of the commit, in their order. A disk ID is bound first, on
// both sides: that fails if it is bound or used up. Then the seed settles. Where the
// log lies elsewhere, it comes last: only a log makes an etcd believe that it has
// lived before.
func (a *apply) moves() ([]move, error) {
	staged, final := a.data.Path(memberDir), filepath.Join(a.dirs.data, memberDir)
	member, err := a.hold(staged)
	if err != nil {
		return nil, err
	}
	t := &a.tokens
	if !a.dirs.separate {
		if a.disk == "" {
			return []move{{staged, final, member, true}}, nil
		}
		return []move{{staged, t.data.member(a.disk), member, false}, {t.data.member(a.disk), final, member, true}}, nil
	}
	log := a.wal.Path(boundWAL)
	segment, err := a.hold(filepath.Join(log, raftlog.FirstSegment))
	if err != nil {
		return nil, err
	}
	end := filepath.Join(a.dirs.wal, raftlog.FirstSegment)
	if a.disk == "" {
		return []move{{staged, final, member, true}, {filepath.Join(log, raftlog.FirstSegment), end, segment, true}}, nil
	}
	dir, err := a.hold(log)
	if err != nil {
		return nil, err
	}
	return []move{
		{staged, t.data.member(a.disk), member, false},
		{log, t.wal.wal(a.disk), dir, false},
		{t.data.member(a.disk), final, member, true},
		{filepath.Join(t.wal.wal(a.disk), raftlog.FirstSegment), end, segment, true},
	}, nil
}

// commit renames, and uses the disk IDs up.
func (a *apply) commit() error {
	if a.disk == "" {
		for _, side := range a.tokens.sides() {
			if err := side.useUp(a.stageOf(side)); err != nil {
				return err
			}
		}
	}
	moves, err := a.moves()
	if err != nil {
		return err
	}
	for i, m := range moves {
		if err := a.rename(m); err != nil {
			return a.takeBack(moves[:i+1], err)
		}
	}
	if err := a.settled(moves); err != nil {
		return a.takeBack(moves, err)
	}
	a.done = true
	if a.disk != "" {
		for _, side := range a.tokens.sides() {
			if err := side.useUp(a.stageOf(side)); err != nil {
				return err
			}
		}
	}
	if a.dirs.separate {
		if err := removeDurably(filepath.Join(a.dirs.data, halfFile)); err != nil {
			return err
		}
	}
	return a.settled(moves)
}

// settled: everything is still where this run has put it.
func (a *apply) settled(moves []move) error {
	for _, m := range moves {
		if m.settle && !mine(m.to, m.own) {
			return a.lost(m.to, nil)
		}
	}
	return nil
}

func (a *apply) rename(m move) error {
	err := stage.Rename(m.from, m.to)
	// A run that found it bound may have completed it meanwhile.
	if !mine(m.to, m.own) {
		if err == nil || errors.Is(err, fs.ErrNotExist) || notEmpty(err) {
			return a.lost(m.to, err)
		}
		return err
	}
	if !m.settle {
		return nil
	}
	return stage.SyncDir(filepath.Dir(m.to))
}

// lost: another run was faster.
func (a *apply) lost(path string, err error) error {
	if a.disk != "" && !exists(filepath.Join(a.dirs.data, memberDir)) {
		return changed(a.DataDir)
	}
	return &Error{Kind: Changed, Msg: "another process has made " + path + " meanwhile: run again", Err: err}
}

// takeBack undoes the renames, the last one first: not durable is not committed. It
// takes nothing that is not its own. A seed that has settled goes back by the same
// way, through its disk ID: if that is used up, another run has found the seed, and
// may have said so; then it stays.
func (a *apply) takeBack(moves []move, err error) error {
	for _, back := range slices.Backward(moves) {
		if !mine(back.to, back.own) {
			continue
		}
		if berr := stage.Rename(back.to, back.from); berr != nil {
			a.done = true
			return errors.Join(err, fmt.Errorf("and %s could not be taken back: inspect it before etcd starts: %w", back.to, berr))
		}
	}
	return err
}
