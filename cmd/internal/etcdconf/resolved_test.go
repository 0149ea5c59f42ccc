package etcdconf

import (
	"bytes"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each archive holds a static file and what Resolved makes of it.
func TestResolvedGolden(t *testing.T) {
	archives, err := filepath.Glob("testdata/resolved/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			part := map[string]*txtar.File{}
			for i := range a.Files {
				part[a.Files[i].Name] = &a.Files[i]
			}
			h := exampleHandoff("http")
			if listen := part["listen"]; listen != nil {
				us := strings.Fields(string(listen.Data))
				h.ListenPeerURLs, h.ListenClientURLs = us[:1], us[1:]
			}
			c, file, err := load(t, string(part["in.yaml"].Data), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Resolved(h)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				part["want.yaml"].Data = got
				write(t, path, string(txtar.Format(a)))
			}
			if want := part["want.yaml"].Data; !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}

			write(t, file, string(got))
			c, err = Load(file, nil, nil)
			if err != nil {
				t.Fatalf("the resolved file: %v", err)
			}
			again, err := c.Resolved(h)
			if err != nil || !bytes.Equal(got, again) {
				t.Errorf("resolved again: error %v, gives\n%s", err, again)
			}
		})
	}
}

func TestResolvedRefuses(t *testing.T) {
	tests := []struct {
		name, file string
		env        []string
		want       []string
	}{
		{"initial-cluster in a merge", "x: &x {initial-cluster: a=http://a.example.org:2380}\n<<: *x\ndata-dir: /d\n", nil, []string{"initial-cluster", "merge key"}},
		{"discovery-srv in a merge", "x: &x {discovery-srv: example.org}\n<<: *x\ndata-dir: /d\n", nil, []string{"discovery-srv", "merge key"}},
		{"anchor taken out", "discovery-srv: &d example.org\nx: *d\ndata-dir: /d\n", nil, []string{"anchor"}},
		{"a flag that no file can say", "", []string{"ETCD_DATA_DIR=/d", "ETCD_PEER_CRL_FILE=crl.pem"}, []string{"variable ETCD_PEER_CRL_FILE", "--env-file"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _, err := load(t, tt.file, nil, tt.env...)
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.Resolved(exampleHandoff("http"))
			if err == nil {
				t.Fatalf("no error, but\n%s", out)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q has no %q", err, want)
				}
			}
		})
	}
}

// A Config that no Load made resolves from its fields.
func TestResolvedFromFields(t *testing.T) {
	c := &Config{DataDir: "/d", PeerTLS: TLS{CertFile: "c", KeyFile: "k", AllowedCN: "a,b"}, InitialCluster: "a=http://a.example.org:2380", DiscoverySRV: "example.org"}
	got, err := c.Resolved(Handoff{Name: "yes"})
	const want = "data-dir: /d\npeer-transport-security:\n  cert-file: c\n  key-file: k\n  allowed-cn: [a, b]\nname: \"yes\"\ninitial-cluster-state: existing\n"
	if err != nil || string(got) != want {
		t.Errorf("error %v, got\n%s\nwant\n%s", err, got, want)
	}
}
