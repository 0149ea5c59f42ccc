package plugins

const (
	// Version is the version of the contract that this package speaks.
	Version = 1
	// MaxResponse is how many bytes a plugin may print to stdout.
	MaxResponse = 1 << 20
)

// The verbs of a Request.
const (
	VerbInfo     = "info"
	VerbDiscover = "discover"
)

// The codes of an Error.
const (
	// CodeRetry: not complete, not reachable, not yet.
	CodeRetry = "retry"
	// CodeConfig: the parameters cannot be right.
	CodeConfig = "config"
	// CodeInternal: the plugin cannot go on.
	CodeInternal = "internal"
)

// Request is what a plugin reads from stdin.
type Request struct {
	Version int    `json:"version"`
	Verb    string `json:"verb"`
	// Timeout is the time until the plugin is killed, in seconds.
	Timeout    float64           `json:"timeout,omitempty"`
	Parameters map[string]string `json:"parameters,omitempty"`
	// Size is the number of members expected, Token etcd's
	// initial-cluster-token; 0 and "" where nobody said.
	Size  int    `json:"size,omitempty"`
	Token string `json:"token,omitempty"`
	Node  Node   `json:"node,omitzero"`
}

// Node is what etcdinit knows of the host it runs on.
type Node struct {
	Hostname string `json:"hostname,omitempty"`
	// Addresses are those of all interfaces, without loopback and link-local
	// ones.
	Addresses []string `json:"addresses,omitempty"`
}

// Response is what a plugin prints to stdout: exactly one of Info, Peers and
// Error.
type Response struct {
	Version int    `json:"version"`
	Info    *Info  `json:"info,omitempty"`
	Peers   []Peer `json:"peers,omitzero"` // nil is absent; empty is "nobody yet"
	// TTL is how many seconds caches may go on giving older peers.
	TTL   float64 `json:"ttl,omitempty"`
	Error *Error  `json:"error,omitempty"`
}

// Info is what a plugin says of itself.
type Info struct {
	Name             string `json:"name"`
	Version          string `json:"version"`
	ContractVersions []int  `json:"contractVersions"`
	Description      string `json:"description,omitempty"`
	// Parameters nil: the plugin takes any; empty: it takes none.
	Parameters []Parameter `json:"parameters,omitzero"`
}

// Parameter is one key that the plugin's source may hold.
type Parameter struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
	Default     string `json:"default,omitempty"` // for people
}

// Peer is one member of the cluster. Only Host must be there; README.md says
// what stands in for the rest.
type Peer struct {
	Name       string   `json:"name,omitempty"`
	Host       string   `json:"host"`
	Port       int      `json:"port,omitempty"`
	Addrs      []string `json:"addrs,omitempty"`
	PeerURLs   []string `json:"peerURLs,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
}
