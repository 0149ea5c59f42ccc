package rendezvous

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// raftPath begins the paths that an etcd calls on the peer port of a member as
// soon as it knows of it: https://github.com/etcd-io/etcd, server/etcdserver/api/rafthttp.
const raftPath = "/raft"

// maxCallers bounds what strangers can make this agent remember.
const maxCallers = 4 * maxMembers

// Caller is an etcd that calls here for a member: it reaches this very process at
// that member's URL.
type Caller struct {
	From, To, Cluster ID
	// PeerURLs are those that the caller gives as its own: a joining etcd with an
	// empty database knows its peers only by them.
	PeerURLs []string
	// At is when it called last, since boot.
	At time.Duration
}

// callers are those that came, by caller and called.
type callers map[[3]ID]Caller

// raft takes note of who calls. Every answer to it is 404.
func (b *Barrier) raft(h http.Header) {
	c := Caller{From: headerID(h, "X-Server-From"), To: headerID(h, "X-Raft-To"), Cluster: headerID(h, "X-Etcd-Cluster-Id")}
	if !c.From.valid() || !c.To.valid() || !c.Cluster.valid() {
		return
	}
	if urls := h.Get("X-PeerURLs"); urls != "" {
		c.PeerURLs = cleanAll(strings.Split(urls, ","))
	}
	c.At = b.clock()
	key := [3]ID{c.From, c.To, c.Cluster}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.callers[key]
	if !known && len(b.callers) >= maxCallers {
		return
	}
	b.callers[key] = c
	if !known {
		signal(b.news)
	}
}

// headerID is an ID in a header, as etcd writes it.
func headerID(h http.Header, name string) ID {
	return ID(strings.TrimLeft(strings.ToLower(h.Get(name)), "0"))
}

// Callers lists the etcds of a cluster that have called here for one of its
// members, in ascending order.
func (b *Barrier) Callers(member, cluster ID) (list []Caller) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.callers {
		if c.To == member && c.Cluster == cluster {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(x, y Caller) int { return strings.Compare(string(x.From), string(y.From)) })
	return list
}
