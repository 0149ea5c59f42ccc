package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/internal/birth"
)

// A deterministic, single-threaded simulation of whole clusters: real machines
// and the real decision drive agents; disks, DNS, the network and as much of
// stock etcd as votes, acknowledges and publishes are modelled. A world is a
// value: copying it branches the run. What is behind a pointer never changes.

const (
	maxMembers = 6
	maxHosts   = 7
	maxVols    = 9
	maxLives   = 8
	maxForks   = 4
)

type proc int8

const (
	down proc = iota
	agentUp
	etcdUp
	refused // the agent exited with 4x or 20; a supervisor's restart is a boot
	frozen  // between its last check and its act
)

func (p proc) String() string {
	return [...]string{"down", "agent", "etcd", "refused", "frozen"}[p]
}

// rules is what a mutant changes; the zero value is the protocol. What it cannot
// change is the simulated world.
type rules struct {
	rows   []row // of the table; nil: all
	sight  func(w *world, h *simHost, s *rendezvous.Sighting)
	view   func(w *world, h *simHost, v *rendezvous.View)
	answer func(w *world, h *simHost, a *rendezvous.Answer)

	bindTwice     bool // a seed may be bound again
	bindAny       bool // a seed is written over any disk ID
	keepToken     bool // the disk ID stays beside the seed
	sayEarly      bool // said before it is durable
	noConfirm     bool // what is found is not made durable before it is said
	noLookAnswer  bool // no look at the directory before an answer
	noLookStep    bool // no look before a step
	noLookRound   bool // no look before a round
	oldRounds     bool // a step on a round of any age
	oldAddresses  bool // dials what DNS said at the start
	releaseByPath bool // removes the mark of what is there now
	noLastLook    bool // no look after the release
	noReplan      bool // a plan that DNS has changed is not taken over
	dataSideOnly  bool // a separate wal-dir is not compared
	freshNonce    bool // a run that restarts has the nonce that it had
	quickProof    bool // withdraws after one look
	anyProof      bool // withdraws whatever is seen
	unmarked      bool // a seed that was moved aside counts as taken back without its mark
	takeAny       bool // takes back what is released by now
	stock         bool // etcd's own bootstrap: the cluster ID follows from the configuration, and nobody is asked
}

// said is a sighting with its text, for the hash of a world.
type said struct {
	rendezvous.Sighting
	text string
}

// sight is what an agent sees of its directory by a look.
type sight struct {
	vol, life, walLife, gen int8
	stage                   stage
	id, walID               birth.DiskID
}

// simRun is one process of an agent.
type simRun struct {
	nonce    string
	machine  *rendezvous.Machine
	known    string // machine.String()
	answer   *said  // what it tells those that ask; nil: nobody is answered
	plan     int8   // the machine's
	sight    sight  // the directory, at the last examination
	disk     Disk   // what that means
	released bool   // this run has removed the mark
	leaving  bool   // exit 0 is near
	got      [maxMembers]*said
	begun    bool
	began    int8 // when the round began
	intent   Step
	roster   birth.Roster
	gen      int8             // the seed that the intent is about
	routes   [maxMembers]int8 // at the start; only a mutant dials them
}

// simHost is one machine of a member.
type simHost struct {
	simRun
	member, view int8
	base, real   int8 // volumes: of the mount point, and the one that belongs there
	at           int8 // the volume that is there
	proc         proc
	runs         int8
	without      []string
	zombie       *zombie
	proof        *pendingProof
	taking       int8 // a withdrawal has its proof, and sleeps before it takes this seed back
	last         Rule // that decided; for scripts
	// etcd
	candidate, leader, window bool
	votes, match              int8
}

// zombie is a process that was frozen between its last check and its act.
type zombie struct {
	run simRun
	vol int8 // the directory that its handle leads to
}

// budget bounds a search. slow is how many rounds are made probe by probe or
// acted on late, with the others moving in between.
type budget struct {
	boot, crash, lose, drop, flip, route, move, term, write, slow, freeze, torn, mount, copy, hand, tick, withdraw, half, aside int8
}

