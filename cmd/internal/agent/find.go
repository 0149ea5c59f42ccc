package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/hosturl"
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
	// maxRecheck is the longest one, whatever the records' TTL is: the server that
	// is asked may be the authority itself, where a change shows at once.
	maxRecheck = 5 * time.Second
	// lookHere is how often this host's own addresses are looked at: that costs
	// no question.
	lookHere = time.Second
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
	provider, err := a.Registry.Open(a.Source, a.env())
	if err != nil {
		return err
	}
	found, err := a.findSelf(ctx, provider)
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
	if err := a.clientPorts(found); err != nil {
		return nil, err
	}
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
	if err := a.Etcd.CheckInitialCluster(confPeers(plan.Members)); err != nil {
		return nil, err
	}
	return a.withContent(plan)
}

// clientPorts refuses a set where a peer's port is the one that this configuration,
// which is the same on every node, has for clients: no peer answers there.
func (a *agent) clientPorts(found Found) error {
	env, self := a.env(), found.Peer()
	for i, p := range found.Peers {
		if env.ClientPort(p.Port) && (i == found.Self || p.Host != self.Host) {
			return &discovery.Error{Kind: discovery.Unusable, Msg: fmt.Sprintf("the record of peer %s has port %d (%s), which is the client port (listen-client-urls); a peer's record needs the peer port %d",
				p.Name, p.Port, strings.Join(p.PeerURLs, ", "), a.peerPorts()[0])}
		}
	}
	return nil
}

