package agent

import (
	"context"

	"github.com/etcdinit/etcdinit/seed"
)

// Sound returns the refusal for a directory that is not valid, else nil.
func Sound(s *seed.State) error {
	if s.Kind == seed.Broken {
		return broken(s)
	}
	return nil
}

// Check holds a valid directory against discovery, as a restart does, without
// a write. It returns the warnings.
func Check(ctx context.Context, cfg Config, state *seed.State) ([]string, error) {
	r, err := newAgent(cfg).keep(ctx, state, true)
	if err != nil {
		return nil, err
	}
	return r.Warnings, nil
}
