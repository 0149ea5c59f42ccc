package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/seed"
)

// Promotion is what a promotion is told.
type Promotion struct {
	Etcd      *etcdconf.Config
	Endpoints []string      // client URLs of members beside those that are known; may be empty
	Wait      bool          // try until it is done
	Timeout   time.Duration // of Wait; 0: no limit
	NoVerify  bool          // do not compare the keys' hashes
	Admit     func(endpoints []string, dial rendezvous.DialFunc) (Promoter, error)
	Peers     func() (Hasher, error)
	Log       *zap.Logger
	OnWait    func(Wait)
}

// Promoter is a running cluster, as far as a promotion asks it and changes it.
type Promoter interface {
	Cluster
	promoter
}

type promoter interface {
	Promote(ctx context.Context, id types.ID) error
	Touch(ctx context.Context, m admit.Member) error
	Status(ctx context.Context, endpoint string) (admit.Status, error)
}

// Hasher asks members for the hash of their keys.
type Hasher interface {
	Hash(ctx context.Context, m admit.Member, revision int64) (admit.Hash, error)
	Close()
}

const (
	// muteTime is how long a new member may be silent on its client port, while the
	// cluster has a leader, before it gets an entry to come up with: etcd 3.6 and 3.7
	// hang after a snapshot on an idle cluster.
	muteTime = 3 * time.Second
	// maxNudges bounds the entries: an etcd that cannot start needs none.
	maxNudges = 4
	// hashTime bounds a comparison; 1.25 GB take 0.8 s.
	hashTime = time.Minute
)

// Gate is what a promotion is decided from: a learner that votes before it has
// everything can make a quorum that does not. etcd itself asks for nine tenths of
// the leader's log, so it promotes an empty one.
type Gate struct {
	Listed, Learner bool
	Answers         bool // on its own client port, as the member of this directory
	Mute            bool // it has not answered for muteTime
	Well            bool // no alarm, and the term of the leader
	Near            bool // it has applied what was committed before, but for maxLag entries
	VotersWell      bool // all of them
	Verified        bool // its keys were compared, or need not be
	Differs         bool // and are not the others'
}

// Promote is what a promotion does next.
type Promote int

const (
	// PromoteDone is nothing: it votes.
	PromoteDone Promote = iota
	// PromoteGone is to refuse: it was removed.
	PromoteGone
	// PromoteNudge is to give the cluster an entry, and to wait.
	PromoteNudge
	// PromoteWait is to look again.
	PromoteWait
	// PromoteVerify is to compare the keys.
	PromoteVerify
	// PromoteRefuse is to refuse: its data differ.
	PromoteRefuse
	// PromoteNow is to make it a voter.
	PromoteNow
)

// Next is the decision: the first line that applies.
func (g Gate) Next() Promote {
	switch {
	case !g.Listed:
		return PromoteGone
	case !g.Learner:
		return PromoteDone
	case !g.Answers && g.Mute:
		return PromoteNudge
	case !g.Answers, !g.Well, !g.Near, !g.VotersWell:
		return PromoteWait
	case !g.Verified:
		return PromoteVerify
	case g.Differs:
		return PromoteRefuse
	}
	return PromoteNow
}

// promotion is one run of Promote.
type promotion struct {
	Promotion
	id      seed.Identity
	link    Promoter
	at      []string
	list    admit.List
	mine    admit.Member
	since   time.Duration // when it was first found mute; 0: it is not
	nudges  int
	alone   bool // only this member's own etcd is asked
	why     string
	checked bool
	differs bool
}

