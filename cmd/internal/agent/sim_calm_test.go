package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// calmRounds is what L1 promises.
const calmRounds = 8

// places is where DNS leads, the same for all: the host of each member.
type places [maxMembers]int8

// calmReason tells why not all members need to be released once all is calm; ""
// is L1: no disk of a roster is lost, or is not at its member's name.
func (w *world) calmReason(at places, plan int8) string {
	if w.nForks > 0 {
		return "a disk was copied"
	}
	lives := make(map[int8]bool)
	for _, m := range w.members[plan] {
		h := &w.hosts[at[m]]
		d := &w.vols[h.at]
		switch {
		case h.view != plan:
			return "tokens differ"
		case !slices.Equal(h.without, w.hosts[at[w.members[plan][0]]].without):
			return "--without differs"
		case w.meansOf(h, false) == DiskDamaged && (d.stage != sHalf || d.walLife != d.life):
			return "one side of a disk is lost"
		case d.departed != 0:
			return "a member was removed"
		case d.stage > sPrepared:
			lives[d.life] = true
		}
	}
	for n := range w.nLives {
		if !lives[n+1] {
			continue
		}
		l := &w.lives[n]
		switch {
		case l.hand:
			return "somebody started etcd on a pending seed"
		case l.plan != plan:
			return "bound to another plan"
		}
		for _, s := range l.roster {
			if where := w.whereIs(at, n+1, s.Member, plan); where != "" {
				return where
			}
		}
	}
	return ""
}

// whereIs tells what is wrong with one disk of a roster.
func (w *world) whereIs(at places, n int8, member string, plan int8) string {
	l := &w.lives[n-1]
	disk := l.roster.Disk(member)
	found := "a disk of the roster is lost"
	for i := range w.n {
		h := &w.hosts[i]
		if string(w.idOf(plan, h.member)) != member {
			continue
		}
		d := &w.vols[h.at]
		whole := d.id == disk && (!w.split || d.walID == disk) && (d.life == 0 || d.life == n)
		switch {
		case whole && at[h.member] == i:
			return ""
		case whole:
			found = "a disk of the roster is not at its name"
		}
	}
	return found
}

// calm lets everything settle: all are up, DNS is the same for all, rounds are
// fair. It returns how that ends; an error is a broken invariant.
func (w world) calm(at places, plan int8, backwards bool) (class string, err error) {
	w.left = budget{}
	for i := range w.n {
		h := &w.hosts[i]
		if h.zombie != nil {
			if err := w.thaw(i); err != nil {
				return "", err
			}
		}
		if h.intent != StepWait {
			if err := w.act(i); err != nil {
				return "", err
			}
		}
		if !w.token {
			h.view = plan
		}
		for m := range w.route[i] {
			w.route[i][m] = at[m]
		}
	}
	reason := w.calmReason(at, plan)
	for range calmRounds {
		for k := range w.n {
			i := k
			if backwards {
				i = w.n - 1 - k
			}
			if err := w.calmRound(i); err != nil {
				return "", err
			}
		}
		w.tick()
		if w.allFree(at, plan) {
			return "", nil
		}
	}
	if reason == "" {
		return "", fmt.Errorf("L1: all is calm, no disk of a roster is lost or moved, and after %d rounds not all are released\n%s", calmRounds, w.dump())
	}
	return reason, nil
}

// calmRound is what one host does in a round.
func (w *world) calmRound(i int8) error {
	h := &w.hosts[i]
	switch {
	case h.proc == down || h.proc == refused:
		return w.boot(i)
	case h.proc != agentUp:
		return nil
	case h.intent != StepWait:
		return w.act(i)
	case h.leaving:
		return w.leave(i)
	}
	h.drop()
	if err := w.round(i, -1); err != nil || h.intent == StepWait {
		return err
	}
	return w.act(i)
}

func (w *world) allFree(at places, plan int8) bool {
	for _, m := range w.members[plan] {
		h := &w.hosts[at[m]]
		if w.vols[h.at].stage != sFree && !slices.Contains(h.without, memberName(m)) && !w.leftOut(memberName(m)) {
			return false
		}
	}
	return true
}

func (w *world) leftOut(name string) bool {
	for i := range w.n {
		if slices.Contains(w.hosts[i].without, name) {
			return true
		}
	}
	return false
}

// everyPlace calls fn for each way in which DNS can settle.
func (w *world) everyPlace(plan int8, fn func(places) error) error {
	var at places
	for m := range at {
		at[m] = -1
	}
	var pick func(k int) error
	pick = func(k int) error {
		if k == len(w.members[plan]) {
			return fn(at)
		}
		m := w.members[plan][k]
		for i := range w.n {
			if w.hosts[i].member == m {
				at[m] = i
				if err := pick(k + 1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return pick(0)
}

// calmAll settles a world in every way, and counts how that ends.
func (w *world) calmAll(classes map[string]int) error {
	for plan := range w.plans {
		if w.token && plan > 0 || !w.whole(int8(plan)) {
			continue
		}
		err := w.everyPlace(int8(plan), func(at places) error {
			for _, backwards := range []bool{false, true} {
				class, err := w.calm(at, int8(plan), backwards)
				if errors.Is(err, errTooMany) {
					continue
				}
				if err != nil {
					return fmt.Errorf("calm with plan %d at %v, backwards %t: %w", plan, at, backwards, err)
				}
				classes[class]++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// whole reports whether every member of a plan has a host.
func (w *world) whole(plan int8) bool {
	for _, m := range w.members[plan] {
		if !slices.ContainsFunc(w.hosts[:w.n], func(h simHost) bool { return h.member == m }) {
			return false
		}
	}
	return true
}

func (w *world) dump() string {
	var b strings.Builder
	for i := range w.n {
		h := &w.hosts[i]
		d := &w.vols[h.at]
		fmt.Fprintf(&b, "host %d (member %d, view %d, volume %d): %v, disk %v %s life %d wal %s/%d gen %d ran %t pub %b term %d log %v, intent %v, routes %v, knows %s\n",
			i, h.member, h.view, h.at, h.proc, d.stage, d.id, d.life, d.walID, d.walLife, d.gen, d.ran, d.pub, d.term, d.log[:d.logLen], h.intent, w.route[i][:4], h.known)
	}
	for i := range w.nLives {
		l := &w.lives[i]
		fmt.Fprintf(&b, "life %d: %s plan %d %v bound %b released %b forked %b lost %b entries %b hand %t\n", i+1, l.cluster, l.plan, l.roster, l.bound, l.released, l.forked, l.lost, l.entries, l.hand)
	}
	return b.String()
}
