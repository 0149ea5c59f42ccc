package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// Standing is what a member is by the records and by the running cluster.
type Standing string

// The standings. All but the first are differences.
const (
	StandingSame        Standing = "same"
	StandingMissing     Standing = "not in the cluster"
	StandingStranger    Standing = "no record"
	StandingMoved       Standing = "another peer URL"
	StandingDown        Standing = "silent"
	StandingUnwell      Standing = "unwell"
	StandingUnstarted   Standing = "never started"
	StandingLearner     Standing = "learner"
	StandingLearnerDown Standing = "silent learner"
)

// MemberRow is one member: what the records say, and what the running cluster says.
type MemberRow struct {
	Name     string   `json:"name"`
	Standing Standing `json:"standing"`
	// Why says in words what differs.
	Why string `json:"why,omitempty"`
	// Commands fix the difference, in order. Each works as printed, on any host that
	// reaches the client ports; On names the node that a command is for, where it is one.
	Commands []string `json:"commands,omitempty"`
	On       string   `json:"on,omitempty"`

	RecordURLs []string `json:"recordURLs,omitempty"` // peer URLs by the records
	ID         string   `json:"id,omitempty"`
	PeerURLs   []string `json:"peerURLs,omitempty"` // by the cluster
	ClientURLs []string `json:"clientURLs,omitempty"`
	Role       string   `json:"role,omitempty"` // leader, voter, learner
	Version    string   `json:"version,omitempty"`
	DBSize     int64    `json:"dbSize,omitempty"` // bytes
	Applied    uint64   `json:"applied,omitempty"`
}

// MembersReport is records and running cluster side by side.
type MembersReport struct {
	ClusterID string      `json:"clusterID,omitempty"`
	Members   []MemberRow `json:"members"`
	// Records and Cluster say why one side is not known.
	Records string `json:"recordsError,omitempty"`
	Cluster string `json:"clusterError,omitempty"`
	// Healthy and Voters tell how many voters answer and are well.
	Healthy int `json:"healthy"`
	Voters  int `json:"voters"`
}

// Differences counts the members that are not as the records say.
func (r *MembersReport) Differences() int {
	n := 0
	for _, m := range r.Members {
		if m.Standing != StandingSame {
			n++
		}
	}
	return n
}

// MemberStatus is what one listed member says of itself.
type MemberStatus struct {
	Status admit.Status
	Err    error
}

// Members asks discovery and the running cluster, and changes nothing. endpoints are
// client URLs; where there are none, those of the records are asked. A side that is not
// known is told in the report; if both are not, that is the error.
func Members(ctx context.Context, cfg Config, endpoints []string) (*MembersReport, error) {
	a := newAgent(cfg)
	ctx, cancel := a.deadline(ctx)
	defer cancel()
	report := &MembersReport{}
	peers, err := a.recordsNow(ctx)
	if err != nil {
		report.Records = err.Error()
	}
	if len(endpoints) == 0 {
		endpoints = a.recordEndpoints(peers)
	}
	found := &book{}
	found.update(peers)
	list, seen, lerr := a.askCluster(ctx, endpoints, found.dial)
	if lerr != nil {
		report.Cluster = lerr.Error()
	}
	if err != nil && lerr != nil {
		return report, &exit.Error{Status: exit.Disagree, Reason: "nothing-known", Msg: "neither the records nor a running cluster are known: " + report.Records, Err: lerr}
	}
	if lerr == nil {
		report.ClusterID = list.ClusterID.String()
	}
	side := sides{peers: peers, known: err == nil, list: list, asked: lerr == nil, seen: seen, ctl: a.etcdctlAt(healthyEndpoints(list, seen, endpoints))}
	report.Members = side.rows()
	report.Healthy, report.Voters = side.healthy()
	return report, nil
}

// recordsNow asks discovery: once, unless --timeout was given and something is missing.
func (a *agent) recordsNow(ctx context.Context) ([]discovery.Peer, error) {
	provider, err := a.Registry.Open(a.Source, a.env())
	if err != nil {
		return nil, err
	}
	var last error
	limited, cancel := context.WithTimeout(ctx, restartBudget)
	defer cancel()
	peers, err := discovery.Await(limited, provider, discovery.AwaitOptions{Size: a.Size, Env: a.env(), OnProgress: func(p discovery.Progress) {
		last = p.Err
		cancel()
	}})
	if err != nil && last != nil {
		err = last
	}
	return peers, err
}

