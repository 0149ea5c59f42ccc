package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/seed"
)

// TestFail: a refusal is a line and numbered commands for a person, and the same
// as fields for machines.
func TestFail(t *testing.T) {
	refusal := fmt.Errorf("init: %w", &exit.Error{Status: exit.Unsafe, Reason: "cluster-runs", Msg: "refusing to seed", Commands: []string{"etcdctl member remove 1", "etcdctl member add m"}})
	type fields struct {
		Msg      string   `json:"msg"`
		Message  string   `json:"message"`
		Status   int      `json:"status"`
		Reason   string   `json:"reason"`
		Commands []string `json:"commands"`
	}
	want := func(t *testing.T, text string) {
		t.Helper()
		var got fields
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if got.Msg+got.Message != "init: refusing to seed" || got.Status != 42 || got.Reason != "cluster-runs" || len(got.Commands) != 2 {
			t.Errorf("%+v", got)
		}
	}
	run := func(t *testing.T, report string, args ...string) string {
		t.Helper()
		var stderr strings.Builder
		a := &app{IO: IO{Out: &strings.Builder{}, Err: &stderr}}
		if err := a.cli().Run(append([]string{"etcdinit"}, args...)); err != nil {
			t.Fatal(err)
		}
		a.report = report
		a.fail(refusal, exit.Of(refusal))
		return stderr.String()
	}
	t.Run("console", func(t *testing.T) {
		got := run(t, "", "--log-format", "console", "version")
		if want := "etcdinit: init: refusing to seed\n  1. etcdctl member remove 1\n  2. etcdctl member add m\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("json", func(t *testing.T) { want(t, run(t, "", "--log-format", "json", "version")) })
	t.Run("report", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "report.json")
		run(t, path, "version")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want(t, string(text))
	})
}

// TestReportIsBounded: commands go before the line is cut.
func TestReportIsBounded(t *testing.T) {
	o := outcome{Message: strings.Repeat("m", 3000), Status: exit.Unsafe, Reason: "r", Commands: []string{strings.Repeat("c", 3000)}}
	data := encodeReport(o)
	var got outcome
	if err := json.Unmarshal(data, &got); err != nil || len(data) > reportLimit || got.Message != o.Message || got.Commands != nil {
		t.Errorf("%d bytes, %v, %d commands", len(data), err, len(got.Commands))
	}
	o.Message = strings.Repeat("é", 5000)
	if data := encodeReport(o); len(data) > reportLimit {
		t.Errorf("%d bytes", len(data))
	}
}

// TestReportKeepsCommands: what a person does next outlives everything that only
// describes.
func TestReportKeepsCommands(t *testing.T) {
	bulk := []string{strings.Repeat("x", 3000)}
	commands := []string{strings.Repeat("c", 2000)}
	tests := []struct {
		name   string
		result agent.Result
	}{
		{"timeline", agent.Result{Spans: []agent.Span{{Step: bulk[0]}}}},
		{"members", agent.Result{Members: []seed.Member{{PeerURLs: bulk}}}},
		{"warnings", agent.Result{Warnings: bulk}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := encodeReport(outcome{Message: "m", Status: exit.Unsafe, Commands: commands, Result: &tt.result})
			var got outcome
			if err := json.Unmarshal(data, &got); err != nil || len(data) > reportLimit || !slices.Equal(got.Commands, commands) {
				t.Errorf("%d bytes, %v, %d commands", len(data), err, len(got.Commands))
			}
		})
	}
}

// TestFailIsOneLine: a cause of several lines does not look like commands.
func TestFailIsOneLine(t *testing.T) {
	var stderr strings.Builder
	a := &app{IO: IO{Out: &strings.Builder{}, Err: &stderr}}
	a.fail(&exit.Error{Status: exit.Config, Msg: "first\n  1. second"}, exit.Config)
	if got, want := stderr.String(), "etcdinit: first;   1. second\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
