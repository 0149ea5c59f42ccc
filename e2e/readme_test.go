//go:build e2e

package e2e

import (
	"archive/zip"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// readme is the text of README.md, and what this test has run of it.
type readme struct {
	t     *testing.T
	text  string
	known map[string]bool
}

// block is a block of commands by its name.
func (r *readme) block(name string) string {
	r.t.Helper()
	r.known[name] = true
	m := regexp.MustCompile("(?s)\n<!-- run: " + regexp.QuoteMeta(name) + " -->\n```sh\n(.*?\n)```").FindStringSubmatch(r.text)
	if m == nil {
		r.t.Fatalf("README.md has no block %s", name)
	}
	return m[1]
}

// span is the one inline command that begins with these words.
func (r *readme) span(words string) string {
	r.t.Helper()
	m := regexp.MustCompile("`("+regexp.QuoteMeta(words)+"[^`]*)`").FindAllStringSubmatch(r.text, -1)
	if len(m) != 1 {
		r.t.Fatalf("README.md has %d commands that begin with %q", len(m), words)
	}
	return m[0][1]
}

// room gives a host an /etc, a /var/lib, a /run and a /usr/local/bin of its own, as a machine has.
const room = `
mkdir -p machine/etc machine/lib machine/bin machine/run/etcd machine/run/etcdinit
cp -a /etc/. machine/etc/
mount --bind machine/etc /etc
mount --bind machine/lib /var/lib
mount --bind machine/run /run
mount --bind machine/bin /usr/local/bin
cp "$0"/etcd "$0"/etcdctl /usr/local/bin/
mkdir -p /etc/etcd`

// TestReadme follows README.md by the letter on three machines: it installs from
// the archive, writes the one file, starts, checks, loses a disk, adds a machine
// and leaves. The archive comes from this tree; only the host of its URL is replaced.
func TestReadme(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("README.md names the archive for amd64")
	}
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	r := &readme{t: t, text: string(text), known: map[string]bool{"stages": true, "deploy/kubernetes": true}}

	c := &cluster{Lab: lab.New(t), t: t, shape: shape{size: 3, family: "4"}}
	c.Require("coredns", "etcd-3.7/etcd", "etcd-3.7/etcdctl")
	c.dns = c.host("dns")
	for i := range 4 {
		c.hosts = append(c.hosts, c.host(fmt.Sprintf("etcd-%d", i+1)))
	}
	all := c.hosts
	c.hosts = all[:3]
	c.UseDNS(append(all, c.dns), c.dns)
	c.zone = c.records()
	c.CoreDNS(c.dns, c.zone)
	site := releases(t, c)

	config := regexp.MustCompile("(?s)\n```yaml\n(.*?)```").FindStringSubmatch(r.text)[1]
	c.Each(all, func(h *lab.Host) {
		h.MustRun("sh", "-ec", room, filepath.Dir(c.Tool("etcd-3.7/etcd")))
		h.MustRun("sh", "-ec", strings.ReplaceAll(r.block("archive"), "https://github.com", site))
		h.Write("machine/etc/etcd/etcd.yaml", config)
	})
	const get = "etcdctl get --print-value-only greeting"
	start := "exec " + r.block("start") // the shell becomes it, so that a signal reaches it
	running := map[*lab.Host][]*lab.Proc{}
	launch := func(h *lab.Host, line string) {
		running[h] = append(running[h], h.Start("sh", "-ec", line))
	}
	for _, h := range c.hosts {
		launch(h, start)
	}
	healthy := func(n int) {
		t.Helper()
		c.Eventually("the check of README.md", 30*time.Second, func() error {
			if got := all[0].Run("sh", "-ec", r.block("check")); got.Status != 0 || strings.Count(got.Stdout+got.Stderr, "is healthy") != n {
				return errors.New(got.Stdout + got.Stderr)
			}
			return nil
		})
	}
	healthy(3)
	all[0].MustRun("sh", "-ec", "etcdctl put greeting hello")
	if got := all[2].MustRun("sh", "-ec", get); got != "hello\n" {
		t.Fatalf("the third machine reads %q", got)
	}

	// A machine more, by the one line; it votes in the end.
	c.hosts = all
	c.zone = c.records()
	c.UpdateCoreDNS(c.dns, c.zone)
	launch(all[3], "exec "+r.span("etcdinit exec --size 4 --if-running=join"))
	c.Eventually("the fourth machine votes", 60*time.Second, func() error {
		list := all[0].Run("sh", "-ec", "etcdctl member list").Stdout
		if strings.Count(list, ", false\n") != 4 || !strings.Contains(list, "etcd-4") {
			return errors.New(list)
		}
		return nil
	})

	// A disk dies: 42 and four commands.
	running[all[1]][0].Kill()
	all[1].Wipe("machine/lib/etcd")
	lost := all[1].Run("sh", "-ec", strings.Replace(start, "--size 3", "--size 4", 1))
	if lost.Status != 42 || strings.Count(lost.Stderr, `"until `)+strings.Count(lost.Stderr, "until etcdctl") < 2 {
		t.Errorf("a lost disk: status %d\n%s", lost.Status, lost.Stderr)
	}

	// Leave: the file that etcdinit writes is all that stock etcd needs.
	running[all[2]][0].Stop()
	all[2].MustRun("sh", "-ec", strings.Replace(r.span("etcdinit init --config-file"), "--size 3", "--size 4", 1))
	launch(all[2], "exec etcd --config-file /etc/etcd/plain.yaml")
	c.Eventually("etcd without etcdinit", 30*time.Second, func() error {
		if got := all[2].Run("sh", "-ec", get); got.Stdout != "hello\n" {
			return errors.New(got.Stderr)
		}
		return nil
	})

	// Every disk is lost; the snapshot brings the keys back.
	all[0].MustRun("sh", "-ec", "etcdctl snapshot save /var/lib/snapshot.db")
	c.hosts = all[:3]
	c.zone = c.records()
	c.UpdateCoreDNS(c.dns, c.zone)
	c.Eventually("three records", 30*time.Second, func() error {
		if got := c.Lookup(c.dns, "_etcd-server._tcp.example.org.", dns.TypeSRV); strings.Contains(got, "etcd-4") {
			return errors.New(got)
		}
		return nil
	})
	snapshot := all[0].Read("machine/lib/snapshot.db")
	c.Each(all, func(h *lab.Host) {
		for _, p := range running[h] {
			p.Kill()
		}
		h.Wipe("machine/lib/etcd")
		h.Write("machine/lib/snapshot.db", snapshot)
	})
	for _, h := range c.hosts {
		launch(h, "exec "+r.span("etcdinit exec --size 3 --restore-snapshot"))
	}
	healthy(3)
	if got := all[1].MustRun("sh", "-ec", get); got != "hello\n" {
		t.Errorf("after the restore, the second machine reads %q", got)
	}

	for _, m := range regexp.MustCompile(`(?m)^<!-- run: (\S+) -->$`).FindAllStringSubmatch(r.text, -1) {
		if !r.known[m[1]] {
			t.Errorf("nobody runs the block %s of README.md", m[1])
		}
	}
}

