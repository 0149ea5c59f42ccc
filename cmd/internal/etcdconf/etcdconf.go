// Package etcdconf reads etcd's own static configuration the way etcd does,
// and writes it back with what the seeded member must be told.
//
// etcd has two ways to be configured and never mixes them. With a
// configuration file (--config-file, else ETCD_CONFIG_FILE) only the file's
// keys count: other flags and ETCD_* variables are ignored without a word.
// Without one, a flag beats its variable, and an empty variable is no
// variable. Load holds to the same rules, but where etcd would ignore a value
// that says something else, Load refuses and names both places.
package etcdconf

import "github.com/etcdinit/etcdinit/cmd/internal/exit"

// TLS is one of etcd's two TLS sections.
type TLS struct {
	CertFile, KeyFile             string
	ClientCertFile, ClientKeyFile string // used when dialling, where set
	TrustedCAFile                 string
	AllowedCN, AllowedHostname    string // several are joined by commas
	CRLFile                       string // of peers; a configuration file cannot name it
	ClientCertAuth, AutoTLS       bool
	SkipClientSAN                 bool // of peers
}

// Enabled says whether URLs of this side are https.
func (t TLS) Enabled() bool { return t.AutoTLS || (t.CertFile != "" && t.KeyFile != "") }

// Config is what of etcd's configuration matters before its first start.
// A field's zero value means that the key is absent.
type Config struct {
	File string // path of the configuration file, "" for flags and variables

	Name, DataDir, WALDir               string
	DiscoverySRV, DiscoverySRVName      string
	InitialCluster                      string
	InitialClusterToken                 string
	InitialClusterState                 string
	ListenPeerURLs, ListenClientURLs    []string
	AdvertisePeerURLs, AdvertiseClients []string
	PeerTLS, ClientTLS                  TLS
	CipherSuites                        []string
	TLSMinVersion, TLSMaxVersion        string
	MaxLearners                         int
	// Warnings are about what some etcd reads in another way, or not at all.
	Warnings []string

	doc      []byte             // the configuration file as it was read
	settings map[string]setting // by flag name: every etcd setting that was given
}

// Handoff is what etcd must still be told once its directory is seeded.
// It is read from the members bucket, so a restart needs no DNS.
type Handoff struct {
	Name                string
	AdvertisePeerURLs   []string
	AdvertiseClientURLs []string
	// ListenPeerURLs and ListenClientURLs are set by --listen-self only.
	ListenPeerURLs, ListenClientURLs []string
}

// Flag is one of etcd's flags as a command line gave it.
type Flag struct {
	Name, Value string // Name without dashes: "data-dir"
}

// invalid is the refusal of a configuration: what is wrong and where, and the cause
// or nil.
func invalid(msg string, cause error) *exit.Error {
	return &exit.Error{Status: exit.Config, Reason: "configuration", Msg: msg, Err: cause}
}

// setting is one value and the place that it came from.
type setting struct{ value, place string }

// place names where the key's value came from, with the key:
// "etcd.yaml:7: name", "flag --name", "variable ETCD_NAME".
func (c *Config) place(flag string) string {
	if s, ok := c.settings[flag]; ok {
		return s.place
	}
	return c.called(flag)
}

// called is the name by which a setting can be given: the file's key where there is a
// file, since etcd ignores flags and variables beside one.
func (c *Config) called(flag string) string {
	if k, ok := allKeys()[flag]; ok && c.File != "" && k.path != "-" {
		return k.yamlPath()
	}
	return flag
}

// defaultToken is etcd's own initial-cluster-token.
const defaultToken = "etcd-cluster"

// Token returns the initial cluster token, etcd's default where none is given.
func (c *Config) Token() string {
	if _, given := c.settings["initial-cluster-token"]; given || c.InitialClusterToken != "" {
		return c.InitialClusterToken
	}
	return defaultToken
}

// TokenIsDefault says whether the token tells this cluster from no other.
func (c *Config) TokenIsDefault() bool {
	return c.Token() == "" || c.Token() == defaultToken
}
