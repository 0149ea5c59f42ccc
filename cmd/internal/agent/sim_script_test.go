package agent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/internal/birth"
)

// script makes moves that are written down, and ends at the first thing that is
// not as it should be.
type script struct {
	rules *rules
	w     *world
}

// failed is what a script panics with.
type failed struct{ error }

// play runs a script under the given rules.
func play(run func(*script), r *rules) (err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failed:
			err = e.error
		default:
			panic(e)
		}
	}()
	run(&script{rules: r})
	return nil
}

func (s *script) failf(format string, args ...any) {
	panic(failed{fmt.Errorf(format, args...)})
}

func (s *script) check(err error) {
	if err != nil {
		s.failf("%w\n%s", err, s.w.dump())
	}
}

// world makes the world that the script is about.
func (s *script) world(sh shape) *script {
	sh.rules = s.rules
	s.w = newWorld(sh)
	return s
}

func (s *script) trio() *script { return s.world(shape{plans: trio, hosts: []int8{0, 1, 2}}) }

// twice: host 3 is a second machine of member 0.
func (s *script) twice() *script { return s.world(shape{plans: trio, hosts: []int8{0, 1, 2, 0}}) }

func (s *script) do(ms ...move) *script {
	for i, m := range ms {
		if err := s.w.apply(m); err != nil {
			s.failf("move %d, %v: %w\n%s", i, m, err, s.w.dump())
		}
	}
	return s
}

func (s *script) boot(hosts ...int8) *script {
	for _, i := range hosts {
		s.check(s.w.boot(i))
	}
	return s
}

// round lets each of the hosts that runs an agent make a whole round, and act.
func (s *script) round(hosts ...int8) *script {
	for _, i := range hosts {
		if s.w.hosts[i].proc == agentUp {
			s.check(s.w.calmRound(i))
		}
	}
	return s
}

func (s *script) rounds(n int, hosts ...int8) *script {
	for range n {
		s.round(hosts...)
	}
	return s
}

// bind brings members 0, 1 and 2 as far as bound, none of them released.
func (s *script) bind() *script { return s.boot(0, 1, 2).bound(0, 1, 2) }

// bound lets the hosts make rounds until each of them is bound, and no more.
func (s *script) bound(hosts ...int8) *script {
	for range 6 {
		for _, i := range hosts {
			if s.disk(i).stage < sBound {
				s.round(i)
			}
		}
	}
	return s.stages(sBound, hosts...)
}

// leads makes what DNS tells the observers for a member.
func (s *script) leads(member, to int8, observers ...int8) *script {
	for _, o := range observers {
		s.w.route[o][member] = to
	}
	return s
}

func (s *script) disk(i int8) *simDisk { return &s.w.vols[s.w.hosts[i].at] }

func (s *script) stages(want stage, hosts ...int8) *script {
	for _, i := range hosts {
		if got := s.disk(i).stage; got != want {
			s.failf("host %d is %v, want %v\n%s", i, got, want, s.w.dump())
		}
	}
	return s
}

func (s *script) procs(want proc, hosts ...int8) *script {
	for _, i := range hosts {
		if got := s.w.hosts[i].proc; got != want {
			s.failf("host %d: process %v (by %q), want %v\n%s", i, got, s.w.hosts[i].last, want, s.w.dump())
		}
	}
	return s
}

// by: the last decision of a host.
func (s *script) by(i int8, want Rule) *script {
	if got := s.w.hosts[i].last; got != want {
		s.failf("host %d decided by %q, want %q\n%s", i, got, want, s.w.dump())
	}
	return s
}

func (s *script) tick(n int) *script {
	for range n {
		s.w.tick()
	}
	return s
}

// settles: once all is calm, with these hosts at their names, all are released.
func (s *script) settles(at ...int8) {
	class, err := s.w.calm(placesOf(at), 0, false)
	s.check(err)
	if class != "" {
		s.failf("calm ends with %s\n%s", class, s.w.dump())
	}
}

func placesOf(at []int8) (p places) {
	for m := range p {
		p[m] = -1
	}
	copy(p[:], at)
	return p
}

// written: 0 and 1 run and have acknowledged a write.
func (s *script) written() *script {
	s.rounds(3, 0, 1)
	s.procs(etcdUp, 0, 1)
	s.do(move{mSettle, 0, 0}, move{mSettle, 1, 0}, move{mCampaign, 0, 0}, move{mGrant, 1, 0}, move{mWrite, 0, 0}, move{mAck, 1, 0})
	if s.w.lives[s.disk(0).life-1].entries == 0 {
		s.failf("no write was acknowledged\n%s", s.w.dump())
	}
	return s
}

// firstBoot: three at once, in a handful of rounds, and nobody before all are
// bound.
func firstBoot(s *script) {
	s.trio().boot(0, 1, 2).stages(sEmpty, 0, 1, 2)
	s.round(0, 1, 2).stages(sPrepared, 0, 1, 2)
	s.round(0, 1).stages(sPrepared, 0).stages(sBound, 1)
	s.round(1).stages(sBound, 1) // it knows nothing of 2, and 0 is only prepared
	s.round(2, 1).stages(sBound, 1, 2)
	s.round(0).stages(sBound, 0).round(0, 1, 2).stages(sFree, 0, 1, 2)
	s.round(0, 1, 2).round(0, 1, 2).procs(etcdUp, 0, 1, 2)
	if s.w.nLives != 1 {
		s.failf("%d births", s.w.nLives)
	}
}

