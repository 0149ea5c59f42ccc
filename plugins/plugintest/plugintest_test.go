//go:build unix

package plugintest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdinit/etcdinit/plugins/plugintest"
)

// install copies a plugin to a directory that is ours alone.
func install(t *testing.T, from string) string {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), filepath.Base(from))
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestWrong: each plugin breaks one rule and is told which.
func TestWrong(t *testing.T) {
	zone := map[string]string{"zone": "a"}
	tests := []struct {
		name, check, reason string
		opts                plugintest.Options
	}{
		{name: "hangs", check: "discover", reason: "gave no answer within", opts: plugintest.Options{Timeout: 300 * time.Millisecond}},
		{name: "floods", check: "discover", reason: "printed more than 1048576 bytes"},
		{name: "half-a-document", check: "discover", reason: "rule 2.3 of the plugin contract: stdout holds half a document"},
		{name: "two-documents", check: "discover", reason: "stdout holds more than one document"},
		{name: "logs-to-stdout", check: "discover", reason: `stdout is not JSON, it begins with "asking the registry`},
		{name: "fails-without-a-word", check: "discover", reason: "nothing on stdout"},
		{name: "error-with-status-0", check: "discover", reason: "rule 2.9 of the plugin contract: exit status 0 with an error: not yet"},
		{name: "peers-with-status-1", check: "discover", reason: "exit status 1 with peers"},
		{name: "peers-and-error", check: "discover", reason: "holds peers and error at once"},
		{name: "answers-any-verb", check: "unknown-verb", reason: "asked with the verb frobnicate, the plugin gave 3 peers; it must answer with an error"},
		{name: "any-version", check: "unknown-version", reason: "asked in version 99, the plugin gave 3 peers"},
		{name: "hangs-on-empty-request", check: "empty-request", reason: "gave no answer within", opts: plugintest.Options{Timeout: 300 * time.Millisecond}},
		{name: "refuses-unknown-fields", check: "discover-ignores-unknown-fields", reason: "with fields of a later version, discover was answered with an error (internal): what?"},
		{name: "info-refuses-unknown-fields", check: "info-ignores-unknown-fields", reason: "info with fields of a later version was answered with an error"},
		{name: "no-contract-version", check: "info", reason: "info has no contractVersions"},
		{name: "contract-version-2", check: "info-contract-version", reason: "contractVersions is [2], version 1 is missing"},
		{name: "name-is-a-path", check: "info", reason: `info names the plugin "../x"`},
		{name: "takes-a-reserved-key", check: "info", reason: `rule 3.3 of the plugin contract: info has the parameter "timeout"`},
		{name: "undocumented-parameter", check: "known-parameters", reason: "info does not list the parameter zone", opts: plugintest.Options{Parameters: zone}},
		{name: "required-but-not", check: "required-parameters", reason: "asked without zone, which info says is required, the plugin gave 3 peers", opts: plugintest.Options{Parameters: zone}},
		{name: "missing-parameter-is-internal", check: "required-parameters", reason: `the error code "internal", it must be config`, opts: plugintest.Options{Parameters: zone}},
		{name: "part-of-the-set", check: "discover", reason: "discover gave 2 peers (192.0.2.10 192.0.2.11), 3 were expected: a part must be an error", opts: plugintest.Options{Size: 3}},
		{name: "unknown-code", check: "discover", reason: `the error code "busy", there are retry, config and internal`},
		{name: "host-with-port", check: "discover", reason: "the host is neither a host name nor an address without brackets"},
		{name: "address-twice", check: "discover", reason: "have one address, 192.0.2.10"},
		{name: "port-out-of-range", check: "discover", reason: "port 123456 is not in 1 to 65535"},
		{name: "leaves-itself-out", check: "discover-same-on-every-node", reason: "on another node, discover gave"},
		{name: "invents-members", check: "discover-invents-nobody", reason: "of 3 members discover gave 4 when it was asked for a size of 4"},
		{name: "leaves-a-daemon", check: "discover", reason: "a process it left behind held its stdout or stderr open"},
		{name: "needs-the-environment", check: "discover", reason: "nothing on stdout"},
		{name: "writes-to-its-directory", check: "working-directory", reason: "left files in its working directory"},
		{name: "misspelt-field", check: "discover", reason: "field Peers must be spelt peers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := plugintest.Run(t.Context(), install(t, "testdata/wrong/"+tt.name), tt.opts)
			if r.OK() {
				t.Errorf("the plugin passes")
			}
			for _, c := range r.Checks {
				switch {
				case c.Name == tt.check && (c.Status != plugintest.Fail || !strings.Contains(c.Reason, tt.reason)):
					t.Errorf("%s: %s %s, want a failure with %q", c.Name, c.Status, c.Reason, tt.reason)
				case c.Name != tt.check && c.Status == plugintest.Fail && c.Name != "discover":
					t.Errorf("%s fails as well: %s", c.Name, c.Reason)
				}
				if c.Status == plugintest.Fail && strings.ContainsAny(c.Reason, "\n\t") {
					t.Errorf("more than one line: %q", c.Reason)
				}
			}
			removeLeft(t, r)
		})
	}
	files, err := os.ReadDir("testdata/wrong")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		tested := func(tt struct {
			name, check, reason string
			opts                plugintest.Options
		},
		) bool {
			return tt.name == f.Name()
		}
		if f.Name() != "right" && !slices.ContainsFunc(tests, tested) {
			t.Errorf("testdata/wrong/%s is not tested", f.Name())
		}
	}
}

