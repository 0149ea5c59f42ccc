// Package static is a peer set that is written in the source itself.
package static

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

type provider struct {
	peers []discovery.Peer
	dns   *resolve.Client
}

// New is the discovery.Factory of
//
//	static:?peer=[NAME=]URL[,URL…][&peer=…]
//
// The list is the whole set: a size that is told and differs is a Config
// error. Host names are resolved at every try.
func New(source *url.URL, env discovery.Env) (discovery.Provider, error) {
	bad := func(format string, args ...any) (discovery.Provider, error) {
		return nil, &discovery.Error{Kind: discovery.Config, Msg: "discovery source static: " + fmt.Sprintf(format, args...)}
	}
	if source.Host != "" || source.Opaque != "" || source.Path != "" {
		return bad("want static:?peer=NAME=https://HOST:PORT&peer=… and nothing before the '?'")
	}
	values, err := url.ParseQuery(source.RawQuery)
	if err != nil {
		return bad("%v", err)
	}
	for key := range values {
		if key != "peer" {
			return bad("unknown option %q; known is peer", key)
		}
	}
	p := &provider{dns: resolve.New(env)}
	for _, text := range values["peer"] {
		peer, err := parse(text)
		if err != nil {
			return bad("peer %q: %v", text, err)
		}
		p.peers = append(p.peers, peer)
	}
	if len(p.peers) == 0 {
		return bad("no peer, want static:?peer=NAME=https://HOST:PORT&peer=…")
	}
	if env.Size != 0 && env.Size != len(p.peers) {
		return bad("it lists %d peers, but --size says %d", len(p.peers), env.Size)
	}
	return p, nil
}

// parse reads NAME=URL,URL or URL,URL.
func parse(text string) (discovery.Peer, error) {
	p := discovery.Peer{AsIs: true}
	urls := text
	if name, rest, ok := strings.Cut(text, "="); ok && !strings.Contains(name, "://") {
		if name == "" {
			return p, errors.New("the name before '=' is empty")
		}
		p.Name, urls = name, rest
	}
	for raw := range strings.SplitSeq(urls, ",") {
		u, err := hosturl.Parse(raw)
		if err != nil {
			return p, fmt.Errorf("URL %q: %w", raw, err)
		}
		if p.Host == "" {
			p.Host, p.Port = u.Host, u.Port
		}
		p.PeerURLs = append(p.PeerURLs, u.String())
	}
	return p, nil
}

// Discover returns all peers of the list with their addresses, or a Retry that
// names the hosts which do not resolve.
func (p *provider) Discover(ctx context.Context) ([]discovery.Peer, error) {
	return p.dns.Fill(ctx, p.peers)
}

// Sized reports that the list is the whole set.
func (p *provider) Sized() bool { return true }
