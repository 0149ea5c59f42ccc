package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/birth"
	"github.com/etcdinit/etcdinit/seed"
)

const (
	labToken = "a-token"
	// labTime bounds what a test waits for: much more than it takes.
	labTime = 30 * time.Second
)

// lab is a cluster on loopback: each member has an address of its own, and whole
// agents run there. Each lab has its own subnet, so labs run side by side.
type lab struct {
	subnet string // "127.3.4."
	port   uint16
	names  []string

	mu    sync.Mutex
	addrs map[string]string            // what DNS says; a member without a record has none
	views map[string]map[string]string // what one node's resolver says instead
	fault map[string]error             // one node's DNS gives this error
	ttl   time.Duration
}

func newLab(t *testing.T, members int) *lab {
	t.Helper()
	l := &lab{addrs: make(map[string]string), views: make(map[string]map[string]string), fault: make(map[string]error)}
	l.subnet = fmt.Sprintf("127.%d.%d.", 1+rand.N(250), rand.N(250))
	var lc net.ListenConfig
	// Below the ports that the system hands out, so that no two labs share one.
	held, err := lc.Listen(t.Context(), "tcp", l.subnet+"1:"+strconv.Itoa(10000+rand.N(22000)))
	if err != nil {
		t.Skipf("no addresses on loopback here: %v", err)
	}
	l.port = netip.MustParseAddrPort(held.Addr().String()).Port()
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range members {
		name := "m" + strconv.Itoa(i+1)
		l.names = append(l.names, name)
		l.addrs[name] = l.ip(i + 1)
	}
	return l
}

func (l *lab) ip(i int) string { return l.subnet + strconv.Itoa(i) }

func (l *lab) addr(ip string) string { return net.JoinHostPort(ip, strconv.Itoa(int(l.port))) }

// dns makes a name lead to an address; to none with "".
func (l *lab) dns(name, ip string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.names, name) {
		l.names = append(l.names, name)
	}
	l.addrs[name] = ip
}

// view makes a name lead to an address for one node's resolver only.
func (l *lab) view(asker, name, ip string) { //nolint:unparam // the name says whose address
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.views[asker] == nil {
		l.views[asker] = make(map[string]string)
	}
	l.views[asker][name] = ip
}

// breakDNS makes one node's resolver fail; with nil it works again.
func (l *lab) breakDNS(asker string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault[asker] = err
}

// forget removes a member from DNS altogether.
func (l *lab) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = slices.DeleteFunc(l.names, func(n string) bool { return n == name })
}

func (l *lab) peerURL(name string) string {
	return "http://" + name + ".example.org:" + strconv.Itoa(int(l.port))
}

func clientURL(name string) string { return "http://" + name + ".example.org:2379" }

type labSource struct {
	*lab
	asker string
}

