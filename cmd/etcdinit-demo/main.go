// Command etcdinit-demo boots a whole cluster on loopback: a DNS server with
// SRV records, one agent a member, one static configuration for all of them,
// and real etcd servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdinit-demo: "+err.Error())
		os.Exit(1)
	}
}

// run is the demo: options, records, agents, servers, a key, the timeline, and the
// stories that were asked for.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("etcdinit-demo", flag.ContinueOnError)
	members := flags.Int("members", 3, "members of the cluster")
	keep := flags.Bool("keep", false, "stay up until interrupted")
	peerPort := flags.Int("peer-port", 22380, "peer port, the same on every member's address")
	clientPort := flags.Int("client-port", 22379, "client port, the same on every member's address")
	lose := flags.Bool("lose-disk", false, "then a member loses its disk, is refused, and is replaced")
	grow := flags.Bool("grow", false, "then a member joins")
	restore := flags.Bool("restore", false, "then all disks are lost, and a snapshot brings the keys back")
	if err = flags.Parse(args); err != nil {
		return err
	}
	if *members < 1 || *members > 9 {
		return fmt.Errorf("--members %d: from 1 to 9", *members)
	}
	dir, err := os.MkdirTemp("", "etcdinit-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }() //nolint:forbidigo // the demo's own temporary directory

	c := &cluster{dir: dir, peerPort: *peerPort, clientPort: *clientPort, start: time.Now()}
	for i := range *members {
		c.members = append(c.members, newMember(i+1, dir))
	}
	if err = c.checkAddresses(); err != nil {
		return err
	}
	dns, err := serveDNS(c.records())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dns.stop()) }()
	c.dns, c.server = dns.addr, dns
	c.resolveHere()

	if err = c.writeConfig(); err != nil {
		return err
	}
	fmt.Fprintf(out, "DNS server on %s answers %s with %d records.\nOne configuration for all %d members:\n\n%s\n", dns.addr, serverName, *members, *members, indent(c.config))
	if err = c.boot(ctx, nil); err != nil {
		return err
	}
	defer c.stop()
	if err = c.prove(ctx, out); err != nil {
		return err
	}
	c.timeline(out)
	fmt.Fprintf(out, "\n%s\n", dns.summary())
	for _, story := range []struct {
		told bool
		tell func(context.Context, io.Writer) error
	}{{*lose, c.loseDisk}, {*grow, c.grow}, {*restore, c.restore}} {
		if !story.told {
			continue
		}
		begin := time.Now()
		if err = story.tell(ctx, out); err != nil {
			return err
		}
		fmt.Fprintf(out, "(%s)\n", time.Since(begin).Round(100*time.Millisecond))
	}
	if *keep {
		fmt.Fprintf(out, "\nThe cluster stays up: etcdctl --endpoints %s member list\nStop it with Ctrl-C.\n", c.members[0].clientURL(c.clientPort))
		<-ctx.Done()
	}
	return nil
}
