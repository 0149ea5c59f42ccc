//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/plugins"
)

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDo(t *testing.T) {
	t.Setenv("ETCDINIT_TEST_SECRET", "x")
	tests := []struct {
		name, script string
		stdout       string
		status       int
		reason       Reason
	}{
		{name: "echo", script: "#!/bin/sh\ncat; echo \"$#\"", stdout: "in0\n"},
		{name: "status", script: "#!/bin/sh\nexit 7", status: 7},
		{name: "stdin unread", script: "#!/bin/sh\nexit 0"},
		{name: "scrubbed", script: "#!/bin/sh\necho \"$ETCDINIT_TEST_SECRET$GIVEN\"", stdout: "yes\n"},
		{name: "stdin ends", script: "#!/bin/sh\nread a; read b || echo end", stdout: "end\n"},
		{name: "hangs", script: "#!/bin/sh\nsleep 60", status: -1, reason: TimedOut},
		{name: "ignores SIGTERM", script: "#!/bin/sh\ntrap '' TERM\nsleep 60 & wait; wait", status: -1, reason: TimedOut},
		{name: "floods", script: "#!/bin/sh\nwhile :; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; done", status: -1, reason: Flooded},
		{name: "killed", script: "#!/bin/sh\nkill -SEGV $$", status: -1, reason: Killed},
		{name: "leaves a child with stdout", script: "#!/bin/sh\nsleep 60 &", reason: HeldOpen},
		{name: "leaves a child with stderr", script: "#!/bin/sh\nsleep 60 >/dev/null &", reason: HeldOpen},
		{name: "leaves a child with nothing", script: "#!/bin/sh\nsleep 60 >/dev/null 2>&1 </dev/null &\necho ok", stdout: "ok\n"},
		{name: "no interpreter", script: "#!/nonexistent/sh\n", status: -1, reason: NotStarted},
		{name: "no program", script: "nothing", status: -1, reason: NotStarted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if tt.reason == TimedOut {
				ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			}
			defer cancel()
			res, err := Do(ctx, Call{Path: script(t, tt.script), Env: []string{"GIVEN=yes"}, Request: []byte("in")})
			var e *Error
			if errors.As(err, &e) != (tt.reason != 0) || e != nil && e.Reason != tt.reason {
				t.Errorf("got %v, want reason %d", err, tt.reason)
			}
			if res.Status != tt.status || tt.reason != Flooded && string(res.Stdout) != tt.stdout || len(res.Stdout) > plugins.MaxResponse {
				t.Errorf("status %d, %d bytes: %.60q", res.Status, len(res.Stdout), res.Stdout)
			}
			if len(res.Left) > 0 {
				t.Errorf("left %v", res.Left)
			}
		})
	}
}

// TestBusyText: a file that somebody still has open for writing is tried
// again, each time with a new process.
func TestBusyText(t *testing.T) {
	path := script(t, "#!/bin/sh\necho ok")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Do(t.Context(), Call{Path: path}); !errors.Is(err, syscall.ETXTBSY) {
		t.Skipf("this system does not mind: %v", err)
	}
	time.AfterFunc(30*time.Millisecond, func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if res, err := Do(t.Context(), Call{Path: path}); err != nil || string(res.Stdout) != "ok\n" {
		t.Errorf("got %q, %v", res.Stdout, err)
	}
}

func TestStderr(t *testing.T) {
	var got []string
	res, err := Do(t.Context(), Call{
		Path:   script(t, "#!/bin/sh\nprintf 'one\\n\\n  two\\ttabs \\033[31m\\n' >&2\nprintf '%05000d\\n' 0 >&2\nprintf 'no end' >&2"),
		Stderr: func(line string) { got = append(got, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 || got[0] != "one" || got[1] != "two tabs [31m" || len(got[2]) != 4096 || got[3] != "no end" || res.LastLine != "no end" {
		t.Errorf("got %q, last %q", got, res.LastLine)
	}
}

// TestWorkDir: a read-only root without /tmp has no place for a directory.
func TestWorkDir(t *testing.T) {
	dir, remove := workDir("/nonexistent")
	if dir != "/" || remove() != nil {
		t.Errorf("got %s", dir)
	}
	if _, err := os.Stat("/"); err != nil {
		t.Error(err)
	}
	place := t.TempDir()
	dir, remove = workDir("/nonexistent", place)
	st, err := os.Stat(dir)
	if err != nil || filepath.Dir(dir) != place || st.Mode().Perm() != 0o500 {
		t.Errorf("got %s, %v, %v", dir, st.Mode(), err)
	}
	if left := remove(); left != nil {
		t.Errorf("left %v", left)
	}
	dir, remove = workDir(place)
	if err := errors.Join(os.Chmod(dir, 0o700), os.WriteFile(filepath.Join(dir, "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if left := remove(); !slices.Equal(left, []string{filepath.Join(dir, "x")}) {
		t.Errorf("left %v", left)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	path := script(t, "#!/bin/sh\n")
	if err := os.Symlink(path, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		mode       os.FileMode
		path, want string
	}{
		{0o755, path, ""},
		{0o775, path, ""},
		{0o500, path, ""},
		{0o755, filepath.Join(dir, "link"), ""},
		{0o757, path, "everybody may write it (mode 0757)"},
		{0o757, filepath.Join(dir, "link"), "everybody may write it"},
		{0o644, path, "is not executable (mode 0644)"},
		{0o755, dir, "no regular file"},
		{0o755, "plugin", "not an absolute path"},
		{0o755, filepath.Join(dir, "none"), "cannot be looked at"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%04o %s", tt.mode, filepath.Base(tt.path)), func(t *testing.T) {
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			err := Check(tt.path)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
