package agent

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/seed"
)

// wordsAgent is a run of one of some members, which has seen nothing yet.
func wordsAgent(t *testing.T, self string, names ...string) *agent {
	t.Helper()
	spec := seed.Spec{DataDir: filepath.Join(t.TempDir(), "data"), Token: "t", Self: self}
	for _, name := range names {
		spec.Members = append(spec.Members, seed.Member{Name: name, PeerURLs: []string{"http://" + name + ".example.org:2380"}, ClientURLs: []string{clientURL(name)}})
	}
	plan, err := seed.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(Config{Etcd: &etcdconf.Config{DataDir: spec.DataDir, InitialClusterToken: "t"}, Source: "srv://example.org", Log: zap.NewNop()})
	a.plan = plan
	a.state = &seed.State{Kind: seed.Empty, DataDir: spec.DataDir}
	return a
}

// seesAs lets the agent see its peers, by name, and itself, in one round.
func (a *agent) seesAs(start rendezvous.Start, peers map[string]rendezvous.Sighting) {
	plan := meetingPlan(a.plan)
	var r rendezvous.Round
	for _, member := range plan.Members {
		s := peers[member.Name]
		s.Peer, s.URL = member.ID, member.PeerURLs[0]
		if s.Answer.State != "" {
			s.Answer.Digest, s.Answer.MemberID, s.Answer.Nonce = plan.Digest, member.ID, "of "+member.Name
		}
		if member.ID == plan.Self {
			if s.Kind == rendezvous.NoAnswer {
				s.Kind, s.Answer = rendezvous.Agent, rendezvous.Answer{MemberID: plan.Self, Nonce: "mine"}
			}
			r.Self = s
			continue
		}
		r.Peers = append(r.Peers, s)
	}
	start.Nonce, start.Plan = "mine", plan
	a.view, a.asked = rendezvous.NewMachine(start).Observe(r, 0).View(), true
}

