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
	integer       // a whole number, in the file of 64 bits
	unsigned      // one that is not negative
	short         // one of 32 bits that is not negative
	duration      // "5m" as a flag, nanoseconds in the file
	list          // comma separated as a flag, a sequence in the file
	urls          // comma separated in both
	section       // holds other keys; in the file only
	anything      // taken as it is
)

// key is one of etcd's settings: its flag, and its path in the file.
type key struct {
	flag string // "" where only the file has it
	kind kind
	path string // "" where the file has the flag's name, "-" where it has none
	// since and until are the first and the last minor of 3.x whose configuration
	// file has it.
	since, until int
	// usage is set for the settings that matter before etcd's first start.
	usage   string
	value   func(*Config) any // where Config keeps it: *string, *bool, *int, *[]string
	refused bool              // it cannot stand beside a seeded directory
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

// The minors of etcd that the table is about.
const oldestMinor, newestMinor = 4, 7

// keyTable is every setting of etcd 3.4 to 3.7: the flag, or the path in the file
// behind "!" where no flag is; the kind; the minors whose file has it, "-" for
// none; the path in the file where it is not the flag. The tests hold it against
// etcd's own parser and the four servers.
const keyTable = `
advertise-client-urls                                   urls     3.4-3.7
auth-token                                              text     3.4-3.7
auth-token-ttl                                          uint     3.4-3.7
auto-compaction-mode                                    text     3.4-3.7
auto-compaction-retention                               text     3.4-3.7
auto-tls                                                bool     3.4-3.7 client-transport-security.auto-tls
backend-batch-interval                                  duration 3.4-3.7
backend-batch-limit                                     int      3.4-3.7
backend-bbolt-freelist-type                             text     3.5-3.7
bcrypt-cost                                             uint     3.4-3.7
bootstrap-defrag-threshold-megabytes                    uint     3.6-3.7
cert-file                                               text     3.4-3.7 client-transport-security.cert-file
cipher-suites                                           list     3.4-3.7
client-cert-allowed-hostname                            list     3.5-3.7 client-transport-security.allowed-hostname
client-cert-auth                                        bool     3.4-3.7 client-transport-security.client-cert-auth
client-cert-file                                        text     3.5-3.7 client-transport-security.client-cert-file
client-crl-file                                         text     -
client-key-file                                         text     3.5-3.7 client-transport-security.client-key-file
!client-transport-security                              section  3.4-3.7 client-transport-security
!client-transport-security.allowed-cn                   list     3.5-3.7 client-transport-security.allowed-cn
!client-transport-security.skip-client-san-verification bool     3.6-3.7 client-transport-security.skip-client-san-verification
compact-hash-check-time                                 duration 3.6-3.7
compaction-batch-limit                                  int      3.6-3.7
compaction-sleep-interval                               duration 3.6-3.7
corrupt-check-time                                      duration 3.6-3.7
cors                                                    text     3.4-3.7
data-dir                                                text     3.4-3.7
debug                                                   bool     3.4-3.4
discovery                                               text     3.4-3.6
discovery-cacert                                        text     -
discovery-cert                                          text     -
discovery-config                                        section  3.6-3.7
discovery-dial-timeout                                  duration -
discovery-endpoints                                     any      -
discovery-fallback                                      text     -
discovery-insecure-skip-tls-verify                      bool     -
discovery-insecure-transport                            bool     -
discovery-keepalive-time                                duration -
discovery-keepalive-timeout                             duration -
discovery-key                                           text     -
discovery-password                                      text     -
discovery-proxy                                         text     3.4-3.6
discovery-request-timeout                               duration -
discovery-srv                                           text     3.4-3.7
discovery-srv-name                                      text     3.4-3.7
discovery-token                                         any      -
discovery-user                                          text     -
distributed-tracing-address                             text     3.6-3.7
distributed-tracing-instance-id                         text     3.6-3.7
distributed-tracing-sampling-rate                       int      3.6-3.7
distributed-tracing-service-name                        text     3.6-3.7
downgrade-check-time                                    duration 3.6-3.7
election-timeout                                        uint     3.4-3.7
enable-distributed-tracing                              bool     3.6-3.7
enable-grpc-gateway                                     bool     3.4-3.7
enable-log-rotation                                     bool     3.5-3.7
enable-pprof                                            bool     3.4-3.7
enable-v2                                               bool     3.4-3.5
experimental-backend-bbolt-freelist-type                text     3.4-3.4
experimental-bootstrap-defrag-threshold-megabytes       uint     3.5-3.6
experimental-compact-hash-check-enabled                 bool     3.5-3.6
experimental-compact-hash-check-time                    duration 3.5-3.6
experimental-compaction-batch-limit                     int      3.4-3.6
experimental-compaction-sleep-interval                  duration 3.5-3.6
experimental-corrupt-check-time                         duration 3.4-3.6
experimental-distributed-tracing-address                text     3.5-3.6
experimental-distributed-tracing-instance-id            text     3.5-3.6
experimental-distributed-tracing-sampling-rate          int      3.5-3.6
experimental-distributed-tracing-service-name           text     3.5-3.6
experimental-downgrade-check-time                       duration 3.5-3.6
experimental-enable-distributed-tracing                 bool     3.5-3.6
experimental-enable-lease-checkpoint                    bool     3.4-3.6
experimental-enable-lease-checkpoint-persist            bool     3.4-3.6
experimental-enable-v2v3                                text     3.4-3.5
experimental-initial-corrupt-check                      bool     3.4-3.6
experimental-memory-mlock                               bool     3.5-3.6
experimental-peer-skip-client-san-verification          bool     3.6-3.6
!experimental-snapshot-catch-up-entries                 uint     3.5-3.6
experimental-snapshot-catchup-entries                   uint     -
experimental-stop-grpc-service-on-defrag                bool     3.5-3.6
experimental-txn-mode-write-with-shared-buffer          bool     3.5-3.6
experimental-warning-apply-duration                     duration 3.4-3.6
experimental-warning-unary-request-duration             duration 3.6-3.6
experimental-watch-progress-notify-interval             duration 3.4-3.6
feature-gates                                           text     3.6-3.7
force-new-cluster                                       bool     3.4-3.7
!grpc-additional-server-options                         any      3.6-3.7 grpc-additional-server-options
grpc-keepalive-interval                                 duration 3.4-3.7
grpc-keepalive-min-time                                 duration 3.4-3.7
grpc-keepalive-timeout                                  duration 3.4-3.7
heartbeat-interval                                      uint     3.4-3.7
host-whitelist                                          text     3.4-3.7
initial-advertise-peer-urls                             urls     3.4-3.7
initial-cluster                                         text     3.4-3.7
initial-cluster-state                                   text     3.4-3.7
initial-cluster-token                                   text     3.4-3.7
initial-election-tick-advance                           bool     3.4-3.7
key-file                                                text     3.4-3.7 client-transport-security.key-file
listen-client-http-urls                                 text     3.5-3.7
listen-client-urls                                      urls     3.4-3.7
listen-metrics-urls                                     text     3.4-3.7
listen-peer-urls                                        urls     3.4-3.7
log-format                                              text     3.6-3.7
log-level                                               text     3.4-3.7
!log-output                                             list     3.4-3.4 log-output
log-outputs                                             list     3.4-3.7
log-package-levels                                      text     3.4-3.4
log-rotation-config-json                                text     3.5-3.7
logger                                                  text     3.4-3.7
max-concurrent-streams                                  uint32   3.4-3.7
max-learners                                            int      3.6-3.7
max-request-bytes                                       uint     3.4-3.7
max-snapshots                                           uint     3.4-3.7
max-txn-ops                                             uint     3.4-3.7
max-wals                                                uint     3.4-3.7
memory-mlock                                            bool     3.6-3.7
metrics                                                 text     3.4-3.7
name                                                    text     3.4-3.7
peer-auto-tls                                           bool     3.4-3.7 peer-transport-security.auto-tls
peer-cert-allowed-cn                                    list     3.5-3.7 peer-transport-security.allowed-cn
peer-cert-allowed-hostname                              list     3.5-3.7 peer-transport-security.allowed-hostname
peer-cert-file                                          text     3.4-3.7 peer-transport-security.cert-file
peer-client-cert-auth                                   bool     3.4-3.7 peer-transport-security.client-cert-auth
peer-client-cert-file                                   text     3.5-3.7 peer-transport-security.client-cert-file
peer-client-key-file                                    text     3.5-3.7 peer-transport-security.client-key-file
peer-crl-file                                           text     -
peer-key-file                                           text     3.4-3.7 peer-transport-security.key-file
peer-skip-client-san-verification                       bool     3.6-3.7 peer-transport-security.skip-client-san-verification
!peer-transport-security                                section  3.4-3.7 peer-transport-security
peer-trusted-ca-file                                    text     3.4-3.7 peer-transport-security.trusted-ca-file
pre-vote                                                bool     3.4-3.7
proxy                                                   text     -
proxy-dial-timeout                                      int      -
proxy-failure-wait                                      int      -
proxy-read-timeout                                      int      -
proxy-refresh-interval                                  int      -
proxy-write-timeout                                     int      -
quota-backend-bytes                                     int      3.4-3.7
raft-read-timeout                                       duration -
raft-write-timeout                                      duration -
self-signed-cert-validity                               uint     3.5-3.7
snapshot-catchup-entries                                uint     3.6-3.7
snapshot-count                                          uint     3.4-3.7
!socket-options                                         section  3.5-3.7 socket-options
socket-reuse-address                                    bool     3.5-3.7 socket-options.reuse-address
socket-reuse-port                                       bool     3.5-3.7 socket-options.reuse-port
strict-reconfig-check                                   bool     3.4-3.7
tls-max-version                                         text     3.5-3.7
tls-min-version                                         text     3.5-3.7
trusted-ca-file                                         text     3.4-3.7 client-transport-security.trusted-ca-file
unsafe-no-fsync                                         bool     3.4-3.7
v2-deprecation                                          text     3.5-3.7
wal-dir                                                 text     3.4-3.7
warning-apply-duration                                  duration 3.6-3.7
warning-unary-request-duration                          duration 3.6-3.7
watch-progress-notify-interval                          duration 3.6-3.7
`

// allKeys are all of etcd's settings by flag name; those without a flag by "!" and
// their path.
func allKeys() map[string]key {
	kinds := map[string]kind{
		"text": text, "bool": boolean, "int": integer, "uint": unsigned, "uint32": short, "duration": duration, "list": list,
		"urls": urls, "section": section, "any": anything,
	}
	all := map[string]key{}
	for line := range strings.Lines(strings.TrimSpace(keyTable)) {
		words := strings.Fields(line)
		k := key{flag: words[0], kind: kinds[words[1]]}
		if words[2] == "-" {
			k.path = "-"
		} else {
			k.since, k.until = int(words[2][2]-'0'), int(words[2][6]-'0')
		}
		if len(words) > 3 {
			k.path = words[3]
		}
		if path, ok := strings.CutPrefix(k.flag, "!"); ok {
			k.flag, k.path = "", path
		}
		all[words[0]] = k
	}
	for _, u := range used() {
		k := all[u.flag]
		k.usage, k.value = u.usage, u.value
		all[u.flag] = k
	}
	for _, flag := range []string{"discovery", "discovery-endpoints", "discovery-token", "discovery-config", "force-new-cluster"} {
		k := all[flag]
		k.refused = true
		if k.path == "-" {
			k.path = "" // refused under the flag's name in the file, too
		}
		all[flag] = k
	}
	return all
}

// ownKeys are the settings that matter before etcd's first start, in the order in
// which help lists them.
func ownKeys() []key {
	all := allKeys()
	var keys []key
	for _, u := range used() {
		keys = append(keys, all[u.flag])
	}
	return keys
}

// refusedKeys are the settings that cannot stand beside a seeded directory.
func refusedKeys() []key {
	all := allKeys()
	var keys []key
	for _, flag := range sortedKeys(all) {
		if all[flag].refused {
			keys = append(keys, all[flag])
		}
	}
	return keys
}

// variable is the environment variable of a flag.
func variable(flag string) string {
	return "ETCD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// use is what a setting is for here, and where it is kept.
type use struct {
	flag, usage string
	value       func(*Config) any
}

// used lists the settings that matter before etcd's first start.
func used() []use {
	return []use{
		{"name", "this member's `NAME`, where it is known beforehand", func(c *Config) any { return &c.Name }},
		{"data-dir", "the data `DIRECTORY`", func(c *Config) any { return &c.DataDir }},
		{"wal-dir", "the `DIRECTORY` of the write-ahead log, where it is a separate one", func(c *Config) any { return &c.WALDir }},
		{"listen-peer-urls", "`URLS` that etcd listens on for peers", func(c *Config) any { return &c.ListenPeerURLs }},
		{"listen-client-urls", "`URLS` that etcd listens on for clients", func(c *Config) any { return &c.ListenClientURLs }},
		{"initial-advertise-peer-urls", "this member's peer `URLS`, where they are known beforehand", func(c *Config) any { return &c.AdvertisePeerURLs }},
		{"advertise-client-urls", "this member's client `URLS`, where they are known beforehand", func(c *Config) any { return &c.AdvertiseClients }},
		{"discovery-srv", "the `DOMAIN` whose SRV records list the members", func(c *Config) any { return &c.DiscoverySRV }},
		{"discovery-srv-name", "the `SUFFIX` of the SRV service's name", func(c *Config) any { return &c.DiscoverySRVName }},
		{"initial-cluster", "the member `LIST`; must agree with what discovery says", func(c *Config) any { return &c.InitialCluster }},
		{"initial-cluster-token", "the cluster's own `TOKEN`", func(c *Config) any { return &c.InitialClusterToken }},
		{"initial-cluster-state", "new or existing", func(c *Config) any { return &c.InitialClusterState }},
		{"max-learners", "`N` learners at most", func(c *Config) any { return &c.MaxLearners }},
		{"peer-cert-file", "the peer certificate `FILE`", func(c *Config) any { return &c.PeerTLS.CertFile }},
		{"peer-key-file", "the peer key `FILE`", func(c *Config) any { return &c.PeerTLS.KeyFile }},
		{"peer-client-cert-file", "the certificate `FILE` for dialling peers", func(c *Config) any { return &c.PeerTLS.ClientCertFile }},
		{"peer-client-key-file", "the key `FILE` for dialling peers", func(c *Config) any { return &c.PeerTLS.ClientKeyFile }},
		{"peer-client-cert-auth", "peers must show a certificate", func(c *Config) any { return &c.PeerTLS.ClientCertAuth }},
		{"peer-trusted-ca-file", "the peer CA `FILE`", func(c *Config) any { return &c.PeerTLS.TrustedCAFile }},
		{"peer-auto-tls", "peer TLS with certificates that etcd makes", func(c *Config) any { return &c.PeerTLS.AutoTLS }},
		{"peer-cert-allowed-cn", "the common `NAMES` that peers may have", func(c *Config) any { return &c.PeerTLS.AllowedCN }},
		{"peer-cert-allowed-hostname", "the host `NAMES` that peers may have", func(c *Config) any { return &c.PeerTLS.AllowedHostname }},
		{"peer-crl-file", "the `FILE` of revoked peer certificates", func(c *Config) any { return &c.PeerTLS.CRLFile }},
		{"peer-skip-client-san-verification", "peers may call from any address", func(c *Config) any { return &c.PeerTLS.SkipClientSAN }},
		{"experimental-peer-skip-client-san-verification", "peers may call from any address (etcd 3.4 to 3.6)", func(c *Config) any { return &c.PeerTLS.SkipClientSAN }},
		{"cipher-suites", "the TLS cipher `SUITES`", func(c *Config) any { return &c.CipherSuites }},
		{"tls-min-version", "the lowest TLS `VERSION`", func(c *Config) any { return &c.TLSMinVersion }},
		{"tls-max-version", "the highest TLS `VERSION`", func(c *Config) any { return &c.TLSMaxVersion }},
		{"cert-file", "the server certificate `FILE`", func(c *Config) any { return &c.ClientTLS.CertFile }},
		{"key-file", "the server key `FILE`", func(c *Config) any { return &c.ClientTLS.KeyFile }},
		{"client-cert-file", "the certificate `FILE` for dialling clients' ports", func(c *Config) any { return &c.ClientTLS.ClientCertFile }},
		{"client-key-file", "the key `FILE` for dialling clients' ports", func(c *Config) any { return &c.ClientTLS.ClientKeyFile }},
		{"client-cert-auth", "clients must show a certificate", func(c *Config) any { return &c.ClientTLS.ClientCertAuth }},
		{"trusted-ca-file", "the client CA `FILE`", func(c *Config) any { return &c.ClientTLS.TrustedCAFile }},
		{"auto-tls", "client TLS with certificates that etcd makes", func(c *Config) any { return &c.ClientTLS.AutoTLS }},
		{"client-cert-allowed-hostname", "the host `NAMES` that clients may have", func(c *Config) any { return &c.ClientTLS.AllowedHostname }},
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

// Given are the settings that came as flags or variables, in the order of their names.
// From a configuration file there are none.
func (c *Config) Given() []Flag {
	if c.File != "" {
		return nil
	}
	var flags []Flag
	for _, f := range Flags() {
		if s, ok := c.settings[f.Name]; ok && s.value != "" {
			flags = append(flags, Flag{Name: f.Name, Value: s.value})
		}
	}
	slices.SortFunc(flags, func(x, y Flag) int { return strings.Compare(x.Name, y.Name) })
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
	case integer, unsigned, short:
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
	case text, duration, list, section, anything:
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
