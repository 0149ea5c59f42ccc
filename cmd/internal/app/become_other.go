//go:build !linux

package app

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
)

// become replaces this process by etcd. A resolved configuration needs
// --config-out: only Linux hands it over in memory.
func (a *app) become(cfg agent.Config, r *agent.Result, path string, command []string) error {
	if cfg.ConfigOut == "" && cfg.Etcd.File != "" {
		return usage(errors.New("exec with a configuration file needs --config-out FILE on this system"))
	}
	argv, env, err := cfg.Etcd.Exec(r.Handoff, command, a.Environ, cfg.ConfigOut)
	if err != nil {
		return err
	}
	return fmt.Errorf("exec %s: %w", path, syscall.Exec(path, argv, env))
}
