package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/discovery/rendezvous"
	"github.com/etcdinit/etcdinit/seed"
)

const (
	minPause  = 50 * time.Millisecond
	maxPause  = 2 * time.Second
	relook    = 3 * time.Second // how often discovery is asked again while peers disagree
	farewell  = time.Second
	retryBind = time.Second
)

// meeting is one run of the barrier: from what the disk holds to a seed that
// etcd may start from.
type meeting struct {
	*agent
	plan  *seed.Plan
	found *Found // nil where discovery is silent, on a restart
	disk  Disk

	barrier *rendezvous.Barrier
	view    rendezvous.View
	looked  time.Time
	told    map[string]bool // warnings that were given
}

// meet makes the directory what etcd may start from. The plan that was
// followed is m.plan then.
func (a *agent) meet(ctx context.Context, m *meeting) (err error) {
	m.agent, m.looked, m.told = a, time.Now(), make(map[string]bool)
	defer a.span("rendezvous")()
	m.rehearse()
	defer func() {
		if m.barrier != nil {
			err = errors.Join(err, m.barrier.Close())
		}
	}()
	for pause, rushed := minPause, false; ; {
		out := Decide(m.input(false))
		switch out.Step {
		case StepSeedAlone:
			a.saysNone(out.Rule)
			return m.seed(ctx)
		case StepSeed:
			if err := m.seed(ctx); err != nil {
				return err
			}
			m.disk = DiskPending
			m.barrier.Advance(rendezvous.Committed)
			a.Log.Info("committed: all members are there, waiting for the others to commit", zap.String("dir", m.plan.DataDir))
			pause, rushed = minPause, false
		case StepRelease:
			return m.release(ctx, out)
		case StepWait:
			if m.barrier == nil {
				break
			}
			if rushed = !rushed && m.barrier.Unsteady(m.view); rushed {
				break
			}
			news, err := m.wait(ctx, out, pause)
			if err != nil {
				return err
			}
			if pause = min(2*pause, maxPause); news {
				pause = minPause
			}
		case StepKeep, StepRefuse:
			return m.refusal(out)
		}
		digest := m.plan.Digest()
		if err := m.look(ctx); err != nil {
			return err
		}
		if m.plan.Digest() != digest {
			pause, rushed = minPause, false // nothing is known under the new plan
		}
	}
}

func (m *meeting) input(expired bool) Input {
	return Input{
		Disk: m.disk, Members: len(m.plan.Members), View: m.view, AskNobody: m.Quorum == QuorumNone, Without: m.Without,
		Existing: m.Etcd.InitialClusterState == "existing", Expired: expired,
	}
}

// look makes one round of probes.
func (m *meeting) look(ctx context.Context) error {
	if m.barrier == nil {
		if err := m.open(ctx); err != nil {
			return err
		}
	}
	view := m.barrier.Round(ctx)
	if ctx.Err() != nil {
		return m.over(ctx)
	}
	m.view = view
	for i := range view.Peers {
		for _, finding := range view.Peers[i].Last.Certs {
			m.warnOnce("peer " + view.Peers[i].Member.Name + " at " + view.Peers[i].Last.URL + ": " + finding)
		}
	}
	return m.lookUp(ctx)
}

// lookUp asks discovery again while peers disagree: DNS may still be spreading.
func (m *meeting) lookUp(ctx context.Context) error {
	settled := !slices.ContainsFunc(m.view.Peers, func(p rendezvous.PeerView) bool { return !p.Now.Agrees() })
	if m.disk != DiskEmpty || settled || time.Since(m.looked) < relook {
		return nil
	}
	m.looked = time.Now()
	provider, err := m.Registry.Open(m.Source, m.env())
	if err != nil {
		return err
	}
	found, err := m.glance(ctx, provider, false)
	if err != nil {
		m.Log.Debug("discovery asked again: no whole answer", zap.Error(err))
		return nil // the plan that is there still counts
	}
	plan, err := seed.New(m.spec(found))
	if err != nil {
		return err
	}
	m.found = &found // addresses may be newer
	if plan.Digest() != m.plan.Digest() {
		m.Log.Info("discovery answers something else now: planning again", zap.String("cluster_id", plan.ClusterID.String()), zap.String("member_id", plan.MemberID.String()))
		m.plan = plan
		m.barrier.Replan(meetingPlan(plan))
		m.view = rendezvous.View{}
	}
	return nil
}

