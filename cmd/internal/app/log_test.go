package app

import (
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
)

// TestProgressFits: a line that wraps would leave its first part behind at
// every rewrite.
func TestProgressFits(t *testing.T) {
	tests := []struct {
		name  string
		width int
		want  string
	}{
		{"wide", 80, "waiting: 1 of 5 members ready, awaiting etcd-1 (silent), 4s left"},
		{"unknown", 0, "waiting: 1 of 5 members ready, awaiting etcd-1 (silent), 4s left"},
		{"narrow", 30, "waiting: 1 of 5 memb…, 4s left"[:len("waiting: 1 of 5 mem")] + "…, 4s left"},
		{"tiny", 5, "…, 4s left"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			p := progress{out: &out, live: true, width: tt.width}
			p.wait(agent.Wait{For: "1 of 5 members ready, awaiting etcd-1 (silent)", Left: 4 * time.Second})
			got := strings.TrimPrefix(out.String(), "\r\x1b[K")
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if n := utf8.RuneCountInString(got); tt.width > 20 && n >= tt.width {
				t.Errorf("%d characters in a line of %d", n, tt.width)
			}
		})
	}
}

// TestLogLevels: no level silences an error.
func TestLogLevels(t *testing.T) {
	for level, ok := range map[string]bool{"debug": true, "info": true, "warn": true, "error": true, "dpanic": false, "panic": false, "fatal": false, "loud": false, "": true} {
		if _, err := newLogger(level, "json", io.Discard); (err == nil) != ok {
			t.Errorf("level %q: %v", level, err)
		}
	}
}
