package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestPluginsReadme walks the path of a new user: it does what
// plugins/README.md says, word for word, in an empty directory.
func TestPluginsReadme(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the document's plugin is a shell script")
	}
	text, err := os.ReadFile("../../plugins/README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, m := range regexp.MustCompile("(?s)\n```sh (run|file=(\\w+))\n(.*?\n)```").FindAllStringSubmatch(string(text), -1) {
		if m[1] == "run" {
			script.WriteString(m[3])
			continue
		}
		if err = os.WriteFile(filepath.Join(dir, m[2]), []byte(m[3]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script.String())
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script.String(), out)
	}
	for _, want := range []string{
		"members  1.0", // plugins
		`"peers":[{"name":"etcd-a","host":"192.0.2.10"},`, // plugins call
		"3 peers: 192.0.2.10 192.0.2.11 192.0.2.12",       // plugins test
		"http://192.0.2.12:2380",                          // discover
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
