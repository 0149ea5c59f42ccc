//go:build e2e

package torture

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// settle heals every fault: the network, the volumes, the records. A member
// that has two hosts gets the one whose disk is further.
func (c *cluster) settle() {
	for _, n := range c.nodes {
		n.Heal()
		n.signal(syscall.SIGCONT)
		n.attach()
	}
	for _, m := range c.s.members() {
		at := c.node(m)
		for _, spare := range c.s.spares {
			if memberOf(spare) != m {
				continue
			}
			other := c.node(spare)
			if at.gone || !other.gone && other.rank() > at.rank() {
				at, other = other, at
			}
			c.note("%s is %s in the end", m, at.Name)
			if !other.ran() {
				other.stop() // the record led to nobody's disk
				other.gone = true
			}
		}
		c.look(m, at.Name, c.s.hosts()...)
	}
	for _, n := range c.nodes {
		n.start() // those that were refused are tried once more
	}
}

// ran says whether an etcd was started on the disk.
func (n *node) ran() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.disk.ran
}

// rank says how far a disk is.
func (n *node) rank() int {
	switch {
	case n.ran():
		return 3
	case n.seeded() && !n.pending():
		return 2
	case n.seeded():
		return 1
	}
	return 0
}

// rest waits until every host serves or is refused, and serves for a moment
// longer; false says that some do neither.
func (c *cluster) rest(ctx context.Context, limit time.Duration) bool {
	all := func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *node) bool {
			n.mu.Lock()
			settled := n.gone || n.no != 0
			n.mu.Unlock()
			return !settled && !n.serving()
		})
	}
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if all() {
			c.nodes[0].sleep(ctx, 500*time.Millisecond)
			if all() {
				return true
			}
		}
		c.nodes[0].sleep(ctx, 50*time.Millisecond)
	}
	return false
}

// finish reads everything through every member that serves, and judges.
func (c *cluster) finish(ctx context.Context) {
	var serve []*client
	for _, k := range c.clients {
		if k.n.serving() {
			serve = append(serve, k)
		} else if c.s.up && !slices.Contains(c.s.spares, k.n.Name) {
			k.n.mu.Lock()
			c.found("not up", "%s: the faults are healed and it does not serve; init said %d", k.n.Name, k.n.no)
			k.n.mu.Unlock()
		}
	}
	quiet := c.sameStores(ctx, serve)
	for _, k := range serve {
		for _, key := range c.history.keys() {
			c.final(ctx, k, key, false)
			if quiet {
				c.final(ctx, k, key, true)
			}
		}
	}
	records := c.history.all()
	for _, text := range slices.Concat(contradictions(records), apart(records)) {
		c.found("contradiction", "%s", text)
	}
	for _, text := range twins(records) {
		c.found("two disks", "%s", text)
	}
	for _, text := range twoClusters(records) {
		c.found("two clusters", "%s", text)
	}
}

// final reads a key through one member.
func (c *cluster) final(ctx context.Context, k *client, key string, serializable bool) {
	for range 3 {
		r := &record{client: k.id, host: k.n.Name, action: get, key: key, serializable: serializable}
		k.call(ctx, r)
		c.history.add(r)
		if r.outcome == ok {
			return
		}
	}
	if c.s.up {
		c.found("not up", "%s: it serves, and three reads of %s in the end had no answer", k.n.Name, key)
	}
}

// sameStores checks that the stores of all members that serve are the same up to
// the revision that they have in common; true says that they all have the same
// revision, so that each one's own store must have everything.
func (c *cluster) sameStores(ctx context.Context, serve []*client) bool {
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); c.nodes[0].sleep(ctx, 100*time.Millisecond) {
		common := map[uint64]int64{} // cluster: revision
		equal, answered := true, true
		for _, k := range serve {
			_, revision, cluster, err := k.hash(ctx, 0)
			if err != nil {
				answered = false
				continue
			}
			if at, there := common[cluster]; there {
				equal = equal && at == revision
				revision = min(at, revision)
			}
			common[cluster] = revision
		}
		lines, differ := c.hashes(ctx, serve, common)
		if differ {
			c.found("apart", "members' stores differ:\n%s", strings.Join(lines, "\n"))
			return false
		}
		if equal && answered {
			return true
		}
	}
	c.note("not all members have the same revision in the end")
	return false
}

// hashes compares the stores of a cluster's members at one revision.
func (c *cluster) hashes(ctx context.Context, serve []*client, common map[uint64]int64) (lines []string, differ bool) {
	sums := map[uint64]uint32{}
	for _, k := range serve {
		_, _, cluster, err := k.hash(ctx, 0)
		if err != nil || common[cluster] == 0 {
			continue
		}
		sum, _, _, err := k.hash(ctx, common[cluster])
		if err != nil {
			continue
		}
		lines = append(lines, fmt.Sprintf("  %s: cluster %x, hash at revision %d: %x", k.n.Name, cluster, common[cluster], sum))
		if before, there := sums[cluster]; there && before != sum {
			differ = true
		}
		sums[cluster] = sum
	}
	return lines, differ
}

// apart says which keys members' own stores differ in at the end.
func apart(records []record) []string {
	at := map[string]map[string]string{} // key, host: value
	for _, r := range records {
		if r.serializable && r.outcome == ok {
			if at[r.key] == nil {
				at[r.key] = map[string]string{}
			}
			at[r.key][r.host] = r.got
		}
	}
	var findings []string
	for key, values := range at {
		first, differ := "", false
		for _, v := range values {
			if first == "" {
				first = v
			}
			differ = differ || v != first
		}
		if differ {
			findings = append(findings, fmt.Sprintf("members' own stores differ in %s: %v", key, values))
		}
	}
	slices.Sort(findings)
	return findings
}
