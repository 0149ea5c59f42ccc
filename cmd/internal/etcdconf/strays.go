package etcdconf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// checkKeys holds every key of the file against the table: a value that etcd cannot
// read, a key in the wrong place, one that is a letter off. etcd says nothing of the
// latter two, and runs without them. A key that resembles none is left alone: a newer
// etcd may know it.
func (d *document) checkKeys() error {
	known := map[string]key{}
	for _, k := range allKeys() {
		if k.path != "-" && k.since > 0 {
			known[k.yamlPath()] = k
		}
	}
	paths := sortedKeys(d.raw)
	slices.SortStableFunc(paths, func(a, b string) int { return d.lines[a] - d.lines[b] })
	for _, path := range paths {
		k, ok := known[path]
		outer := known[parent(path)]
		switch {
		case ok:
			if err := d.checkType(k, path); err != nil {
				return err
			}
		case empty(d.raw[path]), path == "discovery-endpoints", path == "discovery-token":
		case parent(path) == "" && !d.anchored[path], outer.kind == section && outer.flag == "":
			if advice := d.stray(known, path); advice != "" {
				return invalid(d.place(path)+": "+advice, nil)
			}
		}
	}
	return nil
}

// empty: such a value says nothing, wherever it stands.
func empty(raw json.RawMessage) bool {
	return slices.Contains([]string{"null", `""`, "false", "{}", "[]"}, string(bytes.TrimSpace(raw)))
}

// checkType refuses a value that etcd cannot read. Where only some minors have the
// key, the others start with it: then it is a warning, unless it matters here.
func (d *document) checkType(k key, path string) error {
	raw := d.raw[path]
	if k.kind.reads(raw) {
		return nil
	}
	msg := d.place(path) + ": " + k.kind.wants(raw)
	oneText := k.kind == list && bytes.HasPrefix(raw, []byte(`"`)) // etcd 3.4 ignores allowed-cn, whatever it is
	if k.since == oldestMinor && k.until == newestMinor || k.value != nil && !oneText {
		return invalid(msg, nil)
	}
	minors := fmt.Sprintf("etcd 3.%d does", k.since)
	if k.since != k.until {
		minors = fmt.Sprintf("etcd 3.%d to 3.%d do", k.since, k.until)
	}
	d.warnings = append(d.warnings, msg+" ("+minors+" not start with it; the others do not know the key)")
	return nil
}

// reads tells whether etcd's parser takes a value for this kind.
func (k kind) reads(raw json.RawMessage) bool {
	var into any
	switch k {
	case text, urls:
		into = new(string)
	case boolean:
		into = new(bool)
	case integer, duration:
		into = new(int64)
	case unsigned:
		into = new(uint64)
	case short:
		into = new(uint32)
	case list:
		into = new([]string)
	case section:
		into = new(map[string]json.RawMessage)
	case anything:
		return true
	}
	return json.Unmarshal(raw, into) == nil
}

// wants says what etcd reads, and what is there.
func (k kind) wants(raw json.RawMessage) string {
	is := map[byte]string{'"': "string", '[': "array", '{': "section", 't': "bool", 'f': "bool"}[raw[0]]
	if is == "" {
		is = "number"
	}
	switch {
	case k == text && is == "array", k == urls && is == "array":
		return "etcd reads one text here, not a sequence; several URLs are separated by commas"
	case k == text, k == urls:
		return "etcd reads a text here, not a " + is + "; put it in quotes"
	case k == boolean:
		return "etcd reads true or false here, not a " + is
	case k == duration:
		return "etcd reads a whole number of nanoseconds here, not " + string(raw)
	case k == list:
		return "etcd reads a sequence of texts here, not a " + is + `; write [ "…", "…" ]`
	case k == section:
		return "etcd reads a section here, not a " + is
	case k == short && is == "number":
		return "etcd reads a whole number of 32 bits here, not " + string(raw)
	case is == "number":
		return "etcd reads a whole number here, not " + string(raw)
	case k == unsigned || k == short || k == integer:
		return "etcd reads a whole number here, not a " + is
	}
	return "etcd does not read a " + is + " here"
}

// stray says what a key was meant to be that etcd does not know at its place; ""
// where it resembles none.
func (d *document) stray(known map[string]key, path string) string {
	within, name := parent(path), path[len(parent(path)):]
	name = strings.TrimPrefix(name, ".")
	const ignored = "etcd does not know this key here and runs without it"
	if right := nearest(known, within, d.spelled[path], name); right != "" {
		return ignored + "; did you mean " + right + "?"
	}
	if rightful := places(known, within, name); len(rightful) > 0 {
		return ignored + "; it belongs to " + strings.Join(rightful, " or to ")
	}
	if within == "" && strings.HasSuffix(name, "-crl-file") {
		return "etcd reads it as a flag only, and ignores flags beside a configuration file: it runs without it"
	}
	if within == "" && bytes.HasPrefix(d.raw[path], []byte("{")) {
		for _, inner := range []string{"cert-file", "key-file", "trusted-ca-file", "client-cert-auth"} {
			if raw, ok := d.raw[path+"."+inner]; ok && !empty(raw) {
				return ignored + ", so without TLS; " + inner + " belongs to client-transport-security or to peer-transport-security"
			}
		}
	}
	return ""
}

// places are the sections in which etcd knows the key, or a key that this one is
// the flag of.
func places(known map[string]key, within, name string) []string {
	var all []string
	for _, path := range sortedKeys(known) {
		k := known[path]
		inner := strings.TrimPrefix(path[len(parent(path)):], ".")
		switch {
		case k.flag == name:
			return []string{spot(path)}
		case inner == name && parent(path) != within:
			all = append(all, spot(path))
		}
	}
	return all
}

func spot(path string) string {
	if outer := parent(path); outer != "" {
		return outer + ", as " + path[len(outer)+1:]
	}
	return "the top level"
}

// nearest is the key of the same section that is meant: spelled in another way, or
// one letter off.
func nearest(known map[string]key, within, spelled, name string) string {
	plain := strings.TrimPrefix(dashed(spelled), "etcd-")
	if name == "ca-file" && within != "" {
		return "trusted-ca-file" // its name in etcd 2
	}
	closest := ""
	for _, path := range sortedKeys(known) {
		if parent(path) != within {
			continue
		}
		inner := strings.TrimPrefix(path[len(within):], ".")
		if inner == plain {
			return inner
		}
		if closest == "" && oneOff(inner, name) {
			closest = inner
		}
	}
	return closest
}

// dashed is a key as etcd would spell it: dataDir and DATA_DIR are data-dir.
func dashed(name string) string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		if unicode.IsUpper(r) && lower {
			b.WriteByte('-')
		}
		lower = unicode.IsLower(r) || unicode.IsDigit(r)
		if r == '_' || r == ' ' || r == '.' {
			r = '-'
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// oneOff tells whether two words differ by one letter: changed, missing, or two
// that are swapped.
func oneOff(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || len(a) < 3 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch {
	case len(a) < len(b):
		return a[i:] == b[i+1:]
	case i == len(a):
		return true
	case a[i+1:] == b[i+1:]:
		return true
	}
	return i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}
