package seed

import (
	"strings"
	"testing"
)

// TestCheckURL: the text of a URL is hashed to the member's ID, so one spelling
// passes and every other one is told which.
func TestCheckURL(t *testing.T) {
	tests := []struct{ text, want string }{
		{"http://etcd-0.example.com:2380", ""},
		{"https://192.0.2.10:2380", ""},
		{"https://[2001:db8::10]:2380", ""},
		{"unix://etcd.sock", ""},
		{"unixs:///run/etcd.sock", ""},
		{"http://etcd-0.example.com.:2380", "host etcd-0.example.com. ends in a dot"},
		{"http://ETCD-0.example.com:2380", "host ETCD-0.example.com is not in lower case"},
		{"http://[2001:0db8::10]:2380", "address 2001:0db8::10 is written 2001:db8::10"},
		{"http://[::ffff:192.0.2.10]:2380", "address ::ffff:192.0.2.10 is written 192.0.2.10"},
		{"HTTP://etcd-0.example.com:2380", "is written http://etcd-0.example.com:2380"},
		{"http://2001:db8::10:2380", "IPv6 address must be in brackets: [2001:db8::10]:2380"},
		{"http://[fe80::1%25eth0]:2380", "zone"},
		{"http://[192.0.2.10]:2380", "is not an IPv6 address"},
		{"http://etcd~0.example.com:2380", "'~'"},
		{"http://:2380", "the host is empty"},
		{"http://etcd-0.example.com:2380/", "a path is not allowed"},
		{"etcd-0.example.com:2380", "no scheme"},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			err := checkURL(tt.text)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.text+": ") || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
