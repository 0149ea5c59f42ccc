package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/seed"
)

// observe looks at everything that may have changed: the directory, the
// records, the peers. It writes nothing.
func (a *agent) observe(ctx context.Context) error {
	if err := a.lookAtDisk(); err != nil {
		return err
	}
	if err := a.takeRecords(); err != nil {
		return err
	}
	if a.barrier == nil || a.records == RecordsUnasked && a.disk != DiskReleased && !isEmpty(a.disk) {
		return nil
	}
	a.began = bootTime()
	round, cancel := a.lookout.bounded(ctx)
	view := a.barrier.Round(round)
	cancel()
	switch {
	case ctx.Err() != nil && !expired(ctx):
		return a.over(ctx)
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the time is up: a round that was cut off says nothing
	}
	a.view, a.asked = view, view.Fresh
	a.certificates()
	a.askRecords()
	return nil
}

func isEmpty(d Disk) bool { return d == DiskEmpty || d == DiskPrepared }

// lookAtDisk examines the directory at the first look, and again whenever it is
// not what it was.
func (a *agent) lookAtDisk() error {
	if a.state != nil && a.still() {
		return nil
	}
	defer a.span("inspect")()
	state, err := seed.Inspect(a.Etcd.DataDir, a.Etcd.WALDir)
	if err != nil {
		return err
	}
	first := a.state == nil
	a.released = false // what this run has released is not there any more
	a.take(state)
	a.notice(state)
	if first {
		return nil
	}
	a.Log.Warn("the data directory has changed: deciding anew", zap.String("dir", state.DataDir), zap.String("now", a.disk.String()))
	return a.restart()
}

// restart forgets what was decided for another directory, and answers nobody
// until there is something to say again.
func (a *agent) restart() error {
	a.seeded = a.seeded && a.plan != nil && a.state.ClusterID == a.plan.ClusterID
	a.asked, a.view, a.records, a.remark, a.proof = false, rendezvous.View{}, RecordsUnasked, "", pendingProof{}
	a.cluster.forget()
	if a.stored || !isEmpty(a.disk) {
		a.plan = nil
	}
	if a.barrier == nil {
		return nil
	}
	err := a.barrier.Close()
	a.barrier = nil
	return err
}

// still reports whether the directory is what it was at the last examination. It
// costs a handful of system calls and is asked before each answer and each step.
func (a *agent) still() bool {
	sight, err := seed.Look(a.Etcd.DataDir, a.Etcd.WALDir)
	last := a.sight.Load()
	return err == nil && last != nil && sight == *last
}

// take makes a state of the directory the one that everything is held against.
func (a *agent) take(state *seed.State) {
	a.state, a.disk = state, a.means(state)
	a.sight.Store(&state.Sight)
}

// changed takes note of what this agent itself has made of the directory.
func (a *agent) changed() error {
	state, err := seed.Inspect(a.Etcd.DataDir, a.Etcd.WALDir)
	if err != nil {
		return err
	}
	a.take(state)
	a.asked, a.cluster.says.Asked = false, false
	return nil
}

// means tells what a directory means for a decision.
func (a *agent) means(s *seed.State) Disk {
	switch {
	case s.Kind == seed.Empty && s.DiskID != "":
		return DiskPrepared
	case s.Kind == seed.Empty:
		return DiskEmpty
	case s.Kind != seed.Valid:
		return DiskDamaged
	case slices.Contains(s.Removed, s.MemberID):
		return DiskRemoved
	case s.Self == nil:
		return DiskUnnamed
	case s.PackageDefault && a.Size > 1:
		return DiskPackage
	case !s.Pending && a.released:
		return DiskReleased
	case s.Pristine && s.Record != nil && s.Record.Kind == seed.RecordJoin: // also released, and never started
		return DiskJoining
	case !s.Pending:
		return DiskOurs
	case !s.Pristine:
		return DiskUsed
	case s.Record == nil && !a.madeFor(s):
		return DiskOtherToken
	case s.Record == nil:
		return DiskFirst
	case s.Record.Token != a.Etcd.Token():
		return DiskOtherToken
	}
	return DiskPending
}

