package agent

import (
	"fmt"
	"math/bits"

	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
)

// startEtcd starts an etcd on what is there. That is S1 once more: under one
// cluster ID, a member's etcd runs on one disk.
func (w *world) startEtcd(i int8) error {
	h := &w.hosts[i]
	used := h.disk == DiskUsed
	w.stop(h)
	h.proc, h.window = etcdUp, w.minor < 2
	d := &w.vols[h.at]
	d.ran = true
	if used {
		d.stage = sFree // handed over with a warning
	}
	l := &w.lives[d.life-1]
	if l.roster == nil {
		return nil // the first edition's
	}
	here := int16(h.at+1)<<8 | int16(d.gen)
	if on := l.ranOn[h.member]; !w.rules.stock && on != 0 && on != here && l.forked&(1<<h.member) == 0 {
		return fmt.Errorf("S1: two disks of member %d run under %s", h.member, l.cluster)
	}
	l.ranOn[h.member] = here
	return nil
}

// hand: somebody starts etcd on a pending seed.
func (w *world) hand(i int8) error {
	h := &w.hosts[i]
	w.lives[w.vols[h.at].life-1].hand = true
	h.disk = DiskPending
	return w.startEtcd(i)
}

// listed is what an etcd tells: its cluster's ID, and its members as far as it
// knows them at this moment.
func (w *world) listed(h *simHost) *said {
	d := &w.vols[h.at]
	l := &w.lives[d.life-1]
	s := &said{Sighting: rendezvous.Sighting{Peer: w.idOf(l.plan, h.member), Kind: rendezvous.Etcd, ClusterID: l.cluster}, text: "etcd " + string(l.cluster)}
	if h.window && w.minor == 0 {
		return s
	}
	for _, m := range w.members[l.plan] {
		if d.departed&(1<<m) != 0 {
			continue
		}
		started := d.pub&(1<<m) != 0 && !h.window
		s.Members = append(s.Members, rendezvous.Listed{ID: w.idOf(l.plan, m), Name: memberName(m), Started: started})
		s.text += fmt.Sprint(" ", m, started)
	}
	return s
}

// reaches reports whether an etcd's raft messages to a member arrive.
func (w *world) reaches(i, member int8) (int8, bool) {
	j := w.route[i][member]
	if j < 0 || j == i || w.hosts[i].proc != etcdUp || w.hosts[j].proc != etcdUp {
		return j, false
	}
	return j, w.vols[w.hosts[i].at].life == w.vols[w.hosts[j].at].life
}

func (w *world) etcdMoves(ms []move, i int8, h *simHost) []move {
	d := &w.vols[h.at]
	l := &w.lives[d.life-1]
	if h.window {
		ms = append(ms, move{mSettle, i, 0})
	}
	if w.left.term > 0 && !h.leader && int(d.term) < len(l.leaders)-1 {
		ms = append(ms, move{mCampaign, i, 0})
	}
	if h.leader && w.left.write > 0 && int(d.logLen) < len(d.log) && int(w.next) < len(l.entryTerm)-1 {
		ms = append(ms, move{mWrite, i, 0})
	}
	if h.leader && bits.OnesCount8(uint8(h.match)) >= w.quorum(l) && d.pub&(1<<h.member) == 0 {
		ms = append(ms, move{mPublish, i, i})
	}
	if !h.leader && !h.candidate {
		return ms
	}
	for _, p := range w.members[l.plan] {
		j, ok := w.reaches(i, p)
		if !ok {
			continue
		}
		v := &w.hosts[j]
		e := &w.vols[v.at]
		if h.candidate && h.votes&(1<<p) == 0 && grants(e, d, h.member) {
			ms = append(ms, move{mGrant, j, i})
		}
		if h.leader && h.match&(1<<p) == 0 && e.term <= d.term && !v.leader {
			ms = append(ms, move{mAck, j, i})
		}
		if h.leader && h.match&(1<<p) != 0 && bits.OnesCount8(uint8(h.match)) >= w.quorum(l) && d.pub&(1<<p) == 0 {
			ms = append(ms, move{mPublish, j, i})
		}
	}
	return ms
}