// lateThird: nothing is written before the third is there.
func lateThird(s *script) {
	s.trio().boot(0, 1).rounds(3, 0, 1).stages(sEmpty, 0, 1)
	s.boot(2).round(2).stages(sPrepared, 2).rounds(3, 0, 1, 2).stages(sFree, 0, 1, 2)
}

// crashEverywhere: a crash in every state of one member, and of all at once.
func crashEverywhere(s *script) {
	for n := range 12 {
		for _, who := range [][]int8{{0}, {1}, {2}, {0, 1, 2}} {
			s.trio().boot(0, 1, 2)
			for k := range n {
				s.round(int8(k % 3))
			}
			for _, i := range who {
				s.do(move{mCrash, i, 0})
			}
			s.settles(0, 1, 2)
			if s.w.nLives > 1 {
				s.failf("a crash after %d rounds makes another birth", n)
			}
		}
	}
}

// twoDisks: member 0's name moves from X to Y while X lives, and each of the
// others sees another one (birth.md, 1). Never are both seeded.
func twoDisks(s *script) {
	orders := [][]int8{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 2, 0, 3}, {2, 3, 1, 0}}
	for n := range 8 {
		for _, order := range orders {
			s.twice().boot(0, 1)
			s.rounds(1, 0, 1)
			s.leads(0, 3, 2, 3).boot(2, 3)
			for k := range n {
				s.round(order[k%4])
			}
			s.rounds(5, order...)
			if s.disk(0).stage >= sBound && s.disk(3).stage >= sBound && s.disk(0).life == s.disk(3).life {
				s.failf("both disks of member 0 are born under one ID\n%s", s.w.dump())
			}
			s.stages(sPrepared, 1, 2).settles(3, 1, 2)
		}
	}
}

// observers: the same as a search, with a route for each observer.
func observers(s *script) {
	s.twice()
	s.w.left = budget{route: 2}
	s.boot(0, 1, 2, 3)
	if r := explore(s.w, 3000, 16); r.err != nil {
		s.failf("%w\nby %v", r.err, shorten(s.w, r.trace))
	}
}

// survivor: 0 and 1 hold an acknowledged write, and their volumes are mounted
// just after their agents looked (birth.md, 2). 2 has lost its disk.
func survivor(s *script) {
	s.world(shape{plans: trio, hosts: []int8{0, 1, 2}, late: []int8{0, 1}})
	s.do(move{mMount, 0, 0}, move{mMount, 1, 0}).bind().written()
	s.do(move{mCrash, 0, 0}, move{mCrash, 1, 0}, move{mMount, 0, 0}, move{mMount, 1, 0}, move{mLose, 2, 0})
	s.boot(0, 1, 2).stages(sEmpty, 0, 1, 2)
	s.do(move{mMount, 0, 0}, move{mMount, 1, 0})
	s.rounds(3, 2).stages(sEmpty, 2) // what they said a moment ago is not said any more
	s.round(0).procs(etcdUp, 0)
	s.round(2).procs(refused, 2).by(2, RuleRunning)
	s.round(1).procs(etcdUp, 1)
	for _, m := range []move{{mCampaign, 1, 0}, {mGrant, 0, 1}} {
		s.do(m)
	}
}

// survivorBound: the same, but all three had got as far as a roster of the mount
// points: the new birth and the old cluster never meet.
func survivorBound(s *script) {
	s.world(shape{plans: trio, hosts: []int8{0, 1, 2}, late: []int8{0, 1}})
	s.do(move{mMount, 0, 0}, move{mMount, 1, 0}).bind().written()
	s.do(move{mCrash, 0, 0}, move{mCrash, 1, 0}, move{mMount, 0, 0}, move{mMount, 1, 0}, move{mLose, 2, 0})
	s.boot(0, 1, 2).rounds(2, 0, 1, 2)
	s.stages(sBound, 2)
	s.do(move{mMount, 0, 0}, move{mMount, 1, 0}).rounds(2, 0, 1).procs(etcdUp, 0, 1)
	s.rounds(2, 2).stages(sBound, 2).by(2, RuleOtherRuns)
}

// snapshot: the machines of 0 and 1 are taken back to the moment in which they
// were pending, with all that their agents knew (birth.md, 2).
func snapshot(s *script) {
	s.trio().bind()
	hosts, vols := s.w.hosts, s.w.vols
	s.written()
	for i := range int8(2) {
		s.w.fork(vols[i].id)
		s.w.hosts[i], s.w.vols[i] = hosts[i], vols[i]
	}
	s.do(move{mLose, 2, 0}).boot(2)
	s.rounds(4, 2, 0, 1)
	if s.disk(2).life == s.disk(0).life && s.disk(2).stage >= sBound {
		s.failf("the lost disk is born under the old ID\n%s", s.w.dump())
	}
	s.rounds(4, 2).procs(refused, 2)
}

// frozenRelease: X is frozen in its release, the others crash, and another disk
// gets X's name (birth.md, 3, and the schedule of that name).
func frozenRelease(s *script) {
	s.twice().boot(0, 1, 2).bound(0, 1, 2)
	s.w.left.slow = 1
	s.do(move{mHold, 0, 0}, move{mFreeze, 0, 0}, move{mCrash, 1, 0}, move{mCrash, 2, 0})
	s.leads(0, 3, 0, 1, 2, 3).boot(3, 1, 2).rounds(5, 3, 1, 2).tick(1).rounds(3, 3, 1, 2)
	if d := s.disk(3); d.stage > sPrepared {
		s.failf("the second disk is born\n%s", s.w.dump())
	}
	s.do(move{mThaw, 0, 0}).rounds(3, 0)
	if a, b := s.disk(0), s.disk(3); a.stage == sFree && b.stage == sFree {
		s.failf("both disks are released\n%s", s.w.dump())
	}
	s.settles(0, 1, 2)
}

