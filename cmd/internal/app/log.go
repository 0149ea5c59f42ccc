package app

import (
	"fmt"
	"io"
	"time"

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

// progress says what is waited for: one line that is rewritten on a terminal,
// one log line per change else.
type progress struct {
	out  io.Writer
	log  *zap.Logger
	live bool
	// width of the terminal, 0: unknown. A longer line would wrap, and only its
	// last part be rewritten.
	width int
	last  string
	told  bool // systemd shows what is waited for
}

func (p *progress) wait(w agent.Wait) {
	defer func() { p.told = notifyWait(w) }()
	left := ""
	if w.Left > 0 {
		left = ", " + w.Left.Round(time.Second).String() + " left"
	}
	if p.live {
		fmt.Fprint(p.out, "\r\x1b[K"+p.fit("waiting: "+w.For, left))
		p.last = w.For
		return
	}
	if now := w.For + w.Cause; now != p.last {
		p.last = now
		fields := []zap.Field{zap.String("seen", w.Cause), zap.Duration("next", w.Next.Round(time.Millisecond))}
		if w.Attempt > 0 {
			fields = append(fields, zap.Int("attempt", w.Attempt))
		}
		p.log.Info("waiting: "+w.For+left, fields...)
	}
}

// fit shortens what is awaited, not the time that is left.
func (p *progress) fit(what, left string) string {
	text, room := []rune(what), p.width-1-len(left)
	if p.width > 0 && len(text) > room {
		what = string(text[:max(0, room-1)]) + "…"
	}
	return what + left
}

// Write lets a log line take the place of the rewritten line.
func (p *progress) Write(line []byte) (int, error) {
	p.clear()
	return p.out.Write(line)
}

// clear ends the rewritten line, so that what follows stands alone.
func (p *progress) clear() {
	if p != nil && p.told {
		p.told = false
		notifyEnd()
	}
	if p != nil && p.live && p.last != "" {
		p.last = ""
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
