package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/internal/birth"
	"github.com/etcdinit/etcdinit/seed"
)

// farewellTime is how long a released agent goes on answering at the most.
const farewellTime = time.Second

// prepare gives the disk its ID, durably, before any peer hears of it.
func (a *agent) prepare() error {
	if !a.ready() {
		return nil
	}
	defer a.span("prepare")()
	err := seed.Prepare(a.spec(*a.found), a.Log)
	if err != nil && !meanwhile(err) {
		return err
	}
	if err := a.changed(); err != nil {
		return err
	}
	if a.disk != DiskPrepared {
		return a.restart() // somebody else was at work: decide anew
	}
	a.Log.Info("all members are there: the disk has its ID", zap.String("disk_id", string(a.state.DiskID)), zap.String("dir", a.state.DataDir))
	a.barrier.Prepared(a.state.DiskID)
	a.pause = 0
	return nil
}

// commit binds the disk to the roster that all propose.
func (a *agent) commit(ctx context.Context) error {
	if !a.ready() {
		return nil
	}
	roster := a.view.Roster
	if err := a.write(ctx, a.plan.Born(roster, true)); err != nil {
		return err
	}
	if a.disk != DiskPending || !a.state.Record.Roster.Equal(roster) {
		return a.restart()
	}
	a.Log.Info("committed: all members propose the same disks, waiting for the others to commit",
		zap.String("cluster_id", a.state.ClusterID.String()), zap.String("dir", a.state.DataDir))
	a.records, a.pause = RecordsMine, 0
	a.barrier.Committed(roster)
	return nil
}

// seedAlone writes a seed that nobody is waited for with.
func (a *agent) seedAlone(ctx context.Context, out Outcome) error {
	plan := a.plan
	if out.Rule == RuleNone {
		a.warn("--bootstrap-quorum=none: no peer is asked; a member that lost its disk is NOT recognised, and re-seeding it can destroy acknowledged writes")
	} else {
		disk := a.state.DiskID
		if disk == "" {
			disk = birth.NewDiskID()
		}
		plan = plan.Born(seed.Roster{{Member: plan.MemberID.String(), Disk: disk}}, false)
	}
	if err := a.write(ctx, plan); err != nil {
		return err
	}
	if a.disk != DiskOurs || a.state.ClusterID != plan.ClusterID {
		return a.restart() // somebody else was at work
	}
	a.records = RecordsMine
	return nil
}

// write makes the directory of a plan appear, and looks at what is there then.
func (a *agent) write(ctx context.Context, plan *seed.Plan) error {
	defer a.span("seed")()
	err := plan.Apply(ctx, a.Log)
	switch {
	case err == nil:
		a.plan, a.seeded = plan, true
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		if expired(ctx) {
			return a.tooLate(ctx, StepCommit)
		}
		return a.interrupted(err) // once it commits, it finishes
	case !meanwhile(err):
		return err
	}
	if err := a.changed(); err != nil {
		return err
	}
	if a.seeded && a.state.Kind != seed.Valid {
		return fmt.Errorf("the seed just written does not read back: %s", a.state.Reason)
	}
	return nil
}

// meanwhile reports an error that says that the directory is not what it was:
// then the loop looks again and decides anew.
func meanwhile(err error) bool {
	var e *seed.Error
	return errors.As(err, &e) && e.Kind == seed.Changed
}

// release removes the mark, durably, before any peer hears of it.
func (a *agent) release(out Outcome) error {
	if !a.ready() {
		return nil
	}
	defer a.span("release")()
	if err := seed.Release(a.state); err != nil {
		if meanwhile(err) {
			return a.restart()
		}
		return err
	}
	cluster := a.state.ClusterID
	a.released = true
	if err := a.changed(); err != nil {
		return err
	}
	if a.disk != DiskReleased || a.state.ClusterID != cluster {
		a.released = false
		a.take(a.state)
		return a.restart()
	}
	a.cluster.says.Asked = false
	a.Log.Info("released: etcd may start", zap.String("rule", string(out.Rule)), zap.String("dir", a.state.DataDir))
	for _, name := range a.Without {
		a.warn("released without " + name + ", which the roster leaves out: it must come in by etcdctl member remove and member add --learner")
	}
	if a.barrier != nil {
		a.barrier.Released()
	}
	return nil
}

// revoke puts the mark back: a look after the release has shown that a copy of
// this disk runs. The next run sees the mark and is refused as well.
func (a *agent) revoke(out Outcome) error {
	err := seed.Unrelease(a.state)
	return errors.Join(&exit.Error{
		Status: exit.Unsafe, Reason: "disk-copied",
		Msg: fmt.Sprintf("refusing to start etcd on %s: after the release, %s; it is marked as pending again; stop the other one, or move this directory aside",
			a.Etcd.DataDir, a.contradictionWords(out)),
	}, err)
}

// farewell goes on answering for a moment, for those that still need this agent.
func (a *agent) farewell(ctx context.Context) {
	if a.barrier == nil || a.disk != DiskReleased || a.joins() {
		return
	}
	defer a.span("farewell")()
	a.barrier.Farewell(ctx, farewellTime)
}
