package seed_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"
)

// A call is one system call of a traced process on a path below its root. Its key
// is the same in every run: the name, the path without the random part of the
// staging directory's name and without IDs, and how often the two have come before.
type call struct {
	nr    uint64
	name  string
	path  string // as the process sees it; of a rename the source
	to    string // of a rename the target
	flags uint64 // of an open
	key   string
	fail  syscall.Errno // what the call is failed with
	errno syscall.Errno // what the call returned
	data  []byte        // of a sync: what the file held, without trailing zeros
	size  int64
}

// tracedCalls are those that change a directory tree, make it durable, or lock it,
// and what they need to get at it.
var tracedCalls = map[uint64]string{
	unix.SYS_OPENAT: "openat", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64",
	unix.SYS_WRITEV: "writev", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FALLOCATE: "fallocate",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_RENAME: "rename", unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2",
	unix.SYS_UNLINKAT: "unlinkat", unix.SYS_LINKAT: "linkat", unix.SYS_FCHMOD: "fchmod", unix.SYS_FCHMODAT: "fchmodat",
	unix.SYS_FCHOWN: "fchown", unix.SYS_FCHOWNAT: "fchownat", unix.SYS_FLOCK: "flock", unix.SYS_FCNTL: "fcntl",
	unix.SYS_STATFS: "statfs",
}

// action is what the tracer does when the call with a certain key begins: it kills
// the process, fails the call, or does something else meanwhile.
type action struct {
	key   string
	kill  bool
	fail  syscall.Errno
	pause func()
	// unlocked: the file system has no directory locks; plain: its renames cannot
	// refuse to replace.
	unlocked, plain bool
}

// traced is what a traced run came to.
type traced struct {
	calls  []*call
	hit    bool // the action's call was reached
	status int  // the exit status; -1 where it was killed
	stderr string
}

type tracer struct {
	root   string
	logDir string
	act    action
	seen   map[string]int
	inside map[int]*call // by thread: the call it is in
	out    traced
}

// randomID is a disk ID, or a cluster ID that follows from one.
var randomID = regexp.MustCompile(`(/|/new-|/used-)[0-9a-f]{32}\b|(etcdinit-pending-|etcdinit-withdrawn-)[0-9a-f]+`)

var stagingName = regexp.MustCompile(`\.etcdinit-seed-[0-9a-f]{16}`)

// trace runs the helper h and watches its calls below root.
func trace(t *testing.T, h helper, root string, act action) traced {
	t.Helper()
	h.Segment, h.Traced = wal.SegmentSizeBytes, true
	// Every ptrace call must come from the thread that started the process; the
	// thread is thrown away with the goroutine.
	done := make(chan error, 1)
	tr := &tracer{root: root, logDir: t.TempDir(), act: act, seen: map[string]int{}, inside: map[int]*call{}}
	go func() {
		runtime.LockOSThread()
		done <- tr.run(h)
	}()
	if err := <-done; err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
			t.Skipf("tracing is not permitted here: %v", err)
		}
		t.Fatal(err)
	}
	if tr.out.status == statusUntraced {
		t.Skip("filtering system calls is not permitted here")
	}
	return tr.out
}

// stopAtCalls makes this process stop for its tracer at the calls to watch, and at
// no others: a stop at each of them would take most of the time.
func stopAtCalls() error {
	code := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the call's number
	numbers := slices.Sorted(maps.Keys(tracedCalls))
	for i, nr := range numbers {
		code = append(code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(numbers) - i), K: uint32(nr)})
	}
	code = append(code,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
	// Both are of one thread, until the filter is set for all.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}

func (tr *tracer) run(h helper) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.CreateTemp(tr.logDir, "trace")
	if err != nil {
		return err
	}
	defer log.Close()        //nolint:errcheck // read by its name
	cmd := exec.Command(exe) //nolint:noctx // the tracer waits for it
	// A preemption signal would interrupt a call and repeat it at random.
	cmd.Env = append(os.Environ(), h.env(), "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1")
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	err = cmd.Start()
	if err == nil {
		err = tr.loop(cmd.Process.Pid)
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(log.Name())
	tr.out.stderr = strings.TrimSpace(string(text))
	return err
}

func (tr *tracer) loop(pid int) error {
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, syscall.WALL, nil); err != nil {
		return err
	}
	const options = syscall.PTRACE_O_TRACESYSGOOD | syscall.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESECCOMP
	if err := syscall.PtraceSetOptions(pid, options); err != nil {
		return err
	}
	tid, signal := pid, 0
	for {
		// The end of a call is only of interest where its beginning was.
		resume := syscall.PtraceCont
		if tr.inside[tid] != nil {
			resume = syscall.PtraceSyscall
		}
		if err := resume(tid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("continue: %w", err)
		}
		var err error
		if tid, err = syscall.Wait4(-pid, &ws, syscall.WALL, nil); err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		signal = 0
		switch {
		case ws.Exited() || ws.Signaled():
			if tid == pid {
				tr.out.status = ws.ExitStatus()
				return nil
			}
		case ws.Stopped() && (ws.StopSignal() == syscall.SIGTRAP|0x80 || ws.TrapCause() == unix.PTRACE_EVENT_SECCOMP):
			if err := tr.stop(pid, tid); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		case ws.Stopped() && ws.StopSignal() != syscall.SIGTRAP && ws.StopSignal() != syscall.SIGSTOP:
			signal = int(ws.StopSignal())
		}
	}
}

