package app

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"
	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/agent"
)

func (a *app) rescueCommand() *cli.Command {
	return &cli.Command{
		Name:  "rescue",
		Usage: "give a cluster its quorum back that the addition of a member has taken",
		Description: `A member was added as a voter with a wrong URL, or its machine never came: it
counts, nobody has it, and the cluster has no quorum to remove it with. Run this on
a node with an empty data directory. It takes that member's seat, with the database
of a member that still runs; then start etcd here as ever.

It is safe only if no etcd has ever run as that member, so every condition is
checked and printed first. --dry-run stops there.

   etcdctl member list                       # the ID of the member that never started
   etcdinit rescue --as-member 8211f1d0f64f3269 --endpoints http://etcd-1.example.org:2379 \\
     --config-file /etc/etcd/etcd.yaml --size 3 --dry-run

Exit statuses: 0 done; 34 no member answers; 42 a condition does not hold.`,
		Flags: slices.Concat(etcdFlags(), discoveryFlags(), accessFlags("client `URL`s of the members that still run (default: those of the records)"), []cli.Flag{
			&cli.StringFlag{Name: "as-member", Usage: "take the seat of the member with this `ID`"},
			&cli.StringFlag{Name: "owner", Usage: "`USER[:GROUP]` (names or numbers) of what is written (default: the data directory's owner)", EnvVars: []string{"ETCDINIT_OWNER"}, Category: groupOut},
			&cli.BoolFlag{Name: "dry-run", Usage: "check and print the conditions, change nothing"},
			outputFlag(),
		}),
		Action: a.runRescue,
	}
}

func (a *app) runRescue(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	id, err := types.IDFromString(c.String("as-member"))
	if err != nil || id == 0 {
		return usage(errors.New("rescue needs --as-member ID, as etcdctl member list shows it"))
	}
	var cfg agent.Config
	if c.String("discovery") != "" || a.discoverySRV(c) {
		cfg, err = a.agentConfig(c, nil)
	} else {
		cfg.Etcd, err = a.etcdConfig(c, nil)
		cfg.Log, cfg.OnWait = a.log, a.progress.wait
	}
	if err != nil {
		return err
	}
	access, err := a.access(c, cfg.Etcd)
	if err != nil {
		return usage(err)
	}
	r := agent.Rescue{
		Config: cfg, As: id, Endpoints: c.StringSlice("endpoints"),
		Open: func(endpoint string) (agent.Survivor, error) { return admit.Open([]string{endpoint}, access) },
	}
	r.Again = a.restartOf()
	var checked []agent.Condition
	r.Said = func(cond agent.Condition) {
		checked = append(checked, cond)
		if !asJSON {
			mark := "ok"
			if !cond.OK {
				mark = "NO"
			}
			fmt.Fprintf(a.Out, "%s  %s: %s\n", mark, cond.What, cond.Seen)
		}
	}
	if err = agent.RescueNode(c.Context, &r); err != nil {
		return err
	}
	plan, err := agent.RescueMember(c.Context, r, c.Bool("dry-run"))
	a.progress.clear()
	if err != nil {
		return err
	}
	next := agent.AfterRescue(&r, plan)
	if asJSON {
		return a.printJSON(struct {
			DryRun     bool              `json:"dryRun"`
			MemberID   string            `json:"memberID"`
			ClusterID  string            `json:"clusterID"`
			DataDir    string            `json:"dataDir"`
			Conditions []agent.Condition `json:"conditions"`
			Commands   []string          `json:"commands"`
		}{c.Bool("dry-run"), plan.MemberID.String(), plan.ClusterID.String(), plan.DataDir, checked, next})
	}
	what := "seeded"
	if c.Bool("dry-run") {
		what = "would seed"
	}
	if _, err := fmt.Fprintf(a.Out, "%s %s as member %s of cluster %s, at %v\n", what, plan.DataDir, plan.MemberID, plan.ClusterID, r.PeerURLs); err != nil {
		return unprinted(err)
	}
	if !c.Bool("dry-run") {
		fmt.Fprintln(a.Out, "now start etcd here, by the same service as ever; then tell the cluster where this member is:")
	}
	for i, command := range next {
		fmt.Fprintf(a.Out, "  %d. %s\n", i+1, command)
	}
	return nil
}

// restartOf are the commands that start the service; where there is none, the person knows.
func (a *app) restartOf() []string {
	if unit := a.unit(); unit != "" {
		return []string{"systemctl restart " + unit}
	}
	return nil
}

// discoverySRV: etcd's own configuration has a domain.
func (a *app) discoverySRV(c *cli.Context) bool {
	etcd, err := a.etcdConfig(c, nil)
	return err == nil && etcd.DiscoverySRV != ""
}
