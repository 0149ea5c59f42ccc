package app

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
)

// newLogger logs with etcd's own encoder settings, so that the lines of both
// programs read alike.
func newLogger(level, format string, w io.Writer) (*zap.Logger, error) {
	lvl, err := zapcore.ParseLevel(level)
	if err != nil || lvl > zapcore.ErrorLevel { // above it, errors would be silent
		return nil, fmt.Errorf("--log-level %q (or ETCDINIT_LOG_LEVEL) is not one of debug, info, warn, error", level)
	}
	cfg := logutil.DefaultZapLoggerConfig.EncoderConfig
	var enc zapcore.Encoder
	switch format {
	case "json":
		enc = zapcore.NewJSONEncoder(cfg)
	case "console":
		enc = zapcore.NewConsoleEncoder(cfg)
	default:
		return nil, fmt.Errorf("--log-format %q (or ETCDINIT_LOG_FORMAT) is not console or json", format)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(w)), lvl)), nil
}

// progress says what is waited for: a small table that is rewritten on a
// terminal; otherwise a log line for each change, and one every remindAfter.
type progress struct {
	out  io.Writer
	log  *zap.Logger
	live bool
	// width and height of the terminal, 0: unknown. A longer line would wrap, and
	// only its last part be rewritten.
	width, height int
	lines         int    // of the table that is on the screen
	last          string // what was logged last
	began         time.Time
	said          time.Time // when that was
	told          bool      // systemd shows what is waited for
	now           func() time.Time
}

// remindAfter is how long a wait in which nothing changes goes without a log line.
const remindAfter = 30 * time.Second

func (p *progress) wait(w agent.Wait) {
	defer func() { p.told = notifyWait(w) }()
	now := time.Now()
	if p.now != nil {
		now = p.now()
	}
	if p.began.IsZero() {
		p.began = now
	}
	if p.live {
		if width, height := size(p.out); width > 0 {
			p.width, p.height = width, height
		}
		p.draw(p.table(w, now))
		return
	}
	what := w.For + w.Cause
	if what == p.last && now.Sub(p.said) < remindAfter {
		return
	}
	p.last, p.said = what, now
	fields := []zap.Field{zap.String("seen", w.Cause), zap.Duration("next", w.Next.Round(time.Millisecond))}
	if waited := now.Sub(p.began).Round(time.Second); waited > 0 {
		fields = append(fields, zap.Duration("waited", waited))
	}
	if w.Attempt > 0 {
		fields = append(fields, zap.Int("attempt", w.Attempt))
	}
	p.log.Info("waiting: "+w.For+left(w), fields...)
}

func left(w agent.Wait) string {
	if w.Left <= 0 {
		return ""
	}
	return ", " + w.Left.Round(time.Second).String() + " left"
}

// table is what a terminal shows: what is waited for, and a row for each peer
// that is missing.
func (p *progress) table(w agent.Wait, now time.Time) []string {
	since := func(t time.Time) string { return now.Sub(t).Round(time.Second).String() }
	next := "next look in " + max(w.Next, 0).Round(100*time.Millisecond).String()
	if len(w.Rows) == 0 {
		lines := []string{p.fit("waiting: "+w.For, " for "+since(p.began)+left(w)+", "+next)}
		if w.Cause != "" {
			lines = append(lines, p.fit("  "+w.Cause, ""))
		}
		return lines
	}
	what, _, _ := strings.Cut(w.For, ", awaiting ") // the rows say that
	lines := []string{p.fit("waiting: "+what, " for "+since(p.began)+left(w)+", "+next)}
	rows := w.Rows
	if room := p.height - 3; p.height > 0 && len(rows) > max(room, 1) {
		rows = rows[:max(room, 1)]
	}
	name, url := 0, 0
	for _, r := range rows {
		name, url = max(name, utf8.RuneCountInString(r.Name)), max(url, utf8.RuneCountInString(r.URL))
	}
	for _, r := range rows {
		lines = append(lines, p.fit(fmt.Sprintf("  %-*s  %-*s  %s for %s: %s", name, r.Name, url, r.URL, r.State, since(r.Since), r.Why), ""))
	}
	if more := len(w.Rows) - len(rows); more > 0 {
		lines = append(lines, p.fit(fmt.Sprintf("  and %d more", more), ""))
	}
	return lines
}

// draw puts the table in the place of the last one.
func (p *progress) draw(lines []string) {
	fmt.Fprint(p.out, p.erase()+strings.Join(lines, "\n"))
	p.lines = len(lines)
}

// erase takes the table off the screen. The cursor is in its last line.
func (p *progress) erase() string {
	up := ""
	if p.lines > 1 {
		up = fmt.Sprintf("\x1b[%dA", p.lines-1)
	}
	p.lines = 0
	return "\r" + up + "\x1b[J"
}

// fit shortens what is awaited, not the time that is left.
func (p *progress) fit(what, left string) string {
	text, room := []rune(what), p.width-1-len(left)
	if p.width > 0 && len(text) > room {
		what = string(text[:max(0, room-1)]) + "…"
	}
	if text = []rune(what + left); p.width > 0 && len(text) >= p.width {
		text = text[:p.width-1]
	}
	return string(text)
}

// Write lets a log line take the place of the table.
func (p *progress) Write(line []byte) (int, error) {
	p.clear()
	return p.out.Write(line)
}

// clear takes the table away, so that what follows stands alone.
func (p *progress) clear() {
	if p != nil && p.told {
		p.told = false
		notifyEnd()
	}
	if p != nil && p.live && p.lines > 0 {
		fmt.Fprint(p.out, p.erase())
	}
}