// stop handles a thread at the beginning or the end of a call.
func (tr *tracer) stop(pid, tid int) error {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	if c := tr.inside[tid]; c != nil {
		delete(tr.inside, tid)
		return tr.leave(tid, c, &regs)
	}
	c := tr.describe(tid, &regs)
	if c == nil {
		return nil
	}
	base := stagingName.ReplaceAllString(c.name+" "+strings.TrimPrefix(c.path, tr.root), ".etcdinit-seed-*")
	base = randomID.ReplaceAllString(base, "$1$2*")
	tr.seen[base]++
	c.key = fmt.Sprintf("%s #%d", base, tr.seen[base])
	tr.inside[tid] = c
	tr.out.calls = append(tr.out.calls, c)
	if tr.act.unlocked && c.nr == unix.SYS_FLOCK && filepath.Base(c.path) != "db" {
		c.fail = syscall.EBADF
	}
	if tr.act.plain && c.nr == unix.SYS_RENAMEAT2 {
		c.fail = syscall.EINVAL
	}
	if c.key == tr.act.key {
		tr.out.hit = true
		switch {
		case tr.act.kill:
			return syscall.Kill(pid, syscall.SIGKILL)
		case tr.act.pause != nil:
			tr.act.pause()
		default:
			c.fail = tr.act.fail
		}
	}
	if c.fail == 0 {
		return nil
	}
	regs.Orig_rax = ^uint64(0) // no such call: nothing happens
	return syscall.PtraceSetRegs(tid, &regs)
}

func (tr *tracer) leave(tid int, c *call, regs *syscall.PtraceRegs) error {
	if c.fail != 0 {
		c.errno = c.fail
		regs.Rax = uint64(-int64(c.fail))
		return syscall.PtraceSetRegs(tid, regs)
	}
	if ret := int64(regs.Rax); ret < 0 && ret > -4096 {
		c.errno = syscall.Errno(-ret)
		return nil
	}
	if tr.act.key == "" && (c.nr == unix.SYS_FSYNC || c.nr == unix.SYS_FDATASYNC) {
		c.data, c.size = content(c.path)
	}
	return nil
}

// describe turns registers into a call, or nil where it is not one to watch.
func (tr *tracer) describe(tid int, regs *syscall.PtraceRegs) *call {
	name, ok := tracedCalls[regs.Orig_rax]
	if !ok {
		return nil
	}
	c := &call{nr: regs.Orig_rax, name: name}
	switch c.nr {
	case unix.SYS_OPENAT, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT:
		c.path, c.flags = tr.pathAt(tid, regs.Rdi, regs.Rsi), regs.Rdx
	case unix.SYS_STATFS:
		c.path = readString(tid, regs.Rdi)
	case unix.SYS_RENAME:
		c.path, c.to = readString(tid, regs.Rdi), readString(tid, regs.Rsi)
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		c.path, c.to = tr.pathAt(tid, regs.Rdi, regs.Rsi), tr.pathAt(tid, regs.Rdx, regs.R10)
	case unix.SYS_FCNTL:
		switch regs.Rsi {
		case unix.F_OFD_SETLK, unix.F_OFD_SETLKW, unix.F_SETLK, unix.F_SETLKW:
			c.path = fdPath(tid, regs.Rdi)
		}
	default:
		c.path = fdPath(tid, regs.Rdi)
	}
	if c.path != tr.root && !strings.HasPrefix(c.path, tr.root+"/") {
		return nil
	}
	return c
}

func (tr *tracer) pathAt(tid int, dirfd, addr uint64) string {
	path := readString(tid, addr)
	if filepath.IsAbs(path) || int32(dirfd) == unix.AT_FDCWD {
		return filepath.Clean(path)
	}
	return filepath.Join(fdPath(tid, dirfd), path)
}

func fdPath(tid int, fd uint64) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd)))
	if err != nil {
		return ""
	}
	return path
}

func readString(tid int, addr uint64) string {
	var text []byte
	buf := make([]byte, 256)
	for len(text) < 4096 {
		n, err := syscall.PtracePeekData(tid, uintptr(addr)+uintptr(len(text)), buf)
		if n == 0 || err != nil && n == 0 {
			return ""
		}
		if i := bytes.IndexByte(buf[:n], 0); i >= 0 {
			return string(append(text, buf[:i]...))
		}
		text = append(text, buf[:n]...)
	}
	return ""
}
