//go:build mutants

package agent

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// bodyMutant is for the rules that are outside the simulation: it puts another
// body in the place of a function's, or another value in the place of a
// constant's. killer is the test of the same package that must notice.
type bodyMutant struct {
	rule string
	// name is a function, a Type.Method or a constant of package pkg; if the
	// package has none of that name, the test fails.
	pkg, name string
	body      string
	killer    string
}

const meeting = "cmd/internal/rendezvous"

// To add one: name the function and say in its new body what a version without
// the rule would do. What the new body does not need is no hindrance: imports
// that are left over are blanked.
func bodyMutants() []bodyMutant {
	const parseAnything = `data, err := io.ReadAll(r)
		var a Answer
		if err = errors.Join(err, json.Unmarshal(data, &a)); err != nil { return Answer{}, errors.New("answer is not an agent's JSON") }
		return a, a.check()`
	return []bodyMutant{
		// What an answer may be.
		{"a newer format is unknown, and an answer is bounded", meeting, "parse", parseAnything, "TestParse"},
		{"an answer is checked", meeting, "Answer.check", `return nil`, "TestParse"},
		{"an ID has a form", meeting, "ID.valid", `return id != ""`, "TestParse"},
		{"strings are printable", meeting, "unprintable", `return false`, "TestParse"},
		{"strings are bounded", meeting, "maxText", `1 << 20`, "TestParse"},
		{"members are bounded", meeting, "maxMembers", `1 << 20`, "TestParse"},
		{"a stranger's text is cleaned", meeting, "clean", `return s`, "TestClean"},

		// What the machine knows.
		{"the member asked for answers", meeting, "Machine.agent", `switch a.State {
			case Waiting: return IsWaiting
			case Prepared: return IsPrepared
			case Committed: return IsCommitted
			case Released: return IsReleased
			}
			return Unknown`, "TestStanding"},
		{"another token is not another member", meeting, "Machine.otherID", `return false`, "TestOtherToken"},
		{"an etcd of another cluster", meeting, "Machine.etcd", `return Unstarted`, "TestStanding"},
		{"my own URL", meeting, "Machine.own", `return Mine`, "TestSelf"},
		{"a proposal has every seat", meeting, "Machine.reached", `return "", ""`, "TestProposal"},
		{"an etcd of a birth that is known", meeting, "Machine.bornOn", `return ""`, "TestCounted"},
		{"only an etcd of a birth that is known", meeting, "Machine.bornOn", `return birth.DiskID("x")`, "TestCounted"},
		{"agreed is the same proposal", meeting, "Machine.agreed", `return m.standing(&k.last).Agrees()`, "TestAgreed"},
		{"bound is bound to my roster", meeting, "Machine.binds", `return m.bound() && m.standing(s) == IsCommitted`, "TestBound"},
		{"a full list", meeting, "Machine.full", `return true`, "TestFirm"},
		{"a full list at once", meeting, "Machine.full", `return false`, "TestFirm"},
		{"a second apart", meeting, "settled", `0`, "TestFirm"},
		{"lists are compared", meeting, "lists", `return "list"`, "TestFirm"},
		{"a disk ID needs a new round", meeting, "Machine.Prepare", `m.State, m.Disk = Prepared, disk
			return m`, "TestFresh"},
		{"a release needs a new round", meeting, "Machine.Release", `m.State = Released
			return m`, "TestFresh"},
		{"a new plan forgets", meeting, "Machine.Replan", `m.Plan = plan
			if m.peers == nil { for _, p := range plan.Others() { m.peers = append(m.peers, knowledge{member: p}) } }
			return m`, "TestFresh"},

		// The listener.
		{"only one path", meeting, "Path", `"/etcdinit/v1/state"`, "TestListener"},
		{"never 403", meeting, "server.ServeHTTP", `if r.URL.Path != Path || r.URL.RawQuery != "" || r.Method != http.MethodGet {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			answer, sent := s.answer(parseCall(r.Header.Get(callHeader)))
			if answer == nil { http.Error(w, "busy", http.StatusServiceUnavailable); return }
			if json.NewEncoder(w).Encode(answer) == nil { sent() }`, "TestListener"},
		{"overload is 503", meeting, "server.ServeHTTP", `select {
			case s.busy <- struct{}{}:
				defer func() { <-s.busy }()
			default:
				http.Error(w, "busy", http.StatusForbidden)
				return
			}
			answer, sent := s.answer(parseCall(r.Header.Get(callHeader)))
			if answer == nil { http.Error(w, "busy", http.StatusServiceUnavailable); return }
			if json.NewEncoder(w).Encode(answer) == nil { sent() }`, "TestOverload"},
		{"one host has its share", meeting, "connLimit.enter", `c.mu.Lock()
			defer c.mu.Unlock()
			if c.all >= maxConns { return false }
			c.all++
			c.perHost[host]++
			return true`, "TestConnLimit"},
		{"all hosts have their share", meeting, "connLimit.enter", `c.mu.Lock()
			defer c.mu.Unlock()
			if c.perHost[host] >= maxPerHost || c.all > 1<<12 { return false }
			c.all++
			c.perHost[host]++
			return true`, "TestConnLimit"},
		{"a connection that is closed does not count", meeting, "connLimit.leave", ``, "TestConnLimit"},

		// The barrier.
		{"an answer waits for the step", meeting, "Barrier.Act", `return step()`, "TestBarrierAct"},
		{"nothing is said of a directory that has changed", meeting, "Barrier.answer", `b.mu.Lock()
			defer b.mu.Unlock()
			a := b.machine.Answer()
			return &a, func() {}`, "TestBarrierStill"},
		{"a round that cannot decide is not made", meeting, "Barrier.consider", `if len(b.called) > 0 && b.machine.State != Released { signal(b.news) }`, "TestBarrierPatient"},
		{"a call is a reason to look", meeting, "Barrier.consider", ``, "TestBarrierMeets"},
		{"who is left out is not waited for", meeting, "Barrier.seenAt", `if k.last.Kind == Agent { return level(k.last.Answer.State, key(k.last.Answer.Proposal)) }
			return 0`, "TestBarrierWithout"},
		{"calls are bounded", meeting, "wakeBurst", `1 << 20`, "TestBarrierWakes"},
		{"a silent peer that calls", meeting, "Barrier.view", `return b.machine.View()`, "TestBarrierCalled"},
		{"a farewell waits", meeting, "Barrier.Farewell", ``, "TestFarewell"},
		{"levels", meeting, "level", `return 1`, "TestLevels"},
		{"a call tells a new proposal", meeting, "key", `return "-"`, "TestKey"},
		{"my own URL is not waited for", meeting, "selfTime", `time.Hour`, "TestHairpin"},

		// Certificates.
		{
			"the listener demands what etcd will", meeting, "material.caller",
			`return nil`, "TestMutual",
		},
		{"a bad certificate is told", meeting, "checkChain", `return nil`, "TestRehearsal"},
		{"the usage of a certificate", meeting, "usable", `return true`, "TestClientUsage"},

		// A cluster's ID.
		{"the ID names the disks", "internal/birth", "Roster.ClusterID", `sum := sha256.Sum256([]byte(planDigest))
			return binary.BigEndian.Uint64(sum[:8])`, "TestClusterID"},
	}
}