// world is everything.
type world struct {
	rules   *rules
	plans   []rendezvous.Plan
	members [][]int8 // of each plan
	token   bool     // the plans differ by their token
	split   bool     // a wal-dir of its own
	minor   int8     // what an etcd lists just after its start: 0 nothing, 1 all as not started, 2 what it knows
	n       int8     // hosts
	now     int8     // seconds
	hosts   [maxHosts]simHost
	vols    [maxVols]simDisk
	route   [maxHosts][maxMembers]int8 // observer, member: host; -1: none
	lives   [maxLives]simLife
	nLives  int8
	forks   [maxForks]birth.DiskID // disk IDs that are on two disks, or came back
	nForks  int8
	snap    simDisk // a copy of a volume
	snapOf  int8    // volume+1 that it was taken of
	snapped int8    // whose: member+1
	next    int8    // next entry
	left    budget
}

// shape is how a world begins.
type shape struct {
	plans   [][]int8 // members of each
	hosts   []int8   // member of each host
	views   []int8   // plan of each host; nil: the first
	late    []int8   // hosts whose volume is not mounted yet
	without [][]string
	token   bool
	split   bool
	minor   int8
	left    budget
	rules   *rules
}

func memberID(p, m int8) rendezvous.ID {
	return rendezvous.ID([]byte{"abcdef"[p], '0' + byte(m)})
}

func memberName(m int8) string { return "m" + strconv.Itoa(int(m)) }

func newWorld(s shape) *world {
	w := &world{rules: s.rules, members: s.plans, token: s.token, split: s.split, minor: s.minor, n: int8(len(s.hosts)), next: 1, left: s.left}
	if w.rules == nil {
		w.rules = &rules{}
	}
	for p, ms := range s.plans {
		plan := rendezvous.Plan{Digest: "plan" + strconv.Itoa(p)}
		for _, m := range ms {
			plan.Members = append(plan.Members, rendezvous.Member{ID: w.idOf(int8(p), m), Name: memberName(m), PeerURLs: []string{"http://" + memberName(m)}})
		}
		w.plans = append(w.plans, plan)
	}
	for i := range w.route {
		for m := range w.route[i] {
			w.route[i][m] = -1
			if first := slices.Index(s.hosts, int8(m)); first >= 0 {
				w.route[i][m] = int8(first)
			}
		}
	}
	vols := w.n
	for i := range w.n {
		h := &w.hosts[i]
		h.member, h.base, h.real, h.at = s.hosts[i], i, i, i
		if s.views != nil {
			h.view = s.views[i]
		}
		if s.without != nil {
			h.without = s.without[i]
		}
		if slices.Contains(s.late, i) {
			h.base, h.at = vols, vols
			vols++
		}
	}
	return w
}

// idOf: with another token all IDs are different.
func (w *world) idOf(p, m int8) rendezvous.ID {
	if w.token {
		return memberID(p, m)
	}
	return memberID(0, m)
}

func (w *world) planOf(h *simHost, p int8) rendezvous.Plan {
	plan := w.plans[p]
	plan.Self = w.idOf(p, h.member)
	return plan
}

func (w *world) clock() time.Duration { return time.Duration(w.now) * time.Second }

func (w *world) decide(in *Input) Outcome {
	if w.rules.rows != nil {
		return decide(w.rules.rows, in)
	}
	return decide(theTable, in)
}

// theTable is the real table, built once.
var theTable = table()

// boot starts an agent, as a supervisor does.
func (w *world) boot(i int8) error {
	h := &w.hosts[i]
	h.simRun = simRun{}
	w.sweep(h)
	if w.rules.stock {
		return w.stock(i)
	}
	return w.begin(i)
}

// stock starts stock etcd with an initial cluster.
func (w *world) stock(i int8) error {
	h := &w.hosts[i]
	if d := &w.vols[h.at]; d.stage == sEmpty {
		gen := d.gen + 1
		*d = simDisk{stage: sFree, id: w.lives[0].roster.Disk(string(w.idOf(0, h.member))), life: 1, walLife: 1, gen: gen, term: 1}
	}
	return w.startEtcd(i)
}

