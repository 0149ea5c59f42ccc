// Package repo_test holds what must be true of the project as a whole: its files, its modules
// and what its documents say of them.
package repo_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// files returns the project's own files, relative to its root, without caches and results.
func files(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "dist"}, name):
			return fs.SkipDir
		case d.Type().IsRegular():
			found = append(found, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRequiredFiles(t *testing.T) {
	for _, name := range []string{
		".ci/run", ".ci/stages", ".golangci.yml", "CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "Makefile", "README.md", "go.mod",
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Error(err)
		} else if info.Size() == 0 {
			t.Errorf("%s is empty", name)
		}
	}
	if !strings.Contains(read(t, "LICENSE"), "Apache License") {
		t.Error("LICENSE is not the Apache License")
	}
}

// A replace line would break "go run …@latest"; a tool line would pull a tool's modules into
// the program's; a toolchain line would ask for more than the program needs.
func TestModulesCanBeRunFromAfar(t *testing.T) {
	for _, name := range files(t) {
		if path.Base(name) != "go.mod" || strings.HasPrefix(name, "tools/") || strings.Contains(name, "testdata") {
			continue
		}
		mod := read(t, name)
		if name != "go.mod" { // a plugin of its own module is built from this tree
			mod = strings.Replace(mod, "\nreplace github.com/etcdinit/etcdinit => ../..\n", "\n", 1)
		}
		if line := directive(mod, "replace", "tool", "toolchain", "exclude"); line != "" {
			t.Errorf("%s has the line %q: tools are pinned in tools/NAME/go.mod", name, line)
		}
	}
}