// TestHelpExamples runs every example of the help texts, word for word, on three
// machines at once: no example may end in a status but 0.
func TestHelpExamples(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	config := regexp.MustCompile("(?s)\n```yaml\n(.*?)```").FindStringSubmatch(string(text))[1]
	c := &cluster{Lab: lab.New(t), t: t, shape: shape{size: 3, family: "4"}}
	c.dns = c.host("dns")
	c.hosts = c.Hosts("etcd-1", "etcd-2", "etcd-3")
	c.UseDNS(c.hosts, c.dns)
	c.zone = c.records()
	c.CoreDNS(c.dns, c.zone)
	c.Each(c.hosts, func(h *lab.Host) {
		h.MustRun("sh", "-ec", room+"\ncp $1 /usr/local/bin/", filepath.Dir(c.Tool("etcd-3.7/etcd")), etcdinit)
		h.Write("machine/etc/etcd/etcd.yaml", config)
	})
	example := regexp.MustCompile(`(?m)^ {6}((?:etcdinit|etcd) .*)$`)
	for _, command := range [][]string{{"--help"}, {"init", "--help"}, {"exec", "--help"}} {
		examples := example.FindAllStringSubmatch(c.hosts[0].MustRun(etcdinit, command...), -1)
		if len(examples) < 2 {
			t.Errorf("etcdinit %s shows %d examples", strings.Join(command, " "), len(examples))
		}
		for i, m := range examples {
			line := m[1]
			t.Log(line)
			if strings.HasPrefix(line, "etcdinit ") { // an etcd takes what the line before it left
				c.Each(c.hosts, func(h *lab.Host) { h.Wipe("machine/lib/etcd") })
			}
			if strings.HasPrefix(line, "etcdinit init") {
				c.Each(c.hosts, func(h *lab.Host) { h.MustRun("sh", "-ec", line) })
				continue
			}
			if i == 0 && !strings.HasPrefix(line, "etcdinit exec") {
				t.Fatalf("an example begins with %s", line)
			}
			var procs []*lab.Proc
			for _, h := range c.hosts {
				procs = append(procs, h.Start("sh", "-ec", "exec "+line))
			}
			c.Eventually(line, 30*time.Second, func() error {
				got := c.hosts[0].Run("sh", "-ec", "etcdctl endpoint health --cluster")
				if strings.Count(got.Stdout+got.Stderr, "is healthy") != 3 {
					return errors.New(got.Stdout + got.Stderr)
				}
				return nil
			})
			for _, p := range procs {
				p.Kill()
			}
		}
	}
}

