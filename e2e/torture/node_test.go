//go:build e2e

package torture

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// node is a host with the loop that supervises it.
type node struct {
	*lab.Host
	c      *cluster
	member string
	habits habits
	rng    *rand.Rand // of its loop only

	mu      sync.Mutex
	up      bool
	gone    bool // for good
	proc    *lab.Proc
	isEtcd  bool
	etcdAt  time.Duration // when the etcd that runs was started
	etcdOn  *disk         // on which disk
	okAt    time.Duration // when a client last had an answer of this host
	idle    bool          // the loop rests
	no      int           // the status with which init has said that a person must act, or 0
	done    int           // how often init has ended with 0
	joiner  bool          // etcd is to start with joinArgs, without init
	disk    *disk         // what is at the data directory
	volume  *disk         // what is there when it is attached
	away    bool          // the volume is not there
	shadows int
	copied  *disk // the older copy
}

// disk is what one data directory is to those who judge.
type disk struct {
	id    int
	ran   bool // an etcd was started on it
	lost  bool
	added bool // its member was added to the running cluster
}

func (c *cluster) newNode(name string) *node {
	n := &node{Host: c.Host(name), c: c, member: memberOf(name), habits: c.s.habits[name], rng: rand.New(rand.NewPCG(c.s.seed, uint64(len(c.nodes)))), idle: true}
	n.SetAddrs(n.Addr4())
	n.Write("etcd.yaml", c.config())
	// After a cut is healed, connections go on within a second; not every kernel has it.
	n.Run("sh", "-c", "echo 1000 > /proc/sys/net/ipv4/tcp_rto_max_ms")
	n.disk = c.newDisk()
	n.volume = n.disk
	if n.habits.mount {
		c.must(errors.Join(os.MkdirAll(n.Path("volume"), 0o700), os.MkdirAll(n.Path("data"), 0o700)))
		n.MustRun("mount", "--bind", "volume", "data")
	}
	return n
}

func (c *cluster) newDisk() *disk {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &disk{id: len(c.disks) + 1}
	c.disks = append(c.disks, d)
	return d
}

// dataPath is where the test sees what the host's processes see as data.
func (n *node) dataPath() string {
	if n.habits.mount && !n.away {
		return n.Path("volume")
	}
	return n.Path("data")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// seeded says whether the disk that is there has a log.
func (n *node) seeded() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return exists(filepath.Join(n.dataPath(), "member", "wal"))
}

// pending says whether it has a seed that is not released.
func (n *node) pending() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	marks, err := filepath.Glob(filepath.Join(n.dataPath(), "member", "etcdinit-pending*"))
	return err == nil && len(marks) > 0
}

func (n *node) serving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isEtcd && n.okAt > n.etcdAt && n.c.now()-n.okAt < 2*callLimit
}

// loop is the supervisor. It ends with the context.
func (n *node) loop(ctx context.Context) {
	for ctx.Err() == nil {
		n.mu.Lock()
		rest := !n.up || n.no != 0
		n.idle = rest
		n.mu.Unlock()
		if rest {
			n.sleep(ctx, 5*time.Millisecond)
			continue
		}
		if !n.joiner && !n.init(ctx) {
			n.sleep(ctx, n.habits.backOff)
			continue
		}
		n.sleepWhileUp(ctx, n.habits.delay)
		n.etcd(ctx)
		n.sleep(ctx, n.habits.backOff)
	}
	n.mu.Lock()
	n.idle = true
	n.mu.Unlock()
}

func (n *node) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (n *node) sleepWhileUp(ctx context.Context, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		n.mu.Lock()
		up := n.up
		n.mu.Unlock()
		if !up {
			return
		}
		n.sleep(ctx, 10*time.Millisecond)
	}
}

// begin starts a process if the loop may, and says whether it did.
func (n *node) begin(ctx context.Context, etcd bool, program string, args ...string) *lab.Proc {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up || ctx.Err() != nil {
		return nil
	}
	if n.habits.boottime > 0 && n.c.clocks {
		args = append([]string{"--time", "--boottime", strconv.FormatInt(int64(n.habits.boottime/time.Second), 10), program}, args...)
		program = n.c.Tool("unshare")
	}
	if !etcd && n.habits.fsync > 0 && n.c.strace {
		delay := fmt.Sprintf("inject=fsync,fdatasync:delay_enter=%d", n.habits.fsync.Microseconds())
		args = append([]string{"-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", delay, program}, args...)
		program = n.c.Tool("strace")
	}
	if etcd {
		n.disk.ran = true
		n.etcdAt, n.etcdOn = n.c.now(), n.disk
	}
	n.proc, n.isEtcd = n.Start(program, args...), etcd
	return n.proc
}