// begin decides on the directory alone. Where peers have to be asked, they are
// answered from now on.
func (w *world) begin(i int8) error {
	h := &w.hosts[i]
	w.hush(h)
	h.proc, h.plan, h.released = agentUp, h.view, false
	h.sight = w.look(h)
	h.disk = w.means(h)
	d := &w.vols[h.at]
	if d.life > 0 {
		h.plan = w.lives[d.life-1].plan
	}
	in := Input{
		Disk: h.disk, Records: RecordsSilent, Members: len(w.members[h.plan]), Policy: Policy{Without: h.without},
		View: rendezvous.View{Plan: w.planOf(h, h.plan)},
	}
	out := w.decide(&in)
	h.last = out.Rule
	switch out.Step {
	case StepMeet:
		w.meet(h)
	case StepKeep:
		return w.startEtcd(i)
	case StepRefuse:
		w.refuse(h)
	case StepWait, StepFind, StepProbe, StepStage, StepPrepare, StepCommit, StepSeedAlone, StepRelease, StepRevoke, StepConsult, StepAdmit, StepFeed, StepClear, StepSetAside, StepGiveUp:
		return fmt.Errorf("host %d: without asking, %v by %q", i, out.Step, out.Rule)
	}
	return nil
}

// meet makes the machine. What was found is made durable before it is said.
func (w *world) meet(h *simHost) {
	d := &w.vols[h.at]
	if !w.rules.noConfirm {
		d.soft = false
	}
	if !w.rules.freshNonce || h.nonce == "" {
		h.runs++
		h.nonce = "n" + strconv.Itoa(int(h.member)) + "." + strconv.Itoa(w.hostOf(h)) + "." + strconv.Itoa(int(h.runs))
	}
	start := rendezvous.Start{Nonce: h.nonce, Plan: w.planOf(h, h.plan), State: rendezvous.Waiting, Without: h.without, Withdrawn: w.withdrawn(d)}
	switch h.disk {
	case DiskPrepared:
		start.State, start.Disk = rendezvous.Prepared, d.id
	case DiskPending:
		start.State, start.Disk, start.Roster = rendezvous.Committed, d.id, w.lives[d.life-1].roster
	case DiskFirst:
		start.State, start.ClusterID = rendezvous.Committed, w.lives[d.life-1].cluster
	case DiskEmpty, DiskJoining, DiskReleased, DiskUsed, DiskOurs, DiskUnnamed, DiskRemoved, DiskPackage, DiskOtherToken, DiskDamaged:
	}
	h.routes = w.route[w.hostOf(h)]
	w.set(h, rendezvous.NewMachine(start))
}

func (w *world) hostOf(h *simHost) int {
	for i := range w.n {
		if h == &w.hosts[i] {
			return int(i)
		}
	}
	return -1
}

// hush forgets a round and an intent, and stops answering.
func (w *world) hush(h *simHost) {
	h.machine, h.known, h.answer = nil, "", nil
	h.drop()
}

// drop forgets a round and what was to follow from it.
func (h *simRun) drop() {
	h.got, h.begun, h.intent, h.roster, h.leaving = [maxMembers]*said{}, false, StepWait, nil, false
}

// stop ends whatever process runs.
func (w *world) stop(h *simHost) {
	h.simRun, h.proc, h.proof = simRun{}, down, nil
	h.candidate, h.leader, h.window, h.votes, h.match = false, false, false, 0, 0
}

func (w *world) refuse(h *simHost) {
	w.stop(h)
	h.proc = refused
}

