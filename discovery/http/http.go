// Package http finds peers in a document that a web server gives: the same
// document as that of discovery/file, over HTTP or HTTPS.
package http

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/file"
	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

const (
	maxSize      = 1 << 20
	maxRedirects = 3
	timeout      = 10 * time.Second // of one try, all redirects together
	maxAfter     = 300 * time.Second
)

// provider asks for one URL.
type provider struct {
	url     *url.URL // without our options
	shown   string   // for messages: without the query
	options options
	env     discovery.Env
	dns     *resolve.Client
}

// New is the discovery.Factory of
//
//	http://HOST[:PORT]/PATH[?QUERY]
//	https://HOST[:PORT]/PATH[?QUERY]
//
// The options etcdinit-ca-file, etcdinit-token-file, etcdinit-cert-file and
// etcdinit-key-file in the query are read here; the rest of it is the server's.
func New(source *url.URL, env discovery.Env) (discovery.Provider, error) {
	u := *source
	u.RawQuery = ""
	shown := u.String()
	bad := func(format string, args ...any) (discovery.Provider, error) {
		return nil, &discovery.Error{
			Kind: discovery.Config,
			Msg:  fmt.Sprintf("discovery source %s: ", shown) + fmt.Sprintf(format, args...),
		}
	}
	if source.Opaque != "" || source.Hostname() == "" {
		return bad("want %s://HOST[:PORT]/PATH", source.Scheme)
	}
	if err := hosturl.CheckHost(hosturl.Canonical(source.Hostname())); err != nil {
		return bad("%v", err)
	}
	if source.Port() != "" {
		if _, err := hosturl.Port(source.Port()); err != nil {
			return bad("%v", err)
		}
	}
	o, query, err := readOptions(source.RawQuery)
	if err != nil {
		return bad("%v", err)
	}
	tls := strings.EqualFold(source.Scheme, "https")
	switch {
	case !tls && (o.ca != "" || o.cert != ""):
		return bad("%s and %s are for https", optCA, optCert)
	case !tls && o.token != "" && !isLoopback(source.Hostname()):
		return bad("a token is not sent in the clear: use https")
	}
	u.RawQuery = query
	return &provider{url: &u, shown: shown, options: o, env: env, dns: resolve.New(env)}, nil
}

// Discover asks once. The answer is one of three.
//  1. All peers of the document with their addresses.
//  2. A Retry: the server does not answer, or says that it cannot now or that
//     there is nothing there (404), or the document names too few peers, or a
//     host does not resolve.
//  3. A Config or Unusable error: credentials that are refused, an answer that
//     is no peers document.
func (p *provider) Discover(ctx context.Context) ([]discovery.Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, err := p.get(ctx)
	if err != nil {
		return nil, err
	}
	peers, unfinished, err := file.Parse(text)
	switch {
	case unfinished:
		e := p.error(discovery.Retry, "%v", err)
		e.AtDeadline = discovery.Unusable
		return nil, e
	case err != nil:
		return nil, p.error(discovery.Unusable, "the answer is no peers document: %v; it begins with %q", err, text[:min(len(text), 60)])
	}
	if n := p.env.Size; len(peers) < n {
		e := p.error(discovery.Retry, "got %d of %d peers: %s", len(peers), n, hosts(peers))
		e.Seen = peers
		return nil, e
	}
	filled, err := p.dns.Fill(ctx, peers)
	var e *discovery.Error
	if errors.As(err, &e) {
		c := *e
		c.Msg = p.shown + ": " + e.Msg
		return nil, &c
	}
	return filled, err
}

func hosts(peers []discovery.Peer) string {
	var list []string
	for _, p := range peers {
		list = append(list, p.Host)
	}
	return strings.Join(list, ", ")
}

// judge says what a status other than 200 means.
func (p *provider) judge(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		with := "no token was sent, see " + optToken
		if p.options.token != "" {
			with = "with the token of " + p.options.token
		}
		return p.error(discovery.Config, "the server says %s (%s)", resp.Status, with)
	case code == http.StatusNotFound || code == http.StatusNoContent || code == http.StatusRequestTimeout ||
		code == http.StatusTooEarly || code == http.StatusTooManyRequests || code >= 500:
		e := p.error(discovery.Retry, "the server says %s", resp.Status)
		e.After = retryAfter(resp.Header.Get("Retry-After"))
		return e
	default:
		return p.error(discovery.Unusable, "the server says %s", resp.Status)
	}
}

func retryAfter(value string) time.Duration {
	s, err := strconv.Atoi(value)
	if err != nil || s < 0 {
		return 0 // absent, or a date: our own back-off does
	}
	return min(time.Duration(min(s, 1<<20))*time.Second, maxAfter)
}

// html refuses the pages that portals and log-ins give with status 200.
func (p *provider) html(resp *http.Response) error {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && (kind == "text/html" || kind == "application/xhtml+xml") {
		return p.error(discovery.Unusable, "the answer is a page (%s), not a peers document", kind)
	}
	return nil
}

func (p *provider) error(kind discovery.Kind, format string, args ...any) *discovery.Error {
	return &discovery.Error{Kind: kind, Msg: p.shown + ": " + fmt.Sprintf(format, args...)}
}
