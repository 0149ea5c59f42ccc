//go:build e2e

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// samples are the times of one thing, one a run.
type samples []time.Duration

func (s samples) sorted() samples { return slices.Sorted(slices.Values(s)) }

func (s samples) median() time.Duration {
	all := s.sorted()
	if len(all)%2 == 1 {
		return all[len(all)/2]
	}
	return (all[len(all)/2-1] + all[len(all)/2]) / 2
}

func (s samples) worst() time.Duration { return slices.Max(s) }

func (s samples) String() string {
	return fmt.Sprintf("%s (worst %s)", short(s.median()), short(s.worst()))
}

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// goal is one line of the report.
type goal struct {
	What     string `json:"what"`
	Goal     string `json:"goal"`
	Measured string `json:"measured"`
	Met      bool   `json:"met"`
}

// report is all that was measured in one run.
type report struct {
	Machine string             `json:"machine"`
	Goals   []goal             `json:"goals"`
	Samples map[string]samples `json:"samples"` // nanoseconds

	parts int // benchmarks that ran to their end
}

func (r *report) add(what, want, measured string, met bool) {
	r.Goals = append(r.Goals, goal{what, want, measured, met})
}

func (r *report) keep(name string, s samples) {
	if r.Samples == nil {
		r.Samples = map[string]samples{}
	}
	r.Samples[name] = s
}

// markdown is the report as a table, and the medians behind it.
func (r *report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# What was measured\n\n`make bench` writes this file. %s.\nTimes are medians, worst in parentheses; what is compared was run in turns.\n\n", r.Machine)
	out.WriteString("| what | goal | measured | |\n|---|---|---|---|\n")
	for _, g := range r.Goals {
		met := "met"
		if !g.Met {
			met = "**missed**"
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", g.What, g.Goal, g.Measured, met)
	}
	out.WriteString("\n| time of | runs | median | worst |\n|---|---|---|---|\n")
	names := make([]string, 0, len(r.Samples))
	for name := range r.Samples {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s := r.Samples[name]
		fmt.Fprintf(&out, "| %s | %d | %s | %s |\n", name, len(s), short(s.median()), short(s.worst()))
	}
	return out.String()
}

// write keeps the report beside the benchmark.
func (r *report) write() error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile("results.json", append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile("RESULTS.md", []byte(r.markdown()), 0o644)
}

// machine says what the numbers were taken on.
func machine() string {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		kernel = []byte("unknown")
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("unknown ")
	}
	before, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%d CPUs (%s, load %s at the start), %s kernel %s, %s, %s", runtime.NumCPU(), runtime.GOARCH, before, runtime.GOOS,
		strings.TrimSpace(string(kernel)), runtime.Version(), time.Now().UTC().Format(time.DateOnly))
}
