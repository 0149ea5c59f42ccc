package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

// timeoutError is the cause of a context whose --timeout has passed.
type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string { return "timeout of " + e.after.String() + " has passed" }

func (timeoutError) Unwrap() error { return context.DeadlineExceeded }

// restartBudget is how long a restart with data waits for DNS to contradict it.
const restartBudget = 2 * time.Second

// Init gives this node its data directory and writes the handoff. With dry it
// decides and writes nothing.
func Init(ctx context.Context, cfg Config, dry bool) (*Result, error) {
	a := newAgent(cfg)
	ctx, cancel := a.deadline(ctx)
	defer cancel()
	if !dry {
		if err := a.sweep(); err != nil {
			return nil, err
		}
	}
	done := a.span("inspect")
	state, err := seed.Inspect(a.Etcd.DataDir, a.Etcd.WALDir)
	done()
	if err != nil {
		return nil, err
	}
	a.notice(state)
	switch state.Kind {
	case seed.Valid:
		if err := Startable(state); err != nil {
			return nil, err
		}
		if state.Pending {
			return a.resume(ctx, state, dry)
		}
		return a.keep(ctx, state, dry)
	case seed.Empty:
		return a.create(ctx, dry)
	case seed.Broken:
		return nil, broken(state)
	default:
		return nil, fmt.Errorf("a data directory cannot be %q", state.Kind)
	}
}

// sweep removes what a killed run of ours left behind.
func (a *agent) sweep() error {
	removed, err := seed.Clean(a.Etcd.DataDir, a.Etcd.WALDir)
	if err != nil {
		return err
	}
	for _, path := range removed {
		a.Log.Info("removed incomplete staging directory "+path+" from an earlier run", zap.String("path", path))
	}
	return nil
}

func (a *agent) notice(s *seed.State) {
	if len(s.Ignored) > 0 {
		a.Log.Info("leftovers beside the data are ignored", zap.Strings("paths", s.Ignored))
	}
	if foreign := slices.DeleteFunc(slices.Clone(s.Foreign), func(p string) bool { return strings.HasSuffix(p, "lost+found") }); len(foreign) > 0 {
		a.Log.Info("files that are not etcd's are left alone", zap.Strings("paths", foreign))
	}
}

func broken(s *seed.State) error {
	if s.Misplaced {
		return &seed.Error{Kind: seed.Damaged, Msg: s.Reason + "; nothing was changed: is the volume mounted, and do data-dir and wal-dir name the right paths?"}
	}
	return &seed.Error{Kind: seed.Damaged, Msg: "data directory is not valid: " + s.Reason +
		"; nothing was changed: keep it for a look, move it aside, then remove and re-add this member (a member that lost its log must not come back under its old ID)"}
}

// create seeds an empty directory.
func (a *agent) create(ctx context.Context, dry bool) (*Result, error) {
	plan, found, err := a.plan(ctx)
	if err != nil {
		return nil, err
	}
	m := &meeting{plan: plan, found: found, disk: DiskEmpty}
	if dry {
		var out Outcome
		if out, err = a.foresee(ctx, m); err != nil {
			return nil, err
		}
		r := a.result(WouldSeed, plan, nil)
		if out.Step == StepWait {
			r.Action = WouldWait
			r.Message = "would wait: " + m.why(out)
		}
		return r, nil
	}
	if err = a.meet(ctx, m); err != nil {
		return nil, err
	}
	plan, found = m.plan, m.found
	state, err := seed.Inspect(a.Etcd.DataDir, a.Etcd.WALDir)
	if err != nil {
		return nil, err
	}
	if state.Kind != seed.Valid {
		return nil, fmt.Errorf("the seed just written does not read back: %s", state.Reason)
	}
	r := a.result(Seeded, plan, state)
	return r, a.handoff(r, state, found)
}

