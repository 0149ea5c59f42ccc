package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/plugins"
)

func TestDiscover(t *testing.T) {
	const three = `127.0.0.1 localhost etcd
192.0.2.10  etcd-a.example.org etcd-a   # the first name that matches counts
192.0.2.11	ETCD-B.example.org
2001:db8::11 etcd-b.example.org
#192.0.2.13 etcd-d.example.org

192.0.2.12 web etcd-c.example.org
lonely
`
	tests := []struct {
		name, text, match string
		size              int
		want, code, err   string
	}{
		{name: "three", text: three, match: "*.example.org", size: 3, want: "etcd-a.example.org[192.0.2.10] ETCD-B.example.org[192.0.2.11 2001:db8::11] etcd-c.example.org[192.0.2.12]"},
		{name: "size not told", text: three, match: "etcd-a", want: "etcd-a[192.0.2.10]"},
		{name: "too few", text: three, match: "etcd-[ac].*", size: 3, code: plugins.CodeRetry, err: "has 2 of 3 names that match etcd-[ac].*"},
		{name: "default pattern", text: "192.0.2.10 etcd-0\n192.0.2.11 db\n", size: 1, want: "etcd-0[192.0.2.10]"},
		{name: "bad pattern", match: "[", code: plugins.CodeConfig, err: "match=[ is no pattern"},
		{name: "no file", code: plugins.CodeRetry, err: "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "hosts")
			if tt.text != "" {
				if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			peers, err := discover(t.Context(), plugins.Request{Size: tt.size, Parameters: map[string]string{"file": file, "match": tt.match}})
			var got []string
			for _, p := range peers {
				got = append(got, fmt.Sprint(p.Host, p.Addrs))
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
			var e *plugins.Error
			if (err == nil) != (tt.err == "") || err != nil && (!errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Message, tt.err)) {
				t.Errorf("got %v, want %s %q", err, tt.code, tt.err)
			}
		})
	}
}
