// Package admit is the client of a running cluster that takes members in.
package admit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// CallTime bounds one call. etcd itself gives up after 7 s where it has no
	// quorum, and says so.
	CallTime = 8 * time.Second
	dialTime = 2 * time.Second
	// pingTime and pongTime find out that a member hangs in the middle of a long stream,
	// which has no deadline of its own. etcd takes a ping every five seconds.
	pingTime = 10 * time.Second
	pongTime = 5 * time.Second
)

// Access is how a cluster's client ports are reached.
type Access struct {
	CertFile, KeyFile, CAFile string
	User, Password            string
	// Insecure takes any server certificate: only where the configuration has etcd
	// make its own (client auto-tls).
	Insecure bool
	// Dial reaches host:port; nil: the system's resolver and dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Member is one that a running cluster lists.
type Member struct {
	ID         types.ID
	Name       string // "" until its etcd has published
	PeerURLs   []string
	ClientURLs []string
	IsLearner  bool
}

// Started reports whether an etcd has run as this member.
func (m Member) Started() bool { return m.Name != "" || len(m.ClientURLs) > 0 }

// List is what a running cluster says of its members.
type List struct {
	ClusterID types.ID
	Members   []Member
}

// Voters lists the members that vote.
func (l List) Voters() []Member {
	return slices.DeleteFunc(slices.Clone(l.Members), func(m Member) bool { return m.IsLearner })
}

// Of is the member with exactly these peer URLs, in any order. A URL can be in
// etcd's list once, so there is one at most.
func (l List) Of(peerURLs []string) (Member, bool) {
	want := slices.Sorted(slices.Values(peerURLs))
	for _, m := range l.Members {
		if slices.Equal(slices.Sorted(slices.Values(m.PeerURLs)), want) {
			return m, true
		}
	}
	return Member{}, false
}

// ByID is the member with this ID.
func (l List) ByID(id types.ID) (Member, bool) {
	for _, m := range l.Members {
		if m.ID == id {
			return m, true
		}
	}
	return Member{}, false
}

// Status is what one member says of itself.
type Status struct {
	MemberID, Leader types.ID
	Version          string // "3.7.3"
	StorageVersion   string // "3.7.0"; "" before etcd 3.6
	Term             uint64
	Committed        uint64 // index of the last committed entry that it knows
	Applied          uint64
	Revision         int64
	DBSize           int64
	IsLearner        bool
	Errors           []string // alarms, "no leader"
}

// Reason is why a call to a running cluster failed.
type Reason int

const (
	// Unreachable means that no endpoint answered.
	Unreachable Reason = iota
	// NoQuorum means that an endpoint answered that the cluster cannot decide anything now.
	NoQuorum
	// Unhealthy means that etcd changes no members while one of them is down, or has been up
	// for less than five seconds.
	Unhealthy
	// LearnerLimit means that there are as many learners as the cluster takes.
	LearnerLimit
	// NotInSync means that a learner is not near enough to the leader.
	NotInSync
	// Denied means that a user, a password or a certificate is missing or wrong.
	Denied
	// NotLearner means that somebody else has made it a voter meanwhile.
	NotLearner
	// NoMember means that the member is not listed, or not any more.
	NoMember
	// URLTaken means that a member with this peer URL is listed.
	URLTaken
	// Other is a failure that this program does not know.
	Other
)

func (r Reason) String() string {
	return [...]string{"unreachable", "no quorum", "unhealthy", "too many learners", "not in sync", "denied", "not a learner", "no such member", "peer URL taken", "refused"}[r]
}

// Error is a failed call.
type Error struct {
	Reason Reason
	What   string // "add http://… as a learner"
	Err    error
}

func (e *Error) Error() string { return e.What + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Passes reports that the same call may succeed later, without anybody's help.
func (e *Error) Passes() bool { return e.Reason != Denied && e.Reason != Other }

// ReasonOf is the reason of a failed call; Other where the error is not an *Error.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return Other
}

// Client talks to one running cluster.
type Client struct {
	endpoints []string
	access    Access
	v3        *clientv3.Client
}

// Open makes a client for the endpoints, which are URLs. It does not dial yet: the
// error is one of the certificates.
func Open(endpoints []string, access Access) (*Client, error) {
	if len(endpoints) == 0 {
		return nil, &Error{Unreachable, "reach the cluster", errors.New("no client URL of a member is known")}
	}
	endpoints = slices.Compact(slices.Sorted(slices.Values(endpoints)))
	cfg := clientv3.Config{
		Endpoints: endpoints, DialTimeout: dialTime, DialKeepAliveTime: pingTime, DialKeepAliveTimeout: pongTime, Logger: zap.NewNop(),
		Username: access.User, Password: access.Password,
	}
	if access.Dial != nil {
		cfg.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return access.Dial(ctx, "tcp", addr) })}
	}
	if slices.ContainsFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, "https:") || strings.HasPrefix(e, "unixs:") }) {
		var err error
		if cfg.TLS, err = access.tls(); err != nil {
			return nil, &Error{Denied, "reach the cluster", err}
		}
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		return nil, failure("reach the cluster", err)
	}
	return &Client{endpoints, access, c}, nil
}

