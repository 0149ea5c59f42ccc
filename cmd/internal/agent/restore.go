package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/seed"
)

// Restore is the snapshot that a birth begins with.
type Restore struct {
	Snapshot seed.Snapshot
	// Bump is added to the latest revision, and all up to there compacted; 0 leaves the
	// revisions as they are.
	Bump uint64
}

// restoring: a birth here would need the snapshot, and it is not staged.
func (a *agent) restoring() bool {
	return a.Restore != nil && isEmpty(a.disk) && (a.staged == nil || !a.staged.There())
}

// withContent is a plan with what the members are born with.
func (a *agent) withContent(plan *seed.Plan) (*seed.Plan, error) {
	switch {
	case a.Restore == nil:
		return plan, nil
	case a.restoring():
		return plan.Staging(a.Restore.Snapshot.Name), nil
	}
	return plan.Restoring(a.staged, a.Restore.Bump)
}

// contentWords says what a plan's members are born with, for the other members; "" for
// nothing.
func contentWords(plan *seed.Plan) string {
	r := plan.Restored
	switch {
	case r == nil:
		return ""
	case r.SHA256 == "":
		return "a snapshot that it has not read yet"
	}
	text := "the snapshot with SHA-256 " + r.SHA256
	if r.Bump > 0 {
		text += " and " + strconv.FormatUint(r.Bump, 10) + " more revisions"
	}
	return text
}

// stageSnapshot reads the snapshot into a staging directory beside the data. The peers
// are answered meanwhile; nobody agrees to a plan whose snapshot is not known.
func (a *agent) stageSnapshot(ctx context.Context) error {
	defer a.span("snapshot")()
	s := a.Restore.Snapshot
	pace := NewPace()
	s.Progress = func(read, size int64) {
		text, due := pace.Words(read, size)
		if !due {
			return
		}
		a.tellWait(ctx, progressEvery, Wait{For: "the snapshot " + s.Name, Cause: text})
		if a.barrier != nil {
			a.barrier.Tell("a snapshot that it is still reading (" + text + ")")
		}
	}
	spec := seed.Spec{DataDir: a.Etcd.DataDir, WALDir: a.Etcd.WALDir, Owner: a.Owner}
	staged, err := seed.Stage(ctx, spec, s, a.Log)
	var invalid *seed.Error
	switch {
	case err == nil:
	case ctx.Err() != nil && exit.Refusal(err) == nil && expired(ctx):
		return &exit.Error{Status: exit.Incomplete, Reason: "snapshot-incomplete", Msg: context.Cause(ctx).Error() + " while the snapshot " + s.Name + " was read (" + pace.last + "); nothing is committed"}
	case ctx.Err() != nil && exit.Refusal(err) == nil:
		return a.interrupted(context.Cause(ctx))
	case meanwhile(err):
		if err = a.changed(); err != nil {
			return err
		}
		return a.restart()
	case errors.As(err, &invalid) && invalid.Kind == seed.Invalid:
		return &exit.Error{Status: exit.Unusable, Reason: "snapshot-unusable", Msg: invalid.Msg + "; nothing was seeded in " + a.Etcd.DataDir, Err: invalid.Err}
	default:
		return err
	}
	if err = a.suits(staged); err != nil {
		return err
	}
	a.staged = staged
	if err = a.changed(); err != nil { // the directory itself may be new
		return err
	}
	if !isEmpty(a.disk) {
		return a.restart()
	}
	plan, err := a.planFor(*a.found)
	if err != nil {
		return err
	}
	a.Log.Info("the snapshot is here: waiting for all members to have the same one", zap.String("snapshot", staged.Source), zap.String("sha256", staged.SHA256),
		zap.Int64("bytes", staged.Size), zap.Int64("revision", staged.Revision), zap.String("version", staged.Version), zap.Duration("took", time.Since(pace.began).Round(time.Millisecond)))
	a.plan, a.asked, a.pause = plan, false, 0
	if a.barrier != nil {
		a.barrier.Replan(meetingPlan(plan))
	}
	return nil
}