// removeLeft cleans up behind the plugin that writes to its directory.
func removeLeft(t *testing.T, r plugintest.Report) {
	t.Helper()
	for _, c := range r.Checks {
		_, list, ok := strings.Cut(c.Reason, "left files in its working directory: ")
		for f := range strings.SplitSeq(list, ", ") {
			if ok {
				if err := os.RemoveAll(filepath.Dir(f)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestRight: the plugin that the wrong ones are made from passes.
func TestRight(t *testing.T) {
	plugintest.Test(t, install(t, "testdata/wrong/right"), plugintest.Options{Size: 3})
}

func TestFile(t *testing.T) {
	path := install(t, "testdata/wrong/right")
	if err := os.Chmod(path, 0o646); err != nil {
		t.Fatal(err)
	}
	r := plugintest.Run(t.Context(), path, plugintest.Options{})
	if r.OK() || len(r.Checks) != 1 || !strings.Contains(r.Checks[0].Reason, "everybody may write it") {
		t.Errorf("got %+v", r)
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestReference: the reference plugins of this module pass, each with a real
// source.
func TestReference(t *testing.T) {
	t.Run("hosts", func(t *testing.T) {
		bin := filepath.Join(t.TempDir(), "hosts")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../hosts")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		file := write(t, "hosts", "127.0.0.1 localhost\n192.0.2.10 etcd-a.example.org etcd-a\n192.0.2.11 etcd-b # second\n\n2001:db8::11 etcd-b\n192.0.2.12 web etcd-c\n")
		plugintest.Test(t, bin, plugintest.Options{Size: 3, Parameters: map[string]string{"file": file, "match": "etcd-*"}})
	})
	t.Run("shell", func(t *testing.T) {
		file := write(t, "members.txt", "etcd-a 192.0.2.10\netcd-b 192.0.2.11\n\netcd-c 2001:db8::12\n")
		plugintest.Test(t, install(t, "../shell/members"), plugintest.Options{Size: 3, Parameters: map[string]string{"file": file}})
	})
	t.Run("python", func(t *testing.T) {
		if _, err := exec.LookPath("python3"); err != nil {
			t.Skip("no python3 here")
		}
		file := write(t, "inventory", "web ansible_host=192.0.2.1\n[etcd]\netcd-a ansible_host=192.0.2.10 x=1\n# none\netcd-b.example.org\netcd-c ansible_host=2001:db8::12\n[web]\nweb\n")
		opts := plugintest.Options{Size: 3, Parameters: map[string]string{"file": file}}
		if _, err := os.Stat("/usr/bin/python3"); err != nil { // where it is found without a PATH
			opts.Env = []string{"PATH=" + os.Getenv("PATH")}
		}
		plugintest.Test(t, install(t, "../python/inventory"), opts)
	})
}