func (a Access) tls() (*tls.Config, error) {
	info := transport.TLSInfo{CertFile: a.CertFile, KeyFile: a.KeyFile, TrustedCAFile: a.CAFile, InsecureSkipVerify: a.Insecure, Logger: zap.NewNop()}
	return info.ClientConfig()
}

// Endpoints lists what the client was opened for.
func (c *Client) Endpoints() []string { return c.endpoints }

// Close ends all connections.
func (c *Client) Close() error { return c.v3.Close() }

// List asks for the members; from etcd 3.5 on the answer is linearizable.
func (c *Client) List(ctx context.Context) (List, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	resp, err := c.v3.MemberList(ctx)
	if err != nil {
		return List{}, failure("list the members", err)
	}
	return listOf(resp.Header, resp.Members), nil
}

// LocalList is what the one endpoint has of the members, whether there is a quorum or
// not. It may be old.
func (c *Client) LocalList(ctx context.Context) (List, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	resp, err := c.v3.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return List{}, failure("list the members at "+strings.Join(c.endpoints, ","), err)
	}
	return listOf(resp.Header, resp.Members), nil
}

// Snapshot begins to read the database of the one endpoint, with its digest behind it.
// It needs no quorum. The length is not known.
func (c *Client) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.v3.SnapshotWithVersion(ctx)
	if err != nil {
		return nil, failure("read the database at "+strings.Join(c.endpoints, ","), err)
	}
	return resp.Snapshot, nil
}

// Agreed counts the members that list one just as it is given, at the endpoints. A
// list is not linearizable in etcd 3.4, and what is removed by an old one is removed
// all the same.
func (c *Client) Agreed(ctx context.Context, m Member) int {
	agreed := make(map[uint64]bool)
	for _, endpoint := range c.endpoints {
		one, err := Open([]string{endpoint}, c.access)
		if err != nil {
			continue
		}
		callCtx, cancel := context.WithTimeout(ctx, CallTime)
		if resp, err := one.v3.MemberList(callCtx); err == nil {
			seen, ok := listOf(resp.Header, resp.Members).ByID(m.ID)
			if ok && seen.IsLearner == m.IsLearner && seen.Started() == m.Started() && slices.Equal(seen.PeerURLs, m.PeerURLs) {
				agreed[resp.Header.GetMemberId()] = true
			}
		}
		cancel()
		if err := one.Close(); err != nil {
			continue // it has answered, or not
		}
	}
	return len(agreed)
}

// AddLearner adds a member that does not vote. The ID that it gets hashes the
// clock: nobody had it before.
func (c *Client) AddLearner(ctx context.Context, peerURLs []string) (Member, List, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	resp, err := c.v3.MemberAddAsLearner(ctx, peerURLs)
	if err != nil {
		return Member{}, List{}, failure("add "+strings.Join(peerURLs, ",")+" as a learner", err)
	}
	return memberOf(resp.Member), listOf(resp.Header, resp.Members), nil
}

// Remove removes a member. One that is not there any more is a success.
func (c *Client) Remove(ctx context.Context, id types.ID) error {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	_, err := c.v3.MemberRemove(ctx, uint64(id))
	err = failure("remove member "+id.String(), err)
	if err != nil && ReasonOf(err) == NoMember {
		return nil
	}
	return err
}

// Promote makes a learner a voter.
func (c *Client) Promote(ctx context.Context, id types.ID) error {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	_, err := c.v3.MemberPromote(ctx, uint64(id))
	return failure("promote member "+id.String(), err)
}

