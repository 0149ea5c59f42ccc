package discovery

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Peer is one member of the cluster as a source describes it.
type Peer struct {
	// Name is the member name: the first label of Host where that is unique
	// in the set, else the whole Host, unless the source names members itself.
	Name string `json:"name"`
	// Host is the peer's host name, lower-case and without a trailing dot, or
	// an IP address without brackets.
	Host string `json:"host"`
	// Port is the peer port.
	Port uint16 `json:"port"`
	// Addrs are all addresses of Host, sorted, IPv4 unmapped.
	Addrs []netip.Addr `json:"addrs"`
	// PeerURLs and ClientURLs are scheme://host:port, sorted. A source that
	// knows no client URLs leaves them to Await, which derives them from the
	// client listeners (Env.ClientListeners).
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs,omitempty"`
	// Alias is the canonical name behind Host where DNS answered with a CNAME.
	Alias string `json:"alias,omitempty"`
	// TTL says how long caches may go on giving an older answer; 0 where the
	// source has no caches. A mismatch is final only after it has passed.
	TTL time.Duration `json:"-"`
	// AsIs: somebody wrote this name down, or has allowed it, whatever it is made
	// of.
	AsIs bool `json:"-"`
}

// Provider finds the peers of one cluster.
type Provider interface {
	// Discover returns the whole peer set or an error, never a part of it.
	// It asks once; trying again is Await's work. Errors are *Error.
	Discover(ctx context.Context) ([]Peer, error)
}

// Sized is a Provider that knows how many peers there are because its answer
// is complete by definition: a list that somebody wrote down. Only such a
// source may be awaited without a size.
type Sized interface {
	Provider
	// Sized reports whether the answer is complete by definition.
	Sized() bool
}

// Listener is the scheme and port of one listen URL.
type Listener struct {
	Scheme string
	Port   uint16
}

// Env is what a source may know of the node and of etcd's configuration.
// The zero value of each field means "not told".
type Env struct {
	Size            int              // members expected
	PeerScheme      string           // "http" or "https", from the peer TLS configuration
	ClientScheme    string           // the same for clients
	PeerPorts       []uint16         // ports of listen-peer-urls (or of initial-advertise-peer-urls)
	MappedPorts     bool             // this node was told who it is: the records' ports need not be those it listens on
	ClientListeners []Listener       // listen-client-urls
	ClientURLs      []string         // advertise-client-urls: where it is set, no source is asked for client URLs
	ServiceSuffix   string           // discovery-srv-name
	DNSServers      []netip.AddrPort // --dns-server; empty: those of ResolvConf
	ResolvConf      string           // "/etc/resolv.conf" where empty
	Token           string           // initial-cluster-token
	PluginDirs      []string         // where exec: looks for plugins
	Pod             bool             // this is a container of Kubernetes: only for hints
	LocalAddrs      []netip.Addr     // where self is looked for; empty: all addresses of this host
	Log             *zap.Logger      // never nil below the command line
}

// Kubernetes reports whether a name is one of a Kubernetes cluster, or asked for in a
// pod: advice about Services and pods is of no use elsewhere.
func (e Env) Kubernetes(host string) bool {
	return e.Pod || slices.Contains(strings.Split(host, "."), "svc")
}

// ClientPort reports whether this node's etcd, which was told of no other ports,
// has this port for its clients and not for its peers.
func (e Env) ClientPort(port uint16) bool {
	return !e.MappedPorts && len(e.PeerPorts) > 0 && !slices.Contains(e.PeerPorts, port) &&
		slices.ContainsFunc(e.ClientListeners, func(l Listener) bool { return l.Port == port })
}

// Factory makes the provider of one source URL; it asks nothing yet. A source
// that cannot be understood is an *Error of kind Config.
type Factory func(source *url.URL, env Env) (Provider, error)

// Registry maps the scheme of a source URL to its factory. It is a map
// literal in the program: a scheme given twice does not compile.
type Registry map[string]Factory
