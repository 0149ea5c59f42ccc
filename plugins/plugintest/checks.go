package plugintest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/etcdinit/etcdinit/internal/run"
	"github.com/etcdinit/etcdinit/plugins"
)

const (
	errNoInfo  = skipped("info was not answered")
	errNoPeers = skipped("discover gave no peers")
)

func (s *suite) file(context.Context) (string, error) { return "", run.Check(s.path) }

func (s *suite) getInfo(ctx context.Context) (string, error) {
	resp, err := s.call(ctx, infoRequest(), nil)
	switch {
	case err != nil:
		return "", err
	case resp.Error != nil:
		return "", fmt.Errorf("info was answered with an error (%s): %s", resp.Error.Code, resp.Error.Message)
	}
	s.info = resp.Info
	return plugins.OneLine(resp.Info.Name+" "+resp.Info.Version, 200), nil
}

func (s *suite) contractVersion(context.Context) (string, error) {
	if s.info == nil {
		return "", errNoInfo
	}
	if !slices.Contains(s.info.ContractVersions, plugins.Version) {
		return "", fmt.Errorf("contractVersions is %v, version %d is missing", s.info.ContractVersions, plugins.Version)
	}
	return "", nil
}

// unknown are fields of a later version; one holds what a sloppy reader could
// take for a known one.
func unknown() map[string]any {
	return map[string]any{
		"x-later": true, "x-object": map[string]any{"peers": []any{nil, 1.5, "verb"}}, "x-null": nil,
	}
}

func (s *suite) infoUnknownFields(ctx context.Context) (string, error) {
	if s.info == nil {
		return "", errNoInfo
	}
	resp, err := s.call(ctx, infoRequest(), unknown())
	switch {
	case err != nil:
		return "", err
	case resp.Error != nil:
		return "", fmt.Errorf("info with fields of a later version was answered with an error (%s): %s", resp.Error.Code, resp.Error.Message)
	case resp.Info.Name != s.info.Name || resp.Info.Version != s.info.Version:
		return "", fmt.Errorf("info with fields of a later version says %s %s, before it said %s %s", resp.Info.Name, resp.Info.Version, s.info.Name, s.info.Version)
	}
	return "", nil
}

// refuses is for a request that must be answered with an error.
func (s *suite) refuses(ctx context.Context, what string, raw []byte) (string, error) {
	res, err := s.ask(ctx, raw)
	if err != nil {
		return "", err
	}
	req := s.request()
	resp, err := plugins.ReadResponse(req, res.Stdout, res.Status)
	switch {
	case err != nil:
		return "", fmt.Errorf("asked %s, the plugin %w%s", what, err, lastLine(res))
	case resp.Error == nil:
		return "", fmt.Errorf("asked %s, the plugin gave %d peers; it must answer with an error", what, len(resp.Peers))
	}
	return plugins.OneLine(resp.Error.Message, 200), nil
}

func (s *suite) unknownVerb(ctx context.Context) (string, error) {
	req := s.request()
	req.Verb = "frobnicate"
	raw, err := encode(req, nil)
	if err != nil {
		return "", err
	}
	return s.refuses(ctx, "with the verb frobnicate", raw)
}

func (s *suite) unknownVersion(ctx context.Context) (string, error) {
	req := s.request()
	req.Version = 99
	raw, err := encode(req, nil)
	if err != nil {
		return "", err
	}
	return s.refuses(ctx, "in version 99", raw)
}

func (s *suite) unreadable(ctx context.Context) (string, error) {
	return s.refuses(ctx, "with what is not JSON", []byte("GET / HTTP/1.1\n"))
}

func (s *suite) empty(ctx context.Context) (string, error) {
	return s.refuses(ctx, "with nothing on stdin", nil)
}

func (s *suite) parameters(context.Context) (string, error) {
	switch {
	case s.info == nil:
		return "", errNoInfo
	case s.info.Parameters == nil:
		return "", skipped("info lists no parameters, so that all are handed on")
	}
	for _, key := range slices.Sorted(maps.Keys(s.Parameters)) {
		if !slices.ContainsFunc(s.info.Parameters, func(p plugins.Parameter) bool { return p.Name == key }) {
			return "", fmt.Errorf("info does not list the parameter %s, which is given here: etcdinit would refuse it", key)
		}
	}
	var bare []string
	for _, p := range s.info.Parameters {
		if p.Description == "" { // it is for people, and the contract does not ask for it
			bare = append(bare, p.Name)
		}
	}
	if len(bare) > 0 {
		return "without a description: " + strings.Join(bare, ", "), nil
	}
	return "", nil
}

func (s *suite) required(ctx context.Context) (string, error) {
	if s.info == nil {
		return "", errNoInfo
	}
	var names []string
	for _, p := range s.info.Parameters {
		if !p.Required {
			continue
		}
		names = append(names, p.Name)
		if _, ok := s.Parameters[p.Name]; !ok && len(s.Parameters) > 0 {
			return "", fmt.Errorf("info says that %s is required, but it is not given here", p.Name)
		}
	}
	if len(names) == 0 {
		return "", skipped("info lists no required parameter")
	}
	req := s.request()
	req.Parameters = nil
	resp, err := s.call(ctx, req, nil)
	switch {
	case err != nil:
		return "", fmt.Errorf("asked without %s: %w", strings.Join(names, ", "), err)
	case resp.Error != nil && resp.Error.Code != plugins.CodeConfig:
		return "", fmt.Errorf("asked without %s, which info says is required, the plugin gave the error code %q, it must be config: %s", strings.Join(names, ", "), resp.Error.Code, resp.Error.Message)
	case resp.Error == nil:
		return "", fmt.Errorf("asked without %s, which info says is required, the plugin gave %d peers", strings.Join(names, ", "), len(resp.Peers))
	}
	return plugins.OneLine(resp.Error.Message, 200), nil
}

