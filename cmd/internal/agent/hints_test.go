package agent

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/discovery/rendezvous"
	"github.com/etcdinit/etcdinit/seed"
)

// hintMeeting is a run of one of three members, which has seen nothing yet.
func hintMeeting(t *testing.T, self string, names ...string) *meeting {
	t.Helper()
	spec := seed.Spec{DataDir: filepath.Join(t.TempDir(), "data"), Token: "t", Self: self}
	for _, name := range names {
		spec.Members = append(spec.Members, seed.Member{Name: name, PeerURLs: []string{"http://" + name + ".example.org:2380"}})
	}
	plan, err := seed.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(Config{Etcd: &etcdconf.Config{}, Log: zap.NewNop()})
	return &meeting{agent: a, plan: plan, told: make(map[string]bool)}
}

// sees lets the meeting see its peers, by name, and itself, in two rounds.
func (m *meeting) sees(peers map[string]rendezvous.Sighting) {
	plan := meetingPlan(m.plan)
	var r rendezvous.Round
	for _, member := range plan.Members {
		s := peers[member.Name]
		s.Peer, s.URL = member.ID, member.PeerURLs[0]
		if s.Answer.State != "" {
			s.Answer.Digest, s.Answer.MemberID, s.Answer.Nonce = plan.Digest, member.ID, "of "+member.Name
		}
		if member.ID == plan.Self {
			s.Kind, s.Answer = rendezvous.Agent, rendezvous.Answer{MemberID: plan.Self, Nonce: "mine"}
			r.Self = s
			continue
		}
		r.Peers = append(r.Peers, s)
	}
	m.view = rendezvous.NewMachine("mine", plan, rendezvous.Waiting).Observe(r).Observe(r).View()
}

// TestHints: a wait that has a usual cause says so, in the progress line and in
// the refusal, and no other wait does.
func TestHints(t *testing.T) {
	const (
		ordered = "only pods after this one are silent: a StatefulSet needs podManagementPolicy: Parallel, since OrderedReady starts them only after this one is ready"
		sidecar = "connections are cut: a service mesh's sidecar does not run yet while init containers do, so exclude the peer port from the mesh, or run init as a sidecar after it"
	)
	silent := func(detail string) rendezvous.Sighting { return rendezvous.Sighting{Detail: detail} }
	refused := silent(syscall.ECONNREFUSED.Error())
	reset := silent(syscall.ECONNRESET.Error())
	closed := silent("it closed the connection")
	waiting := rendezvous.Sighting{Kind: rendezvous.Agent, Answer: rendezvous.Answer{State: rendezvous.Waiting}}
	pods := []string{"etcd-0", "etcd-1", "etcd-2"}
	tests := []struct {
		name  string
		self  string
		names []string
		peers map[string]rendezvous.Sighting
		want  string // "": no hint
	}{
		{"the first pod, and no other", "etcd-0", pods, map[string]rendezvous.Sighting{"etcd-1": refused, "etcd-2": refused}, ordered},
		{"the second pod, the first waits", "etcd-1", pods, map[string]rendezvous.Sighting{"etcd-0": waiting, "etcd-2": refused}, ordered},
		{"by number, not by letter", "etcd-9", []string{"etcd-8", "etcd-9", "etcd-10"}, map[string]rendezvous.Sighting{"etcd-8": waiting, "etcd-10": refused}, ordered},
		{"pods before this one are silent", "etcd-2", pods, map[string]rendezvous.Sighting{"etcd-0": refused, "etcd-1": refused}, ""},
		{"pods on both sides are silent", "etcd-1", pods, map[string]rendezvous.Sighting{"etcd-0": refused, "etcd-2": refused}, ""},
		{"a later pod answers, and not with this plan", "etcd-0", pods, map[string]rendezvous.Sighting{"etcd-1": {Kind: rendezvous.Garbage, Detail: "HTTP 404"}, "etcd-2": refused}, ""},
		{"names without numbers", "a", []string{"a", "b", "c"}, map[string]rendezvous.Sighting{"b": refused, "c": refused}, ""},
		{"this name has no number", "etcd-x", []string{"etcd-x", "etcd-1", "etcd-2"}, map[string]rendezvous.Sighting{"etcd-1": refused, "etcd-2": refused}, ""},
		{"connections are closed", "b", []string{"a", "b", "c"}, map[string]rendezvous.Sighting{"a": refused, "c": closed}, sidecar},
		{"connections are reset", "b", []string{"a", "b", "c"}, map[string]rendezvous.Sighting{"a": reset, "c": refused}, sidecar},
		{"all of them, in pods", "etcd-2", pods, map[string]rendezvous.Sighting{"etcd-0": reset, "etcd-1": reset}, sidecar},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := hintMeeting(t, tt.self, tt.names...)
			m.sees(tt.peers)
			out := Decide(m.input(false))
			if out.Step != StepWait {
				t.Fatalf("decided %q, not a wait", out.Rule)
			}
			err := m.refusal(Decide(m.input(true)))
			var refusal *Error
			if !errors.As(err, &refusal) || refusal.Kind != Disagree {
				t.Fatalf("the end of the time: %v", err)
			}
			for where, text := range map[string]string{"the progress line": m.why(out), "the refusal": err.Error()} {
				for _, hint := range []string{ordered, sidecar} {
					if got, want := strings.Contains(text, hint), hint == tt.want; got != want {
						t.Errorf("%s: hint %.30q... is there: %t, want %t, in %s", where, hint, got, want, text)
					}
				}
				for name := range tt.peers {
					if tt.peers[name].Kind == rendezvous.NoAnswer && !strings.Contains(text, name+" is silent") {
						t.Errorf("%s does not say that %s is silent: %s", where, name, text)
					}
				}
			}
		})
	}
}

