//go:build mutants

package agent

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant breaks one rule in the source; killer is the test that must notice.
type mutant struct {
	rule, file, old, new, killer string
}

const (
	machine = "discovery/rendezvous/machine.go"
	wire    = "discovery/rendezvous/wire.go"
	listen  = "discovery/rendezvous/listen.go"
	probe   = "discovery/rendezvous/probe.go"
	meet    = "discovery/rendezvous/barrier.go"
	decider = "cmd/internal/agent/decide.go"
)

func mutants() []mutant {
	return []mutant{
		{"two rounds", machine, `k.steady = run != "" && run == k.run`, `k.steady = run != ""`, "TestScriptStaleRound"},
		{"two rounds of one run", machine, `run = s.Answer.Nonce`, `run = "any"`, "TestSteadyAndProven"},
		{"two rounds are asked for", decider, `v.Now.Agrees() && v.Steady }`, `v.Now.Agrees() }`, "TestScriptStaleRound"},
		{"committed sticks through silence", machine, "case now != Silent:\n\t\tk.proven = 0", "default:\n\t\tk.proven = 0", "TestScriptStickyFive"},
		{"a different answer undoes it", machine, "case now != Silent:\n\t\tk.proven = 0", "case false:", "TestScriptUnstuck"},
		{"waiting does not stick", machine, "case now == IsCommitted, now == IsReleased:\n\t\tk.proven", "case now.Agrees():\n\t\tk.proven", "TestSteadyAndProven"},
		{"the digest is compared", machine, "case a.Digest != m.plan.Digest:", "case false:", "TestScriptForeignPlan"},
		{"the member asked for answers", machine, "case a.MemberID != asked:", "case false:", "TestStanding"},
		{"an unknown state is unknown", machine, "\t\treturn IsReleased\n\t}\n\treturn Unknown", "\t\treturn IsReleased\n\t}\n\treturn IsWaiting", "TestStanding"},
		{"two of me", machine, "case s.Answer.Nonce != m.nonce:", "case false:", "TestScriptTwoOfOne"},
		{"the own URL is mine", machine, "case s.Answer.MemberID != m.plan.Self:", "case false:", "TestSelf"},
		{"the cluster's ID is compared", machine, "if s.ClusterID != m.plan.ClusterID {", "if false {", "TestStanding"},
		{"somebody ran as me", machine, "if l.Started {\n\t\t\t\treturn Replaced", "if false {\n\t\t\t\treturn Replaced", "TestScriptReplaced"},
		{"removed meanwhile", machine, "if published && !listed {", "if published && !listed && false {", "TestStanding"},
		{"unstarted proves nothing", machine, "\t\treturn Removed\n\t}\n\treturn Running", "\t\treturn Removed\n\t}\n\tif listed {\n\t\treturn IsWaiting\n\t}\n\treturn Running", "TestScriptUnpublishedPeer"},
		{"a step needs a new round", machine, "m.state, m.fresh = state, false", "m.state = state", "TestFresh"},
		{"a new plan forgets", machine, "m.plan, m.fresh, m.self = plan, false, Sighting{}\n\tm.peers = nil", "m.plan, m.fresh = plan, false\n\tif m.peers != nil {\n\t\treturn m\n\t}", "TestReplan"},
		{"the own URL is looked at", machine, "m.fresh, m.self = true, r.Self", "m.fresh, m.self.Kind, m.self.Answer.MemberID, m.self.Answer.Nonce = true, Agent, m.plan.Self, m.nonce", "TestScriptTwoOfOne"},
		{"released without the own URL", decider, "!in.View.Fresh || in.View.Self != rendezvous.Mine", "!in.View.Fresh", "TestScriptTwoOfOne"},
		{"released on an old round", decider, "!in.View.Fresh || in.View.Self != rendezvous.Mine", "in.View.Self != rendezvous.Mine", "TestDecideProduct"},
		{"an etcd releases", decider, "v.Now == rendezvous.Running || v.Proven == rendezvous.IsReleased", "v.Proven == rendezvous.IsReleased", "TestDecideProduct"},
		{"released releases", decider, "v.Now == rendezvous.Running || v.Proven == rendezvous.IsReleased", "v.Now == rendezvous.Running", "TestDecideProduct"},
		{"waiting does not release", decider, "return v.Proven == rendezvous.IsCommitted ||", "return v.Now.Agrees() || v.Proven == rendezvous.IsCommitted ||", "TestDecideProduct"},
		{"all, not any, are committed", decider, "when: both(pending, all(either(provenCommitted, leftOut)))", "when: both(pending, any1(either(provenCommitted, leftOut)))", "TestScriptFirstBootBarrier"},
		{"--without is of the silent", decider, "v.Now == rendezvous.Silent && slices.Contains", "slices.Contains", "TestDecideProduct"},
		{"--without is of the named", decider, "v.Now == rendezvous.Silent && slices.Contains(in.Without, v.Member.Name)", "v.Now == rendezvous.Silent && len(in.Without) >= 0", "TestScriptStickyFive"},
		{"--without is a minority", decider, "(in.Members-1)/2", "in.Members/2", "TestDecideMinority"},
		{"an etcd at the own URL counts", decider, "return in.View.Self.Runs() || any1(runs)(in)", "return any1(runs)(in)", "TestDecideProduct"},
		{"the time", decider, "case r.step == StepWait && in.Expired:", "case false:", "TestDecideProduct"},
		{"a newer format is unknown", wire, "if head.Format != Format {", "if head.Format < Format {", "TestParse"},
		{"the answer is bounded", wire, "if len(data) > maxAnswer {", "if false {", "TestParse"},
		{"strings are bounded", wire, "len(t) > maxText || strings.ContainsFunc(t, unprintable)", "len(t) > maxText", "TestParse"},
		{"only one path", listen, "r.URL.Path != Path || ", "", "TestListener"},
		{"never 403", listen, "http.NotFound(w, r)", `http.Error(w, "no", http.StatusForbidden)`, "TestListener"},
		{"overload is 503", listen, "http.StatusServiceUnavailable)\n\t\treturn\n\t}\n\tif r.URL", "http.StatusForbidden)\n\t\treturn\n\t}\n\tif r.URL", "TestOverload"},
		{"slow hosts are cut", listen, "ReadHeaderTimeout: ioTimeout, ReadTimeout: ioTimeout", "ReadHeaderTimeout: 0, ReadTimeout: 0", "TestSlowLoris"},
		{"one host has its share", listen, "|| c.perHost[host] >= maxPerHost ", "", "TestConnLimit"},
		{"the listener demands what etcd will", "discovery/rendezvous/tls.go", "if m.demand {", "if false {", "TestMutual"},
		{"a bad certificate is no sighting", "discovery/rendezvous/tls.go", "if len(findings) > 0 {\n\t\t\treturn", "if false {\n\t\t\treturn", "TestRehearsal"},
		{"busy is silence", probe, "resp.StatusCode >= http.StatusInternalServerError", "false", "TestLyingNeighbours"},
		{"a round is bounded", probe, "context.WithTimeout(ctx, RoundTime)\n\tdefer cancel()\n\tothers", "context.WithTimeout(ctx, 10*RoundTime)\n\tdefer cancel()\n\tothers", "TestRoundIsBounded"},
		{"calls are bounded", meet, "if k.tokens == 0 {", "if false {", "TestBucket"},
		{"a call without news is none", meet, "if called && !known {", "if called && (!known || true) {", "TestBarrierQuiet"},
		{"a round that cannot decide is not made", meet, "if news && all && ", "if news && ", "TestBarrierPatient"},
		{"silence does not undo a commit", meet, "b.machine.state == Committed && k.proven != 0", "false", "TestBarrierSticks"},
		{"who is left out is not waited for", meet, `return says == "" && k.last.Kind == NoAnswer && `, "return false && ", "TestBarrierWithout"},
		{"one that is released decides", meet, "if c.state == Released {", "if false {", "TestBarrierReleasedCalls"},
		{"a farewell asks who is there", meet, "!told || silent {", "!told && silent {", "TestFarewell"},
		{"a call during a round counts", meet, "Observe(r)\n\tb.consider()", "Observe(r)", "TestBarrierPatient"},
		{"told is what went out", listen, "errors.Join(err, http.NewResponseController(w).Flush()); err == nil {", "errors.Join(err, http.NewResponseController(w).Flush()); true {", "TestSent"},
		{"told is who knows that I am committed", meet, "known && a.State != Waiting", "known", "TestBarrierMeets"},
	}
}