// PromoteMember makes the learner of a data directory a voter, once that is safe. A
// member that votes already is a success. It reports whether it changed anything.
func PromoteMember(ctx context.Context, cfg Promotion) (changed bool, id seed.Identity, err error) {
	if cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.Timeout, timeoutError{cfg.Timeout})
		defer cancel()
	}
	p := &promotion{Promotion: cfg}
	if p.id, err = seed.Identify(cfg.Etcd.DataDir, cfg.Etcd.WALDir); err != nil {
		return false, p.id, err
	}
	defer p.close()
	pause := minPause
	for {
		done, changed, err := p.step(ctx)
		if done || err != nil {
			return changed, p.id, err
		}
		if !cfg.Wait {
			return false, p.id, p.notYet("")
		}
		pause = min(2*pause, time.Second)
		p.OnWait(Wait{For: "the learner to have all data", Next: pause, Cause: p.why})
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if expired(ctx) {
				return false, p.id, p.notYet(context.Cause(ctx).Error() + ": ")
			}
			return false, p.id, fmt.Errorf("%w while waiting for a promotion: %s", context.Cause(ctx), p.why)
		}
	}
}

func (p *promotion) notYet(before string) error {
	return &exit.Error{Status: exit.Disagree, Reason: "not-yet", Msg: fmt.Sprintf("%smember %s of cluster %s is not promoted yet: %s", before, p.id.MemberID, p.id.ClusterID, p.why)}
}

func (p *promotion) close() {
	if p.link != nil {
		if err := p.link.Close(); err != nil {
			p.Log.Debug("connection to the running cluster", zap.Error(err))
		}
	}
	p.link = nil
}

// step looks once and does what follows.
func (p *promotion) step(ctx context.Context) (done, changed bool, err error) {
	gate, err := p.look(ctx)
	if err != nil {
		return false, false, p.later(ctx, err)
	}
	next := gate.Next()
	p.Log.Debug("promotion", zap.Any("gate", gate), zap.String("why", p.why))
	switch next {
	case PromoteDone:
		return true, false, nil
	case PromoteGone:
		return false, false, &exit.Error{Status: exit.Unsafe, Reason: "removed", Msg: fmt.Sprintf("member %s is not listed by cluster %s (asked at %s): it was removed, and its data are of no use to the cluster any more", p.id.MemberID, p.id.ClusterID, strings.Join(p.at, ","))}
	case PromoteNudge:
		p.since, p.nudges = 0, p.nudges+1
		p.Log.Info("the new member does not come up on an idle cluster: giving it an entry", zap.String("member_id", p.id.MemberID.String()))
		return false, false, p.later(ctx, p.link.Touch(ctx, p.mine))
	case PromoteVerify:
		return false, false, p.later(ctx, p.verify(ctx))
	case PromoteRefuse:
		return false, false, p.different(ctx)
	case PromoteNow:
		if err := p.link.Promote(ctx, p.id.MemberID); err != nil {
			return false, false, p.later(ctx, err)
		}
		return true, true, nil
	case PromoteWait:
	}
	return false, false, nil
}

// later keeps what passes as the reason to wait.
func (p *promotion) later(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !expired(ctx) {
		return fmt.Errorf("%w while waiting for a promotion: %s", context.Cause(ctx), err.Error())
	}
	e, known := errors.AsType[*admit.Error](err)
	switch {
	case !known:
		return err
	case e.Reason == admit.Denied:
		return accessDenied(p.at, err)
	case !e.Passes():
		return &exit.Error{Status: exit.Unsafe, Reason: "cluster-refused", Msg: "the running cluster does not promote this member", Err: err}
	}
	p.why = err.Error()
	if e.Reason == admit.Unreachable || e.Reason == admit.NoQuorum {
		p.alone = !p.alone && len(p.list.Members) == 0 // the record's members may all be gone
		p.close()
	}
	return nil
}

// accessDenied says how to be let in.
func accessDenied(endpoints []string, err error) *exit.Error {
	return &exit.Error{Status: exit.Config, Reason: "access", Msg: "the running cluster at " + strings.Join(endpoints, ",") +
		" does not let this node in; set ETCDINIT_CACERT, ETCDINIT_CERT and ETCDINIT_KEY, or ETCDINIT_USER=name:password (a root user where auth is on)", Err: err}
}