func (w *world) set(h *simHost, m rendezvous.Machine) {
	h.machine, h.known, h.answer = &m, m.String(), nil
	h.plan = int8(slices.IndexFunc(w.plans, func(p rendezvous.Plan) bool { return p.Digest == m.Plan.Digest }))
	if h.disk == DiskFirst {
		return // it has nothing to say that this edition understands
	}
	a := m.Answer()
	if w.rules.answer != nil {
		w.rules.answer(w, h, &a)
	}
	h.answer = &said{Sighting: rendezvous.Sighting{Peer: a.MemberID, Kind: rendezvous.Agent, Answer: a}, text: answerText(&a)}
}

func answerText(a *rendezvous.Answer) string {
	words := []string{a.Nonce, a.Digest, string(a.State), string(a.Disk), string(a.ClusterID), fmt.Sprint(a.Withdrawn)}
	for _, seat := range a.Proposal {
		words = append(words, seat.Member, string(seat.Disk), seat.Nonce)
	}
	return strings.Join(words, " ")
}

// still reports whether the directory is what it was at the last examination.
func (w *world) still(h *simHost) bool { return h.sight == w.look(h) }

// dial is what an observer gets at a member's URL.
func (w *world) dial(from, member int8) *said {
	at := w.route[from][member]
	if w.rules.oldAddresses && w.hosts[from].proc == agentUp {
		at = w.hosts[from].routes[member]
	}
	s := w.answers(at)
	if peer := w.idOf(w.hosts[from].plan, member); s.Peer != peer || w.rules.sight != nil {
		t := *s
		t.Peer = peer
		if w.rules.sight != nil {
			w.rules.sight(w, &w.hosts[from], &t.Sighting)
		}
		return &t
	}
	return s
}

// answers is what is said at a host.
func (w *world) answers(at int8) *said {
	if at < 0 {
		return &said{}
	}
	h := &w.hosts[at]
	switch h.proc {
	case agentUp:
		if h.answer == nil {
			return &said{}
		}
		if !w.rules.noLookAnswer && !w.still(h) {
			h.answer = nil // until it has decided anew
			return &said{}
		}
		return h.answer
	case etcdUp:
		return w.listed(h)
	case down, refused, frozen:
	}
	return &said{}
}

// lookFirst examines the directory where it has changed: then all is decided
// anew. It reports whether the run goes on as it was.
func (w *world) lookFirst(i int8) (same bool, err error) {
	h := &w.hosts[i]
	if w.rules.noLookRound || w.still(h) {
		return true, nil
	}
	return false, w.begin(i)
}

// beginRound is what an agent does before it asks anybody.
func (w *world) beginRound(i int8) (same bool, err error) {
	h := &w.hosts[i]
	if same, err = w.lookFirst(i); !same || err != nil {
		return same, err
	}
	if isEmpty(h.disk) && h.plan != h.view && !w.token && !w.rules.noReplan {
		w.set(h, h.machine.Replan(w.planOf(h, h.view)))
	}
	h.begun, h.began = true, w.now
	return true, nil
}

// round is a whole round at once; without is a member whose answer is lost.
func (w *world) round(i, without int8) error {
	h := &w.hosts[i]
	if same, err := w.beginRound(i); !same || err != nil {
		return err
	}
	for _, p := range w.members[h.plan] {
		if p != h.member {
			w.probe(i, p, p != without)
		}
	}
	return w.endRound(i)
}

func (w *world) probe(i, p int8, reached bool) {
	h := &w.hosts[i]
	if !reached {
		h.got[p] = &said{Sighting: rendezvous.Sighting{Peer: w.idOf(h.plan, p)}}
		return
	}
	h.got[p] = w.dial(i, p)
}

// endRound decides once every peer has been asked.
func (w *world) endRound(i int8) error {
	h := &w.hosts[i]
	var r rendezvous.Round
	for _, p := range w.members[h.plan] {
		if p == h.member {
			continue
		}
		if h.got[p] == nil {
			return nil
		}
		r.Peers = append(r.Peers, h.got[p].Sighting)
	}
	h.got, h.begun = [maxMembers]*said{}, false
	r.Self = w.dial(i, h.member).Sighting
	w.set(h, h.machine.Observe(r, w.clock()))
	return w.decideFor(i)
}

