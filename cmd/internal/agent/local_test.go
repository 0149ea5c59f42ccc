package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/seed"
)

// TestWritableAgain: an output that can be written at the start and not any more
// once the others are there is told before the seed is committed.
func TestWritableAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.node(t, "m1")
	out := filepath.Join(t.TempDir(), "env")
	r := n.start(t, func(c *Config) { c.EnvFile = out })
	r.sees("m2")
	if err := os.Mkdir(out, 0o700); err != nil {
		t.Fatal(err)
	}
	other := l.node(t, "m2").start(t, limit(labTime))
	r.refused(exit.Write, "output", "--env-file "+out, "nothing is committed: the next run goes on from there")
	if s := n.state(t); s.Kind != seed.Empty {
		t.Errorf("the directory is %s", s.Kind)
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	again := n.start(t, func(c *Config) { c.EnvFile = out })
	again.ok()
	other.ok()
}

// TestWriteFailsLate: a write that fails after the release says that the release
// is committed.
func TestWriteFailsLate(t *testing.T) {
	t.Parallel()
	n := newLab(t, 1).node(t, "m1")
	a := newAgent(n.config(t))
	n.start(t).ok()
	a.seeded = true
	err := a.leftBehind(&exit.Error{Status: exit.Write, Reason: "handoff", Msg: "write the handoff"})
	want := "write the handoff; the seed in " + n.data + " is committed: the next run goes on from there"
	if exit.Of(err) != exit.Write || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