func (s labSource) Discover(context.Context) ([]discovery.Peer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fault[s.asker]; err != nil {
		return nil, err
	}
	var peers []discovery.Peer
	for _, name := range s.names {
		p := discovery.Peer{
			Name: name, Host: name + ".example.org", Port: s.port, TTL: s.ttl,
			PeerURLs: []string{s.peerURL(name)}, ClientURLs: []string{clientURL(name)},
		}
		ip := s.addrs[name]
		if other, ok := s.views[s.asker][name]; ok {
			ip = other
		}
		if ip != "" {
			p.Addrs = []netip.Addr{netip.MustParseAddr(ip)}
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// members are those of a plan.
func (l *lab) members() (list []seed.Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.names {
		list = append(list, seed.Member{Name: name, PeerURLs: []string{l.peerURL(name)}, ClientURLs: []string{clientURL(name)}})
	}
	return list
}

// node is a host of a lab: a member's name, an address, a directory.
type node struct {
	*lab
	name, ip, data, wal string
	asker               string // whose view of DNS
	flags               []etcdconf.Flag
}

// node is the host that DNS names for a member.
func (l *lab) node(t *testing.T, name string) *node {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	return &node{lab: l, name: name, ip: l.addrs[name], data: filepath.Join(t.TempDir(), "data"), asker: name}
}

// nodes are the hosts of all members.
func (l *lab) nodes(t *testing.T) (list []*node) {
	t.Helper()
	for _, name := range l.names {
		list = append(list, l.node(t, name))
	}
	return list
}

func (n *node) spec() seed.Spec {
	return seed.Spec{DataDir: n.data, WALDir: n.wal, Token: labToken, Self: n.name, Members: n.members()}
}

func (n *node) plan(t *testing.T) *seed.Plan {
	t.Helper()
	plan, err := seed.New(n.spec())
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func (n *node) id(t *testing.T) string { t.Helper(); return n.plan(t).MemberID.String() }

func (n *node) state(t *testing.T) *seed.State {
	t.Helper()
	s, err := seed.Inspect(n.data, n.wal)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// prepare gives the directory its disk ID, as an earlier run would have.
func (n *node) prepare(t *testing.T) seed.DiskID {
	t.Helper()
	if err := seed.Prepare(n.spec(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	return n.state(t).DiskID
}

// labRoster has the disks of these nodes, which are prepared for it; with disks for
// members of which the test has no node.
func labRoster(t *testing.T, nodes []*node, others map[string]seed.DiskID) seed.Roster {
	t.Helper()
	var seats []seed.Seat
	for _, n := range nodes {
		disk := n.state(t).DiskID
		if disk == "" {
			disk = n.prepare(t)
		}
		seats = append(seats, seed.Seat{Member: n.id(t), Disk: disk})
	}
	for name, disk := range others {
		seats = append(seats, seed.Seat{Member: nodes[0].memberID(t, name), Disk: disk})
	}
	return birth.Sort(seats)
}

// memberID is the ID of any member of the plan.
func (n *node) memberID(t *testing.T, name string) string {
	t.Helper()
	for _, m := range n.plan(t).Members {
		if m.Name == name {
			return m.ID.String()
		}
	}
	t.Fatalf("no member %s", name)
	return ""
}

// commit binds the prepared directory to a roster, as an earlier run would have.
func (n *node) commit(t *testing.T, r seed.Roster) *seed.State {
	t.Helper()
	if err := n.plan(t).Born(r, true).Apply(t.Context(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	return n.state(t)
}

// release makes of a pending directory one that etcd may start from.
func (n *node) release(t *testing.T) {
	t.Helper()
	if err := seed.Release(n.state(t)); err != nil {
		t.Fatal(err)
	}
}

// pendingTrio are three nodes; the first ones are pending with the disks of all
// three, the others are as their prepared disks were.
func pendingTrio(t *testing.T, committed int) (l *lab, nodes []*node, r seed.Roster) {
	t.Helper()
	l = newLab(t, 3)
	nodes = l.nodes(t)
	r = labRoster(t, nodes, nil)
	for _, n := range nodes[:committed] {
		n.commit(t, r)
	}
	return l, nodes, r
}

// lose replaces a directory by an empty one.
func (n *node) lose(t *testing.T) {
	t.Helper()
	if err := os.Rename(n.data, n.data+".lost-"+strconv.Itoa(rand.N(1<<30))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func (n *node) config(t *testing.T, change ...func(*Config)) Config {
	t.Helper()
	flags := slices.Concat([]etcdconf.Flag{
		etcdFlag("data-dir", n.data), etcdFlag("wal-dir", n.wal), etcdFlag("initial-cluster-token", labToken),
		etcdFlag("listen-peer-urls", "http://"+n.addr(n.ip)), etcdFlag("listen-client-urls", "http://"+n.ip+":2379"),
	}, n.flags)
	etcd, err := etcdconf.Load("", flags, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Etcd: etcd, Source: "lab:" + n.asker, Size: len(n.members()), SelfIP: netip.MustParseAddr(n.ip), Quorum: QuorumAll,
		Registry: discovery.Registry{"lab": func(u *url.URL, _ discovery.Env) (discovery.Provider, error) {
			return labSource{n.lab, u.Opaque}, nil
		}},
		Log: zaptest.NewLogger(t, zaptest.Level(zap.InfoLevel)),
	}
	for _, c := range change {
		c(&cfg)
	}
	return cfg
}

// limit is a --timeout.
func limit(d time.Duration) func(*Config) { return func(c *Config) { c.Timeout = d } }

func leaveOut(names ...string) func(*Config) { return func(c *Config) { c.Without = names } }

// running is an agent at work.
type running struct {
	t    *testing.T
	n    *node
	stop context.CancelCauseFunc
	done chan struct{}
	res  *Result
	err  error

	mu    sync.Mutex
	waits []Wait
}

// start runs an agent until it ends or the test does.
func (n *node) start(t *testing.T, change ...func(*Config)) *running {
	t.Helper()
	return n.startAs(t, false, change...)
}

func (n *node) startAs(t *testing.T, dry bool, change ...func(*Config)) *running {
	t.Helper()
	r := &running{t: t, n: n, done: make(chan struct{})}
	cfg := n.config(t, change...)
	var inside atomic.Bool
	cfg.OnWait = func(w Wait) {
		if inside.Swap(true) {
			t.Error("progress is told by two goroutines at once")
		}
		r.mu.Lock()
		r.waits = append(r.waits, w)
		r.mu.Unlock()
		inside.Store(false)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	r.stop = stop
	go func() {
		defer close(r.done)
		r.res, r.err = Init(ctx, cfg, dry)
	}()
	t.Cleanup(func() {
		stop(errors.New("the test is over"))
		<-r.done
	})
	return r
}

// end waits until the agent has ended.
func (r *running) end() (*Result, error) {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(labTime):
		r.t.Fatalf("%s does not end; it waits for: %+v", r.n.name, r.last())
	}
	return r.res, r.err
}

// allOK waits until all agents have ended well; the first that has not is told.
func allOK(t *testing.T, list []*running) {
	t.Helper()
	failed := make(chan *running, len(list))
	for _, r := range list {
		go func() {
			<-r.done
			failed <- r
		}()
	}
	for range list {
		select {
		case r := <-failed:
			if r.err != nil {
				t.Fatalf("%s: %v", r.n.name, r.err)
			}
		case <-time.After(labTime):
			for _, r := range list {
				t.Errorf("%s: %v, waits for: %+v", r.n.name, r.err, r.last())
			}
			t.FailNow()
		}
	}
}

// ok waits until the agent has ended well.
func (r *running) ok() *Result {
	r.t.Helper()
	res, err := r.end()
	if err != nil {
		r.t.Fatalf("%s: %v", r.n.name, err)
	}
	return res
}

// refused waits until the agent has ended with a status and words.
func (r *running) refused(status exit.Status, reason string, words ...string) {
	r.t.Helper()
	_, err := r.end()
	wantRefusal(r.t, err, status, reason, words...)
}

func (r *running) last() Wait {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waits) == 0 {
		return Wait{}
	}
	return r.waits[len(r.waits)-1]
}

// sees waits until the agent says that it waits for this.
func (r *running) sees(words ...string) Wait {
	r.t.Helper()
	all := func(w Wait) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(w.For+"; "+w.Cause, word) })
	}
	for deadline := time.Now().Add(labTime); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		r.mu.Lock()
		i := slices.IndexFunc(r.waits, all)
		var w Wait
		if i >= 0 {
			w = r.waits[i]
			r.waits = r.waits[i:] // what comes later is asked for later
		}
		r.mu.Unlock()
		if i >= 0 {
			return w
		}
		select {
		case <-r.done:
			r.t.Fatalf("%s has ended without a wait for %q: %v, %v", r.n.name, words, r.res, r.err)
		default:
		}
	}
	r.t.Fatalf("%s does not wait for %q, but: %+v", r.n.name, words, r.last())
	return Wait{}
}

func wantRefusal(t *testing.T, err error, status exit.Status, reason string, words ...string) {
	t.Helper()
	e := exit.Refusal(err)
	if got := exit.Of(err); got != status || reason != "" && (e == nil || e.Reason != reason) {
		t.Fatalf("status %d, want %d (%s): %v", got, status, reason, err)
	}
	text := err.Error()
	if e != nil {
		text += "\n" + strings.Join(e.Commands, "\n")
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in: %s", w, text)
		}
	}
}

func startAll(t *testing.T, nodes []*node, change ...func(*Config)) (list []*running) {
	t.Helper()
	for _, n := range nodes {
		list = append(list, n.start(t, change...))
	}
	return list
}

// wantBorn checks that nodes are released members of one cluster with a disk each.
func wantBorn(t *testing.T, nodes ...*node) *seed.Record {
	t.Helper()
	var first *seed.Record
	disks := make(map[seed.DiskID]bool)
	for _, n := range nodes {
		s := n.state(t)
		if s.Kind != seed.Valid || s.Pending || s.Record == nil || s.Self == nil || s.Self.Name != n.name {
			t.Fatalf("%s: %s, pending: %t, record %v, reason %s", n.name, s.Kind, s.Pending, s.Record, s.Reason)
		}
		if first == nil {
			first = s.Record
		}
		if s.ClusterID != first.ClusterID || !s.Record.Roster.Equal(first.Roster) {
			t.Errorf("%s is of cluster %s, not %s", n.name, s.ClusterID, first.ClusterID)
		}
		disks[s.Record.DiskID] = true
	}
	if len(disks) != len(nodes) {
		t.Errorf("%d disks of %d members", len(disks), len(nodes))
	}
	return first
}

// serve puts something at a node's peer address.
func (l *lab) serve(t *testing.T, ip string, h http.Handler) *httptest.Server {
	t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", l.addr(ip))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	if err := srv.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	srv.Listener = listener
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// listed is one member of a fake etcd's list.
type listed struct {
	id      string
	name    string
	urls    []string
	started bool
}

// fakeEtcd answers on a peer port as an etcd of a cluster.
func fakeEtcd(cluster string, list func() []listed) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/members", func(w http.ResponseWriter, _ *http.Request) {
		type member struct {
			ID         uint64   `json:"id"`
			Name       string   `json:"name"`
			PeerURLs   []string `json:"peerURLs"`
			ClientURLs []string `json:"clientURLs,omitempty"`
		}
		members := []member{}
		for _, l := range list() {
			id, err := strconv.ParseUint(l.id, 16, 64)
			if err != nil {
				panic(err)
			}
			m := member{ID: id, Name: l.name, PeerURLs: l.urls}
			if l.started {
				m.ClientURLs = []string{clientURL(l.name)}
			}
			members = append(members, m)
		}
		w.Header().Set("X-Etcd-Cluster-Id", cluster)
		if err := json.NewEncoder(w).Encode(members); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"etcdserver":"3.6.1","etcdcluster":"3.6.0"}`)) //nolint:errcheck // the asker may have gone
	})
	return mux
}

// list is what an etcd of the lab's cluster lists; started are those that have
// published themselves.
func (n *node) list(t *testing.T, started ...string) (all []listed) {
	t.Helper()
	for _, m := range n.plan(t).Members {
		all = append(all, listed{m.ID.String(), m.Name, m.PeerURLs, slices.Contains(started, m.Name)})
	}
	return all
}

// fakeAgent answers as an agent; an answer of nil is 503.
func fakeAgent(answer func() *rendezvous.Answer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(rendezvous.Path, func(w http.ResponseWriter, _ *http.Request) {
		a := answer()
		if a == nil {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		if err := json.NewEncoder(w).Encode(a); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	return mux
}

// boundAnswer is what a run of this node would answer, bound to a roster.
func (n *node) boundAnswer(t *testing.T, state rendezvous.State, r seed.Roster, nonce string) *rendezvous.Answer {
	t.Helper()
	plan := n.plan(t)
	return &rendezvous.Answer{
		Format: rendezvous.Format, Digest: plan.Digest(), MemberID: rendezvous.ID(plan.MemberID.String()), Nonce: nonce, State: state,
		Disk: r.Disk(plan.MemberID.String()), Roster: r, ClusterID: rendezvous.ID(strconv.FormatUint(r.ClusterID(plan.Digest()), 16)),
		Members: meetingPlan(plan).Members,
	}
}

// tree is all that is below a path, with sizes and times of modification.
func tree(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func fixedAnswer(a *rendezvous.Answer) func() *rendezvous.Answer {
	return func() *rendezvous.Answer { return a }
}

func etcdFlag(name, value string) etcdconf.Flag { return etcdconf.Flag{Name: name, Value: value} }
