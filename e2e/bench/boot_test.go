//go:build e2e

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// field is the hosts that are booted again and again.
type field struct {
	*lab.Lab
	b       *testing.B
	hosts   []*lab.Host
	zone    *lab.Zone
	version string
	procs   []*lab.Proc
}

// BenchmarkBoot measures from nothing to all members healthy: seeded, by stock
// static bootstrap, and by growing member by member.
func BenchmarkBoot(b *testing.B) {
	for _, size := range []int{3, 5} {
		for _, version := range []string{"3.6", "3.7"} {
			b.Run(fmt.Sprintf("%d members, etcd %s", size, version), func(b *testing.B) { compare(b, size, version) })
		}
	}
	results.parts++
}

// The chance in etcd's first election is most of a boot's time: it waits 1 to 10
// heartbeats of 100 ms. What the barrier adds is less than that, so it is
// measured where a heartbeat has 10 ms, and up to the moment that etcd may start.
const (
	usual = "etcd.yaml"
	brisk = "brisk.yaml"

	bootRuns = 2 // for each run of the others, since elections spread the times
)

func compare(b *testing.B, size int, version string) {
	b.Helper()
	f := &field{Lab: lab.New(b), b: b, version: version}
	ns := f.Host("dns")
	for i := range size {
		f.hosts = append(f.hosts, f.Host("m"+strconv.Itoa(i+1)))
	}
	f.zone = lab.Records(f.hosts)
	f.CoreDNS(ns, f.zone)
	f.UseDNS(f.hosts, ns)
	for _, h := range f.hosts {
		h.Write(usual, config(f.Lab))
		h.Write(brisk, config(f.Lab)+"heartbeat-interval: 10\nelection-timeout: 100\n")
	}
	const seeded, unasked, static, serial = "etcdinit", "etcdinit, bootstrap-quorum none", "stock static", "member add --learner and promote"
	const quick, bare = "etcdinit, heartbeat 10 ms", "etcdinit, bootstrap-quorum none, heartbeat 10 ms"
	seededAt, unaskedAt := samples{}, samples{} // when the last member was told that its etcd may start
	variants := map[string]func(){
		seeded:  func() { seededAt = append(seededAt, f.seeded(usual, "all")) },
		unasked: func() { unaskedAt = append(unaskedAt, f.seeded(usual, "none")) },
		quick:   func() { f.seeded(brisk, "all") },
		bare:    func() { f.seeded(brisk, "none") },
		static:  f.static,
		serial:  f.serial,
	}
	order := []string{seeded, static, unasked, quick, bare}
	if version == "3.7" { // serial growth takes its time, and no version is faster
		order = append(order, serial)
	}
	took := map[string]samples{}
	for i := range bootRuns * runs(b) {
		for _, name := range order {
			if name == serial && i%bootRuns != 0 {
				continue
			}
			f.clear()
			start := time.Now()
			variants[name]()
			took[name] = append(took[name], time.Since(start))
		}
		slices.Reverse(order) // nobody always comes after the same one
	}
	what := fmt.Sprintf("nothing → %d healthy members, etcd %s", size, version)
	for name, s := range took {
		results.keep(what+": "+name, s)
	}
	for _, name := range []string{seeded, unasked} {
		against := ratio(took[name], took[static])
		results.add(what+": "+name+", against stock static bootstrap", "≤ 1.0 ×",
			fmt.Sprintf("%.2f ×: %v, stock %v", against, took[name], took[static]), against <= 1)
		if took[serial] != nil {
			want := map[int]float64{3: 0.06, 5: 0.04}[size]
			grown := ratio(took[name], took[serial])
			results.add(what+": "+name+", against growing by `member add --learner` and promote", fmt.Sprintf("≤ %.2f ×", want),
				fmt.Sprintf("%.3f × of %v", grown, took[serial]), grown <= want)
		}
	}
	const until = ": init alone, until the last member's etcd may start"
	results.keep(fmt.Sprintf("nothing → %d members, etcd %s", size, version)+until, seededAt)
	results.keep(fmt.Sprintf("nothing → %d members, etcd %s", size, version)+until+", bootstrap-quorum none", unaskedAt)
	added := func(name string, with, without samples) {
		cost := with.median() - without.median()
		results.add(what+": what the barrier adds"+name, "≤ 80 ms", fmt.Sprintf("%s: %v, none %v", short(cost), with, without), cost <= 80*time.Millisecond)
	}
	added(","+until[1:], seededAt, unaskedAt)
	added(", heartbeat 10 ms", took[quick], took[bare])
	b.ReportMetric(took[seeded].median().Seconds()*1e3, "ms/etcdinit")
	b.ReportMetric(took[static].median().Seconds()*1e3, "ms/stock")
}

