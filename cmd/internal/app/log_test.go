package app

import (
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
)

// progressAt is a progress with a clock that a test moves.
func progressAt(out *strings.Builder, live bool) (p *progress, pass func(time.Duration)) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p = &progress{out: out, live: live, now: func() time.Time { return now }}
	p.log = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg", EncodeDuration: zapcore.StringDurationEncoder}), zapcore.AddSync(p), zapcore.InfoLevel))
	return p, func(d time.Duration) { now = now.Add(d) }
}

// TestProgressFits: a line that wraps would leave its first part behind at
// every rewrite.
func TestProgressFits(t *testing.T) {
	tests := []struct {
		name  string
		width int
		want  string
	}{
		{"wide", 90, "waiting: 1 of 5 members ready, awaiting etcd-1 for 0s, 4s left, next look in 2s"},
		{"unknown", 0, "waiting: 1 of 5 members ready, awaiting etcd-1 for 0s, 4s left, next look in 2s"},
		{"narrow", 60, "waiting: 1 of 5 members r… for 0s, 4s left, next look in 2s"},
		{"tiny", 5, "… fo"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			p, _ := progressAt(&out, true)
			p.width = tt.width
			p.wait(agent.Wait{For: "1 of 5 members ready, awaiting etcd-1", Left: 4 * time.Second, Next: 2 * time.Second})
			got := strings.TrimPrefix(out.String(), "\r\x1b[J")
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if n := utf8.RuneCountInString(got); tt.width > 40 && n >= tt.width {
				t.Errorf("%d characters in a line of %d", n, tt.width)
			}
		})
	}
}

// TestProgressTable: one row for each peer that is missing, in the place of the
// table before; a log line takes the table away.
func TestProgressTable(t *testing.T) {
	var out strings.Builder
	p, pass := progressAt(&out, true)
	wait := func() string {
		out.Reset()
		now := p.now()
		p.wait(agent.Wait{For: "1 of 3 members ready, awaiting etcd-1 (silent), etcd-2 (waiting)", Left: time.Minute, Next: 1500 * time.Millisecond, Rows: []agent.WaitRow{
			{Name: "etcd-1", URL: "http://192.0.2.11:2380", State: "silent", Why: "connection refused", Since: now.Add(-9 * time.Second)},
			{Name: "e", URL: "http://e:2380", State: "waiting", Why: "it does not see all", Since: now},
		}})
		return out.String()
	}
	const rows = "\n  etcd-1  http://192.0.2.11:2380  silent for 9s: connection refused\n  e       http://e:2380           waiting for 0s: it does not see all"
	if got, want := wait(), "\r\x1b[Jwaiting: 1 of 3 members ready for 0s, 1m0s left, next look in 1.5s"+rows; got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	pass(time.Minute)
	if got, want := wait(), "\r\x1b[2A\x1b[Jwaiting: 1 of 3 members ready for 1m0s, 1m0s left, next look in 1.5s"+rows; got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	out.Reset()
	p.log.Info("a line")
	if got, want := out.String(), "\r\x1b[2A\x1b[J{\"msg\":\"a line\"}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := wait(); !strings.HasPrefix(got, "\r\x1b[Jwaiting") {
		t.Errorf("after a line: %q", got)
	}
	p.height = 4
	if got := wait(); !strings.HasSuffix(got, "refused\n  and 1 more") {
		t.Errorf("in a low terminal: %q", got)
	}
	out.Reset()
	p.clear()
	p.clear()
	if got, want := out.String(), "\r\x1b[2A\x1b[J"; got != want {
		t.Errorf("cleared by %q, want %q", got, want)
	}
}

// TestProgressLog: a line for each change, and one every 30 s with the time waited.
func TestProgressLog(t *testing.T) {
	var out strings.Builder
	p, pass := progressAt(&out, false)
	logged := func(w agent.Wait) string {
		out.Reset()
		p.wait(w)
		return out.String()
	}
	w := agent.Wait{For: "two", Cause: "none", Next: time.Second}
	for _, step := range []struct {
		pass time.Duration
		wait agent.Wait
		want string
	}{
		{0, w, `{"msg":"waiting: two","seen":"none","next":"1s"}`},
		{29 * time.Second, w, ""},
		{time.Second, w, `{"msg":"waiting: two","seen":"none","next":"1s","waited":"30s"}`},
		{time.Second, w, ""},
		{time.Second, agent.Wait{For: "one", Cause: "none", Next: time.Second}, `{"msg":"waiting: one","seen":"none","next":"1s","waited":"32s"}`},
		{29 * time.Second, agent.Wait{For: "one", Cause: "none", Next: time.Second}, ""},
		{time.Second, agent.Wait{For: "one", Cause: "none", Next: time.Second}, `{"msg":"waiting: one","seen":"none","next":"1s","waited":"1m2s"}`},
	} {
		pass(step.pass)
		if got := strings.TrimSpace(logged(step.wait)); got != step.want {
			t.Errorf("got %s, want %s", got, step.want)
		}
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
