package app

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
)

// promoteBeside starts a promotion that outlives this process, which is about to
// become etcd: a learner that nobody promotes does not vote. That it fails puts
// nothing at risk.
func (a *app) promoteBeside(cfg agent.Config, r *agent.Result, command []string) {
	if !r.Learner {
		return
	}
	args := []string{"promote", "--wait"}
	if cfg.Etcd.File != "" {
		args = append(args, "--config-file", cfg.Etcd.File)
	}
	_, given, err := etcdconf.ExecFlags(command)
	if err == nil && cfg.Etcd.File == "" {
		own := make(map[string]bool)
		for _, f := range etcdconf.Flags() {
			own[f.Name] = true
		}
		for _, f := range given {
			if own[f.Name] {
				args = append(args, "--"+f.Name+"="+f.Value)
			}
		}
	}
	self, err := os.Executable()
	if err == nil {
		child := exec.Command(self, args...) //nolint:noctx // this program, which outlives this process on purpose
		child.Env, child.Stdout, child.Stderr = a.Environ, os.Stderr, os.Stderr
		err = child.Start()
	}
	if err != nil {
		a.log.Warn("this member stays a learner until somebody runs etcdinit promote", zap.Error(err))
		return
	}
	a.log.Info("promoting this learner beside etcd", zap.Strings("args", args))
}

// versionTime bounds the question for etcd's version.
const versionTime = 10 * time.Second

// etcdVersion asks the etcd that is going to run for its version; "" where it does
// not say.
func (a *app) etcdVersion(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	version := versionIn(string(out))
	if err != nil || version == "" {
		a.log.Warn(path+" does not tell its version: whether it can read the running cluster's data is not known", zap.Error(err))
	}
	return version
}

// versionIn takes the version out of what etcd --version prints.
func versionIn(text string) string {
	m := regexp.MustCompile(`(?m)^etcd Version: (\d+\.\d+\.\S+)`).FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return m[1]
}
