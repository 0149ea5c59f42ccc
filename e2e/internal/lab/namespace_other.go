//go:build e2e && !linux

package lab

import (
	"errors"
	"syscall"
)

func newNamespace(string, map[string]string) (*namespace, error) {
	return nil, errors.New("only Linux has them")
}

func dieWithThread() *syscall.SysProcAttr { return nil }
