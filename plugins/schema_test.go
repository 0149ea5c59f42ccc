package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// schema is a JSON Schema, as far as ours need it. A keyword that it does not
// know makes the test fail, so that none is passed over.
type schema struct {
	root map[string]any
}

func load(t *testing.T, path string) schema {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(b, &root); err != nil {
		t.Fatal(path, err)
	}
	return schema{root}
}

func (s schema) check(doc string) error {
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return err
	}
	return s.value(s.root, v, "$")
}

func (s schema) value(sch map[string]any, v any, at string) error {
	obj, isObj := v.(map[string]any)
	list, isList := v.([]any)
	str, isStr := v.(string)
	num, isNum := v.(json.Number)
	var f float64
	if isNum {
		var err error
		if f, err = num.Float64(); err != nil {
			return err
		}
	}
	for key, arg := range sch {
		var bad bool
		switch key {
		case "$schema", "$id", "title", "description", "$defs":
		case "$ref":
			def := must[map[string]any](must[map[string]any](s.root["$defs"])[strings.TrimPrefix(must[string](arg), "#/$defs/")])
			if err := s.value(def, v, at); err != nil {
				return err
			}
		case "type":
			isBool := v == true || v == false
			isInt := isNum && f == float64(int64(f))
			ok := map[string]bool{"object": isObj, "array": isList, "string": isStr, "number": isNum, "integer": isInt, "boolean": isBool}
			bad = !ok[must[string](arg)]
		case "enum":
			bad = !slices.ContainsFunc(must[[]any](arg), func(e any) bool { return reflect.DeepEqual(e, v) })
		case "required":
			for _, name := range must[[]any](arg) {
				_, ok := obj[must[string](name)]
				bad = bad || isObj && !ok
			}
		case "properties":
			for name, sub := range must[map[string]any](arg) {
				if inner, ok := obj[name]; ok {
					if err := s.value(must[map[string]any](sub), inner, at+"."+name); err != nil {
						return err
					}
				}
			}
		case "additionalProperties":
			for name, inner := range obj {
				if err := s.value(must[map[string]any](arg), inner, at+"."+name); err != nil {
					return err
				}
			}
		case "items":
			for i, inner := range list {
				if err := s.value(must[map[string]any](arg), inner, fmt.Sprint(at, "[", i, "]")); err != nil {
					return err
				}
			}
		case "minItems":
			bad = isList && float64(len(list)) < must[float64](arg)
		case "minLength":
			bad = isStr && float64(len(str)) < must[float64](arg)
		case "maxLength":
			bad = isStr && float64(len(str)) > must[float64](arg)
		case "pattern":
			bad = isStr && !regexp.MustCompile(must[string](arg)).MatchString(str)
		case "minimum":
			bad = isNum && f < must[float64](arg)
		case "maximum":
			bad = isNum && f > must[float64](arg)
		case "exclusiveMinimum":
			bad = isNum && f <= must[float64](arg)
		case "not":
			bad = s.value(must[map[string]any](arg), v, at) == nil
		case "oneOf":
			n := 0
			for _, sub := range must[[]any](arg) {
				if s.value(must[map[string]any](sub), v, at) == nil {
					n++
				}
			}
			bad = n != 1
		default:
			return fmt.Errorf("%s: the test knows no keyword %s", at, key)
		}
		if bad {
			return fmt.Errorf("%s: %s %v does not hold", at, key, arg)
		}
	}
	return nil
}

// must is v as a T: the schemas are ours.
func must[T any](v any) T {
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("%v is a %T", v, v))
	}
	return t
}

// TestSchemaAndTypes: the schemas and the Go types have the same fields, of
// the same types, on every level.
func TestSchemaAndTypes(t *testing.T) {
	for path, typ := range map[string]reflect.Type{
		"schema/request.json": reflect.TypeFor[Request](), "schema/response.json": reflect.TypeFor[Response](),
	} {
		t.Run(path, func(t *testing.T) { compare(t, "$", load(t, path).root, typ) })
	}
}

func compare(t *testing.T, at string, sch map[string]any, typ reflect.Type) {
	t.Helper()
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	kinds := map[reflect.Kind]string{
		reflect.Struct: "object", reflect.Map: "object", reflect.Slice: "array", reflect.String: "string",
		reflect.Int: "integer", reflect.Float64: "number", reflect.Bool: "boolean",
	}
	if _, ok := sch["enum"]; !ok && sch["$ref"] == nil && sch["type"] != kinds[typ.Kind()] {
		t.Errorf("%s is %v in the schema, %v in Go", at, sch["type"], typ)
	}
	if typ.Kind() == reflect.Slice {
		compare(t, at+"[]", must[map[string]any](sch["items"]), typ.Elem())
	}
	if typ.Kind() != reflect.Struct {
		return
	}
	props := must[map[string]any](sch["properties"])
	fields := map[string]reflect.Type{}
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = f.Type
	}
	if a, b := slices.Sorted(maps.Keys(props)), slices.Sorted(maps.Keys(fields)); !slices.Equal(a, b) {
		t.Errorf("%s has %v in the schema, %v in Go", at, a, b)
	}
	for name, sub := range props {
		if f, ok := fields[name]; ok {
			compare(t, at+"."+name, must[map[string]any](sub), f)
		}
	}
}

