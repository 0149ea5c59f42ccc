package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/seed"
)

// young is how long etcd refuses to change the members of a new cluster.
const young = 5 * time.Second

// heading begins a story.
func heading(out io.Writer, format string, args ...any) {
	fmt.Fprintf(out, "\n=== "+format+"\n\n", args...)
}

// open reaches the running members' client ports.
func (c *cluster) open() (*admit.Client, error) {
	var urls []string
	for _, m := range c.members {
		if m.etcd != nil {
			urls = append(urls, m.clientURL(c.clientPort))
		}
	}
	return admit.Open(urls, admit.Access{})
}

// settled waits until etcd allows a change of its members.
func (c *cluster) settled(ctx context.Context, out io.Writer) error {
	left := time.Until(c.start.Add(young + time.Second))
	if left <= 0 {
		return nil
	}
	fmt.Fprintf(out, "etcd changes no members in a cluster's first five seconds: waiting %s.\n", left.Round(100*time.Millisecond))
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// joining is what an empty member is told that comes into the running cluster.
func joining(how agent.IfRunning) func(*agent.Config) {
	return func(cfg *agent.Config) {
		cfg.IfRunning, cfg.ReplaceAfter = how, time.Second
		cfg.Admit = func(endpoints []string, _ rendezvous.DialFunc) (agent.Cluster, error) {
			return admit.Open(endpoints, admit.Access{})
		}
	}
}

// admitted boots an empty member into the running cluster and makes it a voter.
func (c *cluster) admitted(ctx context.Context, m *member, how agent.IfRunning, out io.Writer) error {
	begin := time.Now()
	if err := c.bootMember(ctx, m, joining(how)); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	fmt.Fprintf(out, "%s\n", m.result.Message)
	conf, err := c.load(m)
	if err != nil {
		return err
	}
	_, id, err := agent.PromoteMember(ctx, agent.Promotion{
		Etcd: conf, Wait: true, Timeout: patience, Log: zap.NewNop(), OnWait: func(agent.Wait) {},
		Admit: func(endpoints []string, _ rendezvous.DialFunc) (agent.Promoter, error) {
			return admit.Open(endpoints, admit.Access{})
		},
		Peers: func() (agent.Hasher, error) { return admit.NewPeers(admit.PeerAccess{}) },
	})
	if err != nil {
		return fmt.Errorf("promoting %s: %w", m.name, err)
	}
	// Its own etcd learns that last.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for m.etcd.Server.IsLearner() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	fmt.Fprintf(out, "%s (ID %s) votes, %s after its start.\n", m.name, id.MemberID, time.Since(begin).Round(100*time.Millisecond))
	return c.prove(ctx, out)
}

// loseDisk: a member comes back without its data. First it is refused, with the
// commands an operator would see; then etcdinit replaces it by itself.
func (c *cluster) loseDisk(ctx context.Context, out io.Writer) error {
	m := c.members[len(c.members)-2]
	heading(out, "A disk is lost: %s stops, and its data directory is gone.", m.name)
	if len(c.members) < 3 {
		return fmt.Errorf("--lose-disk needs 3 members or more: without %s there is no quorum", m.name)
	}
	m.stop()
	if err := os.RemoveAll(m.dir); err != nil { //nolint:forbidigo // the demo's own temporary directory: this is the disk that is lost
		return err
	}
	err := c.bootMember(ctx, m, joining(agent.Refuse))
	refusal := exit.Refusal(err)
	if refusal == nil || refusal.Status != exit.Unsafe {
		return fmt.Errorf("an empty %s is not refused: %w", m.name, err)
	}
	fmt.Fprintf(out, "etcdinit: %s\n", refusal.Error())
	for i, command := range refusal.Commands {
		fmt.Fprintf(out, "  %d. %s\n", i+1, command)
	}
	fmt.Fprintf(out, "Exit status %d, and nothing was written.\n", refusal.Status)
	heading(out, "The same start with --if-running=replace")
	if err := c.settled(ctx, out); err != nil {
		return err
	}
	return c.admitted(ctx, m, agent.Replace, out)
}

// grow: a member more, from the same configuration.
func (c *cluster) grow(ctx context.Context, out io.Writer) error {
	m := newMember(len(c.members)+1, c.dir)
	heading(out, "The cluster grows: %s gets its records and starts with --if-running=join.", m.name)
	c.members = append(c.members, m)
	if err := c.checkAddressesOf(m); err != nil {
		return err
	}
	c.server.set(c.records())
	if err := c.settled(ctx, out); err != nil {
		return err
	}
	return c.admitted(ctx, m, agent.Join, out)
}

// restore: every disk is lost, and the same start with a snapshot brings the keys
// back in a new cluster.
func (c *cluster) restore(ctx context.Context, out io.Writer) error {
	file := filepath.Join(c.dir, "snapshot.db")
	if err := c.snapshot(ctx, file); err != nil {
		return err
	}
	old := c.members[0].result.ClusterID
	heading(out, "Every disk is lost. A snapshot is left, and all start with --restore-snapshot.")
	c.stop()
	for _, m := range c.members {
		if err := os.RemoveAll(m.dir); err != nil { //nolint:forbidigo // the demo's own temporary directory: these are the disks that are lost
			return err
		}
		m.etcd, m.spans = nil, nil
	}
	err := c.boot(ctx, func(cfg *agent.Config) {
		cfg.Restore = &agent.Restore{Bump: 1_000_000_000, Snapshot: seed.Snapshot{Name: file, Open: openFile(file)}}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\nIt was cluster %s; members of that one can never come back into this one.\n", c.members[0].result.Message, old)
	return c.show(ctx, out, "restored from the snapshot")
}

// snapshot saves the content of the cluster.
func (c *cluster) snapshot(ctx context.Context, file string) (err error) {
	client, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	from, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	to, err := os.Create(file) //nolint:gosec // in the demo's own directory
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, from.Close(), to.Close())
}

// openFile reads a snapshot from a file.
func openFile(name string) func(context.Context) (io.ReadCloser, int64, time.Time, error) {
	return func(context.Context) (io.ReadCloser, int64, time.Time, error) {
		f, err := os.Open(name) //nolint:gosec // in the demo's own directory
		if err != nil {
			return nil, 0, time.Time{}, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, time.Time{}, errors.Join(err, f.Close())
		}
		return f, info.Size(), info.ModTime(), nil
	}
}
