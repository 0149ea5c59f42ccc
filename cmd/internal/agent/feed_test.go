package agent

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/seed"
)

// TestChooseGiver: a follower that is well and has applied most; the leader only where its
// database is small; nobody of an etcd whose images cannot be trusted.
func TestChooseGiver(t *testing.T) {
	t.Parallel()
	giver := func(id uint64, change func(*admit.Status)) Giver {
		s := admit.Status{Leader: 1, Version: "3.6.1", Applied: 100, DBSize: 1 << 30}
		if change != nil {
			change(&s)
		}
		return Giver{ID: types.ID(id), Endpoint: "http://m" + strconv.FormatUint(id, 10) + ":2379", Status: s}
	}
	leader := giver(1, nil)
	small := giver(1, func(s *admit.Status) { s.DBSize = 1 << 20 })
	follower := giver(2, nil)
	ahead := giver(3, func(s *admit.Status) { s.Applied = 101 })
	sick := giver(4, func(s *admit.Status) { s.Errors, s.Applied = []string{"NOSPACE"}, 200 })
	learner := giver(5, func(s *admit.Status) { s.IsLearner, s.Applied = true, 200 })
	lost := giver(6, func(s *admit.Status) { s.Leader, s.Applied = 0, 200 })
	old := giver(7, func(s *admit.Status) { s.Version = "3.5.5" })
	ancient := giver(8, func(s *admit.Status) { s.Version = "3.4.30" })
	for _, tt := range []struct {
		name   string
		givers []Giver
		here   string
		want   uint64
		why    string
	}{
		{"a follower", []Giver{leader, follower}, "", 2, ""},
		{"the one that is ahead", []Giver{leader, follower, ahead}, "3.6.0", 3, ""},
		{"not one that is sick, a learner, or without a leader", []Giver{sick, learner, lost, follower, leader}, "3.6.0", 2, ""},
		{"the leader alone, large", []Giver{leader}, "", 0, "only the leader"},
		{"the leader alone, small", []Giver{small}, "", 1, ""},
		{"nobody", nil, "", 0, "no member is well"},
		{"nobody is well", []Giver{sick, lost}, "", 0, "no member is well"},
		{"an old one among them", []Giver{leader, follower, old}, "", 0, "3.5.6"},
		{"3.4", []Giver{ancient}, "", 0, "3.5.6"},
		{"3.4 here", []Giver{leader, follower}, "3.4.30", 0, "3.4.30"},
	} {
		got, err := chooseGiver(tt.givers, tt.here)
		var none NoGiverError
		if uint64(got.ID) != tt.want || (err != nil) != (tt.why != "") || err != nil && (!errors.As(err, &none) || !strings.Contains(err.Error(), tt.why)) {
			t.Errorf("%s: %+v, %v; want %d, %q", tt.name, got, err, tt.want, tt.why)
		}
	}
}

// TestTail: the entries that come while the rest of a database is read and opened.
func TestTail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate       float64
		size, read int64
		took       time.Duration
		over       bool
	}{
		{0, 10 << 30, 64 << 20, time.Second, false},
		{300, 1_250_000_000, 64 << 20, 400 * time.Millisecond, false}, // 7.5 s and 3.75 s of boot
		{300, 1_250_000_000, 64 << 20, time.Second, true},
		{100, 1_250_000_000, 64 << 20, time.Second, false},
		{1000, 1_250_000_000, 0, 0, false}, // nothing is known yet
	} {
		if got := tail(tt.rate, tt.size, tt.read, tt.took) > maxTail; got != tt.over {
			t.Errorf("%+v: %.0f entries", tt, tail(tt.rate, tt.size, tt.read, tt.took))
		}
	}
}

// scripted is a member whose status changes from call to call.
type scripted struct {
	statuses []admit.Status
	opened   int
}

func (s *scripted) Status(context.Context, string) (admit.Status, error) {
	st := s.statuses[0]
	if len(s.statuses) > 1 {
		s.statuses = s.statuses[1:]
	}
	return st, nil
}

func (s *scripted) Snapshot(context.Context) (io.ReadCloser, error) {
	s.opened++
	return nil, errors.New("the stream broke off")
}

// TestReaderBreaks: a stream that does not come, or breaks, leaves nothing behind.
func TestReaderBreaks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := &scripted{statuses: []admit.Status{{MemberID: 1, Term: 2, Applied: 10}}}
	r := reader{link: link, giver: Giver{ID: 1, Endpoint: "http://a:2379"}, spec: seed.Spec{DataDir: dir}, log: zap.NewNop()}
	if _, err := r.read(t.Context()); err == nil || !strings.Contains(err.Error(), "broke off") || link.opened != 1 {
		t.Errorf("%v after %d tries", err, link.opened)
	}
	if st, err := seed.Inspect(dir, ""); err != nil || st.Kind != seed.Empty || len(st.Staged)+len(st.Leftovers) > 0 {
		t.Errorf("left behind: %+v, %v", st, err)
	}
}

// TestSeatConditions: one condition that does not hold is enough, whichever it is.
func TestSeatConditions(t *testing.T) {
	t.Parallel()
	whole := Seat{Empty: true, Answer: 1, SameID: true, Listed: true, Voter: true, Never: true, Started: 1, Voters: 2, SeatNeeded: true}
	holds := func(s Seat) bool {
		for _, c := range s.Conditions() {
			if !c.OK {
				return false
			}
		}
		return true
	}
	if !holds(whole) {
		t.Error("all hold, and it is refused")
	}
	for name, change := range map[string]func(*Seat){
		"data here": func(s *Seat) { s.Empty = false }, "nobody": func(s *Seat) { s.Answer = 0 }, "two clusters": func(s *Seat) { s.SameID = false },
		"a quorum": func(s *Seat) { s.Quorum = true }, "not listed": func(s *Seat) { s.Listed = false }, "a learner": func(s *Seat) { s.Voter = false },
		"has run": func(s *Seat) { s.Never = false }, "not enough": func(s *Seat) { s.SeatNeeded = false },
	} {
		s := whole
		change(&s)
		if holds(s) {
			t.Errorf("%s: the seat is taken", name)
		}
	}
}
