package etcdconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// fileKeys is read by the library that etcd itself reads its file with, so
// that a value means the same to both ("auto-tls: on" is true, "name: on" an
// error).
type fileKeys struct {
	Name                string       `json:"name"`
	DataDir             string       `json:"data-dir"`
	WALDir              string       `json:"wal-dir"`
	ListenPeerURLs      string       `json:"listen-peer-urls"`
	ListenClientURLs    string       `json:"listen-client-urls"`
	AdvertisePeerURLs   string       `json:"initial-advertise-peer-urls"`
	AdvertiseClientURLs string       `json:"advertise-client-urls"`
	DiscoverySRV        string       `json:"discovery-srv"`
	DiscoverySRVName    string       `json:"discovery-srv-name"`
	InitialCluster      string       `json:"initial-cluster"`
	InitialClusterToken string       `json:"initial-cluster-token"`
	InitialClusterState string       `json:"initial-cluster-state"`
	MaxLearners         int          `json:"max-learners"`
	CipherSuites        []string     `json:"cipher-suites"`
	TLSMinVersion       string       `json:"tls-min-version"`
	TLSMaxVersion       string       `json:"tls-max-version"`
	Discovery           string       `json:"discovery"`
	DiscoveryEndpoints  any          `json:"discovery-endpoints"`
	DiscoveryToken      any          `json:"discovery-token"`
	DiscoveryConfig     any          `json:"discovery-config"`
	ForceNewCluster     bool         `json:"force-new-cluster"`
	Peer                fileSecurity `json:"peer-transport-security"`
	Client              fileSecurity `json:"client-transport-security"`
}

type fileSecurity struct {
	CertFile        string `json:"cert-file"`
	KeyFile         string `json:"key-file"`
	ClientCertFile  string `json:"client-cert-file"`
	ClientKeyFile   string `json:"client-key-file"`
	ClientCertAuth  bool   `json:"client-cert-auth"`
	TrustedCAFile   string `json:"trusted-ca-file"`
	AutoTLS         bool   `json:"auto-tls"`
	AllowedCN       any    `json:"allowed-cn"` // a sequence, or one string
	AllowedHostname any    `json:"allowed-hostname"`
	SkipClientSAN   bool   `json:"skip-client-san-verification"`
}

// values are the file's values by flag name.
func (f *fileKeys) values() map[string]string {
	v := map[string]string{
		"name": f.Name, "data-dir": f.DataDir, "wal-dir": f.WALDir,
		"listen-peer-urls": f.ListenPeerURLs, "listen-client-urls": f.ListenClientURLs,
		"initial-advertise-peer-urls": f.AdvertisePeerURLs, "advertise-client-urls": f.AdvertiseClientURLs,
		"discovery-srv": f.DiscoverySRV, "discovery-srv-name": f.DiscoverySRVName,
		"initial-cluster": f.InitialCluster, "initial-cluster-token": f.InitialClusterToken, "initial-cluster-state": f.InitialClusterState,
		"max-learners": strconv.Itoa(f.MaxLearners), "discovery": f.Discovery, "force-new-cluster": strconv.FormatBool(f.ForceNewCluster),
	}
	for flag, value := range map[string]any{"discovery-endpoints": f.DiscoveryEndpoints, "discovery-token": f.DiscoveryToken, "discovery-config": f.DiscoveryConfig} {
		v[flag] = anyText(value)
	}
	for prefix, s := range map[string]fileSecurity{"peer-": f.Peer, "": f.Client} {
		v[prefix+"cert-file"], v[prefix+"key-file"] = s.CertFile, s.KeyFile
		v[prefix+"client-cert-file"], v[prefix+"client-key-file"] = s.ClientCertFile, s.ClientKeyFile
		v[prefix+"client-cert-auth"], v[prefix+"auto-tls"] = strconv.FormatBool(s.ClientCertAuth), strconv.FormatBool(s.AutoTLS)
		v[prefix+"trusted-ca-file"] = s.TrustedCAFile
	}
	v["peer-skip-client-san-verification"] = strconv.FormatBool(f.Peer.SkipClientSAN)
	v["cipher-suites"], v["tls-min-version"], v["tls-max-version"] = strings.Join(f.CipherSuites, ","), f.TLSMinVersion, f.TLSMaxVersion
	v["peer-cert-allowed-cn"] = anyText(f.Peer.AllowedCN)
	v["peer-cert-allowed-hostname"] = anyText(f.Peer.AllowedHostname)
	v["client-cert-allowed-hostname"] = anyText(f.Client.AllowedHostname)
	return v
}

// anyText is a value of any shape as one text: a sequence is joined by commas,
// nothing at all and what is empty is "".
func anyText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		parts := make([]string, 0, len(v))
		for _, e := range v {
			parts = append(parts, anyText(e))
		}
		return strings.Join(parts, ",")
	case map[string]any:
		return strings.Join(slices.Sorted(maps.Keys(v)), ",")
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

