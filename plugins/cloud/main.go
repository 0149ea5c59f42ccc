// Command cloud is a plugin of etcdinit: the peers are the instances that a
// cloud's API finds by tag, through hashicorp/go-discover.
package main

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	discover "github.com/hashicorp/go-discover"

	"github.com/etcdinit/etcdinit/plugins"
)

// The plugin's own parameters. All others are the provider's.
const (
	peerHost   = "peer-host"
	peerName   = "peer-name"
	peerPort   = "peer-port"
	peerScheme = "peer-scheme"
)

func main() {
	p := plugin{providers: discover.Providers}
	plugins.Info{
		Name:        "cloud",
		Version:     "1.0.0",
		Description: "members from a cloud's API, by tag (hashicorp/go-discover)",
		// Parameters stay open: each provider has its own.
	}.Main(p.discover)
}

type plugin struct {
	providers map[string]discover.Provider
}

func (p plugin) discover(ctx context.Context, req plugins.Request) ([]plugins.Peer, error) {
	shape, err := newShape(req.Parameters)
	if err != nil {
		return nil, err
	}
	args := map[string]string{}
	for key, value := range req.Parameters {
		if !strings.HasPrefix(key, "peer-") {
			args[key] = value
		}
	}
	provider, ok := p.providers[args["provider"]]
	switch {
	case !ok:
		return nil, plugins.Configf("provider=%s is not one of %s", args["provider"], strings.Join(p.names(), ", "))
	case req.Size == 0:
		return nil, plugins.Configf("--size is missing: tags do not say how many members are meant to be there")
	}
	addrs, err := ask(ctx, provider, args)
	if err != nil {
		return nil, plugins.Retryf(5*time.Second, "provider %s: %v", args["provider"], err)
	}
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	if len(addrs) < req.Size {
		return nil, plugins.Retryf(5*time.Second, "provider %s found %d of %d instances: %s", args["provider"], len(addrs), req.Size, strings.Join(addrs, " "))
	}
	peers := make([]plugins.Peer, 0, len(addrs))
	for _, addr := range addrs {
		peer, err := shape.peer(addr)
		if err != nil {
			return nil, err
		}
		peers = append(peers, peer)
	}
	return peers, nil
}

func (p plugin) names() []string {
	var names []string
	for name := range p.providers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ask gives up when the context ends: go-discover knows no context, and what
// it still does dies with the process.
func ask(ctx context.Context, provider discover.Provider, args map[string]string) ([]string, error) {
	type answer struct {
		addrs []string
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		addrs, err := provider.Addrs(args, log.New(os.Stderr, "", 0)) //nolint:forbidigo // go-discover wants one; etcdinit logs what comes on stderr
		done <- answer{addrs, err}
	}()
	select {
	case a := <-done:
		return a.addrs, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// shape makes a peer of a bare address.
type shape struct {
	host, name *template.Template
	port       int
	scheme     string
}

// facts are what the templates may use.
type facts struct {
	IP     string // 192.0.2.10, 2001:db8::10
	Dashed string // 192-0-2-10, 2001-db8--10
	Last   string // 10
}

func newShape(params map[string]string) (shape, error) {
	var s shape
	for key := range params {
		if strings.HasPrefix(key, "peer-") && !slices.Contains([]string{peerHost, peerName, peerPort, peerScheme}, key) {
			return s, plugins.Configf("unknown parameter %s; there are %s, %s, %s, %s and the provider's", key, peerHost, peerName, peerPort, peerScheme)
		}
	}
	for key, target := range map[string]**template.Template{peerHost: &s.host, peerName: &s.name} {
		if params[key] == "" {
			continue
		}
		t, err := template.New(key).Parse(params[key])
		if err == nil { // a field that does not exist shows only when it runs
			_, err = expand(t, facts{IP: "192.0.2.10", Dashed: "192-0-2-10", Last: "10"})
		}
		if err != nil {
			return s, plugins.Configf("%s=%s: %v; the fields are .IP, .Dashed, .Last", key, params[key], err)
		}
		*target = t
	}
	if v := params[peerPort]; v != "" {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil || n == 0 {
			return s, plugins.Configf("%s=%s is no port", peerPort, v)
		}
		s.port = int(n)
	}
	s.scheme = params[peerScheme]
	if s.scheme != "" && s.scheme != "http" && s.scheme != "https" {
		return s, plugins.Configf("%s=%s is neither http nor https", peerScheme, s.scheme)
	}
	if s.scheme != "" && s.port == 0 {
		return s, plugins.Configf("%s needs %s", peerScheme, peerPort)
	}
	return s, nil
}

func (s shape) peer(addr string) (plugins.Peer, error) {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return plugins.Peer{}, fmt.Errorf("the provider gave %q, which is no IP address", addr)
	}
	addr = ip.Unmap().String()
	f := facts{IP: addr, Dashed: strings.NewReplacer(".", "-", ":", "-").Replace(addr), Last: addr[strings.LastIndexAny(addr, ".:")+1:]}
	p := plugins.Peer{Host: addr, Port: s.port, Addrs: []string{addr}}
	if s.host != nil {
		if p.Host, err = expand(s.host, f); err != nil {
			return p, err
		}
	}
	if s.name != nil {
		if p.Name, err = expand(s.name, f); err != nil {
			return p, err
		}
	}
	if s.scheme != "" {
		host := p.Host
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		p.PeerURLs = []string{fmt.Sprintf("%s://%s:%d", s.scheme, host, s.port)}
	}
	return p, nil
}

func expand(t *template.Template, f facts) (string, error) {
	var b strings.Builder
	err := t.Execute(&b, f)
	return b.String(), err
}
