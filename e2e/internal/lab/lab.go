//go:build e2e

// Package lab gives an end-to-end test hosts of its own: each in a network
// namespace with its own addresses, its own resolv.conf and its own disk, on a
// bridge that nothing else of the machine is connected to.
//
// A test reads like the story it tells:
//
//	l := lab.New(t)                         // skips, and says why, where it cannot run
//	dns, hosts := l.Host("dns"), l.Hosts("m1", "m2", "m3")
//	zone := lab.Records(hosts)              // SRV, A and AAAA of the hosts in example.org
//	l.CoreDNS(dns, zone)                    // or l.Dnsmasq, l.Bind, l.Script
//	l.UseDNS(hosts, dns)                    // resolv.conf of each host
//	for _, h := range hosts {
//		h.Write("etcd.yaml", config)        // one text for all: each host sees it as /srv/etcd.yaml
//	}
//	l.Each(hosts, func(h *lab.Host) {       // all at once
//		h.MustRun(etcdinit, "init", "--config-file", "etcd.yaml", …)
//		h.Etcd("3.6", "--config-file", "run/etcd.yaml")
//	})
//	l.Healthy(hosts...)                     // waits for the condition, never for a time
//
// # Hosts
//
// Host and Hosts add hosts at any time (a late third member is a Host made
// late). The n-th has 192.0.2.(10+n) and 2001:db8::(10+n); SetAddrs moves it to
// others. Its directory (Host.Dir) is seen by its own processes as
// Lab.Home, "/srv" wherever possible, and is their working directory: a
// configuration file can be the same, byte for byte, on every host. Wipe loses
// the disk, or one directory of it; Tree is a hash of names, contents, modes and modification times.
//
// Start runs a process, Run waits for one and returns its exit status and
// output, MustRun also insists on status 0. Setenv holds for all later
// processes of the host; they get nothing else of the test's environment but
// PATH and HOME. Proc.Kill is kill -9, Proc.Stop is SIGTERM and waiting,
// Proc.Signal anything else, Proc.WaitLog waits for a text of its output.
//
// Drop throws away what comes from other hosts (one way: they still hear this
// host); Heal ends it; Unplug and Plug take the cable out. Dial, HTTP and
// Listen use the host's network from within the test.
//
// # DNS
//
// CoreDNS, Dnsmasq and Bind serve a Zone on a host. Script serves what a Go
// function answers, and counts: records that appear one by one, truncation,
// SERVFAIL, another answer for each host that asks (Query.From). Resolv and
// UseDNS write resolv.conf; a nameserver that is dead is an address where
// nobody listens, or Unplug.
//
// # etcd
//
// Etcd starts a server of a minor ("3.4" … "3.7"), Etcdctl runs etcdctl;
// Healthy, SameHash, Members look at a running cluster. Endpoint says where a
// host serves clients. CA issues certificates, PKI writes them into a host.
//
// Nothing outlives the test: namespaces have no names, processes die with the
// test's own, and files are in the test's TempDir. When a test fails the ends of all
// logs are printed.
package lab

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Lab is one bridge and the hosts on it.
type Lab struct {
	// Home is where each host's processes see that host's own directory.
	Home string

	t     testing.TB
	ctx   context.Context //nolint:containedctx // the life of the test that owns the lab
	dir   string
	hub   *namespace
	tools tools

	mu    sync.Mutex
	hosts []*Host
	procs []*Proc
	ca    *CA
}

// New makes a lab that lives as long as the test. It skips the test where
// hosts cannot be made; with ETCDINIT_E2E=required it fails it instead.
func New(tb testing.TB) *Lab {
	tb.Helper()
	found, err := findTools()
	if err != nil {
		skip(tb, "%v", err)
	}
	hub, err := newNamespace("hub", nil)
	if err != nil {
		skip(tb, "hosts in network namespaces: %v", err)
	}
	l := &Lab{t: tb, ctx: tb.Context(), dir: tb.TempDir(), hub: hub, tools: found, Home: home(found.dirs()...)}
	tb.Cleanup(func() {
		l.printLogs()
		for _, h := range l.allHosts() {
			h.ns.close()
		}
		hub.close()
	})
	l.ip(hub, "link add br0 type bridge", "link set br0 up", "link set lo up")
	return l
}

// Check says why no lab can be made here, or nil.
func Check() error {
	if _, err := findTools(); err != nil {
		return err
	}
	ns, err := newNamespace("check", nil)
	if err != nil {
		return fmt.Errorf("hosts in network namespaces: %w", err)
	}
	ns.close()
	return nil
}

// Require skips the test where one of the named tools is absent: "etcd-3.4",
// "coredns", "dnsmasq", "named", "iptables".
func (l *Lab) Require(names ...string) {
	l.t.Helper()
	for _, name := range names {
		if _, err := l.tools.path(name); err != nil {
			skip(l.t, "%v", err)
		}
	}
}

