package agent

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
)

// errTooMany ends a run that needs more births than a world can hold. It is no
// finding.
var errTooMany = errors.New("too many births for this world")

type moveKind int8

const (
	mBoot  moveKind = iota
	mRound          // a whole round at once, without b, and what follows from it
	mHold           // a whole round; what follows comes later
	mProbe
	mDrop
	mAct
	mTorn
	mFreeze
	mThaw
	mLeave
	mCrash
	mPower
	mLose
	mHalf
	mAside
	mMount
	mTake
	mRestore
	mHand
	mFlip
	mRoute
	mMove
	mTick
	mWithdraw
	mTakeBack
	mSettle
	mCampaign
	mGrant
	mWrite
	mAck
	mPublish
)

var moveNames = [...]string{
	"boot", "round", "hold", "probe", "drop", "act", "torn", "freeze", "thaw", "leave", "crash", "power", "lose", "half", "aside", "mount",
	"take", "restore", "hand", "flip", "route", "move", "tick", "withdraw", "take back", "settle", "campaign", "grant", "write", "ack", "publish",
}

type move struct {
	kind moveKind
	a, b int8
}

func (m move) String() string { return fmt.Sprintf("%s(%d,%d)", moveNames[m.kind], m.a, m.b) }

// further reports whether a move is not a fault.
func (m move) further() bool {
	switch m.kind {
	case mRound:
		return m.b < 0
	case mBoot, mAct, mLeave, mThaw, mWithdraw, mTakeBack, mSettle, mCampaign, mGrant, mWrite, mAck, mPublish:
		return true
	case mHold, mProbe, mDrop, mTorn, mFreeze, mCrash, mPower, mLose, mHalf, mAside, mMount, mTake, mRestore, mHand, mFlip, mRoute, mMove, mTick:
	}
	return false
}

// moves appends every move that is possible now.
func (w *world) moves(ms []move) []move {
	for i := range w.n {
		h := &w.hosts[i]
		switch h.proc {
		case down, refused:
			if w.left.boot > 0 {
				ms = append(ms, move{mBoot, i, 0})
			}
		case agentUp:
			ms = w.agentMoves(ms, i, h)
		case etcdUp:
			ms = w.etcdMoves(ms, i, h)
		case frozen:
			if w.left.boot > 0 {
				ms = append(ms, move{mBoot, i, 0})
			}
		}
		ms = w.worldMoves(ms, i, h)
	}
	if w.left.tick > 0 && int(w.now) < 100 {
		ms = append(ms, move{mTick, 0, 0})
	}
	if w.left.move > 0 {
		for m := range int8(maxMembers) {
			if w.other(m, w.route[0][m]) >= 0 {
				ms = append(ms, move{mMove, 0, m})
			}
		}
	}
	return ms
}

// worldMoves are what happens to a host from outside.
func (w *world) worldMoves(ms []move, i int8, h *simHost) []move {
	d := &w.vols[h.at]
	running := h.proc == agentUp || h.proc == etcdUp || h.proc == frozen
	if h.zombie != nil {
		ms = append(ms, move{mThaw, i, 0})
	}
	if w.left.crash > 0 && running {
		ms = append(ms, move{mCrash, i, 0})
	}
	if d.soft {
		ms = append(ms, move{mPower, i, 0})
	}
	if w.left.lose > 0 && d.stage > sEmpty {
		ms = append(ms, move{mLose, i, 0})
	}
	if w.left.half > 0 && w.split {
		if d.stage > sEmpty {
			ms = append(ms, move{mHalf, i, 0})
		}
		if d.walID != "" {
			ms = append(ms, move{mHalf, i, 1})
		}
	}
	if w.left.aside > 0 && d.stage >= sBound && h.proc != etcdUp {
		ms = append(ms, move{mAside, i, 0})
	}
	if w.left.mount > 0 && h.base != h.real && h.proc != etcdUp {
		ms = append(ms, move{mMount, i, 0})
	}
	ms = w.copyMoves(ms, i, h)
	if w.left.hand > 0 && d.stage == sBound && h.proc != etcdUp && w.meansOf(h, false) == DiskPending {
		ms = append(ms, move{mHand, i, 0})
	}
	if w.left.flip > 0 && len(w.plans) > 1 && h.view == 0 && slices.Contains(w.members[1], h.member) {
		ms = append(ms, move{mFlip, i, 0})
	}
	if w.left.withdraw > 0 && d.stage == sBound && h.proc != etcdUp && h.taking == 0 {
		ms = append(ms, move{mWithdraw, i, 0})
		if h.proof != nil && w.left.freeze > 0 {
			ms = append(ms, move{mWithdraw, i, 1})
		}
	}
	if h.taking > 0 {
		ms = append(ms, move{mTakeBack, i, 0})
	}
	if w.left.route > 0 {
		for m := range int8(maxMembers) {
			if w.other(m, w.route[i][m]) >= 0 {
				ms = append(ms, move{mRoute, i, m})
			}
		}
	}
	return ms
}

