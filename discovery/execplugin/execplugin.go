package execplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
	"github.com/etcdinit/etcdinit/internal/run"
	"github.com/etcdinit/etcdinit/plugins"
)

// DefaultTimeout is how long one call of a plugin may take where the source
// does not say timeout=.
const DefaultTimeout = 30 * time.Second

// New makes the provider of exec:NAME?key=value. It looks for nothing yet: the
// plugin is looked for, and asked for its info, at the first Discover.
func New(source *url.URL, env discovery.Env) (discovery.Provider, error) {
	return open(source, env)
}

// provider is one source. Discover may be called by several goroutines.
type provider struct {
	name    string
	params  map[string]string
	envs    []string // names of variables
	timeout time.Duration
	dirs    []string
	env     discovery.Env
	log     *zap.Logger
	dns     *resolve.Client
	call    func(context.Context, run.Call) (run.Result, error)

	mu   sync.Mutex
	info *plugins.Info // of the first Discover
}

func open(source *url.URL, env discovery.Env) (*provider, error) {
	bad := func(format string, args ...any) (*provider, error) {
		return nil, &discovery.Error{Kind: discovery.Config, Msg: "source exec: " + fmt.Sprintf(format, args...)}
	}
	name := source.Opaque
	if source.Host != "" || source.Path != "" {
		return bad("want exec:NAME?key=value, a name and never a path, not %s", strings.TrimSuffix(source.Redacted(), "?"+source.RawQuery))
	}
	if !plugins.ValidName(name) {
		return bad("%q is no plugin name: 1 to 64 of a-z, 0-9, '.', '_', '-', the first a letter or a digit", name)
	}
	query, err := url.ParseQuery(source.RawQuery)
	if err != nil {
		return bad("%s: the parameters cannot be read: %v", name, err)
	}
	p := &provider{
		name: name, params: map[string]string{}, timeout: DefaultTimeout,
		dirs: env.PluginDirs, env: env, log: env.Log, dns: resolve.New(env), call: run.Do,
	}
	if len(p.dirs) == 0 {
		p.dirs = DefaultDirs()
	}
	if p.log == nil {
		p.log = zap.NewNop()
	}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		values := query[key]
		switch {
		case key == "env":
			for _, v := range values {
				if !validVariable(v) {
					return bad("%s: env=%s names no environment variable", name, v)
				}
			}
			p.envs = values
		case len(values) > 1:
			return bad("%s: %s is given %d times", name, key, len(values))
		case key == "timeout":
			if p.timeout, err = time.ParseDuration(values[0]); err != nil || p.timeout <= 0 {
				return bad("%s: timeout=%s is no duration such as 30s", name, values[0])
			}
		case plugins.Reserved(key) || key == "":
			return bad("%s: %q is no parameter of this version; keys that begin with etcdinit- are reserved", name, key)
		default:
			p.params[key] = values[0]
		}
	}
	return p, nil
}

func validVariable(name string) bool {
	return name != "" && strings.Trim(name[:1], "0123456789") != "" &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9')
		})
}

// Discover asks the plugin once. The first call asks it for its info before.
func (p *provider) Discover(ctx context.Context) ([]discovery.Peer, error) {
	info, err := p.introduce(ctx)
	if err != nil {
		return nil, err
	}
	err = p.checkParameters(info.Parameters)
	if err != nil {
		return nil, err
	}
	x, err := p.exchange(ctx, p.request())
	if err != nil {
		return nil, err
	}
	return p.peers(ctx, x.Answer)
}

// introduce asks for the plugin's info, once.
func (p *provider) introduce(ctx context.Context) (plugins.Info, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.info != nil {
		return *p.info, nil
	}
	x, err := p.exchange(ctx, plugins.Request{Version: plugins.Version, Verb: plugins.VerbInfo})
	if err != nil {
		return plugins.Info{}, err
	}
	info := *x.Answer.Info
	if !slices.Contains(info.ContractVersions, plugins.Version) {
		return info, p.failure(discovery.Plugin, fmt.Sprintf("speaks versions %v of the plugin contract, this etcdinit only %d; install one that fits", info.ContractVersions, plugins.Version))
	}
	p.log.Debug("plugin introduced itself", zap.String("plugin", p.name), zap.String("version", info.Version))
	p.info = &info
	return info, nil
}

// checkParameters holds the source against what the plugin takes.
func (p *provider) checkParameters(known []plugins.Parameter) error {
	if known == nil {
		return nil
	}
	names := make([]string, 0, len(known))
	for _, k := range known {
		names = append(names, k.Name)
		if _, ok := p.params[k.Name]; k.Required && !ok {
			return p.failure(discovery.Config, fmt.Sprintf("needs the parameter %s (%s): exec:%s?%[1]s=…", k.Name, plugins.OneLine(k.Description, 120), p.name))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.params)) {
		if !slices.Contains(names, key) {
			has := "none"
			if len(names) > 0 {
				has = strings.Join(names, ", ")
			}
			return p.failure(discovery.Config, fmt.Sprintf("has no parameter %q; it has: %s", key, plugins.OneLine(has, 300)))
		}
	}
	return nil
}