// plan finds the peers and says what this member's directory will hold.
func (a *agent) plan(ctx context.Context) (*seed.Plan, *Found, error) {
	if a.Etcd.InitialClusterState == "existing" {
		return nil, nil, &Error{Kind: Unsafe, Msg: existingRefusal(a.Etcd.DataDir)}
	}
	found, err := a.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	self := found.Peer()
	if err = a.Etcd.CheckListen(len(found.Peers), self.Addrs...); err != nil {
		return nil, nil, err
	}
	if err = a.Etcd.CheckAdvertise(len(found.Peers), self.PeerURLs, self.ClientURLs); err != nil {
		return nil, nil, err
	}
	plan, err := seed.New(a.spec(found))
	if err != nil {
		return nil, nil, err
	}
	a.remark(found, plan)
	return plan, &found, nil
}

func (a *agent) spec(f Found) seed.Spec {
	spec := seed.Spec{
		DataDir: a.Etcd.DataDir, WALDir: a.Etcd.WALDir, Token: a.Etcd.Token(),
		Self: f.Peer().Name, MaxLearners: a.Etcd.MaxLearners, Owner: a.Owner,
		Pending: len(f.Peers) > 1 && a.Quorum != QuorumNone,
	}
	for _, p := range f.Peers {
		spec.Members = append(spec.Members, seed.Member{Name: p.Name, PeerURLs: p.PeerURLs, ClientURLs: p.ClientURLs})
	}
	return spec
}

// remark warns of what works but will bite later.
func (a *agent) remark(f Found, plan *seed.Plan) {
	if n := len(f.Peers); n%2 == 0 {
		a.warn(fmt.Sprintf("even number of members (%d): it tolerates no more failures than %d would", n, n-1))
	}
	if a.Etcd.TokenIsDefault() {
		a.warn("initial-cluster-token is the default (" + a.Etcd.Token() + "): two clusters with equal peer URLs get equal IDs and mistake each other's members; set a token of its own for every life of a cluster")
	}
	if name := a.Etcd.Name; name != "" && name != plan.Self.Name {
		a.warn("name is " + name + " in etcd's configuration, the records name this member " + plan.Self.Name + ": the records' name is used")
	}
}

// resume goes on where a seed is there that was not released: after a crash,
// or after the time was up.
func (a *agent) resume(ctx context.Context, state *seed.State, dry bool) (*Result, error) {
	disk := DiskPending
	if !state.Pristine {
		disk = DiskUsed
	}
	plan, err := seed.New(seed.Spec{
		DataDir: a.Etcd.DataDir, WALDir: a.Etcd.WALDir, Token: a.Etcd.Token(), Members: state.Members,
		Self: state.Self.Name, MaxLearners: a.Etcd.MaxLearners, Owner: a.Owner, Pending: true,
	})
	switch {
	case err != nil:
		return nil, err
	case disk == DiskPending && (plan.MemberID != state.MemberID || plan.ClusterID != state.ClusterID):
		return nil, pendingElsewhere(state, plan)
	}
	// Others may be waiting for this member: nobody is waited for here.
	found, remark, err := a.contradiction(ctx, state, false)
	if err != nil {
		return nil, err
	}
	m := &meeting{plan: plan, found: found, disk: disk}
	switch {
	case disk == DiskUsed:
		a.warn(state.DataDir + " was not released, yet an etcd has run on it: is etcd started before this program is done? It is kept")
		if !dry {
			if err := seed.Release(state.DataDir); err != nil {
				return nil, err
			}
		}
	case dry:
		out, err := a.foresee(ctx, m)
		if err != nil {
			return nil, err
		}
		if out.Step == StepWait {
			r := a.result(WouldWait, nil, state)
			r.Message = "would wait: " + m.why(out)
			return r, nil
		}
	default:
		if err := a.meet(ctx, m); err != nil {
			return nil, err
		}
	}
	return a.kept(state, dry, m.found, remark)
}