func (a *agent) spec(f Found) seed.Spec {
	spec := seed.Spec{
		DataDir: a.Etcd.DataDir, WALDir: a.Etcd.WALDir, Token: a.Etcd.Token(),
		Self: f.Peer().Name, MaxLearners: a.Etcd.MaxLearners, Owner: a.Owner,
	}
	for i, p := range f.Peers {
		m := seed.Member{Name: p.Name, PeerURLs: p.PeerURLs, ClientURLs: p.ClientURLs}
		if i == f.Self && len(a.Etcd.AdvertiseClients) > 0 {
			m.ClientURLs = a.Etcd.AdvertiseClients
		}
		spec.Members = append(spec.Members, m)
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
// Addresses, here and in the records, may come later: that no entry is ours is
// final at the deadline only, unless no later look can differ. Where only the
// entry is missing, the peers come back too, with Self -1.
func (a *agent) findSelf(ctx context.Context, provider discovery.Provider) (Found, error) {
	var mismatch error // of the last whole answer
	var last Found
	for {
		peers, err := a.await(ctx, provider, func() { mismatch = nil })
		switch {
		case err != nil && errors.Is(ctx.Err(), context.Canceled):
			return Found{}, a.interrupted(err)
		case err != nil && mismatch != nil && ctx.Err() != nil:
			return last, atDeadline(mismatch)
		case err != nil:
			return Found{}, err
		}
		last = Found{Peers: peers, Self: -1}
		found, err := a.matchNew(peers)
		if err == nil {
			return found, nil
		}
		if !a.mayPass(peers, err) {
			return last, atDeadline(err)
		}
		if mismatch == nil {
			a.Log.Info("this node is not among the peers yet: its own addresses are looked at each second, the records are asked again", zap.String("seen", err.Error()))
		}
		found, mismatch, err = a.watch(ctx, peers, err)
		switch {
		case mismatch == nil:
			return found, nil
		case errors.Is(err, context.DeadlineExceeded):
			return last, atDeadline(mismatch)
		case err != nil:
			return Found{}, a.interrupted(err)
		}
	}
}

// mayPass tells whether a later look can find this node where this one has not:
// the records may be stale, or an address of this host is not there yet.
func (a *agent) mayPass(peers []discovery.Peer, err error) bool {
	var e *discovery.Error
	if !errors.As(err, &e) || e.Kind != discovery.NotSelf && e.Kind != discovery.Retry {
		return false
	}
	told := a.SelfIP.IsValid() || a.SelfName != ""
	return discovery.MaxTTL(peers) > 0 || !told
}

// watch looks for this node among the peers by addresses that this host gets
// meanwhile, until the records are to be asked again. It returns the entry, or
// the last mismatch and, where the time is over, why.
func (a *agent) watch(ctx context.Context, peers []discovery.Peer, mismatch error) (found Found, last, over error) {
	again := time.Now().Add(discovery.BeforeDeadline(ctx, recheck(discovery.MaxTTL(peers))))
	for time.Now().Before(again) {
		d := min(lookHere, max(time.Until(again), time.Millisecond))
		if err := a.sleep(ctx, d, Wait{For: "this node's own record", Cause: mismatch.Error()}); err != nil {
			return Found{}, mismatch, err
		}
		var err error
		if found, err = a.matchNew(peers); err == nil {
			return found, nil, nil
		}
		mismatch = err
	}
	return Found{}, mismatch, nil
}

// recheck is when records are asked again that caches may keep for their TTL; 0
// says that there are none, and is no reason to ask often.
func recheck(ttl time.Duration) time.Duration {
	if ttl == 0 {
		return maxRecheck
	}
	return min(max(ttl, minRecheck), maxRecheck)
}

// atDeadline is what an error means once nothing is waited for any more.
func atDeadline(err error) error {
	var e *discovery.Error
	if !errors.As(err, &e) || e.AtDeadline == 0 {
		return err
	}
	c := *e
	c.Kind = e.AtDeadline
	return &c
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

// await asks until the set is whole; short is called after each answer that is not.
func (a *agent) await(ctx context.Context, provider discovery.Provider, short func()) ([]discovery.Peer, error) {
	defer a.span("discover")()
	provider = a.hostNetwork(provider)
	return discovery.Await(ctx, provider, discovery.AwaitOptions{
		Size: a.Size,
		Env:  a.env(),
		OnProgress: func(p discovery.Progress) {
			if p.Err == nil {
				return // complete: nothing is waited for
			}
			short()
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
// the records' TTL, since caches may name the old addresses, or at the deadline;
// until then the records are asked again and again.
func (a *agent) findContradiction(ctx context.Context) error {
	provider, err := a.Registry.Open(a.Source, a.env())
	if err != nil {
		return err
	}
	a.plan = a.planOf(a.state)
	a.stored, a.other = true, nil
	a.otherTokenUsed()
	// Others may be waiting for a seed that is pending: nobody is waited for here.
	patient := a.disk == DiskOurs
	var final time.Time // when a mismatch becomes final; zero: none seen yet
	for {
		found, err := a.glimpse(ctx, provider, patient)
		switch {
		case ctx.Err() != nil && !expired(ctx):
			return a.interrupted(context.Cause(ctx))
		case err != nil && ctx.Err() != nil && a.other != nil:
			a.records = RecordsOther
			return nil //nolint:nilerr // the last look was cut off: what was seen before it stands
		case err != nil:
			a.other = nil
			a.noContradiction(found, err)
			return nil
		}
		plan, err := seed.New(a.spec(found))
		if err != nil {
			return err
		}
		c := a.state.Compare(plan)
		if c.SameMember {
			a.found, a.records, a.other = &found, RecordsMine, nil
			a.differences(c, plan)
			return nil
		}
		a.other = a.foreign(c, plan, found.Peer())
		ttl, now := discovery.MaxTTL(found.Peers), time.Now()
		if final.IsZero() {
			final = now.Add(max(ttl, minRecheck))
			a.Log.Info("the records name another member for this address: they are asked again, at most until their TTL has passed", zap.Duration("ttl", ttl),
				zap.String("stored", c.StoredSelf.Name), zap.String("discovered", c.Wanted.Name))
		}
		if ttl > 0 && now.Before(final) {
			next := discovery.BeforeDeadline(ctx, min(recheck(ttl), max(final.Sub(now), minRecheck)))
			err := a.sleep(ctx, next, Wait{For: "stale records to expire", Cause: "the records name " + c.Wanted.Name + " for this address, the data are " + c.StoredSelf.Name + "'s"})
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return a.interrupted(err)
			}
			if err == nil {
				continue
			}
		}
		a.records = RecordsOther
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

// matchNew finds the entry of a node without data, which nothing but its addresses
// and its name tells.
func (a *agent) matchNew(peers []discovery.Peer) (Found, error) {
	found, err := a.match(peers)
	if err != nil {
		return Found{}, err
	}
	return found, a.swapped(found)
}

// swapped is the error for a node that by its host name is another member.
func (a *agent) swapped(found Found) error {
	local, err := a.local()
	if err != nil {
		return err
	}
	return discovery.Swapped(found.Peers, found.Self, local)
}

// match finds this node's entry.
func (a *agent) match(peers []discovery.Peer) (Found, error) {
	local, err := a.local()
	if err != nil {
		return Found{}, err
	}
	a.Log.Debug("looking for this node among the peers", zap.Stringers("local", local.Addrs), zap.String("interface", a.Interface))
	i, err := discovery.MatchSelf(peers, local)
	if err != nil && local.Name == "" && !isEmpty(a.disk) {
		// Where there are data, the name in them counts, not the configuration's.
		local.NameHint = ""
		if other, oerr := discovery.MatchSelf(peers, local); oerr == nil {
			i, err = other, nil
		}
	}
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
	addrs, err := a.localAddrs(a.Interface)
	told := a.SelfName != "" || a.SelfIP.IsValid()
	if err != nil && (!told || a.Interface != "") {
		return discovery.Local{}, err // a node that was told which peer it is needs no list
	}
	host, err := a.hostname()
	if err != nil {
		a.Log.Debug("hostname unknown", zap.Error(err)) // it only breaks ties
	}
	return discovery.Local{
		Interfaces: discovery.LocalInterfaces,

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
		MappedPorts:   a.SelfName != "" || a.SelfIP.IsValid(),
		ClientURLs:    e.AdvertiseClients,
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
		addrs, err := a.localAddrs(a.Interface)
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
	return env
}

// peerPorts are the ports that this node's record may have: what it was told it
// has there, else what etcd advertises, else what it listens on.
func (a *agent) peerPorts() []uint16 {
	if a.SelfPort != 0 {
		return []uint16{a.SelfPort}
	}
	var ports []uint16
	for _, raw := range a.Etcd.AdvertisePeerURLs {
		if u, err := hosturl.Parse(raw); err == nil {
			ports = append(ports, u.Port)
		}
	}
	if len(ports) > 0 {
		return ports
	}
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
// error that says so: at once, or with Config.WaitForSelf at the deadline.
func Discover(ctx context.Context, cfg Config) (*Found, error) {
	a := newAgent(cfg)
	ctx, cancel := a.deadline(ctx)
	defer cancel()
	provider, err := a.Registry.Open(a.Source, a.env())
	if err != nil {
		return nil, err
	}
	if a.WaitForSelf {
		found, selfErr := a.findSelf(ctx, provider)
		if selfErr != nil && len(found.Peers) == 0 {
			return nil, selfErr
		}
		return &found, selfErr
	}
	peers, err := a.await(ctx, provider, func() {})
	if err != nil {
		return nil, err
	}
	found, err := a.match(peers)
	if err != nil {
		return &Found{Peers: peers, Self: -1}, atDeadline(err)
	}
	if err := a.swapped(found); err != nil {
		a.warn(err.Error()) // init waits, unless there are data
	}
	return &found, nil
}
