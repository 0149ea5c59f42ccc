package app

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/snapshot"
	"github.com/etcdinit/etcdinit/seed"
)

// restoreConfig reads what a birth begins with.
func (a *app) restoreConfig(c *cli.Context, cfg *agent.Config) error {
	place := c.String("restore-snapshot")
	if place == "" {
		for _, name := range []string{"restore-sha256", "restore-skip-hash-check", "restore-bump-revision"} {
			if a.onCommandLine(name) {
				return usage(fmt.Errorf("--%s says how to restore a snapshot, and --restore-snapshot names none", name))
			}
		}
		return nil
	}
	source, err := snapshot.Parse(place)
	if err != nil {
		return usage(err)
	}
	sum := strings.ToLower(c.String("restore-sha256"))
	if raw, err := hex.DecodeString(sum); sum != "" && (err != nil || len(raw) != 32) {
		return usage(fmt.Errorf("--restore-sha256 %q is no SHA-256: 64 hexadecimal digits, as sha256sum prints them", sum))
	}
	if cfg.Quorum == agent.QuorumNone {
		return usage(errors.New("--restore-snapshot with --bootstrap-quorum=none: the cluster ID would be the one that etcd computes, and members of the old cluster would be taken for its own; leave --bootstrap-quorum out"))
	}
	source.OnRetry = func(err error) { a.log.Warn("the snapshot is asked for again", zap.Error(err)) }
	cfg.Restore = &agent.Restore{
		Snapshot: seed.Snapshot{Name: source.Name, Open: source.Open, SHA256: sum, Unchecked: c.Bool("restore-skip-hash-check")},
		Bump:     c.Uint64("restore-bump-revision"),
	}
	return nil
}

// onCommandLine reports whether a flag was typed, and does not come from a variable that
// may be set for all nodes.
func (a *app) onCommandLine(name string) bool {
	for _, arg := range a.args {
		if arg == "--" {
			return false
		}
		if text := strings.TrimLeft(arg, "-"); text != arg && (text == name || strings.HasPrefix(text, name+"=")) {
			return true
		}
	}
	return false
}
