package app

import (
	"os/exec"
	"strings"
	"testing"
)

// The page has every command and every flag, and groff has nothing to object.
func TestMan(t *testing.T) {
	page := Man("v1.2.3")
	plain := strings.NewReplacer(`\-`, "-", `\&`, "").Replace(page)
	if !strings.HasPrefix(plain, `.TH etcdinit 8 "" "etcdinit v1.2.3"`) {
		t.Errorf("the page opens with %.60q", plain)
	}
	for _, c := range (&app{}).cli().VisibleCommands() {
		if !strings.Contains(plain, ".SS \"etcdinit "+c.Name) {
			t.Errorf("no section for the command %s", c.Name)
		}
		for _, f := range c.VisibleFlags() {
			if name := "--" + f.Names()[0]; name != "--help" && !strings.Contains(plain, "\n.B "+name) {
				t.Errorf("%s: no flag %s", c.Name, name)
			}
		}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "'") || line == "\n" {
			t.Errorf("a line that roff reads as something else: %q", line)
		}
	}
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("man is not here: how the page reads is not tried")
	}
	cmd := exec.CommandContext(t.Context(), "man", "--warnings", "-l", "-")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "MANPAGER=cat", "MANWIDTH=100", "LC_ALL=C.UTF-8"}
	cmd.Stdin = strings.NewReader(page)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.String() != "" {
		t.Errorf("man: %v\n%s", err, &errs)
	}
	if want := "etcdinit init --discovery-srv example.org --size 3 --env-file /run/etcdinit/env"; !strings.Contains(string(out), want) {
		t.Errorf("the page does not show %q", want)
	}
}
