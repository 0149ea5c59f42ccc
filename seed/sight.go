package seed

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
	"github.com/etcdinit/etcdinit/seed/internal/stage"
)

// Sight is what a directory is, to be compared later with ==: the identity of the
// data-dir, of member/, of .etcdinit-disk and of the wal-dir, and a hash over the
// names in them and the record's text. Staging directories have no part in it.
type Sight struct {
	data, member, disk, wal, walDisk stage.ID
	names                            [sha256.Size]byte
}

// sightTries bounds how often a directory that changes is looked at again.
const sightTries = 8

// Look tells what a directory is, in some ten system calls. It never writes and
// takes no lock. walDir is "" for the default.
func Look(dataDir, walDir string) (Sight, error) {
	dirs, err := newLayout(dataDir, walDir)
	if err == nil {
		dirs, err = dirs.resolved()
	}
	if err != nil {
		return Sight{}, err
	}
	return look(dirs)
}

func look(dirs layout) (s Sight, err error) {
	all := func(string) bool { return true }
	segment := func(name string) bool {
		_, _, ok := raftlog.ParseName(name)
		return ok || name == diskDir
	}
	type place struct {
		path string
		id   *stage.ID
		stat func(string) (fs.FileInfo, error)
		keep func(name string) bool
	}
	member, disk := filepath.Join(dirs.data, memberDir), filepath.Join(dirs.data, diskDir)
	places := []place{
		{dirs.data, &s.data, os.Stat, all},
		{member, &s.member, os.Lstat, all},
		{disk, &s.disk, os.Lstat, all},
		{dirs.wal, &s.wal, os.Stat, segment},
	}
	if dirs.separate {
		places = append(places, place{filepath.Join(dirs.wal, diskDir), &s.walDisk, os.Lstat, all})
	}
	sum := sha256.New()
	for _, p := range places {
		var names []string
		if *p.id, names, err = glance(p.path, p.stat); err != nil {
			return Sight{}, readError(err)
		}
		for _, name := range names {
			if p.keep(name) && !strings.HasPrefix(name, stage.Prefix) {
				_, _ = sum.Write([]byte(name + "\x00")) // a hash never fails
			}
		}
		_, _ = sum.Write([]byte("\x00")) // a hash never fails
	}
	// An inode number is used again once its directory is gone; the record tells
	// one seed from another.
	if text, err := os.ReadFile(filepath.Join(dirs.data, recordFileName)); err == nil {
		_, _ = sum.Write(text) // a hash never fails
	}
	sum.Sum(s.names[:0])
	return s, nil
}

// glance is a directory's identity, and its names in ascending order. What is not
// there has neither.
func glance(path string, stat func(string) (fs.FileInfo, error)) (id stage.ID, names []string, err error) {
	info, err := stat(path)
	if err == nil {
		id = stage.IDOf(info)
	}
	if err == nil && (info.IsDir() || info.Mode()&fs.ModeSymlink != 0) { // etcd follows a link
		var entries []fs.DirEntry
		entries, err = os.ReadDir(path)
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return stage.ID{}, nil, nil
	}
	return id, names, err
}

// steady calls fn between two equal looks, and again where they differ.
func steady(dirs layout, fn func() (*State, error)) (*State, error) {
	before, err := look(dirs)
	for range sightTries {
		if err != nil {
			return nil, err
		}
		st, ferr := fn()
		if ferr != nil {
			return st, ferr
		}
		st.Sight = before
		var after Sight
		if after, err = look(dirs); err == nil && after == before {
			return st, nil
		}
		before = after
	}
	return nil, &Error{Kind: Busy, Msg: dirs.data + " changes while it is looked at"}
}