// keep uses the data that are there, unless discovery says that they are
// another member's.
func (a *agent) keep(ctx context.Context, state *seed.State, dry bool) (*Result, error) {
	if state.PackageDefault && a.Size > 1 {
		return nil, packageDefault(state, a.Size)
	}
	found, remark, err := a.contradiction(ctx, state, true)
	if err != nil {
		return nil, err
	}
	return a.kept(state, dry, found, remark)
}

// kept is the result of a run that leaves the data as they are.
func (a *agent) kept(state *seed.State, dry bool, found *Found, remark string) (*Result, error) {
	self, action := state.Self, Kept
	if dry {
		action = WouldKeep
	}
	r := a.result(action, nil, state)
	r.Message = "already initialised as " + describe(self.Name, state.MemberID) + " of cluster " + state.ClusterID.String() + remark
	if self.IsLearner {
		r.Message += ", a learner"
	}
	a.Log.Info(r.Message, zap.String("member_id", state.MemberID.String()), zap.String("cluster_id", state.ClusterID.String()), zap.String("dir", state.DataDir))
	if dry {
		return r, nil
	}
	return r, a.handoff(r, state, found)
}

// packageDefault is the refusal for the one-member localhost cluster that a
// distribution's package starts when it is installed.
func packageDefault(state *seed.State, size int) error {
	return &Error{Kind: Foreign, Msg: fmt.Sprintf("%s holds the one-member cluster %s of %s at %s that the etcd package started when it was installed, not a member of this %d-member cluster; "+
		"if nobody uses it: systemctl stop etcd && mv %s %s.package-default, then run this again",
		state.DataDir, state.ClusterID, describe(state.Self.Name, state.MemberID), strings.Join(state.Self.PeerURLs, ","), size, state.DataDir, state.DataDir)}
}

// contradiction asks discovery, for a moment, whether the data are this node's.
// Silence, a partial answer or no entry for this node is no contradiction: a
// restart never depends on DNS. A different entry is final only when it is
// still there after the records' TTL, since caches may name the old addresses.
func (a *agent) contradiction(ctx context.Context, state *seed.State, patient bool) (*Found, string, error) {
	provider, err := a.Registry.Open(a.Source, a.env())
	if err != nil {
		return nil, "", err
	}
	for asked := 0; ; asked++ {
		found, err := a.glance(ctx, provider, patient)
		switch {
		case ctx.Err() != nil:
			return nil, "", context.Cause(ctx)
		case err != nil:
			a.differs(err)
			return nil, ", DNS not used", nil
		}
		plan, err := seed.New(a.spec(found))
		if err != nil {
			return nil, "", err
		}
		c := state.Compare(plan)
		if c.SameMember {
			a.compare(c, state, plan)
			return &found, "", nil
		}
		if ttl := discovery.MaxTTL(found.Peers); asked == 0 && ttl > 0 {
			a.Log.Info("the records name another member for this address: asking again once their TTL has passed", zap.Duration("ttl", ttl),
				zap.String("stored", c.StoredSelf.Name), zap.String("discovered", c.Wanted.Name))
			err := a.pause(ctx, max(ttl, minRecheck), Wait{For: "stale records to expire", Cause: "the records name " + c.Wanted.Name + " for this address, the data are " + c.StoredSelf.Name + "'s"})
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return nil, "", err
			}
			if err == nil {
				continue
			}
		}
		return nil, "", a.foreign(state, c, plan)
	}
}

// glance asks briefly: once, or, with patience, until the budget is used up
// where a part of the set is there already and this node is not in it. On
// Kubernetes a pod that starts is older than its own record by a second.
func (a *agent) glance(ctx context.Context, provider discovery.Provider, patient bool) (Found, error) {
	defer a.span("discover")()
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
	return a.match(peers)
}

// differs says why discovery had no word in this restart.
func (a *agent) differs(err error) {
	var e *discovery.Error
	if errors.As(err, &e) && (e.Kind == discovery.NotSelf || e.Kind == discovery.Unusable) {
		a.warn("discovery does not agree with the data that are here, which are kept: " + err.Error())
		return
	}
	a.Log.Info("discovery gave no answer in time; a restart does not need it", zap.String("seen", err.Error()))
}

