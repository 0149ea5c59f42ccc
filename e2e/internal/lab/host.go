//go:build e2e

package lab

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"
)

// Host is one machine of the lab.
type Host struct {
	Name string
	Dir  string // seen by the host's processes as Lab.Home

	lab  *Lab
	ns   *namespace
	etc  string // resolv.conf and hosts
	port string // its end on the bridge

	mu    sync.Mutex
	addrs []netip.Addr
	env   map[string]string

	updates int // of the zone that it serves
}

// Addrs are the host's addresses, IPv4 first.
func (h *Host) Addrs() []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]netip.Addr(nil), h.addrs...)
}

// Addr4 is the host's IPv4 address; the zero Addr where it has none.
func (h *Host) Addr4() netip.Addr { return h.first(netip.Addr.Is4) }

// Addr6 is the host's IPv6 address; the zero Addr where it has none.
func (h *Host) Addr6() netip.Addr { return h.first(netip.Addr.Is6) }

func (h *Host) first(is func(netip.Addr) bool) netip.Addr {
	for _, addr := range h.Addrs() {
		if is(addr) {
			return addr
		}
	}
	return netip.Addr{}
}

// SetAddrs gives the host these addresses and takes all others away.
func (h *Host) SetAddrs(addrs ...netip.Addr) {
	h.lab.t.Helper()
	commands := []string{"addr flush dev eth0 scope global"}
	for _, addr := range addrs {
		if addr.Is4() {
			commands = append(commands, fmt.Sprintf("addr add %s/24 dev eth0", addr))
		} else {
			commands = append(commands, fmt.Sprintf("addr add %s/64 dev eth0 nodad", addr))
		}
	}
	h.lab.ip(h.ns, commands...)
	sorted := append([]netip.Addr(nil), addrs...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Less(sorted[j]) })
	h.mu.Lock()
	h.addrs = sorted
	h.mu.Unlock()
	for _, other := range h.lab.allHosts() { // nobody believes an old ARP entry
		h.lab.ip(other.ns, "neigh flush dev eth0")
	}
}

// Setenv sets a variable for every process started later; "" removes it.
func (h *Host) Setenv(key, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if value == "" {
		delete(h.env, key)
		return
	}
	h.env[key] = value
}

// SetenvRaw is Setenv in which "" is a value.
func (h *Host) SetenvRaw(key, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.env[key] = value
}

// Clearenv forgets what Setenv has set.
func (h *Host) Clearenv() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.env)
}

// Stat is os.Stat of a file of the host.
func (h *Host) Stat(name string) (fs.FileInfo, error) { return os.Stat(h.Path(name)) }

// Path is where the test finds a file that the host's processes know under a
// path relative to Lab.Home.
func (h *Host) Path(name string) string {
	if rel, err := filepath.Rel(h.lab.Home, name); filepath.IsAbs(name) && err == nil {
		name = rel
	}
	return filepath.Join(h.Dir, name)
}

// ReadJSON reads a file of the host into v.
func (h *Host) ReadJSON(name string, v any) {
	h.lab.t.Helper()
	data, err := os.ReadFile(h.Path(name))
	h.lab.must(err)
	h.lab.must(json.Unmarshal(data, v))
}

// Write writes a file of the host, with its directories.
func (h *Host) Write(name, content string) {
	h.lab.t.Helper()
	h.lab.must(os.MkdirAll(filepath.Dir(h.Path(name)), 0o755))
	h.lab.must(os.WriteFile(h.Path(name), []byte(content), 0o644))
}

// Read returns a file of the host.
func (h *Host) Read(name string) string {
	h.lab.t.Helper()
	content, err := os.ReadFile(h.Path(name))
	h.lab.must(err)
	return string(content)
}

// Wipe removes files of the host and all below them: a lost disk.
func (h *Host) Wipe(names ...string) {
	h.lab.t.Helper()
	for _, name := range names {
		h.lab.must(os.RemoveAll(h.Path(name)))
	}
}

// Tree is a hash over names, contents, modes and modification times of all
// files below name; two equal hashes mean that nothing was written between.
// Where nothing is, it is "nothing".
func (h *Host) Tree(name string) string {
	h.lab.t.Helper()
	if _, err := h.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return "nothing"
	}
	sum := sha256.New()
	err := filepath.WalkDir(h.Path(name), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %v %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		if !info.Mode().IsRegular() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(sum, f)
		return firstError(err, f.Close())
	})
	h.lab.must(err)
	return hex.EncodeToString(sum.Sum(nil))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Resolv writes the host's resolv.conf: its nameservers in their order.
