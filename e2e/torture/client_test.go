//go:build e2e

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// client talks to the etcd of its own host, which it always reaches. It never
// tries again by itself: what the history says was asked was asked once.
type client struct {
	n    *node
	id   int
	rng  *rand.Rand
	conn *grpc.ClientConn
	kv   pb.KVClient
	seen map[string]string // the last values it saw, to swap
	nth  int
}

func (c *cluster) newClient(n *node) *client {
	conn, err := grpc.NewClient("passthrough:///127.0.0.1:2379",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return n.Dial(ctx, "tcp", addr) }),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 100 * time.Millisecond}}),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig())
	c.must(err)
	k := &client{n: n, id: len(c.clients), rng: rand.New(rand.NewPCG(c.s.seed, 1000+uint64(len(c.clients)))), conn: conn, kv: pb.NewKVClient(conn), seen: map[string]string{}}
	c.clients = append(c.clients, k)
	return k
}

const (
	callLimit = time.Second
	hotKeys   = 3
	epoch     = 1500 * time.Millisecond
)

// loop writes and reads through its host until the context ends.
func (k *client) loop(ctx context.Context) {
	for ctx.Err() == nil {
		k.n.mu.Lock()
		etcd := k.n.isEtcd
		k.n.mu.Unlock()
		wait := time.Duration(10+k.rng.IntN(40)) * time.Millisecond
		if etcd {
			r := k.next()
			k.call(ctx, r)
			k.n.c.history.add(r)
			if r.outcome != ok {
				wait += 50 * time.Millisecond
			}
		}
		k.n.sleep(ctx, wait)
	}
}

// next is what to ask for: a few keys are used all the time, others in one
// short time only, so that what was written last stays.
func (k *client) next() *record {
	key := fmt.Sprintf("hot%d", k.rng.IntN(hotKeys))
	if k.rng.IntN(5) > 1 {
		key = fmt.Sprintf("t%02d-%d", k.n.c.now()/epoch, k.rng.IntN(hotKeys))
	}
	k.nth++
	r := &record{client: k.id, host: k.n.Name, key: key, value: fmt.Sprintf("%s.%d", k.n.Name, k.nth)}
	switch k.rng.IntN(5) {
	case 0, 1:
		r.action = put
	case 2:
		r.action, r.old = swap, k.seen[key]
	default:
		r.action, r.value = get, ""
	}
	return r
}

// call asks, and fills in what came of it.
func (k *client) call(ctx context.Context, r *record) {
	c := k.n.c
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var err error
	var header *pb.ResponseHeader
	k.n.mu.Lock()
	since := k.n.etcdAt
	if on := k.n.etcdOn; on != nil && !on.added {
		r.member, r.disk = k.n.member, on.id
	}
	k.n.mu.Unlock()
	r.call = c.now()
	switch r.action {
	case put:
		var resp *pb.PutResponse
		if resp, err = k.kv.Put(ctx, &pb.PutRequest{Key: []byte(r.key), Value: []byte(r.value)}); err == nil {
			header = resp.GetHeader()
		}
	case get:
		var resp *pb.RangeResponse
		if resp, err = k.kv.Range(ctx, &pb.RangeRequest{Key: []byte(r.key), Serializable: r.serializable}); err == nil {
			header = resp.GetHeader()
			for _, kv := range resp.GetKvs() {
				r.got = string(kv.GetValue())
			}
		}
	case swap:
		var resp *pb.TxnResponse
		if resp, err = k.kv.Txn(ctx, swapRequest(r)); err == nil {
			header, r.swapped = resp.GetHeader(), resp.GetSucceeded()
			for _, done := range resp.GetResponses() {
				for _, kv := range done.GetResponseRange().GetKvs() {
					r.got = string(kv.GetValue())
				}
			}
		}
	}
	r.ret = c.now()
	k.n.mu.Lock()
	if k.n.etcdAt != since { // another one may have answered
		r.disk = 0
	}
	k.n.mu.Unlock()
	switch {
	case err == nil:
		r.cluster = header.GetClusterId()
		k.remember(r)
	case neverSent(err):
		r.outcome, r.err = failed, err.Error()
	default:
		r.outcome, r.err = unknown, err.Error()
	}
}

func swapRequest(r *record) *pb.TxnRequest {
	is := &pb.Compare{Key: []byte(r.key), Result: pb.Compare_EQUAL, Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte(r.old)}}
	if r.old == "" {
		is.Target, is.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{}
	}
	return &pb.TxnRequest{
		Compare: []*pb.Compare{is},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(r.key)}}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(r.key), Value: []byte(r.value)}}}},
	}
}

func (k *client) remember(r *record) {
	switch {
	case r.action == get, r.action == swap && !r.swapped:
		k.seen[r.key] = r.got
	case r.writes():
		k.seen[r.key] = r.value
	}
	k.n.mu.Lock()
	defer k.n.mu.Unlock()
	k.n.okAt = r.ret
}

// neverSent says whether a call surely had no effect: no connection was there.
func neverSent(err error) bool {
	return strings.Contains(err.Error(), "error while dialing") || strings.Contains(err.Error(), "Error while dialing")
}

// hash is the hash of the member's whole store, and its revision.
func (k *client) hash(ctx context.Context, revision int64) (sum uint32, at int64, cluster uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	resp, err := pb.NewMaintenanceClient(k.conn).HashKV(ctx, &pb.HashKVRequest{Revision: revision})
	if err != nil {
		return 0, 0, 0, err
	}
	return resp.GetHash(), resp.GetHeader().GetRevision(), resp.GetHeader().GetClusterId(), nil
}

// replace removes a member and adds one with its name as a learner.
func (k *client) replace(ctx context.Context, name, url string) error {
	api := pb.NewClusterClient(k.conn)
	list, err := api.MemberList(ctx, &pb.MemberListRequest{})
	if err != nil {
		return err
	}
	for _, m := range list.GetMembers() {
		if strings.Contains(strings.Join(m.GetPeerURLs(), " "), "//"+name+".") {
			if m.GetIsLearner() {
				return nil // an answer was lost
			}
			if _, err = api.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: m.GetID()}); err != nil {
				return err
			}
		}
	}
	_, err = api.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{url}, IsLearner: true})
	return err
}

// promote makes the learner a member that votes.
func (k *client) promote(ctx context.Context) error {
	api := pb.NewClusterClient(k.conn)
	list, err := api.MemberList(ctx, &pb.MemberListRequest{})
	if err != nil {
		return err
	}
	for _, m := range list.GetMembers() {
		if m.GetIsLearner() {
			_, err := api.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: m.GetID()})
			return err
		}
	}
	return nil
}

var errNobody = errors.New("no member serves")
