package deploy

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commandLine builds etcdinit and returns, for each command, the flags that
// its help lists, and every variable of any command.
func commandLine(t *testing.T) (flags map[string]map[string]bool, variables map[string]bool) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "etcdinit")
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/etcdinit").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	help := func(arg ...string) string {
		flag := "--help-all" // of those commands that show only the flags that matter
		if arg[0] == "inspect" {
			flag = "--help"
		}
		out, err := exec.Command(bin, append(arg, flag)...).Output()
		if err != nil {
			t.Fatalf("etcdinit %s --help: %v", strings.Join(arg, " "), err)
		}
		return string(out)
	}
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z][a-z0-9-]+)(?:.*?, (-\w)\b)?`)
	variable := regexp.MustCompile(`\$(ETCDINIT_[A-Z_]+)`)
	flags, variables = map[string]map[string]bool{}, map[string]bool{"ETCDINIT_LOG_LEVEL": true, "ETCDINIT_LOG_FORMAT": true}
	for _, command := range []string{"init", "discover", "verify", "exec", "inspect", "withdraw", "promote"} {
		text := help(command)
		flags[command] = map[string]bool{"--log-level": true, "--log-format": true, "--help": true}
		for _, match := range flag.FindAllStringSubmatch(text, -1) {
			flags[command][match[1]] = true
			flags[command][match[2]] = true
		}
		for _, match := range variable.FindAllStringSubmatch(text, -1) {
			variables[match[1]] = true
		}
		if len(flags[command]) < 5 {
			t.Fatalf("no flags found in the help of etcdinit %s:\n%s", command, text)
		}
	}
	return flags, variables
}

// use is a command of etcdinit with flags somewhere in a text.
type use struct{ command, flag string }

var (
	called      = regexp.MustCompile(`\betcdinit((?: +--?[a-z-]+(?:[= ][^ -]\S*)?)*) +(init|exec|discover|verify|inspect|withdraw|promote)\b([^\n]*)`)
	flagOnLine  = regexp.MustCompile(`(?:^|[\s"'\[,])(--?[a-z][a-z0-9-]*)`)
	listed      = regexp.MustCompile(`(?m)^\s*(?:args|command):\s*\n?((?:\s*- [^\n]*\n)+)|(?:args|command|entrypoint): *\[([^\]]*)\]`)
	continued   = regexp.MustCompile(`\\\n\s*`)
	endOfInvoke = regexp.MustCompile("(?:\\s--\\s|&&|\\|\\||[|;`#>]|\\s--$)")
	named       = regexp.MustCompile(`\bETCDINIT_[A-Z][A-Z_]*[A-Z]\b`)
)

// uses finds every command of etcdinit in a text, written on a line of a shell
// or as the argument list of a container.
func uses(text string) []use {
	var found []use
	text = continued.ReplaceAllString(text, " ")
	for _, match := range called.FindAllStringSubmatch(text, -1) {
		rest := match[3]
		if end := endOfInvoke.FindStringIndex(rest); end != nil {
			rest = rest[:end[0]]
		}
		for _, flag := range flagOnLine.FindAllStringSubmatch(match[1]+rest, -1) {
			found = append(found, use{match[2], flag[1]})
		}
	}
	for _, match := range listed.FindAllStringSubmatch(text, -1) {
		var words []string
		for _, item := range strings.FieldsFunc(match[1]+match[2], func(r rune) bool { return r == '\n' || r == ',' }) {
			item = strings.TrimPrefix(strings.TrimSpace(item), "- ")
			words = append(words, strings.Trim(strings.TrimSpace(item), `"'`))
		}
		command := ""
		for _, word := range words {
			switch {
			case word == "--":
				command = ""
			case command == "" && regexp.MustCompile(`^(init|exec|discover|verify|inspect)$`).MatchString(word):
				command = word
			case command != "" && strings.HasPrefix(word, "-"):
				flag, _, _ := strings.Cut(word, "=")
				found = append(found, use{command, flag})
			}
		}
	}
	return found
}

// The alerts are what Prometheus reads, and each fires when it should and not otherwise.
func TestAlertRules(t *testing.T) {
	promtool := tool(t, "promtool", "none")
	for _, args := range [][]string{{"check", "rules", "monitoring/etcdinit.rules.yaml"}, {"test", "rules", "monitoring/etcdinit.rules_test.yaml"}} {
		if out, err := run(promtool, args...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestUsesFindsFlags(t *testing.T) {
	tests := []struct {
		name, text string
		want       []use
	}{
		{"shell", "etcdinit init --size 3 \\\n   --dry-run && etcd --name x\n", []use{{"init", "--size"}, {"init", "--dry-run"}}},
		{"unit", "ExecStart=/usr/bin/etcdinit exec --size=3 -- /usr/bin/etcd --config-file f\n", []use{{"exec", "--size"}}},
		{"list", "        args:\n        - init\n        - --timeout=0\n        - --nonsense\n        env:\n", []use{{"init", "--timeout"}, {"init", "--nonsense"}}},
		{"flow", `    command: ["exec", "--size", "3", "--", "etcd", "--foo"]`, []use{{"exec", "--size"}}},
		{"prose", "`etcdinit inspect -o json` and --other", []use{{"inspect", "-o"}}},
		{"none", "etcd --name a", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := uses(tt.text)
			if len(got) != len(tt.want) {
				t.Fatalf("uses(%q) = %v, want %v", tt.text, got, tt.want)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("uses(%q)[%d] = %v, want %v", tt.text, i, got[i], tt.want[i])
				}
			}
		})
	}
}

// Every flag and every variable that a manifest, a unit, a script or a page
// names exists in the command line.
func TestFlagsAndVariablesExist(t *testing.T) {
	flags, variables := commandLine(t)
	files, checked := 0, 0
	check := func(path string) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(data, 0) >= 0 {
			return
		}
		files++
		for _, u := range uses(string(data)) {
			checked++
			if !flags[u.command][u.flag] {
				t.Errorf("%s: etcdinit %s has no flag %s", path, u.command, u.flag)
			}
		}
		for _, name := range named.FindAllString(string(data), -1) {
			checked++
			if !variables[name] {
				t.Errorf("%s: etcdinit knows no variable %s", path, name)
			}
		}
	}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && filepath.Ext(path) != ".go" {
			check(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md") {
		check(page)
	}
	if checked < 20 {
		t.Errorf("only %d flags and variables found in %d files: the search is broken", checked, files)
	}
}
