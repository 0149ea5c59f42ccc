package etcdconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
)

// wrongTypes are values of every shape, as the file spells them.
func wrongTypes() []string {
	return []string{"5", "-5", "1.5", "4294967296", "99999999999999999999", "true", "word", "'5m'", "[word]", "[1]", "{a: b}"}
}

// verdict is what Load says of one line in an otherwise right file.
func verdict(t *testing.T, line string) (refused, warned bool, text string) {
	t.Helper()
	d, err := parseFile("etcd.yaml", []byte(line+"\n"))
	if err != nil {
		return true, false, err.Error()
	}
	return false, len(d.warnings) > 0, strings.Join(d.warnings, "; ")
}

// lineOf puts a value where the file has the key.
func lineOf(k key, value string) string {
	path := k.yamlPath()
	if outer := parent(path); outer != "" {
		return outer + ": {" + path[len(outer)+1:] + ": " + value + "}"
	}
	return path + ": " + value
}

// TestTypesAsEmbedReadsThem: of every key that the newest etcd has, its own parser
// reads the values that the table says it reads, and no other.
func TestTypesAsEmbedReadsThem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.yaml")
	for name, k := range allKeys() {
		if k.until != newestMinor || k.kind == anything || name == "log-level" {
			continue
		}
		for _, value := range wrongTypes() {
			if strings.ContainsAny(value[:1], "w'") && (k.kind == urls || strings.HasSuffix(name, "-urls") || name == "cors") {
				continue // a text, but no URL: etcd's parser exits
			}
			line := lineOf(k, value)
			write(t, path, line+"\nlog-level: error\n")
			_, err := embed.ConfigFromFile(path)
			unread := err != nil && (strings.Contains(err.Error(), "unmarshal") || strings.Contains(err.Error(), "invalid peer-transport-security"))
			refused, warned, text := verdict(t, line)
			if unread != (refused || warned) {
				t.Errorf("%s (%s): etcd says %v, the table %q", line, name, err, text)
			}
			if since := k.since == oldestMinor; unread && since && !refused {
				t.Errorf("%s: every minor refuses it, here it is a warning", line)
			}
		}
	}
}

// TestTableIsWhole: every key that etcd's parser reads is in the table.
func TestTableIsWhole(t *testing.T) {
	known := map[string]bool{}
	for _, k := range allKeys() {
		if k.since > 0 && k.until == newestMinor {
			known[k.yamlPath()] = true
		}
	}
	for _, path := range embedKeys() {
		if !known[path] {
			t.Errorf("%s is etcd's, and not in the table as one of 3.%d", path, newestMinor)
		}
		delete(known, path)
	}
	for path := range known {
		t.Errorf("%s is in the table as one of 3.%d, and not etcd's", path, newestMinor)
	}
}

// TestStrays: keys that etcd would run without are told with the right ones.
func TestStrays(t *testing.T) {
	for line, want := range map[string]string{
		"listen-peer-url: http://10.0.0.1:2380":                      "did you mean listen-peer-urls?",
		"initial-cluster-tokn: t":                                    "did you mean initial-cluster-token?",
		"data_dir: /d":                                               "did you mean data-dir?",
		"dataDir: /d":                                                "did you mean data-dir?",
		"ETCD_DATA_DIR: /d":                                          "did you mean data-dir?",
		"anme: a":                                                    "did you mean name?",
		"peer-transport-securty: {cert-file: c}":                     "did you mean peer-transport-security?",
		"client_transport_security: {cert-file: c}":                  "did you mean client-transport-security?",
		"peer-cert-file: c":                                          "belongs to peer-transport-security, as cert-file",
		"peer-client-cert-auth: true":                                "belongs to peer-transport-security, as client-cert-auth",
		"cert-file: c":                                               "belongs to client-transport-security, as cert-file",
		"peer-auto-tls: true":                                        "belongs to peer-transport-security, as auto-tls",
		"allowed-cn: [etcd]":                                         "belongs to client-transport-security, as allowed-cn or to peer-transport-security, as allowed-cn",
		"peer-transport-security: {certfile: c}":                     "did you mean cert-file?",
		"peer-transport-security: {ca-file: c}":                      "did you mean trusted-ca-file?",
		"peer-transport-security: {listen-peer-urls: x}":             "belongs to the top level",
		"peer-transport-security: {peer-cert-file: x}":               "belongs to peer-transport-security, as cert-file",
		"client-transport-security: {cipher-suites: [x]}":            "belongs to the top level",
		"reuse-port: true":                                           "belongs to socket-options, as reuse-port",
		"peer-crl-file: crl.pem":                                     "as a flag only",
		"tls: {cert-file: c, key-file: k}":                           "so without TLS",
		"x-tls: &tls {cert-file: c}\npeer-transport-security: *tls":  "",
		"future-key: 1":                                              "",
		"future: {a: {cert: x}}":                                     "",
		"peer-cert-file: ''":                                         "",
		"cert-file:":                                                 "",
		"proxy: 'off'\nproxy-failure-wait: 5000\nenable-v2: true":    "",
		"discovery-fallback: exit\nexperimental-enable-v2v3: ''":     "",
		"log-output: [stderr]\ndebug: false\nlog-package-levels: ''": "",
	} {
		refused, _, text := verdict(t, line)
		if refused != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", line, text, want)
		}
		if refused && !strings.Contains(text, "etcd.yaml:1: ") {
			t.Errorf("%s: no place in %q", line, text)
		}
	}
}

// TestTypeWarns: where some minors start with a value and some do not, it is a
// warning that names them.
func TestTypeWarns(t *testing.T) {
	c, file, err := load(t, static+"peer-transport-security: {allowed-cn: etcd}\nfeature-gates: 1\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		file + `:5: peer-transport-security.allowed-cn: etcd reads a sequence of texts here, not a string; write [ "…", "…" ] (etcd 3.5 to 3.7 do not start with it; the others do not know the key)`,
		file + ":6: feature-gates: etcd reads a text here, not a number; put it in quotes (etcd 3.6 to 3.7 do not start with it; the others do not know the key)",
	}
	if fmt.Sprint(c.Warnings) != fmt.Sprint(want) {
		t.Errorf("got %q", c.Warnings)
	}
}

// TestEmptyPeerSection: etcd 3.6 and 3.7 refuse an empty peer-transport-security, so
// it is not handed over.
func TestEmptyPeerSection(t *testing.T) {
	c, file, err := load(t, static+"peer-transport-security:\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Resolved(exampleHandoff("http"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embed.ConfigFromFile(file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