// Touch gives a member the peer URLs that it has: an entry in the log, and nothing
// else. A joiner on an idle cluster needs one to come up.
func (c *Client) Touch(ctx context.Context, m Member) error {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	_, err := c.v3.MemberUpdate(ctx, uint64(m.ID), m.PeerURLs)
	return failure("update member "+m.ID.String(), err)
}

// Status asks the member at one endpoint.
func (c *Client) Status(ctx context.Context, endpoint string) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	r, err := c.v3.Status(ctx, endpoint)
	if err != nil {
		return Status{}, failure("ask "+endpoint+" for its status", err)
	}
	s := Status{
		MemberID: types.ID(r.Header.GetMemberId()), Leader: types.ID(r.Leader), Version: r.Version, StorageVersion: r.StorageVersion,
		Term: r.RaftTerm, Committed: r.RaftIndex, Applied: r.RaftAppliedIndex, Revision: r.Header.GetRevision(), DBSize: r.DbSize,
		IsLearner: r.IsLearner, Errors: r.Errors,
	}
	return s, nil
}

// StatusOf asks a member at each of its client URLs until one answers as it.
func (c *Client) StatusOf(ctx context.Context, m Member) (s Status, err error) {
	err = &Error{Unreachable, "ask " + m.Name, errors.New("it has published no client URL")}
	for _, endpoint := range m.ClientURLs {
		if s, err = c.Status(ctx, endpoint); err == nil && s.MemberID == m.ID {
			return s, nil
		}
		if err == nil {
			err = &Error{Other, "ask " + m.Name, fmt.Errorf("at %s answers member %s and not %s", endpoint, s.MemberID, m.ID)}
		}
	}
	return Status{}, err
}

func listOf(h *etcdserverpb.ResponseHeader, members []*etcdserverpb.Member) List {
	l := List{ClusterID: types.ID(h.GetClusterId())}
	for _, m := range members {
		l.Members = append(l.Members, memberOf(m))
	}
	return l
}

func memberOf(m *etcdserverpb.Member) Member {
	return Member{types.ID(m.GetID()), m.GetName(), m.GetPeerURLs(), m.GetClientURLs(), m.GetIsLearner()}
}

// failure gives an error of the client its reason.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{reasonFor(err), what, err}
}

// reasonFor reads the text, as etcdctl's users do: codes are shared by what has
// nothing to do with each other, and versions before 3.6 have other codes.
func reasonFor(err error) Reason {
	text := err.Error()
	for _, known := range []struct {
		reason Reason
		texts  []string
	}{
		{Unhealthy, []string{desc(rpctypes.ErrGRPCUnhealthy), desc(rpctypes.ErrGRPCMemberNotEnoughStarted)}},
		{LearnerLimit, []string{desc(rpctypes.ErrGRPCTooManyLearners)}},
		{NotInSync, []string{desc(rpctypes.ErrGRPCLearnerNotReady)}},
		{NotLearner, []string{desc(rpctypes.ErrGRPCMemberNotLearner)}}, // the text before begins with this one
		{NoMember, []string{desc(rpctypes.ErrGRPCMemberNotFound)}},
		{URLTaken, []string{desc(rpctypes.ErrGRPCPeerURLExist), desc(rpctypes.ErrGRPCMemberExist)}},
		{Denied, []string{
			desc(rpctypes.ErrGRPCUserEmpty), desc(rpctypes.ErrGRPCAuthFailed), desc(rpctypes.ErrGRPCPermissionDenied), desc(rpctypes.ErrGRPCInvalidAuthToken),
			"certificate", "tls: ",
		}},
		{NoQuorum, []string{
			desc(rpctypes.ErrGRPCNoLeader), desc(rpctypes.ErrGRPCTimeout), desc(rpctypes.ErrGRPCLeaderChanged),
			desc(rpctypes.ErrGRPCNotLeader), desc(rpctypes.ErrGRPCRequestTooManyRequests),
		}},
		{Unreachable, []string{desc(rpctypes.ErrGRPCNotSupportedForLearner)}}, // another endpoint is needed
	} {
		if slices.ContainsFunc(known.texts, func(part string) bool { return strings.Contains(text, part) }) {
			return known.reason
		}
	}
	code := status.Code(err)
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok { // the client's own form of what the server said
		code = e.Code()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), code == codes.DeadlineExceeded, code == codes.Unavailable, code == codes.Canceled:
		return Unreachable
	}
	return Other
}

func desc(err error) string { return status.Convert(err).Message() }