// copyMoves: only prepared and pending disks are copied and rolled back; what a
// roll-back of an etcd's data does is etcd's own story.
func (w *world) copyMoves(ms []move, i int8, h *simHost) []move {
	if w.left.copy == 0 {
		return ms
	}
	d := &w.vols[h.at]
	if w.snapOf == 0 {
		if d.stage == sPrepared || d.stage == sBound && !d.ran {
			ms = append(ms, move{mTake, i, 0})
		}
		return ms
	}
	if w.snap.stage == sPrepared || w.snapped == h.member+1 {
		ms = append(ms, move{mRestore, i, 0})
		if w.split && w.snapOf == h.at+1 {
			ms = append(ms, move{mRestore, i, 1}, move{mRestore, i, 2})
		}
	}
	return ms
}

// other is the next host of a member after the one given; -1: there is no other.
func (w *world) other(m, at int8) int8 {
	for k := int8(1); k < w.n; k++ {
		if j := (at + k) % w.n; w.hosts[j].member == m && at >= 0 {
			return j
		}
	}
	return -1
}

func (w *world) agentMoves(ms []move, i int8, h *simHost) []move {
	if h.intent != StepWait {
		ms = append(ms, move{mAct, i, 0})
		if w.left.freeze > 0 && h.zombie == nil {
			ms = append(ms, move{mFreeze, i, 0})
		}
		if w.left.torn > 0 && h.intent != StepRevoke {
			ms = append(ms, move{mTorn, i, 0})
		}
		return ms
	}
	if h.leaving {
		return append(ms, move{mLeave, i, 0})
	}
	if !h.begun {
		ms = append(ms, move{mRound, i, -1})
		if w.left.slow > 0 {
			ms = append(ms, move{mHold, i, 0})
		}
	}
	for _, p := range w.members[h.plan] {
		if p == h.member || h.got[p] != nil {
			continue
		}
		if h.begun || w.left.slow > 0 {
			ms = append(ms, move{mProbe, i, p})
		}
		if w.left.drop > 0 {
			if h.begun {
				ms = append(ms, move{mDrop, i, p})
			} else {
				ms = append(ms, move{mRound, i, p})
			}
		}
	}
	return ms
}

// apply makes a move. An error is a broken invariant.
func (w *world) apply(m move) error { return moveFuncs[m.kind](w, m) }

