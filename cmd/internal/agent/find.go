package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

// Found is the answer of discovery, with this node's place in it.
type Found struct {
	Peers []discovery.Peer `json:"peers"`
	Self  int              `json:"self"` // index in Peers; -1: none is this node
	// Addr is the local address that made the match; invalid where a name did.
	Addr netip.Addr `json:"addr"`
}

// Peer returns this node's own entry.
func (f Found) Peer() discovery.Peer { return f.Peers[f.Self] }

const (
	// restartBudget is how long a restart with data waits for DNS to contradict it.
	restartBudget = 2 * time.Second
	// minRecheck is the shortest time after which a mismatch is asked again, so
	// that an answer with a TTL of a few milliseconds is not asked in a loop.
	minRecheck = 200 * time.Millisecond
)

// find asks discovery: until it is complete where a plan is needed, briefly where
// the directory knows its member.
func (a *agent) find(ctx context.Context) error {
	if isEmpty(a.disk) {
		return a.findPlan(ctx)
	}
	return a.findContradiction(ctx)
}

// findPlan finds the peers and says what this member's directory will hold.
func (a *agent) findPlan(ctx context.Context) error {
	found, err := a.findSelf(ctx)
	if err != nil {
		return err
	}
	plan, err := a.planFor(found)
	if err != nil {
		return err
	}
	a.found, a.plan, a.stored = &found, plan, false
	a.adviseOn(found, plan)
	a.rehearse()
	return nil
}

// planFor is what this member's directory will hold, by what was found. What etcd
// would not start with is refused here.
func (a *agent) planFor(found Found) (*seed.Plan, error) {
	self := found.Peer()
	if err := a.Etcd.CheckListen(len(found.Peers), self.Addrs...); err != nil {
		return nil, err
	}
	if err := a.Etcd.CheckAdvertise(len(found.Peers), self.PeerURLs, self.ClientURLs); err != nil {
		return nil, err
	}
	plan, err := seed.New(a.spec(found))
	if err != nil {
		return nil, err
	}
	return plan, a.Etcd.CheckInitialCluster(confPeers(plan.Members))
}

func (a *agent) spec(f Found) seed.Spec {
	spec := seed.Spec{
		DataDir: a.Etcd.DataDir, WALDir: a.Etcd.WALDir, Token: a.Etcd.Token(),
		Self: f.Peer().Name, MaxLearners: a.Etcd.MaxLearners, Owner: a.Owner,
	}
	for _, p := range f.Peers {
		spec.Members = append(spec.Members, seed.Member{Name: p.Name, PeerURLs: p.PeerURLs, ClientURLs: p.ClientURLs})
	}
	return spec
}

// adviseOn warns of what works but will bite later.
func (a *agent) adviseOn(f Found, plan *seed.Plan) {
	if n := len(f.Peers); n%2 == 0 {
		a.warn(fmt.Sprintf("even number of members (%d): it tolerates no more failures than %d would", n, n-1))
	}
	if a.Quorum == QuorumNone && a.Etcd.TokenIsDefault() {
		a.warn("initial-cluster-token is the default (" + a.Etcd.Token() + "): with --bootstrap-quorum=none, two clusters with equal peer URLs get equal IDs and mistake each other's members; set a token of its own for every life of a cluster")
	}
	if name := a.Etcd.Name; name != "" && name != plan.Self.Name {
		a.warn("name is " + name + " in etcd's configuration, the records name this member " + plan.Self.Name + ": the records' name is used")
	}
}

// findSelf waits for the whole peer set, then for this node's entry in it.
// Address records may lag behind: that no entry is ours is final only when asked
// again after the records' TTL.
func (a *agent) findSelf(ctx context.Context) (Found, error) {
	provider, err := a.Registry.Open(a.Source, a.env())
	if err != nil {
		return Found{}, err
	}
	var final time.Time // when a mismatch becomes final; zero: none seen yet
	for {
		peers, err := a.await(ctx, provider)
		switch {
		case err != nil && errors.Is(ctx.Err(), context.Canceled):
			return Found{}, a.interrupted(err)
		case err != nil:
			return Found{}, err
		}
		found, err := a.match(peers)
		if err == nil {
			return found, nil
		}
		now := time.Now()
		switch ttl := discovery.MaxTTL(peers); {
		case ttl == 0 || !final.IsZero() && !now.Before(final):
			return Found{}, err
		case final.IsZero():
			final = now.Add(max(ttl, minRecheck))
		}
		a.Log.Info("this node is not among the peers yet: asking again once the records' TTL has passed",
			zap.Duration("after", final.Sub(now)), zap.String("seen", err.Error()))
		if cause := a.sleep(ctx, final.Sub(now), Wait{For: "this node's own record", Cause: err.Error()}); cause != nil {
			if errors.Is(cause, context.DeadlineExceeded) {
				return Found{}, err
			}
			return Found{}, a.interrupted(cause)
		}
	}
}

