package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/seed"
)

// Rescue is what a rescue is told.
type Rescue struct {
	Config
	As        types.ID // the member whose seat is taken: a voter that has never run
	Endpoints []string // client URLs of the members that still run
	Name      string   // this member's name
	PeerURLs  []string // where its etcd will listen for peers
	// Open reaches one endpoint.
	Open func(endpoint string) (Survivor, error)
	// Said is told each condition, as it was checked.
	Said func(Condition)
}

// Survivor is one member of a cluster without a quorum.
type Survivor interface {
	feeder
	lister
}

type lister interface {
	LocalList(ctx context.Context) (admit.List, error)
	List(ctx context.Context) (admit.List, error)
	Close() error
}

// Condition is one thing that must hold before a seat is taken.
type Condition struct {
	What string `json:"what"`
	Seen string `json:"seen"`
	OK   bool   `json:"ok"`
}

// Seat is what the survivors say of a seat.
type Seat struct {
	Empty      bool // this node's data directory
	Answer     int  // survivors that answer
	SameID     bool // all of them have one cluster ID
	Quorum     bool // one of them can decide
	Listed     bool // all list the member
	Voter      bool // as a voter
	Never      bool // and none has a name or a client URL for it: it has never published
	Started    int  // voters that are known to have run, and answer
	Voters     int
	SeatNeeded bool // with this one there is a quorum
}

// Conditions are the rows of the table, in their order: all must hold.
func (s Seat) Conditions() []Condition {
	return []Condition{
		{"the data directory here is empty", yes(s.Empty, "it is", "it holds data"), s.Empty},
		{"a member of the cluster answers", fmt.Sprintf("%d do", s.Answer), s.Answer > 0},
		{"all that answer are of one cluster", yes(s.SameID, "they are", "they are of several"), s.SameID},
		{"the cluster has no quorum (else the member can be removed)", yes(!s.Quorum, "it has none", "it has one"), !s.Quorum},
		{"all that answer list the member", yes(s.Listed, "they do", "they do not"), s.Listed},
		{"as a voter (a learner does not count)", yes(s.Voter, "it is one", "it is a learner"), s.Voter},
		{"that has never run: no name and no client URL is known of it", yes(s.Never, "none is", "it has published itself: somewhere is its disk"), s.Never},
		{"with it, the voters that answer are a quorum", fmt.Sprintf("%d of %d", s.Started+1, s.Voters), s.SeatNeeded},
	}
}

func yes(b bool, one, other string) string {
	if b {
		return one
	}
	return other
}

// RescueMember gives a cluster its quorum back that the addition of a voter has taken,
// whose URL was wrong or whose machine never came: this node takes its seat, with the
// database of a survivor. That member has never voted, so nothing can contradict it. With
// dry it only checks.
func RescueMember(ctx context.Context, cfg Rescue, dry bool) (*seed.Plan, error) {
	state, err := seed.Inspect(cfg.Etcd.DataDir, cfg.Etcd.WALDir)
	if err != nil {
		return nil, err
	}
	seat := Seat{Empty: state.Kind == seed.Empty && state.DiskID == ""}
	list, source, err := cfg.ask(ctx, &seat)
	if err != nil {
		return nil, err
	}
	failed := ""
	for _, c := range seat.Conditions() {
		cfg.Said(c)
		if !c.OK && failed == "" {
			failed = c.What + ": " + c.Seen
		}
	}
	if failed != "" {
		return nil, &exit.Error{Status: exit.Unsafe, Reason: "no-rescue", Msg: fmt.Sprintf("not taking the seat of member %s in %s: this must hold: %s; nothing was changed", cfg.As, cfg.Etcd.DataDir, failed)}
	}
	spec := seed.Spec{DataDir: cfg.Etcd.DataDir, WALDir: cfg.Etcd.WALDir, Token: cfg.Etcd.Token(), Owner: cfg.Owner}
	joined := seed.Joined{ClusterID: list.ClusterID, Self: seed.Member{ID: cfg.As, Name: cfg.Name, PeerURLs: cfg.PeerURLs}}
	for _, m := range list.Members {
		joined.Members = append(joined.Members, seed.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.IsLearner})
	}
	plan, err := seed.NewRescue(spec, joined)
	if err != nil || dry {
		return plan, err
	}
	return cfg.take(ctx, spec, plan, source)
}

