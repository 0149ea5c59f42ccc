package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/discovery"
)

// TestMembersProduct: every state that one member can be in, by the records and by the
// cluster, has its standing and the commands that fix it, beside two members that are
// as they should be.
func TestMembersProduct(t *testing.T) {
	t.Parallel()
	url := func(name string) []string { return []string{"http://" + name + ":2380"} }
	silent, alarm := errors.New("connection refused"), admit.Status{Errors: []string{"NOSPACE"}}
	for _, record := range []bool{true, false} {
		for _, listed := range []string{"", "voter", "learner"} {
			for _, started := range []bool{true, false} {
				for _, state := range []string{"well", "silent", "alarm"} {
					for _, othersWell := range []bool{true, false} {
						name := fmt.Sprint(record, listed, started, state, othersWell)
						if listed == "" && (!started || state != "well" || !record) || !started && state != "silent" {
							continue
						}
						s := sides{known: true, asked: true, ctl: "etcdctl --endpoints=E", seen: map[types.ID]MemberStatus{}}
						for i, n := range []string{"a", "b"} {
							s.peers = append(s.peers, discovery.Peer{Name: n, PeerURLs: url(n)})
							id := types.ID(10 + i)
							s.list.Members = append(s.list.Members, admit.Member{ID: id, Name: n, PeerURLs: url(n), ClientURLs: []string{"http://" + n + ":2379"}})
							s.seen[id] = MemberStatus{Status: admit.Status{MemberID: id, Leader: 10}}
						}
						if !othersWell {
							s.seen[11] = MemberStatus{Err: silent}
						}
						if record {
							s.peers = append(s.peers, discovery.Peer{Name: "c", PeerURLs: url("c")})
						}
						if listed != "" {
							m := admit.Member{ID: 12, PeerURLs: url("c"), IsLearner: listed == "learner"}
							if started {
								m.Name, m.ClientURLs = "c", []string{"http://c:2379"}
							}
							s.list.Members = append(s.list.Members, m)
							switch state {
							case "silent":
								s.seen[12] = MemberStatus{Err: silent}
							case "alarm":
								s.seen[12] = MemberStatus{Status: alarm}
							default:
								s.seen[12] = MemberStatus{Status: admit.Status{MemberID: 12, Leader: 10}}
							}
						}
						rows := s.rows()
						if len(rows) != 3 {
							t.Fatalf("%s: %d rows", name, len(rows))
						}
						i := slices.IndexFunc(rows, func(r MemberRow) bool { return r.Name == "c" || r.Name == "(c)" })
						if i < 0 {
							t.Fatalf("%s: %+v", name, rows)
						}
						row := rows[i]
						want, command := StandingSame, ""
						switch {
						case listed == "":
							want, command = StandingMissing, "etcdctl --endpoints=E member add c --learner --peer-urls=http://c:2380"
						case !record:
							want, command = StandingStranger, "etcdctl --endpoints=E member remove c"
							if listed == "voter" && !othersWell {
								command = "" // it would take the quorum
							}
						case !started:
							want, command = StandingUnstarted, "etcdctl --endpoints=E member remove c"
						case listed == "learner" && state == "silent":
							want, command = StandingLearnerDown, "etcdctl --endpoints=E member remove c"
						case listed == "learner":
							want, command = StandingLearner, "etcdinit promote --wait"
						case state == "silent":
							want = StandingDown
						case state == "alarm":
							want = StandingUnwell
						}
						if row.Standing != want || strings.Join(row.Commands, ";") != command || (row.Why == "") != (want == StandingSame) {
							t.Errorf("%s: %+v, want %s with %q", name, row, want, command)
						}
					}
				}
			}
		}
	}
}

// TestMembersMoved: a member that is listed at another URL than its record has.
func TestMembersMoved(t *testing.T) {
	t.Parallel()
	s := sides{
		known: true, asked: true, ctl: "etcdctl", seen: map[types.ID]MemberStatus{},
		peers: []discovery.Peer{{Name: "a", PeerURLs: []string{"http://a:2380"}}},
		list:  admit.List{Members: []admit.Member{{ID: 0xa, Name: "a", PeerURLs: []string{"http://192.0.2.1:2380"}, ClientURLs: []string{"http://a:2379"}}}},
	}
	rows := s.rows()
	if len(rows) != 1 || rows[0].Standing != StandingMoved || rows[0].Commands[0] != "etcdctl member update a --peer-urls=http://a:2380" {
		t.Errorf("%+v", rows)
	}
	s.peers, s.known = nil, false // without records nobody is a stranger
	if rows = s.rows(); len(rows) != 1 || rows[0].Standing != StandingSame {
		t.Errorf("%+v", rows)
	}
}
