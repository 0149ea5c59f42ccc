package etcdconf

import (
	"slices"
	"strconv"
	"strings"
)

// kind is how etcd reads a value.
type kind int

const (
	text     kind = iota
	boolean       // a Go flag without a value means true
	integer       //
	duration      // "5m" as a flag, nanoseconds in the file
	list          // comma separated as a flag, a sequence in the file
	urls          // comma separated in both
)

// key is one of etcd's settings: its flag, and its path in the file.
type key struct {
	flag string
	kind kind
	path string // "" where the file has the flag's name, "-" where it has none
	// usage is set for the settings that matter before etcd's first start.
	usage string
	value func(*Config) any // where Config keeps it: *string, *bool, *int, *[]string
}

// yamlPath is where the file has it; "outer.inner" within a section.
func (k key) yamlPath() string {
	if k.path == "" {
		return k.flag
	}
	return k.path
}

// isPath says whether the value is a path.
func (k key) isPath() bool {
	return strings.HasSuffix(k.flag, "-dir") || strings.HasSuffix(k.flag, "-file")
}

// variable is the environment variable of a flag.
func variable(flag string) string {
	return "ETCD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// ownKeys are the settings that matter before etcd's first start.
func ownKeys() []key {
	const peer, client = "peer-transport-security.", "client-transport-security."
	return []key{
		{"name", text, "", "this member's `NAME`, where it is known beforehand", func(c *Config) any { return &c.Name }},
		{"data-dir", text, "", "the data `DIRECTORY`", func(c *Config) any { return &c.DataDir }},
		{"wal-dir", text, "", "the `DIRECTORY` of the write-ahead log, where it is a separate one", func(c *Config) any { return &c.WALDir }},
		{"listen-peer-urls", urls, "", "`URLS` that etcd listens on for peers", func(c *Config) any { return &c.ListenPeerURLs }},
		{"listen-client-urls", urls, "", "`URLS` that etcd listens on for clients", func(c *Config) any { return &c.ListenClientURLs }},
		{"initial-advertise-peer-urls", urls, "", "this member's peer `URLS`, where they are known beforehand", func(c *Config) any { return &c.AdvertisePeerURLs }},
		{"advertise-client-urls", urls, "", "this member's client `URLS`, where they are known beforehand", func(c *Config) any { return &c.AdvertiseClients }},
		{"discovery-srv", text, "", "the `DOMAIN` whose SRV records list the members", func(c *Config) any { return &c.DiscoverySRV }},
		{"discovery-srv-name", text, "", "the `SUFFIX` of the SRV service's name", func(c *Config) any { return &c.DiscoverySRVName }},
		{"initial-cluster", text, "", "the member `LIST`; must agree with what discovery says", func(c *Config) any { return &c.InitialCluster }},
		{"initial-cluster-token", text, "", "the cluster's own `TOKEN`", func(c *Config) any { return &c.InitialClusterToken }},
		{"initial-cluster-state", text, "", "new or existing", func(c *Config) any { return &c.InitialClusterState }},
		{"max-learners", integer, "", "`N` learners at most", func(c *Config) any { return &c.MaxLearners }},
		{"peer-cert-file", text, peer + "cert-file", "the peer certificate `FILE`", func(c *Config) any { return &c.PeerTLS.CertFile }},
		{"peer-key-file", text, peer + "key-file", "the peer key `FILE`", func(c *Config) any { return &c.PeerTLS.KeyFile }},
		{"peer-client-cert-file", text, peer + "client-cert-file", "the certificate `FILE` for dialling peers", func(c *Config) any { return &c.PeerTLS.ClientCertFile }},
		{"peer-client-key-file", text, peer + "client-key-file", "the key `FILE` for dialling peers", func(c *Config) any { return &c.PeerTLS.ClientKeyFile }},
		{"peer-client-cert-auth", boolean, peer + "client-cert-auth", "peers must show a certificate", func(c *Config) any { return &c.PeerTLS.ClientCertAuth }},
		{"peer-trusted-ca-file", text, peer + "trusted-ca-file", "the peer CA `FILE`", func(c *Config) any { return &c.PeerTLS.TrustedCAFile }},
		{"peer-auto-tls", boolean, peer + "auto-tls", "peer TLS with certificates that etcd makes", func(c *Config) any { return &c.PeerTLS.AutoTLS }},
		{"peer-cert-allowed-cn", list, peer + "allowed-cn", "the common `NAMES` that peers may have", func(c *Config) any { return &c.PeerTLS.AllowedCN }},
		{"peer-cert-allowed-hostname", list, peer + "allowed-hostname", "the host `NAMES` that peers may have", func(c *Config) any { return &c.PeerTLS.AllowedHostname }},
		{"peer-crl-file", text, "-", "the `FILE` of revoked peer certificates", func(c *Config) any { return &c.PeerTLS.CRLFile }},
		{"peer-skip-client-san-verification", boolean, peer + "skip-client-san-verification", "peers may call from any address", func(c *Config) any { return &c.PeerTLS.SkipClientSAN }},
		{"experimental-peer-skip-client-san-verification", boolean, "-", "peers may call from any address (etcd 3.4 to 3.6)", func(c *Config) any { return &c.PeerTLS.SkipClientSAN }},
		{"cipher-suites", list, "", "the TLS cipher `SUITES`", func(c *Config) any { return &c.CipherSuites }},
		{"tls-min-version", text, "", "the lowest TLS `VERSION`", func(c *Config) any { return &c.TLSMinVersion }},
		{"tls-max-version", text, "", "the highest TLS `VERSION`", func(c *Config) any { return &c.TLSMaxVersion }},
		{"cert-file", text, client + "cert-file", "the server certificate `FILE`", func(c *Config) any { return &c.ClientTLS.CertFile }},
		{"key-file", text, client + "key-file", "the server key `FILE`", func(c *Config) any { return &c.ClientTLS.KeyFile }},
		{"client-cert-file", text, client + "client-cert-file", "the certificate `FILE` for dialling clients' ports", func(c *Config) any { return &c.ClientTLS.ClientCertFile }},
		{"client-key-file", text, client + "client-key-file", "the key `FILE` for dialling clients' ports", func(c *Config) any { return &c.ClientTLS.ClientKeyFile }},
		{"client-cert-auth", boolean, client + "client-cert-auth", "clients must show a certificate", func(c *Config) any { return &c.ClientTLS.ClientCertAuth }},
		{"trusted-ca-file", text, client + "trusted-ca-file", "the client CA `FILE`", func(c *Config) any { return &c.ClientTLS.TrustedCAFile }},
		{"auto-tls", boolean, client + "auto-tls", "client TLS with certificates that etcd makes", func(c *Config) any { return &c.ClientTLS.AutoTLS }},
		{"client-cert-allowed-hostname", list, client + "allowed-hostname", "the host `NAMES` that clients may have", func(c *Config) any { return &c.ClientTLS.AllowedHostname }},
	}
}

// FlagInfo is one of etcd's flags that matter before its first start.
type FlagInfo struct {
	Name, Usage string
	Bool        bool
}

// Flags lists etcd's flags that matter before its first start.
func Flags() []FlagInfo {
	keys := ownKeys()
	flags := make([]FlagInfo, 0, len(keys))
	for _, k := range keys {
		flags = append(flags, FlagInfo{Name: k.flag, Usage: k.usage, Bool: k.kind == boolean})
	}
	return flags
}

// fallback is etcd's own value for a key that the file does not have.
func (k key) fallback() string {
	switch k.flag {
	case "name":
		return "default"
	case "listen-peer-urls", "initial-advertise-peer-urls":
		return defaultPeerURL
	case "listen-client-urls", "advertise-client-urls":
		return defaultClientURL
	case "initial-cluster":
		return "default=" + defaultPeerURL
	case "initial-cluster-token":
		return defaultToken
	case "initial-cluster-state":
		return "new"
	case "max-learners":
		return "1"
	default:
		if k.kind == boolean {
			return "false"
		}
		return ""
	}
}

// canonical is the value as etcd understands it, so that two spellings of one
// value compare equal.
func (k key) canonical(value string) (string, error) {
	switch k.kind {
	case boolean:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return "", invalid(strconv.Quote(value)+" is neither true nor false", nil)
		}
		return strconv.FormatBool(b), nil
	case integer:
		n, err := strconv.ParseInt(value, 0, strconv.IntSize)
		if err != nil {
			return "", invalid(strconv.Quote(value)+" is not a whole number", nil)
		}
		return strconv.FormatInt(n, 10), nil
	case urls:
		us, err := parseURLs(value)
		if err != nil {
			return "", err
		}
		return strings.Join(us, ","), nil
	case text, duration, list:
	}
	return value, nil
}

// set stores a canonical value where Config keeps it.
func (k key) set(c *Config, value string) {
	switch v := k.value(c).(type) {
	case *string:
		*v = value
	case *bool:
		*v = value == "true"
	case *int:
		*v, _ = strconv.Atoi(value) //nolint:errcheck // canonical has read it
	case *[]string:
		*v = nil
		if value != "" {
			*v = slices.Compact(strings.Split(value, ","))
		}
	}
}

// get is the inverse of set; "" where the key is absent.
func (k key) get(c *Config) string {
	switch v := k.value(c).(type) {
	case *string:
		return *v
	case *bool:
		if *v {
			return "true"
		}
	case *int:
		if *v != 0 {
			return strconv.Itoa(*v)
		}
	case *[]string:
		return strings.Join(*v, ",")
	}
	return ""
}
