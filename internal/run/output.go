package run

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/etcdinit/etcdinit/plugins"
)

const (
	maxLine   = 4096    // bytes of one line on stderr
	maxStderr = 1 << 20 // bytes of stderr altogether
)

var errFull = errors.New("too much output")

// capped keeps at most limit bytes; at the first byte more it calls full.
// The buffer is no embedded field: its ReadFrom would go past the limit.
type capped struct {
	buf   bytes.Buffer
	limit int
	full  func()
}

func (c *capped) Write(p []byte) (int, error) {
	if room := c.limit - c.buf.Len(); len(p) > room {
		n, err := c.buf.Write(p[:room])
		c.full()
		return n, errors.Join(errFull, err)
	}
	return c.buf.Write(p)
}

// lines hands on what is written to it line by line.
type lines struct {
	emit func(string)
	part []byte
	last string
	seen int
}

func (l *lines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, more, ended := bytes.Cut(rest, []byte("\n"))
		rest = more
		l.part = append(l.part, line[:min(len(line), maxLine-len(l.part))]...)
		if ended {
			l.flush()
		}
	}
	return len(p), nil
}

// flush ends the line that was begun.
func (l *lines) flush() {
	line := strings.TrimSpace(plugins.OneLine(string(l.part), maxLine))
	l.part = l.part[:0]
	if line == "" {
		return
	}
	l.last = line
	if l.seen > maxStderr {
		return
	}
	if l.seen += len(line) + 1; l.seen > maxStderr {
		line = "(more than 1 MiB on stderr; the rest is dropped)"
	}
	if l.emit != nil {
		l.emit(line)
	}
}

// workDir makes an empty directory in the first place that has room for one
// and returns what removes it. Where there is none, it is "/": a read-only
// root without /tmp. What a plugin run by root wrote there stays where it is,
// and remove names it.
func workDir(places ...string) (dir string, remove func() (left []string)) {
	for _, place := range places {
		dir, err := os.MkdirTemp(place, "etcdinit-plugin-")
		if err != nil {
			continue
		}
		remove := func() (left []string) {
			if os.Remove(dir) == nil {
				return nil
			}
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				left = append(left, filepath.Join(dir, e.Name()))
			}
			if err != nil || len(left) == 0 {
				left = append(left, dir)
			}
			return left
		}
		if err := os.Chmod(dir, 0o500); err != nil { //nolint:gosec // a directory without x cannot be entered
			remove()
			continue
		}
		return dir, remove
	}
	return "/", func() []string { return nil }
}