// releases serves what a release has, built from this tree, and returns what
// stands in the place of https://github.com.
func releases(t *testing.T, c *cluster) string {
	t.Helper()
	root, dir := "..", t.TempDir()
	at := filepath.Join(dir, "etcdinit", "etcdinit", "releases", "download", "v1.0.0")
	build := exec.CommandContext(t.Context(), "tools/release")
	build.Dir = root
	build.Env = append(os.Environ(), "GO_PLATFORMS=linux/amd64", "VERSION=v1.0.0", "DIST="+at)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("tools/release: %v\n%s", err, out)
	}
	listener := c.dns.Listen(c.dns.Addr4().String() + ":80")
	server := &http.Server{Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }() //nolint:errcheck // ends with Close
	t.Cleanup(func() { _ = server.Close(); <-done })              //nolint:errcheck // the test is over
	return "http://" + c.dns.Addr4().String()
}

// TestGoInstall: the command of README.md, with this tree in the place of what the
// tag names.
func TestGoInstall(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	r := &readme{t: t, text: string(text), known: map[string]bool{}}
	install := r.span("go install ")
	const module, version = "github.com/etcdinit/etcdinit", "v1.0.0"
	proxy, cache, bin := t.TempDir(), t.TempDir(), t.TempDir()
	at := filepath.Join(proxy, module, "@v")
	goMod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(os.MkdirAll(at, 0o755),
		os.WriteFile(filepath.Join(at, "list"), []byte(version+"\n"), 0o644),
		os.WriteFile(filepath.Join(at, version+".info"), []byte(`{"Version":"`+version+`"}`), 0o644),
		os.WriteFile(filepath.Join(at, version+".mod"), goMod, 0o644),
		zipModule(filepath.Join(at, version+".zip"), "..", module+"@"+version+"/")); err != nil {
		t.Fatal(err)
	}
	modules, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", install)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOPROXY=file://"+proxy+",file://"+filepath.Join(strings.TrimSpace(string(modules)), "cache", "download"),
		"GOMODCACHE="+cache, "GONOSUMDB=*", "GOFLAGS=-modcacherw -trimpath", "GOBIN="+bin, "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", install, err, out)
	}
	out, err = exec.CommandContext(t.Context(), filepath.Join(bin, "etcdinit"), "version").Output()
	if err != nil || !strings.Contains(string(out), version) {
		t.Errorf("version: %v\n%s", err, out)
	}
}

// zipModule writes the module below root as a module proxy has it.
func zipModule(name, root, prefix string) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := zip.NewWriter(file)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if base := filepath.Base(path); path != root && (nested == nil || base == ".git" || base == ".cache" || base == "bin" || base == "dist") {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out, err := w.Create(prefix + filepath.ToSlash(rel))
		if err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	})
	return errors.Join(err, w.Close())
}
