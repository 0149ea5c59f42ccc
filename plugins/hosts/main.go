// Command hosts is a plugin of etcdinit: the peers are names in a hosts file.
// It is the plugin to learn from; plugins/README.md is the contract.
package main

import (
	"bufio"
	"context"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/etcdinit/etcdinit/plugins"
)

func main() {
	plugins.Info{
		Name:        "hosts",
		Version:     "1.0.0",
		Description: "members from a hosts file",
		Parameters: []plugins.Parameter{
			{Name: "file", Description: "the hosts file", Default: "/etc/hosts"},
			{Name: "match", Description: "pattern of the members' host names", Default: "etcd-*"},
		},
	}.Main(discover)
}

// discover gives the first matching name of each line as one peer. The
// addresses of a name that stands on several lines belong together.
func discover(_ context.Context, req plugins.Request) ([]plugins.Peer, error) {
	file, match := req.Parameters["file"], req.Parameters["match"]
	if file == "" {
		file = "/etc/hosts"
	}
	if match == "" {
		match = "etcd-*"
	}
	if _, err := path.Match(match, ""); err != nil {
		return nil, plugins.Configf("match=%s is no pattern such as etcd-*: %v", match, err)
	}
	f, err := os.Open(file) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, plugins.Retryf(5*time.Second, "%v", err)
	}
	defer func() { _ = f.Close() }() //nolint:errcheck // it was only read

	var peers []plugins.Peer
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return nil, err
			}
			break
		}
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		at := slices.IndexFunc(fields[1:], func(name string) bool {
			ok, err := path.Match(match, name)
			return ok && err == nil
		})
		if at >= 0 {
			peers = add(peers, fields[1+at], fields[0])
		}
	}
	if len(peers) < req.Size {
		return nil, plugins.Retryf(5*time.Second, "%s has %d of %d names that match %s", file, len(peers), req.Size, match)
	}
	return peers, nil
}

func add(peers []plugins.Peer, host, addr string) []plugins.Peer {
	for i := range peers {
		if strings.EqualFold(peers[i].Host, host) {
			peers[i].Addrs = append(peers[i].Addrs, addr)
			return peers
		}
	}
	return append(peers, plugins.Peer{Host: host, Addrs: []string{addr}})
}