// frozenCommit: while a run is frozen in its commit, a second one on the same
// disk is bound to another roster. The first finds no disk ID to rename.
func frozenCommit(s *script) {
	s.twice().boot(0, 1, 2, 3).round(0, 1, 2).round(3)
	s.w.left.slow = 1
	s.round(0).do(move{mHold, 1, 0}, move{mFreeze, 1, 0}).boot(1)
	s.leads(0, 3, 0, 1, 2, 3).bound(3, 1, 2)
	life := s.disk(1).life
	s.do(move{mThaw, 1, 0})
	if s.disk(1).life != life {
		s.failf("a disk was bound twice")
	}
	s.settles(3, 1, 2)
}

// frozenHandle: a release that was frozen takes the mark of the seed that was
// looked at, not of another one that is mounted there now.
func frozenHandle(s *script) {
	s.world(shape{plans: duo, hosts: []int8{0, 1}, late: []int8{0}}).boot(0, 1)
	s.bound(0, 1).w.left.slow = 1
	s.do(move{mHold, 0, 0}, move{mFreeze, 0, 0})
	// The real volume comes: a seed of another birth, of which 1 knows nothing.
	other := birth.Sort([]birth.Seat{{Member: "a0", Disk: "x0"}, {Member: "a1", Disk: "x1"}})
	n, err := s.w.lifeOf(0, other)
	s.check(err)
	s.w.lives[n-1].bound = 1
	s.w.vols[0] = simDisk{stage: sBound, id: "x0", walID: "x0", life: n, walLife: n, gen: s.w.vols[2].gen, term: 1}
	s.do(move{mMount, 0, 0}, move{mThaw, 0, 0}).stages(sBound, 0)
	if s.w.vols[2].stage != sFree {
		s.failf("the seed that was looked at is not released")
	}
}

// releasedLate: a release on a round that is long ago. Meanwhile a copy of the disk
// was released and has run.
func releasedLate(s *script) {
	s.twice().boot(0, 1, 2).bound(0, 1, 2)
	s.w.left.slow = 1
	s.do(move{mHold, 0, 0}, move{mTake, 0, 0}, move{mRestore, 3, 0})
	s.leads(0, 3, 0, 1, 2, 3).boot(3).rounds(3, 3, 1, 2).procs(etcdUp, 3, 1, 2).tick(4)
	s.do(move{mCampaign, 1, 0}, move{mGrant, 3, 1}, move{mAck, 3, 1}, move{mPublish, 3, 1})
	s.do(move{mAct, 0, 0}).stages(sBound, 0).round(0).stages(sBound, 0).procs(refused, 0).by(0, RuleReplaced)
}

// contradicted: the look after the release shows that a copy of the disk has
// run: the mark is back, and the next run refuses too.
func contradicted(s *script) {
	s.twice().boot(0, 1, 2).bound(0, 1, 2)
	s.w.left.slow, s.w.left.freeze = 1, 1
	s.do(move{mHold, 0, 0}, move{mTake, 0, 0}, move{mRestore, 3, 0}, move{mFreeze, 0, 0})
	s.leads(0, 3, 0, 1, 2, 3).boot(3).rounds(3, 3, 1, 2).procs(etcdUp, 3, 1, 2).tick(1)
	s.do(move{mCampaign, 1, 0}, move{mGrant, 3, 1}, move{mAck, 3, 1}, move{mPublish, 3, 1}, move{mThaw, 0, 0}).stages(sFree, 0)
	s.round(0).procs(refused, 0).stages(sBound, 0).by(0, RuleContradicted)
	s.boot(0).round(0).procs(refused, 0).by(0, RuleReplaced)
}

// twin: at my own URL, another run is bound to my roster: a copy of my disk.
func twinRuns(s *script) {
	s.twice().boot(0, 1, 2).bound(0, 1, 2)
	s.do(move{mTake, 0, 0}, move{mRestore, 3, 0}).boot(3).leads(0, 3, 0, 1, 2, 3)
	s.round(0).stages(sFree, 0).round(0).procs(refused, 0).by(0, RuleContradicted)
	// Silence refuses nobody.
	s.trio().bind().round(0).stages(sFree, 0).do(move{mCrash, 1, 0}, move{mCrash, 2, 0})
	s.leads(0, -1, 0).round(0).round(0).procs(etcdUp, 0)
}

// copyPrepared: a prepared disk is copied. Both runs have one disk ID, and the
// others see one each: nobody is bound.
func copyPrepared(s *script) {
	s.twice().boot(0, 1, 2).round(0, 1).stages(sPrepared, 0, 1)
	s.do(move{mTake, 0, 0}, move{mRestore, 3, 0}).boot(3).leads(0, 3, 2, 3)
	s.rounds(4, 0, 1, 2, 3).stages(sPrepared, 0, 1, 2, 3)
	s.leads(0, 0, 2).rounds(3, 1, 2, 0)
	s.stages(sFree, 0).procs(agentUp, 3).leads(0, 0, 3).leads(1, 1, 3)
	s.round(3).procs(refused, 3).by(3, RuleCopied)
}

// shared: one directory for two members, or a copy of one: 20.
func sharedDisk(s *script) {
	s.trio().boot(0, 1, 2).round(0, 1).do(move{mTake, 0, 0}, move{mRestore, 1, 0}).boot(1)
	s.rounds(2, 2, 1, 0).procs(refused, 1).by(1, RuleShared)
	for i := range int8(3) {
		if s.disk(i).stage > sPrepared {
			s.failf("host %d is bound\n%s", i, s.w.dump())
		}
	}
}

