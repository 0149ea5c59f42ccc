//go:build e2e && linux

// Command peak runs a command, and prints the most memory that it had
// resident, in bytes. It is a program of its own because a process inherits
// the peak of the process that started it, and this one's is small.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func main() {
	bytes, err := run(os.Args[1], os.Args[2:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "peak:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, bytes)
}

func run(program string, args ...string) (int64, error) {
	cmd := exec.Command(program, args...) //nolint:noctx // as long as it takes
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return 0, err
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, errors.New("no resource usage")
	}
	return usage.Maxrss << 10, nil
}
