package app

import (
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/seed"
)

func (a *app) snapshotCommand() *cli.Command {
	return &cli.Command{
		Name:  "snapshot",
		Usage: "look at a snapshot that init --restore-snapshot can restore",
		Subcommands: []*cli.Command{{
			Name:      "status",
			Usage:     "print what a snapshot holds, and hold its digest against it",
			ArgsUsage: "FILE",
			Description: `Reads the whole file, and writes nothing: the digest that etcd has put at
its end is held against what is before it. A file that is cut off, damaged,
compressed, or no snapshot at all is status 20, with the reason.

   etcdctl snapshot save backup.db
   etcdinit snapshot status backup.db
   etcdinit snapshot status backup.db -o json`,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "skip-hash-check", Usage: "also take a copy of a database, which has no digest at its end"},
				outputFlag(),
			},
			Action: a.runSnapshotStatus,
		}},
	}
}

func (a *app) runSnapshotStatus(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	if c.NArg() != 1 {
		return usage(errors.New("snapshot status needs one file: etcdinit snapshot status FILE"))
	}
	path := c.Args().First()
	pace := agent.NewPace()
	content, err := seed.ReadSnapshot(c.Context, path, c.Bool("skip-hash-check"), func(read, size int64) {
		if text, due := pace.Words(read, size); due {
			a.progress.wait(agent.Wait{For: "the snapshot " + path, Cause: text, Next: time.Second})
		}
	})
	if err != nil {
		return err
	}
	a.progress.clear()
	if asJSON {
		return a.printJSON(content)
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintln(w, name+"\t"+value) }
	row("snapshot", content.Source)
	row("taken", content.Modified.Format(time.RFC3339)+" (its file's time)")
	row("revision", strconv.FormatInt(content.Revision, 10))
	row("keys", strconv.FormatInt(content.Keys, 10)+" (old revisions too)")
	row("size", strconv.FormatInt(content.Size, 10)+" bytes")
	if content.Version != "" {
		row("etcd", content.Version)
	}
	digest := "right"
	if !content.Verified {
		digest = "not there, or wrong (--skip-hash-check)"
	}
	row("digest", digest)
	row("SHA-256", content.File+" (of the file, for --restore-sha256)")
	for i, m := range content.Members {
		name := ""
		if i == 0 {
			name = "members"
		}
		row(name, memberWords(m))
	}
	return unprinted(w.Flush())
}