var moveFuncs = [...]func(*world, move) error{
	mBoot: func(w *world, m move) error {
		w.left.boot--
		return w.boot(m.a)
	},
	mRound: func(w *world, m move) error {
		if m.b >= 0 {
			w.left.drop--
		}
		if err := w.round(m.a, m.b); err != nil || w.hosts[m.a].intent == StepWait {
			return err
		}
		return w.act(m.a)
	},
	mHold: func(w *world, m move) error {
		w.left.slow--
		return w.round(m.a, -1)
	},
	mProbe: func(w *world, m move) error { return w.slowProbe(m, true) },
	mDrop: func(w *world, m move) error {
		w.left.drop--
		return w.slowProbe(m, false)
	},
	mAct: func(w *world, m move) error { return w.act(m.a) },
	mTorn: func(w *world, m move) error {
		w.left.torn--
		return w.torn(m.a)
	},
	mFreeze: func(w *world, m move) error {
		w.left.freeze--
		w.freeze(m.a)
		return nil
	},
	mThaw:  func(w *world, m move) error { return w.thaw(m.a) },
	mLeave: func(w *world, m move) error { return w.leave(m.a) },
	mCrash: func(w *world, m move) error {
		w.left.crash--
		if h := &w.hosts[m.a]; h.proc == frozen {
			h.zombie = nil
		}
		w.stop(&w.hosts[m.a])
		return nil
	},
	mPower: func(w *world, m move) error { return w.power(m.a) },
	mLose: func(w *world, m move) error {
		w.left.lose--
		w.lose(m.a)
		return nil
	},
	mHalf: func(w *world, m move) error {
		w.left.half--
		w.loseSide(m.a, m.b)
		return nil
	},
	mAside: func(w *world, m move) error {
		w.left.aside--
		w.vols[w.hosts[m.a].at].setAside(false)
		w.blank(w.hosts[m.a].at)
		return nil
	},
	mMount: func(w *world, m move) error {
		w.left.mount--
		h := &w.hosts[m.a]
		h.at = h.base + h.real - h.at
		return nil
	},
	mTake: func(w *world, m move) error {
		w.take(m.a)
		return nil
	},
	mRestore: func(w *world, m move) error {
		w.left.copy--
		w.restore(m.a, m.b)
		return nil
	},
	mHand: func(w *world, m move) error {
		w.left.hand--
		return w.hand(m.a)
	},
	mFlip: func(w *world, m move) error {
		w.left.flip--
		w.hosts[m.a].view = 1
		return nil
	},
	mRoute: func(w *world, m move) error {
		w.left.route--
		w.route[m.a][m.b] = w.other(m.b, w.route[m.a][m.b])
		return nil
	},
	mMove: func(w *world, m move) error {
		w.left.move--
		to := w.other(m.b, w.route[0][m.b])
		for i := range w.n {
			w.route[i][m.b] = to
		}
		return nil
	},
	mTick: func(w *world, _ move) error {
		w.left.tick--
		w.tick()
		return nil
	},
	mWithdraw: func(w *world, m move) error {
		w.left.withdraw--
		if m.b > 0 {
			w.left.freeze--
		}
		return w.withdraw(m.a, m.b > 0)
	},
	mTakeBack: func(w *world, m move) error {
		w.takeBack(m.a)
		return nil
	},
	mSettle: func(w *world, m move) error {
		w.hosts[m.a].window = false
		return nil
	},
	mCampaign: func(w *world, m move) error {
		w.campaign(m.a)
		return nil
	},
	mGrant: func(w *world, m move) error { return w.grant(m.a, m.b) },
	mWrite: func(w *world, m move) error {
		w.write(m.a)
		return nil
	},
	mAck: func(w *world, m move) error {
		w.ack(m.a, m.b)
		return nil
	},
	mPublish: func(w *world, m move) error {
		w.publish(m.a, m.b)
		return nil
	},
}

// slowProbe asks one member; the round began with the first one.
func (w *world) slowProbe(m move, reached bool) error {
	h := &w.hosts[m.a]
	if !h.begun {
		w.left.slow--
		if same, err := w.beginRound(m.a); !same || err != nil {
			return err
		}
		if !slices.Contains(w.members[h.plan], m.b) {
			return nil // the plan has just changed
		}
	}
	w.probe(m.a, m.b, reached)
	return w.endRound(m.a)
}

// leave: exit 0, and the supervisor starts etcd. Where the directory is another
// one now, etcd starts on that only if it would be let.
func (w *world) leave(i int8) error {
	h := &w.hosts[i]
	if !w.still(h) {
		return w.begin(i)
	}
	return w.startEtcd(i)
}

