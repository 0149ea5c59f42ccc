package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/etcdinit/etcdinit/seed"
)

// Sound returns the refusal for a directory that is not valid, else nil.
func Sound(s *seed.State) error {
	if s.Kind == seed.Broken {
		return broken(s)
	}
	return nil
}

// Startable returns the refusal for a directory that is sound, but that etcd
// does not start from as a member; else nil.
func Startable(s *seed.State) error {
	switch {
	case s.Kind != seed.Valid:
		return Sound(s)
	case slices.Contains(s.Removed, s.MemberID):
		return &Error{Kind: Foreign, Msg: fmt.Sprintf("%s holds member %s, which was removed from cluster %s: etcd would not start from it; "+
			"move this directory aside and add the member anew (etcdctl member add --learner), or attach the right volume", s.DataDir, s.MemberID, s.ClusterID)}
	case s.Self == nil:
		return &Error{Kind: Foreign, Msg: fmt.Sprintf("%s holds the log of member %s of cluster %s, but not yet the member itself: it was added with etcdctl member add and has not caught up, so its name and URLs are not known here; "+
			"start etcd once as etcdctl member add said (--name, --initial-cluster, --initial-cluster-state=existing)", s.DataDir, s.MemberID, s.ClusterID)}
	}
	return nil
}

// Check holds a valid directory against discovery, as a restart does, without
// a write. It returns the warnings.
func Check(ctx context.Context, cfg Config, state *seed.State) ([]string, error) {
	if err := Startable(state); err != nil {
		return nil, err
	}
	r, err := newAgent(cfg).keep(ctx, state, true)
	if err != nil {
		return nil, err
	}
	return r.Warnings, nil
}