// ask looks at each survivor, and chooses the one that has applied most.
func (cfg *Rescue) ask(ctx context.Context, seat *Seat) (list admit.List, source string, err error) {
	var most uint64
	seat.SameID, seat.Listed, seat.Voter, seat.Never = true, true, true, true
	answered := make(map[types.ID]bool)
	var last error
	for _, endpoint := range cfg.Endpoints {
		l, s, quorum, aerr := cfg.askOne(ctx, endpoint)
		if aerr != nil {
			last = aerr
			cfg.Log.Info("a member does not answer", zap.String("endpoint", endpoint), zap.Error(aerr))
			continue
		}
		if answered[s.MemberID] {
			continue
		}
		answered[s.MemberID] = true
		seat.Answer++
		seat.Quorum = seat.Quorum || quorum
		if list.ClusterID != 0 && l.ClusterID != list.ClusterID {
			seat.SameID = false
		}
		m, listed := l.ByID(cfg.As)
		seat.Listed = seat.Listed && listed
		seat.Voter = seat.Voter && listed && !m.IsLearner
		seat.Never = seat.Never && listed && !m.Started()
		if source == "" || s.Applied > most {
			most, source, list = s.Applied, endpoint, l
		}
	}
	if seat.Answer == 0 {
		return list, "", &exit.Error{Status: exit.Disagree, Reason: "no-survivor", Msg: "no member answers at " + strings.Join(cfg.Endpoints, ",") + ": start those that still have their data", Err: last}
	}
	for _, m := range list.Voters() {
		seat.Voters++
		if answered[m.ID] && m.ID != cfg.As {
			seat.Started++
		}
	}
	seat.SeatNeeded = seat.Started >= seat.Voters/2 // and one more
	return list, source, nil
}

func (cfg *Rescue) askOne(ctx context.Context, endpoint string) (list admit.List, s admit.Status, quorum bool, err error) {
	link, err := cfg.Open(endpoint)
	if err != nil {
		return list, s, false, err
	}
	defer func() { _ = link.Close() }() //nolint:errcheck // nothing was changed
	if s, err = link.Status(ctx, endpoint); err != nil {
		return list, s, false, err
	}
	if list, err = link.LocalList(ctx); err != nil {
		return list, s, false, err
	}
	_, lerr := link.List(ctx)
	return list, s, lerr == nil, nil
}

// take reads the source's database and writes the directory.
func (cfg *Rescue) take(ctx context.Context, spec seed.Spec, plan *seed.Plan, source string) (*seed.Plan, error) {
	link, err := cfg.Open(source)
	if err != nil {
		return nil, err
	}
	defer func() { _ = link.Close() }() //nolint:errcheck // nothing was changed
	status, err := link.Status(ctx, source)
	if err != nil {
		return nil, err
	}
	r := reader{link: link, giver: Giver{status.MemberID, source, status}, spec: spec, log: cfg.Log, tell: cfg.OnWait, slow: true}
	staged, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	fed, err := plan.Fed(staged)
	if err == nil {
		err = fed.Apply(ctx, cfg.Log)
	}
	if err != nil {
		_, uerr := seed.Unstage(spec.DataDir, spec.WALDir)
		return nil, errors.Join(err, uerr)
	}
	return fed, nil
}

// RescueNode fills in who this node is: by discovery, or by etcd's own configuration where
// there is no source.
func RescueNode(ctx context.Context, r *Rescue) error {
	if r.Source == "" {
		r.Name, r.PeerURLs = r.Etcd.Name, r.Etcd.AdvertisePeerURLs
		if r.Name == "" || len(r.PeerURLs) == 0 {
			return settings("rescue", "give --discovery, or this member's name and initial-advertise-peer-urls in etcd's configuration", nil)
		}
		return nil
	}
	found, err := Discover(ctx, r.Config)
	if err != nil {
		return err
	}
	self := found.Peer()
	r.Name, r.PeerURLs = self.Name, self.PeerURLs
	if len(r.Endpoints) == 0 {
		a := newAgent(r.Config)
		others := slices.Delete(slices.Clone(found.Peers), found.Self, found.Self+1)
		r.Endpoints = a.recordEndpoints(others)
	}
	return nil
}

// AfterRescue are the commands that finish a rescue: a start of the service, and the URL
// that the cluster has to be told.
func AfterRescue(r *Rescue, plan *seed.Plan) []string {
	a := newAgent(r.Config)
	commands := slices.Clone(r.Again)
	listed := ""
	for _, m := range plan.Members {
		if m.ID == r.As {
			listed = strings.Join(m.PeerURLs, ",")
		}
	}
	if want := strings.Join(r.PeerURLs, ","); listed != want {
		commands = append(commands, "until "+a.etcdctlAt(r.Endpoints)+" member update "+r.As.String()+" --peer-urls="+want+"; do sleep 2; done")
	}
	return commands
}
