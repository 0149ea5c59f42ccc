package app

import (
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
)

func (a *app) promoteCommand() *cli.Command {
	return &cli.Command{
		Name:  "promote",
		Usage: "make this node's member a voter, once that is safe; beside etcd",
		Description: `A member that comes into a running cluster is a learner: it does not vote. This
command makes the member of this data directory a voter as soon as it has all
entries, all voters are well, and its keys have the hash of another member's. A
member that votes already is left alone, so it may run after every start, on every
node, any number of times.

   etcdinit promote --wait --config-file /etc/etcd/etcd.yaml

Exit statuses: 0 it votes; 34 not yet; 42 it was removed; 45 its data differ: the
learner was removed, its disk stays as it is.`,
		Flags: slices.Concat(etcdFlags(), accessFlags("client `URL`s of members, beside those that the data directory knows"), []cli.Flag{
			&cli.BoolFlag{Name: "wait", Usage: "try until it votes", EnvVars: []string{"ETCDINIT_PROMOTE_WAIT"}},
			&cli.BoolFlag{Name: "stay", Usage: "wait, and stay after that until a signal comes: for a sidecar"},
			&cli.BoolFlag{Name: "no-verify", Usage: "do not compare the keys with another member's"},
			&cli.DurationFlag{Name: "timeout", Usage: "with --wait: give up after `DURATION`; 0 = no limit", Value: 0},
			outputFlag(),
		}),
		Action: a.runPromote,
	}
}

func (a *app) runPromote(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	etcd, err := a.etcdConfig(c, nil)
	if err != nil {
		return err
	}
	access, err := a.access(c, etcd)
	if err != nil {
		return usage(err)
	}
	cfg := agent.Promotion{
		Etcd: etcd, Endpoints: c.StringSlice("endpoints"), Wait: c.Bool("wait") || c.Bool("stay"), Timeout: c.Duration("timeout"), NoVerify: c.Bool("no-verify"),
		Log: a.log, OnWait: a.progress.wait,
		Admit: func(endpoints []string, dial rendezvous.DialFunc) (agent.Promoter, error) {
			access.Dial = dial
			return admit.Open(endpoints, access)
		},
		Peers: func() (agent.Hasher, error) {
			t := etcd.PeerTLS
			return admit.NewPeers(admit.PeerAccess{CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.TrustedCAFile, Insecure: t.AutoTLS && t.CertFile == ""})
		},
	}
	began := time.Now()
	changed, id, err := agent.PromoteMember(c.Context, cfg)
	a.progress.clear()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("member %s of cluster %s votes", id.MemberID, id.ClusterID)
	if changed {
		text += fmt.Sprintf(" (promoted after %s)", time.Since(began).Round(time.Millisecond))
	}
	if asJSON {
		err = a.printJSON(struct {
			MemberID  string `json:"memberID"`
			ClusterID string `json:"clusterID"`
			Changed   bool   `json:"changed"`
		}{id.MemberID.String(), id.ClusterID.String(), changed})
	} else {
		_, err = fmt.Fprintln(a.Out, text)
	}
	if err != nil || !c.Bool("stay") {
		return unprinted(err)
	}
	<-c.Done()
	return nil
}

// accessFlags are how a running cluster is reached, with etcdctl's names.
func accessFlags(endpoints string) []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "endpoints", Usage: endpoints, EnvVars: []string{"ETCDINIT_ENDPOINTS", "ETCDCTL_ENDPOINTS"}},
		&cli.StringFlag{Name: "cacert", Usage: "the CA `FILE` of the client ports (default: etcd's own)", EnvVars: []string{"ETCDINIT_CACERT"}},
		&cli.StringFlag{Name: "cert", Usage: "the client certificate `FILE` (default: etcd's own)", EnvVars: []string{"ETCDINIT_CERT"}},
		&cli.StringFlag{Name: "key", Usage: "its key `FILE`", EnvVars: []string{"ETCDINIT_KEY"}},
		&cli.StringFlag{Name: "user", Usage: "`NAME:PASSWORD`, where auth is on", EnvVars: []string{"ETCDINIT_USER"}},
	}
}
