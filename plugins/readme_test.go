package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// blocks are the fenced blocks of the document whose info string is kind.
func blocks(t *testing.T, kind string) []string {
	t.Helper()
	var out []string
	for _, m := range regexp.MustCompile("(?s)\n```([^\n]*)\n(.*?)\n```").FindAllStringSubmatch(readme(t), -1) {
		if m[1] == kind {
			out = append(out, m[2])
		}
	}
	if len(out) == 0 {
		t.Errorf("no block %q", kind)
	}
	return out
}

// TestExamples: every document in the README keeps the schema and the Go
// types, holds no field that they do not know, and is what Go would write.
func TestExamples(t *testing.T) {
	sch := load(t, "schema/request.json")
	for _, doc := range blocks(t, "json request") {
		var req Request
		if err := errOf(sch.check(doc), strict(doc, &req)); err != nil {
			t.Errorf("%v: %s", err, doc)
		}
		if again, err := json.Marshal(req); err != nil || string(again) != doc {
			t.Errorf("Go writes %s\n(%v), the document has\n%s", again, err, doc)
		}
		if !regexp.MustCompile(`^\{"version":\d+,"verb":"[a-z]+"`).MatchString(doc) {
			t.Errorf("against rule 2.2: %s", doc)
		}
	}
	sch = load(t, "schema/response.json")
	for _, doc := range blocks(t, "json response") {
		var resp Response
		if err := errOf(sch.check(doc), strict(doc, &resp)); err != nil {
			t.Errorf("%v: %s", err, doc)
		}
		verb, status := VerbDiscover, 0
		switch {
		case resp.Info != nil:
			verb = VerbInfo
		case resp.Error != nil:
			status = 1
		}
		if _, err := ReadResponse(Request{Version: Version, Verb: verb}, []byte(doc), status); err != nil {
			t.Errorf("%v: %s", err, doc)
		}
	}
}

func errOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func strict(doc string, v any) error {
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// TestRules: rules are numbered without gaps, and every rule that a message
// names is there.
func TestRules(t *testing.T) {
	text := readme(t)
	var rules []string
	for _, m := range regexp.MustCompile(`(?m)^(\d+)\. \*\*(\d+)\.(\d+)\*\* `).FindAllStringSubmatch(text, -1) {
		if m[1] != m[3] {
			t.Errorf("rule %s.%s is item %s of its list", m[2], m[3], m[1])
		}
		rules = append(rules, m[2]+"."+m[3])
	}
	for _, m := range regexp.MustCompile(`(?m)^## (\d) `).FindAllStringSubmatch(text, -1) {
		rules = append(rules, m[1])
	}
	if len(rules) < 39 {
		t.Errorf("only %d rules: %v", len(rules), rules)
	}
	files := slices.Concat(glob(t, "*.go"), glob(t, "plugintest/*.go"), glob(t, "../internal/run/*.go"), glob(t, "../discovery/execplugin/*.go"))
	named := regexp.MustCompile(`breach\("([0-9.]+)"|\{"[a-z-]+", "([0-9.]+)", s\.|\(?[Rr]ules? (\d\.\d+)`)
	n := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(b), -1) {
			n++
			if rule := m[1] + m[2] + m[3]; !slices.Contains(rules, rule) {
				t.Errorf("%s names rule %s, which is not there", f, rule)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d rules are named in the code", n)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(pattern, err)
	}
	return files
}

// TestFirstPlugin: the plugin in the document is the one in shell/.
func TestFirstPlugin(t *testing.T) {
	b, err := os.ReadFile("shell/members")
	if err != nil {
		t.Fatal(err)
	}
	if got := blocks(t, "sh file=members")[0] + "\n"; got != string(b) {
		t.Errorf("shell/members is not what the document shows:\n%s", got)
	}
	if n := bytes.Count(b, []byte("\n")); n > 20 {
		t.Errorf("it has %d lines", n)
	}
}

// TestServe: what Main makes of requests and of what discover does.
func TestServe(t *testing.T) {
	info := Info{Name: "x", Version: "1"}
	peers := func(p []Peer, err error) func(context.Context, Request) ([]Peer, error) {
		return func(context.Context, Request) ([]Peer, error) { return p, err }
	}
	const ask = `{"version":1,"verb":"discover","later":{"x":1}}`
	big := make([]Peer, 40000)
	for i := range big {
		big[i].Host = strings.Repeat("a", 30)
	}
	tests := []struct {
		name, in string
		discover func(context.Context, Request) ([]Peer, error)
		want     string
		status   int
	}{
		{"info", `{"version":1,"verb":"info","later":1}`, nil, `{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}`, 0},
		{"info of a later version", `{"version":9,"verb":"info"}`, nil, `{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}`, 0},
		{"peers", ask, peers([]Peer{{Host: "a"}}, nil), `{"version":1,"peers":[{"host":"a"}]}`, 0},
		{"nobody", ask, peers(nil, nil), `{"version":1,"peers":[]}`, 0},
		{"retry", ask, peers([]Peer{{Host: "a"}}, Retryf(2500e6, "%d of 3", 1)), `{"version":1,"error":{"code":"retry","message":"1 of 3","retryAfter":2.5}}`, 1},
		{"config", ask, peers(nil, Configf("no %s", "zone")), `{"version":1,"error":{"code":"config","message":"no zone"}}`, 1},
		{"wrapped", ask, peers(nil, &wrapped{Configf("inner")}), `{"version":1,"error":{"code":"config","message":"outer: inner"}}`, 1},
		{"other", ask, peers(nil, os.ErrNotExist), `{"version":1,"error":{"code":"internal","message":"file does not exist"}}`, 1},
		{"deadline", ask, peers(nil, context.DeadlineExceeded), `{"version":1,"error":{"code":"retry","message":"context deadline exceeded"}}`, 1},
		{"many lines", ask, peers(nil, Configf("a\n\tb\x00")), `{"version":1,"error":{"code":"config","message":"a b"}}`, 1},
		{"panic", ask, func(context.Context, Request) ([]Peer, error) { panic("oh") }, `{"version":1,"error":{"code":"internal","message":"panic: oh"}}`, 1},
		{"too much", ask, peers(big, nil), `{"version":1,"error":{"code":"internal","message":"the answer has 1680023 bytes, 1048576 are allowed"}}`, 1},
		{"unknown verb", `{"version":1,"verb":"x"}`, nil, `{"version":1,"error":{"code":"internal","message":"unknown verb \"x\", there are info and discover"}}`, 1},
		{"unknown version", `{"version":2,"verb":"discover"}`, nil, `{"version":1,"error":{"code":"internal","message":"the request is in version 2 of the contract, this plugin speaks version 1"}}`, 1},
		{"nothing", "", nil, `{"version":1,"error":{"code":"internal","message":"read the request: stdin is empty: this is a plugin of etcdinit, which writes a request there"}}`, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			status := serve(t.Context(), strings.NewReader(tt.in), &out, info, tt.discover)
			if status != tt.status || out.String() != tt.want+"\n" {
				t.Errorf("status %d, %s\nwant %d, %s", status, out.String(), tt.status, tt.want)
			}
		})
	}
	t.Run("the context ends before the plugin is killed", func(t *testing.T) {
		serve(t.Context(), strings.NewReader(`{"version":1,"verb":"discover","timeout":0.2}`), &strings.Builder{}, info,
			func(ctx context.Context, _ Request) ([]Peer, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
	})
}

type wrapped struct{ err error }

func (w *wrapped) Error() string { return "outer: " + w.err.Error() }
func (w *wrapped) Unwrap() error { return w.err }