// tick is one second, in which every etcd that has just started gets ready.
func (w *world) tick() {
	w.now++
	for i := range w.n {
		w.hosts[i].window = false
	}
}

// hash is equal for worlds that cannot be told apart.
func (w *world) hash(seed maphash.Seed) uint64 {
	var b [4096]byte
	out := b[:0]
	for i := range w.n {
		out = w.hashHost(out, &w.hosts[i])
		for m := range w.route[i] {
			out = append(out, byte(w.route[i][m]))
		}
	}
	for i := range w.vols {
		out = hashDisk(out, &w.vols[i])
	}
	for i := range w.nLives {
		l := &w.lives[i]
		out = append(append(out, l.cluster...), byte(l.bound), byte(l.released), byte(l.forked), bit(l.hand), byte(l.lost), byte(l.entries))
		for k := range l.leaders {
			out = append(out, byte(l.leaders[k]), byte(l.entryTerm[k]))
		}
		for _, on := range l.ranOn {
			out = append(out, byte(on>>8), byte(on))
		}
	}
	for _, f := range w.forks[:w.nForks] {
		out = append(out, f...)
	}
	out = append(hashDisk(out, &w.snap), byte(w.snapOf), byte(w.snapped), byte(w.next), byte(w.now))
	l := &w.left
	out = append(out, byte(l.boot), byte(l.crash), byte(l.lose), byte(l.drop), byte(l.flip), byte(l.route), byte(l.move), byte(l.term), byte(l.write), byte(l.slow),
		byte(l.freeze), byte(l.torn), byte(l.mount), byte(l.copy), byte(l.hand), byte(l.tick), byte(l.withdraw), byte(l.half), byte(l.aside))
	return maphash.Bytes(seed, out)
}

func (w *world) hashHost(out []byte, h *simHost) []byte {
	out = append(out, byte(h.view), byte(h.at), byte(h.proc), byte(h.runs), bit(h.candidate), bit(h.leader), bit(h.window), byte(h.votes), byte(h.match))
	out = hashRun(out, &h.simRun)
	if h.zombie != nil {
		out = append(hashRun(out, &h.zombie.run), 'z', byte(h.zombie.vol))
	}
	out = append(out, byte(h.taking))
	if h.proof != nil {
		out = append(fmt.Append(out, h.proof.first), byte(h.proof.since/1e9), bit(h.proof.proven))
	}
	return out
}

func hashRun(out []byte, r *simRun) []byte {
	out = append(append(out, r.nonce...), byte(r.plan), byte(r.disk), bit(r.released), bit(r.leaving), bit(r.begun), byte(r.intent), byte(r.gen), bit(r.answer == nil))
	if r.begun || r.intent != StepWait {
		out = append(out, byte(r.began))
	}
	for _, s := range r.roster {
		out = append(out, s.Disk...)
	}
	out = append(out, r.known...)
	s := &r.sight
	out = append(append(append(out, byte(s.vol), byte(s.life), byte(s.walLife), byte(s.gen), byte(s.stage)), s.id...), s.walID...)
	for _, g := range r.got {
		if g == nil {
			out = append(out, 0)
			continue
		}
		out = append(append(out, 1), g.text...)
	}
	return out
}

func hashDisk(out []byte, d *simDisk) []byte {
	out = append(append(append(out, byte(d.stage), byte(d.life), byte(d.walLife), byte(d.gen), byte(d.made)), d.id...), d.walID...)
	out = append(out, bit(d.first), bit(d.token), bit(d.soft), bit(d.ran), byte(d.term), byte(d.vote), byte(d.logLen), byte(d.pub), byte(d.departed))
	for _, s := range d.aside {
		out = append(out, byte(s.life), byte(s.gen), bit(s.marked))
	}
	for k := range d.log {
		out = append(out, byte(d.log[k]), byte(d.logTerm[k]))
	}
	return out
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// released lists what a machine says.
func stateOf(h *simHost) rendezvous.State {
	if h.machine == nil {
		return ""
	}
	return h.machine.State
}
