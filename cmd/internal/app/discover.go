package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
)

func (a *app) discoverCommand() *cli.Command {
	return &cli.Command{
		Name:  "discover",
		Usage: "print the peers, and which of them this node is",
		Description: `Asks the source as init would and prints the whole answer. Reads no data
directory and writes nothing. Where this node is not among the peers, it waits
for that only if --timeout is given.

   etcdinit discover --discovery-srv example.org --size 3
   etcdinit discover --discovery 'static:?peer=a=http://192.0.2.10:2380' --self-ip 192.0.2.10 -o json`,
		Flags:  slices.Concat(etcdFlags(), discoveryFlags(), []cli.Flag{outputFlag(), &cli.BoolFlag{Name: "probe", Usage: "ask each peer what it is at this moment: an agent and its state, an etcd and its cluster, or silent"}}),
		Action: a.runDiscover,
	}
}

func (a *app) runDiscover(c *cli.Context) error {
	asJSON, err := wantJSON(c)
	if err != nil {
		return err
	}
	if a.namesNoData(c) { // the loader wants a data-dir, discovery does not
		err = c.Set("data-dir", ".")
	}
	if err != nil {
		return err
	}
	cfg, err := a.agentConfig(c, nil)
	if err != nil {
		return err
	}
	cfg.WaitForSelf = c.IsSet("timeout") && cfg.Timeout > 0
	if c.Bool("probe") {
		return a.probe(c.Context, cfg, asJSON)
	}
	found, selfErr := agent.Discover(c.Context, cfg)
	a.progress.clear()
	if found == nil {
		return selfErr
	}
	if asJSON {
		if err := a.printJSON(found); err != nil {
			return err
		}
		return selfErr
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SELF\tNAME\tADDRESSES\tPEER URLS\tCLIENT URLS")
	for i, p := range found.Peers {
		mark := ""
		if i == found.Self {
			mark = "*"
		}
		addrs := make([]string, len(p.Addrs))
		for j, addr := range p.Addrs {
			addrs[j] = addr.String()
		}
		fmt.Fprintln(w, strings.Join([]string{mark, p.Name, strings.Join(addrs, ","), strings.Join(p.PeerURLs, ","), strings.Join(p.ClientURLs, ",")}, "\t"))
	}
	if err := w.Flush(); err != nil {
		return unprinted(err)
	}
	return selfErr
}

// namesNoData: neither a configuration file nor a data directory is given.
func (a *app) namesNoData(c *cli.Context) bool {
	return c.String("config-file")+c.String("data-dir")+a.lookupEnv("ETCD_CONFIG_FILE")+a.lookupEnv("ETCD_DATA_DIR") == ""
}

// probed is one peer as it was just seen.
type probed struct {
	Name   string `json:"name"`
	ID     string `json:"memberID"`
	State  string `json:"state"`
	URL    string `json:"url,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// probe prints what each other member is.
func (a *app) probe(ctx context.Context, cfg agent.Config, asJSON bool) error {
	found, view, err := agent.Probe(ctx, cfg)
	a.progress.clear()
	if err != nil || found == nil {
		return err
	}
	peers := make([]probed, 0, len(view.Peers))
	for i := range view.Peers {
		p := &view.Peers[i]
		peers = append(peers, probed{Name: p.Member.Name, ID: string(p.Member.ID), State: p.Word(), URL: p.Last.URL, Detail: agent.Seen(p)})
	}
	if asJSON {
		return a.printJSON(peers)
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tMEMBER ID\tSTATE\tPEER URL\tSEEN")
	for _, p := range peers {
		fmt.Fprintln(w, strings.Join([]string{p.Name, p.ID, p.State, p.URL, p.Detail}, "\t"))
	}
	return unprinted(w.Flush())
}
