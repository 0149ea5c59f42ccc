//go:build e2e

// Package bench measures etcdinit as it is released against what it could be
// at best, and against how clusters are started otherwise. It asserts nothing:
// RESULTS.md says which goals were met and which were missed.
//
// ETCDINIT_BENCH_RUNS is the number of interleaved runs of each comparison (10).
package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

var (
	etcdinit, floor, peak string
	results               report
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if lab.Check() != nil {
		return m.Run() // every benchmark skips, and says why
	}
	dir, err := os.MkdirTemp("", "etcdinit-bench-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }() //nolint:errcheck // a temporary directory
		etcdinit, err = lab.Build(context.Background(), dir, "./cmd/etcdinit")
	}
	if err == nil {
		peak, err = lab.Build(context.Background(), dir, "./e2e/bench/peak", "-tags", "e2e")
	}
	if err == nil {
		floor, err = lab.Build(context.Background(), dir, "./e2e/bench/floor", "-tags", "e2e")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	results.Machine = machine()
	status := m.Run()
	if status == 0 && len(results.Goals) > 0 {
		fmt.Println(results.markdown())
		if results.parts < 2 {
			fmt.Println("RESULTS.md is left as it is: not all benchmarks were run.")
			return status
		}
		if err := results.write(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return status
}

// runs is how often each variant of a comparison is run.
func runs(b *testing.B) int {
	b.Helper()
	text := os.Getenv("ETCDINIT_BENCH_RUNS")
	if text == "" {
		return 10
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("ETCDINIT_BENCH_RUNS=%s: not a number of runs", text)
	}
	return n
}

// config is the static configuration of every host.
func config(l *lab.Lab) string {
	return fmt.Sprintf("data-dir: %s/data\nlisten-peer-urls: http://[::]:2380\nlisten-client-urls: http://[::]:2379\n"+
		"initial-cluster-token: bench\ndiscovery-srv: example.org\n", l.Home)
}

// initArgs are init's arguments on every host; quorum is "all", the default,
// or "none": seed without asking the peers.
func initArgs(config string, size int, quorum string) []string {
	return []string{
		"init", "--config-file", config, "--size", strconv.Itoa(size), "--bootstrap-quorum", quorum,
		"--config-out", "run.yaml", "--timeout", "1m",
	}
}

// three makes a lab of three hosts and a DNS server, and returns the first.
func three(b *testing.B) (l *lab.Lab, h *lab.Host, script *lab.Script) {
	b.Helper()
	l = lab.New(b)
	ns, hosts := l.Host("dns"), l.Hosts("m1", "m2", "m3")
	script = l.Script(ns, lab.Records(hosts).Answer)
	l.UseDNS(hosts, ns)
	hosts[0].Write(usual, config(l))
	return l, hosts[0], script
}

// BenchmarkInit measures one run of init: on an empty directory against a
// program that only makes the same file-system calls and against etcdutl
// snapshot restore, then on the directory that it made.
func BenchmarkInit(b *testing.B) {
	l, h, script := three(b)
	l.Require("strace", "etcd-3.7/etcdutl")
	n := 3 * runs(b)
	replay, syncs := traceInit(b, l, h)
	h.Write("floor.script", replay)
	h.Write("floor.data/keep", "") // as many directories as init finds
	exchanges(b, h, script)
	snapshot(b, l, h)

	var first, least, restore, again samples
	timed := func(into *samples, program string, args ...string) {
		*into = append(*into, h.WantStatus(0, program, args...).Took)
	}
	for range n {
		h.Wipe("data", "floor.data", "restored")
		h.MustRun("mkdir", "data")
		timed(&least, floor, "floor.script")
		h.Wipe("data")
		h.MustRun("mkdir", "data")
		timed(&first, etcdinit, initArgs(usual, 3, "none")...)
		timed(&again, etcdinit, initArgs(usual, 3, "all")...)
		timed(&restore, l.Tool("etcd-3.7/etcdutl"), "snapshot", "restore", "snapshot.db", "--data-dir", "restored", "--name", "m1",
			"--initial-cluster", "m1=http://192.0.2.12:2380", "--initial-advertise-peer-urls", "http://192.0.2.12:2380")
	}
	results.keep("init, first seed", first)
	results.keep("floor: init's file-system calls alone", least)
	results.keep("init, seeded directory", again)
	results.keep("etcdutl snapshot restore", restore)
	limit := least.median()*3/2 + 20*time.Millisecond
	results.add("first seed, against its own file-system calls", "≤ 1.5 × floor + 20 ms = "+short(limit),
		fmt.Sprintf("%v; floor %v with the same %d syncs", first, least, syncs), first.median() <= limit)
	results.add("first seed, against `etcdutl snapshot restore` of an empty snapshot", "≤ 0.5 ×",
		fmt.Sprintf("%.2f × of %v", ratio(first, restore), restore), ratio(first, restore) <= 0.5)
	results.add("init on a seeded directory, DNS answering, peers silent", "≤ 30 ms", again.String(), again.median() <= 30*time.Millisecond)

	h.Wipe("data")
	seeding, keeping := memory(b, h), memory(b, h)
	bigDirectory(b, h, n)
	big := memory(b, h)
	plugin(b, l, h, n)
	most := max(seeding, keeping, big)
	results.add("peak resident memory of init, one run each", "≤ 32 MB",
		fmt.Sprintf("%.1f MB for a first seed, %.1f MB on a seeded directory, %.1f MB on one of 2 GB", float64(seeding)/1e6, float64(keeping)/1e6, float64(big)/1e6), most <= 32e6)
	info, err := os.Stat(etcdinit)
	if err != nil {
		b.Fatal(err)
	}
	results.add("static stripped binary", "≤ 18 MB", fmt.Sprintf("%.1f MB", float64(info.Size())/1e6), info.Size() <= 18e6)
	results.parts++
	b.ReportMetric(first.median().Seconds()*1e3, "ms/first")
	b.ReportMetric(again.median().Seconds()*1e3, "ms/again")
}

func ratio(a, b samples) float64 { return float64(a.median()) / float64(b.median()) }

// traceInit runs init once under strace, and returns what it asked of the
// file system below the data directory and how many syncs were among it.
func traceInit(b *testing.B, l *lab.Lab, h *lab.Host) (calls string, syncs int) {
	b.Helper()
	h.Wipe("data")
	h.MustRun("mkdir", "data")
	h.MustRun(l.Tool("strace"), append([]string{"-f", "-y", "-s", "0", "-o", "trace", "-e", traced, etcdinit}, initArgs(usual, 3, "none")...)...)
	calls, syncs = script(b, h.Read("trace"), l.Home+"/data")
	if syncs == 0 || !strings.Contains(calls, "rename\t") {
		b.Fatalf("the trace of init shows no sync or no rename:\n%s", calls)
	}
	return calls, syncs
}

// exchanges counts what one first run asks of DNS.
func exchanges(b *testing.B, h *lab.Host, script *lab.Script) {
	b.Helper()
	h.Wipe("data")
	script.Forget()
	h.MustRun(etcdinit, initArgs(usual, 3, "none")...)
	var server, other int
	var asked []string
	for _, q := range script.Asked() {
		asked = append(asked, dns.TypeToString[q.Type]+" "+q.Name)
		if q.Type == dns.TypeSRV && strings.HasPrefix(q.Name, "_etcd-server") {
			server++
		} else if q.Type != dns.TypeSRV {
			other++
		}
	}
	results.add("DNS exchanges for the peer set, additional section complete", "1, and none for addresses",
		fmt.Sprintf("%d SRV, %d for addresses; in all: %s", server, other, strings.Join(asked, ", ")), server == 1 && other == 0)
}

// snapshot saves the snapshot of an empty server as snapshot.db.
func snapshot(b *testing.B, l *lab.Lab, h *lab.Host) {
	b.Helper()
	p := h.Etcd("3.7", "--data-dir", "source")
	l.Eventually("a snapshot", 20*time.Second, func() error {
		result := h.Run(l.Tool("etcd-3.7/etcdctl"), "--endpoints", "http://127.0.0.1:2379", "snapshot", "save", "snapshot.db")
		if result.Status != 0 {
			return fmt.Errorf("status %d: %s", result.Status, result.Stderr)
		}
		return nil
	})
	p.Kill()
}

// plugin measures discover with an exec plugin, a static Go binary that is run
// twice (info, discover), against the source static.
func plugin(b *testing.B, l *lab.Lab, h *lab.Host, n int) {
	b.Helper()
	h.MustRun("mkdir", "-p", "plugins")
	_, err := lab.Build(b.Context(), h.Path("plugins"), "./plugins/hosts")
	must(b, err)
	own := h.Addr4().String()
	h.Write("hosts", own+" etcd-1\n192.0.2.201 etcd-2\n192.0.2.202 etcd-3\n")
	var extern, fixed samples
	for range n {
		extern = append(extern, h.WantStatus(0, etcdinit, "discover", "--size", "3", "--plugin-dir", l.Home+"/plugins", "--discovery", "exec:hosts?file="+l.Home+"/hosts").Took)
		fixed = append(fixed, h.WantStatus(0, etcdinit, "discover", "--size", "3",
			"--discovery", "static:?peer=http://"+own+":2380&peer=http://192.0.2.201:2380&peer=http://192.0.2.202:2380").Took)
	}
	results.keep("discover, exec plugin", extern)
	results.keep("discover, static", fixed)
	added := extern.median() - fixed.median()
	results.add("what an exec plugin adds to `discover`, against `static`", "≤ 15 ms",
		fmt.Sprintf("%s: %v, %.2f × of %v", short(added), extern, ratio(extern, fixed), fixed), added <= 15*time.Millisecond)
}

// memory is the most that one run of init had resident, in bytes.
func memory(b *testing.B, h *lab.Host) int64 {
	b.Helper()
	text := h.MustRun(peak, append([]string{etcdinit}, initArgs(usual, 3, "none")...)...)
	bytes, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	must(b, err)
	return bytes
}

// bigDirectory measures init on a 2 GB database with five WAL segments, which
// it leaves there.
func bigDirectory(b *testing.B, h *lab.Host, n int) {
	b.Helper()
	h.Wipe("data")
	h.MustRun(etcdinit, initArgs(usual, 3, "none")...)
	grow(b, h.Path("data"))
	segments, err := filepath.Glob(h.Path("data/member/wal/*.wal"))
	if err != nil || len(segments) < 5 {
		b.Fatalf("%d WAL segments (%v)", len(segments), err)
	}
	info, err := h.Stat("data/member/snap/db")
	if err != nil {
		b.Fatal(err)
	}
	var again samples
	for range n {
		again = append(again, h.WantStatus(0, etcdinit, initArgs(usual, 3, "none")...).Took)
	}
	results.keep("init, seeded directory of 2 GB", again)
	results.add(fmt.Sprintf("init on a db of %.1f GB and %d WAL segments", float64(info.Size())/1e9, len(segments)), "≤ 50 ms",
		again.String(), again.median() <= 50*time.Millisecond)
}