func grants(v, c *simDisk, candidate int8) bool {
	if v.term > c.term || v.term == c.term && v.vote != 0 && v.vote != candidate+1 {
		return false
	}
	return c.last() > v.last() || c.last() == v.last() && c.logLen >= v.logLen
}

func (w *world) quorum(l *simLife) int { return len(w.members[l.plan])/2 + 1 }

func (w *world) campaign(i int8) {
	h := &w.hosts[i]
	d := &w.vols[h.at]
	w.left.term--
	d.term, d.vote = d.term+1, h.member+1
	h.candidate, h.leader, h.votes = true, false, 1<<h.member
}

func (w *world) grant(j, i int8) error {
	v, c := &w.hosts[j], &w.hosts[i]
	d, cd := &w.vols[v.at], &w.vols[c.at]
	if d.term < cd.term {
		v.candidate, v.leader, v.match = false, false, 0
	}
	d.term, d.vote = cd.term, c.member+1
	c.votes |= 1 << v.member
	if l := &w.lives[cd.life-1]; bits.OnesCount8(uint8(c.votes)) >= w.quorum(l) {
		return w.elected(c, cd, l)
	}
	return nil
}

func (w *world) write(i int8) {
	h := &w.hosts[i]
	d := &w.vols[h.at]
	w.left.write--
	d.log[d.logLen], d.logTerm[d.logLen] = w.next, d.term
	w.next++
	d.logLen++
	h.match = 1 << h.member
}

// ack: a follower takes over the leader's log.
func (w *world) ack(j, i int8) {
	f, h := &w.hosts[j], &w.hosts[i]
	d, ld := &w.vols[f.at], &w.vols[h.at]
	if d.term < ld.term {
		d.vote = 0
	}
	f.candidate = false
	d.term, d.log, d.logTerm, d.logLen = ld.term, ld.log, ld.logTerm, ld.logLen
	d.pub |= ld.pub
	h.match |= 1 << f.member
	l := &w.lives[ld.life-1]
	if bits.OnesCount8(uint8(h.match)) < w.quorum(l) || ld.last() != ld.term {
		return
	}
	for _, e := range ld.log[:ld.logLen] {
		if l.entries&(1<<e) == 0 {
			l.entries |= 1 << e
			l.entryTerm[e] = ld.term
		}
	}
}

// publish: what a member says of itself is applied where the leader is, and at
// the member. The others see it when they hear of the leader again.
func (w *world) publish(j, i int8) {
	m := w.hosts[j].member
	w.vols[w.hosts[i].at].pub |= 1 << m
	w.vols[w.hosts[j].at].pub |= 1 << m
}

// elected is S3: a leader has every entry that was acknowledged in an earlier
// term, as long as no more disks of its cluster were lost than a quorum can
// spare. And one leader a term.
func (w *world) elected(c *simHost, d *simDisk, l *simLife) error {
	c.candidate, c.leader, c.match = false, true, 1<<c.member
	spare := len(w.members[l.plan]) - w.quorum(l)
	if bits.OnesCount8(uint8(l.lost|l.forked)) > spare {
		return nil
	}
	if o := l.leaders[d.term]; !w.rules.stock && o != 0 && o != c.member+1 && l.forked == 0 {
		return fmt.Errorf("S3: members %d and %d both lead %s in term %d", o-1, c.member, l.cluster, d.term)
	}
	l.leaders[d.term] = c.member + 1
	have := int8(0)
	for _, e := range d.log[:d.logLen] {
		have |= 1 << e
	}
	for e, t := range l.entryTerm {
		if l.entries&(1<<e) != 0 && t < d.term && have&(1<<e) == 0 {
			return fmt.Errorf("S3: an acknowledged write is lost: leader %d of term %d of %s lacks entry %d of term %d", c.member, d.term, l.cluster, e, t)
		}
	}
	return nil
}