// interrupted says what a signal leaves behind.
func (a *agent) interrupted(cause error) error {
	what, why := a.waiting.last()
	if what != "" {
		what = " while waiting for " + what
	}
	if what != "" && why != "" && !strings.Contains(cause.Error(), why) {
		what += " (" + why + ")"
	}
	return fmt.Errorf("%w%s: %s", cause, what, a.committed())
}

// await asks until the set is whole.
func (a *agent) await(ctx context.Context, provider discovery.Provider) ([]discovery.Peer, error) {
	defer a.span("discover")()
	provider = a.hostNetwork(provider)
	return discovery.Await(ctx, provider, discovery.AwaitOptions{
		Size: a.Size,
		Env:  a.env(),
		OnProgress: func(p discovery.Progress) {
			if p.Err == nil {
				return // complete: nothing is waited for
			}
			want := "the"
			if p.Want > 0 {
				want = strconv.Itoa(p.Got) + " of " + strconv.Itoa(p.Want)
			}
			a.OnWait(Wait{For: want + " peers", Left: p.Left, Next: p.Next, Attempt: p.Attempt, Cause: p.Err.Error()})
		},
	})
}

// findContradiction asks discovery, for a moment, whether the data are this
// node's. Silence or a partial answer is no contradiction: a restart never
// depends on DNS. A different entry is final only when it is still there after
// the records' TTL, since caches may name the old addresses.
func (a *agent) findContradiction(ctx context.Context) error {
	provider, err := a.Registry.Open(a.Source, a.env())
	if err != nil {
		return err
	}
	a.plan = a.planOf(a.state)
	a.stored = true
	a.otherTokenUsed()
	// Others may be waiting for a seed that is pending: nobody is waited for here.
	patient := a.disk == DiskOurs
	for asked := 0; ; asked++ {
		found, err := a.glimpse(ctx, provider, patient)
		if ctx.Err() != nil && !expired(ctx) {
			return a.interrupted(context.Cause(ctx))
		}
		if err != nil {
			a.noContradiction(found, err)
			return nil
		}
		plan, err := seed.New(a.spec(found))
		if err != nil {
			return err
		}
		c := a.state.Compare(plan)
		if c.SameMember {
			a.found, a.records = &found, RecordsMine
			a.differences(c, plan)
			return nil
		}
		if ttl := discovery.MaxTTL(found.Peers); asked == 0 && ttl > 0 {
			a.Log.Info("the records name another member for this address: asking again once their TTL has passed", zap.Duration("ttl", ttl),
				zap.String("stored", c.StoredSelf.Name), zap.String("discovered", c.Wanted.Name))
			err := a.sleep(ctx, max(ttl, minRecheck), Wait{For: "stale records to expire", Cause: "the records name " + c.Wanted.Name + " for this address, the data are " + c.StoredSelf.Name + "'s"})
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return a.interrupted(err)
			}
			if err == nil {
				continue
			}
		}
		a.records, a.other = RecordsOther, a.foreign(c, plan)
		return nil
	}
}

// otherTokenUsed warns of a token that is not the one that the data were made for.
// It needs no discovery.
func (a *agent) otherTokenUsed() {
	if stored := a.storedToken(); stored != a.Etcd.Token() {
		a.warn("initial-cluster-token is " + a.Etcd.Token() + ", the data were made for " + stored + ": etcd does not use it any more, and the cluster ID keeps other clusters out")
	}
}

// storedToken is the token that the directory was made for, as far as it knows.
func (a *agent) storedToken() string {
	if r := a.state.Record; r != nil && r.Token != "" {
		return r.Token
	}
	return a.Etcd.Token()
}

// noContradiction takes note of why discovery had no word in this restart.
func (a *agent) noContradiction(found Found, err error) {
	var e *discovery.Error
	known := errors.As(err, &e)
	switch {
	case known && e.Kind == discovery.NotSelf && len(found.Peers) > 0:
		a.records, a.other = RecordsNobody, err
		a.found = &found
	case known && e.Kind == discovery.Unusable:
		a.records = RecordsSilent
		a.warn("discovery does not agree with the data that are here, which are kept: " + err.Error())
	default:
		a.records = RecordsSilent
		a.Log.Info("discovery gave no answer in time; a restart does not need it", zap.String("seen", err.Error()))
	}
	a.remark = ", DNS not used"
}

// glimpse asks briefly: once, or, with patience, until the budget is used up
// where a part of the set is there already and this node is not in it. On
// Kubernetes a pod that starts is older than its own record by a second. If the
// set is whole and no entry is this node's, both come back: the set with Self -1,
// and the error.
func (a *agent) glimpse(ctx context.Context, provider discovery.Provider, patient bool) (Found, error) {
	defer a.span("discover")()
	return a.ask(ctx, provider, patient)
}

