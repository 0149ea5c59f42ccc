package agent

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"

	"github.com/etcdinit/etcdinit/discovery/rendezvous"
)

// A deterministic, single-threaded simulation of whole clusters: real machines
// and the real decision drive agents; disks, the network, DNS and as much of
// stock etcd as votes, acknowledges and publishes are modelled. A world is a
// value: copying it branches the run.

const maxHosts = 5

type proc int8

const (
	down proc = iota
	agentUp
	etcdUp
	refused // the agent exited with 4x; a supervisor's restart is a boot
)

// simDisk is a data directory.
type simDisk struct {
	seeded, pending bool
	plan            int8
	ran             bool // an etcd was started on it
	term, vote      int8 // vote: host+1
	logLen          int8
	log, logTerm    [3]int8
	pub             int8 // mask of the IDs that its members bucket shows as started
}

func (d *simDisk) pristine() bool { return d.term <= 1 && d.vote == 0 && d.logLen == 0 }

type simHost struct {
	id, view int8
	disk     simDisk
	proc     proc
	run      int8 // counts the agent's runs: its nonce
	machine  *rendezvous.Machine
	plan     int8 // the machine's
	state    rendezvous.State
	known    string // machine.String()
	answer   *rendezvous.Answer
	got      [maxHosts]*rendezvous.Sighting
	intent   Step
	// etcd
	candidate, leader bool
	votes, match      int8
}

// simLife is what the outside world remembers of a cluster: it ends when no
// disk is left on which one of its etcds ran.
type simLife struct {
	voted, acked, lost int8
	entries            int8 // mask of acknowledged entries
	leaders            [8]int8
}

// budget bounds a search. slow is the number of rounds that are made probe by
// probe, with the others moving in between, and of decisions acted on late.
type budget struct{ crash, lose, drop, flip, route, term, write, boot, slow int8 }

// world is everything.
type world struct {
	plans    []rendezvous.Plan
	members  [][]int8 // of each plan: identities
	hosts    [maxHosts]simHost
	n        int8
	route    [maxHosts]int8 // identity -> host whose address it has
	lives    [2]simLife
	released int8           // mask of plans that ever had a released member
	everLost [maxHosts]bool // identity ever lost a disk
	everLeft [maxHosts]bool // identity whose etcd has been released: its address stays
	left     budget
	stock    bool // etcd's own bootstrap instead of etcdinit
	doubles  bool
	onlyLoss bool // look for lost writes, not for what leads to them
	without  []string
	next     int8 // next entry
}

func simID(i int8) rendezvous.ID { return rendezvous.ID("a" + strconv.Itoa(int(i))) }

// newWorld makes hosts with the views and identities given.
func newWorld(members [][]int8, ids, views []int8, b budget) *world {
	w := &world{members: members, n: int8(len(ids)), left: b, next: 1}
	for i := range maxHosts {
		w.route[i] = -1
	}
	for p, ms := range members {
		plan := rendezvous.Plan{Digest: "plan" + strconv.Itoa(p), ClusterID: rendezvous.ID("c" + strconv.Itoa(p))}
		for _, m := range ms {
			plan.Members = append(plan.Members, rendezvous.Member{ID: simID(m), Name: string(simID(m))})
		}
		w.plans = append(w.plans, plan)
	}
	for i, id := range ids {
		w.hosts[i].id, w.hosts[i].view = id, views[i]
		if w.route[id] < 0 {
			w.route[id] = int8(i)
		}
	}
	return w
}

func (w *world) planOf(h *simHost, p int8) rendezvous.Plan {
	plan := w.plans[p]
	plan.Self = simID(h.id)
	return plan
}

type moveKind int8

const (
	mBoot  moveKind = iota
	mRound          // a whole round at once, without b, and what follows from it
	mProbe
	mDrop
	mAct
	mLeave
	mCrash
	mLose
	mFlip
	mRoute
	mCampaign
	mGrant
	mWrite
	mAck
	mPublish
)

var moveNames = [...]string{"boot", "round", "probe", "drop", "act", "leave", "crash", "lose", "flip", "route", "campaign", "grant", "write", "ack", "publish"}