// clear ends all servers and empties all disks.
func (f *field) clear() {
	f.b.Helper()
	for _, p := range f.procs {
		p.Kill()
	}
	f.procs = nil
	for _, h := range f.hosts {
		h.Wipe("data", "run.yaml")
	}
}

// seeded is init and etcd on all hosts at once. It returns how long it took
// until the last init was done.
func (f *field) seeded(config, quorum string) time.Duration {
	f.b.Helper()
	procs, inits := make([]*lab.Proc, len(f.hosts)), make(samples, len(f.hosts))
	start := time.Now()
	f.Each(f.hosts, func(h *lab.Host) {
		i := slices.Index(f.hosts, h)
		h.MustRun(etcdinit, initArgs(config, len(f.hosts), quorum)...)
		inits[i] = time.Since(start)
		procs[i] = h.Etcd(f.version, "--config-file", "run.yaml")
	})
	f.procs = procs
	f.Healthy(f.hosts...)
	return inits.worst()
}

// static is stock etcd on all hosts at once, each told the whole list.
func (f *field) static() {
	f.b.Helper()
	for _, h := range f.hosts {
		f.procs = append(f.procs, f.stock(h, "new", f.hosts...))
	}
	f.Healthy(f.hosts...)
}

func (f *field) stock(h *lab.Host, state string, members ...*lab.Host) *lab.Proc {
	f.b.Helper()
	var initial []string
	for _, m := range members {
		initial = append(initial, m.Name+"="+f.peerURL(m))
	}
	return h.Etcd(f.version, "--name", h.Name, "--data-dir", "data", "--initial-cluster-state", state,
		"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-token", "bench",
		"--listen-peer-urls", "http://[::]:2380", "--initial-advertise-peer-urls", f.peerURL(h),
		"--listen-client-urls", "http://[::]:2379", "--advertise-client-urls", "http://"+f.zone.FQDN(h)+":2379")
}

func (f *field) peerURL(h *lab.Host) string { return "http://" + f.zone.FQDN(h) + ":2380" }

// serial starts one member and adds the others one by one: as a learner that
// is promoted as soon as etcd allows it.
func (f *field) serial() {
	f.b.Helper()
	first := f.hosts[0]
	f.procs = append(f.procs, f.stock(first, "new", first))
	f.Healthy(first)
	for i, h := range f.hosts[1:] {
		added := f.until(first, "member", "add", h.Name, "--learner", "--peer-urls", f.peerURL(h), "-w", "json")
		var answer struct {
			Member struct {
				ID uint64 `json:"ID"`
			} `json:"member"`
		}
		must(f.b, json.Unmarshal([]byte(added), &answer))
		f.procs = append(f.procs, f.stock(h, "existing", f.hosts[:i+2]...))
		f.until(first, "member", "promote", strconv.FormatUint(answer.Member.ID, 16))
	}
	f.Healthy(f.hosts...)
}

// until runs etcdctl until it succeeds.
func (f *field) until(h *lab.Host, args ...string) string {
	f.b.Helper()
	var out string
	f.Eventually("etcdctl "+strings.Join(args, " "), time.Minute, func() error {
		result := h.TryEtcdctl(args...)
		if result.Status != 0 {
			return errors.New(strings.TrimSpace(result.Stderr))
		}
		out = result.Stdout
		return nil
	})
	return out
}