// open starts answering the peers.
func (m *meeting) open(ctx context.Context) error {
	cfg := m.rendezvousConfig(m.plan, m.found)
	if m.disk == DiskPending {
		cfg.State = rendezvous.Committed
	}
	for {
		b, err := rendezvous.Start(ctx, cfg)
		var taken *rendezvous.TakenError
		switch {
		case err == nil:
			m.barrier = b
			return nil
		case !errors.As(err, &taken):
			return &Error{Kind: Settings, Msg: "cannot answer the peers on this member's listen-peer-urls", Err: err}
		case taken.By.Kind == rendezvous.Etcd:
			return &Error{Kind: Unsafe, Msg: taken.Error() + ", while " + m.plan.DataDir + " is " + m.diskWords() + "; stop it, or give this run the data-dir that it uses"}
		}
		m.view.SelfLast = taken.By
		if cause := m.pause(ctx, retryBind, Wait{For: "the peer listen address", Cause: taken.Error()}); cause != nil {
			if errors.Is(cause, context.DeadlineExceeded) {
				return &Error{Kind: Disagree, Msg: cause.Error() + ": " + taken.Error()}
			}
			return cause
		}
	}
}

func (m *meeting) diskWords() string {
	if m.disk == DiskPending {
		return "seeded and not released"
	}
	return "empty"
}

// rehearse says at once what is wrong with this member's own certificate.
func (m *meeting) rehearse() {
	host := ""
	if urls := m.plan.Self.PeerURLs; len(urls) > 0 {
		host = hostOf(urls[0])
	}
	for _, finding := range rendezvous.CheckOwnCert(m.peerTLS(), host, time.Now()) {
		m.warnOnce("this member's own peer certificate: " + finding)
	}
	if m.Etcd.PeerTLS.AutoTLS {
		m.warnOnce("peer-auto-tls: nobody's certificate is checked, so whoever reaches the peer port can claim to be a peer")
	}
}

func (m *meeting) warnOnce(msg string) {
	if !m.told[msg] {
		m.told[msg] = true
		m.warn(msg)
	}
}

func (a *agent) saysNone(r Rule) {
	if r == RuleNone {
		a.warn("--bootstrap-quorum=none: no peer is asked; a member that lost its disk is NOT recognised, and re-seeding it can destroy acknowledged writes")
	}
}

// seed writes the directory, marked as pending where the plan says so.
func (m *meeting) seed(ctx context.Context) error {
	defer m.span("seed")()
	if err := m.Etcd.CheckInitialCluster(confPeers(m.plan.Members)); err != nil {
		return err
	}
	if err := m.plan.Apply(ctx, m.Log); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) && errors.Is(err, context.Cause(ctx)) {
			return interrupted(err) // once it commits, it finishes
		}
		return err
	}
	m.Log.Info("seeded "+describe(m.plan.Self.Name, m.plan.MemberID), zap.String("cluster_id", m.plan.ClusterID.String()),
		zap.String("member_id", m.plan.MemberID.String()), zap.String("dir", m.plan.DataDir))
	return nil
}

// release is durable before anybody hears of it.
func (m *meeting) release(ctx context.Context, out Outcome) error {
	defer m.span("release")()
	if err := seed.Release(m.plan.DataDir); err != nil {
		return err
	}
	for _, name := range m.Without {
		m.warn("released without " + name + ", which --without says has never run: it must come in by etcdctl member remove and member add --learner")
	}
	m.Log.Info("released: etcd may start", zap.String("rule", string(out.Rule)), zap.String("dir", m.plan.DataDir))
	if m.barrier != nil {
		m.barrier.Advance(rendezvous.Released)
		m.barrier.Farewell(ctx, farewell)
	}
	return nil
}

// wait says what is awaited and waits for news, or for a while.
func (m *meeting) wait(ctx context.Context, out Outcome, d time.Duration) (news bool, err error) {
	d += rand.N(d/2 + 1) //nolint:gosec // spreads the agents, no secret
	w := Wait{For: m.awaited(out), Next: d, Cause: m.why(out)}
	if deadline, ok := ctx.Deadline(); ok {
		w.Left = time.Until(deadline)
	}
	m.OnWait(w)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-m.barrier.News():
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, m.over(ctx)
	}
}

