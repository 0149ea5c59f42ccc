package hosturl

import (
	"net/url"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct{ in, want, err string }{
		{in: "http://a.example.org:2380", want: "http://a.example.org:2380"},
		{in: "HTTPS://A.Example.ORG.:2380", want: "https://a.example.org:2380"},
		{in: "http://192.0.2.10:2380", want: "http://192.0.2.10:2380"},
		{in: "http://[2001:DB8:0::10]:2380", want: "http://[2001:db8::10]:2380"},
		{in: "http://[::ffff:192.0.2.10]:2380", want: "http://192.0.2.10:2380"},
		{in: "http://a_b.example.org:65535", want: "http://a_b.example.org:65535"},
		{in: "a.example.org:2380", err: "no scheme"},
		{in: "", err: "no scheme"},
		{in: "unix://a:1", err: `scheme "unix"`},
		{in: "http://a.example.org", err: "no port"},
		{in: "http://a.example.org:", err: `port ""`},
		{in: "http://a.example.org:0", err: `port "0"`},
		{in: "http://a.example.org:02380", err: `port "02380"`},
		{in: "http://a.example.org:65536", err: `port "65536"`},
		{in: "http://a.example.org:2380/", err: "a path is not allowed, want http://host:port and nothing else"},
		{in: "http://a.example.org:2380?x", err: "a query"},
		{in: "http://a.example.org:2380#x", err: "a fragment"},
		{in: "http://me@a.example.org:2380", err: "a user"},
		{in: "http://2001:db8::10:2380", err: "IPv6 address must be in brackets: [2001:db8::10]:2380"},
		{in: "http://[2001:db8::10]", err: "no port"},
		{in: "http://[a.example.org]:2380", err: "not an IPv6 address"},
		{in: "http://[192.0.2.10]:2380", err: "not an IPv6 address"},
		{in: "http://[fe80::1%25eth0]:2380", err: "zone"},
		{in: "http://:2380", err: "host is empty"},
		{in: "http://a..org:2380", err: "0 characters"},
		{in: "http://" + strings.Repeat("a", 64) + ".org:2380", err: "64 characters"},
		{in: "http://" + strings.Repeat("a.", 127) + "org:2380", err: "at most 253"},
		{in: "http://a b:2380", err: "' '"},
		{in: "http://ä.org:2380", err: "character"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			u, err := Parse(tt.in)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, %v, want an error with %q", u, err, tt.err)
				}
				return
			}
			if err != nil || u.String() != tt.want {
				t.Fatalf("got %v, %v, want %s", u, err, tt.want)
			}
		})
	}
}

// FuzzParse: what is read is written in one spelling, which net/url reads.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"http://a.example.org:2380", "https://[2001:db8::1]:1", "http://[::1%x]:1", "http://1:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		u, err := Parse(in)
		if err != nil {
			return
		}
		again, err := Parse(u.String())
		if err != nil || again != u {
			t.Fatalf("%q is read as %v, which is read as %v, %v", in, u, again, err)
		}
		std, err := url.Parse(u.String())
		if err != nil || std.Hostname() != u.Host || std.Path != "" || std.Scheme != u.Scheme {
			t.Fatalf("%q is read as %v, which net/url reads as %v, %v", in, u, std, err)
		}
	})
}

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want URL
		ok   bool
	}{
		{"http://0.0.0.0:2380", URL{Scheme: "http", Host: "0.0.0.0", Port: 2380}, true},
		{"HTTPS://Etcd-0.example.org:0", URL{Scheme: "https", Host: "Etcd-0.example.org"}, true},
		{"http://[::]:2380", URL{Scheme: "http", Host: "::", Port: 2380}, true},
		{"http://:2380", URL{Scheme: "http", Port: 2380}, true},
		{"http://etcd-0", URL{}, false},
		{"http://etcd-0:65536", URL{}, false},
		{"etcd-0:2380", URL{}, false},
	} {
		if got, ok := Split(tt.raw); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %+v, %t; want %+v, %t", tt.raw, got, ok, tt.want, tt.ok)
		}
	}
}

func TestUnbracketed(t *testing.T) {
	for hostPort, want := range map[string]string{
		"2001:db8::10:2380": "[2001:db8::10]:2380",
		"2001:db8::10:":     "[2001:db8::10]:PORT",
		"[2001:db8::10]:1":  "",
		"etcd-0:2380":       "",
		"a:b:c":             "[a:b:c]:PORT",
	} {
		if got, found := Unbracketed(hostPort); got != want || found != (want != "") {
			t.Errorf("%s: %s, %t; want %s", hostPort, got, found, want)
		}
	}
}
