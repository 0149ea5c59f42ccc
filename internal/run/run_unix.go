//go:build unix

package run

import (
	"errors"
	"os"
	"syscall"
)

const ownerKnown = true

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the process group that p leads.
func killGroup(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGKILL)
	// EPERM is what macOS says of a group of which only zombies are left.
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) {
		return os.ErrProcessDone
	}
	return err
}

func signalOf(s *os.ProcessState) string {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ws.Signal().String()
	}
	return ""
}

func ownerOf(st os.FileInfo) (int, bool) {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), true
	}
	return 0, false
}

// executable asks the kernel, which knows of groups and ACLs; root passes with
// any x bit, so the mode is looked at as well.
func executable(path string, st os.FileInfo) error {
	if st.Mode().Perm()&0o111 == 0 {
		return syscall.EACCES
	}
	const x = 1
	return syscall.Access(path, x)
}