// document is a configuration file with the lines of its keys.
type document struct {
	path  string
	root  *yamlv3.Node // a document node; its content is one mapping, or nothing
	lines map[string]int
	null  map[string]bool // keys without a value: as good as absent
	keys  fileKeys
}

// readFile reads etcd's configuration file.
func readFile(path string) (*document, []byte, error) {
	data, err := os.ReadFile(path) //nolint:gosec // G304: the path is what the person who starts etcd says
	if err != nil {
		return nil, nil, invalid("read etcd's configuration file", err)
	}
	doc, err := parseFile(path, data)
	return doc, data, err
}

func parseFile(path string, data []byte) (*document, error) {
	d := &document{path: path, root: new(yamlv3.Node), lines: map[string]int{}, null: map[string]bool{}}
	if err := yamlv3.Unmarshal(data, d.root); err != nil {
		return nil, d.yamlError(err)
	}
	if top := d.mapping(); top != nil {
		if top.Kind != yamlv3.MappingNode {
			return nil, invalid(fmt.Sprintf("%s:%d: etcd's configuration is a list of \"key: value\" lines, this is %s", path, top.Line, nodeKind(top)), nil)
		}
		if err := d.index("", top); err != nil {
			return nil, err
		}
	}
	// Without a target, as etcd's own nested structs have none: "name: 12" is
	// no text.
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, d.yamlError(err)
	}
	if err := json.Unmarshal(text, &d.keys); err != nil {
		return nil, d.yamlError(err)
	}
	return d, nil
}

// mapping is the node of the top level; nil in an empty file.
func (d *document) mapping() *yamlv3.Node {
	if len(d.root.Content) == 0 {
		return nil
	}
	top := d.root.Content[0]
	if top.Kind == yamlv3.ScalarNode && top.ShortTag() == "!!null" {
		return nil
	}
	return top
}

// index notes each key's line, and refuses a key that is there twice: etcd
// would silently take one of the two. Upper and lower case are one to etcd.
func (d *document) index(prefix string, m *yamlv3.Node) error {
	spelled := map[string]string{}
	for i := 0; i+1 < len(m.Content); i += 2 {
		k, v := m.Content[i], m.Content[i+1]
		name := prefix + strings.ToLower(k.Value)
		if first, twice := d.lines[name]; twice && k.Tag != "!!merge" {
			if spelled[name] != k.Value {
				return invalid(fmt.Sprintf("%s:%d: key %q is %q of line %d again: etcd reads both as one key", d.path, k.Line, k.Value, spelled[name], first), nil)
			}
			return invalid(fmt.Sprintf("%s:%d: key %q is there twice, first in line %d", d.path, k.Line, k.Value, first), nil)
		}
		d.lines[name], spelled[name] = k.Line, k.Value
		d.null[name] = v.ShortTag() == "!!null"
		if v.Kind == yamlv3.MappingNode {
			if err := d.index(name+".", v); err != nil {
				return err
			}
		}
	}
	return nil
}

// has says whether the file itself has the key, with a value.
func (d *document) has(name string) bool {
	_, ok := d.lines[name]
	return ok && !d.null[name]
}

// place is "FILE:LINE: key".
func (d *document) place(name string) string {
	for at := name; at != ""; at = parent(at) {
		if line, ok := d.lines[at]; ok {
			return fmt.Sprintf("%s:%d: %s", d.path, line, name)
		}
	}
	return d.path + ": " + name
}

func parent(path string) string {
	i := strings.LastIndex(path, ".")
	return path[:max(i, 0)]
}

// yamlError puts the file's name and line before what a parser says.
func (d *document) yamlError(err error) error {
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) && typed.Field != "" {
		return invalid(d.place(typed.Field)+": "+typeError(typed), nil)
	}
	msg := err.Error()
	msg = strings.Join(strings.Fields(strings.TrimPrefix(msg, "yaml: ")), " ")
	if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(msg); m != nil {
		return invalid(fmt.Sprintf("%s:%s: not YAML: %s", d.path, m[1], m[2]), nil)
	}
	return invalid(d.path+": not YAML: "+msg, nil)
}

func typeError(e *json.UnmarshalTypeError) string {
	value, _, _ := strings.Cut(e.Value, " ") // "number 1.5"
	switch e.Type {
	case reflect.TypeFor[string]():
		if value == "array" {
			return "etcd reads one text here, not a sequence; several URLs are separated by commas"
		}
		return "etcd reads a text here, not a " + value + "; put it in quotes"
	case reflect.TypeFor[bool]():
		return "etcd reads true or false here, not a " + value
	case reflect.TypeFor[int]():
		return "etcd reads a whole number here, not a " + value
	default:
		return "etcd reads a section here, not a " + value
	}
}

func nodeKind(n *yamlv3.Node) string {
	switch n.Kind {
	case yamlv3.SequenceNode:
		return "a sequence"
	case yamlv3.ScalarNode:
		return "a single value"
	case yamlv3.AliasNode:
		return "an alias"
	case yamlv3.DocumentNode, yamlv3.MappingNode:
	}
	return "something else"
}