// over is how a meeting ends that was not brought to an end.
func (m *meeting) over(ctx context.Context) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%w while waiting for the other members: %s", cause, m.aftermath())
	}
	err := m.refusal(Decide(m.input(true)))
	if err == nil { // the time ran out between two steps
		return &Error{Kind: Disagree, Msg: cause.Error() + ": the members were about to agree; " + m.aftermath()}
	}
	var e *Error
	if errors.As(err, &e) && e.Kind == Disagree {
		e.Msg = cause.Error() + ": " + e.Msg
	}
	return err
}

// rendezvousConfig is the barrier's view of a plan.
func (a *agent) rendezvousConfig(plan *seed.Plan, found *Found) rendezvous.Config {
	cfg := rendezvous.Config{Plan: meetingPlan(plan), State: rendezvous.Waiting, Without: a.Without, TLS: a.peerTLS(), Dial: dialer(found), Log: a.Log}
	listeners := a.Etcd.PeerListeners()
	for _, l := range listeners {
		if !l.Unix() {
			cfg.Listen = append(cfg.Listen, l.String())
		}
	}
	if a.ListenSelf && len(plan.Self.PeerURLs) > 0 {
		if addr := a.narrowest(found, hostOf(plan.Self.PeerURLs[0])); addr.IsValid() {
			cfg.Listen = etcdconf.ListenSelf(cfg.Listen, addr)
		}
	}
	return cfg
}

func meetingPlan(plan *seed.Plan) rendezvous.Plan {
	p := rendezvous.Plan{Digest: plan.Digest(), ClusterID: rendezvous.ID(plan.ClusterID.String()), Self: rendezvous.ID(plan.MemberID.String())}
	for _, m := range plan.Members {
		p.Members = append(p.Members, rendezvous.Member{ID: rendezvous.ID(m.ID.String()), Name: m.Name, PeerURLs: m.PeerURLs, Learner: m.IsLearner})
	}
	return p
}

func (a *agent) peerTLS() rendezvous.TLS {
	t := a.Etcd.PeerTLS
	return rendezvous.TLS{
		CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCertFile: t.ClientCertFile, ClientKeyFile: t.ClientKeyFile,
		CAFile: t.TrustedCAFile, ClientCertAuth: t.ClientCertAuth, Auto: t.AutoTLS,
	}
}

// dialer reaches the peers at the addresses that discovery gave, so that what
// is dialled is what was planned; other hosts by the system's resolver.
func dialer(found *Found) rendezvous.DialFunc {
	hosts := make(map[string][]string)
	if found != nil {
		for _, p := range found.Peers {
			for _, addr := range p.Addrs {
				hosts[strings.ToLower(p.Host)] = append(hosts[strings.ToLower(p.Host)], addr.String())
			}
		}
	}
	d := &net.Dialer{}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		var last error
		for _, ip := range hosts[strings.TrimSuffix(strings.ToLower(host), ".")] {
			conn, err := d.DialContext(ctx, network, net.JoinHostPort(ip, port))
			if err == nil {
				return conn, nil
			}
			last = err
		}
		if last != nil {
			return nil, last
		}
		return d.DialContext(ctx, network, addr)
	}
}

// foresee is a dry run's look at the peers: what would be decided now.
func (a *agent) foresee(ctx context.Context, m *meeting) (Outcome, error) {
	m.agent, m.told = a, make(map[string]bool)
	m.rehearse()
	if out := Decide(m.input(false)); out.Step != StepWait {
		return out, m.refusal(out)
	}
	view, err := rendezvous.Survey(ctx, a.rendezvousConfig(m.plan, m.found))
	if err != nil {
		return Outcome{}, &Error{Kind: Settings, Msg: "cannot ask the peers", Err: err}
	}
	view.Self = rendezvous.Mine // nobody answers at the own URL in a dry run
	m.view = view
	out := Decide(m.input(false))
	return out, m.refusal(out)
}

// Probe is Discover with what each peer says of itself at this moment.
func Probe(ctx context.Context, cfg Config) (*Found, *rendezvous.View, error) {
	found, err := Discover(ctx, cfg)
	if err != nil {
		return found, nil, err
	}
	a := newAgent(cfg)
	plan, err := seed.New(a.spec(*found))
	if err != nil {
		return found, nil, err
	}
	view, err := rendezvous.Survey(ctx, a.rendezvousConfig(plan, found))
	if err != nil {
		return found, nil, &Error{Kind: Settings, Msg: "cannot ask the peers", Err: err}
	}
	return found, &view, nil
}