func (w *world) viewOf(h *simHost) rendezvous.View {
	v := h.machine.View()
	if w.rules.view != nil {
		w.rules.view(w, h, &v)
	}
	return v
}

func (w *world) decideFor(i int8) error {
	h := &w.hosts[i]
	v := w.viewOf(h)
	in := Input{
		Disk: h.disk, Records: RecordsSilent, Members: len(w.members[h.plan]), Policy: Policy{Without: h.without}, Asked: v.Fresh, View: v,
	}
	out := w.decide(&in)
	h.last = out.Rule
	switch out.Step {
	case StepPrepare, StepCommit, StepRelease, StepRevoke:
		h.intent, h.roster, h.gen = out.Step, v.Roster, w.vols[h.at].gen
	case StepRefuse:
		w.refuse(h)
	case StepKeep:
		if h.disk != DiskReleased {
			return w.startEtcd(i)
		}
		h.leaving = true
	case StepWait:
	case StepFind, StepMeet, StepProbe, StepStage, StepSeedAlone, StepConsult, StepAdmit, StepFeed, StepClear, StepSetAside, StepGiveUp:
		return fmt.Errorf("host %d: after a round, %v by %q", i, out.Step, out.Rule)
	}
	return nil
}

// ready is the last check before a step. A freeze can come after it.
func (w *world) ready(h *simHost) bool {
	if !w.rules.oldRounds && time.Duration(w.now-h.began)*time.Second > oldRound {
		return false
	}
	return w.rules.noLookStep || w.still(h)
}

// act makes the intended step, if it may still be made.
func (w *world) act(i int8) error {
	h := &w.hosts[i]
	if !w.ready(h) {
		h.drop()
		return nil
	}
	return w.do(i, h.at)
}

// do makes the intended step. vol is where a handle that was opened before leads.
func (w *world) do(i, vol int8) error {
	h := &w.hosts[i]
	step, roster, gen := h.intent, h.roster, h.gen
	h.drop()
	switch step {
	case StepPrepare:
		w.prepareDisk(h)
		if !w.examine(h, DiskPrepared) {
			return w.begin(i)
		}
		w.set(h, h.machine.Prepare(w.vols[h.at].id))
	case StepCommit:
		err := w.bind(h, h.plan, roster)
		if d := &w.vols[h.at]; err != nil || !w.examine(h, DiskPending) || !w.lives[d.life-1].roster.Equal(roster) {
			if err != nil {
				return err
			}
			return w.begin(i)
		}
		w.set(h, h.machine.Commit(roster))
	case StepRelease:
		ok, err := w.free(h, vol, gen)
		if err != nil {
			return err
		}
		h.released = true
		if !ok || !w.examine(h, DiskReleased) {
			return w.begin(i)
		}
		w.set(h, h.machine.Release())
		if w.rules.noLastLook {
			h.leaving = true
		}
	case StepRevoke:
		w.unfree(h, gen)
		w.refuse(h)
	case StepWait, StepFind, StepMeet, StepProbe, StepStage, StepSeedAlone, StepKeep, StepRefuse, StepConsult, StepAdmit, StepFeed, StepClear, StepSetAside, StepGiveUp:
		return fmt.Errorf("host %d has no act for %v", i, step)
	}
	return nil
}

// examine takes note of what a step has made of the directory. It reports
// whether that is what was wanted.
func (w *world) examine(h *simHost, want Disk) bool {
	h.sight = w.look(h)
	h.disk = w.means(h)
	return h.disk == want
}

// freeze: the last check is passed, and the process sleeps before its act.
func (w *world) freeze(i int8) {
	h := &w.hosts[i]
	if !w.ready(h) {
		h.drop()
		return
	}
	h.zombie = &zombie{run: h.simRun, vol: h.at}
	w.stop(h)
	h.proc = frozen
}

