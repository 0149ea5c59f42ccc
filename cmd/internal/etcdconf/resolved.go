package etcdconf

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Resolved is the configuration file with the handoff filled in: comments and
// keys that mean nothing here are kept, initial-cluster and discovery's keys
// are gone. Without a configuration file it is made of the flags and variables.
func (c *Config) Resolved(h Handoff) ([]byte, error) {
	d, err := c.document()
	if err != nil {
		return nil, err
	}
	top := d.mapping()
	if top == nil {
		top = &yamlv3.Node{Kind: yamlv3.MappingNode, Tag: "!!map", HeadComment: d.root.HeadComment, FootComment: d.root.FootComment}
		d.root = &yamlv3.Node{Kind: yamlv3.DocumentNode, Content: []*yamlv3.Node{top}}
	}
	remove(top, func(name string) bool {
		return name == "initial-cluster" || name == "force-new-cluster" || name == "discovery" || strings.HasPrefix(name, "discovery-")
	})
	// A newer etcd refuses this section where it is empty.
	if d.null["peer-transport-security"] {
		remove(top, func(name string) bool { return name == "peer-transport-security" })
	}
	have := d.values()
	for _, p := range h.pairs() {
		if !saysSame(p.flag, have[p.flag], p.value) { // else it stays in its author's words
			set(top, scalar(p.value), p.flag)
		}
	}
	out, err := encode(d.root)
	if err != nil {
		return nil, invalid(d.path+": write the resolved configuration", err)
	}
	return out, c.checkResolved(d.path, h, out)
}

// checkResolved reads the result as etcd will. A merge key ("<<") can bring
// back what was taken out.
func (c *Config) checkResolved(path string, h Handoff, out []byte) error {
	d, err := parseFile(path+" (resolved)", out)
	if err != nil {
		return err
	}
	got := d.values()
	for _, p := range h.pairs() {
		if !saysSame(p.flag, got[p.flag], p.value) {
			return invalid(path+": "+p.flag+" cannot be written as "+strconv.Quote(p.value)+": the file says "+strconv.Quote(got[p.flag])+" in a way that cannot be changed", nil)
		}
	}
	for _, flag := range []string{"initial-cluster", "discovery", "discovery-srv", "discovery-srv-name", "discovery-endpoints", "discovery-token", "discovery-config"} {
		if got[flag] != "" {
			return invalid(path+": "+flag+" comes from a merge key (<<), so it cannot be taken out: write the keys out", nil)
		}
	}
	return nil
}

func saysSame(flag, have, want string) bool {
	same, err := sameSetting(Flag{flag, have}, want)
	return err == nil && same
}

// document is the file that was read, or one made of flags and variables.
func (c *Config) document() (*document, error) {
	if c.File != "" && c.doc != nil {
		return parseFile(c.File, c.doc)
	}
	top := &yamlv3.Node{Kind: yamlv3.MappingNode, Tag: "!!map"}
	known := allKeys()
	for _, k := range ownKeys() {
		if v := k.get(c); v != "" && k.path != "-" {
			k.put(top, v)
		}
	}
	for _, flag := range sortedKeys(c.settings) {
		k, s := known[flag], c.settings[flag]
		if k.path == "-" && s.value != "" {
			return nil, invalid(s.place+": etcd's configuration file has no key for it; hand over with --env-file, or by exec", nil)
		}
		if k.value != nil || strings.HasPrefix(flag, "discovery") || s.value == "" {
			continue
		}
		k.put(top, s.value)
	}
	data, err := encode(&yamlv3.Node{Kind: yamlv3.DocumentNode, Content: []*yamlv3.Node{top}})
	if err != nil {
		return nil, invalid("write the configuration", err)
	}
	return parseFile("configuration from flags and variables", data)
}

// put writes a flag's value where the file has it.
func (k key) put(top *yamlv3.Node, value string) {
	if outer, inner, nested := strings.Cut(k.yamlPath(), "."); nested {
		set(sectionOf(top, outer), k.node(value), inner)
		return
	}
	set(top, k.node(value), k.yamlPath())
}