type move struct {
	kind moveKind
	a, b int8
}

func (m move) String() string { return fmt.Sprintf("%s(%d,%d)", moveNames[m.kind], m.a, m.b) }

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
		}
		if w.left.crash > 0 && (h.proc == agentUp || h.proc == etcdUp) {
			ms = append(ms, move{mCrash, i, 0})
		}
		if w.left.lose > 0 && h.disk.seeded {
			ms = append(ms, move{mLose, i, 0})
		}
		if w.left.flip > 0 && h.view == 0 && len(w.plans) > 1 && slices.Contains(w.members[1], h.id) {
			ms = append(ms, move{mFlip, i, 0})
		}
		if w.left.route > 0 && w.route[h.id] != i && w.mayMove(h.id) {
			ms = append(ms, move{mRoute, i, 0})
		}
	}
	return ms
}

// mayMove: the stated assumption on addresses. One does not leave a disk that
// was released for one that was left behind, nor while its agent acts.
func (w *world) mayMove(id int8) bool {
	if w.everLeft[id] {
		return false
	}
	for i := range w.n {
		if h := &w.hosts[i]; h.id == id && h.intent != StepWait {
			return false
		}
	}
	return true
}

func (w *world) agentMoves(ms []move, i int8, h *simHost) []move {
	if h.intent != StepWait {
		return append(ms, move{mAct, i, 0})
	}
	if h.state == rendezvous.Released {
		return append(ms, move{mLeave, i, 0})
	}
	begun := h.got != [maxHosts]*rendezvous.Sighting{}
	if !begun {
		ms = append(ms, move{mRound, i, -1})
	}
	for _, p := range w.members[h.plan] {
		if p == h.id || h.got[p] != nil {
			continue
		}
		if begun || w.left.slow > 0 {
			ms = append(ms, move{mProbe, i, p})
		}
		if w.left.drop > 0 {
			if begun {
				ms = append(ms, move{mDrop, i, p})
			} else {
				ms = append(ms, move{mRound, i, p})
			}
		}
	}
	return ms
}

func (w *world) etcdMoves(ms []move, i int8, h *simHost) []move {
	d := &h.disk
	if w.left.term > 0 && !h.leader {
		ms = append(ms, move{mCampaign, i, 0})
	}
	if h.leader && w.left.write > 0 && int(d.logLen) < len(d.log) {
		ms = append(ms, move{mWrite, i, 0})
	}
	for _, p := range w.members[d.plan] {
		j := w.route[p]
		if j < 0 || j == i || !w.connected(i, j) {
			continue
		}
		v := &w.hosts[j]
		if h.candidate && h.votes&(1<<p) == 0 && w.grants(v, h) {
			ms = append(ms, move{mGrant, j, i})
		}
		if h.leader && h.match&(1<<p) == 0 && v.disk.term <= d.term && !v.leader {
			ms = append(ms, move{mAck, j, i})
		}
	}
	if h.leader && d.pub&(1<<h.id) == 0 {
		ms = append(ms, move{mPublish, i, 0})
	}
	return ms
}

func (w *world) connected(i, j int8) bool {
	return w.hosts[i].proc == etcdUp && w.hosts[j].proc == etcdUp && w.hosts[i].disk.plan == w.hosts[j].disk.plan
}

func (w *world) grants(v, c *simHost) bool {
	if v.disk.term > c.disk.term || v.disk.term == c.disk.term && v.disk.vote != 0 && v.disk.vote != c.id+1 {
		return false
	}
	return c.disk.last() > v.disk.last() || c.disk.last() == v.disk.last() && c.disk.logLen >= v.disk.logLen
}

// last is the term of the last entry.
func (d *simDisk) last() int8 {
	if d.logLen == 0 {
		return 1
	}
	return d.logTerm[d.logLen-1]
}

