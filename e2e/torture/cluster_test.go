//go:build e2e

package torture

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// cluster is one schedule while it runs.
type cluster struct {
	*lab.Lab
	s       *schedule
	t       *testing.T
	binary  string // the etcdinit under test
	began   time.Time
	clocks  bool // a process can have a boot-time clock of its own
	strace  bool
	loud    bool
	nodes   []*node
	clients []*client
	history history

	mu       sync.Mutex
	log      []string
	findings []finding
	kinds    map[string]int // of findings
	disks    []*disk
	lost     int                          // disks on which an etcd has run
	views    map[string]map[string]string // who asks, member: host; "" for no address
	zones    map[string]*lab.Zone
}

// finding is something that must not be.
type finding struct{ kind, text string }

func newCluster(t *testing.T, s *schedule, binary string) *cluster {
	t.Helper()
	c := &cluster{
		Lab: lab.New(t), s: s, t: t, binary: binary, kinds: map[string]int{},
		views: map[string]map[string]string{}, zones: map[string]*lab.Zone{},
	}
	c.Require("iptables", "mount", "unshare", "etcd-"+s.version)
	_, err := exec.LookPath("strace")
	c.strace = err == nil
	server := c.Host("dns")
	for _, name := range s.hosts() {
		c.nodes = append(c.nodes, c.newNode(name))
	}
	c.clocks = c.haveClocks()
	hosts := make([]*lab.Host, 0, len(c.nodes))
	for _, n := range c.nodes {
		hosts = append(hosts, n.Host)
		c.newClient(n)
		c.views[n.Name] = map[string]string{}
		for _, m := range s.members() {
			c.views[n.Name][m] = m
		}
	}
	if s.coredns {
		c.CoreDNS(server, c.zone(c.nodes[0].Name))
	} else {
		c.Script(server, c.answer)
	}
	c.UseDNS(hosts, server)
	return c
}

// haveClocks says whether the kernel gives a program that unshare starts the
// new time namespace at once.
func (c *cluster) haveClocks() bool {
	uptime := func(args ...string) string {
		r := c.nodes[0].Run(args[0], args[1:]...)
		whole, _, _ := strings.Cut(r.Stdout, ".")
		return whole
	}
	return len(uptime("unshare", "--time", "--boottime", "1000000000", "cat", "/proc/uptime")) > len(uptime("cat", "/proc/uptime"))
}

func (c *cluster) config() string {
	return fmt.Sprintf(`# the same file on every host
data-dir: %s/data
listen-peer-urls: http://0.0.0.0:2380
listen-client-urls: http://0.0.0.0:2379
initial-cluster-token: torture
discovery-srv: example.org
heartbeat-interval: 10
election-timeout: 100
`, c.Home)
}

// joinArgs are etcd's flags for a member that was added to the running cluster.
func (c *cluster) joinArgs(member string) []string {
	all := make([]string, 0, c.s.size)
	for _, m := range c.s.members() {
		all = append(all, fmt.Sprintf("%s=%s", m, peerURL(m)))
	}
	return []string{
		"--name", member, "--data-dir", c.Home + "/data", "--initial-cluster", strings.Join(all, ","), "--initial-cluster-state", "existing",
		"--initial-advertise-peer-urls", peerURL(member), "--listen-peer-urls", "http://0.0.0.0:2380",
		"--listen-client-urls", "http://0.0.0.0:2379", "--advertise-client-urls", "http://" + member + ".example.org:2379",
		"--heartbeat-interval", "10", "--election-timeout", "100",
	}
}

func peerURL(member string) string { return "http://" + member + ".example.org:2380" }

func (c *cluster) now() time.Duration { return time.Since(c.began) }

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("torture: %v", err)
	}
}

// note keeps what has happened, for who reads a failure.
func (c *cluster) note(format string, args ...any) {
	line := fmt.Sprintf("%8.3f %s", c.now().Seconds(), fmt.Sprintf(format, args...))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, line)
	if c.loud {
		c.t.Log(line)
	}
}

func (c *cluster) found(what, format string, args ...any) {
	f := finding{what, fmt.Sprintf("at %.3f s: ", c.now().Seconds()) + fmt.Sprintf(format, args...)}
	head, _, _ := strings.Cut(f.text, "\n")
	c.note("FOUND %s: %s", f.kind, head)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds[what]++
	if c.kinds[what] <= 3 { // the others say the same
		c.findings = append(c.findings, f)
	}
}

func (c *cluster) node(name string) *node {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.Name == name })
	if i < 0 {
		c.t.Fatalf("torture: no host %s", name)
	}
	return c.nodes[i]
}

func (c *cluster) named(names []string) []*node {
	nodes := make([]*node, 0, len(names))
	for _, name := range names {
		nodes = append(nodes, c.node(name))
	}
	return nodes
}

// mayLose says whether a disk may be lost, and counts it as lost then.
func (c *cluster) mayLose(d *disk) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.ran && !d.lost {
		if c.lost >= (c.s.size-1)/2 {
			return false
		}
		c.lost++
	}
	d.lost = true
	return true
}

