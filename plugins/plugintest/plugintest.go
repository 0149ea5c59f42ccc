package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcdinit/etcdinit/internal/run"
	"github.com/etcdinit/etcdinit/plugins"
)

// DefaultTimeout is how long a plugin may take for one call here.
const DefaultTimeout = 10 * time.Second

// Options say how to ask the plugin.
type Options struct {
	// Parameters are those of a source that works here.
	Parameters map[string]string
	// Size is the number of peers that the source has. 0: not known; then an
	// error is as good an answer to discover as peers are.
	Size int
	// Env is the plugin's environment, NAME=value.
	Env []string
	// Timeout is that of one call; 0: DefaultTimeout.
	Timeout time.Duration
}

// Status is how a check ended.
type Status string

// The statuses.
const (
	Pass Status = "pass"
	Fail Status = "fail"
	Skip Status = "skip"
)

// Check is one rule, or a few, and how the plugin kept it.
type Check struct {
	Name   string        `json:"name"`
	Rule   string        `json:"rule"` // number in plugins/README.md
	Status Status        `json:"status"`
	Reason string        `json:"reason,omitempty"` // of a failure or a skip; else what was seen
	Took   time.Duration `json:"took"`
}

// Report is all checks of one plugin.
type Report struct {
	Path   string        `json:"path"`
	Info   *plugins.Info `json:"info,omitempty"`
	Checks []Check       `json:"checks"`
}

// OK says whether no check failed.
func (r Report) OK() bool {
	for _, c := range r.Checks {
		if c.Status == Fail {
			return false
		}
	}
	return true
}

// TB is what Test needs of a *testing.T.
type TB interface {
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Test runs the checks and fails the test for each that fails.
func Test(t TB, path string, opts Options) {
	for _, c := range Run(t.Context(), path, opts).Checks {
		if c.Status == Fail {
			t.Errorf("%s (rule %s): %s", c.Name, c.Rule, c.Reason)
			continue
		}
		t.Logf("%s (rule %s): %s %s", c.Name, c.Rule, c.Status, c.Reason)
	}
}

// skipped is the error of a check that could not be made.
type skipped string

func (s skipped) Error() string { return string(s) }

// suite is one run over one plugin.
type suite struct {
	path string
	Options
	info  *plugins.Info
	peers []plugins.Peer // the answer of the first discover that worked
	left  []string
}

type check struct {
	name, rule string
	do         func(context.Context) (seen string, err error)
}

// Run makes all checks, each in its own calls. A check that needs what an
// earlier one did not get is skipped and says so.
func Run(ctx context.Context, path string, opts Options) Report {
	if opts.Timeout <= 0 {
		opts.Timeout = DefaultTimeout
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	s := &suite{path: path, Options: opts}
	r := Report{Path: path}
	for _, c := range s.checks() {
		start := time.Now()
		seen, err := c.do(ctx)
		res := Check{Name: c.name, Rule: c.rule, Status: Pass, Reason: seen, Took: time.Since(start)}
		var skip skipped
		switch {
		case ctx.Err() != nil:
			res.Status, res.Reason = Fail, "the tests were stopped: "+context.Cause(ctx).Error()
		case errors.As(err, &skip):
			res.Status, res.Reason = Skip, skip.Error()
		case err != nil:
			res.Status, res.Reason = Fail, plugins.OneLine(err.Error(), 2*plugins.MaxMessage)
		}
		r.Checks = append(r.Checks, res)
		if ctx.Err() != nil || c.name == "file" && err != nil {
			break
		}
	}
	r.Info = s.info
	return r
}

func (s *suite) checks() []check {
	return []check{
		{"file", "1.3", s.file},
		{"info", "4", s.getInfo},
		{"info-contract-version", "6.2", s.contractVersion},
		{"info-ignores-unknown-fields", "3.1", s.infoUnknownFields},
		{"unknown-verb", "3.2", s.unknownVerb},
		{"unknown-version", "6.3", s.unknownVersion},
		{"unreadable-request", "3.4", s.unreadable},
		{"empty-request", "3.4", s.empty},
		{"known-parameters", "3.3", s.parameters},
		{"required-parameters", "5", s.required},
		{"discover", "4.1", s.discover},
		{"discover-ignores-unknown-fields", "3.1", s.discoverUnknownFields},
		{"discover-same-on-every-node", "3.5", s.sameEverywhere},
		{"discover-in-parallel", "2.10", s.parallel},
		{"discover-invents-nobody", "4.1", s.invents},
		{"working-directory", "2.6", s.workDir},
	}
}

// ask calls the plugin once with raw on its stdin.
func (s *suite) ask(ctx context.Context, raw []byte) (run.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	res, err := run.Do(ctx, run.Call{Path: s.path, Env: s.Env, Request: raw})
	s.left = append(s.left, res.Left...)
	if err != nil {
		return res, fmt.Errorf("the plugin %w%s", err, lastLine(res))
	}
	return res, nil
}

func lastLine(res run.Result) string {
	if res.LastLine == "" {
		return ""
	}
	return "; its last line on stderr: " + plugins.OneLine(res.LastLine, 300)
}

// call asks req with extra fields added to its JSON.
func (s *suite) call(ctx context.Context, req plugins.Request, extra map[string]any) (plugins.Response, error) {
	raw, err := encode(req, extra)
	if err != nil {
		return plugins.Response{}, err
	}
	res, err := s.ask(ctx, raw)
	if err != nil {
		return plugins.Response{}, err
	}
	resp, err := plugins.ReadResponse(req, res.Stdout, res.Status)
	if err != nil {
		return resp, fmt.Errorf("the plugin %w%s", err, lastLine(res))
	}
	return resp, nil
}

// encode is the request in one compact line (rule 2.2), with the extra fields
// behind the known ones.
func encode(req plugins.Request, extra map[string]any) ([]byte, error) {
	line, err := compact(req)
	if err != nil || len(extra) == 0 {
		return []byte(line + "\n"), err
	}
	more, err := compact(extra)
	return []byte(strings.TrimSuffix(line, "}") + "," + strings.TrimPrefix(more, "{") + "\n"), err
}

func compact(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

func infoRequest() plugins.Request {
	return plugins.Request{Version: plugins.Version, Verb: plugins.VerbInfo}
}

func (s *suite) request() plugins.Request {
	return plugins.Request{ //nolint:gosec // the token is the name of a cluster
		Version: plugins.Version, Verb: plugins.VerbDiscover, Timeout: s.Timeout.Seconds(),
		Parameters: s.Parameters, Size: s.Size, Token: "etcd-cluster-1",
		Node: plugins.Node{Hostname: "host-a.example.org", Addresses: []string{"192.0.2.10"}},
	}
}
