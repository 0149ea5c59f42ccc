//go:build e2e

package etcdconf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// binary is the etcd of one minor, of ETCDINIT_TOOLS_DIR or of tools/build.
func binary(t *testing.T, minor string) string {
	t.Helper()
	dir := os.Getenv("ETCDINIT_TOOLS_DIR")
	if dir == "" {
		dir = "../../../.cache/tools"
	}
	path, err := filepath.Abs(filepath.Join(dir, "etcd-"+minor, "etcd"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("ETCDINIT_E2E") == "required" {
			t.Fatal(err)
		}
		t.Skipf("no etcd %s: %v (tools/build etcd-%s makes it)", minor, err, minor)
	}
	return path
}

// node is one etcd that a test runs, again and again, on the same ports.
type node struct {
	bin, dir     string
	peer, client string
}

func newNode(t *testing.T, minor string) *node {
	t.Helper()
	return &node{binary(t, minor), t.TempDir(), freeURL(t), freeURL(t)}
}

func freeURL(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was written
	return "http://" + l.Addr().String()
}

func (n *node) data() string { return filepath.Join(n.dir, "data") }

func (n *node) handoff() Handoff {
	return Handoff{Name: "etcd-0", AdvertisePeerURLs: []string{n.peer}, AdvertiseClientURLs: []string{n.client}}
}

// variables are what every node of a cluster is told in the same way.
func (n *node) variables() []string {
	return []string{"ETCD_DATA_DIR=" + n.data(), "ETCD_LISTEN_PEER_URLS=" + n.peer, "ETCD_LISTEN_CLIENT_URLS=" + n.client, "ETCD_SNAPSHOT_COUNT=5000", "ETCD_BACKEND_BATCH_INTERVAL=50ms", "ETCD_LOG_OUTPUTS=stderr"}
}

// static is the same as a file, with what bootstraps a stock cluster.
func (n *node) static(t *testing.T) string {
	t.Helper()
	path := filepath.Join(n.dir, "etcd.yaml")
	write(t, path, fmt.Sprintf("# the same on every node\ndata-dir: %s # here\nlisten-peer-urls: %s\nlisten-client-urls: %s\ninitial-cluster-state: new\ndiscovery-srv: nowhere.example.org\nfuture-key: 1\n", n.data(), n.peer, n.client))
	return path
}

// bootstrap fills the data directory by a stock start of a one-member cluster
// whose member has another name.
func (n *node) bootstrap(t *testing.T) {
	t.Helper()
	n.started(t, []string{
		"--name=stock", "--data-dir=" + n.data(), "--listen-peer-urls=" + n.peer, "--listen-client-urls=" + n.client,
		"--initial-advertise-peer-urls=" + n.peer, "--advertise-client-urls=http://old.example.org:2379", "--initial-cluster=stock=" + n.peer,
	}, nil, "stock")
}

// run starts etcd with that environment alone.
func (n *node) run(ctx context.Context, args, environ []string, out io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, n.bin, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = n.dir, append([]string{"PATH=/nonexistent"}, environ...), out, out
	return cmd
}

type buffer struct {
	sync.Mutex
	b bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.Lock()
	defer b.Unlock()
	return b.b.String()
}

// started runs etcd until its members list says name, and stops it.
func (n *node) started(t *testing.T, args, environ []string, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out buffer
	cmd := n.run(ctx, args, environ, &out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	defer func() {
		cancel()
		<-exited
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("etcd exits: %v\n%s", err, tail(out.String()))
		case <-ctx.Done():
			t.Fatalf("etcd does not list a member %q in 30 s\n%s", name, tail(out.String()))
		case <-tick.C:
		}
		if got, urls := n.member(ctx); got == name {
			if name == "etcd-0" && strings.Join(urls, ",") != n.client {
				continue // not yet published
			}
			return
		}
	}
}

// member asks the peer port for the one member.
func (n *node) member(ctx context.Context) (name string, clientURLs []string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.peer+"/members", http.NoBody)
	if err != nil {
		return "", nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", nil
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	var members []struct {
		Name       string   `json:"name"`
		ClientURLs []string `json:"clientURLs"`
	}
	if json.NewDecoder(resp.Body).Decode(&members) != nil || len(members) != 1 {
		return "", nil
	}
	return members[0].Name, members[0].ClientURLs
}

// exits runs etcd and wants it to exit with 1 and to have made no WAL.
func (n *node) exits(t *testing.T, args, environ []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out buffer
	err := n.run(ctx, args, environ, &out).Run()
	var status *exec.ExitError
	if !errors.As(err, &status) || status.ExitCode() != 1 {
		t.Errorf("etcd ended with %v, not with exit status 1\n%s", err, tail(out.String()))
	}
	n.noWAL(t)
}

func (n *node) noWAL(t *testing.T) {
	t.Helper()
	if wals, err := filepath.Glob(filepath.Join(n.dir, "*", "member", "wal", "*.wal")); err != nil || len(wals) > 0 {
		t.Errorf("etcd has made a WAL: %v %v", wals, err)
	}
}

func tail(s string) string { return s[max(0, len(s)-3000):] }

// envFileOver is the environment that a unit gives etcd: an EnvironmentFile
// that would bootstrap a stock cluster, and ours after it.
func envFileOver(environ []string, file []byte) []string {
	all := append([]string{"ETCD_NAME=other", "ETCD_INITIAL_CLUSTER=other=http://127.0.0.1:1", "ETCD_INITIAL_CLUSTER_STATE=new", "ETCD_DISCOVERY_SRV_NAME=x"}, environ...)
	return append(all, strings.Split(strings.TrimSpace(string(file)), "\n")...) // exec.Cmd lets the last one of a name win, as systemd does
}

// What a handoff rests on, with real servers of every supported minor: with
// data they start under the name and the client URLs that were handed over;
// without, they exit and bootstrap nothing.
func TestHandoffToRealEtcd(t *testing.T) {
	for _, minor := range []string{"3.4", "3.5", "3.6", "3.7"} {
		t.Run(minor, func(t *testing.T) {
			forms := map[string]func(*testing.T, *node) (args, environ []string){
				"env file": func(_ *testing.T, n *node) ([]string, []string) {
					return []string{}, envFileOver(n.variables(), EnvFile(n.handoff()))
				},
				"exec by environment": func(t *testing.T, n *node) ([]string, []string) {
					t.Helper()
					flags := []Flag{{"data-dir", n.data()}, {"initial-cluster-token", "t"}}
					environ := append(n.variables(), "ETCD_INITIAL_CLUSTER=other=http://127.0.0.1:1")
					args := []string{"etcd", "--data-dir=" + n.data(), "--name=etcd-0", "--initial-cluster="}
					c, err := Load("", flags, environ)
					if err != nil {
						t.Fatal(err)
					}
					argv, env, err := c.Exec(n.handoff(), args, environ, "")
					if err != nil {
						t.Fatal(err)
					}
					return argv[1:], env
				},
				"resolved file": func(t *testing.T, n *node) ([]string, []string) {
					t.Helper()
					return resolvedFor(t, n, n.static(t), nil), []string{"ETCD_NAME=ignored"}
				},
				"resolved file from variables": func(t *testing.T, n *node) ([]string, []string) {
					t.Helper()
					return resolvedFor(t, n, "", n.variables()), n.variables()
				},
				"exec with a file": func(t *testing.T, n *node) ([]string, []string) {
					t.Helper()
					c, err := Load(n.static(t), nil, nil)
					if err != nil {
						t.Fatal(err)
					}
					args := resolvedFor(t, n, n.static(t), nil)
					argv, env, err := c.Exec(n.handoff(), []string{"etcd", "--config-file", c.File}, []string{"ETCD_CONFIG_FILE=" + c.File}, strings.TrimPrefix(args[0], "--config-file="))
					if err != nil {
						t.Fatal(err)
					}
					return argv[1:], env
				},
			}
			for name, form := range forms {
				t.Run(name, func(t *testing.T) {
					t.Run("no data", func(t *testing.T) {
						n := newNode(t, minor)
						args, environ := form(t, n)
						n.exits(t, args, environ)
					})
					t.Run("data", func(t *testing.T) {
						n := newNode(t, minor)
						n.bootstrap(t)
						args, environ := form(t, n)
						n.started(t, args, environ, "etcd-0")
					})
				})
			}
		})
	}
}

func resolvedFor(t *testing.T, n *node, file string, environ []string) []string {
	t.Helper()
	c, err := Load(file, nil, environ)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Resolved(n.handoff())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.dir, "resolved.yaml")
	write(t, path, string(out))
	return []string{"--config-file=" + path}
}