// recordEndpoints are the client URLs of the records, or else each peer's host with the
// client port of this node's own configuration.
func (a *agent) recordEndpoints(peers []discovery.Peer) []string {
	var urls []string
	for _, p := range peers {
		if len(p.ClientURLs) > 0 {
			urls = append(urls, p.ClientURLs...)
			continue
		}
		for _, u := range p.PeerURLs {
			urls = append(urls, a.clientURLs(hosturl.Host(u))...)
		}
	}
	if len(urls) == 0 {
		urls = a.clientURLs("127.0.0.1")
	}
	slices.Sort(urls)
	return slices.Compact(urls)
}

// askCluster lists the members and asks each of them.
func (a *agent) askCluster(ctx context.Context, endpoints []string, dial rendezvous.DialFunc) (admit.List, map[types.ID]MemberStatus, error) {
	link, err := a.Admit(endpoints, dial)
	if err != nil {
		return admit.List{}, nil, err
	}
	defer func() { _ = link.Close() }() //nolint:errcheck // nothing was changed
	list, err := link.List(ctx)
	if err != nil {
		return list, nil, err
	}
	seen := make(map[types.ID]MemberStatus, len(list.Members))
	for _, m := range list.Members {
		s, err := link.StatusOf(ctx, m)
		seen[m.ID] = MemberStatus{s, err}
	}
	return list, seen, nil
}

func healthyEndpoints(list admit.List, seen map[types.ID]MemberStatus, otherwise []string) []string {
	var urls []string
	for _, m := range list.Members {
		if s := seen[m.ID]; s.Err == nil && !m.IsLearner {
			urls = append(urls, m.ClientURLs...)
		}
	}
	if len(urls) == 0 {
		return otherwise
	}
	slices.Sort(urls)
	return slices.Compact(urls)
}

// sides are the records and the cluster.
type sides struct {
	peers []discovery.Peer
	known bool // the records are
	list  admit.List
	asked bool // the cluster was
	seen  map[types.ID]MemberStatus
	ctl   string // etcdctl with its endpoints and certificates
}

// healthy counts the voters that answer without an alarm.
func (s *sides) healthy() (well, voters int) {
	for _, m := range s.list.Voters() {
		voters++
		if seen := s.seen[m.ID]; seen.Err == nil && len(seen.Status.Errors) == 0 {
			well++
		}
	}
	return well, voters
}

// rows are the members of the records in their order, then those without a record.
func (s *sides) rows() []MemberRow {
	var rows []MemberRow
	taken := make(map[types.ID]bool)
	for _, p := range s.peers {
		m, ok := s.list.Of(p.PeerURLs)
		if ok {
			taken[m.ID] = true
			rows = append(rows, s.both(p, m))
			continue
		}
		if m, ok := s.movedFrom(p); ok {
			taken[m.ID] = true
			rows = append(rows, s.moved(p, m))
			continue
		}
		rows = append(rows, s.missing(p))
	}
	for _, m := range s.list.Members {
		if !taken[m.ID] {
			rows = append(rows, s.stranger(m))
		}
	}
	slices.SortStableFunc(rows, func(x, y MemberRow) int { return cmp.Compare(x.Name, y.Name) })
	return rows
}

// movedFrom is the member of that name whose URLs no record has.
func (s *sides) movedFrom(p discovery.Peer) (admit.Member, bool) {
	for _, m := range s.list.Members {
		if m.Name == p.Name && !slices.ContainsFunc(s.peers, func(q discovery.Peer) bool { return sameURLs(q.PeerURLs, m.PeerURLs) }) {
			return m, true
		}
	}
	return admit.Member{}, false
}

// row is what the cluster says of a member.
func (s *sides) row(m admit.Member) MemberRow {
	seen := s.seen[m.ID]
	row := MemberRow{
		Name: m.Name, ID: m.ID.String(), PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Role: "voter",
		Version: seen.Status.Version, DBSize: seen.Status.DBSize, Applied: seen.Status.Applied,
	}
	switch {
	case m.IsLearner:
		row.Role = "learner"
	case seen.Err == nil && seen.Status.Leader == m.ID:
		row.Role = "leader"
	}
	return row
}

