//go:build e2e && !linux

package lab

import (
	"errors"
	"os"
	"syscall"
)

func newNamespace(string, map[string]string) (*namespace, error) {
	return nil, errors.New("only Linux has them")
}

func dieWithThread() *syscall.SysProcAttr { return nil }

func maxRSS(*os.ProcessState) int64 { return 0 }