func (a *agent) ask(ctx context.Context, provider discovery.Provider, patient bool) (Found, error) {
	ctx, cancel := context.WithTimeout(ctx, restartBudget)
	defer cancel()
	var last error
	peers, err := discovery.Await(ctx, provider, discovery.AwaitOptions{Size: a.Size, Env: a.env(), OnProgress: func(p discovery.Progress) {
		last = p.Err
		if patient && p.Got > 0 {
			if _, err := a.match(p.Peers); err != nil {
				return
			}
		}
		cancel()
	}})
	if err != nil {
		if last != nil {
			err = last
		}
		return Found{}, err
	}
	found, err := a.match(peers)
	if err != nil {
		return Found{Peers: peers, Self: -1}, err
	}
	return found, nil
}

// match finds this node's entry.
func (a *agent) match(peers []discovery.Peer) (Found, error) {
	local, err := a.local()
	if err != nil {
		return Found{}, err
	}
	a.Log.Debug("looking for this node among the peers", zap.Stringers("local", local.Addrs), zap.String("interface", a.Interface))
	i, err := discovery.MatchSelf(peers, local)
	if err != nil {
		return Found{}, err
	}
	found := Found{Peers: peers, Self: i}
	candidates := local.Addrs
	if local.Explicit.IsValid() {
		candidates = []netip.Addr{local.Explicit}
	}
	for _, addr := range peers[i].Addrs {
		if slices.Contains(candidates, addr) {
			found.Addr = addr
			break
		}
	}
	return found, nil
}

// local is what this node says of itself.
func (a *agent) local() (discovery.Local, error) {
	addrs, err := discovery.LocalAddrs(a.Interface)
	told := a.SelfName != "" || a.SelfIP.IsValid()
	if err != nil && (!told || a.Interface != "") {
		return discovery.Local{}, err // a node that was told which peer it is needs no list
	}
	host, err := os.Hostname()
	if err != nil {
		a.Log.Debug("hostname unknown", zap.Error(err)) // it only breaks ties
	}
	return discovery.Local{
		Addrs:    addrs,
		Explicit: a.SelfIP,
		Name:     a.SelfName,
		NameHint: a.Etcd.Name,
		Hostname: host,
		Ports:    a.peerPorts(),
	}, nil
}

func (a *agent) env() discovery.Env {
	e := a.Etcd
	env := discovery.Env{
		Size:          a.Size,
		PeerScheme:    scheme(e.PeerTLS.Enabled()),
		ClientScheme:  scheme(e.ClientTLS.Enabled()),
		PeerPorts:     a.peerPorts(),
		ServiceSuffix: e.DiscoverySRVName,
		DNSServers:    a.DNSServers,
		ResolvConf:    a.ResolvConf,
		Token:         e.Token(),
		PluginDirs:    a.PluginDirs,
		Pod:           a.Pod,
		Log:           a.Log,
	}
	switch {
	case a.SelfIP.IsValid():
		env.LocalAddrs = []netip.Addr{a.SelfIP}
	case a.Interface != "":
		addrs, err := discovery.LocalAddrs(a.Interface)
		if err != nil {
			a.Log.Debug("addresses of the interface unknown", zap.Error(err)) // match tells the person
		}
		env.LocalAddrs = addrs
	}
	for _, l := range e.ClientListeners() {
		if l.Unix() {
			continue
		}
		env.ClientListeners = append(env.ClientListeners, discovery.Listener{Scheme: l.Scheme, Port: l.Port})
	}
	if a.SelfName != "" {
		env.PeerPorts = nil // an explicit name also stands for a mapped port
	}
	return env
}

func (a *agent) peerPorts() []uint16 {
	var ports []uint16
	for _, l := range a.Etcd.PeerListeners() {
		ports = append(ports, l.Port)
	}
	return ports
}

func scheme(tls bool) string {
	if tls {
		return "https"
	}
	return "http"
}

// Discover returns the peers and this node's place in them. Where the peers
// are known and no entry is ours, it returns both them, with Self -1, and the
// error that says so.
func Discover(ctx context.Context, cfg Config) (*Found, error) {
	a := newAgent(cfg)
	ctx, cancel := a.deadline(ctx)
	defer cancel()
	provider, err := a.Registry.Open(a.Source, a.env())
	if err != nil {
		return nil, err
	}
	peers, err := a.await(ctx, provider)
	if err != nil {
		return nil, err
	}
	found, err := a.match(peers)
	if err != nil {
		return &Found{Peers: peers, Self: -1}, err
	}
	return &found, nil
}
