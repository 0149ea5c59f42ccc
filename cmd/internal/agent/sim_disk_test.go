package agent

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/internal/birth"
)

// stage is how far a directory is.
type stage int8

const (
	sEmpty stage = iota
	sPrepared
	sHalf  // of a commit with a wal-dir of its own: the log is not in its place yet
	sBound // the seed, with its mark
	sFree  // the mark is gone
)

func (s stage) String() string {
	return [...]string{"empty", "prepared", "half", "bound", "free"}[s]
}

// simDisk is what a volume holds.
type simDisk struct {
	stage stage
	id    birth.DiskID // kept beside a seed only in the record
	life  int8         // index+1 of the birth that it is bound to
	// With a wal-dir of its own, both sides have the ID and the birth.
	walID   birth.DiskID
	walLife int8
	gen     int8         // which seed of this volume it is
	first   bool         // of the first edition: without a roster
	token   bool         // a mutant's: the disk ID is still there beside the seed
	soft    bool         // the last step is not durable
	aside   [2]asideSeed // taken back by withdraw, and still there
	made    int8         // disk IDs made here
	// etcd
	ran           bool
	term, vote    int8 // vote: member+1
	logLen        int8
	log, logTerm  [3]int8
	pub, departed int8 // masks: shown as started; removed
}

// asideSeed is a pending seed that withdraw has moved aside.
type asideSeed struct {
	life, gen int8
	marked    bool
}

// withdrawn are the clusters that a volume's agent tells as taken back.
func (w *world) withdrawn(d *simDisk) (ids []rendezvous.ID) {
	for _, s := range d.aside {
		if s.life > 0 && (s.marked || w.rules.unmarked) {
			ids = append(ids, w.lives[s.life-1].cluster)
		}
	}
	return ids
}

// setAside moves a seed away, and leaves it beside what comes next. Only the
// command that proves something leaves it so that it counts.
func (d *simDisk) setAside(proven bool) {
	d.aside[1] = d.aside[0]
	d.aside[0] = asideSeed{d.life, d.gen, proven && d.stage == sBound}
}

// pristine: no etcd has left anything of its own.
func (d *simDisk) pristine() bool { return d.term <= 1 && d.vote == 0 && d.logLen == 0 && d.pub == 0 }

// last is the term of the last entry.
func (d *simDisk) last() int8 {
	if d.logLen == 0 {
		return 1
	}
	return d.logTerm[d.logLen-1]
}

// unwritten is what a power failure leaves.
func (d *simDisk) unwritten() {
	if !d.soft {
		return
	}
	d.soft = false
	switch d.stage {
	case sPrepared:
		d.stage, d.id, d.walID = sEmpty, "", ""
	case sHalf, sBound:
		d.stage, d.life, d.walLife, d.walID = sPrepared, 0, 0, d.id
	case sFree:
		d.stage = sBound
	case sEmpty:
	}
}

// life is what the outside world remembers of one birth.
type simLife struct {
	plan                    int8
	roster                  birth.Roster
	cluster                 rendezvous.ID
	bound, released, forked int8 // masks of members
	hand                    bool // somebody started etcd on a pending seed of it
	ranOn                   [maxMembers]int16
	lost, entries           int8
	entryTerm, leaders      [8]int8
}

// look is one look of an agent at its directory.
func (w *world) look(h *simHost) sight {
	d := &w.vols[h.at]
	return sight{h.at, d.life, d.walLife, d.gen, d.stage, d.id, d.walID}
}

func (w *world) means(h *simHost) Disk { return w.meansOf(h, h.released) }

// meansOf is what Inspect and the agent make of a directory.
func (w *world) meansOf(h *simHost, released bool) Disk {
	d := &w.vols[h.at]
	split := w.split && !w.rules.dataSideOnly
	switch {
	case split && d.stage < sBound && d.walLife != 0, split && d.stage >= sBound && d.walLife != d.life:
		return DiskDamaged
	case d.stage == sEmpty, d.stage == sPrepared && split && d.walID != d.id:
		return DiskEmpty
	case d.stage == sPrepared:
		return DiskPrepared
	case d.stage == sHalf:
		return DiskDamaged
	case d.stage == sFree && released:
		return DiskReleased
	case d.stage == sFree:
		return DiskOurs
	case !d.pristine():
		return DiskUsed
	case w.token && w.lives[d.life-1].plan != h.view:
		return DiskOtherToken
	case d.first:
		return DiskFirst
	}
	return DiskPending
}

