//go:build e2e

package e2e

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// mountOver shows a host's directory at an absolute path, to that host's
// processes only.
func mountOver(h *lab.Host, dir, at string) {
	h.MustRun("mkdir", "-p", dir)
	h.MustRun("mount", "--bind", dir, at)
}

// The path of a new user, word for word: the document's plugin and files, its
// commands on each of its three nodes, and a real etcd at their end.
func TestPluginsReadmeBoots(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../plugins/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, run, boot := map[string]string{}, "", []string{}
	for _, m := range regexp.MustCompile("(?s)\n```(sh run|sh boot|(?:sh|yaml) file=([\\w.]+))\n(.*?\n)```").FindAllStringSubmatch(string(text), -1) {
		switch m[1] {
		case "sh run":
			run += m[3]
		case "sh boot":
			boot = append(boot, strings.Split(strings.TrimSpace(m[3]), "\n")...)
		default:
			files[m[2]] = m[3]
		}
	}
	if len(files) != 2 || run == "" || len(boot) == 0 || !strings.HasPrefix(boot[len(boot)-1], "etcd ") {
		t.Fatalf("the document has the files %v, the commands\n%s\nand to boot\n%s", files, run, strings.Join(boot, "\n"))
	}

	l := lab.New(t)
	path := filepath.Dir(etcdinit) + ":" + filepath.Dir(l.Tool("etcd-3.7")) + ":" + os.Getenv("PATH")
	var hosts []*lab.Host
	for i, name := range []string{"etcd-a", "etcd-b", "etcd-c"} {
		h := l.HostAt(name, netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}))
		hosts = append(hosts, h)
		// The document's absolute paths belong to this host alone.
		h.Write("etc/hosts", "127.0.0.1 localhost\n")
		h.Write("etc/resolv.conf", "")
		h.MustRun("sh", "-c", "cp -a /etc/alternatives etc/ 2>/dev/null || true") // awk is there on Debian
		for at, dir := range map[string]string{"/etc": "etc", "/opt": "opt", "/run": "run", "/var/lib": "var"} {
			mountOver(h, dir, at)
		}
		h.Setenv("ETCDINIT_TIMEOUT", "1m")
		for name, content := range files {
			h.Write("user/"+name, content)
		}
	}
	in := func(command string) []string {
		return []string{"-c", "cd user; PATH='" + path + "'; export PATH; " + command}
	}
	l.Each(hosts, func(h *lab.Host) {
		h.MustRun("sh", in("set -eu\n"+run)...)
		for _, command := range boot[:len(boot)-1] {
			h.MustRun("sh", in(command)...)
		}
		h.Start("sh", in("exec "+boot[len(boot)-1])...)
	})
	l.Healthy(hosts...)
	hosts[0].Put("key", "value")
	if got := hosts[2].Get("key"); got != "value" {
		t.Errorf("etcd-c reads %q", got)
	}
	l.SameHash(hosts...)
	for i, m := range hosts[1].Members() {
		if h := hosts[i]; m.Name != h.Name || len(m.ClientURLs) != 1 || m.ClientURLs[0] != h.Endpoint() {
			t.Errorf("member %+v, want %s at %s", m, h.Name, h.Endpoint())
		}
	}
}

// image makes in a host what a container of etcdinit's image is: a read-only
// root that holds the program and nothing else, and volumes. in is the command
// that runs etcdinit there, as the image's user.
func (c *cluster) image(h *lab.Host) (in []string) {
	c.t.Helper()
	h.MustRun("mkdir", "-p", "image/etc", "image/opt/etcdinit/plugins", "image"+c.Home, "volume", "emptydir")
	h.MustRun("cp", etcdinit, "image/etcdinit")
	h.MustRun("cp", "/etc/resolv.conf", "image/etc/resolv.conf")
	h.MustRun("mount", "--bind", "image", "image")
	h.MustRun("mount", "-o", "remount,bind,ro", "image")
	h.MustRun("chown", "65532:65532", "volume")
	mountOver(h, "volume", c.Home+"/image"+c.Home)
	h.Write("volume/etcd.yaml", h.Read("etcd.yaml"))
	h.Write("volume/hosts", c.lines(func(h *lab.Host) string { return h.Addr4().String() + " " + c.zone.FQDN(h) }))
	return []string{"--userspec=65532:65532", c.Home + "/image", "/etcdinit"}
}