func (p *provider) request() plugins.Request {
	return plugins.Request{
		Version: plugins.Version, Verb: plugins.VerbDiscover,
		Parameters: p.params, Size: p.env.Size, Token: p.env.Token, Node: p.node(),
	}
}

// Exchange is one call of a plugin, for people to look at.
type Exchange struct {
	Path     string           `json:"path"`
	Request  json.RawMessage  `json:"request"`
	Response string           `json:"response"` // stdout as it was
	Status   int              `json:"status"`
	Took     time.Duration    `json:"took"`
	Answer   plugins.Response `json:"-"`
}

// exchange calls the plugin with req. The error is a *discovery.Error: also
// where the plugin itself answered with one.
func (p *provider) exchange(ctx context.Context, req plugins.Request) (Exchange, error) {
	path, err := Find(p.dirs, p.name)
	if err != nil {
		return Exchange{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req.Timeout = p.timeout.Seconds()
	if t, ok := ctx.Deadline(); ok {
		req.Timeout = time.Until(t).Round(time.Millisecond).Seconds()
	}
	if req.Verb == plugins.VerbInfo {
		req.Timeout = 0
	}
	x := Exchange{Path: path}
	if x.Request, err = encode(req); err != nil {
		return x, p.failure(discovery.Config, "could not be asked: "+err.Error())
	}
	res, err := p.call(ctx, run.Call{Path: path, Env: environ(p.envs), Request: x.Request, Stderr: p.stderr})
	x.Response, x.Status, x.Took = string(res.Stdout), res.Status, res.Took
	if err != nil {
		return x, p.notRun(ctx, err, res)
	}
	x.Answer, err = plugins.ReadResponse(req, res.Stdout, res.Status)
	switch {
	case err != nil && res.Status != 0 && len(res.Stdout) == 0:
		return x, p.failure(discovery.Plugin, fmt.Sprintf("exited with status %d and no answer (rule 5.3)", res.Status)+said(res))
	case err != nil:
		return x, p.failure(discovery.Plugin, err.Error()+said(res))
	case x.Answer.Error != nil:
		return x, p.answered(*x.Answer.Error)
	}
	return x, nil
}

// encode is the request as rule 2.2 has it: one line, no needless escapes.
func encode(req plugins.Request) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(req)
	return []byte(b.String()), err
}

func environ(names []string) []string {
	var env []string
	for _, n := range names {
		if v, ok := os.LookupEnv(n); ok {
			env = append(env, n+"="+v)
		}
	}
	return env
}

func (p *provider) stderr(line string) { p.log.Info(line, zap.String("plugin", p.name)) }

func said(res run.Result) string {
	if res.LastLine == "" {
		return ""
	}
	return "; its last line on stderr: " + plugins.OneLine(res.LastLine, 300)
}

func (p *provider) failure(kind discovery.Kind, msg string) *discovery.Error {
	return &discovery.Error{Kind: kind, Msg: "plugin " + p.name + " " + msg}
}

// notRun is the error of a call that has no usable output.
func (p *provider) notRun(ctx context.Context, err error, res run.Result) error {
	var failed *run.Error
	if !errors.As(err, &failed) { // the caller gave up
		e := p.failure(discovery.Retry, "was not waited for")
		e.Err = err
		return e
	}
	kind := discovery.Plugin
	if failed.Reason == run.TimedOut || ctx.Err() != nil {
		kind = discovery.Retry
	}
	e := p.failure(kind, failed.Msg+said(res))
	e.Err = failed.Err
	return e
}

// maxRetryAfter bounds what a plugin can make everybody wait.
const maxRetryAfter = 300 * time.Second

// answered is the error that the plugin itself gave.
func (p *provider) answered(e plugins.Error) error {
	msg := "says: " + plugins.OneLine(e.Message, plugins.MaxMessage)
	switch e.Code {
	case plugins.CodeRetry:
		err := p.failure(discovery.Retry, msg)
		err.After = seconds(e.RetryAfter, maxRetryAfter)
		return err
	case plugins.CodeConfig:
		return p.failure(discovery.Config, msg)
	case plugins.CodeInternal:
		return p.failure(discovery.Plugin, msg)
	}
	return p.failure(discovery.Plugin, fmt.Sprintf("%s (with the unknown code %q, taken for internal)", msg, plugins.OneLine(e.Code, 40)))
}

func seconds(s float64, most time.Duration) time.Duration {
	if s >= most.Seconds() {
		return most
	}
	return time.Duration(s * float64(time.Second))
}