// directive returns the first line of a go.mod that opens with one of the words.
func directive(mod string, words ...string) string {
	for line := range strings.Lines(mod) {
		if fields := strings.Fields(line); len(fields) > 0 && slices.Contains(words, fields[0]) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// tools returns the folders of the pinned tools.
func tools(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("tools")
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, entry := range entries {
		if entry.IsDir() {
			dirs = append(dirs, "tools/"+entry.Name())
		}
	}
	return dirs
}

// Every folder of tools/ is a tool that is pinned: a module with its checksums, and a tool or
// a main package that it builds, or a script "build".
func TestToolsArePinned(t *testing.T) {
	for _, dir := range tools(t) {
		t.Run(path.Base(dir), func(t *testing.T) {
			if info, err := os.Stat(filepath.Join(dir, "build")); err == nil {
				if info.Mode()&0o100 == 0 {
					t.Error("its script build is not executable")
				}
				return
			}
			mod := read(t, dir+"/go.mod")
			if line := directive(mod, "toolchain"); line != "" {
				t.Errorf("go.mod has the line %q", line)
			}
			if local := regexp.MustCompile(`=> +[./]\S*`).FindString(mod); local != "" {
				t.Errorf("go.mod replaces a module by a folder: %s", local)
			}
			if _, err := os.Stat(filepath.Join(dir, "go.sum")); err != nil {
				t.Error(err)
			}
			ours := slices.ContainsFunc(files(t), func(name string) bool {
				return strings.HasPrefix(name, dir+"/") && path.Ext(name) == ".go"
			})
			if directive(mod, "tool") == "" && !ours {
				t.Error("go.mod names no tool and no main package is below it")
			}
		})
	}
}

var requirement = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) v\S+$`)

// direct returns the modules that a go.mod requires itself.
func direct(mod string) []string {
	var modules []string
	for _, match := range requirement.FindAllStringSubmatch(mod, -1) {
		modules = append(modules, match[1])
	}
	return modules
}

func TestDirect(t *testing.T) {
	const mod = "module example.org/a\n\ngo 1.26.0\n\nrequire example.org/b v1.0.0\n\nrequire (\n\texample.org/c/v2 v2.0.0\n\texample.org/d v1.0.0 // indirect\n)\n"
	if got, want := direct(mod), []string{"example.org/b", "example.org/c/v2"}; !slices.Equal(got, want) {
		t.Errorf("direct = %v, want %v", got, want)
	}
}

// A new dependency needs a line that says what it replaces.
func TestContributingNamesEveryDependency(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## Dependencies\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\| (.+) \\|$").FindAllStringSubmatch(section, -1)
	named := map[string]bool{}
	for _, row := range rows {
		named[row[1]] = true
	}
	required := map[string]bool{}
	var mods strings.Builder
	for _, name := range files(t) {
		if path.Base(name) != "go.mod" || strings.HasPrefix(name, "tools/") || strings.Contains(name, "testdata") {
			continue
		}
		mods.WriteString(read(t, name))
		for _, module := range direct(read(t, name)) {
			required[module] = !strings.HasPrefix(module, "github.com/etcdinit/etcdinit")
		}
	}
	for _, module := range slices.Sorted(maps.Keys(required)) {
		if required[module] && !named[module] {
			t.Errorf("%s is required by a go.mod and CONTRIBUTING.md has no line for it", module)
		}
	}
	for _, tool := range tools(t) {
		if !named[tool] {
			t.Errorf("%s exists and CONTRIBUTING.md has no line for it", tool)
		}
		delete(named, tool)
	}
	for name := range named {
		if strings.HasPrefix(name, "tools/") {
			t.Errorf("CONTRIBUTING.md has a line for %s, which does not exist", name)
		} else if _, ok := required[name]; !ok && !strings.Contains(mods.String(), name+" v") {
			t.Errorf("CONTRIBUTING.md has a line for %s, which no go.mod requires", name)
		}
	}
}

// The project builds anywhere: nothing in it points at the machine it was written on, or at
// the registry that this machine happens to use.
func TestNoPlaceOfOneMachine(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	proxy, err := exec.CommandContext(t.Context(), "go", "env", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	places := placesOf(filepath.ToSlash(root), filepath.ToSlash(home), string(proxy))
	for _, name := range files(t) {
		text := read(t, name)
		for _, place := range places {
			if strings.Contains(text, place) {
				t.Errorf("%s names %s", name, place)
			}
		}
	}
}

// placesOf are the places of one machine that no file may name: the checkout, the home and
// the registry, unless they are the like of what any machine has.
func placesOf(root, home, proxy string) []string {
	var places []string
	for _, dir := range []string{root, home} {
		common := slices.ContainsFunc([]string{"/opt/", "/srv/", "/usr/", "/etc/", "/var/", "/run/", "/tmp/"}, func(p string) bool { return strings.HasPrefix(dir+"/", p) })
		if strings.Count(dir, "/") > 1 && !common { // the like of /src and /root is a place of any machine
			places = append(places, strings.TrimSuffix(dir, "/")+"/")
		}
	}
	for _, part := range strings.FieldsFunc(strings.TrimSpace(proxy), func(r rune) bool { return r == ',' || r == '|' }) {
		where, err := url.Parse(part)
		if err == nil && where.Host != "" && !slices.Contains([]string{"proxy.golang.org", "goproxy.io", "goproxy.cn", "localhost", "127.0.0.1"}, where.Hostname()) {
			places = append(places, where.Hostname())
		}
	}
	return places
}

func TestPlacesOf(t *testing.T) {
	for _, tt := range []struct {
		root, home, proxy string
		want              []string
	}{
		{"/home/ada/src/etcdinit", "/home/ada", "https://proxy.golang.org,direct", []string{"/home/ada/src/etcdinit/", "/home/ada/"}},
		{"/src", "/root", "off", nil},
		{"/opt/etcdinit", "/var/lib/etcd", "direct", nil},
		{"/builds/team/etcdinit", "/", "https://modules.example.org/go|https://goproxy.io\n", []string{"/builds/team/etcdinit/", "modules.example.org"}},
	} {
		if got := placesOf(tt.root, tt.home, tt.proxy); !slices.Equal(got, tt.want) {
			t.Errorf("placesOf(%s, %s, %s) = %v, want %v", tt.root, tt.home, tt.proxy, got, tt.want)
		}
	}
}

// Go doc shows a package by its comment.
func TestEveryPackageHasAComment(t *testing.T) {
	type pack struct {
		sources   int
		commented bool
	}
	packages := map[string]*pack{}
	set := token.NewFileSet()
	for _, name := range files(t) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata") {
			continue
		}
		file, err := parser.ParseFile(set, filepath.FromSlash(name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		dir := path.Dir(name)
		if packages[dir] == nil {
			packages[dir] = &pack{}
		}
		packages[dir].sources++
		packages[dir].commented = packages[dir].commented || file.Doc != nil
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		if !packages[dir].commented {
			t.Errorf("the package in %s (%d files) has no comment", dir, packages[dir].sources)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

// A link in a document leads to a file that exists.
func TestLinksOfDocuments(t *testing.T) {
	for _, name := range files(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, match := range link.FindAllStringSubmatch(read(t, name), -1) {
			target := match[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.FromSlash(path.Join(path.Dir(name), target))); err != nil {
				t.Errorf("%s links to %s: %v", name, target, err)
			}
		}
	}
}

// What a document tells people to type exists: make targets and stages of .ci/run.
func TestDocumentsNameWhatExists(t *testing.T) {
	makefile, stages := read(t, "Makefile"), read(t, ".ci/stages")
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(makefile, -1) {
		if !regexp.MustCompile(`(?m)^` + match[1] + `:.*## \S`).MatchString(makefile) {
			t.Errorf("the make target %s has no help text", match[1])
		}
	}
	for _, name := range files(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		text := read(t, name)
		for _, match := range regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z0-9-]*)").FindAllStringSubmatch(text, -1) {
			if !strings.Contains("\n"+makefile, "\n"+match[1]+":") {
				t.Errorf("%s says make %s, which is no target", name, match[1])
			}
		}
		for _, match := range regexp.MustCompile(`bash \.ci/run ([a-z0-9-]+)`).FindAllStringSubmatch(text, -1) {
			if match[1] != "full" && !strings.Contains("\n"+stages, "\nstage "+match[1]+" ") {
				t.Errorf("%s says bash .ci/run %s, which is no stage", name, match[1])
			}
		}
	}
}

