package etcdconf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

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
	case json.Number:
		return v.String()
	default:
		return fmt.Sprint(v)
	}
}

// document is a configuration file with the lines of its keys.
type document struct {
	path  string
	root  *yamlv3.Node // a document node; its content is one mapping, or nothing
	lines map[string]int
	null  map[string]bool // keys without a value: treated as absent
	// anchored: the value has a name, for use in other places.
	anchored map[string]bool
	spelled  map[string]string          // keys as the file spells them
	raw      map[string]json.RawMessage // the values by path, as etcd's parser sees them
	warnings []string
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
	d := &document{
		path: path, root: new(yamlv3.Node), lines: map[string]int{}, null: map[string]bool{},
		anchored: map[string]bool{}, spelled: map[string]string{}, raw: map[string]json.RawMessage{},
	}
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
	if err = d.flatten("", text); err != nil {
		return nil, d.yamlError(err)
	}
	err = d.checkKeys()
	return d, err
}

// flatten notes the values of a section, and those of the sections in it. Upper and
// lower case are one to etcd.
func (d *document) flatten(prefix string, text json.RawMessage) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	for _, name := range sortedKeys(values) {
		path := prefix + strings.ToLower(name)
		d.raw[path] = values[name]
		if d.spelled[path] == "" {
			d.spelled[path] = name
		}
		if bytes.HasPrefix(values[name], []byte("{")) {
			if err := d.flatten(path+".", values[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// values are the file's values by flag name, of the settings that matter here.
func (d *document) values() map[string]string {
	values := map[string]string{}
	for _, k := range append(ownKeys(), refusedKeys()...) {
		var v any
		decoder := json.NewDecoder(bytes.NewReader(d.raw[k.yamlPath()]))
		decoder.UseNumber()
		if len(d.raw[k.yamlPath()]) > 0 && decoder.Decode(&v) == nil {
			values[k.flag] = anyText(v)
		}
	}
	return values
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
		d.null[name], d.anchored[name] = v.ShortTag() == "!!null", v.Anchor != ""
		d.spelled[name] = k.Value
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
	msg := err.Error()
	msg = strings.Join(strings.Fields(strings.TrimPrefix(msg, "yaml: ")), " ")
	if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(msg); m != nil {
		return invalid(fmt.Sprintf("%s:%s: not YAML: %s", d.path, m[1], m[2]), nil)
	}
	return invalid(d.path+": not YAML: "+msg, nil)
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