// thaw lets a frozen process act. If another run has begun at the same place
// meanwhile, the act is all that is left of the first one.
func (w *world) thaw(i int8) error {
	h := &w.hosts[i]
	z := h.zombie
	h.zombie = nil
	if h.proc == frozen {
		h.simRun, h.proc = z.run, agentUp
		return w.do(i, z.vol)
	}
	ghost := *h
	ghost.simRun = z.run
	switch z.run.intent {
	case StepPrepare:
		w.prepareDisk(&ghost)
	case StepCommit:
		return w.bind(&ghost, z.run.plan, z.run.roster)
	case StepRelease:
		_, err := w.free(&ghost, z.vol, z.run.gen)
		return err
	case StepRevoke:
		w.unfree(&ghost, z.run.gen)
	case StepWait, StepFind, StepMeet, StepProbe, StepStage, StepSeedAlone, StepKeep, StepRefuse, StepConsult, StepAdmit, StepFeed, StepClear, StepSetAside, StepGiveUp:
	}
	return nil
}

// torn: the process is killed after its act, before the sync and before a word.
func (w *world) torn(i int8) error {
	h := &w.hosts[i]
	if !w.ready(h) {
		h.drop()
		return nil
	}
	before := w.vols[h.at].stage
	err := w.do(i, h.at)
	d := &w.vols[h.at]
	d.soft = d.stage == before+1 || d.stage == sBound && before == sPrepared
	if w.split && d.stage == sBound && before == sPrepared {
		d.stage = sHalf // the log is not in its place yet
	}
	w.stop(h)
	return err
}

// power: a power failure takes what is not durable.
func (w *world) power(i int8) error {
	h := &w.hosts[i]
	d := &w.vols[h.at]
	n := d.life
	d.unwritten()
	w.stop(h)
	if n == 0 || d.life != 0 || w.lives[n-1].forked&(1<<h.member) != 0 {
		return nil
	}
	// What was not said to anybody has not happened.
	l := &w.lives[n-1]
	l.bound &^= 1 << h.member
	if l.released != 0 {
		return fmt.Errorf("S2: %s is released, and a power failure takes the seed of member %d", l.cluster, h.member)
	}
	return nil
}

// withdraw is one look of `etcdinit withdraw`, beside whatever else runs. Where it
// is slow, it sleeps between its proof and its act.
func (w *world) withdraw(i int8, slow bool) error {
	h := &w.hosts[i]
	d := &w.vols[h.at]
	if w.meansOf(h, false) != DiskPending {
		h.proof = nil
		return nil
	}
	life := &w.lives[d.life-1]
	m := rendezvous.NewMachine(rendezvous.Start{
		Nonce: "withdraw", Plan: w.planOf(h, life.plan), State: rendezvous.Committed, Disk: d.id, Roster: life.roster, Without: h.without,
	})
	plan := h.plan
	h.plan = life.plan
	var r rendezvous.Round
	for _, p := range w.members[life.plan] {
		if p != h.member {
			r.Peers = append(r.Peers, w.dial(i, p).Sighting)
		}
	}
	h.plan = plan
	m = m.Observe(r, w.clock())
	v := m.View()
	proof := pendingProof{}
	if h.proof != nil {
		proof = *h.proof
	}
	proof.look(&v, w.clock())
	h.proof = &proof
	if holds := proof.holds() || w.rules.anyProof || w.rules.quickProof && proof.missing == ""; !holds {
		return nil
	}
	h.proof = nil
	if life.entries != 0 && life.forked == 0 {
		return fmt.Errorf("withdraw: member %d proves that no write was acknowledged under %s, and one was", h.member, life.cluster)
	}
	h.taking = d.gen
	if !slow {
		w.takeBack(i)
	}
	return nil
}

// takeBack moves a seed aside, if it is still the one that the proof is about and
// still pending.
func (w *world) takeBack(i int8) {
	h := &w.hosts[i]
	if d := &w.vols[h.at]; d.gen == h.taking && (w.meansOf(h, false) == DiskPending || w.rules.takeAny) {
		d.setAside(true)
		w.blank(h.at)
	}
	h.taking = 0
}
