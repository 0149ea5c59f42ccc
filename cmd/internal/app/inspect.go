package app

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/seed"
)

// dirFlags are all that a look at a directory needs.
func dirFlags() []cli.Flag {
	flags := []cli.Flag{configFlag()}
	for _, f := range etcdFlags() {
		if name := f.Names()[0]; name == "data-dir" || name == "wal-dir" || name == "name" {
			flags = append(flags, f)
		}
	}
	return flags
}

func (a *app) inspectCommand() *cli.Command {
	return &cli.Command{
		Name:  "inspect",
		Usage: "print what a data directory holds",
		Description: `Reads the WAL's metadata and the members bucket. Writes nothing, not even a
modification time, and does not wait for an etcd that has the directory open
(status 32). A directory that is not valid is status 44.

   etcdinit inspect --data-dir /var/lib/etcd
   etcdinit inspect --config-file /etc/etcd/etcd.yaml -o json`,
		Flags:  append(dirFlags(), outputFlag()),
		Action: a.runInspect,
	}
}

func (a *app) runInspect(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	etcd, err := a.etcdConfig(c, nil)
	if err != nil {
		return err
	}
	state, err := seed.Inspect(etcd.DataDir, etcd.WALDir)
	if err != nil {
		return err
	}
	if err := a.printState(state, asJSON); err != nil {
		return err
	}
	return agent.Sound(state)
}

func (a *app) verifyCommand() *cli.Command {
	return &cli.Command{
		Name:  "verify",
		Usage: "check a data directory against discovery",
		Description: `Says whether the directory is sound and this node's: the same checks as init on
a directory with data, without a write. --deep also reads every WAL record and
every page of the database. Without a discovery source only the directory is
checked.

   etcdinit verify --config-file /etc/etcd/etcd.yaml --size 3
   etcdinit verify --data-dir /var/lib/etcd --deep`,
		Flags: slices.Concat(etcdFlags(), discoveryFlags(), []cli.Flag{
			&cli.BoolFlag{Name: "deep", Usage: "read every record and every page"},
			outputFlag(),
		}),
		Action: a.runVerify,
	}
}

func (a *app) runVerify(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	etcd, err := a.etcdConfig(c, nil)
	if err != nil {
		return err
	}
	state, err := seed.Verify(etcd.DataDir, etcd.WALDir, c.Bool("deep"))
	if err != nil {
		return err
	}
	if err := agent.Startable(state); err != nil && state.Kind == seed.Valid {
		return err
	}
	if state.Kind == seed.Valid && (c.String("discovery") != "" || etcd.DiscoverySRV != "") {
		cfg, err := a.agentConfig(c, nil)
		if err != nil {
			return err
		}
		if _, err := agent.Check(c.Context, cfg, state); err != nil {
			return err
		}
	}
	a.progress.clear()
	if err := a.printState(state, asJSON); err != nil {
		return err
	}
	if state.Kind == seed.Empty {
		return &exit.Error{Status: exit.Damaged, Reason: "empty", Msg: "nothing to verify: " + state.DataDir + " holds no member's data, and etcd must not be started on it; is the volume mounted? etcdinit init seeds a new member"}
	}
	return nil
}

// printState prints a State for a person or a machine.
func (a *app) printState(s *seed.State, asJSON bool) error {
	if asJSON {
		return a.printJSON(s)
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintln(w, name+"\t"+value) }
	row("data dir", s.DataDir)
	if s.WALDir != "" {
		row("wal dir", s.WALDir)
	}
	row("state", stateWords(s))
	if s.MemberID != 0 {
		row("member", member(s))
		row("cluster ID", s.ClusterID.String())
		for _, m := range s.Members {
			row("", memberWords(m))
		}
	}
	if s.DiskID != "" {
		row("disk ID", string(s.DiskID))
	}
	if r := s.Record; r != nil {
		row("seeded as", recordWords(r))
		for _, seat := range r.Roster {
			row("", seat.Member+" disk "+string(seat.Disk))
		}
		row("token", r.Token)
		if r.Restored != nil {
			row("born with", r.Restored.String())
		}
		if r.PlanDigest != "" {
			row("plan digest", r.PlanDigest)
		}
	}
	if s.RecordProblem != "" {
		row("record", s.RecordProblem)
	}
	for _, l := range []struct {
		name  string
		paths []string
	}{{"ignored", s.Ignored}, {"leftovers", s.Leftovers}, {"staged", s.Staged}, {"foreign", s.Foreign}} {
		if len(l.paths) > 0 {
			row(l.name, strings.Join(l.paths, " "))
		}
	}
	return unprinted(w.Flush())
}

// recordWords says how a directory was seeded.
func recordWords(r *seed.Record) string {
	switch r.Kind {
	case seed.RecordJoin:
		return fmt.Sprintf("%s, which joins a running cluster of %d", r.Name, len(r.Members))
	case seed.RecordComputed:
		return r.Name + ", with the cluster ID that etcd computes (--bootstrap-quorum=none)"
	}
	return fmt.Sprintf("%s, in a birth of %d", r.Name, len(r.Roster))
}

func member(s *seed.State) string {
	name := "(no entry of its own)"
	if s.Self != nil {
		name = s.Self.Name
	}
	return name + " (ID " + s.MemberID.String() + ")"
}

func stateWords(s *seed.State) string {
	words := string(s.Kind)
	switch {
	case s.Kind == seed.Empty && s.DiskID != "":
		words += ", with a disk ID: a birth was prepared (prepared)"
	case s.Kind == seed.Broken:
		words += ": " + s.Reason
	case slices.Contains(s.Removed, s.MemberID):
		words += ", removed from its cluster: etcd does not start from it"
	case s.Pending && s.Record != nil && s.Record.Kind == seed.RecordJoin:
		words += ", seeded to join a running cluster that has not reached this node yet (pending)"
	case s.Pending:
		words += ", seeded, waiting for the other members (pending)"
	case s.Kind == seed.Valid && s.Pristine:
		words += ", seeded, etcd has not run yet"
	}
	if s.Self != nil && s.Self.IsLearner {
		words += ", learner"
	}
	return words
}

func memberWords(m seed.Member) string {
	words := m.ID.String() + " " + m.Name + " " + strings.Join(m.PeerURLs, ",")
	if len(m.ClientURLs) > 0 {
		words += " clients " + strings.Join(m.ClientURLs, ",")
	}
	if m.IsLearner {
		words += " learner"
	}
	return words
}
