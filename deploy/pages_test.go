package deploy

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// pages are the READMEs of this folder, by the folder's name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*/README.md")
	if err != nil || len(paths) < 6 {
		t.Fatalf("pages %v: %v", paths, err)
	}
	texts := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Dir(path)] = string(text)
	}
	return texts
}

// Every page has the same four parts in the same order, and the last one goes
// by exit status.
func TestPagesHaveFourParts(t *testing.T) {
	heading := regexp.MustCompile(`(?m)^## (.*)$`)
	for name, text := range pages(t) {
		at, refuses := -1, 0
		var found []string
		for _, match := range heading.FindAllStringSubmatchIndex(text, -1) {
			title := text[match[2]:match[3]]
			if strings.HasSuffix(strings.ToLower(title), "when it refuses") {
				title, refuses = "When it refuses", match[1]
			}
			if i := slices.Index([]string{"What you get", "Two commands", "What to change", "When it refuses"}, title); i >= 0 {
				if i < at {
					t.Errorf("%s: %q is not in its place", name, title)
				}
				at = i
				found = append(found, title)
			}
		}
		if len(found) != 4 {
			t.Errorf("%s has only the parts %q", name, found)
			continue
		}
		statuses := regexp.MustCompile(`(?m)^\| status \|`).MatchString(text[refuses:])
		// The chart's statuses are those of the manifests.
		if !statuses && !strings.Contains(text[refuses:], "(../kubernetes/README.md#when-it-refuses)") {
			t.Errorf("%s does not say what to do about an exit status", name)
		}
	}
}

// Blocks of commands have a name, by which the end-to-end tests run them; those
// for Kubernetes are found by the heading above them.
func TestCommandsHaveNames(t *testing.T) {
	fence := regexp.MustCompile("(?m)^(.*)\n```(\\S*)\n(?s:.*?)\n```$")
	name := regexp.MustCompile(`^<!-- run: ([a-z-]+) -->$`)
	for page, text := range pages(t) {
		if page == "kubernetes" || page == "helm" {
			continue
		}
		seen := map[string]bool{}
		for _, match := range fence.FindAllStringSubmatch(text, -1) {
			mark := name.FindStringSubmatch(match[1])
			switch {
			case match[2] != "sh" && mark != nil:
				t.Errorf("%s: %s is not followed by commands", page, mark[0])
			case match[2] != "sh":
			case mark == nil:
				t.Errorf("%s: commands without a name:\n%s", page, match[0])
			case seen[mark[1]]:
				t.Errorf("%s: two blocks are called %s", page, mark[1])
			default:
				seen[mark[1]] = true
			}
		}
		if len(seen) == 0 {
			t.Errorf("%s has no commands", page)
		}
	}
}

// snippets are the YAML documents of a page.
func snippets(t *testing.T, text string) []any {
	t.Helper()
	var documents []any
	for _, match := range regexp.MustCompile("(?s)\n```yaml\n(.*?\n)```").FindAllStringSubmatch(text, -1) {
		decoder := yaml.NewDecoder(strings.NewReader(match[1]))
		for {
			var document any
			err := decoder.Decode(&document)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Errorf("%v:\n%s", err, match[1])
				break
			}
			documents = append(documents, document)
		}
	}
	return documents
}

// What pages show as YAML is YAML, and the files that they name exist.
func TestSnippets(t *testing.T) {
	texts := pages(t)
	for _, path := range []string{"../README.md", "kubernetes/NETWORK.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	file := regexp.MustCompile(`(?:^|[\s"'(])(deploy(?:/[\w.-]*\w)+)`)
	local := regexp.MustCompile(`(?:local: |contents_local: )([\w./-]*\w)`)
	read := 0
	for page, text := range texts {
		read += len(snippets(t, text))
		for _, match := range file.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", match[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
		for _, match := range local.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(page, match[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if read < 8 {
		t.Errorf("only %d snippets found: the search is broken", read)
	}
}

// Every client is told the same three members.
func TestClientsNameTheSameMembers(t *testing.T) {
	text := pages(t)["clients"]
	want := []string{"https://etcd-0.example.org:2379", "https://etcd-1.example.org:2379", "https://etcd-2.example.org:2379"}
	at := func(document any, keys ...string) any {
		for _, key := range keys {
			mapping, ok := document.(map[string]any)
			if !ok {
				return nil
			}
			document = mapping[key]
		}
		return document
	}
	lists := 0
	for _, document := range snippets(t, text) {
		for _, keys := range [][]string{{"etcd", "external", "endpoints"}, {"etcd", "endpoints"}, {"deployment", "etcd", "host"}} {
			list, ok := at(document, keys...).([]any)
			if !ok {
				continue
			}
			lists++
			if len(list) != 3 || list[0] != want[0] || list[1] != want[1] || list[2] != want[2] {
				t.Errorf("%s: %v, want %v", strings.Join(keys, "."), list, want)
			}
		}
	}
	if lists != 3 {
		t.Errorf("%d lists of members in the snippets, want those of kubeadm, Cilium and APISIX", lists)
	}
	bare := strings.ReplaceAll(strings.Join(want, ","), "https://", "")
	for _, line := range []string{"--endpoints " + strings.Join(want, ","), "--datastore-endpoint=" + strings.Join(want, ",") + " ", "`hosts: " + bare + "`"} {
		if !strings.Contains(text, line) {
			t.Errorf("the page does not hold %q", line)
		}
	}
}
