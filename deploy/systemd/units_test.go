// Package systemd_test holds the units against each other and against the page about them.
package systemd_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func lines(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(data), "\n")
}

// All forms are hardened alike.
func TestHardenedAlike(t *testing.T) {
	const opening = "# Nothing here needs a privilege, and only the data directory is written to."
	const reading = "# It reads the configuration and the data directory, and writes nothing."
	var first []string
	for _, name := range []string{"debian/etcdinit.conf", "config-file/etcdinit.conf", "oneshot/etcdinit.service", "exec/etcd.service", "promote/etcdinit-promote.service"} {
		all := lines(t, name)
		from := slices.IndexFunc(all, func(line string) bool { return line == opening || line == reading })
		if from < 0 {
			t.Fatalf("%s is not hardened", name)
		}
		rest := all[from+1:]
		if to := slices.Index(rest, ""); to > 0 {
			rest = rest[:to]
		}
		rest = slices.DeleteFunc(slices.Clone(rest), func(line string) bool {
			return strings.HasPrefix(line, "ReadWritePaths=") || strings.HasPrefix(line, "#")
		})
		if first == nil {
			first = rest
		}
		if len(rest) < 20 || !slices.Equal(rest, first) {
			t.Errorf("%s is hardened another way:\n%s", name, strings.Join(rest, "\n"))
		}
	}
}

// A status that needs a person is not tried again, where systemd can tell.
func TestStatusesForAPerson(t *testing.T) {
	if !slices.Contains(lines(t, "promote/etcdinit-promote.service"), "RestartPreventExitStatus=20 42 43 44 45") {
		t.Error("the promotion tries again what needs a person")
	}
	for _, name := range []string{"oneshot/etcdinit.service", "exec/etcd.service"} {
		if !slices.Contains(lines(t, name), "RestartPreventExitStatus=20 40 41 42 43 44 45") {
			t.Errorf("%s tries again what needs a person", name)
		}
	}
}

// The page has a line for each exit status of a refusal.
func TestReadmeKnowsEveryStatus(t *testing.T) {
	page := strings.Join(lines(t, "README.md"), "\n")
	for status := range strings.FieldsSeq("20 30 31 32 33 34 40 41 42 43 44 143") {
		if !strings.Contains(page, "\n| "+status+" |") {
			t.Errorf("README.md does not say what to do about %s", status)
		}
	}
}
