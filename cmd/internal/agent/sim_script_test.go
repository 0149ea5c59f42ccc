package agent

import (
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/discovery/rendezvous"
)

func (s script) wantRefused(i int8) script {
	s.t.Helper()
	if got := s.w.hosts[i].proc; got != refused {
		s.t.Fatalf("host %d was not refused: process %d\n%s", i, got, dump(s.w))
	}
	return s
}

func (s script) wantDisk(i int8, seeded, pending bool) script {
	s.t.Helper()
	if d := s.w.hosts[i].disk; d.seeded != seeded || d.pending != pending {
		s.t.Fatalf("host %d: seeded %t pending %t, want %t %t\n%s", i, d.seeded, d.pending, seeded, pending, dump(s.w))
	}
	return s
}

// TestScriptFirstBoot: three at once, in a handful of rounds.
func TestScriptFirstBoot(t *testing.T) {
	s := script{t, trioWorld(budget{boot: 3})}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}, move{mBoot, 2, 0})
	s.round(0).wantDisk(0, false, false)
	s.round(0).wantDisk(0, true, true)
	s.round(1, 1, 2, 2)
	s.round(0, 1, 2)
	for i := range s.w.n {
		s.wantDisk(i, true, false)
	}
}

// TestScriptFirstBootBarrier: nobody is released before all have committed.
func TestScriptFirstBootBarrier(t *testing.T) {
	s := script{t, trioWorld(budget{boot: 3})}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}, move{mBoot, 2, 0})
	s.round(0, 0, 1, 1).round(0, 1, 0, 1).wantDisk(0, true, true).wantDisk(1, true, true).wantDisk(2, false, false)
}

// TestScriptUnpublishedPeer: 1 voted and acknowledged, and died before anybody
// applied what it publishes; its disk is lost. 2 shows it as never started,
// which proves nothing.
func TestScriptUnpublishedPeer(t *testing.T) {
	w := writtenTrio(t, budget{boot: 2, crash: 1, lose: 1, term: 1})
	s := script{t, w}.round(2).do(move{mLeave, 2, 0}, move{mCrash, 0, 0}, move{mLose, 1, 0})
	for _, l := range w.dial(2).Members {
		if l.Started {
			t.Fatalf("the view of 2 is not the one that this is about: %+v", w.dial(2).Members)
		}
	}
	s.do(move{mBoot, 1, 0}).round(1, 1).wantRefused(1).wantDisk(1, false, false)
}

// TestScriptStaleRound: a disk is lost that has acknowledged a write; while
// its new agent is in the middle of a round, a peer that it saw waiting for
// the release runs and takes the write over, and the writer is lost. Nobody
// was what it seemed at the same time.
func TestScriptStaleRound(t *testing.T) {
	w := writtenTrio(t, budget{boot: 2, lose: 2, slow: 2, term: 1})
	s := script{t, w}.do(move{mLose, 1, 0}, move{mBoot, 1, 0})
	s.do(move{mProbe, 1, 2})                            // 2 is committed, and has never run
	s.round(2).do(move{mLeave, 2, 0}, move{mAck, 2, 0}) // 2 hears of 0's etcd, runs, and has the write
	s.do(move{mLose, 0, 0}, move{mBoot, 0, 0})          // the writer is lost, and waits as an empty agent
	s.do(move{mProbe, 1, 0})                            // the round of 1 is whole: two agents
	s.wantDisk(1, false, false)
	if w.hosts[1].intent == StepSeed {
		t.Fatal("1 would seed on a round that was never true as a whole")
	}
	s.round(1).wantRefused(1)
}

// TestScriptStickyFive: N = 5, agents that restart with a back-off and are
// never all up at once after their commit. What was proven sticks, so that
// everybody is released all the same.
func TestScriptStickyFive(t *testing.T) {
	w := newWorld([][]int8{{0, 1, 2, 3, 4}}, []int8{0, 1, 2, 3, 4}, []int8{0, 0, 0, 0, 0}, budget{boot: 30, crash: 30})
	s := script{t, w}
	for i := range w.n {
		s.do(move{mBoot, i, 0})
	}
	for i := range w.n {
		s.round(i, i).wantDisk(i, true, true)
	}
	for i := int8(1); i < w.n; i++ {
		s.do(move{mCrash, i, 0})
	}
	for i := int8(1); i < w.n; i++ { // one at a time
		s.wantDisk(0, true, true).do(move{mBoot, i, 0}).round(0).do(move{mCrash, i, 0})
	}
	s.wantDisk(0, true, false)
}

