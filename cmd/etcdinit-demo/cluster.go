package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/srv"
)

const patience = 30 * time.Second

// member is one node: an address of its own, and directories that on a real
// cluster would be on a machine of their own.
type member struct {
	name   string
	addr   netip.Addr
	dir    string
	result *agent.Result
	etcd   *embed.Etcd
	spans  []span
}

// span is one bar of the timeline.
type span struct {
	step       string
	start, end time.Time
}

func newMember(i int, dir string) *member {
	name := "etcd-" + strconv.Itoa(i)
	return &member{name: name, addr: netip.AddrFrom4([4]byte{127, 0, 0, byte(i & 0xff)}), dir: filepath.Join(dir, name)}
}

func (m *member) host() string { return m.name + "." + domain }
func (m *member) clientURL(port int) string {
	return "http://" + net.JoinHostPort(m.addr.String(), strconv.Itoa(port))
}

type cluster struct {
	dir                  string
	peerPort, clientPort int
	members              []*member
	dns                  netip.AddrPort
	server               *dnsServer
	config               string
	start                time.Time
}

// checkAddresses makes sure that every member's ports are free, with one clear
// line where they are not.
func (c *cluster) checkAddresses() error {
	for _, m := range c.members {
		if err := c.checkAddressesOf(m); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) checkAddressesOf(m *member) error {
	for _, port := range []int{c.peerPort, c.clientPort} {
		l, err := net.Listen("tcp4", net.JoinHostPort(m.addr.String(), strconv.Itoa(port))) //nolint:noctx // closed at once
		if err != nil {
			return c.explain(m, port, err)
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) explain(m *member, port int, err error) error {
	if runtime.GOOS == "darwin" && m.addr != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		return fmt.Errorf("%s cannot be bound (%w): this system has no loopback alias for it; add it with: sudo ifconfig lo0 alias %s up", m.addr, err, m.addr)
	}
	return fmt.Errorf("port %d of %s is taken (%w): stop what uses it, or choose others with --peer-port and --client-port", port, m.addr, err)
}

func (c *cluster) records() records {
	r := records{port: uint16(c.peerPort), hosts: map[string]netip.Addr{}} //nolint:gosec // it was bound, so it is a port
	for _, m := range c.members {
		r.hosts[m.host()] = m.addr
		r.order = append(r.order, m.host())
	}
	return r
}

// writeConfig writes the one static configuration. Its data-dir is relative:
// every member's folder stands for a machine with a disk of its own.
func (c *cluster) writeConfig() error {
	c.config = fmt.Sprintf(`data-dir: data
listen-peer-urls: http://0.0.0.0:%d
listen-client-urls: http://0.0.0.0:%d
initial-cluster-token: demo-%s
discovery-srv: %s
log-level: error
`, c.peerPort, c.clientPort, strconv.FormatInt(c.start.UnixNano(), 36), strings.TrimSuffix(domain, "."))
	return os.WriteFile(c.configPath(), []byte(c.config), 0o600)
}

func (c *cluster) configPath() string { return filepath.Join(c.dir, "etcd.yaml") }

// boot runs all agents at once; each starts its etcd as soon as it is done.
func (c *cluster) boot(ctx context.Context, change func(*agent.Config)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.start = time.Now()
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() {
			if err := c.bootMember(ctx, m, change); err != nil {
				errs[i] = fmt.Errorf("%s: %w", m.name, err)
				cancel() // the others would wait for this one
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		c.stop()
		return err
	}
	return nil
}

// load reads the one configuration for a member.
func (c *cluster) load(m *member) (*etcdconf.Config, error) {
	conf, err := etcdconf.Load(c.configPath(), nil, nil)
	if err != nil {
		return nil, err
	}
	conf.DataDir = filepath.Join(m.dir, conf.DataDir)
	return conf, nil
}

// bootMember runs the agent and, once that is done, etcd; change is what differs
// from a first start.
func (c *cluster) bootMember(ctx context.Context, m *member, change func(*agent.Config)) error {
	conf, err := c.load(m)
	if err != nil {
		return err
	}
	resolved := filepath.Join(m.dir, "etcd.yaml")
	cfg := agent.Config{
		Etcd:     conf,
		Registry: discovery.Registry{"srv": srv.New},
		Source:   "srv://" + conf.DiscoverySRV, Size: len(c.members),
		Timeout:    patience,
		DNSServers: []netip.AddrPort{c.dns},
		SelfIP:     m.addr, // on machines of their own no flag says this
		ListenSelf: true,
		ConfigOut:  resolved,
		Quorum:     agent.QuorumAll,
		Log:        zap.NewNop(),
	}
	if change != nil {
		change(&cfg)
	}
	if m.result, err = agent.Init(ctx, cfg, false); err != nil {
		return err
	}
	for _, s := range m.result.Spans {
		if s.Ms < 1 {
			continue // not worth a bar
		}
		m.spans = append(m.spans, span{s.Step, s.Start, s.Start.Add(time.Duration(s.Ms * float64(time.Millisecond)))})
	}
	return c.startEtcd(ctx, m, resolved)
}

// startEtcd starts a real etcd from the resolved configuration alone.
func (c *cluster) startEtcd(ctx context.Context, m *member, resolved string) error {
	cfg, err := embed.ConfigFromFile(resolved)
	if err != nil {
		return err
	}
	cfg.Dir = filepath.Join(m.dir, "data")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	starting := time.Now()
	m.etcd, err = embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	select {
	case <-m.etcd.Server.ReadyNotify():
		m.spans = append(m.spans, span{"etcd starts, elects, is ready", starting, time.Now()})
		return nil
	case err := <-m.etcd.Err():
		return err
	case <-ctx.Done():
		return fmt.Errorf("etcd is not ready: %w", context.Cause(ctx))
	}
}

// stop ends all servers at once. One that never became ready may not end; the
// process does.
func (c *cluster) stop() {
	var wg sync.WaitGroup
	for _, m := range c.members {
		if m.etcd != nil {
			wg.Go(m.stop)
		}
	}
	stopped := make(chan struct{})
	go func() { wg.Wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(5 * time.Second):
	}
}

// stop ends the member's server at once.
func (m *member) stop() {
	m.etcd.Server.HardStop() // there may be nobody to hand leadership to
	m.etcd.Close()
	m.etcd = nil
}

// resolveHere makes every name that this process looks up go to the demo's own
// DNS server, as resolv.conf would on the members' machines.
func (c *cluster) resolveHere() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, c.dns.String())
	}}
}