// apply makes a move. An error is a broken invariant.
func (w *world) apply(m move) error {
	h := &w.hosts[m.a]
	switch m.kind {
	case mBoot:
		w.left.boot--
		return w.boot(m.a)
	case mRound:
		for _, p := range w.members[h.plan] {
			switch p {
			case h.id:
			case m.b:
				w.left.drop--
				h.got[p] = &rendezvous.Sighting{Peer: simID(p)}
			default:
				h.got[p] = w.dial(p)
			}
		}
		if err := w.maybeDecide(m.a); err != nil || h.intent == StepWait {
			return err
		}
		return w.act(m.a)
	case mProbe:
		if h.got == [maxHosts]*rendezvous.Sighting{} {
			w.left.slow--
		}
		h.got[m.b] = w.dial(m.b)
		return w.maybeDecide(m.a)
	case mDrop:
		w.left.drop--
		h.got[m.b] = &rendezvous.Sighting{Peer: simID(m.b)}
		return w.maybeDecide(m.a)
	case mAct:
		return w.act(m.a)
	case mLeave:
		return w.startEtcd(m.a)
	case mCrash:
		w.left.crash--
		w.stop(h)
	case mLose:
		w.left.lose--
		w.lose(m.a)
	case mFlip:
		w.left.flip--
		h.view = 1
	case mRoute:
		w.left.route--
		w.route[h.id] = m.a
	case mCampaign, mGrant, mWrite, mAck, mPublish:
		return w.raft(m, h)
	}
	return nil
}

func (w *world) stop(h *simHost) {
	h.proc, h.got, h.intent = down, [maxHosts]*rendezvous.Sighting{}, StepWait
	h.candidate, h.leader, h.votes, h.match = false, false, 0, 0
	h.machine, h.known, h.state, h.answer = nil, "", "", nil
}

func (w *world) lose(i int8) {
	h := &w.hosts[i]
	w.stop(h)
	d := h.disk
	h.disk = simDisk{}
	w.everLost[h.id] = true
	life := &w.lives[d.plan]
	life.lost |= 1 << h.id
	for j := range w.n {
		if o := &w.hosts[j].disk; o.seeded && o.plan == d.plan && o.ran {
			return
		}
	}
	*life = simLife{} // nothing of it is left anywhere
}

func (w *world) boot(i int8) error {
	h := &w.hosts[i]
	h.run++
	d := &h.disk
	switch {
	case w.stock:
		if !d.seeded {
			*d = simDisk{seeded: true, plan: h.view, term: 1}
		}
		return w.startEtcd(i)
	case !d.seeded:
		h.proc = agentUp
		w.set(h, rendezvous.NewMachine(w.nonce(i), w.planOf(h, h.view), rendezvous.Waiting))
	case d.pending && d.pristine():
		h.proc = agentUp
		w.set(h, rendezvous.NewMachine(w.nonce(i), w.planOf(h, d.plan), rendezvous.Committed))
	default:
		return w.startEtcd(i)
	}
	return nil
}

func (w *world) nonce(i int8) string {
	return strconv.Itoa(int(i)) + "." + strconv.Itoa(int(w.hosts[i].run))
}

func (w *world) set(h *simHost, m rendezvous.Machine) {
	v := m.View()
	a := m.Answer()
	h.machine, h.known, h.state, h.answer = &m, m.String(), v.State, &a
	h.plan = int8(slices.IndexFunc(w.plans, func(p rendezvous.Plan) bool { return p.Digest == v.Plan.Digest }))
}

// dial is what answers at an identity's address.
func (w *world) dial(id int8) *rendezvous.Sighting {
	s := &rendezvous.Sighting{Peer: simID(id)}
	if w.route[id] < 0 {
		return s
	}
	switch h := &w.hosts[w.route[id]]; h.proc {
	case agentUp:
		s.Kind, s.Answer = rendezvous.Agent, *h.answer
	case etcdUp:
		s.Kind, s.ClusterID = rendezvous.Etcd, w.plans[h.disk.plan].ClusterID
		for _, p := range w.members[h.disk.plan] {
			s.Members = append(s.Members, rendezvous.Listed{ID: simID(p), Started: h.disk.pub&(1<<p) != 0})
		}
	case down, refused:
	}
	return s
}