// early: somebody starts etcd on a pending seed. The others count it as bound,
// and come to it (rule 1).
func early(s *script) {
	for _, before := range []bool{false, true} {
		s.trio().boot(0, 1, 2).round(0, 1, 2)
		s.round(0, 1).stages(sBound, 1).stages(sPrepared, 0, 2)
		if before {
			s.rounds(1, 0, 2).stages(sBound, 0, 2)
		}
		s.do(move{mHand, 1, 0}).tick(1)
		s.rounds(2, 0, 2).tick(2).rounds(2, 0, 2).stages(sFree, 0, 2)
		if s.w.nLives != 1 {
			s.failf("%d births", s.w.nLives)
		}
	}
}

// earlyStranger: the same, but the disk is of a birth that I do not propose: 42.
func earlyStranger(s *script) {
	s.trio().bind().do(move{mLose, 0, 0}, move{mHand, 1, 0}).boot(0).round(0).procs(refused, 0).by(0, RuleRunning)
}

// ownURL: an etcd at my own URL, and my disk is empty (rule 5).
func ownURL(s *script) {
	s.twice().bind().do(move{mHand, 0, 0}).boot(3)
	s.leads(1, -1, 3).leads(2, -1, 3).round(3).procs(refused, 3).by(3, RuleOwnEtcd)
}

// withoutDiffers: members that are told to leave out different ones wait, and
// nothing is bound.
func withoutDiffers(s *script) {
	s.world(shape{plans: trio, hosts: []int8{0, 1, 2}, without: [][]string{{"m2"}, nil, nil}})
	s.boot(0, 1, 2).rounds(6, 0, 1, 2).stages(sPrepared, 0, 1, 2)
	s.world(shape{plans: trio, hosts: []int8{0, 1, 2}, without: [][]string{{"m2"}, {"m0"}, nil}})
	s.boot(0, 1, 2).rounds(6, 0, 1, 2).stages(sPrepared, 0, 1, 2)
}

// withoutSame: the roster leaves a member out even if it answers, and it is
// refused once the others are born.
func withoutSame(s *script) {
	for _, there := range []bool{false, true} {
		s.world(shape{plans: trio, hosts: []int8{0, 1, 2}, without: [][]string{{"m2"}, {"m2"}, nil}}).boot(0, 1)
		if there {
			s.boot(2).round(2)
		}
		s.rounds(4, 0, 1).stages(sFree, 0, 1)
		if len(s.w.lives[0].roster) != 2 {
			s.failf("roster %v", s.w.lives[0].roster)
		}
		if !there {
			s.boot(2)
		}
		s.round(2).procs(refused, 2).by(2, RuleBornWithout)
	}
}

// withoutSettings: more than a minority, itself, or a stranger.
func withoutSettings(s *script) {
	for _, names := range [][]string{{"m1", "m2"}, {"m0"}, {"m9"}} {
		s.world(shape{plans: trio, hosts: []int8{0, 1, 2}, without: [][]string{names, nil, nil}})
		s.boot(0).procs(refused, 0).by(0, RuleWithout)
	}
}

// firstEdition: a pending seed without a roster answers nobody, and is released
// by an etcd of its own cluster that lists it as not started.
func firstEdition(s *script) {
	s.world(shape{plans: trio, hosts: []int8{0, 1, 2}, minor: 2})
	s.w.lives[0] = simLife{cluster: "c0ffee"}
	s.w.nLives = 1
	for i := range int8(3) {
		s.w.vols[i] = simDisk{stage: sBound, first: true, life: 1, walLife: 1, term: 1}
	}
	s.boot(0, 1).rounds(3, 0, 1).stages(sBound, 0, 1)
	s.do(move{mHand, 2, 0}).round(0).stages(sBound, 0).tick(1).round(0).stages(sFree, 0).by(0, RuleUnstarted)
}

// deadRoster: a disk of the roster is lost before its owner was known to be
// bound. The seeds are withdrawn, with a proof, and there is a new birth.
func deadRoster(s *script) {
	s.trio().boot(0, 1, 2).round(0, 1, 2).round(0, 1).stages(sBound, 1).stages(sPrepared, 0, 2)
	s.round(2).stages(sBound, 2)
	s.do(move{mLose, 0, 0}).boot(0).rounds(3, 0, 1, 2).stages(sBound, 1, 2).stages(sPrepared, 0)
	s.do(move{mWithdraw, 1, 0}).stages(sBound, 1)
	s.do(move{mWithdraw, 1, 0}).stages(sBound, 1) // not a second apart
	s.tick(1).do(move{mWithdraw, 1, 0}).stages(sEmpty, 1)
	s.round(1).stages(sEmpty, 1)
	// 1 tells that its seed was taken back, so 2 is not one too few.
	s.do(move{mWithdraw, 2, 0}).tick(1).do(move{mWithdraw, 2, 0}).stages(sEmpty, 2)
	s.settles(0, 1, 2)
	s.rounds(7, 0, 1, 2).stages(sFree, 0, 1, 2)
	if s.w.nLives != 2 {
		s.failf("%d births", s.w.nLives)
	}
}

