package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/seed"
)

const (
	// feedTries is how often an image is read anew whose term may not be its index's, or
	// that does not know this member yet.
	feedTries = 3
	// smallDB is a database that is read faster than anything changes, in bytes.
	smallDB = 64 << 20
	// leaderDB is how large a database may be that the leader itself is asked for, where
	// nobody else can give it: beyond, it can as well send it as it does to any joiner.
	leaderDB = 100 << 20
	// maxTail is how many entries may come while a database is read and opened. etcd 3.6
	// keeps 5000 in the leader's log.
	maxTail = 4000
	// lateTail is that number once the database is here.
	lateTail = 4500
	// bootTimeGB is how long etcd takes to open a database, for each gigabyte.
	bootTimeGB = 3 * time.Second
)

// feeder is a member whose database is read.
type feeder interface {
	Status(ctx context.Context, endpoint string) (admit.Status, error)
	Snapshot(ctx context.Context) (io.ReadCloser, error)
}

// Giver is a member that may give its database to a joining one.
type Giver struct {
	ID       types.ID
	Endpoint string
	Status   admit.Status
}

// NoGiverError says why a joining member is not fed; it comes in all the same, and the leader
// sends it everything.
type NoGiverError string

func (n NoGiverError) Error() string { return string(n) }

// chooseGiver takes the follower that has applied most, of those that are well and follow
// one leader; the leader only where nobody else is, and its database is small.
func chooseGiver(givers []Giver, etcdHere string) (Giver, error) {
	var best *Giver
	var leader *Giver
	for i := range givers {
		g := &givers[i]
		switch {
		case len(g.Status.Errors) > 0 || g.Status.IsLearner || g.Status.Leader == 0:
		case !feedsFrom(g.Status.Version):
			return Giver{}, NoGiverError("etcd " + g.Status.Version + " runs at " + g.Endpoint + ": 3.5.6 is the first that gives a whole image")
		case g.Status.Leader == g.ID:
			leader = g
		case best == nil || g.Status.Applied > best.Status.Applied:
			best = g
		}
	}
	if minor, known := minorOf(etcdHere); known && minor < 5 {
		return Giver{}, NoGiverError("etcd " + etcdHere + " is going to run here: 3.5 is the first that starts from another member's image")
	}
	switch {
	case best != nil:
		return *best, nil
	case leader == nil:
		return Giver{}, NoGiverError("no member is well enough to give its database")
	case leader.Status.DBSize > leaderDB:
		return Giver{}, NoGiverError(fmt.Sprintf("only the leader could give its database of %d MB, and it may as well send it by itself", leader.Status.DBSize/1e6))
	}
	return *leader, nil
}

// feedsFrom: an image of etcd before 3.5.6 may have a wrong index, and one of 3.4 has no term.
func feedsFrom(version string) bool {
	var major, minor, patch int
	if n, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil || n != 3 {
		return false
	}
	return major == 3 && (minor > 5 || minor == 5 && patch >= 6)
}

// tail predicts how many entries come while the rest of a database is read and opened.
func tail(rate float64, size, read int64, took time.Duration) float64 {
	if read <= 0 || took <= 0 {
		return 0
	}
	whole := time.Duration(float64(took) * float64(max(size, read)) / float64(read))
	return rate * (whole + time.Duration(float64(bootTimeGB)*float64(size)/1e9)).Seconds()
}

// feed reads the database of a follower and puts it into the seed, so that the leader
// sends only what came after it. Whatever does not go well ends in the seed as it is, with
// one line that says why: the leader sends everything then. Only a disk that has no room
// for the database is refused: it would have none for the leader's either.
func (a *agent) feed(ctx context.Context) error {
	if !a.ready() {
		return nil
	}
	defer a.span("feed")()
	a.fed = true
	began := time.Now()
	giver, err := a.takeIn(ctx)
	if _, uerr := seed.Unstage(a.Etcd.DataDir, a.Etcd.WALDir); uerr != nil {
		a.Log.Debug("what was read is still there", zap.Error(uerr))
	}
	var full *seed.Error
	switch {
	case err == nil:
		a.Log.Info("fed: the database came from another member than the leader", zap.String("from", giver.ID.String()), zap.String("at", giver.Endpoint),
			zap.Int64("bytes", giver.Status.DBSize), zap.Duration("took", time.Since(began).Round(time.Millisecond)))
	case ctx.Err() != nil && !expired(ctx):
		return a.over(ctx)
	case errors.As(err, &full) && full.Kind == seed.Write:
		return err
	case meanwhile(err):
	default:
		a.Log.Info("not fed: the leader sends the whole database", zap.String("why", err.Error()))
	}
	return a.changed()
}

