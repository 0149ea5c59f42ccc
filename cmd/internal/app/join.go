package app

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/cmd/internal/admit"
	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
)

// joinConfig reads what is said about a cluster that runs already.
func (a *app) joinConfig(c *cli.Context, cfg *agent.Config) error {
	cfg.IfRunning, cfg.ReplaceAfter = agent.IfRunning(cmp.Or(c.String("if-running"), string(agent.Refuse))), c.Duration("replace-after")
	cfg.RequireMark, cfg.EtcdVersion = c.String("require-mark"), c.String("etcd-version")
	var errs []error
	switch cfg.IfRunning {
	case agent.Refuse, agent.Join, agent.Replace:
	default:
		errs = append(errs, fmt.Errorf("--if-running %q is not refuse, join or replace", cfg.IfRunning))
	}
	if cfg.ReplaceAfter < 0 {
		errs = append(errs, fmt.Errorf("--replace-after %s is negative", cfg.ReplaceAfter))
	}
	if cfg.IfRunning == agent.Replace && cfg.Timeout > 0 && cfg.Timeout <= cfg.ReplaceAfter {
		errs = append(errs, fmt.Errorf("--timeout %s ends before --replace-after %s has passed: nothing would ever be replaced (0 = no limit)", cfg.Timeout, cfg.ReplaceAfter))
	}
	if cfg.RequireMark != "" && filepath.Base(cfg.RequireMark) != cfg.RequireMark {
		errs = append(errs, fmt.Errorf("--require-mark %q is the name of a file in the data directory, without a path", cfg.RequireMark))
	}
	access, err := a.access(c, cfg.Etcd)
	errs = append(errs, err)
	cfg.Admit = func(endpoints []string, dial rendezvous.DialFunc) (agent.Cluster, error) {
		access.Dial = dial
		return admit.Open(endpoints, access)
	}
	if err := errors.Join(errs...); err != nil {
		return usage(err)
	}
	return nil
}

// access is how the client ports of a running cluster are reached: by the command's
// own flags, where it has them, by ETCDINIT_*, then by what etcdctl is told in ETCDCTL_*, then by etcd's own client TLS section.
func (a *app) access(c *cli.Context, etcd *etcdconf.Config) (admit.Access, error) {
	env := func(name string) string {
		if flag := c.String(strings.ToLower(name)); flag != "" {
			return flag
		}
		for _, prefix := range []string{"ETCDINIT_", "ETCDCTL_"} {
			for _, entry := range a.Environ {
				if value, ok := strings.CutPrefix(entry, prefix+name+"="); ok && value != "" {
					return value
				}
			}
		}
		return ""
	}
	tls := etcd.ClientTLS
	access := admit.Access{CertFile: env("CERT"), KeyFile: env("KEY"), CAFile: cmp.Or(env("CACERT"), tls.TrustedCAFile), Insecure: tls.AutoTLS && tls.CertFile == ""}
	if access.CertFile == "" && access.KeyFile == "" {
		access.CertFile, access.KeyFile = tls.CertFile, tls.KeyFile
	}
	if (access.CertFile == "") != (access.KeyFile == "") {
		return access, errors.New("ETCDINIT_CERT and ETCDINIT_KEY (or ETCDCTL_CERT and ETCDCTL_KEY) belong together")
	}
	user, password, found := strings.Cut(env("USER"), ":")
	if user != "" && !found {
		if password = env("PASSWORD"); password == "" {
			return access, fmt.Errorf("ETCDINIT_USER %q has no password: name:password", user)
		}
	}
	access.User, access.Password = user, password
	return access, nil
}
