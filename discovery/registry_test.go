package discovery_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/dns"
	"github.com/etcdinit/etcdinit/discovery/execplugin"
	"github.com/etcdinit/etcdinit/discovery/file"
	"github.com/etcdinit/etcdinit/discovery/http"
	"github.com/etcdinit/etcdinit/discovery/srv"
	"github.com/etcdinit/etcdinit/discovery/static"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a factory that shows what it was given.
func echo(source *url.URL, env discovery.Env) (discovery.Provider, error) {
	if env.Log == nil {
		return nil, errors.New("no log")
	}
	if strings.Contains(source.RawQuery, "bad") {
		return nil, errors.New("a bare error")
	}
	return &fake{}, nil
}

func registry() discovery.Registry {
	return discovery.Registry{"srv": srv.New, "static": static.New, "file": file.New, "exec": echo}
}

// everything is a registry of all sources.
func everything() discovery.Registry {
	return discovery.Registry{
		"srv": srv.New, "dns": dns.New, "static": static.New, "file": file.New, "exec": execplugin.New,
		"http": http.New, "https": http.New,
	}
}

func TestOpen(t *testing.T) {
	const known = "known schemes: exec, file, srv, static"
	tests := []struct {
		source string
		texts  []string // empty: it opens
	}{
		{"srv://example.org", nil},
		{"SRV://Example.ORG", nil},
		{"srv://example.org?service=peer-ssl&server=192.0.2.53:5353&server=[2001:db8::53]&client=off", nil},
		{"static:?peer=a=https://a.example.org:2380&peer=https://[2001:db8::10]:2380", nil},
		{"file:///etc/etcdinit/peers.yaml", nil},
		{"exec:consul?service=etcd", nil},
		{"", []string{"no scheme", "srv://example.org", known}},
		{"example.org", []string{"no scheme", "srv://example.org", known}},
		{"/etc/peers.yaml", []string{"file:///etc/peers.yaml"}},
		{"consul://example.org", []string{`unknown scheme "consul"`, known}},
		{"example.org:2380", []string{`unknown scheme "example.org"`, known}},
		{"srv://example.org#x", []string{"%23"}},
		{"srv://user:secret@example.org", []string{"password"}},
		{"srv://exa mple.org", []string{"invalid character"}},
		{"srv://", []string{"host is empty"}},
		{"srv:example.org", []string{"srv://DOMAIN"}},
		{"srv://example.org/x", []string{"srv://DOMAIN"}},
		{"srv://example.org:53", []string{"srv://DOMAIN"}},
		{"srv://192.0.2.1", []string{"is an address"}},
		{"srv://example.org?label=x", []string{"label", "known are"}},
		{"srv://example.org?service=a&service=b", []string{"2 times"}},
		{"srv://example.org?service=a.b", []string{"one label"}},
		{"srv://example.org?service=a&name=b", []string{"one of the two"}},
		{"srv://example.org?name=", []string{"one label"}},
		{"srv://example.org?server=ns.example.org", []string{"IP:port"}},
		{"srv://example.org?hash-names=yes", []string{"allow"}},
		{"srv://example.org?service=%zz", []string{"invalid URL escape"}},
		{"static:", []string{"no peer"}},
		{"static:a=http://a:1", []string{"static:?peer="}},
		{"static:?peers=a=http://a:1", []string{`"peers"`}},
		{"static:?peer=a=a.example.org:2380", []string{"no scheme"}},
		{"static:?peer==http://a:2380", []string{"name before '=' is empty"}},
		{"static:?peer=a=http://2001:db8::10:2380", []string{"IPv6 address must be in brackets"}},
		{"static:?peer=a=http://a.example.org", []string{"no port"}},
		{"static:?peer=a=http://a.example.org:2380/", []string{"a path"}},
		{"static:?peer=a=http://a.example.org:0", []string{"1 to 65535"}},
		{"static:?peer=a=ftp://a.example.org:1", []string{`"ftp"`}},
		{"file:peers.yaml", []string{"file:///"}},
		{"file://etc/peers.yaml", []string{"file:///"}},
		{"exec:x?bad", []string{"a bare error"}},
	}
	for _, tt := range tests {
		t.Run(tt.source, func(t *testing.T) {
			p, err := registry().Open(tt.source, discovery.Env{})
			if len(tt.texts) == 0 {
				if err != nil || p == nil {
					t.Fatalf("got %v, %v", p, err)
				}
				return
			}
			if p != nil || kind(err) != discovery.Config {
				t.Fatalf("got %v, %v, want a Config error", p, err)
			}
			contains(t, err, tt.texts...)
			if s := err.Error(); strings.Contains(s, "secret") || strings.Contains(s, "\n") {
				t.Errorf("error %q", s)
			}
		})
	}
}

// FuzzOpen: no source makes a factory panic; what opens, opens again.
func FuzzOpen(f *testing.F) {
	for _, s := range []string{
		"srv://example.org?service=x", "static:?peer=a=http://a:1,http://b:2&peer=http://[::1]:1", "file:///a", "exec:x?y=z", "%", "srv://[::1%25x]?server=1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		p, err := registry().Open(source, discovery.Env{})
		if (p == nil) == (err == nil) {
			t.Fatalf("got %v and %v", p, err)
		}
		if err != nil && kind(err) != discovery.Config {
			t.Fatalf("got %v, want a Config error", err)
		}
		if _, again := registry().Open(source, discovery.Env{}); (again == nil) != (err == nil) {
			t.Fatalf("first %v, then %v", err, again)
		}
	})
}
