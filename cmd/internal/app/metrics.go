package app

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

// metrics is the file that node_exporter's textfile collector reads
// (--metrics-file). It is written when a run starts and when it ends.
type metrics struct {
	path   string // "": not asked for
	start  time.Time
	result *agent.Result // of a run that went well
}

// startMetrics says that a run is on its way.
func (a *app) startMetrics(path string) {
	a.metrics = metrics{path: path, start: time.Now()}
	a.writeMetrics(nil)
}

// endMetrics says how the run ended.
func (a *app) endMetrics(status exit.Status, reason string) {
	a.writeMetrics(&outcome{Status: status, Reason: reason, Result: a.metrics.result})
}

// writeMetrics never ends a run: who only watches must not keep etcd from starting.
func (a *app) writeMetrics(o *outcome) {
	if a.metrics.path == "" {
		return
	}
	if err := agent.WriteOutput(a.metrics.path, a.metrics.encode(readVersions(a.Version, a.Revision), o)); err != nil {
		a.log.Warn("the metrics could not be written (--metrics-file)", zap.Error(err))
	}
}

// encode is the text format of Prometheus. While a run is on its way, o is nil.
func (m metrics) encode(v versions, o *outcome) []byte {
	var buf bytes.Buffer
	gauge := func(name, help string, lines ...string) {
		fmt.Fprintf(&buf, "# HELP etcdinit_%[1]s %[2]s\n# TYPE etcdinit_%[1]s gauge\n", name, help)
		for _, line := range lines {
			fmt.Fprintf(&buf, "etcdinit_%s%s\n", name, line)
		}
	}
	running := 0
	if o == nil {
		running = 1
	}
	gauge("info", "The versions of etcdinit and of the etcd packages that write the seed.",
		fmt.Sprintf("{version=%s,etcd=%s} 1", label(v.Version), label(v.Etcd)))
	gauge("running", "1 from the start of a run to its end.", fmt.Sprintf(" %d", running))
	gauge("start_time_seconds", "When the last run started, in Unix time.", " "+seconds(m.start))
	if o == nil {
		return buf.Bytes()
	}
	gauge("end_time_seconds", "When the last run ended, in Unix time.", " "+seconds(time.Now()))
	gauge("exit_status", "The exit status of the last run: 0 done, 30 to 34 retry, 20 and 40 to 45 a human must act.",
		fmt.Sprintf("{reason=%s} %d", label(o.Reason), o.Status))
	if r := o.Result; r != nil {
		gauge("member", "What the last run made of the data directory, and whose it is.",
			fmt.Sprintf("{action=%s,name=%s,member_id=%s,cluster_id=%s} 1", label(string(r.Action)), label(r.Name), label(r.MemberID), label(r.ClusterID)))
		sums, order := map[string]float64{}, []string(nil)
		for _, s := range r.Spans {
			if _, seen := sums[s.Step]; !seen {
				order = append(order, s.Step)
			}
			sums[s.Step] += s.Ms / 1000
		}
		var steps []string
		for _, step := range order {
			steps = append(steps, fmt.Sprintf("{step=%s} %g", label(step), sums[step]))
		}
		gauge("step_seconds", "How long each step of the last run took.", steps...)
	}
	return buf.Bytes()
}

// seconds is a time to the millisecond, without an exponent.
func seconds(t time.Time) string { return fmt.Sprintf("%.3f", float64(t.UnixMilli())/1000) }

// label is a label's value with its quotes.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