func skip(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("ETCDINIT_E2E") == "required" {
		tb.Fatalf("ETCDINIT_E2E=required, but "+format, args...)
	}
	tb.Skipf("skipped: "+format, args...)
}

// home is a directory that exists everywhere and hides none of dirs when a
// host's own directory is mounted on it.
func home(dirs ...string) string {
	for _, candidate := range []string{"/srv", "/mnt", "/media"} {
		info, err := os.Stat(candidate)
		hides := func(dir string) bool { return strings.HasPrefix(dir+"/", candidate+"/") }
		if err == nil && info.IsDir() && !slices.ContainsFunc(dirs, hides) {
			return candidate
		}
	}
	return "/opt"
}

// Hosts makes a host for each name.
func (l *Lab) Hosts(names ...string) []*Host {
	l.t.Helper()
	hosts := make([]*Host, 0, len(names))
	for _, name := range names {
		hosts = append(hosts, l.Host(name))
	}
	return hosts
}

// Host makes a host with the next pair of addresses.
func (l *Lab) Host(name string) *Host {
	l.t.Helper()
	n := len(l.allHosts()) + 1
	return l.HostAt(name, netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + n)}),
		netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", 10+n)))
}

// HostAt makes a host with exactly these addresses.
func (l *Lab) HostAt(name string, addrs ...netip.Addr) *Host {
	l.t.Helper()
	h := &Host{Name: name, Dir: filepath.Join(l.dir, name, "home"), lab: l, etc: filepath.Join(l.dir, name, "etc"), env: map[string]string{}}
	for _, dir := range []string{h.Dir, h.etc, filepath.Join(l.dir, name, "log")} {
		l.must(os.MkdirAll(dir, 0o755))
	}
	l.must(os.WriteFile(filepath.Join(h.etc, "resolv.conf"), nil, 0o644))
	l.must(os.WriteFile(filepath.Join(h.etc, "hosts"), []byte("127.0.0.1 localhost\n"), 0o644))
	ns, err := newNamespace(name, map[string]string{
		"/etc/resolv.conf": filepath.Join(h.etc, "resolv.conf"),
		"/etc/hosts":       filepath.Join(h.etc, "hosts"),
		l.Home:             h.Dir,
	})
	if err != nil {
		l.t.Fatalf("lab: host %s: %v", name, err)
	}
	h.ns = ns
	l.mu.Lock()
	l.hosts = append(l.hosts, h)
	port := fmt.Sprintf("p%d", len(l.hosts))
	l.mu.Unlock()
	l.ip(l.hub, fmt.Sprintf("link add %s type veth peer name eth0 netns %s", port, ns.path()),
		fmt.Sprintf("link set %s master br0 up", port))
	l.ip(ns, "link set lo up", "link set eth0 up")
	h.port = port
	h.SetAddrs(addrs...)
	return h
}

// Each runs f for all hosts at once and returns when all are through.
func (l *Lab) Each(hosts []*Host, f func(h *Host)) {
	l.t.Helper()
	var wg sync.WaitGroup
	for _, h := range hosts {
		wg.Go(func() { f(h) })
	}
	wg.Wait()
	if l.t.Failed() {
		l.t.FailNow()
	}
}

// Eventually asks again until f returns nil, and fails the test with f's last
// error when that takes longer than limit.
func (l *Lab) Eventually(what string, limit time.Duration, f func() error) {
	l.t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			l.t.Fatalf("%s: not within %v: %v", what, limit, err)
		case <-l.ctx.Done():
			l.t.Fatalf("%s: the test ended: %v", what, err)
		}
	}
}

// ip runs commands of ip(8) in a namespace.
func (l *Lab) ip(ns *namespace, commands ...string) {
	l.t.Helper()
	cmd := ns.command(l.ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := ns.output(cmd); err != nil {
		l.t.Fatalf("lab: ip %s: %v: %s", strings.Join(commands, "; "), err, strings.TrimSpace(out))
	}
}

func (l *Lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("lab: %v", err)
	}
}

func (l *Lab) allHosts() []*Host {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*Host(nil), l.hosts...)
}

// printLogs prints the end of every process's output when the test failed.
func (l *Lab) printLogs() {
	if !l.t.Failed() {
		return
	}
	l.mu.Lock()
	procs := append([]*Proc(nil), l.procs...)
	l.mu.Unlock()
	for _, p := range procs {
		l.t.Logf("--- %s: %s\n%s", p.host.Name, p.line, lastLines(p.Log(), 40))
	}
}

func lastLines(text string, n int) string {
	var lines []string
	for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
		lines = append(lines, scanner.Text())
	}
	if len(lines) > n {
		lines = append([]string{fmt.Sprintf("(%d lines more)", len(lines)-n)}, lines[len(lines)-n:]...)
	}
	return strings.Join(lines, "\n")
}
