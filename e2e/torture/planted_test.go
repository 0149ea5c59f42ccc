//go:build e2e

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// plant is a fault that is built into the program under test. The source stays
// as it is: go build sees other bodies for some functions.
type plant struct {
	name     string
	bodies   []body
	kind     string   // of the schedules that must find it
	versions []string // nil: all
	want     []string // one of these findings must be among those
}

// body is what a function is to do instead.
type body struct{ file, function, text string }

// plants are the two faults of the first edition that lose writes.
func plants() []plant {
	const birth = "internal/birth/birth.go"
	computed := body{birth, "ClusterID", `{
	var b strings.Builder
	b.WriteString(planDigest)
	for _, s := range r {
		b.WriteString(s.Member)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return binary.BigEndian.Uint64(sum[:8])
}`}
	return []plant{
		{
			name: "a cluster ID that does not name the disks", bodies: []body{computed},
			kind: "frozen", want: []string{"contradiction", "two disks"},
		},
		{
			// With an ID that names the disks, no etcd of another life has this one, and
			// the second fault alone loses nothing.
			name: "and an etcd that lists nobody yet lets a member go", bodies: []body{
				computed,
				{"cmd/internal/agent/decide.go", "waitsForMe", `{
	return v.Now == rendezvous.Unstarted || v.Now == rendezvous.Vague
}`},
			},
			kind: "late", versions: []string{"3.4", "3.5"}, want: []string{"contradiction", "two disks"},
		},
	}
}

// plantedLimit is how many schedules may be played to find one.
const plantedLimit = 16

// TestTorturePlanted builds faults in, and they must be found. With
// ETCDINIT_TORTURE_BINARY the program that it names has them all.
func TestTorturePlanted(t *testing.T) {
	if os.Getenv("ETCDINIT_TORTURE_SEEDS") == "" {
		t.Skip("skipped: it runs where ETCDINIT_TORTURE_SEEDS is set")
	}
	for _, p := range plants() {
		t.Run(p.name, func(t *testing.T) {
			need(t)
			binary := os.Getenv("ETCDINIT_TORTURE_BINARY")
			if binary == "" {
				binary = p.build(t)
			}
			p.find(t, binary)
		})
	}
}

// seeds are those of the schedules that are about the fault.
func (p *plant) seeds() []uint64 {
	var list []uint64
	for seed := uint64(1); len(list) < plantedLimit; seed++ {
		if s := generate(seed); s.kind == p.kind && (p.versions == nil || slices.Contains(p.versions, s.version)) {
			list = append(list, seed)
		}
	}
	return list
}

// find plays schedules until one finds the fault.
func (p *plant) find(t *testing.T, binary string) {
	t.Helper()
	var mu sync.Mutex
	var found []string
	done := make(chan struct{})
	all := &tally{stop: done}
	all.play(t, p.seeds(), binary, func(t *testing.T, v *verdict) {
		t.Helper()
		t.Logf("seed %d (%s, etcd %s): findings: %v", v.s.seed, v.s.kind, v.s.version, v.kinds())
		for _, f := range v.findings {
			if slices.Contains(p.want, f.kind) {
				mu.Lock()
				if found = append(found, fmt.Sprintf("seed %d, %s", v.s.seed, f.kind)); len(found) == 1 {
					t.Logf("%s: %s", f.kind, f.text)
					close(done)
				}
				mu.Unlock()
			}
		}
	})
	if len(found) == 0 {
		t.Fatalf("%d schedules of the kind %q have not found: %s", len(all.verdicts), p.kind, p.name)
	}
	t.Logf("torture: planted: %s: found by %s; %d schedules", p.name, strings.Join(found, "; "), len(all.verdicts))
}

// build builds the program with the fault.
func (p *plant) build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root := moduleRoot(t)
	replace := map[string]string{}
	for i, b := range p.bodies {
		path := filepath.Join(root, filepath.FromSlash(b.file))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed, err := b.in(text)
		if err != nil {
			t.Fatal(err)
		}
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(replace[path], changed, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err = os.WriteFile(path, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	binary, err := lab.Build(context.WithoutCancel(t.Context()), dir, "./cmd/etcdinit", "-overlay", path)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// in is the source with the function's other body.
func (b body) in(source []byte) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, b.file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if f, isFunc := d.(*ast.FuncDecl); isFunc && f.Name.Name == b.function && f.Body != nil {
			from, to := set.Position(f.Body.Pos()).Offset, set.Position(f.Body.End()).Offset
			return slices.Concat(source[:from], []byte(b.text), source[to:]), nil
		}
	}
	return nil, fmt.Errorf("%s has no function %s: the fault that is planted there must follow it", b.file, b.function)
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(filepath.Dir(dir))
}

func TestBody(t *testing.T) {
	const source = "package p\n\nfunc a() int { return 1 }\n\nfunc (r T) b() int {\n\treturn 2\n}\n"
	got, err := body{"p.go", "b", "{ return 3 }"}.in([]byte(source))
	if want := "package p\n\nfunc a() int { return 1 }\n\nfunc (r T) b() int { return 3 }\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := (body{"p.go", "c", "{}"}).in([]byte(source)); err == nil {
		t.Error("a function that is not there was replaced")
	}
}
