//go:build unix

package execplugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/static"
)

// BenchmarkDiscover compares a plugin, a static Go binary, with the source
// static: in one run, interleaved. Each round opens the source anew, so that
// the plugin runs twice: info and discover. Goal: at most 15 ms added.
func BenchmarkDiscover(b *testing.B) {
	dir := b.TempDir()
	build := exec.CommandContext(b.Context(), "go", "build", "-o", filepath.Join(dir, "hosts"), "../../plugins/hosts")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("192.0.2.10 etcd-a\n192.0.2.11 etcd-b\n192.0.2.12 etcd-c\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	registry := discovery.Registry{"exec": New, "static": static.New}
	env := discovery.Env{PluginDirs: []string{dir}, Size: 3}
	once := func(source string) time.Duration {
		start := time.Now()
		p, err := registry.Open(source, env)
		if err != nil {
			b.Fatal(err)
		}
		if peers, err := p.Discover(b.Context()); err != nil || len(peers) != 3 {
			b.Fatal(peers, err)
		}
		return time.Since(start)
	}
	var plugin, fixed []time.Duration
	for b.Loop() {
		plugin = append(plugin, once("exec:hosts?file="+file))
		fixed = append(fixed, once("static:?peer=http://192.0.2.10:2380&peer=http://192.0.2.11:2380&peer=http://192.0.2.12:2380"))
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds()) / 1000
	}
	p, s := median(plugin), median(fixed)
	b.ReportMetric(p, "exec-ms")
	b.ReportMetric(s, "static-ms")
	b.ReportMetric(p-s, "added-ms")
	b.ReportMetric(p/max(s, 0.001), "ratio")
	b.ReportMetric(0, "ns/op")
}