// sweep finishes a commit that was cut short, or takes it back.
func (w *world) sweep(h *simHost) {
	d := &w.vols[h.at]
	if d.stage != sHalf {
		return
	}
	if d.walLife == d.life {
		d.stage = sBound
		return
	}
	*d = simDisk{made: d.made, gen: d.gen, aside: d.aside}
}

// prepareDisk gives the directory its ID, on both sides; an ID that is there on
// both sides is adopted.
func (w *world) prepareDisk(h *simHost) {
	d := &w.vols[h.at]
	if d.stage > sPrepared || d.walLife != 0 {
		return
	}
	if d.stage == sPrepared && (!w.split || d.walID == d.id) {
		return
	}
	d.made++
	d.id = birth.DiskID("d" + strconv.Itoa(int(h.at)) + "." + strconv.Itoa(int(d.made)))
	d.stage, d.walID, d.soft = sPrepared, d.id, w.rules.sayEarly
}

// bind binds a disk to a roster, by a rename out of a directory that is named by
// the disk ID: there is nothing to rename where that ID is not free any more.
func (w *world) bind(h *simHost, p int8, roster birth.Roster) error {
	d := &w.vols[h.at]
	id := roster.Disk(string(w.idOf(p, h.member)))
	unbound := d.stage == sPrepared && d.id == id && (!w.split || w.rules.dataSideOnly || d.walID == id && d.walLife == 0)
	switch {
	case unbound:
	case w.rules.bindTwice && d.stage == sBound && d.id == id:
	case w.rules.bindAny && d.stage <= sBound && (d.stage != sBound || d.pristine()):
	default:
		return nil
	}
	n, err := w.lifeOf(p, roster)
	if err != nil {
		return err
	}
	d.gen++
	*d = simDisk{stage: sBound, id: id, life: n, walID: id, walLife: n, gen: d.gen, made: d.made, term: 1, soft: w.rules.sayEarly, token: w.rules.keepToken, aside: d.aside}
	return w.checkBound(h.member, n, id)
}

// lifeOf finds or makes the birth of a roster.
func (w *world) lifeOf(p int8, roster birth.Roster) (int8, error) {
	for i := range w.nLives {
		if w.lives[i].plan == p && w.lives[i].roster.Equal(roster) {
			return i + 1, nil
		}
	}
	if w.nLives == maxLives {
		return 0, errTooMany
	}
	cluster := rendezvous.ID(strconv.FormatUint(roster.ClusterID(w.plans[p].Digest), 16))
	w.lives[w.nLives] = simLife{plan: p, roster: roster, cluster: cluster}
	w.nLives++
	return w.nLives, nil
}

// free removes the mark through the handle of the directory that was checked.
func (w *world) free(h *simHost, vol, gen int8) (bool, error) {
	if w.rules.releaseByPath {
		vol, gen = h.at, w.vols[h.at].gen
	}
	d := &w.vols[vol]
	for i := range d.aside {
		if d.aside[i].life > 0 && d.aside[i].gen == gen {
			d.aside[i].marked = false // it has been moved meanwhile
		}
	}
	if d.gen != gen || d.stage < sBound {
		return false, nil
	}
	was := d.stage
	d.stage = sFree
	if was == sBound {
		d.soft = w.rules.sayEarly
	}
	return vol == h.at, w.checkReleased(h.member, d)
}

// unfree puts the mark back.
func (w *world) unfree(h *simHost, gen int8) {
	if d := &w.vols[h.at]; d.gen == gen && d.stage == sFree {
		d.stage = sBound
	}
}

// blank moves a seed away, or empties a disk.
func (w *world) blank(v int8) {
	d := &w.vols[v]
	if d.life > 0 {
		l := &w.lives[d.life-1]
		for p, m := range w.members[l.plan] {
			if l.roster.Disk(string(w.plans[l.plan].Members[p].ID)) == d.id {
				l.lost |= 1 << m
			}
		}
	}
	kept := simDisk{made: d.made, gen: d.gen + 1, aside: d.aside}
	if d.token {
		kept.stage, kept.id, kept.walID = sPrepared, d.id, d.id
	}
	*d = kept
}

// lose puts an empty disk in the place of a machine's.
func (w *world) lose(i int8) {
	h := &w.hosts[i]
	w.stop(h)
	h.zombie = nil
	w.vols[h.at].token = false
	w.blank(h.at)
	w.vols[h.at].aside = [2]asideSeed{}
}

// loseSide empties one side of a machine with a wal-dir of its own.
func (w *world) loseSide(i, side int8) {
	h := &w.hosts[i]
	w.stop(h)
	h.zombie = nil
	d := &w.vols[h.at]
	if side == 0 {
		walID, walLife := d.walID, d.walLife
		w.blank(h.at)
		d.walID, d.walLife = walID, walLife
		return
	}
	if d.life > 0 {
		w.lives[d.life-1].lost |= 1 << h.member
	}
	d.walID, d.walLife = "", 0
}

