package etcdconf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/cmd/internal/exit"
)

// Whatever a configuration file holds, Load answers with a configuration or an
// *Error of one line; what it accepts resolves, and resolves to itself.
func FuzzLoadFile(f *testing.F) {
	archives, err := filepath.Glob("testdata/resolved/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range archives {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		_, in, _ := strings.Cut(string(data), "-- in.yaml --\n")
		in, _, _ = strings.Cut(in, "-- want.yaml --\n")
		f.Add(in)
	}
	for _, text := range []string{"", "{}", "a: &a [*a]\ndata-dir: /d\n", "? [a]\n: b\n", "<<: 1\ndata-dir: /d\n", "data-dir: !!binary aGk=\n", "--- \n...\n---\n", "data-dir: /d\nname: !!str 1\n", "data-dir: /d\nname: |\n  a\n  b\n", "\ufeffdata-dir: /d\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "etcd.yaml")
		write(t, path, text)
		c, err := Load(path, nil, nil)
		if err != nil {
			oneError(t, err)
			return
		}
		out, err := c.Resolved(exampleHandoff("http"))
		if err != nil {
			oneError(t, err)
			return
		}
		write(t, path, string(out))
		c, err = Load(path, nil, nil)
		if err != nil {
			t.Fatalf("the resolved file is refused: %v\n%s", err, out)
		}
		if again, err := c.Resolved(exampleHandoff("http")); err != nil || string(again) != string(out) {
			t.Fatalf("resolved twice: error %v\n%q\n%q", err, out, again)
		}
	})
}

// Whatever the environment holds, Load, EnvFile and Exec do not panic.
func FuzzLoadEnvironment(f *testing.F) {
	f.Add("ETCD_DATA_DIR=/d\x00ETCD_NAME=a", "etcd --name a")
	f.Add("ETCD_DATA_DIR=/d\x00ETCD_LISTEN_PEER_URLS=http://2001:db8::1:2380", "etcd -")
	f.Add("=\x00ETCD_DATA_DIR\x00ETCD_=1\x00ETCD_DATA_DIR==", "etcd --=x")
	f.Add("ETCD_DATA_DIR=/d\x00ETCD_INITIAL_CLUSTER=,=a", "")
	f.Fuzz(func(t *testing.T, joined, line string) {
		environ, args := strings.Split(joined, "\x00"), strings.Fields(line)
		for _, kv := range environ {
			if strings.HasPrefix(kv, "ETCD_CONFIG_FILE=") {
				return // no reading of any file on this machine
			}
		}
		_, flags, err := ExecFlags(args)
		if err != nil {
			oneError(t, err)
		}
		c, err := Load("", flags, environ)
		if err != nil {
			oneError(t, err)
			return
		}
		h := Handoff{Name: c.Name, AdvertisePeerURLs: c.AdvertisePeerURLs}
		if len(EnvFile(h)) == 0 {
			t.Error("no handoff")
		}
		if _, _, err := c.Exec(h, args, environ, ""); err != nil {
			oneError(t, err)
		}
		if _, err := c.Resolved(h); err != nil {
			oneError(t, err)
		}
	})
}

func oneError(t *testing.T, err error) {
	t.Helper()
	var configuration *exit.Error
	if !errors.As(err, &configuration) {
		t.Errorf("%T is not *Error: %v", err, err)
	}
}
