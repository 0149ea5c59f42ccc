//go:build !unix

package run

import (
	"os"
	"syscall"
)

const ownerKnown = false

func ownGroup() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) error { return p.Kill() }

func signalOf(*os.ProcessState) string { return "" }

func ownerOf(os.FileInfo) (int, bool) { return 0, false }

func executable(string, os.FileInfo) error { return nil }