// look fills in the gate.
func (p *promotion) look(ctx context.Context) (g Gate, err error) {
	if err = p.reach(); err != nil {
		return g, err
	}
	if p.list, err = p.link.List(ctx); err != nil {
		return g, err
	}
	if p.list.ClusterID != p.id.ClusterID {
		return g, &exit.Error{Status: exit.Unsafe, Reason: "another-cluster", Msg: fmt.Sprintf("cluster %s answers at %s, and %s is of cluster %s", p.list.ClusterID, strings.Join(p.at, ","), p.Etcd.DataDir, p.id.ClusterID)}
	}
	p.mine, g.Listed = p.list.ByID(p.id.MemberID)
	g.Learner, g.VotersWell = p.mine.IsLearner, true
	if !g.Listed || !g.Learner {
		return g, nil
	}
	var leader, follower *admit.Status
	var from admit.Member
	for _, m := range p.list.Voters() {
		s, serr := p.link.StatusOf(ctx, m)
		switch {
		case serr != nil:
			g.VotersWell, p.why = false, serr.Error()
		case len(s.Errors) > 0:
			g.VotersWell, p.why = false, m.Name+" says: "+strings.Join(s.Errors, ", ")
		case s.Leader == s.MemberID:
			leader = &s
		default:
			follower, from = &s, m
		}
		if leader != nil && follower == nil && from.ID == 0 && serr == nil {
			from = m // a cluster of one
		}
	}
	if leader == nil {
		g.VotersWell, p.why = false, "the cluster has no leader"
		return g, nil
	}
	own, err := p.own(ctx)
	if err != nil {
		now := bootTime()
		p.why, p.since = err.Error(), cmp.Or(p.since, now)
		g.Mute = p.nudges < maxNudges && now-p.since >= muteTime<<p.nudges
		return g, nil
	}
	p.since, g.Answers = 0, true
	switch g.Well, g.Near = len(own.Errors) == 0 && own.Term == leader.Term, own.Applied+maxLag >= leader.Committed; {
	case !g.Well:
		p.why = fmt.Sprintf("it is in term %d of %d, and says: %s", own.Term, leader.Term, strings.Join(own.Errors, ", "))
	case !g.Near:
		p.why = fmt.Sprintf("it has applied entry %d of %d", own.Applied, leader.Committed)
	}
	g.Verified, g.Differs = p.checked || p.NoVerify, p.differs
	return g, nil
}

// own asks the etcd of this directory, at the client URLs that it has published and
// at those that it listens on.
func (p *promotion) own(ctx context.Context) (s admit.Status, err error) {
	urls := append(slices.Clone(p.mine.ClientURLs), p.listeners()...)
	err = errors.New("it has no client URL")
	for _, u := range urls {
		if s, err = p.link.Status(ctx, u); err == nil && s.MemberID == p.id.MemberID {
			return s, nil
		}
		if err == nil {
			err = fmt.Errorf("at %s answers member %s", u, s.MemberID)
		}
	}
	return s, fmt.Errorf("its etcd does not answer yet: %w", err)
}

// listeners lists the client URLs that this member's etcd listens on, as seen from
// this host.
func (p *promotion) listeners() (urls []string) {
	for _, l := range p.Etcd.ClientListeners() {
		host := l.Host
		if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
			host = "127.0.0.1"
		}
		if !l.Unix() {
			urls = append(urls, l.URL(host))
		}
	}
	return urls
}

// reach opens the connection to every client URL of other members that is known.
func (p *promotion) reach() error {
	urls := slices.Clone(p.Endpoints)
	if r := p.id.Record; r != nil {
		for _, m := range r.Members {
			if m.ID != p.id.MemberID {
				urls = append(urls, m.ClientURLs...)
			}
		}
	}
	for _, m := range p.list.Members {
		if m.ID != p.id.MemberID && !m.IsLearner {
			urls = append(urls, m.ClientURLs...)
		}
	}
	if p.alone {
		urls = nil
	}
	if len(urls) == 0 || p.id.Record == nil || p.id.Record.Kind != seed.RecordJoin {
		// A voter knows the others; a learner does not list them.
		urls = append(urls, p.listeners()...)
	}
	slices.Sort(urls)
	urls = slices.Compact(urls)
	if p.link != nil && slices.Equal(urls, p.at) {
		return nil
	}
	p.close()
	link, err := p.Admit(urls, nil)
	if err != nil {
		return err
	}
	p.link, p.at = link, urls
	return nil
}