func (s *sides) both(p discovery.Peer, m admit.Member) MemberRow {
	row, seen := s.row(m), s.seen[m.ID]
	row.RecordURLs, row.Name = p.PeerURLs, p.Name
	remove := s.ctl + " member remove " + row.ID
	switch {
	case !m.Started():
		row.Standing, row.Why = StandingUnstarted, "it was added as a "+row.Role+", and no etcd has run as it: start the service there; if that machine will not come, remove it"
		if !m.IsLearner {
			row.Why = "it was added as a voter, and no etcd has run as it, so a quorum needs one more member than run: remove it, and let its node come in as a learner (--if-running=join)"
		}
		row.Commands = []string{remove}
	case m.IsLearner && seen.Err != nil:
		row.Standing, row.Why, row.Commands = StandingLearnerDown, seen.Err.Error()+"; start the service there; if that machine will not come back, remove it: a learner does not count", []string{remove}
	case m.IsLearner:
		row.Standing, row.Why, row.On, row.Commands = StandingLearner, "it does not vote yet", p.Name, []string{"etcdinit promote --wait"}
	case seen.Err != nil:
		row.Standing = StandingDown
		row.Why = seen.Err.Error() + "; start the service there; if its disk is lost, that start with --if-running=replace brings it back; if the machine is gone for good, take its record out and remove it"
	case len(seen.Status.Errors) > 0:
		row.Standing, row.Why = StandingUnwell, strings.Join(seen.Status.Errors, "; ")
	default:
		row.Standing = StandingSame
	}
	return row
}

func (s *sides) moved(p discovery.Peer, m admit.Member) MemberRow {
	row := s.row(m)
	row.RecordURLs, row.Name = p.PeerURLs, p.Name
	row.Standing = StandingMoved
	row.Why = "the records have it at " + strings.Join(p.PeerURLs, ",") + ", the cluster at " + strings.Join(m.PeerURLs, ",") + ": correct the record, or tell the cluster"
	row.Commands = []string{s.ctl + " member update " + row.ID + " --peer-urls=" + strings.Join(p.PeerURLs, ",")}
	return row
}

func (s *sides) missing(p discovery.Peer) MemberRow {
	row := MemberRow{Name: p.Name, RecordURLs: p.PeerURLs, Standing: StandingMissing}
	if !s.asked {
		row.Why = "no running cluster was found"
		return row
	}
	row.Why = "start the service there with --if-running=join, or add it manually before that start; if it is not meant to come, take its record out"
	row.Commands = []string{s.ctl + " member add " + p.Name + " --learner --peer-urls=" + strings.Join(p.PeerURLs, ",")}
	return row
}

func (s *sides) stranger(m admit.Member) MemberRow {
	row := s.row(m)
	if row.Name == "" {
		row.Name = "(" + row.ID + ")"
	}
	if !s.known {
		row.Standing, row.Why = StandingSame, ""
		if s.seen[m.ID].Err != nil {
			row.Standing, row.Why = StandingDown, s.seen[m.ID].Err.Error()
		}
		return row
	}
	row.Standing, row.Why = StandingStranger, "the cluster has it, and no record does: publish its record, or, if it is to leave, stop it and remove it"
	row.Commands = []string{s.ctl + " member remove " + row.ID}
	if well, voters := s.after(m); !m.IsLearner && well <= voters/2 {
		row.Why += fmt.Sprintf("; not now: of the %d voters that are left then only %d are well, which is no quorum", voters, well)
		row.Commands = nil
	}
	return row
}

// after counts the voters that are left without one, and those of them that are well.
func (s *sides) after(without admit.Member) (well, voters int) {
	rest := sides{list: admit.List{Members: slices.DeleteFunc(slices.Clone(s.list.Members), func(m admit.Member) bool { return m.ID == without.ID })}, seen: s.seen}
	return rest.healthy()
}

// MembersDiffer is the status of a report that has differences; nil for none.
func MembersDiffer(r *MembersReport) error {
	switch n := r.Differences(); {
	case r.Cluster != "":
		return &exit.Error{Status: exit.Disagree, Reason: "no-cluster", Msg: "no running cluster was found", Err: errors.New(r.Cluster)}
	case r.Records != "":
		return &exit.Error{Status: exit.Disagree, Reason: "no-records", Msg: "the records are not known", Err: errors.New(r.Records)}
	case n > 0:
		return &exit.Error{Status: exit.Disagree, Reason: "members-differ", Msg: fmt.Sprintf("%d of %d members are not as the records say", n, len(r.Members))}
	}
	return nil
}
