//go:build e2e

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// newNamespace makes a thread with a hostname, a network and mounts of its own;
// each file or directory of binds is seen there at its key.
func newNamespace(name string, binds map[string]string) (*namespace, error) {
	n := &namespace{calls: make(chan func()), ended: make(chan struct{})}
	started := make(chan error)
	go n.run(name, binds, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return n, nil
}

func (n *namespace) run(name string, binds map[string]string, started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with this function
	if unix.Gettid() == os.Getpid() {
		// The main thread cannot end; keep it busy and take another one.
		done := make(chan struct{})
		go func() { defer close(done); n.run(name, binds, started) }()
		<-done
		runtime.UnlockOSThread()
		return
	}
	defer close(n.ended)
	if err := enter(name, binds); err != nil {
		started <- err
		return
	}
	n.where = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	started <- nil
	for call := range n.calls {
		call()
	}
}

func enter(name string, binds map[string]string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("unshare (needs root): %w", err)
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set hostname %s: %w", name, err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for at, from := range binds {
		err := unix.Mount(from, at, "", unix.MS_BIND, "")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("mount %s on %s: %w", from, at, err)
		}
	}
	return nil
}

// dieWithThread makes a process die with the thread that started it, which is
// the namespace's: nothing outlives a test that was killed.
func dieWithThread() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