func (n *node) ended() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proc, n.isEtcd = nil, false
}

// init runs etcdinit init; true says that etcd may start.
func (n *node) init(ctx context.Context) bool {
	p := n.begin(ctx, false, n.c.binary, "init", "--config-file", "etcd.yaml", "--size", strconv.Itoa(n.c.s.size), "--config-out", "run.yaml", "--timeout", n.habits.timeout)
	if p == nil {
		return false
	}
	n.c.note("%s: init starts on disk %d", n.Name, n.diskID())
	status := p.Status()
	n.ended()
	n.c.note("%s: init ended with %d", n.Name, status)
	if n.c.loud && status != 0 {
		n.c.t.Logf("%s:\n%s", n.Name, last(p.Log(), 12))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case status == 0:
		n.done++
		return true
	case status == 20 || status >= 40 && status <= 45:
		n.no = status
	case status == 1 || status == 2:
		n.c.found("bug", "%s: init ended with %d:\n%s", n.Name, status, last(p.Log(), 20))
	}
	return false
}

func (n *node) diskID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.disk.id
}

func (n *node) etcd(ctx context.Context) {
	args := []string{"--config-file", "run.yaml"}
	if n.joiner {
		args = n.c.joinArgs(n.member)
	}
	p := n.begin(ctx, true, n.c.Tool("etcd-"+n.c.s.version), args...)
	if p == nil {
		return
	}
	n.c.note("%s: etcd starts on disk %d", n.Name, n.diskID())
	if n.habits.pulses {
		n.pulse(ctx, p)
	}
	status := p.Status()
	n.ended()
	n.c.note("%s: etcd ended with %d", n.Name, status)
	if n.joiner = n.joiner && !n.seeded(); status == 2 { // Go's status of a panic
		n.c.found("panic", "%s: etcd panicked:\n%s", n.Name, panicOf(p.Log()))
	}
}

// pulse lets an etcd run only for a moment at a time once it listens, as on a
// machine that is overloaded: what it answers before it knows its members is seen
// then.
func (n *node) pulse(ctx context.Context, p *lab.Proc) {
	for p.Running() && ctx.Err() == nil {
		if conn, err := n.Dial(ctx, "tcp", "127.0.0.1:2380"); err == nil {
			_ = conn.Close() //nolint:errcheck // nothing was written
			break
		}
	}
	for range 50 {
		p.Signal(syscall.SIGSTOP)
		n.sleep(ctx, 30*time.Millisecond)
		p.Signal(syscall.SIGCONT)
		n.sleep(ctx, 2*time.Millisecond)
		if !p.Running() || ctx.Err() != nil {
			return
		}
	}
}