func (h *Host) Resolv(servers ...netip.Addr) {
	h.lab.t.Helper()
	var conf strings.Builder
	for _, server := range servers {
		fmt.Fprintf(&conf, "nameserver %s\n", server)
	}
	conf.WriteString("options timeout:1 attempts:1\n")
	h.lab.must(os.WriteFile(filepath.Join(h.etc, "resolv.conf"), []byte(conf.String()), 0o644))
}

// UseDNS makes servers, in their order, the nameservers of all hosts.
func (l *Lab) UseDNS(hosts []*Host, servers ...*Host) {
	l.t.Helper()
	for _, h := range hosts {
		var addrs []netip.Addr
		for _, server := range servers {
			addrs = append(addrs, server.Addrs()[0])
		}
		h.Resolv(addrs...)
	}
}

// Drop throws away every packet that comes from the others: they still hear
// this host, and it does not hear them.
func (h *Host) Drop(others ...*Host) {
	h.lab.t.Helper()
	for _, other := range others {
		for _, addr := range other.Addrs() {
			h.iptables(addr, "-A", "INPUT", "-s", addr.String(), "-j", "DROP")
		}
	}
}

// DropCalls throws away what the others open connections with: this host
// reaches them, and they do not reach it.
func (h *Host) DropCalls(others ...*Host) {
	h.lab.t.Helper()
	for _, other := range others {
		for _, addr := range other.Addrs() {
			h.iptables(addr, "-A", "INPUT", "-s", addr.String(), "-p", "tcp", "--syn", "-j", "DROP")
		}
	}
}

// Heal ends all that Drop and DropCalls do on this host.
func (h *Host) Heal() {
	h.lab.t.Helper()
	for _, addr := range h.Addrs() {
		h.iptables(addr, "-F", "INPUT")
	}
}

func (h *Host) iptables(family netip.Addr, args ...string) {
	h.lab.t.Helper()
	tool := "iptables"
	if family.Is6() {
		tool = "ip6tables"
	}
	path, err := h.lab.tools.path(tool)
	if err != nil {
		skip(h.lab.t, "%v", err)
	}
	if out, err := h.ns.output(h.ns.command(h.lab.ctx, path, append([]string{"-w"}, args...)...)); err != nil {
		h.lab.t.Fatalf("lab: %s: %s %v: %v: %s", h.Name, tool, args, err, strings.TrimSpace(out))
	}
}

// Unplug takes the host off the bridge: it is silent, and hears nothing.
func (h *Host) Unplug() {
	h.lab.t.Helper()
	h.lab.ip(h.lab.hub, "link set "+h.port+" nomaster")
}

// Plug puts it back.
func (h *Host) Plug() {
	h.lab.t.Helper()
	h.lab.ip(h.lab.hub, "link set "+h.port+" master br0")
}

// Dial opens a connection from this host to a literal address and port.
func (h *Host) Dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	if _, parseErr := netip.ParseAddrPort(addr); parseErr != nil {
		return nil, parseErr // names would be resolved outside the host
	}
	doErr := h.ns.do(func() error {
		conn, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, addr)
		return nil
	})
	return conn, firstError(doErr, err)
}

// HTTP is a client on this host that asks literal addresses.
func (h *Host) HTTP(conf *tls.Config) *http.Client {
	return &http.Client{
		Timeout:   3 * time.Second,
		Transport: &http.Transport{DialContext: h.Dial, TLSClientConfig: conf, DisableKeepAlives: true},
	}
}

// Listen opens a TCP listener on this host.
func (h *Host) Listen(addr string) net.Listener {
	h.lab.t.Helper()
	var listener net.Listener
	h.lab.must(h.ns.do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(h.lab.ctx, "tcp", addr)
		return err
	}))
	h.lab.t.Cleanup(func() { _ = listener.Close() }) //nolint:errcheck // the test may have closed it
	return listener
}

// ListenPacket opens a UDP socket on this host.
func (h *Host) ListenPacket(addr string) net.PacketConn {
	h.lab.t.Helper()
	var conn net.PacketConn
	h.lab.must(h.ns.do(func() (err error) {
		conn, err = (&net.ListenConfig{}).ListenPacket(h.lab.ctx, "udp", addr)
		return err
	}))
	h.lab.t.Cleanup(func() { _ = conn.Close() }) //nolint:errcheck // the test may have closed it
	return conn
}