// compare reports every other difference: a running cluster owns its membership.
func (a *agent) compare(c seed.Comparison, state *seed.State, plan *seed.Plan) {
	if state.Self.IsLearner {
		return
	}
	if len(c.Added)+len(c.Removed) > 0 {
		a.warn(fmt.Sprintf("stored %d members, discovered %d: %s; the stored value is used, a running cluster changes its members by member add (--learner) and member remove",
			len(state.Members), len(plan.Members), diff(c)))
		return
	}
	if c.ClusterDiffers {
		a.warn("the configuration (token " + a.Etcd.Token() + ") would give cluster ID " + plan.ClusterID.String() + ", the data are of cluster " + state.ClusterID.String() + ": the stored value is used")
	}
	stored := etcdconf.Stored{Name: state.Self.Name, PeerURLs: state.Self.PeerURLs, ClientURLs: state.Self.ClientURLs, Members: confPeers(state.Members)}
	for _, d := range a.Etcd.Differences(stored) {
		a.warn(d.String())
	}
}

// confPeers are members as etcd's initial-cluster would list them.
func confPeers(members []seed.Member) []etcdconf.Peer {
	var peers []etcdconf.Peer
	for _, m := range members {
		peers = append(peers, etcdconf.Peer{Name: m.Name, URLs: m.PeerURLs})
	}
	return peers
}

func diff(c seed.Comparison) string {
	var parts []string
	for _, m := range c.Removed {
		parts = append(parts, "-"+m.Name+"="+strings.Join(m.PeerURLs, ","))
	}
	for _, m := range c.Added {
		parts = append(parts, "+"+m.Name+"="+strings.Join(m.PeerURLs, ","))
	}
	return strings.Join(parts, " ")
}

// foreign is the refusal for another member's data.
func (a *agent) foreign(state *seed.State, c seed.Comparison, plan *seed.Plan) error {
	if state.PackageDefault {
		return packageDefault(state, len(plan.Members))
	}
	stored, wanted := strings.Join(c.StoredSelf.PeerURLs, ","), strings.Join(c.Wanted.PeerURLs, ",")
	msg := fmt.Sprintf("volume %s belongs to %s at %s of cluster %s, this node is %s at %s (expected cluster %s): nothing was changed; ",
		a.Etcd.DataDir, describe(c.StoredSelf.Name, state.MemberID), stored, state.ClusterID, describe(c.Wanted.Name, plan.MemberID), wanted, plan.ClusterID)
	if c.StoredSelf.Name == c.Wanted.Name {
		msg += "if this member's address has changed, tell the running cluster: etcdctl member update " + state.MemberID.String() + " --peer-urls=" + wanted +
			"; if the volume (PVC) is left from an earlier cluster, use a fresh one"
	} else {
		msg += "attach the volume (PVC) of " + c.Wanted.Name + ", or give this node the address of " + c.StoredSelf.Name
	}
	return &Error{Kind: Foreign, Msg: msg}
}

// result is what the run came to, from the state on disk or from the plan.
func (a *agent) result(action Action, plan *seed.Plan, state *seed.State) *Result {
	r := &Result{Action: action, DataDir: a.Etcd.DataDir, WALDir: a.Etcd.WALDir, Plan: plan, Warnings: a.warnings, Spans: a.spans}
	if state != nil {
		r.ClusterID, r.MemberID, r.Name, r.Members = state.ClusterID.String(), state.MemberID.String(), state.Self.Name, state.Members
	} else {
		r.ClusterID, r.MemberID, r.Name, r.Members = plan.ClusterID.String(), plan.MemberID.String(), plan.Self.Name, plan.Members
	}
	r.Message = string(action) + " " + r.Name + " (ID " + r.MemberID + ") of cluster " + r.ClusterID + " in " + r.DataDir
	return r
}
