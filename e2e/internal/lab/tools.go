//go:build e2e

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Versions are the minors of etcd that a seed must serve, oldest first.
func Versions() []string { return []string{"3.4", "3.5", "3.6", "3.7"} }

// tools finds programs: those of tools/NAME where tools/build puts them, all
// others in PATH.
type tools struct {
	root string // of the module
	dir  string
}

func findTools() (tools, error) {
	root, err := moduleRoot()
	if err != nil {
		return tools{}, err
	}
	found := tools{root: root, dir: os.Getenv("ETCDINIT_TOOLS_DIR")}
	if found.dir == "" {
		found.dir = filepath.Join(root, ".cache", "tools")
	}
	for _, name := range []string{"ip", "etcd-3.6"} {
		if _, err := found.path(name); err != nil {
			return tools{}, err
		}
	}
	return found, nil
}

// path is where a tool is. "etcd-3.6" is the server; "etcd-3.6/etcdctl" and
// "etcd-3.6/etcdutl" are what came with it.
func (t tools) path(name string) (string, error) {
	var path string
	switch {
	case name == "coredns":
		path = filepath.Join(t.dir, name, name)
	case strings.HasPrefix(name, "etcd-") && strings.Contains(name, "/"):
		path = filepath.Join(t.dir, name)
	case strings.HasPrefix(name, "etcd-"):
		path = filepath.Join(t.dir, name, "etcd")
	default:
		found, err := exec.LookPath(name)
		if err != nil {
			for _, dir := range []string{"/usr/sbin", "/sbin"} {
				if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
					return filepath.Join(dir, name), nil
				}
			}
			return "", fmt.Errorf("%s is not installed (apt-get install iproute2 iptables dnsmasq-base bind9)", name)
		}
		return found, nil
	}
	if _, err := os.Stat(path); err != nil {
		tool, _, _ := strings.Cut(name, "/")
		return "", fmt.Errorf("%w (tools/build %s makes it)", err, tool)
	}
	return path, nil
}

func (t tools) dirs() []string { return []string{t.root, t.dir, os.TempDir()} }

// Tool is the path of a tool, for Start and Run.
func (l *Lab) Tool(name string) string {
	l.t.Helper()
	path, err := l.tools.path(name)
	if err != nil {
		skip(l.t, "%v", err)
	}
	return path
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if content, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil &&
			strings.HasPrefix(string(content), "module github.com/etcdinit/etcdinit\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not in the module github.com/etcdinit/etcdinit")
		}
		dir = parent
	}
}

// Build builds a command of this module as it is released (static, stripped)
// into dir and returns its path; flags go to go build. TestMain calls it once.
func Build(ctx context.Context, dir, pkg string, flags ...string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, filepath.Base(pkg))
	args := append([]string{"build", "-trimpath", "-tags", "grpcnotrace,nethttpomithttp2,urfave_cli_no_docs", "-ldflags", "-s -w", "-o", out}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w: %s", pkg, err, text)
	}
	return out, nil
}
