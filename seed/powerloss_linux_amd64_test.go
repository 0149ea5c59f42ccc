package seed_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// node is a file or directory of the power-loss model.
type node struct {
	dir bool
	// A file: what its last sync made durable.
	synced bool
	data   []byte
	size   int64
	// A directory: its names now, and those that a sync made durable.
	now, durable map[string]*node
}

func newDir() *node { return &node{dir: true, now: map[string]*node{}, durable: map[string]*node{}} }

// move is a rename that no sync has made durable yet. It happens in both of its
// directories or in none.
type move struct {
	from, to         *node
	fromName, toName string
	what             *node
}

// disk replays calls, and knows what a power cut would leave.
type disk struct {
	root  *node
	path  string
	moves []move
}

// newDisk is a disk that holds the tree below root, durably.
func newDisk(t *testing.T, root string) *disk {
	t.Helper()
	var load func(path string) *node
	load = func(path string) *node {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if !info.IsDir() {
			data, size := content(path)
			return &node{synced: true, data: data, size: size}
		}
		d := newDir()
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			n := load(filepath.Join(path, e.Name()))
			d.now[e.Name()], d.durable[e.Name()] = n, n
		}
		return d
	}
	return &disk{root: load(root), path: root}
}

// at finds the node at path, and its directory.
func (d *disk) at(t *testing.T, path string) (parent *node, name string, n *node) {
	t.Helper()
	rel, err := filepath.Rel(d.path, path)
	if err != nil {
		t.Fatal(err)
	}
	n, name = d.root, "."
	if rel == "." {
		return nil, name, n
	}
	for _, part := range splitPath(rel) {
		if n == nil {
			t.Fatalf("%s: a parent is missing in the model", path)
		}
		parent, name = n, part
		n = parent.now[part]
	}
	return parent, name, n
}

func splitPath(rel string) []string {
	dir, base := filepath.Split(rel)
	if dir == "" {
		return []string{base}
	}
	return append(splitPath(filepath.Clean(dir)), base)
}

// replay applies one call that has succeeded.
func (d *disk) replay(t *testing.T, c *call) {
	t.Helper()
	if c.errno != 0 {
		return
	}
	parent, name, n := d.at(t, c.path)
	switch c.nr {
	case unix.SYS_MKDIRAT:
		parent.now[name] = newDir()
	case unix.SYS_OPENAT:
		if c.flags&unix.O_CREAT != 0 && n == nil {
			parent.now[name] = &node{}
		}
	case unix.SYS_UNLINKAT:
		delete(parent.now, name)
	case unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		toParent, toName, there := d.at(t, c.to)
		delete(parent.now, name)
		toParent.now[toName] = n
		d.moves = append(d.moves, move{parent, toParent, name, toName, n})
		if c.nr == unix.SYS_RENAMEAT2 && there != nil { // one that does not replace has exchanged
			parent.now[name] = there
			d.moves = append(d.moves, move{toParent, parent, toName, name, there})
		}
	case unix.SYS_LINKAT:
		toParent, toName, _ := d.at(t, c.to)
		toParent.now[toName] = n
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		if n == nil {
			t.Fatalf("sync of %s, which the model does not know", c.path)
		}
		if !n.dir {
			n.synced, n.data, n.size = true, c.data, c.size
			return
		}
		d.syncDir(n)
	}
}

func (d *disk) syncDir(n *node) {
	n.durable = maps.Clone(n.now)
	d.moves = slices.DeleteFunc(d.moves, func(m move) bool {
		if m.from != n && m.to != n {
			return false
		}
		if m.from.durable[m.fromName] == m.what {
			delete(m.from.durable, m.fromName)
		}
		if m.to.now[m.toName] == m.what {
			m.to.durable[m.toName] = m.what
		}
		return true
	})
}

// cut writes what a power cut leaves into dir. Of what was not synced, lazy keeps
// nothing, and eager every name, but no file's content.
func (d *disk) cut(t *testing.T, dir string, eager bool) {
	t.Helper()
	var write func(n *node, path string)
	write = func(n *node, path string) {
		if n.dir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			names := n.durable
			if eager {
				names = n.now
			}
			for name, child := range names {
				write(child, filepath.Join(path, name))
			}
			return
		}
		if err := os.WriteFile(path, n.data, 0o640); err != nil {
			t.Fatal(err)
		}
		if n.synced {
			if err := os.Truncate(path, n.size); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(d.root, dir)
}

// TestPowerLoss cuts the power after every call of a step: nothing that its success
// promised may be gone (DL-08).
func TestPowerLoss(t *testing.T) {
	matrix(t)
	for _, sc := range scenarios() {
		t.Run(sc.name(), func(t *testing.T) {
			run := sc.arrange(t)
			d := newDisk(t, run.root)
			for _, c := range run.settle(t) {
				d.replay(t, c)
			}
			whole := trace(t, run.helper, run.root, action{plain: sc.plain})
			if whole.status != 0 {
				t.Fatalf("status %d: %s", whole.status, whole.stderr)
			}
			for n, c := range whole.calls {
				d.replay(t, c)
				last := n == len(whole.calls)-1
				if !last && (!changes(c) || sc.sparse && !weighty(c)) {
					continue
				}
				for _, eager := range []bool{false, true} {
					t.Run(fmt.Sprintf("after %s eager=%v", c.key, eager), func(t *testing.T) {
						lost := scratch(t)
						d.cut(t, lost, eager)
						moved := run.movedTo(lost)
						if last {
							moved.done(t)
						}
						moved.goOn(t, snapshotTree(t, lost, moved.Spec))
					})
				}
			}
		})
	}
}

// changes: the state behind the call differs from the one before it.
func changes(c *call) bool {
	switch c.nr {
	case unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		return c.errno == 0
	case unix.SYS_OPENAT:
		return c.errno == 0 && c.flags&unix.O_CREAT != 0
	}
	return false
}
