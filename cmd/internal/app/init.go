package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

func (a *app) initCommand() *cli.Command {
	return &cli.Command{
		Name:  "init",
		Usage: "seed this node's data directory, or keep the one that is there",
		Description: `Finds the members, finds out which of them this node is, and gives the data
directory what etcd needs to start as that member. A directory that is already
this member's is kept as it is, without DNS. Anything else is refused with one
line and an exit status of its own; nothing that was there is ever deleted.

   # the same on every node; etcd.yaml says discovery-srv: example.org
   etcdinit init --config-file /etc/etcd/etcd.yaml --size 3 --config-out /run/etcd/etcd.yaml

   # what would be done, and why; writes nothing
   etcdinit init --config-file /etc/etcd/etcd.yaml --size 3 --dry-run

   # systemd, ExecStartPre: etcd.service reads EnvironmentFile=-/run/etcdinit/env
   etcdinit init --discovery-srv example.org --size 3 --env-file /run/etcdinit/env --data-dir /var/lib/etcd --listen-peer-urls http://0.0.0.0:2380 --listen-client-urls http://0.0.0.0:2379

With --if-running=join or replace, and where somebody has added this node as a
learner, a running cluster is asked on its client ports: with the certificates of
$ETCDINIT_CACERT, $ETCDINIT_CERT and $ETCDINIT_KEY and the name:password of
$ETCDINIT_USER, else with etcdctl's $ETCDCTL_*, else with etcd's own certificate.

Exit statuses: 0 done. 30 to 34: retry (30 peers incomplete, 31 write failed, 32
directory busy, 33 plugin failed, 34 peers disagree). A human must act on 20
(configuration), 40 (unusable answer), 41 (not exactly one self), 42 (unsafe:
the cluster runs already), 43 (another member's data), 44 (corrupt data).`,
		Flags: slices.Concat(etcdFlags(), discoveryFlags(), seedFlags(), []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "decide, print the plan, write nothing but the --report"},
			outputFlag(),
		}),
		Action: a.runInit,
	}
}

func (a *app) runInit(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	cfg, err := a.agentConfig(c, nil)
	if err != nil {
		return err
	}
	r, err := agent.Init(c.Context, cfg, c.Bool("dry-run"))
	if err != nil {
		return err
	}
	a.progress.clear()
	a.metrics.result = r
	if unreported := a.writeReport(r); unreported != nil {
		return fmt.Errorf("%w; all else is done (%s): the next run goes on from there", unreported, r.Message)
	}
	if asJSON {
		return a.printJSON(r)
	}
	if r.Plan != nil && c.Bool("dry-run") {
		if _, err = fmt.Fprint(a.Out, planText(r)); err != nil {
			return unprinted(err)
		}
	}
	_, err = fmt.Fprintln(a.Out, r.Message)
	return unprinted(err)
}

// planText says what would be written. The cluster ID of a birth names disks that
// are not known before all members are there.
func planText(r *agent.Result) string {
	text := r.Plan.String()
	if _, rest, ok := strings.Cut(text, ","); ok && r.ClusterID == "" {
		return "cluster (its ID is made at the birth)," + rest
	}
	return text
}

// printJSON prints one indented document.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return unprinted(enc.Encode(v))
}

// unprinted is for a standard output that cannot be written to.
func unprinted(err error) error {
	if err == nil {
		return nil
	}
	return &exit.Error{Status: exit.Write, Reason: "output", Msg: "print the result", Err: err}
}
