// Package etcdconf reads etcd's own static configuration the way etcd does.
package etcdconf

// TLS is one of etcd's two TLS sections.
type TLS struct {
	CertFile, KeyFile             string
	ClientCertFile, ClientKeyFile string // used when dialling, where set
	TrustedCAFile                 string
	AllowedCN, AllowedHostname    string
	ClientCertAuth, AutoTLS       bool
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
	MaxLearners                         int
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