func (a *agent) sees(peers map[string]rendezvous.Sighting) {
	a.seesAs(rendezvous.Start{State: rendezvous.Waiting, Without: a.Without}, peers)
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
		{"a name that ends in a dash", "etcd-", []string{"etcd-", "etcd-1"}, map[string]rendezvous.Sighting{"etcd-1": refused}, ""},
		{"connections are closed", "b", []string{"a", "b", "c"}, map[string]rendezvous.Sighting{"a": refused, "c": closed}, sidecar},
		{"connections are reset", "b", []string{"a", "b", "c"}, map[string]rendezvous.Sighting{"a": reset, "c": refused}, sidecar},
		{"all of them, in pods", "etcd-2", pods, map[string]rendezvous.Sighting{"etcd-0": reset, "etcd-1": reset}, sidecar},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := wordsAgent(t, tt.self, tt.names...)
			a.sees(tt.peers)
			if text := a.hint(Decide(a.input(false)).Peers); text != "" {
				t.Errorf("a hint about pods outside of a pod: %s", text)
			}
			a.Pod = true
			out := Decide(a.input(false))
			if out.Step != StepWait {
				t.Fatalf("decided %q, not a wait", out.Rule)
			}
			err := a.refusal(t.Context(), Decide(a.input(true)))
			wantRefusal(t, err, exit.Disagree, "peers-disagree")
			for where, text := range map[string]string{"the progress line": a.why(out), "the refusal": err.Error()} {
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

// TestPlace: the last line of a wait names this node, its directory and the source.
func TestPlace(t *testing.T) {
	a := wordsAgent(t, "a", "a", "b")
	a.sees(nil)
	a.found = &Found{}
	for source, want := range map[string]string{
		"srv://example.org":                        "srv://example.org",
		"exec:consul?token=secret":                 "exec:consul",
		"https://me:secret@example.org/list?key=s": "https://me:xxxxx@example.org/list",
		"static:?peer=a=http://192.0.2.1:2380":     "static:",
	} {
		a.Source = source
		last := a.refusal(t.Context(), Decide(a.input(true))).Error()
		if tail := "this node is a (http://a.example.org:2380), its data-dir " + a.Etcd.DataDir + ", the members are those of " + want; !strings.HasSuffix(last, tail) {
			t.Errorf("%s: %s", source, last)
		}
	}
}

// TestRows: each peer that is missing has a row, which says since when it is so.
func TestRows(t *testing.T) {
	a := wordsAgent(t, "a", "a", "b", "c")
	look := func(peers map[string]rendezvous.Sighting) map[string]WaitRow {
		a.sees(peers)
		rows := map[string]WaitRow{}
		for _, r := range a.rows(Decide(a.input(false))) {
			rows[r.Name] = r
		}
		return rows
	}
	refused := rendezvous.Sighting{Detail: "connection refused"}
	first := look(map[string]rendezvous.Sighting{"b": refused, "c": {Trust: rendezvous.BadCert, Detail: "it is for d"}})
	if r := first["b"]; r.URL != "http://b.example.org:2380" || r.State != "silent" || r.Why != "connection refused" || r.Since.IsZero() {
		t.Errorf("b: %+v", r)
	}
	if r := first["c"]; r.State != "bad certificate" || r.Why != "it is for d" {
		t.Errorf("c: %+v", r)
	}
	time.Sleep(2 * time.Millisecond)
	second := look(map[string]rendezvous.Sighting{"b": {Detail: "no route to host"}, "c": refused})
	if !second["b"].Since.Equal(first["b"].Since) || second["b"].Why != "no route to host" {
		t.Errorf("b is silent since %v, and was since %v", second["b"].Since, first["b"].Since)
	}
	if !second["c"].Since.After(first["c"].Since) {
		t.Error("c has changed, and its time has not")
	}
}

// TestUncalled: a node that nobody calls says so, if others answer it.
func TestUncalled(t *testing.T) {
	waiting := rendezvous.Sighting{Kind: rendezvous.Agent, Answer: rendezvous.Answer{State: rendezvous.Waiting}}
	etcd := rendezvous.Sighting{Kind: rendezvous.Etcd, ClusterID: "c9"}
	for _, tt := range []struct {
		name  string
		peers map[string]rendezvous.Sighting
		heard string
		met   time.Duration
		dry   bool
		want  string
	}{
		{"both answer", map[string]rendezvous.Sighting{"b": waiting, "c": waiting}, "", time.Minute, false, "can be reached from it: does a firewall on this host drop port 2380, and does http://a.example.org:2380 lead"},
		{"one answers", map[string]rendezvous.Sighting{"b": waiting}, "", time.Minute, false, "can be reached"},
		{"too early", map[string]rendezvous.Sighting{"b": waiting}, "", time.Second, false, ""},
		{"one has called", map[string]rendezvous.Sighting{"b": waiting, "c": waiting}, "c", time.Minute, false, ""},
		{"nobody answers", nil, "", time.Minute, false, ""},
		{"an etcd does not call", map[string]rendezvous.Sighting{"b": waiting, "c": etcd}, "", time.Minute, false, ""},
		{"this run answers nobody", map[string]rendezvous.Sighting{"b": waiting}, "", time.Minute, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := wordsAgent(t, "a", "a", "b", "c")
			a.sees(tt.peers)
			a.met, a.dry = time.Now().Add(-tt.met), tt.dry
			for i := range a.view.Peers {
				a.view.Peers[i].Heard = a.view.Peers[i].Member.Name == tt.heard
			}
			if got := a.hint(nil); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestRehearse: what is wrong before any peer is asked is warned of, once.
func TestRehearse(t *testing.T) {
	const autoTLS = "peer-auto-tls: no certificate is checked, so anybody who reaches the peer port can claim to be a peer"
	a := wordsAgent(t, "a", "a", "b", "c")
	a.Etcd.PeerTLS = etcdconf.TLS{AutoTLS: true}
	a.rehearse()
	a.rehearse()
	if !slices.Equal(a.warnings, []string{autoTLS}) {
		t.Errorf("warnings %q", a.warnings)
	}
	a = wordsAgent(t, "a", "a", "b", "c")
	a.Etcd.PeerTLS = etcdconf.TLS{CertFile: "/nonexistent/cert.pem", KeyFile: "/nonexistent/key.pem"}
	a.rehearse()
	a.Etcd.PeerTLS.AutoTLS = true // etcd ignores it beside the files
	a.rehearse()
	if len(a.warnings) != 1 || !strings.HasPrefix(a.warnings[0], "this member's own peer certificate: ") || !strings.Contains(a.warnings[0], "/nonexistent/cert.pem") {
		t.Errorf("warnings %q", a.warnings)
	}
	if err := a.meet(t.Context()); exit.Of(err) != exit.Config {
		t.Errorf("without the certificate: %v", err)
	}
	if err := a.close(nil); err != nil {
		t.Error(err)
	}
}

// TestCertificates: each finding about a peer's certificate is told once.
func TestCertificates(t *testing.T) {
	a := wordsAgent(t, "a", "a", "b")
	a.sees(map[string]rendezvous.Sighting{"b": {Detail: "bad", Certs: []string{"it expired at noon"}}})
	a.certificates()
	a.certificates()
	if want := []string{"peer b at http://b.example.org:2380: it expired at noon"}; !slices.Equal(a.warnings, want) {
		t.Errorf("warnings %q", a.warnings)
	}
}

// TestDistrust: a peer that TLS keeps out is not called silent, and what is wrong
// stands in the last line, in the progress line and among the warnings.
func TestDistrust(t *testing.T) {
	tests := []struct {
		name    string
		seen    rendezvous.Sighting
		refused string
		short   string
		want    []string
		warning string
	}{
		{
			"a bad certificate",
			rendezvous.Sighting{Trust: rendezvous.BadCert, Detail: "it is for c", Certs: []string{"it is for c"}},
			"", "b (bad certificate)",
			[]string{"b has a certificate that etcd refuses (http://b.example.org:2380: it is for c)"},
			"peer b at http://b.example.org:2380: it is for c",
		},
		{
			"it refuses mine",
			rendezvous.Sighting{Trust: rendezvous.RefusesMine, Detail: "a is for d" + rendezvous.ComesFrom + "192.0.2.1"},
			"", "b (refuses this node's certificate)",
			[]string{"b refuses this node's certificate, as etcd there would (http://b.example.org:2380: a is for d, and the call comes from 192.0.2.1)", "set peer-skip-client-san-verification"},
			"peer b at http://b.example.org:2380 refuses this node's certificate: a is for d, and the call comes from 192.0.2.1",
		},
		{
			"no TLS in common",
			rendezvous.Sighting{Trust: rendezvous.NoCommonTLS, Detail: "it broke off TLS: protocol version not supported"},
			"", "b (no TLS in common)",
			[]string{"b and this node cannot agree on TLS (", "protocol version not supported", "tls-min-version"},
			"",
		},
		{
			"its calls are refused",
			rendezvous.Sighting{Kind: rendezvous.Agent, Answer: rendezvous.Answer{State: rendezvous.Waiting}},
			"it is revoked", "",
			[]string{"its calls get no answer here, as etcd would refuse them: it is revoked"},
			"peer b calls with a certificate that etcd refuses: it is revoked",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := wordsAgent(t, "a", "a", "b", "c")
			a.sees(map[string]rendezvous.Sighting{"b": tt.seen, "c": {Kind: rendezvous.Garbage}})
			b := slices.IndexFunc(a.view.Peers, func(p rendezvous.PeerView) bool { return p.Member.Name == "b" })
			a.view.Peers[b].Refused = tt.refused
			out := Decide(a.input(false))
			if short := a.awaited(out); !strings.Contains(short, tt.short) {
				t.Errorf("%q, want %q", short, tt.short)
			}
			last := a.refusal(t.Context(), Decide(a.input(true))).Error()
			if strings.Contains(last, "silent") {
				t.Errorf("called silent: %s", last)
			}
			for _, w := range tt.want {
				if !strings.Contains(last, w) {
					t.Errorf("no %q in %s", w, last)
				}
			}
			a.certificates()
			if tt.warning != "" && !slices.Contains(a.warnings, tt.warning) {
				t.Errorf("warnings %q", a.warnings)
			}
		})
	}
}

// TestWithoutRefusal: a name of no member is called so, and too many names
// are called too many.
func TestWithoutRefusal(t *testing.T) {
	abc := []string{"a", "b", "c"}
	for _, tt := range []struct {
		members []string
		left    []string
		want    []string
	}{
		{[]string{"b", "x"}, []string{"d"}, []string{"--without d: it is not among the other members, which are x"}},
		{abc, []string{"d"}, []string{"--without d: it is not among the other members, which are "}},
		{abc, []string{"b"}, []string{"--without b: it is not among the other members, which are "}},
		{abc, []string{"a", "c"}, []string{"--without a --without c: it may name at most 1 of the other members of ", ", which is a minority of 3"}},
		{abc, []string{"a", "d"}, []string{"--without d: it is not among the other members, which are "}},
	} {
		a := wordsAgent(t, "b", tt.members...)
		a.Without = tt.left
		a.sees(nil)
		wantRefusal(t, a.refusal(t.Context(), Decide(a.input(false))), exit.Config, "without", tt.want...)
	}
	a := wordsAgent(t, "b", "b")
	a.Without = []string{"d"}
	if got, want := a.badWithoutWords(), "--without d: b is the only member"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestEveryRefusalHasWords: a rule that can end a run has a reason and a line of
// its own.
func TestEveryRefusalHasWords(t *testing.T) {
	reasons := make(map[Rule]string)
	for _, r := range table() {
		if r.status == exit.Done {
			continue
		}
		a := wordsAgent(t, "a", "a", "b", "c")
		id := func(i int) string { return a.plan.Members[i].ID.String() }
		self := &seed.Member{ID: a.plan.MemberID, Name: "a", PeerURLs: a.plan.Self.PeerURLs}
		disk, other := someDisk("a"), someDisk("b")
		roster := seed.Roster{{Member: id(0), Disk: disk}, {Member: id(1), Disk: disk}, {Member: id(2), Disk: other}}
		a.state.Self, a.state.MemberID, a.state.ClusterID, a.state.DiskID = self, a.plan.MemberID, 7, disk
		a.state.Record = &seed.Record{Token: "stored", Roster: roster}
		special := map[Rule]func(*seed.State){
			RuleDamaged:     func(s *seed.State) { s.Kind, s.Reason = seed.Broken, "torn" },
			RuleUnnamed:     func(s *seed.State) { s.Kind, s.Self = seed.Valid, nil },
			RuleRemovedDisk: func(s *seed.State) { s.Kind, s.Removed = seed.Valid, []types.ID{s.MemberID} },
		}
		if set := special[r.rule]; set != nil {
			set(a.state)
		}
		a.other = &exit.Error{Reason: "foreign-data", Msg: "another member's"}
		a.Without = []string{"x"}
		a.sees(map[string]rendezvous.Sighting{"b": {Kind: rendezvous.Etcd, ClusterID: "c9", Members: []rendezvous.Listed{{ID: "b", Name: "b"}}}})
		a.view.Roster = roster
		a.cluster.why = "it does not answer"
		a.view.SelfLast = rendezvous.Sighting{Addr: "192.0.2.9:2380", Answer: rendezvous.Answer{State: rendezvous.Waiting}}
		if r.rule == RuleTwin {
			a.view.Self = rendezvous.Double
		}
		out := Outcome{Step: StepRefuse, Rule: r.rule, Status: r.status, Peers: a.view.Peers[:1]}
		var err error
		if r.step == StepRevoke {
			err = a.revoke(out)
		} else {
			err = a.refusal(t.Context(), out)
		}
		e := exit.Refusal(err)
		switch {
		case e == nil || e.Reason == "" || e.Msg == "" || e.Reason == "bug" || strings.Contains(e.Msg, "no words"):
			t.Errorf("%s: %+v", r.rule, e)
		case e.Status != r.status:
			t.Errorf("%s: status %d, want %d", r.rule, e.Status, r.status)
		case strings.ContainsAny(e.Msg, "\n\t") || strings.Contains(e.Msg, "%!") || strings.HasSuffix(e.Msg, "; ") || strings.Contains(e.Msg, ": ;"):
			t.Errorf("%s: %q", r.rule, e.Msg)
		}
		if e != nil {
			reasons[r.rule] = e.Reason
		}
	}
	if len(reasons) < 15 {
		t.Errorf("only %d rules refuse: %v", len(reasons), reasons)
	}
	a := wordsAgent(t, "a", "a")
	if e := exit.Refusal(a.refusal(t.Context(), Outcome{Rule: RuleKeep, Status: exit.Bug})); e == nil || e.Reason != "bug" {
		t.Errorf("a rule that does not refuse: %+v", e)
	}
}

// TestWordsOfPeers: what is said of each standing of a peer.
func TestWordsOfPeers(t *testing.T) {
	agentIs := func(state rendezvous.State, change ...func(*rendezvous.Answer)) rendezvous.Sighting {
		s := rendezvous.Sighting{Kind: rendezvous.Agent, Addr: "192.0.2.9:1", Answer: rendezvous.Answer{State: state}}
		for _, c := range change {
			c(&s.Answer)
		}
		return s
	}
	mine := someDisk("a")
	for _, tt := range []struct {
		name string
		disk Disk
		see  func(*agent) rendezvous.Sighting
		want []string
	}{
		{"silent", DiskEmpty, func(*agent) rendezvous.Sighting { return rendezvous.Sighting{Detail: "no route"} }, []string{"b is silent (http://b.example.org:2380: no route)"}},
		{"garbage", DiskEmpty, func(*agent) rendezvous.Sighting {
			return rendezvous.Sighting{Kind: rendezvous.Garbage, Detail: "HTTP 418"}
		}, []string{"b cannot be understood (http://b.example.org:2380: HTTP 418)"}},
		{"waiting", DiskPrepared, func(*agent) rendezvous.Sighting { return agentIs(rendezvous.Waiting) }, []string{"b has not committed yet (it is there, at http://b.example.org:2380)"}},
		{"prepared, sees not all", DiskPrepared, func(*agent) rendezvous.Sighting {
			return agentIs(rendezvous.Prepared, func(a *rendezvous.Answer) { a.Disk = someDisk("b") })
		}, []string{"b has not committed yet (it does not see all members"}},
		{"bound without me", DiskPrepared, func(a *agent) rendezvous.Sighting {
			return agentIs(rendezvous.Committed, func(x *rendezvous.Answer) {
				x.Disk = someDisk("b")
				x.Roster = a.seats(map[string]seed.DiskID{"b": "b"})
			})
		}, []string{"b is bound to a roster that leaves out a (its --without)"}},
		{"bound with another disk of mine", DiskPrepared, func(a *agent) rendezvous.Sighting {
			return agentIs(rendezvous.Committed, func(x *rendezvous.Answer) {
				x.Disk = someDisk("b")
				x.Roster = a.seats(map[string]seed.DiskID{"a": "f", "b": "b"})
			})
		}, []string{"b is bound to a roster with another disk for a (" + string(someDisk("f")), "this node's is " + string(mine), "lost or moved after b had committed"}},
		{"an etcd", DiskPrepared, func(*agent) rendezvous.Sighting { return rendezvous.Sighting{Kind: rendezvous.Etcd, ClusterID: "c9"} }, []string{"an etcd of another cluster (ID c9) answers for b at http://b.example.org:2380"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := wordsAgent(t, "a", "a", "b")
			a.disk = tt.disk
			start := rendezvous.Start{State: rendezvous.Waiting}
			if tt.disk == DiskPrepared {
				start = rendezvous.Start{State: rendezvous.Prepared, Disk: mine}
			}
			a.seesAs(start, map[string]rendezvous.Sighting{"b": tt.see(a)})
			got := a.words(&a.view.Peers[0])
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("no %q in %s", w, got)
				}
			}
		})
	}
	t.Run("astray", func(t *testing.T) {
		a := wordsAgent(t, "a", "a", "b", "c")
		a.sees(nil)
		i := slices.IndexFunc(a.view.Peers, func(p rendezvous.PeerView) bool { return p.Member.Name == "b" })
		p := a.view.Peers[i]
		p.Now, p.Last = rendezvous.Astray, rendezvous.Sighting{Kind: rendezvous.Agent, Addr: "192.0.2.9:1", URL: "http://b.example.org:2380"}
		for _, m := range a.plan.Members {
			if m.Name == "c" {
				p.Last.Answer.MemberID = rendezvous.ID(m.ID.String())
			}
		}
		if got := a.words(&p); !strings.Contains(got, "the URL of b, is answered by the agent of member c (from 192.0.2.9:1)") {
			t.Error(got)
		}
		p.Now, p.Called = rendezvous.Silent, true
		if got := a.words(&p); !strings.Contains(got, "yet it calls this node") {
			t.Error(got)
		}
	})
}

// seats is a roster of some members' disks, each named by one digit.
func (a *agent) seats(disks map[string]seed.DiskID) (r seed.Roster) {
	for _, m := range a.plan.Members {
		if d := disks[m.Name]; d != "" {
			r = append(r, seed.Seat{Member: m.ID.String(), Disk: someDisk(string(d))})
		}
	}
	return r
}

// TestOwnWords: what is said of this member's own URL.
func TestOwnWords(t *testing.T) {
	for _, tt := range []struct {
		name string
		see  rendezvous.Sighting
		now  rendezvous.Standing
		want string // "": nothing
	}{
		{"mine", rendezvous.Sighting{}, rendezvous.Mine, ""},
		{"silent", rendezvous.Sighting{Detail: "connection refused"}, rendezvous.Silent, "does not lead to it: connection refused"},
		{"double", rendezvous.Sighting{Addr: "192.0.2.9:1", Answer: rendezvous.Answer{State: rendezvous.Prepared, Disk: someDisk("b")}}, rendezvous.Double, "two agents have the identity of a"},
		{"astray", rendezvous.Sighting{Addr: "192.0.2.9:1", Answer: rendezvous.Answer{MemberID: "beef"}}, rendezvous.Astray, "is answered by the agent of member beef (from 192.0.2.9:1)"},
		{"an etcd", rendezvous.Sighting{ClusterID: "c9"}, rendezvous.Runs, "answers an etcd of cluster c9: another node has its address"},
		{"another plan", rendezvous.Sighting{Addr: "192.0.2.9:1"}, rendezvous.Differs, "answers an agent with another plan (from 192.0.2.9:1)"},
	} {
		a := wordsAgent(t, "a", "a", "b")
		a.found = &Found{Addr: netip.MustParseAddr("192.0.2.1")}
		a.sees(nil)
		a.view.Self, a.view.SelfLast = tt.now, tt.see
		got := a.ownWords()
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	a := wordsAgent(t, "a", "a", "b")
	a.sees(nil)
	a.view.Self, a.view.Peers[0].Bound = rendezvous.Silent, true
	if got := a.ownWords(); got != "" {
		t.Errorf("a peer is bound with this disk, so its URL leads here for that peer: %s", got)
	}
	a.view.Peers[0].Bound, a.view.Disk = false, someDisk("a")
	a.view.Peers[0].Last.Answer.Proposal = []rendezvous.Seat{{Seat: seed.Seat{Disk: someDisk("a")}}}
	if got := a.ownWords(); got != "" {
		t.Errorf("a peer proposes this disk, so its URL leads here for that peer: %s", got)
	}
	a.view.Peers[0].Last.Answer.Proposal = nil
	a.dry, a.view.Self, a.view.SelfLast.Answer.Disk = true, rendezvous.Double, someDisk("a")
	if got := a.ownWords(); got != "" {
		t.Errorf("beside a command that only looks, this node's own init is called a second one: %s", got)
	}
}

func TestPlanDiff(t *testing.T) {
	a := wordsAgent(t, "a", "a", "b")
	same := meetingPlan(a.plan).Members
	if got, want := a.planDiff(same), "the same members with other roles (learners)"; got != want {
		t.Errorf("got %s", got)
	}
	ids := slices.Clone(same)
	ids[0].ID = "beef"
	if got, want := a.planDiff(ids), "the same members with another initial-cluster-token"; got != want {
		t.Errorf("got %s", got)
	}
	other := slices.Clone(same)
	i := slices.IndexFunc(other, func(m rendezvous.Member) bool { return m.Name == "b" })
	other[i].Name, other[i].PeerURLs = "c", []string{"http://c.example.org:2380"}
	if got, want := a.planDiff(other), "-b=http://b.example.org:2380 +c=http://c.example.org:2380 (- here, + there)"; got != want {
		t.Errorf("got %s", got)
	}
}

// TestStartable: a directory that is whole, and that etcd starts from.
func TestStartable(t *testing.T) {
	self := &seed.Member{ID: 1, Name: "etcd-0"}
	tests := []struct {
		name   string
		in     seed.State
		reason string // "" is startable
		want   string
	}{
		{"empty", seed.State{Kind: seed.Empty}, "", ""},
		{"ours", seed.State{Kind: seed.Valid, MemberID: 1, Self: self}, "", ""},
		{"somebody else was removed", seed.State{Kind: seed.Valid, MemberID: 1, Self: self, Removed: []types.ID{2}}, "", ""},
		{"removed (WB-54)", seed.State{Kind: seed.Valid, DataDir: "/d", MemberID: 1, ClusterID: 2, Removed: []types.ID{1}}, "removed", "/d holds member 1, which was removed from cluster 2"},
		{"a joiner that has not caught up", seed.State{Kind: seed.Valid, DataDir: "/d", MemberID: 1, ClusterID: 2}, "unnamed", "not yet the member itself"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Startable(&tt.in)
			if tt.reason == "" {
				if err != nil || Sound(&tt.in) != nil {
					t.Fatal(err)
				}
				return
			}
			wantRefusal(t, err, exit.Foreign, tt.reason, tt.want)
		})
	}
	torn := &seed.State{Kind: seed.Broken, Reason: "torn", LogLost: true}
	for _, err := range []error{Startable(torn), Sound(torn)} {
		wantRefusal(t, err, exit.Damaged, "damaged", "torn", "remove and re-add this member")
	}
	if err := Sound(&seed.State{Kind: seed.Broken, Reason: "proxy"}); strings.Contains(err.Error(), "remove and re-add") {
		t.Errorf("nothing that was voted is lost: %v", err)
	}
	wantRefusal(t, Sound(&seed.State{Kind: seed.Broken, Reason: "torn", Misplaced: true}), exit.Damaged, "misplaced", "is the volume mounted")
}

// TestCommands: each command has what this node knows, and works as printed.
func TestCommands(t *testing.T) {
	a := wordsAgent(t, "a", "a", "b", "c")
	a.Etcd.ListenPeerURLs, a.Etcd.ListenClientURLs = []string{"http://0.0.0.0:2380"}, []string{"http://0.0.0.0:2379"}
	a.Etcd.WALDir, a.Again = "/wal", []string{"systemctl restart etcd.service"}
	etcd := rendezvous.Sighting{Kind: rendezvous.Etcd, ClusterID: "c9", Members: []rendezvous.Listed{
		{ID: "b", Name: "b", PeerURLs: []string{"http://b.example.org:2380"}, ClientURLs: []string{"http://b.example.org:2379"}},
		{ID: "5", Name: "a", PeerURLs: a.plan.Self.PeerURLs, ClientURLs: []string{"http://a.example.org:2379"}},
		{ID: "c", Name: "", PeerURLs: []string{"http://c.example.org:2380"}},
	}}
	a.sees(map[string]rendezvous.Sighting{"b": etcd})
	i := slices.IndexFunc(a.view.Peers, func(p rendezvous.PeerView) bool { return p.Member.Name == "b" })
	peers := a.view.Peers[i : i+1]
	got := a.replacement(peers)
	ctl := "etcdctl --endpoints=http://b.example.org:2379"
	if len(got) != 4 || !strings.Contains(got[0], ctl+" member remove 5") ||
		!strings.Contains(got[1], ctl+" member add a --learner --peer-urls=http://a.example.org:2380") ||
		got[2] != "systemctl restart etcd.service" || got[3] != "etcdinit promote --wait --data-dir "+a.Etcd.DataDir+" --wal-dir /wal" {
		t.Errorf("commands:\n%s", strings.Join(got, "\n"))
	}
	if strings.Contains(strings.Join(got, " "), "cert") {
		t.Errorf("certificates without TLS:\n%s", strings.Join(got, "\n"))
	}
	a.Etcd.ClientTLS = etcdconf.TLS{CertFile: "/c.pem", KeyFile: "/c.key", TrustedCAFile: "/ca.pem", ClientCertAuth: true}
	a.Etcd.PeerTLS = etcdconf.TLS{CertFile: "/p.pem", KeyFile: "/p.key"}
	got = a.addition(peers)
	if len(got) != 3 || !strings.Contains(got[0], ctl+" --cacert=/ca.pem --cert=/c.pem --key=/c.key member add") {
		t.Errorf("commands:\n%s", strings.Join(got, "\n"))
	}
	a.Pod, a.Again = true, nil
	if got = a.addition(peers); len(got) != 2 || !strings.Contains(got[1], " member promote $(") {
		t.Errorf("commands in a pod:\n%s", strings.Join(got, "\n"))
	}
	a.Etcd.File = "/etc/etcd.yaml"
	a.Pod = false
	if got = a.addition(peers); got[len(got)-1] != "etcdinit promote --wait --config-file /etc/etcd.yaml" {
		t.Errorf("commands with a configuration file:\n%s", strings.Join(got, "\n"))
	}
	// An etcd that has not published itself gives no endpoint: this node's own
	// ports are taken.
	peers[0].Last.Members = nil
	if got := a.etcdctl(peers); !strings.HasPrefix(got, "etcdctl --endpoints=http://b.example.org:2379 ") {
		t.Errorf("got %s", got)
	}
	peers[0].Last.URL = ""
	if got := hostOf(&peers[0]); got != "b.example.org" {
		t.Errorf("host %s", got)
	}
}

// TestAside: the commands leave an empty directory, in both layouts, and nothing is
// lost.
func TestAside(t *testing.T) {
	t.Parallel()
	for _, separate := range []bool{false, true} {
		n := newLab(t, 2).node(t, "m1")
		if separate {
			n.wal = filepath.Join(t.TempDir(), "wal")
		}
		n.commit(t, labRoster(t, []*node{n}, map[string]seed.DiskID{"m2": someDisk("b")}))
		a := newAgent(n.config(t))
		a.state = n.state(t)
		for _, command := range a.aside("not-released") {
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", command, err, out)
			}
		}
		if s := n.state(t); s.Kind != seed.Empty || s.DiskID != "" {
			t.Errorf("separate wal-dir: %t: %s: %s", separate, s.Kind, s.Reason)
		}
		n.prepare(t)
	}
}

func TestWithdrawalCommand(t *testing.T) {
	a := wordsAgent(t, "a", "a", "b", "c")
	a.Etcd.ListenPeerURLs, a.Etcd.WALDir = []string{"http://0.0.0.0:2380"}, "/wal"
	a.Size, a.SelfIP, a.SelfName = 3, netip.MustParseAddr("192.0.2.1"), "a"
	want := "etcdinit withdraw --data-dir " + a.Etcd.DataDir + " --listen-peer-urls http://0.0.0.0:2380 --wal-dir /wal --initial-cluster-token t --discovery 'srv://example.org' --size 3 --self-ip 192.0.2.1 --self-name a"
	if got := a.withdrawal(); len(got) != 1 || got[0] != want {
		t.Errorf("got\n%q\nwant\n%s", got, want)
	}
	a.Etcd.File, a.Etcd.DiscoverySRV = "/etc/etcd.yaml", "example.org"
	a.Size, a.SelfIP, a.SelfName = 0, netip.Addr{}, ""
	if got := a.withdrawal(); got[0] != "etcdinit withdraw --config-file /etc/etcd.yaml" {
		t.Errorf("got %q", got)
	}
}

// TestPendingProof: when it is shown that no write was acknowledged.
func TestPendingProof(t *testing.T) {
	const run1, run2 = "run 1", "run 2"
	a := wordsAgent(t, "a", "a", "b", "c", "d", "e")
	roster := a.seats(map[string]seed.DiskID{"a": "a", "b": "b", "c": "c", "d": "d", "e": "e"})
	pending := func(run string) func(*rendezvous.PeerView) {
		return func(p *rendezvous.PeerView) {
			p.Now, p.Last.Answer.Roster, p.Last.Answer.Nonce = rendezvous.IsCommitted, roster, run
		}
	}
	is := func(s rendezvous.Standing) func(*rendezvous.PeerView) {
		return func(p *rendezvous.PeerView) { p.Now = s }
	}
	withdrawn := func(s rendezvous.Standing) func(*rendezvous.PeerView) {
		return func(p *rendezvous.PeerView) {
			p.Now, p.Last.Answer.Withdrawn, p.Last.Answer.Nonce = s, []rendezvous.ID{"c0ffee"}, run1
		}
	}
	bound := func(p *rendezvous.PeerView) { // to another roster
		p.Now, p.Last.Answer.Roster, p.Last.Answer.Nonce = rendezvous.IsCommitted, roster[1:], run1
	}
	look := func(peers map[string]func(*rendezvous.PeerView)) *rendezvous.View {
		v := &rendezvous.View{Plan: meetingPlan(a.plan), Roster: roster, ClusterID: "c0ffee"}
		for _, m := range v.Plan.Others() {
			p := rendezvous.PeerView{Member: m, Now: rendezvous.IsWaiting}
			if set := peers[m.Name]; set != nil {
				set(&p)
			}
			v.Peers = append(v.Peers, p)
		}
		return v
	}
	type peers = map[string]func(*rendezvous.PeerView)
	// Of five, three must be pending, this one included.
	for _, tt := range []struct {
		name    string
		looks   []peers
		apart   time.Duration
		want    bool
		missing string
	}{
		{"two looks at enough", []peers{{"b": pending(run1), "c": pending(run1)}, {"b": pending(run1), "c": pending(run1)}}, proofTime, true, ""},
		{"one look", []peers{{"b": pending(run1), "c": pending(run1)}}, proofTime, false, ""},
		{"two looks at once", []peers{{"b": pending(run1), "c": pending(run1)}, {"b": pending(run1), "c": pending(run1)}}, proofTime - 1, false, ""},
		{"too few", []peers{{"b": pending(run1)}, {"b": pending(run1)}}, proofTime, false, "only 2 of its disks answer as pending or withdrawn, 3 are needed"},
		{"one is silent", []peers{{"b": pending(run1), "c": pending(run1), "d": is(rendezvous.Silent)}, {"b": pending(run1), "c": pending(run1), "d": is(rendezvous.Silent)}}, proofTime, false, "d is silent"},
		{"one is silent in between", []peers{{"b": pending(run1), "c": pending(run1)}, {"b": pending(run1), "c": is(rendezvous.Silent)}, {"b": pending(run1), "c": pending(run1)}}, proofTime, false, ""},
		{"one is silent now", []peers{{"b": pending(run1), "c": pending(run1)}, {"b": pending(run1), "c": pending(run1)}, {"b": pending(run1), "c": pending(run1), "e": is(rendezvous.Unknown)}}, proofTime, false, "e is unknown"},
		{"another run", []peers{{"b": pending(run1), "c": pending(run1)}, {"b": pending(run2), "c": pending(run1)}}, proofTime, false, ""},
		{"another run, and a third look", []peers{{"b": pending(run1), "c": pending(run1)}, {"b": pending(run2), "c": pending(run1)}, {"b": pending(run2), "c": pending(run1)}}, proofTime, true, ""},
		{"one has come", []peers{{"b": pending(run1), "c": pending(run1)}, {"b": pending(run1), "c": pending(run1), "d": pending(run1)}}, proofTime, false, ""},
		{"one is released", []peers{{"b": pending(run1), "c": pending(run1), "d": is(rendezvous.IsReleased)}, {"b": pending(run1), "c": pending(run1), "d": is(rendezvous.IsReleased)}}, proofTime, false, "d is released"},
		{"an etcd runs", []peers{{"b": pending(run1), "c": pending(run1), "d": is(rendezvous.Runs)}, {"b": pending(run1), "c": pending(run1), "d": is(rendezvous.Runs)}}, proofTime, false, "d is running"},
		{"bound to another roster", []peers{{"b": pending(run1), "c": bound}, {"b": pending(run1), "c": bound}}, proofTime, false, "only 2"},
		{"withdrawn, and waits", []peers{{"b": pending(run1), "c": withdrawn(rendezvous.IsWaiting)}, {"b": pending(run1), "c": withdrawn(rendezvous.IsWaiting)}}, proofTime, true, ""},
		{"withdrawn, and is prepared", []peers{{"b": withdrawn(rendezvous.IsPrepared), "c": withdrawn(rendezvous.IsWaiting)}, {"b": withdrawn(rendezvous.IsPrepared), "c": withdrawn(rendezvous.IsWaiting)}}, proofTime, true, ""},
		{"withdrawn, and released under another roster", []peers{{"b": pending(run1), "c": withdrawn(rendezvous.IsReleased)}, {"b": pending(run1), "c": withdrawn(rendezvous.IsReleased)}}, proofTime, false, "c is released"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p pendingProof
			now := time.Hour
			for _, l := range tt.looks {
				p.look(look(l), now)
				now += tt.apart
			}
			if p.holds() != tt.want || !strings.Contains(p.missing, tt.missing) || (p.missing == "") != (tt.missing == "") {
				t.Errorf("holds: %t, want %t; missing %q, want %q", p.holds(), tt.want, p.missing, tt.missing)
			}
		})
	}
	t.Run("not of the roster", func(t *testing.T) {
		v := look(peers{"b": pending(run1), "c": is(rendezvous.Silent)})
		v.Roster = a.seats(map[string]seed.DiskID{"a": "a", "b": "b"})
		var p pendingProof
		p.look(v, 0)
		if strings.Contains(p.missing, "silent") {
			t.Errorf("a member that the roster leaves out is waited for: %s", p.missing)
		}
	})
}

// TestDead: a roster that cannot be completed as things are.
func TestDead(t *testing.T) {
	a := wordsAgent(t, "a", "a", "b")
	v := &rendezvous.View{Roster: a.seats(map[string]seed.DiskID{"a": "a", "b": "b"})}
	peer := rendezvous.PeerView{}
	for _, m := range meetingPlan(a.plan).Others() {
		peer.Member = m
	}
	for _, tt := range []struct {
		now  rendezvous.Standing
		disk seed.DiskID
		want bool
	}{
		{rendezvous.Silent, "", false},
		{rendezvous.IsPrepared, someDisk("b"), false},
		{rendezvous.IsCommitted, someDisk("b"), false},
		{rendezvous.IsPrepared, someDisk("c"), true},
		{rendezvous.IsWaiting, "", true},
	} {
		peer.Now, peer.Last.Answer.Disk = tt.now, tt.disk
		v.Peers = []rendezvous.PeerView{peer}
		if got := dead(v); got != tt.want {
			t.Errorf("%s with disk %q: %t", tt.now, tt.disk, got)
		}
	}
}

// TestHandoff: what etcd is told, from what the directory holds.
func TestHandoff(t *testing.T) {
	a := wordsAgent(t, "a", "a", "b")
	a.state.Self = &seed.Member{Name: "a", PeerURLs: []string{"http://192.0.2.7:2380"}}
	a.Etcd.ListenPeerURLs, a.Etcd.ListenClientURLs = []string{"http://0.0.0.0:2380"}, []string{"http://0.0.0.0:2379"}
	h := a.handoffOf()
	if !slices.Equal(h.AdvertiseClientURLs, []string{"http://192.0.2.7:2379"}) || h.ListenPeerURLs != nil {
		t.Errorf("never published: %+v", h)
	}
	a.Etcd.AdvertiseClients = []string{"http://a.example.org:2379"}
	if h := a.handoffOf(); !slices.Equal(h.AdvertiseClientURLs, a.Etcd.AdvertiseClients) {
		t.Errorf("as configured: %+v", h)
	}
	a.ListenSelf = true
	a.localAddrs = func(string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8"), netip.MustParseAddr("192.0.2.9")}, nil
	}
	for _, tt := range []struct {
		name string
		set  func()
		want string
	}{
		{"the URL's own", func() {}, "192.0.2.7"},
		{"as given", func() { a.SelfIP = netip.MustParseAddr("192.0.2.8") }, "192.0.2.8"},
		{"as found", func() { a.found = &Found{Addr: netip.MustParseAddr("192.0.2.9")} }, "192.0.2.9"},
	} {
		tt.set()
		if h := a.handoffOf(); !slices.Equal(h.ListenPeerURLs, []string{"http://" + tt.want + ":2380"}) || len(a.warnings) > 0 {
			t.Errorf("%s: %+v, %q", tt.name, h, a.warnings)
		}
	}
	a.found, a.SelfIP = nil, netip.MustParseAddr("203.0.113.1") // NAT
	if h := a.handoffOf(); h.ListenPeerURLs != nil || len(a.warnings) != 1 {
		t.Errorf("not this host's: %+v, %q", h, a.warnings)
	}
	a.found, a.SelfIP, a.state.Self.PeerURLs = nil, netip.Addr{}, []string{"http://a.example.org:2380"}
	if h := a.handoffOf(); h.ListenPeerURLs != nil || len(a.warnings) != 1 || !strings.Contains(a.warnings[0], "--listen-self: this member's address is not known") {
		t.Errorf("not known: %+v, %q", h, a.warnings)
	}
}

// TestHandoffFaults: a handoff that cannot be written is told, and the warnings of
// the handoff are in the report.
func TestHandoffFaults(t *testing.T) {
	t.Parallel()
	n := newLab(t, 1).node(t, "m1")
	n.start(t, func(c *Config) { c.EnvFile = t.TempDir() }).refused(exit.Write, "output", "--env-file", "is a directory")
	n.start(t, func(c *Config) { c.ConfigOut = filepath.Join(os.DevNull, "x") }).refused(exit.Write, "output", "--config-out")
	if _, err := os.Stat("/dev/full"); err == nil {
		n.start(t, func(c *Config) { c.EnvFile = "/dev/full" }).refused(exit.Write, "handoff", "--env-file", "the seed in "+n.data+" is committed: the next run goes on from there")
	}
	out := filepath.Join(t.TempDir(), "a", "etcd.yaml")
	res := n.start(t, func(c *Config) { c.ConfigOut, c.ListenSelf, c.SelfIP = out, true, netip.MustParseAddr(n.ip) }).ok()
	data, err := os.ReadFile(out)
	if err != nil || res.ConfigOut != out || !strings.Contains(string(data), n.peerURL("m1")) {
		t.Errorf("%s, %v, %+v", data, err, res)
	}
	report := filepath.Join(t.TempDir(), "r", "report.json")
	if err := WriteReport(report, []byte("{}")); err != nil {
		t.Error(err)
	}
	wantRefusal(t, WriteReport(t.TempDir(), nil), exit.Write, "report", "--report")
}

// TestWriteFile: whole or not at all, in place where it is no file.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	link := filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(link, []byte("new"), 0o640); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	data, rerr := os.ReadFile(target)
	if err != nil || rerr != nil || info.Mode()&os.ModeSymlink == 0 || string(data) != "new" {
		t.Errorf("%v, %v, %s, %q", err, rerr, info.Mode(), data)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := writeFile(os.DevNull, []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s was replaced: %v", os.DevNull, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := writeFile(dir, nil, 0o600); err == nil {
		t.Error("a directory was written to")
	}
}

// TestOtherwise: what the agent says of what it cannot know.
func TestOtherwise(t *testing.T) {
	a := wordsAgent(t, "a", "a", "b")
	if e := asExit(errors.New("plain")); e.Msg != "plain" {
		t.Errorf("%+v", e)
	}
	a.noContradiction(Found{Self: -1}, errors.New("odd"))
	if a.records != RecordsSilent || a.remark != ", DNS not used" || len(a.warnings) > 0 {
		t.Errorf("records %d, remark %q, warnings %q", a.records, a.remark, a.warnings)
	}
	a.noContradiction(Found{Self: -1}, &discovery.Error{Kind: discovery.NotSelf, Msg: "nobody"})
	if a.records != RecordsSilent {
		t.Errorf("an empty set says that this node is nobody: %d", a.records)
	}
	if _, err := a.act(t.Context(), Outcome{Step: Step(99)}); err == nil {
		t.Error("an unknown step passes")
	}
	for d := DiskEmpty; d <= DiskDamaged; d++ {
		if d.String() == "" {
			t.Errorf("no words for disk %d", int(d))
		}
	}
	if got := a.committed(); got != "nothing was written" {
		t.Error(got)
	}
	a.seeded = true
	if got := a.committed(); !strings.Contains(got, "is complete") {
		t.Error(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.over(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	a.notice(&seed.State{Ignored: []string{"/d/x.tmp"}, Foreign: []string{"/d/y", "/d/lost+found"}, RecordProblem: "it cannot be read"})
	if !slices.Equal(a.warnings, []string{"it cannot be read"}) {
		t.Errorf("warnings %q", a.warnings)
	}
}

// TestAdvertisedClients: client URLs come from the configuration, then from discovery
// and what etcd listens on now, then from the data.
func TestAdvertisedClients(t *testing.T) {
	t.Parallel()
	tls := []etcdconf.Flag{etcdFlag("cert-file", "c"), etcdFlag("key-file", "k")}
	for _, tt := range []struct {
		name   string
		flags  []etcdconf.Flag
		found  []string
		stored []string
		want   string
	}{
		{"the configuration", []etcdconf.Flag{etcdFlag("advertise-client-urls", "http://lb.example.org:80")}, []string{"http://m1.example.org:2379"}, []string{"http://m1.example.org:2379"}, "http://lb.example.org:80"},
		{"discovery", nil, []string{"http://m1.example.org:12379"}, []string{"http://m1.example.org:2379"}, "http://m1.example.org:12379"},
		{"silent, as stored", nil, nil, []string{"http://m1.example.org:2379"}, "http://m1.example.org:2379"},
		{"silent, another name stored", nil, nil, []string{"http://public.example.org:32379"}, "http://public.example.org:32379"},
		{"silent, another port now", []etcdconf.Flag{etcdFlag("listen-client-urls", "http://0.0.0.0:4001")}, nil, []string{"http://m1.example.org:2379"}, "http://m1.example.org:4001"},
		{"silent, TLS now", append([]etcdconf.Flag{etcdFlag("listen-client-urls", "https://0.0.0.0:2379")}, tls...), nil, []string{"http://public.example.org:2379"}, "https://m1.example.org:2379"},
		{"nothing stored", nil, nil, nil, "http://m1.example.org:2379"},
		{"a socket alone", []etcdconf.Flag{etcdFlag("listen-client-urls", "unix://localhost:1")}, nil, []string{"http://m1.example.org:2379"}, "http://m1.example.org:2379"},
	} {
		flags := append([]etcdconf.Flag{etcdFlag("data-dir", "/d"), etcdFlag("listen-client-urls", "http://0.0.0.0:2379")}, tt.flags...)
		etcd, err := etcdconf.Load("", flags, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := newAgent(Config{Etcd: etcd})
		a.state = &seed.State{Self: &seed.Member{Name: "m1", PeerURLs: []string{"http://m1.example.org:2380"}, ClientURLs: tt.stored}}
		if tt.found != nil {
			a.found = &Found{Peers: []discovery.Peer{{ClientURLs: tt.found}}}
		}
		if got := strings.Join(a.handoffOf().AdvertiseClientURLs, ","); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
