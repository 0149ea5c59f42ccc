package seed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/etcdinit/etcdinit/internal/access"
	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// Ready tells whether what the directory of st still needs can be written: a disk ID
// and a seed where it is Empty, the removal of the mark where it is Pending. Of the
// spec it needs the directories and the owner; Members only for the exact size. It
// writes nothing; a lock is taken for an instant. The error is the one that Prepare,
// Apply or Release would end with: read-only, not allowed, no space, the wrong owner
// (Write), or another run at work (Busy, see Locked).
func Ready(st *State, spec Spec) error {
	if st.Kind == Broken || st.Kind == Valid && !st.Pending {
		return nil
	}
	dirs, err := newLayout(st.DataDir, st.WALDir)
	if err == nil {
		dirs, err = dirs.resolved()
	}
	if err != nil {
		return err
	}
	a := &apply{Plan: bare(spec, dirs), dirs: dirs, act: "seeding"}
	if st.Kind == Valid {
		a.act = "releasing"
		return a.unready(access.Dir(filepath.Join(dirs.data, memberDir)))
	}
	for _, dir := range dirs.all() {
		if err := a.unready(access.Dir(dir)); err != nil {
			return err
		}
	}
	for _, check := range []func() error{a.space, func() error { return ownable(dirs, spec.Owner) }, func() error { return unlocked(dirs) }} {
		if err := a.unready(check()); err != nil {
			return err
		}
	}
	return nil
}

func (a *apply) unready(err error) error {
	if err == nil {
		return nil
	}
	return a.explain(err)
}

// ownable tells whether files can be given to the owner, and whether that one can
// work in the directories that are there. Where a group or others may write, it may
// be one of them: that is a warning of Apply's.
func ownable(dirs layout, owner *Owner) error {
	if owner == nil {
		return nil
	}
	if euid := os.Geteuid(); euid > 0 && owner.UID != euid {
		return &Error{Kind: Write, Msg: fmt.Sprintf("cannot give the files in %s to uid %d (--owner): this program runs as uid %d, and only root gives files away; run it as root, or as uid %d",
			dirs.data, owner.UID, euid, owner.UID)}
	}
	for _, dir := range dirs.all() {
		info, err := os.Stat(dir)
		if err != nil {
			continue // it is made with the right owner
		}
		if !writableBy(info, stage.Owner(*owner)) && info.Mode().Perm()&0o022 == 0 {
			return &Error{Kind: Write, Msg: fmt.Sprintf("etcd's user %d:%d (--owner) cannot write in %s: chown %d:%d %s", owner.UID, owner.GID, describe(dir), owner.UID, owner.GID, dir)}
		}
	}
	return nil
}

// unlocked tells whether another run works in the directories.
func unlocked(dirs layout) (err error) {
	var held locks
	for _, dir := range dirs.all() {
		if err == nil && exists(dir) {
			_, err = held.acquire(dir)
		}
	}
	return errors.Join(err, held.release())
}
