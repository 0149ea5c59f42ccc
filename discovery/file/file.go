// Package file is a peer set in a file, YAML or JSON, such as a mounted
// ConfigMap.
package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
)

const (
	maxSize = 1 << 20
	// quiet is how long a file must have been left alone to be whole: half of
	// a YAML file is often a valid, smaller one.
	quiet = 300 * time.Millisecond
)

type provider struct {
	path string
	env  discovery.Env
	dns  *resolve.Client
	// last is what the file held at the last try, and since when.
	last  []byte
	since time.Time
}

// New is the discovery.Factory of
//
//	file:///PATH
//
// The file is read at every try.
func New(source *url.URL, env discovery.Env) (discovery.Provider, error) {
	path := source.Path
	if source.Opaque != "" || source.Host != "" || !filepath.IsAbs(path) || source.RawQuery != "" {
		return nil, &discovery.Error{
			Kind: discovery.Config,
			Msg:  fmt.Sprintf("discovery source %q: want an absolute path and nothing else, such as file:///etc/etcdinit/peers.yaml", source.Redacted()),
		}
	}
	return &provider{path: path, env: env, dns: resolve.New(env)}, nil
}

// Sized reports that the file is the whole set.
func (p *provider) Sized() bool { return true }

// Discover reads the file. The answer is one of three.
//  1. All its peers with their addresses.
//  2. A Retry: the file is absent, empty, half written or was written a
//     moment ago, has fewer peers than the size, or a host does not resolve.
//  3. A Config error with the line: the file is malformed. One that ends in
//     the middle of a line turns into this at the deadline only.
func (p *provider) Discover(ctx context.Context) ([]discovery.Peer, error) {
	text, err := p.read()
	if err != nil {
		return nil, err
	}
	peers, err := parse(text)
	if err != nil {
		var half *halfError
		if errors.As(err, &half) {
			e := p.error(discovery.Retry, "half written? %v", err)
			if !half.empty {
				e.AtDeadline = discovery.Config
			}
			return nil, e
		}
		return nil, p.fail(discovery.Config, "%v", err)
	}
	if n := p.env.Size; n > 0 && len(peers) < n {
		e := &discovery.Error{Kind: discovery.Retry, Msg: fmt.Sprintf("%s: got %d of %d peers: %s", p.path, len(peers), n, list(peers)), Seen: peers}
		return nil, e
	}
	for i := range peers {
		peers[i].AsIs = true
	}
	filled, err := p.dns.Fill(ctx, peers)
	var e *discovery.Error
	if errors.As(err, &e) {
		c := *e
		c.Msg = p.path + ": " + e.Msg
		return nil, &c
	}
	return filled, err
}

// read returns the whole file, once nobody writes it any more.
func (p *provider) read() ([]byte, error) {
	info, err := os.Stat(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, p.retry("no such file yet")
	case err != nil:
		return nil, p.fail(discovery.Config, "%v", cause(err))
	case !info.Mode().IsRegular():
		return nil, p.fail(discovery.Config, "it is not a regular file")
	}
	f, err := os.Open(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, p.retry("no such file yet")
	case err != nil:
		return nil, p.fail(discovery.Config, "%v", cause(err))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, p.retry("%v", cause(err))
	}
	if len(text) > maxSize {
		return nil, p.fail(discovery.Config, "it is larger than %d bytes, which no peers file is", maxSize)
	}
	if p.last == nil || !bytes.Equal(p.last, text) {
		p.last, p.since = text, time.Now()
	}
	// The writer's clock may be ahead of ours: then what we saw ourselves counts.
	age := max(time.Since(info.ModTime()), time.Since(p.since))
	if age < quiet {
		e := p.error(discovery.Retry, "written a moment ago, reading it again")
		e.After = quiet - age
		return nil, e
	}
	return text, nil
}

func (p *provider) error(kind discovery.Kind, format string, args ...any) *discovery.Error {
	return &discovery.Error{Kind: kind, Msg: p.path + ": " + fmt.Sprintf(format, args...)}
}

func (p *provider) fail(kind discovery.Kind, format string, args ...any) error {
	return p.error(kind, format, args...)
}

func (p *provider) retry(format string, args ...any) error {
	return p.error(discovery.Retry, format, args...)
}

// cause takes the path off, which the message has already.
func cause(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
