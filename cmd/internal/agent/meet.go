package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/internal/hosturl"
	"github.com/etcdinit/etcdinit/seed"
)

// retryBind is how soon a listen address that is taken or absent is tried again.
const retryBind = time.Second

// meet makes this node's end of the barrier: from now on peers are answered, and
// each round asks them. A dry run only asks, and so does a seed of the first
// edition, which says nothing that agents of this one understand.
func (a *agent) meet(ctx context.Context) error {
	if a.barrier != nil {
		return nil
	}
	if !isEmpty(a.disk) {
		a.rehearse()
	}
	if a.lookout == nil {
		look := func(context.Context) (Found, error) { return Found{}, errors.New("no discovery source") }
		if provider, err := a.Registry.Open(a.Source, a.env()); err == nil {
			look = func(ctx context.Context) (Found, error) { return a.ask(ctx, provider, false) }
		}
		a.lookout = newLookout(ctx, a.Log, look)
	}
	if a.found != nil {
		a.lookout.book.update(a.found.Peers)
	}
	cfg := a.barrierConfig()
	open := rendezvous.Open
	if a.dry || a.disk == DiskFirst {
		open = func(_ context.Context, cfg rendezvous.Config) (*rendezvous.Barrier, error) {
			return rendezvous.New(cfg)
		}
	} else if !isEmpty(a.disk) || a.disk == DiskPrepared {
		err := seed.Confirm(a.state) // durable before it is said
		if err != nil && meanwhile(err) {
			return a.again(ctx)
		}
		if err != nil {
			return err
		}
	}
	b, err := open(ctx, cfg)
	if taken := (*rendezvous.TakenError)(nil); errors.As(err, &taken) {
		return a.taken(ctx, taken)
	}
	if err != nil {
		return settings("listen-peer-urls", "cannot answer the peers on this member's listen-peer-urls", err)
	}
	a.barrier, a.blocked = b, nil
	if a.met.IsZero() {
		a.met = time.Now()
	}
	return nil
}

// again looks at a directory anew that another process is changing: what that one
// has not finished is finished or removed.
func (a *agent) again(ctx context.Context) error {
	if err := a.sleep(ctx, minRecheck, Wait{For: "the data directory to rest", Cause: "another process changes it"}); err != nil && !expired(ctx) {
		return a.interrupted(err)
	}
	if err := a.sweep(); err != nil {
		return err
	}
	if err := a.changed(); err != nil {
		return err
	}
	return a.restart()
}

// taken waits for a listen address that is in use or not there yet, unless an etcd
// has it.
func (a *agent) taken(ctx context.Context, taken *rendezvous.TakenError) error {
	if taken.By.Kind == rendezvous.Etcd {
		return &exit.Error{
			Status: exit.Unsafe, Reason: "etcd-runs-here",
			Msg: taken.Error() + ", while " + a.Etcd.DataDir + " is " + a.disk.String() + "; stop it, or give this run the data-dir that it uses",
		}
	}
	a.blocked = taken
	cause := a.sleep(ctx, retryBind, Wait{For: "the peer listen address", Cause: taken.Error()})
	switch {
	case cause == nil:
		return nil
	case errors.Is(cause, context.DeadlineExceeded):
		return a.unheard(cause)
	}
	return a.interrupted(cause)
}

// unheard is how a run ends whose listen address was not to be had in time.
func (a *agent) unheard(cause error) error {
	e := &exit.Error{Status: exit.Disagree, Reason: "listen-address-taken", Msg: cause.Error() + ": " + a.blocked.Error() + "; " + a.committed()}
	if a.blocked.Absent() {
		e.Reason = "listen-address-absent"
		e.Msg += "; etcd cannot listen there either: bring the address up, or correct listen-peer-urls"
	}
	return e
}

