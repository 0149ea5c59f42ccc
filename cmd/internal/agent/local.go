package agent

import (
	"fmt"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/internal/access"
	"github.com/etcdinit/etcdinit/seed"
)

// writes reports whether a step writes to the directory.
func (s Step) writes() bool {
	return s == StepPrepare || s == StepCommit || s == StepSeedAlone || s == StepAdmit || s == StepRelease
}

// writable holds what this run will write against what this node lets it write. It
// comes before DNS and the peers are asked, and once more before each write: what
// others wait for must not fail for a file that never could be written.
func (a *agent) writable() error {
	if isEmpty(a.disk) {
		if err := a.Etcd.CheckInitialAlone(a.Size); err != nil {
			return err
		}
	}
	for _, out := range []struct {
		flag, path, reason string
		inPlace            bool
	}{{"--env-file", a.EnvFile, "output", false}, {"--config-out", a.ConfigOut, "output", false}, {"--report", a.Report, "report", true}} {
		if out.path == "" {
			continue
		}
		if err := access.File(out.path, out.inPlace); err != nil {
			return &exit.Error{Status: exit.Write, Reason: out.reason, Msg: fmt.Sprintf("%s %s cannot be written", out.flag, out.path), Err: err}
		}
	}
	return seed.Ready(a.state, seed.Spec{DataDir: a.Etcd.DataDir, WALDir: a.Etcd.WALDir, Owner: a.Owner})
}

// leftBehind ends the line of a failed write: what is committed, and that nothing
// is lost.
func (a *agent) leftBehind(err error) error {
	if err == nil || exit.Of(err) != exit.Write || a.dry {
		return err
	}
	return fmt.Errorf("%w; %s: the next run goes on from there", err, a.stands())
}

// stands says what the directory holds now, for a person who has to know whether
// anything was written.
func (a *agent) stands() string {
	dir := a.Etcd.DataDir
	state, err := seed.Inspect(dir, a.Etcd.WALDir)
	switch {
	case err != nil:
		return "what is committed cannot be read"
	case state.Kind == seed.Empty && state.DiskID != "":
		return "nothing is committed but the disk ID in " + dir
	case state.Kind == seed.Empty:
		return "nothing is committed"
	case state.Kind != seed.Valid:
		return "what is committed is not whole (etcdinit inspect says why)"
	case state.Pending:
		return "the seed in " + dir + " is committed, not released"
	case a.released:
		return "the seed in " + dir + " is committed and released"
	case a.seeded:
		return "the seed in " + dir + " is committed"
	}
	return "the data in " + dir + " are as they were"
}
