package app

import "testing"

func TestUnitOf(t *testing.T) {
	for _, tt := range []struct{ cgroup, want string }{
		{"0::/system.slice/etcd.service\n", "etcd.service"},
		{"0::/system.slice/etcd.service/payload\n", "etcd.service"},
		{"12:pids:/system.slice/etcd@a.service\n1:name=systemd:/system.slice/etcd@a.service\n", "etcd@a.service"},
		{"0::/user.slice/user-0.slice/session-1.scope\n", ""},
		{"0::/user.slice/user-1.slice/user@1.service/app.slice/etcd.service\n", "etcd.service"},
		{"0::/\n", ""},
		{"", ""},
	} {
		if got := unitOf(tt.cgroup); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.cgroup, got, tt.want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"--config-file": "--config-file", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "$HOME": "'$HOME'",
		"static:?peer=a=http://a:1&peer=b": "'static:?peer=a=http://a:1&peer=b'",
	} {
		if got := shellWord(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