// maybeDecide ends a round once every peer has been asked.
func (w *world) maybeDecide(i int8) error {
	h := &w.hosts[i]
	r := rendezvous.Round{Self: *w.dial(h.id)}
	for _, p := range w.members[h.plan] {
		if p == h.id {
			continue
		}
		if h.got[p] == nil {
			return nil
		}
		r.Peers = append(r.Peers, *h.got[p])
	}
	h.got = [maxHosts]*rendezvous.Sighting{}
	w.set(h, h.machine.Observe(r))
	w.decideFor(h)
	return nil
}

func (w *world) decideFor(h *simHost) {
	in := Input{Disk: DiskEmpty, Members: len(w.members[h.plan]), View: h.machine.View(), Without: w.without}
	if h.disk.seeded {
		in.Disk = DiskPending
	}
	switch out := Decide(in); out.Step {
	case StepSeed, StepRelease:
		h.intent = out.Step
	case StepRefuse:
		w.stop(h)
		h.proc = refused
	case StepWait:
		if !h.disk.seeded && h.plan != h.view {
			w.set(h, h.machine.Replan(w.planOf(h, h.view)))
		}
	case StepSeedAlone, StepKeep:
		panic("not a step of this table")
	}
}

// act makes the step durable.
func (w *world) act(i int8) error {
	h := &w.hosts[i]
	step := h.intent
	h.intent = StepWait
	if step == StepSeed {
		h.disk = simDisk{seeded: true, pending: true, plan: h.plan, term: 1}
		w.set(h, h.machine.Advance(rendezvous.Committed))
		return nil
	}
	h.disk.pending = false
	w.set(h, h.machine.Advance(rendezvous.Released))
	w.released |= 1 << h.disk.plan
	w.everLeft[h.id] = true
	return w.onePlan()
}

// onePlan is invariant 1: two plans that share a member are never both
// released, unless every member they share has lost a disk.
func (w *world) onePlan() error {
	if w.released != 3 || len(w.plans) < 2 {
		return nil
	}
	for _, m := range w.members[0] {
		if slices.Contains(w.members[1], m) && !w.everLost[m] {
			return fmt.Errorf("two plans with the common member %d are both released", m)
		}
	}
	return nil
}

// startEtcd is invariant 2: no ID that has voted or acknowledged starts empty
// while a disk is left on which an etcd of its cluster ran.
func (w *world) startEtcd(i int8) error {
	h := &w.hosts[i]
	w.stop(h)
	h.proc, h.disk.ran, h.disk.pending = etcdUp, true, false
	if life := w.lives[h.disk.plan]; !w.onlyLoss && h.disk.pristine() && (life.voted|life.acked)&(1<<h.id) != 0 {
		return fmt.Errorf("member %d has voted or acknowledged and starts with an empty log", h.id)
	}
	if w.doubles {
		for j := range w.n {
			if o := &w.hosts[j]; j != i && o.id == h.id && o.disk.ran {
				return fmt.Errorf("a second disk of member %d starts", h.id)
			}
		}
	}
	return nil
}

func (w *world) raft(m move, h *simHost) error {
	life := &w.lives[h.disk.plan]
	switch d := &h.disk; m.kind {
	case mCampaign:
		w.left.term--
		d.term, d.vote = d.term+1, h.id+1
		h.candidate, h.votes = true, 1<<h.id
		life.voted |= 1 << h.id
	case mGrant:
		c := &w.hosts[m.b]
		if d.term < c.disk.term {
			h.candidate, h.leader, h.match = false, false, 0
		}
		d.term, d.vote = c.disk.term, c.id+1
		life.voted |= 1 << h.id
		c.votes |= 1 << h.id
		if ones(c.votes) >= w.quorum(c) {
			return w.elected(c, life)
		}
	case mWrite:
		w.left.write--
		d.log[d.logLen], d.logTerm[d.logLen] = w.next, d.term
		w.next++
		d.logLen++
		h.match = 1 << h.id
	case mAck:
		l := &w.hosts[m.b]
		if d.term < l.disk.term {
			d.vote = 0
		}
		h.candidate, d.term, d.log, d.logTerm, d.logLen = false, l.disk.term, l.disk.log, l.disk.logTerm, l.disk.logLen
		d.pub |= l.disk.pub
		life.acked |= 1 << h.id
		l.match |= 1 << h.id
		if ones(l.match) >= w.quorum(l) && l.disk.last() == l.disk.term {
			for _, e := range l.disk.log[:l.disk.logLen] {
				life.entries |= 1 << e
			}
		}
	case mPublish:
		d.pub |= 1 << h.id
		for _, p := range w.members[d.plan] {
			if j := w.route[p]; j >= 0 && w.connected(m.a, j) {
				w.hosts[j].disk.pub |= 1 << h.id
				d.pub |= 1 << p
			}
		}
	case mBoot, mRound, mProbe, mDrop, mAct, mLeave, mCrash, mLose, mFlip, mRoute:
	}
	return nil
}