// takeIn chooses a member and reads its database. It returns once the seed has it.
func (a *agent) takeIn(ctx context.Context) (Giver, error) {
	if a.Etcd.WALDir != "" {
		return Giver{}, NoGiverError("with a separate wal-dir a seed cannot be replaced in one step")
	}
	c := &a.cluster
	var givers []Giver
	for _, m := range c.list.Voters() {
		s, err := c.link.StatusOf(ctx, m)
		if err != nil || len(m.ClientURLs) == 0 {
			continue
		}
		givers = append(givers, Giver{m.ID, m.ClientURLs[0], s})
	}
	giver, err := chooseGiver(givers, a.EtcdVersion)
	if err != nil {
		return giver, err
	}
	link, err := a.Admit([]string{giver.Endpoint}, a.lookout.book.dial)
	if err != nil {
		return giver, err
	}
	defer func() { _ = link.Close() }() //nolint:errcheck // nothing was changed
	source, ok := link.(feeder)
	if !ok {
		return giver, NoGiverError("this client reads no database")
	}
	spec := seed.Spec{DataDir: a.Etcd.DataDir, WALDir: a.Etcd.WALDir, Token: a.Etcd.Token(), Owner: a.Owner}
	r := reader{link: source, giver: giver, spec: spec, log: a.Log, tell: func(w Wait) { a.tellWait(ctx, progressEvery, w) }, over: true}
	for range feedTries {
		var staged *seed.Staged
		if staged, err = r.read(ctx); err != nil {
			return giver, err
		}
		var plan *seed.Plan
		if plan, err = a.fedPlan(spec, staged); err == nil {
			return giver, plan.Replace(ctx, a.Log)
		}
		if !meanwhile(err) { // else it does not know this member yet: a later one does
			return giver, err
		}
		if cause := a.sleep(ctx, minRecheck, Wait{For: "a member to have heard of this one", Cause: err.Error()}); cause != nil {
			return giver, cause
		}
	}
	return giver, err
}

// fedPlan is the plan of the seed that is here, with what was read.
func (a *agent) fedPlan(spec seed.Spec, staged *seed.Staged) (*seed.Plan, error) {
	r := a.state.Record
	plan, err := seed.NewJoiner(spec, seed.Joined{ClusterID: r.ClusterID, Members: r.Members, Self: seed.Member{
		ID: r.MemberID, Name: r.Name, PeerURLs: r.PeerURLs, ClientURLs: r.ClientURLs, IsLearner: true,
	}})
	if err != nil {
		return nil, err
	}
	return plan.Fed(staged)
}

// reader reads the database of one member.
type reader struct {
	link  feeder
	giver Giver
	spec  seed.Spec
	log   *zap.Logger
	tell  func(Wait)
	over  bool // beside the pending seed of a joining member
	slow  bool // however long it takes: nothing is written meanwhile
}

// read stages the member's database. Index and term are two values that etcd stores one
// after the other: an image may pair a new index with an old term, and a member that starts
// from it accepts nothing. Terms only rise along the log, so a term that was the member's
// own before and after the read is the right one.
func (r *reader) read(ctx context.Context) (*seed.Staged, error) {
	var seen string
	for range feedTries {
		before, rate, err := r.pace(ctx)
		if err != nil {
			return nil, err
		}
		staged, err := r.stage(ctx, before, rate)
		if err != nil {
			return nil, err
		}
		after, err := r.link.Status(ctx, r.giver.Endpoint)
		if err != nil {
			return nil, err
		}
		if before.Term == after.Term && staged.Term == after.Term {
			if behind := after.Applied - min(after.Applied, staged.Index); !r.slow && behind > lateTail {
				return nil, NoGiverError(fmt.Sprintf("%d entries came while the database was read: the leader would send it anew", behind))
			}
			return staged, nil
		}
		seen = fmt.Sprintf("term %d before, %d in the image, %d after", before.Term, staged.Term, after.Term)
		r.log.Info("the image is of a moment in which the leader changed: reading it again", zap.String("seen", seen))
		if _, err := seed.Unstage(r.spec.DataDir, r.spec.WALDir); err != nil {
			return nil, err
		}
	}
	return nil, &exit.Error{Status: exit.Disagree, Reason: "term-changes", Msg: "the term of " + r.giver.Endpoint + " changed in each of three reads of its database (" + seen + ")"}
}

// pace asks the member, twice where its database is large: how many entries come a second.
func (r *reader) pace(ctx context.Context) (admit.Status, float64, error) {
	first, err := r.link.Status(ctx, r.giver.Endpoint)
	if err != nil || r.slow || first.DBSize <= smallDB {
		return first, 0, err
	}
	began := time.Now()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return first, 0, context.Cause(ctx)
	}
	second, err := r.link.Status(ctx, r.giver.Endpoint)
	return second, float64(second.Applied-min(second.Applied, first.Applied)) / time.Since(began).Seconds(), err
}

func (r *reader) stage(ctx context.Context, status admit.Status, rate float64) (*seed.Staged, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pace, began := NewPace(), time.Now()
	return seed.Stage(ctx, r.spec, seed.Snapshot{
		Name: "the database of " + r.giver.ID.String() + " at " + r.giver.Endpoint, Whole: true, Over: r.over, Room: status.DBSize,
		Open: func(ctx context.Context) (io.ReadCloser, int64, time.Time, error) {
			body, err := r.link.Snapshot(ctx)
			return body, -1, time.Time{}, err
		},
		Progress: func(read, _ int64) {
			if n := tail(rate, status.DBSize, read, time.Since(began)); n > maxTail && read >= smallDB {
				cancel(NoGiverError(fmt.Sprintf("some %.0f entries would come while %d MB are read and opened (%.0f a second), and the leader keeps 5000", n, status.DBSize/1e6, rate)))
			}
			if text, due := pace.Words(read, status.DBSize); due && r.tell != nil {
				r.tell(Wait{For: "the database of a member", Cause: text})
			}
		},
	}, r.log)
}
