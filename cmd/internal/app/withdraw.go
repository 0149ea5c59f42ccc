package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
)

func (a *app) withdrawCommand() *cli.Command {
	return &cli.Command{
		Name:  "withdraw",
		Usage: "take back a seed that can never be released",
		Description: `A seed is bound to the disks that were there when it was written. If one of them
was lost before all members had committed, the others wait for it in vain. This
command moves such a seed aside, so that the next init begins anew. It deletes
nothing.

It asks the other members of the roster first, twice, and acts only if no write
can have been acknowledged: so many of the disks answer as pending, this one
included, that the rest is no quorum, and no member is silent. So let init run on
the other nodes while you withdraw on this one, then do the same there.

   etcdinit withdraw --config-file /etc/etcd/etcd.yaml --size 3

Exit statuses: 0 done; 34 not proven in time; 43 there is no pending seed.`,
		Flags:  slices.Concat(etcdFlags(), discoveryFlags(), []cli.Flag{outputFlag()}),
		Action: a.runWithdraw,
	}
}

func (a *app) runWithdraw(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	cfg, err := a.agentConfig(c, nil)
	if err != nil {
		return err
	}
	aside, err := agent.Withdraw(c.Context, cfg)
	a.progress.clear()
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(struct {
			Aside []string `json:"aside"`
		}{aside})
	}
	_, err = fmt.Fprintln(a.Out, "withdrawn: the seed is in "+strings.Join(aside, " and in "))
	return unprinted(err)
}