// elected is invariant 3: a leader has every acknowledged entry, as long as no
// more disks were lost than a quorum can spare. And one leader a term.
func (w *world) elected(c *simHost, life *simLife) error {
	c.candidate, c.leader, c.match = false, true, 1<<c.id
	if l := life.leaders[c.disk.term]; !w.onlyLoss && l != 0 && l != c.id+1 {
		return fmt.Errorf("members %d and %d both lead in term %d", l-1, c.id, c.disk.term)
	}
	life.leaders[c.disk.term] = c.id + 1
	have := int8(0)
	for _, e := range c.disk.log[:c.disk.logLen] {
		have |= 1 << e
	}
	n := len(w.members[c.disk.plan])
	if missing := life.entries &^ have; missing != 0 && ones(life.lost) <= n-w.quorum(c) {
		return fmt.Errorf("an acknowledged write is lost: leader %d of term %d lacks %b", c.id, c.disk.term, missing)
	}
	return nil
}

func (w *world) quorum(h *simHost) int { return len(w.members[h.disk.plan])/2 + 1 }

func ones(mask int8) int {
	n := 0
	for ; mask != 0; mask &= mask - 1 {
		n++
	}
	return n
}

// hash is equal for worlds that cannot be told apart.
func (w *world) hash(seed maphash.Seed) uint64 {
	var b [1024]byte
	out := b[:0]
	for i := range w.n {
		h := &w.hosts[i]
		d := &h.disk
		out = append(out, byte(h.view), byte(h.proc), byte(h.run), byte(h.intent), bit(h.candidate), bit(h.leader), byte(h.votes), byte(h.match),
			bit(d.seeded), bit(d.pending), bit(d.ran), byte(d.plan), byte(d.term), byte(d.vote), byte(d.logLen), byte(d.log[0]), byte(d.log[1]), byte(d.log[2]), byte(d.logTerm[0]), byte(d.logTerm[1]), byte(d.logTerm[2]), byte(d.pub))
		out = append(out, h.known...)
		for _, s := range h.got {
			if s == nil {
				out = append(out, 0)
				continue
			}
			out = append(out, 1, byte(s.Kind))
			out = append(append(append(append(out, s.ClusterID...), s.Answer.Nonce...), s.Answer.State...), s.Answer.Digest...)
			for _, l := range s.Members {
				out = append(out, bit(l.Started))
			}
		}
	}
	for i := range w.lives {
		l := &w.lives[i]
		out = append(out, byte(l.voted), byte(l.acked), byte(l.lost), byte(l.entries))
		for _, x := range l.leaders {
			out = append(out, byte(x))
		}
	}
	for i := range maxHosts {
		out = append(out, byte(w.route[i]), bit(w.everLost[i]), bit(w.everLeft[i]))
	}
	b2 := w.left
	out = append(out, byte(w.released), byte(w.next), byte(b2.crash), byte(b2.lose), byte(b2.drop), byte(b2.flip), byte(b2.route), byte(b2.term), byte(b2.write), byte(b2.boot), byte(b2.slow))
	return maphash.Bytes(seed, out)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}