// inDerivedImage copies the plugin as COPY does: it belongs to root.
const inDerivedImage = "mount -o remount,bind,rw image && install -m 755 plugin image/opt/etcdinit/plugins/hosts && mount -o remount,bind,ro image"

// inEmptyDir runs an init container as a user in an emptyDir, which belongs to
// root and which everybody may write; then it is mounted read-only.
func inEmptyDir(user, mode string) string {
	return "chmod 777 emptydir && " +
		"setpriv --reuid=" + user + " --regid=" + user + " --clear-groups install -m " + mode + " plugin emptydir/hosts && " +
		"mount --bind emptydir image/opt/etcdinit/plugins && mount -o remount,bind,ro image/opt/etcdinit/plugins"
}

// A plugin comes into an image that holds nothing but etcdinit: as a layer of
// its own, or from an init container through an emptyDir. It boots a cluster.
func TestPluginInScratchImage(t *testing.T) {
	plugin := hostsPlugin(t)
	for _, tt := range []struct{ name, copy string }{
		{"copied into a derived image", inDerivedImage},
		{"emptyDir, init container of the same user", inEmptyDir("65532", "755")},
		{"emptyDir, init container of root", inEmptyDir("0", "755")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 3, family: "4"})
			c.Require("chroot", "setpriv", "mount")
			c.withoutSRV()
			c.Each(c.hosts, func(h *lab.Host) {
				in := c.image(h)
				h.MustRun("cp", plugin, "plugin")
				h.MustRun("sh", "-ec", tt.copy)
				list := h.MustRun("chroot", append(in, "plugins")...)
				wantAll(t, "the list", list, "hosts", "/opt/etcdinit/plugins/hosts", "members from a hosts file")
				h.MustRun("chroot", append(in, "plugins", "test", "--size", "3", "hosts", "file="+c.Home+"/hosts", "match=m*")...)
				h.MustRun("chroot", append(in, "init", "--config-file", c.Home+"/etcd.yaml", "--size", "3", "--timeout", "1m",
					"--config-out", c.Home+"/run.yaml", "--discovery", "exec:hosts?match=m*&file="+c.Home+"/hosts")...)
				h.MustRun("mv", "volume/data", "volume/run.yaml", ".") // etcd's own container has the volume in its place
				h.Etcd("3.7", "--config-file", "run.yaml")
			})
			c.Healthy(c.hosts...)
			c.works()
		})
	}
}

// What must not be run is refused, and the refusal says what to do.
func TestPluginInScratchImageRefused(t *testing.T) {
	plugin := hostsPlugin(t)
	for _, tt := range []struct {
		name, copy string
		want       []string
	}{
		{"of another user", inEmptyDir("1000", "755"), []string{"belongs to uid 1000", "uid 65532", "chown root /opt/etcdinit/plugins/hosts"}},
		{"writable for everybody", inEmptyDir("65532", "777"), []string{"everybody may write it", "chmod o-w"}},
		{"not executable", inEmptyDir("0", "644"), []string{"not executable", "chmod 755"}},
		{"a script without its interpreter", "printf '#!/bin/sh\\n' > plugin && " + inDerivedImage, []string{"/bin/sh"}},
		{"not there", "true", []string{"plugin hosts is not in /opt/etcdinit/plugins"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newBarrierCluster(t, shape{size: 1, family: "4"})
			c.Require("chroot", "setpriv", "mount")
			c.withoutSRV()
			h := c.hosts[0]
			in := c.image(h)
			h.MustRun("cp", plugin, "plugin")
			h.MustRun("sh", "-ec", tt.copy)
			result := h.WantStatus(33, "chroot", append(in, "init", "--config-file", c.Home+"/etcd.yaml", "--size", "1", "--timeout", "3s",
				"--discovery", "exec:hosts?match=m*&file="+c.Home+"/hosts")...)
			wantAll(t, "the refusal", output(result), tt.want...)
			if _, err := h.Stat("volume/data"); err == nil {
				t.Error("something was written")
			}
		})
	}
}
