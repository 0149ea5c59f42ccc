package discovery_test

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/discovery"
)

// TestReadmes: each provider's README has the same sections, and its examples
// are sources that open.
func TestReadmes(t *testing.T) {
	dirs, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, d := range dirs {
		if !d.IsDir() || slices.Contains([]string{"internal", "rendezvous", "testdata"}, d.Name()) {
			continue
		}
		seen = append(seen, d.Name())
		t.Run(d.Name(), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(d.Name(), "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]string{}
			var order []string
			var name string
			for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
				if s, ok := strings.CutPrefix(lines.Text(), "## "); ok {
					name = s
					order = append(order, s)
				}
				sections[name] += lines.Text() + "\n"
			}
			if want := []string{"Name", "Description", "Source", "Examples", "Errors"}; !slices.Equal(order, want) {
				t.Errorf("sections %q, want %q", order, want)
			}
			examples := 0
			_, block, _ := strings.Cut(sections["Examples"], "```\n")
			block, _, _ = strings.Cut(block, "```")
			for source := range strings.Lines(block) {
				examples++
				if _, err := everything().Open(strings.TrimSpace(source), discovery.Env{}); err != nil {
					t.Errorf("example %s: %v", source, err)
				}
			}
			if examples == 0 {
				t.Error("no example")
			}
		})
	}
	if len(seen) < 3 {
		t.Errorf("providers %q", seen)
	}
}
