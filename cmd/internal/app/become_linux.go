package app

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

// become replaces this process by etcd. A resolved configuration needs no file
// anywhere: it is handed over in memory, unless --config-out names a place.
func (a *app) become(cfg agent.Config, r *agent.Result, path string, command []string) error {
	resolved := cfg.ConfigOut
	if resolved == "" && cfg.Etcd.File != "" {
		data, err := cfg.Etcd.Resolved(r.Handoff)
		if err != nil {
			return err
		}
		if resolved, err = inMemory(data); err != nil {
			return &exit.Error{Status: exit.Write, Reason: "output", Msg: "hand the resolved configuration over in memory (name a place for it with --config-out)", Err: err}
		}
	}
	argv, env, err := cfg.Etcd.Exec(r.Handoff, command, a.Environ, resolved)
	if err != nil {
		return err
	}
	a.log.Info("starting "+path, zap.Strings("args", argv[1:]))
	return fmt.Errorf("exec %s: %w", path, unix.Exec(path, argv, env))
}

// inMemory returns a path below /proc/self that reads data for as long as this
// process, whatever program it becomes, lives.
func inMemory(data []byte) (string, error) {
	fd, err := unix.MemfdCreate("etcd.yaml", 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), "etcd.yaml")
	if _, err = f.Write(data); err != nil {
		return "", errors.Join(err, f.Close())
	}
	// A duplicate outlives f, whose finalizer would close it.
	keep, err := unix.Dup(fd)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return "/proc/self/fd/" + strconv.Itoa(keep), nil
}
