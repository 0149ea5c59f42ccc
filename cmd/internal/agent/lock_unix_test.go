//go:build unix

package agent

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

// TestLocked: another run that works in the directory is waited for, for a moment.
func TestLocked(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]time.Duration{"for a moment": 500 * time.Millisecond, "for good": labTime} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newLab(t, 1).node(t, "m1")
			if err := os.MkdirAll(n.data, 0o700); err != nil {
				t.Fatal(err)
			}
			dir, err := os.Open(n.data)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = dir.Close() }) //nolint:errcheck // it may be closed already
			if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			r := n.start(t)
			r.sees("the data directory", "another etcdinit is working in "+n.data)
			if held == labTime {
				begin := time.Now()
				r.refused(exit.Busy, "", "another etcdinit is working in "+n.data)
				if took := time.Since(begin); took < firstLockTime/2 || took > 5*firstLockTime {
					t.Errorf("it gave up after %v", took)
				}
				return
			}
			time.Sleep(held)
			if err := dir.Close(); err != nil {
				t.Fatal(err)
			}
			r.ok()
		})
	}
}