// node is a flag's value as the file has it.
func (k key) node(value string) *yamlv3.Node {
	switch k.kind {
	case boolean, integer, unsigned, short:
		if canonical, err := k.canonical(value); err == nil {
			return &yamlv3.Node{Kind: yamlv3.ScalarNode, Value: canonical}
		}
	case duration:
		if d, err := time.ParseDuration(value); err == nil {
			return &yamlv3.Node{Kind: yamlv3.ScalarNode, Value: strconv.FormatInt(int64(d), 10), LineComment: "# " + value}
		}
	case list:
		seq := &yamlv3.Node{Kind: yamlv3.SequenceNode, Style: yamlv3.FlowStyle}
		for v := range strings.SplitSeq(value, ",") {
			seq.Content = append(seq.Content, scalar(v))
		}
		return seq
	case text, urls, section, anything:
	}
	return scalar(value)
}

// scalar is a string, quoted wherever some version of YAML could read it as
// something else.
func scalar(value string) *yamlv3.Node {
	n := &yamlv3.Node{Kind: yamlv3.ScalarNode, Tag: "!!str", Value: value}
	word := regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9._/-]*$|^https?://[A-Za-z0-9.-]+:\d+$`)
	special := regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null)$`)
	if !word.MatchString(value) || special.MatchString(value) {
		n.Style = yamlv3.DoubleQuotedStyle
	}
	return n
}

// set puts a value under name, in place of one that is there already.
func set(m, value *yamlv3.Node, name string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if strings.EqualFold(m.Content[i].Value, name) {
			old := m.Content[i+1]
			value.HeadComment, value.LineComment, value.FootComment = old.HeadComment, old.LineComment, old.FootComment
			m.Content[i+1] = value
			return
		}
	}
	k := &yamlv3.Node{Kind: yamlv3.ScalarNode, Value: name}
	if m.Style&yamlv3.FlowStyle != 0 && value.Kind == yamlv3.ScalarNode { // JSON, most likely
		k.Style, value.Style = yamlv3.DoubleQuotedStyle, yamlv3.DoubleQuotedStyle
	}
	m.Content = append(m.Content, k, value)
}

// sectionOf is the mapping under name, made where it is missing.
func sectionOf(m *yamlv3.Node, name string) *yamlv3.Node {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == name {
			return m.Content[i+1]
		}
	}
	inner := &yamlv3.Node{Kind: yamlv3.MappingNode}
	set(m, inner, name)
	return inner
}

// remove takes keys out; the comments around them stay.
func remove(m *yamlv3.Node, gone func(name string) bool) {
	kept := m.Content[:0]
	var orphans string
	for i := 0; i+1 < len(m.Content); i += 2 {
		k, v := m.Content[i], m.Content[i+1]
		if gone(strings.ToLower(k.Value)) {
			orphans = join(orphans, k.HeadComment, k.FootComment)
			continue
		}
		k.HeadComment, orphans = join(orphans, k.HeadComment), ""
		kept = append(kept, k, v)
	}
	m.Content = kept
	if n := len(kept); n > 0 {
		kept[n-2].FootComment = join(kept[n-2].FootComment, orphans)
	} else {
		m.HeadComment = join(m.HeadComment, orphans)
	}
}

func join(comments ...string) string {
	return strings.Join(slices.DeleteFunc(comments, func(c string) bool { return c == "" }), "\n")
}

func encode(n *yamlv3.Node) ([]byte, error) {
	bareMerges(n)
	var b bytes.Buffer
	e := yamlv3.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// bareMerges has merge keys written as "<<", without the tag that the parser
// gave them.
func bareMerges(n *yamlv3.Node) {
	if n.Kind == yamlv3.ScalarNode && n.Tag == "!!merge" {
		n.Tag = ""
	}
	for _, inner := range n.Content {
		bareMerges(inner)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