// barrierConfig is what the barrier begins with, by what the disk holds.
func (a *agent) barrierConfig() rendezvous.Config {
	cfg := rendezvous.Config{
		Start: rendezvous.Start{
			Nonce: rand.Text(), Plan: meetingPlan(a.plan), State: rendezvous.Waiting, Without: a.Without,
		},
		TLS: a.peerTLS(), Dial: a.lookout.book.dial, Still: a.still, Clock: bootTime, Log: a.Log,
	}
	if a.state != nil {
		for _, id := range a.state.Withdrawn {
			cfg.Withdrawn = append(cfg.Withdrawn, rendezvous.ID(id.String()))
		}
	}
	switch a.disk {
	case DiskPrepared:
		cfg.State, cfg.Disk = rendezvous.Prepared, a.state.DiskID
	case DiskPending:
		cfg.State, cfg.Disk, cfg.Roster = rendezvous.Committed, a.state.Record.DiskID, a.state.Record.Roster
		cfg.Plan.Digest = a.state.Record.PlanDigest
	case DiskJoining:
		cfg.Mute = true
	case DiskFirst, DiskUsed, DiskOurs:
		cfg.State, cfg.ClusterID = rendezvous.Committed, rendezvous.ID(a.state.ClusterID.String())
	case DiskEmpty, DiskReleased, DiskUnnamed, DiskRemoved, DiskPackage, DiskOtherToken, DiskDamaged:
	}
	for _, l := range a.Etcd.PeerListeners() {
		if !l.Unix() {
			cfg.Listen = append(cfg.Listen, l.String())
		}
	}
	if a.ListenSelf && len(a.plan.Self.PeerURLs) > 0 {
		if addr := a.narrowest(hosturl.Host(a.plan.Self.PeerURLs[0])); addr.IsValid() {
			cfg.Listen = etcdconf.ListenSelf(cfg.Listen, addr)
		}
	}
	return cfg
}

// meetingPlan is the barrier's view of a plan.
func meetingPlan(plan *seed.Plan) rendezvous.Plan {
	p := rendezvous.Plan{Digest: plan.Digest(), Self: rendezvous.ID(plan.MemberID.String()), Content: contentWords(plan)}
	for _, m := range plan.Members {
		p.Members = append(p.Members, rendezvous.Member{ID: rendezvous.ID(m.ID.String()), Name: m.Name, PeerURLs: m.PeerURLs, Learner: m.IsLearner})
	}
	return p
}

// rehearse says at once what is wrong with this member's own certificate.
func (a *agent) rehearse() {
	host := ""
	if urls := a.plan.Self.PeerURLs; len(urls) > 0 {
		host = hosturl.Host(urls[0])
	}
	for _, finding := range rendezvous.CheckOwnCert(a.peerTLS(), host, time.Now()) {
		a.warn("this member's own peer certificate: " + finding)
	}
	if a.peerTLS().Unchecked() {
		a.warn("peer-auto-tls: no certificate is checked, so anybody who reaches the peer port can claim to be a peer")
	}
}

func (a *agent) peerTLS() rendezvous.TLS {
	t := a.Etcd.PeerTLS
	return rendezvous.TLS{
		CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCertFile: t.ClientCertFile, ClientKeyFile: t.ClientKeyFile,
		CAFile: t.TrustedCAFile, ClientCertAuth: t.ClientCertAuth, Auto: t.AutoTLS,
		AllowedCN: t.AllowedCN, AllowedHostname: t.AllowedHostname, CRLFile: t.CRLFile, SkipClientSAN: t.SkipClientSAN,
		CipherSuites: a.Etcd.CipherSuites, MinVersion: a.Etcd.TLSMinVersion, MaxVersion: a.Etcd.TLSMaxVersion,
	}
}

// probeOwn asks what answers at this member's own URL: the records know nobody
// here, so the disk may be a copy.
func (a *agent) probeOwn(ctx context.Context) error {
	view, err := a.survey(ctx)
	if err != nil {
		return err
	}
	a.view, a.asked = view, true
	if view.Self == rendezvous.Silent {
		a.warn("discovery does not agree with the data that are here, which are kept: " + a.other.Error())
	} else {
		a.warn("discovery does not agree with the data that are here: " + a.other.Error() + "; at this member's own URL: " + view.Self.String())
	}
	return nil
}

// survey asks all members once without answering anybody: for a run that only
// looks.
func (a *agent) survey(ctx context.Context) (rendezvous.View, error) {
	if a.lookout == nil {
		a.lookout = newLookout(ctx, a.Log, func(context.Context) (Found, error) { return Found{}, errors.New("asked once only") })
	}
	if a.found != nil {
		a.lookout.book.update(a.found.Peers)
	}
	b, err := rendezvous.New(a.barrierConfig())
	if err != nil {
		return rendezvous.View{}, settings("peer-tls", "cannot ask the peers", err)
	}
	return b.Round(ctx), nil
}

// Probe is Discover with what each peer says of itself at this moment.
func Probe(ctx context.Context, cfg Config) (*Found, *rendezvous.View, error) {
	a := newAgent(cfg)
	ctx, cancel := a.deadline(ctx)
	defer cancel()
	found, err := Discover(ctx, cfg)
	if err != nil {
		return found, nil, err
	}
	defer func() { _ = a.close(nil) }() //nolint:errcheck // nothing was opened but a goroutine
	a.found = found
	if a.plan, err = seed.New(a.spec(*found)); err != nil {
		return found, nil, err
	}
	view, err := a.survey(ctx)
	return found, &view, err
}