// The precedence that Load keeps to is etcd's own, in every minor.
func TestPrecedenceOfRealEtcd(t *testing.T) {
	for _, minor := range []string{"3.4", "3.5", "3.6", "3.7"} {
		t.Run(minor, func(t *testing.T) {
			t.Run("a file makes etcd ignore variables and flags", func(t *testing.T) {
				n := newNode(t, minor)
				path := filepath.Join(n.dir, "etcd.yaml")
				write(t, path, fmt.Sprintf("name: file\ndata-dir: %s\nlisten-peer-urls: %s\nlisten-client-urls: %s\ninitial-advertise-peer-urls: %s\nadvertise-client-urls: %s\ninitial-cluster: file=%s\n", n.data(), n.peer, n.client, n.peer, n.client, n.peer))
				n.started(t, []string{"--name=flag", "--config-file=" + path}, []string{"ETCD_NAME=variable", "ETCD_DATA_DIR=" + n.dir + "/elsewhere"}, "file")
				if _, err := os.Stat(n.dir + "/elsewhere"); err == nil {
					t.Error("etcd has looked at ETCD_DATA_DIR")
				}
				n.started(t, nil, []string{"ETCD_CONFIG_FILE=" + path, "ETCD_NAME=variable"}, "file")
			})
			t.Run("a variable beside its flag makes etcd exit", func(t *testing.T) {
				for _, v := range []string{"ETCD_NAME=a", "ETCD_NAME=b", "ETCD_NAME="} {
					n := newNode(t, minor)
					n.exits(t, []string{"--name=a", "--data-dir=" + n.data()}, []string{v})
				}
			})
			t.Run("without the guard etcd bootstraps", func(t *testing.T) {
				n := newNode(t, minor)
				guardless := strings.ReplaceAll(string(EnvFile(n.handoff())), "ETCD_INITIAL_CLUSTER_STATE=existing\n", "")
				n.started(t, nil, append(n.variables(), strings.Split(strings.TrimSpace(guardless), "\n")...), "etcd-0")
			})
		})
	}
}

