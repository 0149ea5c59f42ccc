package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/discovery"
)

// Found is the answer of discovery, with this node's place in it.
type Found struct {
	Peers []discovery.Peer `json:"peers"`
	Self  int              `json:"self"` // index in Peers
	// Addr is the local address that made the match; invalid where a name did.
	Addr netip.Addr `json:"addr"`
}

// Peer returns this node's own entry.
func (f Found) Peer() discovery.Peer { return f.Peers[f.Self] }

// minRecheck is the shortest time after which a mismatch is asked again, so
// that an answer with a TTL of a few milliseconds is not asked in a loop.
const minRecheck = 200 * time.Millisecond

// find waits for the whole peer set, then for this node's entry in it. Address
// records may lag behind: that no entry is ours is final only when asked again
// after the records' TTL.
func (a *agent) find(ctx context.Context) (Found, error) {
	provider, err := a.Registry.Open(a.Source, a.env())
	if err != nil {
		return Found{}, err
	}
	var final time.Time // when a mismatch becomes final; zero: none seen yet
	for {
		peers, err := a.await(ctx, provider)
		switch {
		case err != nil && errors.Is(ctx.Err(), context.Canceled):
			return Found{}, interrupted(err)
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
		if cause := a.pause(ctx, final.Sub(now), Wait{For: "this node's own record", Cause: err.Error()}); cause != nil {
			if errors.Is(cause, context.DeadlineExceeded) {
				return Found{}, err
			}
			return Found{}, interrupted(cause)
		}
	}
}

// interrupted says what a signal that came before any write leaves behind.
func interrupted(cause error) error { return fmt.Errorf("%w: nothing was written", cause) }

// await asks until the set is whole.
func (a *agent) await(ctx context.Context, provider discovery.Provider) ([]discovery.Peer, error) {
	defer a.span("discover")()
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
			w := Wait{For: want + " peers", Left: p.Left, Next: p.Next, Attempt: p.Attempt, Cause: p.Err.Error()}
			a.OnWait(w)
		},
	})
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
		return discovery.Local{}, err // who is told the answer needs no list
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

// pause waits for d, or until ctx is done: then it returns the cause.
func (a *agent) pause(ctx context.Context, d time.Duration, w Wait) error {
	if deadline, ok := ctx.Deadline(); ok {
		w.Left = time.Until(deadline)
	}
	w.Next = d
	a.OnWait(w)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// describe names a member by what a person knows it by.
func describe(name string, id fmt.Stringer) string { return name + " (ID " + id.String() + ")" }

// narrowest returns the address that --listen-self binds to: the one that made
// the match, else the one given, else the IP of the peer URL itself.
func (a *agent) narrowest(f *Found, host string) netip.Addr {
	if f != nil && f.Addr.IsValid() {
		return f.Addr
	}
	if a.SelfIP.IsValid() {
		return a.SelfIP
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

func hostOf(url string) string {
	_, rest, ok := cutScheme(url)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(rest)
	if err != nil {
		return ""
	}
	return host
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

// deadline bounds ctx by --timeout.
func (a *agent) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, a.Timeout, timeoutError{a.Timeout})
}
