package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/seed"
)

// Sound returns the refusal for a directory that is not valid, or nil.
func Sound(s *seed.State) error {
	if s.Kind == seed.Broken {
		return broken(s)
	}
	return nil
}

// Startable returns the refusal for a directory that is sound, but that etcd
// does not start from as a member; or nil.
func Startable(s *seed.State) error {
	switch {
	case s.Kind != seed.Valid:
		return Sound(s)
	case slices.Contains(s.Removed, s.MemberID):
		return &exit.Error{Status: exit.Foreign, Reason: "removed", Msg: fmt.Sprintf("%s holds member %s, which was removed from cluster %s: etcd would not start from it; "+
			"move this directory aside and add the member anew (etcdctl member add --learner), or attach the right volume", s.DataDir, s.MemberID, s.ClusterID)}
	case s.Self == nil:
		return &exit.Error{Status: exit.Foreign, Reason: "unnamed", Msg: fmt.Sprintf("%s holds the log of member %s of cluster %s, but not yet the member itself: it was added with etcdctl member add and has not caught up, so its name and URLs are not known here; "+
			"start etcd once as etcdctl member add said (name, initial-cluster, initial-cluster-state existing)", s.DataDir, s.MemberID, s.ClusterID)}
	}
	return nil
}

// Check holds a valid directory against discovery, as a restart does, without
// a write. It returns the warnings. A seed that is not released is no failure.
func Check(ctx context.Context, cfg Config, state *seed.State) ([]string, error) {
	a := newAgent(cfg)
	a.dry = true
	ctx, cancel := a.deadline(ctx)
	defer cancel()
	a.configured()
	defer func() { _ = a.close(nil) }() //nolint:errcheck // nothing was opened but a goroutine
	a.take(state)
	for {
		out := Decide(a.input(expired(ctx)))
		if out.Step == StepMeet {
			return a.warnings, nil
		}
		if done, err := a.foretell(ctx, out); err != nil || done {
			return a.warnings, err
		}
	}
}
