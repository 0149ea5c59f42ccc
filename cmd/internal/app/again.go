package app

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
)

// again lists the commands that start this run and its etcd again: the service, where
// systemd runs it; nothing, where a container is started again by itself; else this
// command line, and etcd with what it is handed.
func (a *app) again(c *cli.Context, command []string) []string {
	if a.lookupEnv("KUBERNETES_SERVICE_HOST") != "" {
		return nil
	}
	if unit := a.unit(); unit != "" {
		return []string{"systemctl restart " + unit}
	}
	line := make([]string, 0, len(a.args))
	for _, arg := range a.args {
		line = append(line, shellWord(arg))
	}
	switch out := c.String("config-out"); {
	case len(line) == 0:
		return nil
	case len(command) > 0:
		return []string{strings.Join(line, " ") + " &"}
	case out != "":
		return []string{strings.Join(line, " "), "etcd --config-file " + shellWord(out) + " &"}
	case c.String("env-file") != "":
		return []string{strings.Join(line, " "), "(set -a; . " + shellWord(c.String("env-file")) + "; exec etcd) &"}
	}
	return []string{strings.Join(line, " ")}
}

// looking lists the command that asks the same source as this run, for the same node,
// and writes nothing. It has as flags what this run may have from variables that a
// person's shell lacks. In a pod nobody can type it.
func (a *app) looking(c *cli.Context, etcd *etcdconf.Config) []string {
	if a.lookupEnv("KUBERNETES_SERVICE_HOST") != "" {
		return nil
	}
	line := []string{"etcdinit", "discover"}
	if etcd.File != "" {
		line = append(line, "--config-file", shellWord(etcd.File))
	}
	for _, f := range etcd.Given() {
		line = append(line, "--"+f.Name+"="+shellWord(f.Value))
	}
	for _, f := range discoveryFlags() {
		name := f.Names()[0]
		if !c.IsSet(name) || name == "timeout" {
			continue
		}
		values := []string{fmt.Sprint(c.Value(name))}
		if list, ok := c.Value(name).(cli.StringSlice); ok {
			values = list.Value()
		}
		for _, v := range values {
			line = append(line, "--"+name+"="+shellWord(v))
		}
	}
	return []string{strings.Join(line, " ")}
}

// unit is the systemd unit that this process runs in, or "".
func (a *app) unit() string {
	if a.lookupEnv("INVOCATION_ID") == "" {
		return ""
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return unitOf(string(text))
}

// unitOf reads the unit of a service out of /proc/PID/cgroup, of both versions.
func unitOf(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		for part := range strings.SplitSeq(strings.TrimSpace(line), "/") {
			if strings.HasSuffix(part, ".service") && !strings.HasPrefix(part, "user@") {
				return part
			}
		}
	}
	return ""
}

// shellWord is a word for a shell.
func shellWord(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./:=,@%+-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
