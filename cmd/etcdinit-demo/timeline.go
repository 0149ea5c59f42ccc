package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// width is the timeline's, in characters; each stands for an equal time.
const width = 48

// timeline draws who did what when, a bar a step, from the first agent's start
// to the last etcd's readiness.
func (c *cluster) timeline(out io.Writer) {
	end := c.start
	for _, m := range c.members {
		for _, s := range m.spans {
			if s.end.After(end) {
				end = s.end
			}
		}
	}
	total := end.Sub(c.start)
	fmt.Fprintf(out, "\nFrom nothing to %d ready members in %s:\n\n", len(c.members), total.Round(time.Millisecond))
	for _, m := range c.members {
		slices.SortStableFunc(m.spans, func(a, b span) int { return a.start.Compare(b.start) })
		for i, s := range m.spans {
			name := ""
			if i == 0 {
				name = m.name
			}
			fmt.Fprintf(out, "  %-8s |%s| %6s  %s\n", name, bar(s, c.start, total), s.end.Sub(s.start).Round(100*time.Microsecond), s.step)
		}
	}
}

// bar is one step's place in the whole.
func bar(s span, start time.Time, total time.Duration) string {
	at := func(t time.Time) int { return int(int64(t.Sub(start)) * width / max(int64(total), 1)) }
	from := min(at(s.start), width-1)
	to := min(max(at(s.end), from+1), width)
	return strings.Repeat(" ", from) + strings.Repeat("█", to-from) + strings.Repeat(" ", width-to)
}