// madeFor reports whether a seed of the first edition is one for this token: it
// has no record, but its cluster ID is the one that etcd computes.
func (a *agent) madeFor(s *seed.State) bool {
	plan, err := seed.New(seed.Spec{
		DataDir: a.Etcd.DataDir, WALDir: a.Etcd.WALDir, Token: a.Etcd.Token(), Members: s.Members,
		Self: s.Self.Name, MaxLearners: a.Etcd.MaxLearners, Owner: a.Owner,
	})
	return err == nil && plan.ClusterID == s.ClusterID
}

// planOf is what a directory with data says of its cluster, as a plan. Nothing is
// checked: what stock etcd has stored need not be what a birth may have.
func (a *agent) planOf(s *seed.State) *seed.Plan {
	return &seed.Plan{
		ClusterID: s.ClusterID, MemberID: s.MemberID, Self: *s.Self, Members: s.Members, Token: a.storedToken(),
		DataDir: s.DataDir, WALDir: s.WALDir,
	}
}

func (d Disk) String() string {
	return [...]string{
		"empty", "empty, with a disk ID", "seeded and not released", "seeded by an earlier version and not released", "seeded to join a running cluster", "released",
		"not released, but an etcd has run on it", "a member's data", "a member's data without its name", "a removed member's data",
		"a package's own cluster", "seeded for another token and not released", "damaged",
	}[d]
}

// sweep removes what a killed run of ours left behind, or finishes it.
func (a *agent) sweep() error {
	if a.dry {
		return nil
	}
	removed, err := seed.Clean(a.Etcd.DataDir, a.Etcd.WALDir)
	if err != nil {
		return err
	}
	if a.Restore == nil {
		staged, err := seed.Unstage(a.Etcd.DataDir, a.Etcd.WALDir)
		if err != nil {
			return err
		}
		removed = append(removed, staged...)
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
	if s.LogAlone {
		a.warn(s.DataDir + " has a whole log and no database: it is kept, and etcd makes the database anew from the log")
	}
	if s.Unused != "" {
		a.warn(s.Unused + " was made by an etcd that was started too early, and was never used: it counts as empty, and is moved aside before the seed")
	}
	if s.RecordProblem != "" {
		a.warn(s.RecordProblem)
	}
}

// certificates tells each finding about a peer's certificate once.
func (a *agent) certificates() {
	for i := range a.view.Peers {
		p := &a.view.Peers[i]
		for _, finding := range p.Last.Certs {
			a.warn("peer " + p.Member.Name + " at " + p.Last.URL + ": " + finding)
		}
		if p.Last.Trust == rendezvous.RefusesMine {
			a.warn("peer " + p.Member.Name + " at " + p.Last.URL + " refuses this node's certificate: " + p.Last.Detail)
		}
		if p.Refused != "" {
			a.warn("peer " + p.Member.Name + " calls with a certificate that etcd refuses: " + p.Refused)
		}
	}
}

// oldRound is when a round is too old to act on: it takes rendezvous.RoundTime
// itself where a peer is silent.
const oldRound = rendezvous.RoundTime + time.Second

// stale reports that the last round began too long ago to act on: the process
// may have slept in between. The round is made again then.
func (a *agent) stale() bool {
	return a.barrier != nil && bootTime()-a.began > oldRound
}

// ready reports whether a step may be made now: the directory is still what the
// decision was made for, and the round is not old. If not, the loop looks again.
func (a *agent) ready() bool { return !a.stale() && a.still() }

// committed says what an interrupted run leaves behind.
func (a *agent) committed() string {
	switch {
	case a.disk == DiskPending || a.disk == DiskFirst || a.disk == DiskJoining:
		return "the seed in " + a.Etcd.DataDir + " stays, not released: the next run goes on from there"
	case a.seeded:
		return "the seed in " + a.Etcd.DataDir + " is complete"
	case a.disk == DiskPrepared:
		return "no member data was written"
	}
	return "nothing was written"
}

// broken is the refusal for a directory that is not valid.
func broken(s *seed.State) error {
	if s.Misplaced {
		return &exit.Error{Status: exit.Damaged, Reason: "misplaced", Msg: s.Reason + "; nothing was changed: is the volume mounted, and do data-dir and wal-dir name the right paths?"}
	}
	advice := "; nothing was changed"
	if s.LogLost {
		advice += ": keep it for a look, move it aside, then remove and re-add this member (a member that lost its log must not come back under its old ID)"
	}
	return &exit.Error{Status: exit.Damaged, Reason: "damaged", Msg: "data directory is not valid: " + s.Reason + advice}
}