// mutate returns the source of the file that has the declaration, with another
// body or value.
func mutate(dir, name, body string) (file string, source []byte, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", nil, err
	}
	found := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, readErr := os.ReadFile(f)
		if readErr != nil {
			return "", nil, readErr
		}
		set := token.NewFileSet()
		tree, parseErr := parser.ParseFile(set, f, src, parser.SkipObjectResolution)
		if parseErr != nil {
			return "", nil, parseErr
		}
		from, to := declared(tree, name)
		if from == token.NoPos {
			continue
		}
		found++
		at := func(p token.Pos) int { return set.Position(p).Offset }
		file, source = f, slices.Concat(src[:at(from)], []byte(body), src[at(to):])
	}
	if found != 1 {
		return "", nil, fmt.Errorf("%s declares %q %d times, not once: name what has the rule now", dir, name, found)
	}
	source, err = blankImports(source)
	return file, source, err
}

// declared returns where a function's body, or a constant's value, is.
func declared(tree *ast.File, name string) (from, to token.Pos) {
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			full := d.Name.Name
			if d.Recv != nil {
				t := d.Recv.List[0].Type
				if star, ok := t.(*ast.StarExpr); ok {
					t = star.X
				}
				if id, ok := t.(*ast.Ident); ok {
					full = id.Name + "." + full
				}
			}
			if full == name && d.Body != nil {
				return d.Body.Lbrace + 1, d.Body.Rbrace
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				v, ok := s.(*ast.ValueSpec)
				if ok && len(v.Names) == 1 && v.Names[0].Name == name && len(v.Values) == 1 {
					return v.Values[0].Pos(), v.Values[0].End()
				}
			}
		}
	}
	return token.NoPos, token.NoPos
}

// blankImports blanks the imports that are not used any more.
func blankImports(source []byte) ([]byte, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, "mutant.go", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("the new body: %w", err)
	}
	used := make(map[string]bool)
	ast.Inspect(tree, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := s.X.(*ast.Ident); ok {
				used[id.Name] = true
			}
		}
		return true
	})
	version := regexp.MustCompile(`^v\d+$`)
	for _, i := range tree.Imports {
		full, quoteErr := strconv.Unquote(i.Path.Value)
		if quoteErr != nil {
			return nil, quoteErr
		}
		name := path.Base(full)
		if version.MatchString(name) {
			name = path.Base(path.Dir(full))
		}
		if i.Name == nil && !used[name] {
			i.Name = ast.NewIdent("_")
		}
	}
	var b strings.Builder
	err = format.Node(&b, set, tree)
	return []byte(b.String()), err
}

// TestMutantsBodies breaks the rules that are outside the simulation.
func TestMutantsBodies(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range bodyMutants() {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			file, source, err := mutate(filepath.Join(root, m.pkg), m.name, m.body)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			broken := filepath.Join(dir, "broken.go")
			if err = os.WriteFile(broken, source, 0o600); err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: broken}})
			if err != nil {
				t.Fatal(err)
			}
			list := filepath.Join(dir, "overlay.json")
			if err = os.WriteFile(list, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", list, "-vet=off", "-count=1", "-timeout=30s", "-run", "^"+m.killer+"$", "./"+m.pkg)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			text := string(out)
			late := strings.Contains(text, "panic: test timed out") && strings.Contains(text, m.killer)
			switch {
			case err == nil && strings.Contains(text, "no tests to run"):
				t.Errorf("there is no test %s in %s", m.killer, m.pkg)
			case err == nil:
				t.Errorf("%s does not notice", m.killer)
			case !strings.Contains(text, "--- FAIL: "+m.killer) && !late:
				t.Errorf("it was not %s that failed:\n%s", m.killer, text)
			}
		})
	}
}

// TestMutantsNames: what is not there is told.
func TestMutantsNames(t *testing.T) {
	if _, _, err := mutate("../rendezvous", "Machine.nothing", ""); err == nil || !strings.Contains(err.Error(), "0 times") {
		t.Errorf("a name that is gone: %v", err)
	}
}
