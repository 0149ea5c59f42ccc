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
	for _, k := range serve {
		for _, key := range c.history.keys() {
			for _, own := range []bool{false, true} {
				r := &record{client: k.id, host: k.n.Name, action: get, key: key, serializable: own}
				for range 3 {
					if k.call(ctx, r); r.outcome == ok {
						break
					}
					again := *r
					again.outcome, again.err = ok, ""
					r = &again
				}
				c.history.add(r)
			}
		}
	}
	c.sameStores(ctx, serve)
	records := c.history.all()
	for _, text := range slices.Concat(contradictions(records), apart(records)) {
		c.found("contradiction", "%s", text)
	}
	for _, text := range twoClusters(records) {
		c.found("two clusters", "%s", text)
	}
}

// sameStores checks that the stores of all members that serve are one.
func (c *cluster) sameStores(ctx context.Context, serve []*client) {
	var said string
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); c.nodes[0].sleep(ctx, 100*time.Millisecond) {
		var lines []string
		sums := map[string]bool{}
		for _, k := range serve {
			sum, revision, cluster, err := k.hash(ctx, 0)
			if err != nil {
				lines = append(lines, fmt.Sprintf("  %s: %v", k.n.Name, err))
				continue
			}
			sums[fmt.Sprint(sum, revision, cluster)] = true
			lines = append(lines, fmt.Sprintf("  %s: cluster %x, revision %d, hash %x", k.n.Name, cluster, revision, sum))
		}
		if len(sums) < 2 {
			return
		}
		said = strings.Join(lines, "\n")
	}
	c.found("apart", "members' stores differ in the end:\n%s", said)
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