// answer is what the DNS server says: each host may be told something else.
func (c *cluster) answer(q lab.Query) *dns.Msg {
	if q.From == nil {
		return nil
	}
	return c.zone(q.From.Name).Answer(q)
}

func (c *cluster) zone(asker string) *lab.Zone {
	c.mu.Lock()
	view := c.views[asker]
	var key strings.Builder
	for _, m := range c.s.members() {
		key.WriteString(m + "=" + view[m] + " ")
	}
	zone := c.zones[key.String()]
	c.mu.Unlock()
	if zone != nil {
		return zone
	}
	zone = lab.NewZone("example.org", time.Second)
	for _, m := range c.s.members() {
		zone.SRV("_etcd-server", 2380, c.node(m).Host)
		if view[m] != "" {
			zone.RoundRobin(m, c.node(view[m]).Host)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zones[key.String()] = zone
	return zone
}

// look changes what hosts are told of a member.
func (c *cluster) look(member, at string, askers ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range askers {
		c.views[a][member] = at
	}
}

// play does what the schedule says.
func (c *cluster) play(ctx context.Context) {
	for i, st := range c.s.steps {
		c.note("%3d %s", i, st)
		c.step(ctx, st)
	}
}

func (c *cluster) step(ctx context.Context, st step) {
	c.t.Helper()
	switch st.op {
	case pause:
		c.nodes[0].sleep(ctx, st.d)
	case start:
		c.node(st.at).start()
	case stop:
		c.node(st.at).stop()
	case kill:
		c.node(st.at).signal(syscall.SIGKILL)
	case freeze:
		c.node(st.at).signal(syscall.SIGSTOP)
	case thaw:
		c.node(st.at).signal(syscall.SIGCONT)
	case drop:
		for _, other := range c.named(st.others) {
			c.node(st.at).Drop(other.Host)
		}
	case split:
		for _, n := range c.nodes {
			for _, other := range c.nodes {
				if slices.Contains(st.others, n.Name) != slices.Contains(st.others, other.Name) {
					n.Drop(other.Host)
				}
			}
		}
	case heal:
		for _, n := range c.nodes {
			n.Heal()
		}
	case wipe:
		c.node(st.at).wipe()
	case keep:
		c.node(st.at).keep()
	case restore:
		c.node(st.at).restore(c.node(st.others[0]))
	case detach:
		c.node(st.at).detach()
	case attach:
		c.node(st.at).attach()
	case move:
		c.look(memberOf(st.at), st.at, c.s.hosts()...)
	case view:
		c.look(memberOf(st.at), st.at, st.others...)
	case blind:
		c.look(memberOf(st.at), "", st.others...)
	case slow:
		c.node(st.at).slowed(st.d)
	case readd:
		if err := c.readd(ctx, c.node(st.at)); err != nil {
			c.found("not up", "%s: it could not be added: %v", st.at, err)
		}
	case released, seeded, serving, refused:
		c.await(ctx, st)
	}
}

// await waits for a condition, at most for the step's time.
func (c *cluster) await(ctx context.Context, st step) {
	n := c.node(st.at)
	for end := time.Now().Add(st.d); time.Now().Before(end) && ctx.Err() == nil; {
		n.mu.Lock()
		done, no := n.done > 0, n.no != 0
		n.mu.Unlock()
		switch {
		case st.op == released && done, st.op == seeded && n.seeded(), st.op == serving && n.serving(), st.op == refused && no:
			return
		}
		n.sleep(ctx, 2*time.Millisecond)
	}
	c.note("    %s: not %s within %v", n.Name, st.op, st.d)
}

// readd replaces a member whose disk was lost.
func (c *cluster) readd(ctx context.Context, n *node) error {
	n.mu.Lock()
	no := n.no
	n.mu.Unlock()
	if no == 0 {
		c.note("%s: readd: skipped, it was not refused", n.Name)
		return nil
	}
	n.stop()
	n.wipe() // init may have written something
	through := func(limit time.Duration, f func(ctx context.Context, k *client) error) error {
		err := errNobody
		for end := time.Now().Add(limit); err != nil && time.Now().Before(end); {
			for _, k := range c.clients {
				if k.n != n && k.n.serving() && err != nil {
					call, cancel := context.WithTimeout(ctx, 2*time.Second)
					err = f(call, k)
					cancel()
				}
			}
			n.sleep(ctx, 100*time.Millisecond)
		}
		return err
	}
	err := through(12*time.Second, func(ctx context.Context, k *client) error { return k.replace(ctx, n.member, peerURL(n.member)) })
	if err != nil {
		n.start()
		return fmt.Errorf("member add: %w", err)
	}
	n.mu.Lock()
	n.joiner, n.disk.added = true, true
	n.mu.Unlock()
	n.start()
	if err := through(8*time.Second, func(ctx context.Context, k *client) error { return k.promote(ctx) }); err != nil {
		return fmt.Errorf("member promote: %w", err)
	}
	return nil
}