// TestScriptUnstuck: a later different answer undoes what was proven.
func TestScriptUnstuck(t *testing.T) {
	w := committedTrio(t, budget{boot: 2, crash: 1, lose: 1, drop: 4})
	s := script{t, w}
	s.do(move{mRound, 0, 1}) // 0 learns of 2 only
	s.wantDisk(0, true, true).do(move{mLose, 2, 0}, move{mBoot, 2, 0})
	s.do(move{mRound, 0, 1}) // 2 is empty again
	s.do(move{mCrash, 2, 0}).round(0)
	s.wantDisk(0, true, true) // 1 is committed, 2 was and is no more
}

// TestScriptLostBeforeRelease: a disk lost between its own commit and the
// others' release. While the others still wait it is simply seeded again;
// where they run it fails closed.
func TestScriptLostBeforeRelease(t *testing.T) {
	t.Run("others wait", func(t *testing.T) {
		w := committedTrio(t, budget{boot: 1, lose: 1})
		s := script{t, w}.do(move{mLose, 1, 0}, move{mBoot, 1, 0}).round(0).wantDisk(0, true, true)
		s.round(1, 1).wantDisk(1, true, true).round(0, 1, 2)
		for i := range w.n {
			s.wantDisk(i, true, false)
		}
	})
	t.Run("others run", func(t *testing.T) {
		w := committedTrio(t, budget{boot: 1, lose: 1})
		s := script{t, w}.round(0, 2).do(move{mLeave, 0, 0}, move{mLeave, 2, 0}, move{mLose, 1, 0}, move{mBoot, 1, 0})
		s.round(1).wantRefused(1).wantDisk(1, false, false)
	})
}

// TestScriptWithoutWrong: --without says of a member that it has never run.
// Where that is wrong, a write is lost: the simulation must find it, and the
// documentation names it.
func TestScriptWithoutWrong(t *testing.T) {
	w := writtenTrio(t, budget{boot: 1, crash: 1, lose: 1, term: 1})
	s := script{t, w}.do(move{mCrash, 1, 0}, move{mLose, 0, 0}, move{mBoot, 0, 0}).round(0, 0).wantDisk(0, false, false)
	w.without = []string{string(simID(1))} // 1 has run, and has the write
	s.round(0).wantDisk(0, true, true)
	w.onlyLoss = true
	r := explore(w, 200_000)
	if r.err == nil || !strings.Contains(r.err.Error(), "acknowledged write is lost") {
		t.Fatalf("the loss was not found in %d worlds: %v", r.states, r.err)
	}
	t.Logf("%v: %v", r.err, r.trace)
}

// TestScriptWithoutRight: a member that never ran is left out; the others run,
// and it must come in by member add.
func TestScriptWithoutRight(t *testing.T) {
	w := trioWorld(budget{boot: 3})
	w.without = []string{string(simID(2))}
	s := script{t, w}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}).round(0, 0, 1, 1, 0, 1).wantDisk(0, true, false).wantDisk(1, true, false)
	s.do(move{mLeave, 0, 0}, move{mLeave, 1, 0}, move{mBoot, 2, 0}).round(2).wantRefused(2)
}

// TestScriptTwoOfOne: two agents with empty disks have one identity; its
// address leads to one of them.
func TestScriptTwoOfOne(t *testing.T) {
	w := newWorld(trio, []int8{0, 1, 2, 0}, []int8{0, 0, 0, 0}, budget{boot: 4, route: 2})
	w.doubles = true
	s := script{t, w}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}, move{mBoot, 2, 0}, move{mBoot, 3, 0})
	s.round(3, 3, 3).wantDisk(3, false, false) // its own address answers as another run
	s.round(0, 0).wantDisk(0, true, true)
	s.do(move{mRoute, 3, 0}) // the address moves
	s.round(3, 3).wantDisk(3, true, true).round(1, 1, 2, 2, 1, 2)
	s.round(0, 0).wantDisk(0, true, true) // 0 is released by nobody's word
	s.round(3).wantDisk(3, true, false).do(move{mLeave, 3, 0})
	s.round(0, 0).wantDisk(0, true, true)
}

