package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestImageHasEverySource holds .dockerignore against what the program is built
// of: a folder that is left out there fails the build of the image, and only it.
func TestImageHasEverySource(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}", "../cmd/etcdinit").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := os.ReadFile("../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	kept := strings.Fields(string(ignored))
	var folders []string
	for dir := range strings.FieldsSeq(string(out)) {
		below, err := filepath.Rel(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		top, _, _ := strings.Cut(filepath.ToSlash(below), "/")
		folders = append(folders, top)
	}
	slices.Sort(folders)
	folders = slices.Compact(folders)
	if len(folders) < 3 {
		t.Fatalf("the program is built of %v, want at least cmd, discovery and seed", folders)
	}
	for _, folder := range folders {
		if !slices.Contains(kept, "!"+folder) {
			t.Errorf(".dockerignore leaves out %s, which cmd/etcdinit is built of", folder)
		}
	}
}