func (s *suite) discover(ctx context.Context) (string, error) {
	resp, err := s.call(ctx, s.request(), nil)
	if err != nil {
		return "", err
	}
	if e := resp.Error; e != nil {
		if s.Size > 0 {
			return "", fmt.Errorf("%d peers were expected, but discover was answered with an error (%s): %s", s.Size, e.Code, e.Message)
		}
		if !slices.Contains([]string{plugins.CodeRetry, plugins.CodeConfig, plugins.CodeInternal}, e.Code) {
			return "", fmt.Errorf("discover was answered with the error code %q, there are retry, config and internal (rule 5.2)", e.Code)
		}
		return plugins.OneLine("an error ("+e.Code+"): "+e.Message, 200), nil
	}
	s.peers = resp.Peers
	if s.Size > 0 && len(resp.Peers) != s.Size {
		return "", fmt.Errorf("discover gave %d peers (%s), %d were expected: a part must be an error", len(resp.Peers), hosts(resp.Peers), s.Size)
	}
	return fmt.Sprintf("%d peers: %s", len(resp.Peers), plugins.OneLine(hosts(resp.Peers), 200)), nil
}

func hosts(peers []plugins.Peer) string {
	var list []string
	for _, p := range peers {
		list = append(list, p.Host)
	}
	return strings.Join(list, " ")
}

// same asks again and compares with the first answer.
func (s *suite) same(ctx context.Context, what string, req plugins.Request, extra map[string]any) error {
	resp, err := s.call(ctx, req, extra)
	switch {
	case err != nil:
		return err
	case resp.Error != nil:
		return fmt.Errorf("%s, discover was answered with an error (%s): %s", what, resp.Error.Code, resp.Error.Message)
	}
	if was, is := spell(s.peers), spell(resp.Peers); !slices.Equal(was, is) {
		return fmt.Errorf("%s, discover gave %s, before it gave %s", what, strings.Join(is, " "), strings.Join(was, " "))
	}
	return nil
}

// spell is the peers in one spelling, whatever their order.
func spell(peers []plugins.Peer) []string {
	list := make([]string, 0, len(peers))
	for _, p := range peers {
		sorted := func(l []string) []string { return slices.Sorted(slices.Values(l)) }
		list = append(list, fmt.Sprintf("%s/%s:%d%v%v%v", p.Name, p.Host, p.Port, sorted(p.Addrs), sorted(p.PeerURLs), sorted(p.ClientURLs)))
	}
	slices.Sort(list)
	return list
}

func (s *suite) discoverUnknownFields(ctx context.Context) (string, error) {
	if len(s.peers) == 0 {
		return "", errNoPeers
	}
	return "", s.same(ctx, "with fields of a later version", s.request(), unknown())
}

func (s *suite) sameEverywhere(ctx context.Context) (string, error) {
	if len(s.peers) == 0 {
		return "", errNoPeers
	}
	req := s.request()
	req.Node = plugins.Node{Hostname: "host-b.example.org", Addresses: []string{"192.0.2.11", "2001:db8::11"}}
	return "", s.same(ctx, "on another node", req, nil)
}

func (s *suite) parallel(ctx context.Context) (string, error) {
	if len(s.peers) == 0 {
		return "", errNoPeers
	}
	const calls = 4
	errs := make([]error, calls)
	suites := make([]suite, calls)
	var wg sync.WaitGroup
	for i := range calls {
		suites[i] = *s
		suites[i].left = nil
		wg.Go(func() { errs[i] = suites[i].same(ctx, "called several times at once", s.request(), nil) })
	}
	wg.Wait()
	for i := range suites {
		s.left = append(s.left, suites[i].left...)
	}
	return "", errors.Join(errs...)
}

// invents asks for one member more than there are.
func (s *suite) invents(ctx context.Context) (string, error) {
	if len(s.peers) == 0 {
		return "", errNoPeers
	}
	req := s.request()
	req.Size = len(s.peers) + 1
	resp, err := s.call(ctx, req, nil)
	switch {
	case err != nil:
		return "", err
	case resp.Error != nil && resp.Error.Code != plugins.CodeRetry:
		return "", fmt.Errorf("with a size of %d, discover was answered with the error code %q; of a set that is not complete it must be retry: %s", req.Size, resp.Error.Code, resp.Error.Message)
	case len(resp.Peers) >= req.Size:
		return "", fmt.Errorf("of %d members discover gave %d when it was asked for a size of %d: %s", len(s.peers), len(resp.Peers), req.Size, hosts(resp.Peers))
	}
	return "", nil
}

func (s *suite) workDir(context.Context) (string, error) {
	if len(s.left) > 0 {
		return "", fmt.Errorf("the plugin left files in its working directory: %s", strings.Join(s.left, ", "))
	}
	return "", nil
}