// TestHintsAtOnce: what is wrong before any peer is asked is warned of, once.
func TestHintsAtOnce(t *testing.T) {
	const (
		autoTLS = "peer-auto-tls: nobody's certificate is checked, so whoever reaches the peer port can claim to be a peer"
		nobody  = "--bootstrap-quorum=none: no peer is asked; a member that lost its disk is NOT recognised, and re-seeding it can destroy acknowledged writes"
	)
	tests := []struct {
		name string
		tls  etcdconf.TLS
		want []string
	}{
		{"peer-auto-tls", etcdconf.TLS{AutoTLS: true}, []string{autoTLS, nobody}},
		{"plain HTTP", etcdconf.TLS{}, []string{nobody}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := hintMeeting(t, "a", "a", "b", "c")
			a := m.agent
			a.Etcd.PeerTLS, a.Quorum = tt.tls, QuorumNone
			if err := a.meet(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			m.rehearse()
			if !slices.Equal(a.warnings, tt.want) {
				t.Errorf("warnings %q, want %q", a.warnings, tt.want)
			}
		})
	}
}

// TestWithoutRefusal: a name that is nobody's is called so, and too many names
// are called too many.
func TestWithoutRefusal(t *testing.T) {
	abc := []string{"a", "b", "c"}
	for _, tt := range []struct {
		members []string
		without []string
		want    string
	}{
		{[]string{"b"}, []string{"d"}, "--without d: b is the only member"},
		{abc, []string{"d"}, "--without d: it is not among the other members, which are a, c"},
		{abc, []string{"b"}, "--without b: it is not among the other members, which are a, c"},
		{abc, []string{"a", "c"}, "--without a --without c: it may name at most 1 of the other members of a, c, which is a minority of 3"},
		{abc, []string{"a", "d"}, "--without d: it is not among the other members, which are a, c"},
	} {
		m := hintMeeting(t, "b", tt.members...)
		m.Without = tt.without
		m.sees(nil)
		err := m.refusal(Decide(m.input(false)))
		var refusal *Error
		if !errors.As(err, &refusal) || refusal.Kind != Settings || err.Error() != tt.want {
			t.Errorf("--without %v: got %v, want %s", tt.without, err, tt.want)
		}
	}
}
