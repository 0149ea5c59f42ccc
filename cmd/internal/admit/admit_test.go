package admit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// TestReasons: what etcd says, by its own texts, and what it means for a caller.
func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		err    error
		want   Reason
		passes bool
	}{
		{rpctypes.ErrGRPCUnhealthy, Unhealthy, true},
		{rpctypes.ErrGRPCMemberNotEnoughStarted, Unhealthy, true},
		{rpctypes.ErrGRPCTooManyLearners, LearnerLimit, true},
		{rpctypes.ErrGRPCLearnerNotReady, NotInSync, true},
		{rpctypes.ErrGRPCMemberNotLearner, NotLearner, true},
		{rpctypes.ErrGRPCMemberNotFound, NoMember, true},
		{rpctypes.ErrGRPCPeerURLExist, URLTaken, true},
		{rpctypes.ErrGRPCUserEmpty, Denied, false},
		{rpctypes.ErrGRPCAuthFailed, Denied, false},
		{rpctypes.ErrGRPCPermissionDenied, Denied, false},
		{errors.New("tls: failed to verify certificate: x509: certificate signed by unknown authority"), Denied, false},
		{rpctypes.ErrGRPCNoLeader, NoQuorum, true},
		{rpctypes.ErrGRPCTimeout, NoQuorum, true},
		{rpctypes.ErrGRPCTimeoutDueToConnectionLost, NoQuorum, true},
		{rpctypes.ErrGRPCNotLeader, NoQuorum, true},
		{rpctypes.ErrGRPCRequestTooManyRequests, NoQuorum, true},
		{rpctypes.ErrGRPCNotSupportedForLearner, Unreachable, true},
		{rpctypes.ErrGRPCStopped, Unreachable, true},
		{context.DeadlineExceeded, Unreachable, true},
		{context.Canceled, Unreachable, true},
		{rpctypes.ErrGRPCNoSpace, Other, false},
		{errors.New("something new"), Other, false},
	} {
		// From the wire and from the client's own table the same text comes.
		for _, err := range []error{tt.err, rpctypes.Error(tt.err), fmt.Errorf("wrapped: %w", tt.err)} {
			e, ok := errors.AsType[*Error](failure("try", err))
			if !ok || e.Reason != tt.want || e.Passes() != tt.passes || ReasonOf(e) != tt.want {
				t.Errorf("%v: %v, passes %t; want %v, %t", err, e.Reason, e.Passes(), tt.want, tt.passes)
			}
		}
	}
	if failure("try", nil) != nil || ReasonOf(errors.New("x")) != Other {
		t.Error("want nil for no error, and Other for one that is not an *Error")
	}
}

func TestList(t *testing.T) {
	l := List{Members: []Member{
		{ID: 1, Name: "a", PeerURLs: []string{"http://a:2380", "http://a2:2380"}},
		{ID: 2, PeerURLs: []string{"http://b:2380"}, IsLearner: true},
	}}
	if m, ok := l.Of([]string{"http://a2:2380", "http://a:2380"}); !ok || m.ID != 1 {
		t.Errorf("in another order: %v, %t", m, ok)
	}
	if m, ok := l.Of([]string{"http://a:2380"}); ok {
		t.Errorf("a part of its URLs is another member: %v", m)
	}
	if m, ok := l.ByID(2); !ok || m.Started() || !l.Members[0].Started() {
		t.Errorf("%v, %t", m, ok)
	}
	if v := l.Voters(); len(v) != 1 || v[0].ID != 1 || len(l.Members) != 2 {
		t.Errorf("voters %v of %v", v, l.Members)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(nil, Access{}); ReasonOf(err) != Unreachable {
		t.Errorf("no endpoint: %v", err)
	}
	if _, err := Open([]string{"https://a:2379"}, Access{CAFile: "/nowhere/ca.crt"}); ReasonOf(err) != Denied {
		t.Errorf("no CA: %v", err)
	}
}

// TestHash: the question and the answers of the peer port, those that pass too.
func TestHash(t *testing.T) {
	answer := `{"header":{"revision":9},"hash":3628877040,"compact_revision":-1,"hash_revision":2}`
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Revision int64 `json:"revision"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Revision != 2 || r.URL.Path != "/members/hashkv" {
			t.Errorf("%s: %+v, %v", r.URL.Path, q, err)
		}
		w.WriteHeader(status)
		if _, err := w.Write([]byte(answer)); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	p, err := NewPeers(PeerAccess{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m := Member{Name: "a", PeerURLs: []string{"http://127.0.0.1:1", s.URL}}
	h, err := p.Hash(t.Context(), m, 2)
	if err != nil || h != (Hash{Hash: 3628877040, CompactRevision: -1}) {
		t.Errorf("%+v, %v", h, err)
	}
	for _, bad := range []struct {
		status int
		text   string
	}{{http.StatusBadRequest, "mvcc: required revision has been compacted"}, {http.StatusInternalServerError, ""}, {http.StatusOK, "no JSON"}} {
		status, answer = bad.status, bad.text
		if _, err := p.Hash(t.Context(), m, 2); ReasonOf(err) != Unreachable {
			t.Errorf("HTTP %d %q: %v", bad.status, bad.text, err)
		}
	}
}