// lostAndAside: 0 has lost its disk, and somebody has moved the data of 1 aside: 1
// looks like a disk that was taken back. Both have acknowledged a write.
func (s *script) lostAndAside() {
	s.written().do(move{mCrash, 0, 0}, move{mCrash, 1, 0}, move{mLose, 0, 0}, move{mAside, 1, 0})
	s.boot(0, 1).rounds(2, 2, 0, 1).stages(sBound, 2)
	s.do(move{mWithdraw, 2, 0}).tick(1).do(move{mWithdraw, 2, 0}).stages(sBound, 2)
}

// movedNotWithdrawn: only a seed that is there with its mark was never released.
func movedNotWithdrawn(s *script) { s.trio().bind().lostAndAside() }

// withdrawnBefore: a seed of an earlier birth that was taken back says nothing of
// the birth after it.
func withdrawnBefore(s *script) {
	s.trio().bind().do(move{mLose, 0, 0}).boot(0)
	for i := int8(1); i < 3; i++ {
		s.do(move{mWithdraw, i, 0}).tick(1).do(move{mWithdraw, i, 0}).stages(sEmpty, i).round(i)
	}
	s.bound(0, 1, 2).lostAndAside()
}

// withdrawnFrozen: a run that was frozen in its release wakes when its seed was
// taken back: it takes the mark of what lies aside. Nothing runs on that, but it is
// no proof any more.
func withdrawnFrozen(s *script) {
	s.trio().bind().w.left.slow = 1
	s.do(move{mHold, 1, 0}, move{mFreeze, 1, 0}, move{mLose, 0, 0}).boot(0, 1)
	s.do(move{mWithdraw, 1, 0}).tick(1).do(move{mWithdraw, 1, 0}).stages(sEmpty, 1).round(1)
	s.do(move{mThaw, 1, 0}).stages(sEmpty, 1).do(move{mCrash, 1, 0}).boot(1)
	s.do(move{mWithdraw, 2, 0}).tick(1).do(move{mWithdraw, 2, 0}).stages(sBound, 2)
}

// withdrawnWithout: a member that the roster leaves out need not answer, and one of
// the roster that was silent for a while does not end the proof for good.
func withdrawnWithout(s *script) {
	without := []string{"m4"}
	s.world(shape{plans: fives, hosts: []int8{0, 1, 2, 3, 4}, without: [][]string{without, without, without, without, nil}})
	s.boot(0, 1, 2, 3).bound(0, 1, 2, 3).do(move{mLose, 0, 0}, move{mWithdraw, 1, 0}).tick(1).do(move{mWithdraw, 1, 0}).stages(sBound, 1)
	s.boot(0).do(move{mWithdraw, 1, 0}).stages(sBound, 1).tick(1).do(move{mWithdraw, 1, 0}).stages(sEmpty, 1)
}

// withdrawnLate: a withdrawal sleeps between its proof and its act. Where the seed
// is released by then, it stays.
func withdrawnLate(s *script) {
	for _, released := range []bool{false, true} {
		s.trio().bind().w.left.slow = 1
		s.do(move{mHold, 2, 0}, move{mLose, 0, 0}, move{mCrash, 1, 0}).boot(0, 1) // 2 has seen that all are bound
		s.do(move{mWithdraw, 1, 0}).tick(1).do(move{mWithdraw, 1, 1}).stages(sBound, 1)
		if !released {
			s.do(move{mTakeBack, 1, 0}).stages(sEmpty, 1)
			continue
		}
		s.do(move{mAct, 2, 0}).stages(sFree, 2).round(1).stages(sFree, 1)
		s.do(move{mTakeBack, 1, 0}).stages(sFree, 1)
	}
}

// noProof: a member is silent, another run answers, or one is released: nothing
// is withdrawn.
func noProof(s *script) {
	s.trio().bind().do(move{mLose, 0, 0}).boot(0).round(0)
	s.do(move{mCrash, 0, 0}, move{mWithdraw, 1, 0}).tick(1).do(move{mWithdraw, 1, 0}).stages(sBound, 1)
	s.boot(0).do(move{mWithdraw, 1, 0}).tick(1).do(move{mCrash, 2, 0}).boot(2).do(move{mWithdraw, 1, 0}).stages(sBound, 1)
	s.trio().bind().written()
	s.do(move{mWithdraw, 2, 0}).tick(1).do(move{mWithdraw, 2, 0}).stages(sBound, 2)
}

// sticky: five agents that are never all up at once after their commit. What is
// known stays known.
func sticky(s *script) {
	s.world(shape{plans: fives, hosts: []int8{0, 1, 2, 3, 4}}).boot(0, 1, 2, 3, 4).bound(0, 1, 2, 3, 4).do(move{mCrash, 0, 0})
	for i := int8(1); i < 5; i++ {
		s.do(move{mCrash, i, 0})
	}
	s.boot(0)
	for i := int8(1); i < 5; i++ { // one at a time
		s.stages(sBound, 0).boot(i).round(0).do(move{mCrash, i, 0})
	}
	s.stages(sFree, 0).by(0, RuleAllBound)
}

// anotherRoster: a peer that is bound to another roster is not bound to mine.
func anotherRoster(s *script) {
	s.trio().boot(0, 1, 2).round(0, 1, 2).round(0, 1).stages(sBound, 1).stages(sPrepared, 0, 2)
	s.do(move{mLose, 0, 0}, move{mCrash, 1, 0}) // the roster of 1 is dead
	lost := s.w.vols[1]
	s.w.vols[1] = simDisk{made: 1, gen: 2}
	s.boot(0, 1).round(0, 1, 2).round(1).bound(0, 2)
	s.do(move{mCrash, 1, 0})
	s.w.vols[1] = lost // somebody puts the old disk back
	s.boot(1).rounds(3, 1, 0, 2).stages(sBound, 0, 1, 2)
	if s.disk(1).life == s.disk(2).life {
		s.failf("the same birth\n%s", s.w.dump())
	}
}

