package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/seed"
)

// proofTime is how far apart the two looks of a proof are.
const proofTime = time.Second

// pendingProof shows that no write can have been acknowledged under a roster:
// so many of its disks were never released that the rest is no quorum, and
// nobody of it is silent. A disk whose seed was withdrawn counts as one that is
// pending. It takes two looks, and the same runs in both.
type pendingProof struct {
	members int
	first   map[rendezvous.ID]string // the runs that answered pending at the first look
	since   time.Duration
	proven  bool
	missing string // why it does not hold, in words
}

// look takes a view in.
func (p *pendingProof) look(v *rendezvous.View, now time.Duration) {
	p.members = len(v.Plan.Members)
	runs := make(map[rendezvous.ID]string)
	p.missing = ""
	for i := range v.Peers {
		peer := &v.Peers[i]
		if v.Roster.Disk(string(peer.Member.ID)) == "" {
			continue
		}
		answer := &peer.Last.Answer
		switch peer.Now {
		case rendezvous.IsWaiting, rendezvous.IsPrepared, rendezvous.IsCommitted:
			if answer.Roster.Equal(v.Roster) || slices.Contains(answer.Withdrawn, v.ClusterID) {
				runs[peer.Member.ID] = answer.Nonce
			} // or it is on another disk: the roster's one is lost, or elsewhere
		case rendezvous.Silent, rendezvous.Unknown, rendezvous.Astray, rendezvous.Differs, rendezvous.IsReleased, rendezvous.Runs,
			rendezvous.Vague, rendezvous.Unstarted, rendezvous.Started, rendezvous.Removed, rendezvous.Mine, rendezvous.Double:
			p.missing = peer.Member.Name + " is " + peer.Now.String()
		}
	}
	// The disks that may have been released without this node's knowledge must be
	// fewer than a quorum: N-Q+1 pending ones, this one included, leave Q-1.
	need := p.members - (p.members/2 + 1) + 1
	if pending := len(runs) + 1; p.missing == "" && pending < need {
		p.missing = fmt.Sprintf("only %d of its disks answer as pending or withdrawn, %d are needed", pending, need)
	}
	switch {
	case p.missing != "" || !sameRuns(p.first, runs):
		p.first, p.since, p.proven = runs, now, false
	case now-p.since >= proofTime:
		p.proven = true
	}
	if p.missing != "" {
		p.first = nil
	}
}

func sameRuns(a, b map[rendezvous.ID]string) bool {
	if a == nil || len(a) != len(b) {
		return false
	}
	for id, run := range a {
		if b[id] != run {
			return false
		}
	}
	return true
}

// holds reports whether the proof is complete.
func (p *pendingProof) holds() bool { return p.proven && p.missing == "" }

// dead reports that a disk of the roster is not at its member's URL any more: the
// roster cannot be completed as things are.
func dead(v *rendezvous.View) bool {
	return slices.ContainsFunc(v.Peers, func(p rendezvous.PeerView) bool {
		want := v.Roster.Disk(string(p.Member.ID))
		return want != "" && p.Now.Agrees() && p.Last.Answer.Disk != want
	})
}

// pending takes the last round in for the proof, while a seed waits.
func (a *agent) pending() {
	if a.disk != DiskPending {
		return
	}
	if !dead(&a.view) {
		a.proof = pendingProof{}
		return
	}
	a.proof.look(&a.view, bootTime())
}

// Withdraw takes this member's seed back, if it is pending and no write can have
// been acknowledged under its roster. Nothing is deleted: it returns the paths
// that the seed was moved to. The next run gives the disk another ID.
func Withdraw(ctx context.Context, cfg Config) ([]string, error) {
	a := newAgent(cfg)
	a.dry = true // it answers nobody
	ctx, cancel := a.deadline(ctx)
	defer cancel()
	defer func() { _ = a.close(nil) }() //nolint:errcheck // nothing was opened but a goroutine
	if err := a.lookAtDisk(); err != nil {
		return nil, err
	}
	if a.disk != DiskPending {
		return nil, &exit.Error{Status: exit.Foreign, Reason: "not-pending", Msg: fmt.Sprintf("nothing to withdraw: %s is %s; only a seed that is bound to a roster and not released can be withdrawn", a.Etcd.DataDir, a.disk)}
	}
	if err := a.findContradiction(ctx); err != nil {
		return nil, err
	}
	if err := a.meet(ctx); err != nil {
		return nil, err
	}
	for {
		a.began = bootTime()
		a.view, a.asked = a.barrier.Round(ctx), true
		if ctx.Err() != nil {
			return nil, a.unproven(ctx)
		}
		a.proof.look(&a.view, bootTime())
		if a.proof.holds() && a.ready() {
			return seed.Withdraw(a.Etcd.DataDir, a.Etcd.WALDir, a.Log)
		}
		a.askRecords()
		if a.sleep(ctx, proofTime/4, Wait{For: "the proof that no write was acknowledged", Cause: a.proof.missing}) != nil {
			return nil, a.unproven(ctx)
		}
	}
}

// unproven is the refusal of a withdrawal.
func (a *agent) unproven(ctx context.Context) error {
	if !expired(ctx) {
		return a.over(ctx)
	}
	out := Outcome{}
	for _, p := range a.view.Peers {
		if !p.Bound {
			out.Peers = append(out.Peers, p)
		}
	}
	return &exit.Error{
		Status: exit.Disagree, Reason: "not-proven",
		Msg: fmt.Sprintf("%s: the seed in %s is not withdrawn: that no write was acknowledged under cluster %s is not proven: %s; every member of its roster must answer, and %s must run its init while you withdraw",
			context.Cause(ctx), a.Etcd.DataDir, a.state.ClusterID, strings.TrimSuffix(a.proof.missing+"; "+a.why(out), "; "), strings.Join(a.others(), ", ")),
	}
}