// TestResponses: what is right for the schema and for ReadResponse, and what
// is not. Both must agree but where the rule is beyond a schema.
func TestResponses(t *testing.T) {
	sch := load(t, "schema/response.json")
	tests := []struct {
		name, verb, doc string
		status          int
		rule            string // broken; "" none
		beyond          bool   // the schema cannot know
	}{
		{name: "info", verb: VerbInfo, doc: `{"version":1,"info":{"name":"a","version":"1","contractVersions":[1]}}`},
		{name: "peers", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a"},{"host":"2001:db8::1"},{"host":"_x.a-b.example.org."}]}`},
		{name: "nobody", verb: VerbDiscover, doc: `{"version":1,"peers":[]}`},
		{name: "one host, two ports", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","port":1,"addrs":["192.0.2.1"]},{"host":"a","port":2,"addrs":["192.0.2.1"]}]}`},
		{name: "error", verb: VerbDiscover, status: 1, doc: `{"version":1,"error":{"code":"retry","message":"m","retryAfter":0.5}}`},
		{name: "error in another version", verb: VerbDiscover, status: 1, doc: `{"version":7,"error":{"code":"internal","message":"m"}}`},
		{name: "new code", verb: VerbDiscover, status: 1, doc: `{"version":1,"error":{"code":"moved","message":"m"}}`},
		{name: "unknown fields", verb: VerbDiscover, doc: `{"version":1,"x":{"Host":1,"a":[{}]},"peers":[{"host":"a","y":null}]}`},
		{name: "white space around", verb: VerbDiscover, doc: " \n{\"version\":1,\"peers\":[]}\n\n"},

		{name: "no version", verb: VerbDiscover, doc: `{"peers":[]}`, rule: "4.6"},
		{name: "error without version", verb: VerbDiscover, status: 1, doc: `{"error":{"code":"retry","message":"m"}}`, rule: "4.6"},
		{name: "another version", verb: VerbDiscover, doc: `{"version":2,"peers":[]}`, rule: "4.6", beyond: true},
		{name: "a list", verb: VerbDiscover, doc: `[]`, rule: "4"},
		{name: "nothing", verb: VerbDiscover, doc: `{"version":1}`, rule: "2.9"},
		{name: "null peers", verb: VerbDiscover, doc: `{"version":1,"peers":null}`, rule: "2.9"},
		{name: "info and peers", verb: VerbDiscover, doc: `{"version":1,"peers":[],"info":{"name":"a","version":"1","contractVersions":[1]}}`, rule: "2.9"},
		{name: "wrong answer", verb: VerbInfo, doc: `{"version":1,"peers":[]}`, rule: "2.9", beyond: true},
		{name: "status 0 with error", verb: VerbDiscover, doc: `{"version":1,"error":{"code":"retry","message":"m"}}`, rule: "2.9", beyond: true},
		{name: "status 1 with peers", verb: VerbDiscover, status: 1, doc: `{"version":1,"peers":[]}`, rule: "2.9", beyond: true},
		{name: "no code", verb: VerbDiscover, status: 1, doc: `{"version":1,"error":{"message":"m"}}`, rule: "5.2"},
		{name: "no message", verb: VerbDiscover, status: 1, doc: `{"version":1,"error":{"code":"retry","message":" \n"}}`, rule: "5.1"},
		{name: "negative retryAfter", verb: VerbDiscover, status: 1, doc: `{"version":1,"error":{"code":"retry","message":"m","retryAfter":-1}}`, rule: "5"},
		{name: "retryAfter a string", verb: VerbDiscover, status: 1, doc: `{"version":1,"error":{"code":"retry","message":"m","retryAfter":"5"}}`, rule: "4"},
		{name: "negative ttl", verb: VerbDiscover, doc: `{"version":1,"peers":[],"ttl":-1}`, rule: "4.4"},
		{name: "bad plugin name", verb: VerbInfo, doc: `{"version":1,"info":{"name":"A","version":"1","contractVersions":[1]}}`, rule: "1.1"},
		{name: "no plugin version", verb: VerbInfo, doc: `{"version":1,"info":{"name":"a","contractVersions":[1]}}`, rule: "4"},
		{name: "no contract versions", verb: VerbInfo, doc: `{"version":1,"info":{"name":"a","version":"1","contractVersions":[]}}`, rule: "4"},
		{name: "nameless parameter", verb: VerbInfo, doc: `{"version":1,"info":{"name":"a","version":"1","contractVersions":[1],"parameters":[{}]}}`, rule: "4"},
		{name: "parameter twice", verb: VerbInfo, doc: `{"version":1,"info":{"name":"a","version":"1","contractVersions":[1],"parameters":[{"name":"x"},{"name":"x"}]}}`, rule: "4", beyond: true},
		{name: "reserved parameter", verb: VerbInfo, doc: `{"version":1,"info":{"name":"a","version":"1","contractVersions":[1],"parameters":[{"name":"etcdinit-x"}]}}`, rule: "3.3"},
		{name: "no host", verb: VerbDiscover, doc: `{"version":1,"peers":[{"name":"a"}]}`, rule: "4"},
		{name: "host in brackets", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"[2001:db8::1]"}]}`, rule: "4", beyond: true},
		{name: "host is half an address", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"192.0.2"}]}`, rule: "4", beyond: true},
		{name: "host with a space", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a b"}]}`, rule: "4", beyond: true},
		{name: "empty label", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a..b"}]}`, rule: "4", beyond: true},
		{name: "name with a comma", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","name":"a,b"}]}`, rule: "4"},
		{name: "name with a new line", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","name":"a\n"}]}`, rule: "4"},
		{name: "port", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","port":65536}]}`, rule: "4"},
		{name: "negative port", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","port":-1}]}`, rule: "4"},
		{name: "half a port", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","port":2380.5}]}`, rule: "4"},
		{name: "no address", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","addrs":["x"]}]}`, rule: "4", beyond: true},
		{name: "zone", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","addrs":["fe80::1%eth0"]}]}`, rule: "4.3", beyond: true},
		{name: "unspecified", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","addrs":["0.0.0.0"]}]}`, rule: "4.3", beyond: true},
		{name: "URL without port", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","peerURLs":["http://a"]}]}`, rule: "4"},
		{name: "URL with path", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","peerURLs":["http://a:1/"]}]}`, rule: "4"},
		{name: "URL of another scheme", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","clientURLs":["unix://a:1"]}]}`, rule: "4"},
		{name: "two schemes", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","peerURLs":["http://a:1"]},{"host":"b","peerURLs":["https://b:1"]}]}`, rule: "4", beyond: true},
		{name: "one name", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","name":"x"},{"host":"b","name":"X"}]}`, rule: "4.2", beyond: true},
		{name: "one host", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a"},{"host":"A."}]}`, rule: "4.2", beyond: true},
		{name: "field twice", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","host":"b"}]}`, rule: "4.5", beyond: true},
		{name: "field misspelt", verb: VerbDiscover, doc: `{"version":1,"peers":[{"host":"a","peerUrls":[]}]}`, rule: "4.5", beyond: true},
		{name: "deep", verb: VerbDiscover, doc: `{"version":1,"peers":[],"x":` + strings.Repeat("[", 20000), rule: "2.3", beyond: true},
		{name: "too long", verb: VerbDiscover, doc: `{"version":1,"peers":[]}` + strings.Repeat(" ", MaxResponse), rule: "2.3", beyond: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ReadResponse(Request{Version: Version, Verb: tt.verb}, []byte(tt.doc), tt.status)
			var rule string
			var b *BreachError
			if errors.As(err, &b) {
				rule = b.Rule
			}
			if rule != tt.rule || (err == nil) != (tt.rule == "") {
				t.Errorf("rule %q, want %q: %v", rule, tt.rule, err)
			}
			if err := sch.check(tt.doc); !tt.beyond && (err == nil) != (tt.rule == "") {
				t.Errorf("the schema says: %v", err)
			}
		})
	}
}

// FuzzReadResponse: whatever a plugin prints, there is no panic, and what is
// taken keeps the schema and comes back the same.
func FuzzReadResponse(f *testing.F) {
	f.Add([]byte(`{"version":1,"peers":[{"host":"a.example.org","port":2380,"addrs":["192.0.2.10"],"peerURLs":["http://a.example.org:2380"]}],"ttl":3}`), 0)
	f.Add([]byte(`{"version":1,"error":{"code":"retry","message":"m","retryAfter":1}}`), 1)
	f.Add([]byte(`{"version":1,"peers":[{"host":"a","name":"x"},{"host":"b","name":"x"}],"peers":[]}`), 0)
	b, err := os.ReadFile("schema/response.json")
	if err != nil {
		f.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(b, &root); err != nil {
		f.Fatal(err)
	}
	req := Request{Version: Version, Verb: VerbDiscover}
	f.Fuzz(func(t *testing.T, doc []byte, status int) {
		resp, err := ReadResponse(req, doc, status)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n") && bytes.Contains(doc, []byte("\n")) {
				return // execplugin makes it one line
			}
			return
		}
		again, err := json.Marshal(resp)
		if err != nil {
			t.Fatal(err)
		}
		if err = (schema{root}).check(string(again)); err != nil {
			t.Errorf("taken, but against the schema: %v: %s", err, again)
		}
		back, err := ReadResponse(req, again, status)
		if err != nil {
			t.Fatal(err)
		}
		// As documents: an empty list counts as none.
		if twice, err := json.Marshal(back); err != nil || !bytes.Equal(twice, again) {
			t.Errorf("%s became %s, %v", again, twice, err)
		}
	})
}