// bootWindow: an etcd that has just started lists all as not started. Twice, in
// two windows or in one look, it proves nothing: here a copy of the disk runs.
func bootWindow(s *script) {
	s.world(shape{plans: trio, hosts: []int8{0, 1, 2, 0}, minor: 1})
	s.boot(0, 1, 2).bound(0, 1, 2)
	s.do(move{mTake, 0, 0}, move{mRestore, 3, 0}).leads(0, 3, 1, 2, 3).boot(3).rounds(3, 3, 1, 2).procs(etcdUp, 1, 2, 3).tick(1)
	s.do(move{mCampaign, 1, 0}, move{mGrant, 3, 1}, move{mAck, 3, 1}, move{mPublish, 3, 1})
	s.do(move{mCrash, 0, 0}, move{mCrash, 1, 0}, move{mCrash, 2, 0}).boot(1, 0).leads(2, -1, 0)
	s.round(0).stages(sBound, 0).do(move{mSettle, 1, 0}).round(0).procs(refused, 0).by(0, RuleReplaced)
}

// unstarted: an etcd of my cluster waits for me: in two equal lists a second
// apart, or in one in which all others have published.
func unstarted(s *script) {
	s.trio().bind().written().do(move{mCrash, 2, 0})
	s.boot(2).round(2).stages(sBound, 2).round(2).stages(sBound, 2).tick(1).round(2).stages(sFree, 2).by(2, RuleUnstarted)
	s.trio().bind().written().do(move{mPublish, 0, 0}, move{mPublish, 1, 0}, move{mCrash, 2, 0})
	s.boot(2).round(2).stages(sFree, 2).by(2, RuleUnstarted)
}

// releasedPeer: a peer that is released lets me go, whatever else I know.
func releasedPeer(s *script) {
	s.trio().bind().round(0).stages(sFree, 0).do(move{mCrash, 1, 0}, move{mCrash, 2, 0}).boot(2)
	s.round(2).stages(sFree, 2).by(2, RuleReleased)
}

// removed: an etcd of my cluster, whose members have published, does not list me.
func removedMeanwhile(s *script) {
	s.trio().bind().written().do(move{mPublish, 0, 0}, move{mPublish, 1, 0})
	s.w.vols[0].departed, s.w.vols[1].departed = 4, 4
	s.round(2).procs(refused, 2).by(2, RuleRemoved).stages(sBound, 2)
}

// anotherBirth: an etcd of another cluster than the one that my disk is bound to
// does not release me.
func anotherBirth(s *script) {
	s.twice().boot(0, 1, 2, 3).round(0, 1, 2, 3)
	s.leads(1, -1, 0).leads(0, 3, 1, 2)
	s.rounds(7, 3, 1, 2).procs(etcdUp, 1, 2)
	s.round(0)
	s.leads(1, 1, 0).round(0).procs(refused, 0).by(0, RuleRunning)
	s.trio().bind().written().do(move{mCrash, 2, 0})
	other := birth.Sort([]birth.Seat{{Member: "a0", Disk: "x0"}, {Member: "a1", Disk: "x1"}, {Member: "a2", Disk: "x2"}})
	n, err := s.w.lifeOf(0, other)
	s.check(err)
	s.w.lives[n-1].bound = 4
	s.w.vols[2] = simDisk{stage: sBound, id: "x2", walID: "x2", life: n, walLife: n, gen: 9, term: 1}
	s.boot(2).rounds(2, 2).tick(1).round(2).stages(sBound, 2).by(2, RuleOtherRuns)
}

// moves: an address moves before anything is bound, and is dialled at once.
func addressMoves(s *script) {
	s.twice().boot(1, 2, 0).rounds(2, 1, 2).do(move{mCrash, 0, 0}).boot(3)
	s.leads(0, 3, 0, 1, 2, 3).rounds(6, 3, 1, 2).tick(1).rounds(2, 3, 1, 2).stages(sFree, 3, 1, 2)
}

// planMoves: DNS changes the plan while nothing is bound.
func planMoves(s *script) {
	s.world(shape{plans: [][]int8{{0, 1, 2}, {0, 1, 3}}, hosts: []int8{0, 1, 2, 3}, views: []int8{0, 0, 0, 1}})
	s.boot(0, 1, 2, 3).round(0, 1).stages(sPrepared, 0, 1)
	s.do(move{mFlip, 0, 0}, move{mFlip, 1, 0}).rounds(5, 0, 1, 3).stages(sFree, 0, 1, 3).stages(sEmpty, 2)
}

// planFirst: one is bound while DNS tells two plans. It stays with its own.
func planBound(s *script) {
	s.world(shape{plans: [][]int8{{0, 1}, {0, 2}}, hosts: []int8{0, 1, 2}, views: []int8{0, 0, 1}})
	s.boot(0, 1, 2).round(0, 1).round(0).stages(sBound, 0)
	s.do(move{mFlip, 0, 0}, move{mCrash, 1, 0}).rounds(3, 0, 2).stages(sBound, 0)
	if s.disk(2).stage >= sBound {
		s.failf("a birth without the first\n%s", s.w.dump())
	}
	s.boot(1).rounds(3, 0, 1).stages(sFree, 0, 1)
}

