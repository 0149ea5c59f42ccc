//go:build kubernetes

package kubernetes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page is a README whose commands are run word for word, and each of them.
type page struct {
	path   string
	blocks map[string][]string
	used   map[string]bool
}

var (
	heading = regexp.MustCompile(`^#+ (.*)$`)
	fence   = regexp.MustCompile("^```(.*)$")
)

// read splits a README into its shell blocks, by the heading above them.
func read(t *testing.T, path string) *page {
	t.Helper()
	_, source := work(t)
	data, err := os.ReadFile(filepath.Join(source, path))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{path: path, blocks: map[string][]string{}, used: map[string]bool{}}
	title, block, inside := "", []string(nil), ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		switch match := fence.FindStringSubmatch(line); {
		case match != nil && inside == "":
			inside, block = match[1]+" ", nil
		case match != nil:
			if inside == "sh " {
				p.blocks[title] = append(p.blocks[title], strings.Join(block, "\n"))
			}
			inside = ""
		case inside != "":
			block = append(block, line)
		case heading.MatchString(line):
			title = heading.FindStringSubmatch(line)[1]
		}
	}
	return p
}

// run runs the n-th block under a heading and returns what it printed.
func (p *page) run(t *testing.T, title string, n int) string {
	t.Helper()
	if n >= len(p.blocks[title]) {
		t.Fatalf("%s: no block %d of commands under %q", p.path, n, title)
	}
	p.used[title+string(rune('0'+n))] = true
	out, err := sh(t, p.blocks[title][n])
	if err != nil {
		t.Fatalf("%s, %q: %v", p.path, title, err)
	}
	return out
}

// elsewhere says that another test runs a block.
func (p *page) elsewhere(title string, n int) { p.used[title+string(rune('0'+n))] = true }

// complete fails for blocks that no test has run.
func (p *page) complete(t *testing.T) {
	t.Helper()
	for title, blocks := range p.blocks {
		for n, block := range blocks {
			if !p.used[title+string(rune('0'+n))] {
				t.Errorf("%s: nobody ran the commands under %q:\n%s", p.path, title, block)
			}
		}
	}
}