// take remembers what a volume holds: a snapshot, or the source of a copy.
func (w *world) take(i int8) {
	w.snap, w.snapOf, w.snapped = w.vols[w.hosts[i].at], w.hosts[i].at+1, w.hosts[i].member+1
}

// restore puts a snapshot on a host's volume: another host's is a copy, its own
// is a roll-back. side: 0 all, 1 the data only, 2 the log only.
func (w *world) restore(i, side int8) {
	h := &w.hosts[i]
	w.stop(h)
	h.zombie = nil
	d := &w.vols[h.at]
	switch side {
	case 1:
		walID, walLife, made, gen := d.walID, d.walLife, d.made, d.gen
		w.blank(h.at)
		*d = w.snap
		d.walID, d.walLife, d.made, d.gen = walID, walLife, max(made, d.made), gen+2
		w.rolledBack(h)
		return
	case 2:
		d.walID, d.walLife = w.snap.walID, w.snap.walLife
		w.rolledBack(h)
		return
	}
	made, gen := d.made, d.gen
	w.blank(h.at)
	if w.snap.id != "" {
		w.fork(w.snap.id)
	}
	for _, s := range w.snap.aside { // what lies beside is copied too
		if s.life > 0 {
			l := &w.lives[s.life-1]
			w.fork(l.roster.Disk(string(w.idOf(l.plan, w.snapped-1))))
		}
	}
	*d = w.snap
	d.made, d.gen, d.soft = max(made, d.made), gen+2, false
}

// rolledBack: both sides fit again, so all of the disk has come back.
func (w *world) rolledBack(h *simHost) {
	if d := &w.vols[h.at]; d.id != "" && d.id == d.walID && d.life == d.walLife {
		w.fork(d.id)
	}
}

// fork takes note that a disk ID is on two disks, or has come back.
func (w *world) fork(id birth.DiskID) {
	if w.forked(id) {
		return
	}
	if w.nForks == maxForks {
		panic("too many copies for this world")
	}
	w.forks[w.nForks] = id
	w.nForks++
	for i := range w.nLives {
		w.markForks(&w.lives[i])
	}
}

func (w *world) forked(id birth.DiskID) bool { return slices.Contains(w.forks[:w.nForks], id) }

func (w *world) markForks(l *simLife) {
	for p, m := range w.members[l.plan] {
		if w.forked(l.roster.Disk(string(w.plans[l.plan].Members[p].ID))) {
			l.forked |= 1 << m
		}
	}
}

// checkBound is S1: a disk ID is bound once, and to one birth.
func (w *world) checkBound(member, n int8, id birth.DiskID) error {
	l := &w.lives[n-1]
	w.markForks(l)
	again := l.bound&(1<<member) != 0
	l.bound |= 1 << member
	if w.forked(id) {
		return nil
	}
	if again {
		return fmt.Errorf("S1: member %d is seeded twice under cluster %s, on disk %s", member, l.cluster, id)
	}
	for i := range w.nLives {
		o := &w.lives[i]
		if i != n-1 && o.bound&(1<<member) != 0 && o.roster.Disk(string(w.idOf(o.plan, member))) == id {
			return fmt.Errorf("S1: disk %s is bound to %s and to %s", id, o.cluster, l.cluster)
		}
	}
	return nil
}

// seats is the mask of the members of a roster.
func (w *world) seats(l *simLife) (mask int8) {
	for p, m := range w.members[l.plan] {
		if l.roster.Disk(string(w.plans[l.plan].Members[p].ID)) != "" {
			mask |= 1 << m
		}
	}
	return mask
}

// checkReleased is S2.
func (w *world) checkReleased(member int8, d *simDisk) error {
	l := &w.lives[d.life-1]
	l.released |= 1 << member
	if missing := w.seats(l) &^ l.bound; missing != 0 && !l.hand {
		return fmt.Errorf("S2: member %d is released under %s, while the disks of %b are not bound to it", member, l.cluster, missing)
	}
	if l.hand {
		return nil
	}
	for i := range w.nLives {
		o := &w.lives[i]
		if o == l || o.released == 0 || o.hand {
			continue
		}
		for _, s := range l.roster {
			if o.roster.Disk(s.Member) == s.Disk && !w.forked(s.Disk) {
				return fmt.Errorf("S2: %s and %s are both released, and share disk %s of member %s", o.cluster, l.cluster, s.Disk, s.Member)
			}
		}
	}
	return nil
}