// core copies what decides, and its simulation, into a module of its own: it
// needs the standard library only, so that each mutant builds in no time.
func core(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	files := []string{machine, wire, "discovery/rendezvous/doc.go", decider}
	for _, name := range []string{"decide", "sim", "sim_run", "sim_script"} {
		files = append(files, "cmd/internal/agent/"+name+"_test.go")
	}
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module github.com/etcdinit/etcdinit\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestMutants breaks every rule of the protocol, one at a time.
func TestMutants(t *testing.T) {
	whole, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	small := core(t, whole)
	for _, m := range mutants() {
		t.Run(m.rule, func(t *testing.T) {
			root, pkg := whole, "./discovery/rendezvous"
			if strings.HasPrefix(m.killer, "TestScript") || strings.HasPrefix(m.killer, "TestDecide") {
				root, pkg = small, "./cmd/internal/agent"
			}
			path := filepath.Join(root, m.file)
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.old); n != 1 {
				t.Fatalf("%s holds %q %d times, not once", m.file, m.old, n)
			}
			dir := t.TempDir()
			broken := filepath.Join(dir, "broken.go")
			if err := os.WriteFile(broken, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: broken}})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(file, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", file, "-count=1", "-timeout=2m", "-run", "^"+m.killer+"$", pkg)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("%s does not notice", m.killer)
			case !strings.Contains(string(out), "--- FAIL: "+m.killer):
				t.Errorf("it was not %s that failed:\n%s", m.killer, out)
			}
		})
	}
}