func panicOf(log string) string {
	lines := strings.Split(log, "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "panic") })
	if i < 0 {
		return last(log, 10)
	}
	return strings.Join(lines[i:min(i+6, len(lines))], "\n")
}

func last(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// stop ends what runs and returns when the loop rests.
func (n *node) stop() {
	for {
		n.mu.Lock()
		n.up = false
		idle, p := n.idle, n.proc
		n.mu.Unlock()
		if p != nil {
			p.Signal(syscall.SIGKILL)
		}
		if idle && p == nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up, n.idle, n.no = !n.gone, false, 0
}

func (n *node) isUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up
}

// stopped runs f while nothing runs on the host.
func (n *node) stopped(f func()) {
	up := n.isUp()
	n.stop()
	f()
	if up {
		n.start()
	}
}

func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	p := n.proc
	n.mu.Unlock()
	if p != nil {
		p.Signal(s)
	}
}

// empty takes all away that is in the data directory; the directory stays where
// it is a mount point.
func (n *node) empty() {
	dir := n.dataPath()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.c.must(err)
	}
	for _, e := range entries {
		n.c.must(os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if !n.habits.mount {
		n.c.must(os.RemoveAll(dir))
	}
}

// wipe loses the disk, unless that would be more than raft can stand.
func (n *node) wipe() {
	n.stopped(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.c.mayLose(n.disk) {
			n.c.note("%s: wipe: skipped, a minority of the disks is lost already", n.Name)
			return
		}
		n.empty()
		n.replaceDisk()
	})
}

// replaceDisk says that another disk is in the place of the one that was there.
// Its caller holds the lock.
func (n *node) replaceDisk() {
	n.disk = n.c.newDisk()
	if !n.away {
		n.volume = n.disk
	}
}

// keep copies the disk as a power cut at this moment would leave it.
func (n *node) keep() {
	n.signal(syscall.SIGSTOP)
	defer n.signal(syscall.SIGCONT)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.disk.ran || n.away {
		n.c.note("%s: keep: skipped, an etcd has run on the disk", n.Name)
		return
	}
	n.c.must(os.RemoveAll(n.Path("copy")))
	n.c.must(os.MkdirAll(n.Path("copy"), 0o700))
	if exists(n.dataPath()) {
		n.c.copyInto(n.dataPath(), n.Path("copy"))
	}
	n.copied = n.disk
}

// restore puts the older copy of another host's disk, or its own, in place of
// the host's disk.
func (n *node) restore(from *node) {
	from.stop()
	defer func() {
		if from == n {
			n.start()
		} else {
			from.mu.Lock()
			from.gone = true
			from.mu.Unlock()
		}
	}()
	n.mu.Lock()
	defer n.mu.Unlock()
	if from != n {
		from.mu.Lock()
		defer from.mu.Unlock()
	}
	if from.copied == nil || from.copied != from.disk || from.disk.ran || n.disk.ran {
		n.c.note("%s: restore: skipped, an etcd has run on the disk or there is no copy of it", n.Name)
		return
	}
	n.empty()
	n.c.must(os.MkdirAll(n.dataPath(), 0o700))
	n.c.copyInto(from.Path("copy"), n.dataPath())
	n.replaceDisk()
}

func (c *cluster) copyInto(from, to string) {
	c.must(os.CopyFS(to, os.DirFS(from)))
	c.must(filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error { // CopyFS widens modes
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return os.Chmod(path, 0o600)
	}))
}

// detach takes the volume away: an empty directory is in its place.
func (n *node) detach() {
	n.stopped(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.away {
			return
		}
		if n.habits.mount {
			n.MustRun("umount", "data")
		} else {
			if exists(n.Path("data")) {
				n.c.must(os.Rename(n.Path("data"), n.Path("volume")))
			}
			n.c.must(os.MkdirAll(n.Path("data"), 0o700))
		}
		n.away = true
		n.disk = n.c.newDisk()
	})
}

// attach brings the volume back, under the agent that runs there. What was
// written into the mount point is hidden then.
func (n *node) attach() {
	n.mu.Lock()
	away, etcd := n.away, n.isEtcd
	n.mu.Unlock()
	switch {
	case away && etcd:
		n.stopped(n.attachNow)
	case away:
		n.attachNow()
	}
}

func (n *node) attachNow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.away || n.isEtcd {
		return
	}
	if !n.c.mayLose(n.disk) {
		n.c.note("%s: attach: skipped, a minority of the disks is lost already", n.Name)
		return
	}
	if n.habits.mount {
		n.MustRun("mount", "--bind", "volume", "data")
	} else {
		n.shadows++
		n.c.must(os.Rename(n.Path("data"), n.Path(fmt.Sprintf("shadow%d", n.shadows))))
		if exists(n.Path("volume")) {
			n.c.must(os.Rename(n.Path("volume"), n.Path("data")))
		}
	}
	n.disk, n.away = n.volume, false
}

// slowed makes the agent that runs wait at each unlink.
func (n *node) slowed(d time.Duration) {
	n.mu.Lock()
	p, etcd := n.proc, n.isEtcd
	n.mu.Unlock()
	if p == nil || etcd || !n.c.strace {
		n.c.note("%s: slow: skipped, no agent runs or no strace is here", n.Name)
		return
	}
	n.Start(n.c.Tool("strace"), "-f", "-qq", "-o", "/dev/null", "-e", "trace=unlinkat",
		"-e", fmt.Sprintf("inject=unlinkat:delay_enter=%d", d.Microseconds()), "-p", strconv.Itoa(p.PID()))
}
