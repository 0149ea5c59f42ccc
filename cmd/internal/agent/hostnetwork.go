package agent

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/etcdinit/etcdinit/discovery"
)

// hostNetwork adds a hint to what a source says in a pod that has the node's
// resolver: hostNetwork without its dnsPolicy.
func (a *agent) hostNetwork(p discovery.Provider) discovery.Provider {
	if !a.Pod {
		return p
	}
	path := a.ResolvConf
	if path == "" {
		path = "/etc/resolv.conf"
	}
	return hinted{p, path}
}

type hinted struct {
	discovery.Provider
	resolvConf string
}

func (h hinted) Discover(ctx context.Context) ([]discovery.Peer, error) {
	peers, err := h.Provider.Discover(ctx)
	var e *discovery.Error
	if !errors.As(err, &e) || e.Kind != discovery.Retry || !nodesResolver(h.resolvConf) {
		return peers, err
	}
	c := *e
	c.Hints = append([]string{h.resolvConf + " has no cluster domain in its search list (svc.…): a pod with hostNetwork: true needs dnsPolicy: ClusterFirstWithHostNet"}, e.Hints...)
	return peers, &c
}

// nodesResolver reports whether a file has none of the search domains that
// Kubernetes gives a pod: svc.cluster.local, whatever the cluster's domain is.
func nodesResolver(path string) bool {
	data, err := os.ReadFile(path) //nolint:gosec // the path is the resolver's own
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "search" {
			continue
		}
		for _, domain := range f[1:] {
			if strings.HasPrefix(domain, "svc.") || strings.Contains(domain, ".svc.") {
				return false
			}
		}
	}
	return true
}