// prove writes a key through the first member, reads it through the last, and
// prints the member list, all over etcd's JSON gateway.
func (c *cluster) prove(ctx context.Context, out io.Writer) error {
	first := c.members[0]
	if err := call(ctx, first.clientURL(c.clientPort)+"/v3/kv/put", map[string]string{"key": b64(key), "value": b64(value)}, &struct{}{}); err != nil {
		return err
	}
	return c.show(ctx, out, "written through "+first.name)
}

// The key that shows that the cluster works.
const key, value = "how", "all at once"

// show reads the key through the last member and prints the member list.
func (c *cluster) show(ctx context.Context, out io.Writer, origin string) error {
	last := c.members[len(c.members)-1].clientURL(c.clientPort)
	var got struct {
		Kvs []struct{ Value string }
	}
	if err := call(ctx, last+"/v3/kv/range", map[string]string{"key": b64(key)}, &got); err != nil {
		return err
	}
	if len(got.Kvs) != 1 || got.Kvs[0].Value != b64(value) {
		return fmt.Errorf("%s was %s, but %s answers %v", key, origin, last, got.Kvs)
	}
	var list struct {
		Header struct {
			ClusterID string `json:"cluster_id"`
		}
		Members []struct {
			ID                   string
			Name                 string
			PeerURLs, ClientURLs []string
		}
	}
	if err := call(ctx, last+"/v3/cluster/member/list", map[string]string{}, &list); err != nil {
		return err
	}
	fmt.Fprintf(out, "Cluster %s: %q %s, read through %s.\n\n", c.members[0].result.ClusterID, value, origin, c.members[len(c.members)-1].name)
	for _, m := range list.Members {
		id, err := strconv.ParseUint(m.ID, 10, 64)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  %-16x  %-8s  %s  %s\n", id, m.Name, strings.Join(m.PeerURLs, ","), strings.Join(m.ClientURLs, ","))
	}
	return nil
}

// call posts one request to etcd's JSON gateway.
func call(ctx context.Context, url string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s: %s", url, resp.Status, data)
	}
	return json.Unmarshal(data, out)
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}
