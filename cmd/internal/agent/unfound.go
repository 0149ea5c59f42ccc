package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/discovery"
)

// unfound makes what discovery failed with a refusal for the person on call: what
// was asked, which node asked, where its data are, and the commands that ask again
// and write nothing.
func (a *agent) unfound(err error) error {
	var e *discovery.Error
	if !errors.As(err, &e) || exit.Refusal(err) != nil {
		return err
	}
	refusal := &exit.Error{
		Status: exit.Of(err), Reason: reasonOf(e.Kind), Msg: "finding the members in " + strings.TrimSuffix(sourceWords(a.Source), ":"),
		Err: fmt.Errorf("%w%s; %s, its data-dir %s; %s", err, a.missing(e), a.whoAsks(), a.Etcd.DataDir, a.committed()),
	}
	if e.Kind != discovery.Config {
		refusal.Commands = a.Look
	}
	return refusal
}

func reasonOf(kind discovery.Kind) string {
	switch kind {
	case discovery.Config:
		return "discovery-source"
	case discovery.Retry:
		return "discovery-incomplete"
	case discovery.Plugin:
		return "discovery-plugin"
	case discovery.Unusable:
		return "discovery-unusable"
	case discovery.NotSelf:
		return "not-self"
	}
	return ""
}

// missing says so where this node's own record is, or may be, among those that a part
// of the set lacks: a service that publishes it only once etcd is healthy waits without limit.
func (a *agent) missing(e *discovery.Error) string {
	if e.Kind != discovery.Retry || len(e.Seen) == 0 {
		return ""
	}
	const why = "it must be there before etcd runs, so what publishes it only after etcd has started, or once it is healthy, can never complete the set"
	_, err := a.match(e.Seen)
	var self *discovery.Error
	switch {
	case err == nil || !errors.As(err, &self) || self.Kind != discovery.NotSelf:
		return ""
	case slices.ContainsFunc(e.Seen, func(p discovery.Peer) bool { return len(p.Addrs) == 0 }): // not looked up yet
		return "; if this node's own record is among the missing ones: " + why
	}
	return "; this node's own record is among the missing ones: " + why
}

// whoAsks names this node by what it is found by.
func (a *agent) whoAsks() string {
	local, err := a.local()
	if err != nil {
		return "this node (" + err.Error() + ")"
	}
	name := local.Hostname
	for _, s := range []string{local.NameHint, local.Name} {
		if s != "" {
			name = s
		}
	}
	addrs := local.Addrs
	if local.Explicit.IsValid() {
		addrs = append(addrs[:0:0], local.Explicit)
	}
	var list []string
	for _, addr := range addrs {
		if len(addrs) == 1 || !addr.IsLinkLocalUnicast() && !addr.IsLoopback() {
			list = append(list, addr.String())
		}
	}
	return strings.TrimSpace("this node is " + name + " (" + strings.Join(list, ", ") + ")")
}
