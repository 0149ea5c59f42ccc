package app

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
)

func (a *app) membersCommand() *cli.Command {
	return &cli.Command{
		Name:  "members",
		Usage: "print the records and the running cluster side by side, and how to fix a difference",
		Description: `Asks discovery and the running cluster, and changes nothing: which members are in
the records, which in the cluster, how they are, and the command that fixes each
difference. To shrink a cluster, take a record out and run what is printed.

   etcdinit members --config-file /etc/etcd/etcd.yaml --size 3
   etcdinit members --discovery-srv example.org --size 5 -o json

Exit statuses: 0 the cluster is what the records say; 34 it is not, or one of the
two is not known.`,
		Flags:  slices.Concat(etcdFlags(), discoveryFlags(), accessFlags("client `URL`s to ask, instead of those of the records"), []cli.Flag{outputFlag()}),
		Action: a.runMembers,
	}
}

func (a *app) runMembers(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	cfg, err := a.agentConfig(c, nil)
	if err != nil {
		return err
	}
	if !c.IsSet("timeout") {
		cfg.Timeout = 30 * time.Second
	}
	report, err := agent.Members(c.Context, cfg, c.StringSlice("endpoints"))
	a.progress.clear()
	if err != nil {
		return err
	}
	if asJSON {
		err = a.printJSON(report)
	} else {
		err = a.printMembers(report)
	}
	if err != nil {
		return err
	}
	return agent.MembersDiffer(report)
}

func (a *app) printMembers(r *agent.MembersReport) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	if r.ClusterID != "" {
		fmt.Fprintf(a.Out, "cluster %s, %d of %d voters are well\n", r.ClusterID, r.Healthy, r.Voters)
	}
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	fmt.Fprintln(w, "NAME\tSTATE\tRECORD\tID\tIN THE CLUSTER\tROLE\tVERSION\tDB\tAPPLIED")
	for _, m := range r.Members {
		db, applied := "-", "-"
		if m.Version != "" {
			db, applied = fmt.Sprintf("%.1f MB", float64(m.DBSize)/1e6), strconv.FormatUint(m.Applied, 10)
		}
		fmt.Fprintln(w, strings.Join([]string{
			m.Name, string(m.Standing), dash(strings.Join(m.RecordURLs, ",")), dash(m.ID), dash(strings.Join(m.PeerURLs, ",")), dash(m.Role), dash(m.Version), db, applied,
		}, "\t"))
	}
	if err := w.Flush(); err != nil {
		return unprinted(err)
	}
	for _, m := range r.Members {
		if m.Why == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.Out, "\n%s: %s\n", m.Name, m.Why); err != nil {
			return unprinted(err)
		}
		on := ""
		if m.On != "" {
			on = "   # on " + m.On
		}
		for _, command := range m.Commands {
			fmt.Fprintf(a.Out, "  %s%s\n", command, on)
		}
	}
	return nil
}
