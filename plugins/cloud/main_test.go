package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	discover "github.com/hashicorp/go-discover"

	"github.com/etcdinit/etcdinit/plugins"
	"github.com/etcdinit/etcdinit/plugins/plugintest"
)

const pluginName = "cloud"

// TestMain makes this binary the plugin itself where it is called by its name:
// that saves a second build of the SDK.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == pluginName {
		main()
	}
	os.Exit(m.Run())
}

// cloud stands for a provider: it answers with the instances of a tag.
type cloud map[string][]string

func (c cloud) Addrs(args map[string]string, _ *log.Logger) ([]string, error) {
	if args["tag_value"] == "hang" {
		select {}
	}
	for key := range args {
		if strings.HasPrefix(key, "peer-") {
			return nil, errors.New("the provider sees " + key)
		}
	}
	addrs, ok := c[args["tag_value"]]
	if !ok {
		return nil, errors.New("no credentials")
	}
	return slices.Clone(addrs), nil
}

func (cloud) Help() string { return "" }

func TestDiscover(t *testing.T) {
	p := plugin{providers: map[string]discover.Provider{"test": cloud{
		"eu": {"192.0.2.12", "192.0.2.10", "192.0.2.11", "192.0.2.10"},
		"v6": {"2001:db8::10"}, "odd": {"ip-192-0-2-10"},
	}}}
	tests := []struct {
		name, params string
		size         int
		want         string
		code, err    string
	}{
		{name: "bare", params: "provider=test tag_value=eu", size: 3, want: "/192.0.2.10:0[192.0.2.10][] /192.0.2.11:0[192.0.2.11][] /192.0.2.12:0[192.0.2.12][]"},
		{
			name: "templates", size: 1, params: "provider=test tag_value=v6 peer-host=ip-{{.Dashed}}.example.org peer-name=etcd-{{.Last}} peer-port=12380 peer-scheme=https",
			want: "etcd-10/ip-2001-db8--10.example.org:12380[2001:db8::10][https://ip-2001-db8--10.example.org:12380]",
		},
		{name: "URL of an address", size: 1, params: "provider=test tag_value=v6 peer-port=2380 peer-scheme=http", want: "/2001:db8::10:2380[2001:db8::10][http://[2001:db8::10]:2380]"},
		{name: "too few", params: "provider=test tag_value=eu", size: 4, code: plugins.CodeRetry, err: "provider test found 3 of 4 instances: 192.0.2.10 192.0.2.11 192.0.2.12"},
		{name: "the cloud says no", params: "provider=test tag_value=x", size: 3, code: plugins.CodeRetry, err: "provider test: no credentials"},
		{name: "unknown provider", params: "provider=tset", size: 3, code: plugins.CodeConfig, err: "provider=tset is not one of test"},
		{name: "no provider", size: 3, code: plugins.CodeConfig, err: "provider= is not one of"},
		{name: "no size", params: "provider=test tag_value=eu", code: plugins.CodeConfig, err: "--size is missing"},
		{name: "misspelt", params: "provider=test peer-prot=1", size: 3, code: plugins.CodeConfig, err: "unknown parameter peer-prot"},
		{name: "port", params: "provider=test peer-port=0", size: 3, code: plugins.CodeConfig, err: "peer-port=0 is no port"},
		{name: "scheme", params: "provider=test peer-scheme=tcp peer-port=1", size: 3, code: plugins.CodeConfig, err: "neither http nor https"},
		{name: "scheme alone", params: "provider=test peer-scheme=http", size: 3, code: plugins.CodeConfig, err: "peer-scheme needs peer-port"},
		{name: "template", params: "provider=test peer-host={{.Ip}}", size: 3, code: plugins.CodeConfig, err: "the fields are .IP, .Dashed, .Last"},
		{name: "no address", params: "provider=test tag_value=odd", size: 1, err: `gave "ip-192-0-2-10"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			params := map[string]string{}
			for kv := range strings.FieldsSeq(tt.params) {
				k, v, _ := strings.Cut(kv, "=")
				params[k] = v
			}
			peers, err := p.discover(t.Context(), plugins.Request{Parameters: params, Size: tt.size})
			var got []string
			for _, p := range peers {
				got = append(got, fmt.Sprintf("%s/%s:%d%v%v", p.Name, p.Host, p.Port, p.Addrs, p.PeerURLs))
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
			var e *plugins.Error
			errors.As(err, &e)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || tt.code != "" && (e == nil || e.Code != tt.code) {
				t.Errorf("got %v, want %s %q", err, tt.code, tt.err)
			}
		})
	}
}

// TestDeadline: go-discover knows no context; the plugin answers all the same.
func TestDeadline(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := plugin{providers: map[string]discover.Provider{"test": cloud{}}}
	_, err := p.discover(ctx, plugins.Request{Size: 1, Parameters: map[string]string{"provider": "test", "tag_value": "hang"}})
	if err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("got %v", err)
	}
}

// TestReadme: the README names every provider, and says of each that it was
// not tried.
func TestReadme(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range discover.Providers {
		if !strings.Contains(string(b), "\n| `"+name+"` |") {
			t.Errorf("provider %s is not in the README", name)
		}
	}
}

// TestConformance runs the suite on the plugin as a process. There is no cloud here,
// so that discover ends in an error, as it must.
func TestConformance(t *testing.T) {
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), pluginName)
	if err := os.Symlink(bin, link); err != nil {
		t.Fatal(err)
	}
	plugintest.Test(t, link, plugintest.Options{Parameters: map[string]string{"provider": "aws", "region": "eu-west-1", "tag_key": "etcd", "tag_value": "eu"}})
}