// verify compares the keys with those of a voter, at one revision that both have: a
// follower where there is one, since hashing costs the leader time.
func (p *promotion) verify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hashTime)
	defer cancel()
	with, theirs, err := p.comparable(ctx)
	if err != nil {
		return err
	}
	if with.ID == 0 {
		return nil
	}
	// In this order: what the voter had is what the learner must have, once it has
	// applied as much.
	own, err := p.own(ctx)
	if err == nil && own.Revision < theirs.Revision && own.Applied >= theirs.Applied {
		own, err = p.own(ctx) // its revision may have been read before its index
	}
	switch {
	case err != nil:
		return unanswered(err)
	case own.Revision < theirs.Revision && own.Applied >= theirs.Applied:
		p.checked, p.differs = true, true
		p.why = fmt.Sprintf("it has applied entry %d, as far as %s, and is at revision %d instead of %d", own.Applied, describe(with.Name, with.ID), own.Revision, theirs.Revision)
		return nil
	case own.Revision < theirs.Revision:
		p.why = fmt.Sprintf("it is at revision %d of %d", own.Revision, theirs.Revision)
		return nil
	}
	peers, err := p.Peers()
	if err != nil {
		return err
	}
	defer peers.Close()
	a, err := peers.Hash(ctx, p.mine, theirs.Revision)
	if err != nil {
		return err
	}
	b, err := peers.Hash(ctx, with, theirs.Revision)
	switch {
	case err != nil:
		return err
	case a.CompactRevision != b.CompactRevision:
		p.why = "a compaction is under way"
		return nil
	}
	p.checked, p.differs = true, a.Hash != b.Hash
	if p.differs {
		p.why = fmt.Sprintf("at revision %d the hash of its keys is %d, and that of %s is %d", theirs.Revision, a.Hash, describe(with.Name, with.ID), b.Hash)
	}
	return nil
}

func unanswered(err error) error {
	return &admit.Error{Reason: admit.Unreachable, What: "compare the keys", Err: err}
}

// comparable is a voter of this member's minor of etcd, since minors hash in different
// ways: a follower, where there is one. Without one in a cluster whose voters have all
// answered, nothing is compared.
func (p *promotion) comparable(ctx context.Context) (with admit.Member, theirs admit.Status, err error) {
	own, err := p.own(ctx)
	if err != nil {
		return with, theirs, unanswered(err)
	}
	for _, m := range p.list.Voters() {
		s, err := p.link.StatusOf(ctx, m)
		switch {
		case err != nil:
			return admit.Member{}, theirs, err
		case older(s.Version, own.Version) || older(own.Version, s.Version):
		case with.ID == 0 || theirs.Leader == theirs.MemberID:
			with, theirs = m, s
		}
	}
	if with.ID == 0 {
		p.Log.Warn("the keys are not compared: no voter runs the minor of etcd that the learner runs", zap.String("version", own.Version))
		p.checked = true
	}
	return with, theirs, nil
}

// different removes the learner, whose keys are not the others': it never voted. Its
// disk stays as it is.
func (p *promotion) different(ctx context.Context) error {
	e := &exit.Error{Status: exit.Differs, Reason: "data-differ", Msg: fmt.Sprintf("member %s of cluster %s is not promoted: %s; its data in %s stay for a look", p.id.MemberID, p.id.ClusterID, p.why, p.Etcd.DataDir)}
	if err := p.link.Remove(ctx, p.id.MemberID); err != nil {
		e.Msg += "; the learner is still listed"
		return errors.Join(e, err)
	}
	e.Msg += "; the learner was removed"
	return e
}