// TestScriptReplaced: against the assumption, an address comes back to a disk
// that was left behind after another one had run in its place. Where the other
// has published itself, the others' lists tell.
func TestScriptReplaced(t *testing.T) {
	w := newWorld(trio, []int8{0, 1, 2, 0}, []int8{0, 0, 0, 0}, budget{boot: 4, route: 2, crash: 2, term: 1})
	s := script{t, w}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}, move{mBoot, 2, 0}, move{mBoot, 3, 0})
	s.round(0, 0).do(move{mRoute, 3, 0}).round(3, 3, 1, 1, 2, 2, 1, 2, 3)
	s.do(move{mLeave, 1, 0}, move{mLeave, 2, 0}, move{mLeave, 3, 0}, move{mCampaign, 3, 0}, move{mGrant, 1, 3}, move{mPublish, 3, 0}, move{mCrash, 3, 0})
	w.route[0] = 0
	s.round(0).wantRefused(0).wantDisk(0, true, true)
}

// TestScriptForeignPlan: the same members with another token or URL are
// another plan; nobody commits, nobody is released.
func TestScriptForeignPlan(t *testing.T) {
	w := newWorld([][]int8{{0, 1, 2}, {0, 1, 2}}, []int8{0, 1, 2}, []int8{0, 0, 1}, budget{boot: 3, flip: 1})
	s := script{t, w}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}, move{mBoot, 2, 0}).round(0, 0, 1, 1, 2, 2)
	for i := range w.n {
		s.wantDisk(i, false, false)
	}
}

// TestScriptConverge: DNS tells each host something else, then the same.
func TestScriptConverge(t *testing.T) {
	w := newWorld([][]int8{{0, 1, 2}, {0, 1, 2}}, []int8{0, 1, 2}, []int8{0, 1, 1}, budget{boot: 3, flip: 1})
	s := script{t, w}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}, move{mBoot, 2, 0}).round(0, 1, 2, 0, 1, 2).do(move{mFlip, 0, 0})
	s.round(0)
	if got := w.hosts[0].machine.View().Plan.Digest; got != "plan1" {
		t.Fatalf("host 0 still plans %s", got)
	}
	if ok, err := settle(*w, 6); !ok || err != nil {
		t.Fatalf("settled %t, %v\n%s", ok, err, dump(w))
	}
}

// TestScriptOneWay: 0 reaches everybody, nobody reaches 0 until it heals.
func TestScriptOneWay(t *testing.T) {
	w := trioWorld(budget{boot: 3, drop: 20})
	s := script{t, w}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}, move{mBoot, 2, 0})
	for range 3 {
		s.round(0).do(move{mRound, 1, 0}, move{mRound, 2, 0})
	}
	s.wantDisk(1, false, false).wantDisk(2, false, false).wantDisk(0, true, true)
	if ok, err := settle(*w, 6); !ok || err != nil {
		t.Fatalf("settled %t, %v\n%s", ok, err, dump(w))
	}
}

// TestScriptStuckOnOldPlan: known limit. One member commits while DNS still
// tells all of them the old plan, and DNS changes before the others commit.
// It stays on its plan, and nothing unsafe comes of it.
func TestScriptStuckOnOldPlan(t *testing.T) {
	w := newWorld([][]int8{{0, 1, 2}, {0, 1, 2}}, []int8{0, 1, 2}, []int8{0, 0, 0}, budget{boot: 3, flip: 3})
	s := script{t, w}.do(move{mBoot, 0, 0}, move{mBoot, 1, 0}, move{mBoot, 2, 0}).round(0, 0).wantDisk(0, true, true)
	s.do(move{mFlip, 0, 0}, move{mFlip, 1, 0}, move{mFlip, 2, 0})
	for range 4 {
		s.round(0, 1, 2)
	}
	s.wantDisk(0, true, true).wantDisk(1, false, false).wantDisk(2, false, false)
	r := explore(w, 20_000)
	if r.err != nil {
		t.Fatal(r.err)
	}
}

func TestScriptNames(t *testing.T) {
	if got := (move{mProbe, 1, 2}).String(); !strings.Contains(got, "probe") {
		t.Errorf("moves are misnamed: %s", got)
	}
	if moveNames[mPublish] != "publish" || rendezvous.Double.String() != "double" {
		t.Error("names are shifted")
	}
}