// TestTypesAsEachMinorReadsThem: for every key, each minor of etcd refuses a wrong
// value or does not, as the table says of it.
func TestTypesAsEachMinorReadsThem(t *testing.T) {
	wrong := map[kind][]string{
		text: {"5", "[word]", "{a: b}"}, urls: {"5", "[word]"}, boolean: {"5", "word"}, integer: {"word", "1.5", "true"}, unsigned: {"-5", "word"},
		short: {"4294967296", "'5m'"}, duration: {"'5m'", "5m"}, list: {"word", "[1]", "5"}, section: {"word", "[word]"},
	}
	for minor := oldestMinor; minor <= newestMinor; minor++ {
		t.Run(fmt.Sprintf("3.%d", minor), func(t *testing.T) {
			t.Parallel()
			bin := binary(t, fmt.Sprintf("3.%d", minor))
			path := filepath.Join(t.TempDir(), "etcd.yaml")
			for _, name := range sortedKeys(allKeys()) {
				k := allKeys()[name]
				if k.path == "-" || k.since == 0 {
					continue
				}
				for _, value := range wrong[k.kind] {
					line := lineOf(k, value)
					if unread, known := etcdRefuses(t, bin, path, line), minor >= k.since && minor <= k.until; unread != known {
						t.Errorf("%s: etcd does not read it: %v, but the table knows it in 3.%d to 3.%d", line, unread, k.since, k.until)
					}
				}
			}
		})
	}
}

// etcdRefuses runs etcd with a file that it does not start with, whatever the line is
// (its name is not in initial-cluster), and tells whether it could not read it.
func etcdRefuses(t *testing.T, bin, path, line string) bool {
	t.Helper()
	var text strings.Builder
	text.WriteString(line + "\n")
	for key, value := range map[string]string{"data-dir": filepath.Join(filepath.Dir(path), "data"), "name": "a", "initial-cluster": "b=http://192.0.2.1:1", "log-level": "error"} {
		if !strings.HasPrefix(line, key+":") {
			text.WriteString(key + ": " + value + "\n")
		}
	}
	write(t, path, text.String())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "--config-file", path)
	cmd.Dir, cmd.Env = filepath.Dir(path), []string{"PATH=/nonexistent"}
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%s: etcd ends with success: %s", line, out)
	}
	return bytes.Contains(out, []byte("cannot unmarshal")) || bytes.Contains(out, []byte("invalid peer-transport-security"))
}