// README.md is for the first ten minutes: it is short, and each of its commands is run
// by a stage, word for word. A block says where: "stages" in .ci/stages, a folder in that
// folder's README.md, whose own test runs it, anything else in e2e/readme_test.go.
func TestReadmeCommandsAreRun(t *testing.T) {
	readme, stages, e2e := read(t, "README.md"), read(t, ".ci/stages"), read(t, "e2e/readme_test.go")
	if lines := strings.Count(readme, "\n"); lines > 110 {
		t.Errorf("README.md has %d lines, want 110 at most: the rest belongs to docs/", lines)
	}
	blocks := regexp.MustCompile("(?s)\n([^\n]*)\n```sh\n(.*?\n)```").FindAllStringSubmatch(readme, -1)
	if len(blocks) < 5 {
		t.Errorf("README.md has %d blocks of commands", len(blocks))
	}
	for _, block := range blocks {
		name, commands := strings.TrimSuffix(strings.TrimPrefix(block[1], "<!-- run: "), " -->"), block[2]
		switch {
		case name == block[1]:
			t.Errorf("a block of README.md does not say where it is run:\n%s", commands)
		case name == "stages":
			for command := range strings.Lines(commands) {
				if !strings.Contains(stages, "\n\t"+command) {
					t.Errorf("no stage runs what README.md says: %s", command)
				}
			}
		case strings.HasPrefix(name, "deploy/"):
			if !strings.Contains(read(t, name+"/README.md"), "\n```sh\n"+commands+"```") {
				t.Errorf("%s/README.md does not have these commands of README.md:\n%s", name, commands)
			}
		case !strings.Contains(e2e, `r.block("`+name+`")`):
			t.Errorf("e2e/readme_test.go does not run the block %s of README.md", name)
		}
	}
}

// phrases are what a reader who is no native, at three in the morning, stumbles over, each
// with better words.
var phrases = []struct{ phrase, better string }{
	{`for ever`, "without limit; 0 = no limit"},
	{`by hand`, "manually"},
	{`at hand`, "local; there"},
	{`as good as`, "treated as"},
	{`whoever`, "a peer that; the person who"},
	{`the own`, "its own"},
	{`calls? a person`, "a human must act"},
	{`mend(s|ed|ing)?`, "fix"},
	{`stays? dark`, "say what does not happen"},
	{`turns? packets`, "check that hairpin NAT works"},
	{`Safer than what|Faster than what|What no agent can know`, "Comparison; Benchmarks; Limits"},
}

// Comments, messages and pages are in plain English: short words in their normal order.
func TestPlainEnglish(t *testing.T) {
	for _, p := range phrases {
		bad := regexp.MustCompile(`(?i)\b(` + p.phrase + `)\b`)
		for _, name := range files(t) {
			if name == "repo_test.go" || strings.HasPrefix(name, ".git/") {
				continue
			}
			switch path.Ext(name) {
			case ".go", ".md", ".yaml", ".yml", ".sh", ".txtar", ".tpl", ".txt", ".service", ".conf", "":
			default:
				continue
			}
			for i, line := range strings.Split(read(t, name), "\n") {
				if found := bad.FindString(line); found != "" {
					t.Errorf("%s:%d says %q; better: %s", name, i+1, found, p.better)
				}
			}
		}
	}
}
