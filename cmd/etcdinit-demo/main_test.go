package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// freePort is a port that was free on every one of the members' addresses.
func freePort(t *testing.T, members int) string {
	t.Helper()
	for range 20 {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port //nolint:errcheck // a TCP listener has a TCP address
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		c := &cluster{peerPort: port, clientPort: port}
		for i := range members {
			c.members = append(c.members, newMember(i+1, t.TempDir()))
		}
		if c.checkAddresses() == nil {
			return strconv.Itoa(port)
		}
	}
	t.Fatal("no port is free on all loopback addresses")
	return ""
}

// TestDemo boots real clusters from records to a written key.
func TestDemo(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("macOS has one loopback address unless aliases are added")
	}
	for _, members := range []int{1, 3} {
		t.Run(strconv.Itoa(members), func(t *testing.T) {
			var out strings.Builder
			args := []string{"--members", strconv.Itoa(members), "--peer-port", freePort(t, members), "--client-port", freePort(t, members)}
			if err := run(t.Context(), args, &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			for _, want := range []string{
				"discovery-srv: demo.example",
				`"all at once" written through etcd-1, read through etcd-` + strconv.Itoa(members),
				"http://etcd-" + strconv.Itoa(members) + ".demo.example:",
				"From nothing to " + strconv.Itoa(members) + " ready member",
				"etcd starts, elects, is ready",
			} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			if members == 3 {
				inReadme(t, out.String())
			}
			// Once an agent, and again only where one waits for more than a second.
			var asked int
			_, text, _ := strings.Cut(out.String(), "The agents asked DNS ")
			if _, err := fmt.Sscan(text, &asked); err != nil || asked < members || asked > 2*members {
				t.Errorf("%d questions for the members, %v in\n%s", asked, err, out.String())
			}
		})
	}
}

// TestStories: a lost disk is refused and replaced, a member joins, and a snapshot
// brings the keys back, on the same members.
func TestStories(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("macOS has one loopback address unless aliases are added")
	}
	if testing.Short() {
		t.Skip("etcd changes no members in a cluster's first five seconds")
	}
	var out strings.Builder
	err := run(t.Context(), []string{"--lose-disk", "--grow", "--restore", "--peer-port", freePort(t, 4), "--client-port", freePort(t, 4)}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	rest := out.String()
	for _, want := range []string{
		"=== A disk is lost: etcd-2", "the data of etcd-2 are gone", "  1. until etcdctl", "Exit status 42, and nothing was written.",
		"--if-running=replace", "votes", "=== The cluster grows: etcd-4", "votes", "=== Every disk is lost",
		`"all at once" restored from the snapshot, read through etcd-4`,
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("no %q, in its place, in\n%s", want, out.String())
		}
		rest = after
	}
}

// inReadme: what README.md shows of the demo is what it prints, IDs and ports aside.
func inReadme(t *testing.T, out string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	shape := func(s string) string {
		return regexp.MustCompile(`\b[0-9a-f]{10,16}\b *|:\d+`).ReplaceAllString(s, "#")
	}
	_, shown, ok := strings.Cut(string(text), "\n```\nCluster ")
	shown, _, _ = strings.Cut("Cluster "+shown, "```")
	if lines := strings.Count(shown, "\n"); !ok || lines != 5 {
		t.Errorf("README.md shows %d lines of the demo, want 5", lines)
	}
	for line := range strings.Lines(shown) {
		if !strings.Contains(shape(out), shape(line)) {
			t.Errorf("README.md shows %q, which the demo does not print:\n%s", line, out)
		}
	}
}

func TestDemoPortTaken(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := l.Close(); cerr != nil {
			t.Error(cerr)
		}
	})
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port) //nolint:errcheck // a TCP listener has a TCP address
	err = run(t.Context(), []string{"--members", "1", "--client-port", port}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "port "+port+" of 127.0.0.1 is taken") {
		t.Errorf("got %v", err)
	}
}