// foreignPlan: the same members with another token are another plan, and a
// pending seed of the other token is refused.
func foreignPlan(s *script) {
	s.world(shape{plans: [][]int8{{0, 1, 2}, {0, 1, 2}}, hosts: []int8{0, 1, 2}, views: []int8{0, 0, 1}, token: true})
	s.boot(0, 1, 2).rounds(4, 0, 1, 2).stages(sEmpty, 0, 1, 2)
	s.world(shape{plans: [][]int8{{0, 1}, {0, 1}}, hosts: []int8{0, 1}, token: true}).boot(0, 1).rounds(2, 0, 1).stages(sBound, 1)
	s.do(move{mFlip, 1, 0}, move{mCrash, 1, 0}).boot(1).procs(refused, 1).by(1, RuleOtherToken).stages(sBound, 1)
}

// wrongHost: at a member's URL answers the agent of another one.
func wrongHost(s *script) {
	s.trio().boot(0, 1).leads(2, 1, 0).leads(2, 0, 1)
	s.rounds(6, 0, 1).stages(sEmpty, 0, 1)
}

// differentPlan: an agent with another plan does not count.
func differentPlan(s *script) {
	s.world(shape{plans: [][]int8{{0, 1, 2}, {0, 1, 3}}, hosts: []int8{0, 1, 2, 3}, views: []int8{0, 0, 0, 1}})
	s.boot(0, 1, 2, 3)
	s.round(3).stages(sEmpty, 3)
}

// torn: a run is killed after its act, before the sync; power fails after the
// next run has found it and said so.
func tornSaid(s *script) {
	two := func() { s.world(shape{plans: duo, hosts: []int8{0, 1}}).boot(0, 1).w.left = budget{slow: 9, torn: 9} }
	power := func() {
		if s.disk(0).soft {
			s.do(move{mPower, 0, 0})
		}
		s.settles(0, 1)
	}
	two() // the disk ID
	s.round(1).do(move{mHold, 0, 0}, move{mTorn, 0, 0}).stages(sPrepared, 0).boot(0)
	s.do(move{mHold, 0, 0}).round(1).stages(sBound, 1)
	power()
	two() // the seed
	s.round(0, 1).do(move{mHold, 0, 0}, move{mTorn, 0, 0}).stages(sBound, 0).boot(0).rounds(2, 1).stages(sFree, 1)
	power()
	two() // the release
	s.bound(0, 1).do(move{mHold, 0, 0}, move{mTorn, 0, 0}).stages(sFree, 0).boot(0).rounds(2, 1)
	power()
}

// power: what was said is durable.
func powerSaid(s *script) {
	for steps := range 9 {
		for i := range int8(2) {
			s.world(shape{plans: duo, hosts: []int8{0, 1}}).boot(0, 1)
			for k := range steps {
				s.round(int8(k % 2))
			}
			if s.disk(i).soft {
				s.do(move{mPower, i, 0})
			}
			s.settles(0, 1)
			if s.w.nLives > 1 {
				s.failf("a power failure makes another birth")
			}
		}
	}
}

// aside: somebody moves the seed away. The disk has no ID any more.
func movedAside(s *script) {
	s.trio().bind().do(move{mCrash, 0, 0}, move{mAside, 0, 0}).stages(sEmpty, 0).boot(0).round(0).stages(sPrepared, 0)
	if s.w.lives[0].roster.Disk("a0") == s.disk(0).id {
		s.failf("the disk ID is used again")
	}
}

// halves: one side of a separate wal-dir is lost or taken back. Unbound: a new
// ID for both; bound: damaged.
func halves(s *script) {
	two := func() { s.world(shape{plans: duo, hosts: []int8{0, 1}, split: true}).boot(0, 1).round(0, 1) }
	for side := range int8(2) {
		two()
		was := s.disk(0).id
		s.do(move{mHalf, 0, side}).boot(0).round(0).stages(sPrepared, 0)
		if s.disk(0).id == was || s.disk(0).walID != s.disk(0).id {
			s.failf("side %d lost: disk ID %s, was %s", side, s.disk(0).id, was)
		}
		two()
		s.rounds(2, 0, 1)
		s.do(move{mHalf, 0, side}).boot(0).procs(refused, 0).by(0, RuleDamaged)
		two()
		s.do(move{mTake, 0, 0}).bound(0, 1).do(move{mRestore, 0, side + 1}).boot(0).procs(refused, 0).by(0, RuleDamaged)
	}
}

// changedBeforeStep: the directory is changed between the look and the step.
func changedBeforeStep(s *script) {
	s.world(shape{plans: duo, hosts: []int8{0, 1}, late: []int8{0}}).boot(0, 1).round(1)
	s.w.left.slow = 2
	s.do(move{mHold, 0, 0})
	if s.w.hosts[0].intent != StepPrepare {
		s.failf("nothing is intended\n%s", s.w.dump())
	}
	s.do(move{mMount, 0, 0}, move{mAct, 0, 0}).stages(sEmpty, 0)
}

// vanished: the volume goes away under a bound agent. It does not go on as bound.
func vanished(s *script) {
	s.world(shape{plans: duo, hosts: []int8{0, 1}, late: []int8{0}}).do(move{mMount, 0, 0}).boot(0, 1).bound(0, 1)
	s.do(move{mMount, 0, 0})
	if a := s.w.dial(1, 0); a.Kind != rendezvous.NoAnswer {
		s.failf("it still answers: %+v", a.Answer)
	}
	s.round(0)
	if got := stateOf(&s.w.hosts[0]); got != rendezvous.Waiting && got != rendezvous.Prepared {
		s.failf("state %s", got)
	}
	s.do(move{mMount, 0, 0}).rounds(2, 0, 1).stages(sFree, 0, 1)
}