// suits refuses what the etcd that is going to run here could not read: what is newer,
// and what is two minors older (etcd itself upgrades from one to the next).
func (a *agent) suits(s *seed.Staged) error {
	minor, known := minorOf(a.EtcdVersion)
	have, ok := minorOf(s.Version)
	switch {
	case !ok:
		a.warn(s.Source + " does not say which etcd it was taken of: it must be one that the etcd here can read")
		return nil
	case !known:
		a.warn(fmt.Sprintf("%s was taken of etcd 3.%d; which etcd is going to run here is not known (--etcd-version): it must be 3.%d or 3.%d", s.Source, have, have, have+1))
		return nil
	case have > minor:
		return &exit.Error{Status: exit.Config, Reason: "snapshot-version", Msg: fmt.Sprintf("%s was taken of etcd 3.%d, and etcd %s is going to run here: it does not read what is newer; use etcd 3.%d or 3.%d", s.Source, have, a.EtcdVersion, have, have+1)}
	case have+1 < minor:
		return &exit.Error{Status: exit.Config, Reason: "snapshot-version", Msg: fmt.Sprintf("%s was taken of etcd 3.%d, and etcd %s is going to run here: etcd upgrades from one minor to the next; restore with etcd 3.%d or 3.%d, then upgrade", s.Source, have, a.EtcdVersion, have, have+1)}
	}
	return nil
}

// minorOf reads the 6 of 3.6.16.
func minorOf(version string) (minor int, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(version, "v"), "3.")
	if !ok {
		return 0, false
	}
	text, _, _ := strings.Cut(rest, ".")
	minor, err := strconv.Atoi(text)
	return minor, err == nil
}

// restored tells, once, of a birth that has a snapshot's content: volumes that are not
// there one day must not bring back old data in silence.
func (a *agent) restored() {
	r := a.state.Record
	switch {
	case a.seeded && r != nil && r.Restored != nil:
		text := "born with the content of the snapshot " + r.Restored.String()
		if !r.Restored.Modified.IsZero() {
			text += " (" + age(time.Since(r.Restored.Modified)) + " old)"
		}
		a.warn(text)
	case a.Restore != nil && !a.seeded:
		a.Log.Info("the data that are here are kept: a snapshot is restored only where all members' disks are empty", zap.String("snapshot", a.Restore.Snapshot.Name))
	}
}

// age is a duration as people say it.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return strconv.Itoa(int(d.Hours()/24)) + " days"
	case d >= 2*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " hours"
	case d >= 2*time.Minute:
		return strconv.Itoa(int(d.Minutes())) + " minutes"
	}
	return strconv.Itoa(int(max(d, 0).Seconds())) + " seconds"
}

// progressEvery is how often the progress of a long read is told.
const progressEvery = 500 * time.Millisecond

// Pace is how fast something is read.
type Pace struct {
	began, told time.Time
	last        string
}

// NewPace begins now.
func NewPace() *Pace { return &Pace{began: time.Now()} }

// Words says how far it is: "120 of 1250 MB, 85 MB/s, 13s left". due is set twice a
// second. A size of -1 is not known.
func (p *Pace) Words(read, size int64) (text string, due bool) {
	now := time.Now()
	if now.Sub(p.told) < progressEvery {
		return p.last, false
	}
	p.told = now
	const mb = 1e6
	rate := float64(read) / max(time.Since(p.began).Seconds(), 1e-3)
	p.last = fmt.Sprintf("%.0f MB, %.0f MB/s", float64(read)/mb, rate/mb)
	if size > 0 && rate > 0 {
		left := time.Duration(float64(size-read) / rate * float64(time.Second)).Round(time.Second)
		p.last = fmt.Sprintf("%.0f of %.0f MB, %.0f MB/s, %s left", float64(read)/mb, float64(size)/mb, rate/mb, left)
	}
	return p.last, true
}