// runningCopy: a copy of a machine that runs comes up with an address that is
// in no record. Discovery does not know it, and at its member's URL runs an etcd.
func runningCopy(s *script) {
	s.twice().bind().written()
	h := &s.w.hosts[3]
	s.w.vols[3] = s.w.vols[0]
	h.sight, h.disk = s.w.look(h), s.w.meansOf(h, false)
	l := &s.w.lives[0]
	m := rendezvous.NewMachine(rendezvous.Start{Nonce: "copy", Plan: s.w.planOf(h, 0), State: rendezvous.Committed, ClusterID: l.cluster})
	m = m.Observe(rendezvous.Round{Self: s.w.dial(3, 0).Sighting}, 0)
	in := Input{Disk: h.disk, Records: RecordsNobody, Members: 3, Asked: true, View: m.View()}
	if out := s.w.decide(&in); out.Step != StepRefuse || out.Rule != RuleNobodyTwice {
		s.failf("%v by %q", out.Step, out.Rule)
	}
}

// lostAfter: a member loses its disk after the birth: it is never taken back.
func lostAfter(s *script) {
	s.trio().bind().written().do(move{mLose, 1, 0}).boot(1).round(1).procs(refused, 1).by(1, RuleRunning)
	// 2 is still an agent: once it is released, it says so.
	s.trio().bind().round(2).stages(sFree, 2).do(move{mLose, 1, 0}, move{mCrash, 0, 0}).boot(1).round(1).procs(refused, 1)
}

// stale: while the new agent of a lost disk is in the middle of a round, a peer
// that it saw as bound runs and takes the write over, and the writer is lost.
// Nobody was what it seemed at the same time.
func staleRound(s *script) {
	s.trio().bind().written().do(move{mLose, 1, 0}).boot(1).w.left.slow = 2
	s.do(move{mProbe, 1, 2}).rounds(1, 2).tick(1).rounds(4, 2).procs(etcdUp, 2)
	s.do(move{mSettle, 2, 0}, move{mAck, 2, 0}, move{mLose, 0, 0}).boot(0)
	s.do(move{mProbe, 1, 0})
	s.rounds(1, 1, 0)
	for i := range int8(2) {
		if d := s.disk(i); d.stage > sPrepared && d.life == s.disk(2).life {
			s.failf("host %d is of the old cluster\n%s", i, s.w.dump())
		}
	}
}

type namedScript struct {
	name string
	run  func(*script)
}

func scripts() []namedScript {
	return []namedScript{
		{"first boot", firstBoot},
		{"a late third", lateThird},
		{"a crash in every state", crashEverywhere},
		{"two disks of one member", twoDisks},
		{"a route for each observer", observers},
		{"a survivor called empty", survivor},
		{"a survivor called empty, and a new birth", survivorBound},
		{"machines taken back while pending", snapshot},
		{"a release that was frozen", frozenRelease},
		{"a commit that was frozen", frozenCommit},
		{"a release that was frozen, of another directory", frozenHandle},
		{"a release on an old round", releasedLate},
		{"a release that is contradicted", contradicted},
		{"a twin at my own URL", twinRuns},
		{"a copy of a prepared disk", copyPrepared},
		{"one disk ID twice", sharedDisk},
		{"etcd started early", early},
		{"etcd started early, of another birth", earlyStranger},
		{"an etcd at my own URL", ownURL},
		{"--without differs", withoutDiffers},
		{"--without is the same", withoutSame},
		{"--without is wrong", withoutSettings},
		{"a seed of the first edition", firstEdition},
		{"a dead roster is withdrawn", deadRoster},
		{"no proof, no withdrawal", noProof},
		{"moved aside, and not taken back", movedNotWithdrawn},
		{"taken back before this birth", withdrawnBefore},
		{"taken back while a release is frozen", withdrawnFrozen},
		{"a withdrawal beside one that is left out", withdrawnWithout},
		{"a withdrawal that sleeps", withdrawnLate},
		{"what is known stays known", sticky},
		{"bound to another roster", anotherRoster},
		{"the boot window", bootWindow},
		{"my cluster waits for me", unstarted},
		{"a peer is released", releasedPeer},
		{"removed meanwhile", removedMeanwhile},
		{"another birth runs", anotherBirth},
		{"an address moves", addressMoves},
		{"DNS changes the plan", planMoves},
		{"DNS changes the plan of a bound disk", planBound},
		{"another token", foreignPlan},
		{"another member answers", wrongHost},
		{"an agent with another plan", differentPlan},
		{"killed before the sync", tornSaid},
		{"power fails after a word", powerSaid},
		{"a seed moved aside", movedAside},
		{"one side of a separate wal-dir", halves},
		{"the directory changes before a step", changedBeforeStep},
		{"the volume vanishes", vanished},
		{"a copy of a machine that runs", runningCopy},
		{"a disk lost after the birth", lostAfter},
		{"a round that was never true as a whole", staleRound},
	}
}

// TestScripts plays each schedule with the rules as they are.
func TestScripts(t *testing.T) {
	for _, sc := range scripts() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			if err := play(sc.run, &rules{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestScriptNames(t *testing.T) {
	if len(moveNames) != len(moveFuncs) || moveNames[mPublish] != "publish" || (move{mProbe, 1, 2}).String() != "probe(1,2)" {
		t.Error("moves are misnamed")
	}
	var names []string
	for _, sc := range scripts() {
		names = append(names, sc.name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(scripts()) {
		t.Error("two scripts have one name")
	}
}
