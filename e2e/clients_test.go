//go:build e2e

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// Clients find a cluster as deploy/clients/README.md says: its commands, word
// for word and all of them, on a host that has nothing but the three files they
// name; and the refusals that the page explains.
func TestClientsReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/clients/README.md")
	if err != nil {
		t.Fatal(err)
	}
	page, commands := string(text), map[string]string{}
	for _, block := range regexp.MustCompile("(?s)\n<!-- run: ([a-z]+) -->\n```sh\n(.*?\n)```").FindAllStringSubmatch(page, -1) {
		commands[block[1]] = block[2]
	}
	if n := strings.Count(page, "\n```sh\n"); n != 2 || commands["srv"] == "" || commands["endpoints"] == "" {
		t.Fatalf("the page has %d blocks of commands; this test runs %v", n, commands)
	}

	c := &cluster{Lab: lab.New(t), t: t, shape: shape{size: 3, tls: true}}
	c.dns, c.hosts = c.host("dns"), c.Hosts("etcd-0", "etcd-1", "etcd-2")
	client := c.host("client")
	c.zone = c.records().SRV("_etcd-client-ssl", 2379, c.hosts...)
	ca := c.PKI(c.hosts, c.zone)
	c.UseDNS(append(c.hosts, client), c.dns)
	c.CoreDNS(c.dns, c.zone)
	for _, h := range c.hosts {
		h.Write("etcd.yaml", c.config())
	}
	c.boot("3.6")
	c.works()
	cert, key := ca.Issue([]string{"client"}, nil)
	client.Write("ca.crt", ca.PEM())
	client.Write("client.crt", cert)
	client.Write("client.key", key)

	// run types commands at the client, where etcdctl is a version's.
	run := func(version, text string) lab.Result {
		return client.Run("sh", "-ec", `PATH=$0:$PATH; eval "$1"`, filepath.Dir(c.Tool("etcd-"+version+"/etcdctl")), text)
	}
	for _, version := range lab.Versions() {
		for name, text := range commands {
			if r := run(version, text); r.Status != 0 || strings.Count(r.Stdout+r.Stderr, "is healthy") != 3 {
				t.Errorf("etcdctl %s, %s: status %d\n%s%s", version, name, r.Status, r.Stdout, r.Stderr)
			}
		}
	}

	// refused: the status and the words that the page gives on one line of its table.
	refused := func(status, words, instead, text string) {
		t.Helper()
		line := regexp.MustCompile(`(?m)^\| ` + status + ` \| .*` + regexp.QuoteMeta(words))
		if !line.MatchString(page) {
			t.Errorf("the page has no line for status %s and %q", status, words)
		}
		r := run("3.6", text)
		if want := map[string]int{"1": 1, "128": 128}[status]; r.Status != want || !strings.Contains(r.Stdout+r.Stderr, words) || strings.Count(r.Stdout, instead) > 0 {
			t.Errorf("%s: status %d, want %d and %q\n%s%s", text, r.Status, want, words, r.Stdout, r.Stderr)
		}
	}
	const files, by = " --cacert ca.crt --cert client.crt --key client.key --command-timeout 2s ", "etcdctl --discovery-srv example.org"
	refused("1", "dns lookup errors: lookup _etcd-client-ssl._tcp.", "OK", "etcdctl --discovery-srv example.net"+files+"put a b")
	refused("1", "dial tcp 127.0.0.1:2379: connect: connection refused", "is healthy", by+files+"endpoint health")
	refused("1", "certificate signed by unknown authority", "OK", by+strings.Replace(files, "ca.crt", "client.crt", 1)+"put a b")
	refused("1", "error reading server preface", "OK", "etcdctl --endpoints http://etcd-0.example.org:2379"+files+"put a b")
	refused("1", "context deadline exceeded", "OK", by+" --cacert ca.crt --command-timeout 2s put a b")
	refused("128", "no such file or directory", "OK", "etcdctl --discovery-srv example.org --cacert none.crt put a b")

	// A member's own name is what its certificate must hold; with etcdctl 3.4 and secure discovery, the domain.
	const secure = by + " --insecure-discovery=false" + files + "put a b"
	certificates := func(name func(h *lab.Host) string) {
		for _, h := range c.hosts {
			cert, key := ca.Issue([]string{name(h)}, nil)
			h.Write("pki/member.crt", cert)
			h.Write("pki/member.key", key)
		}
	}
	certificates(c.zone.FQDN)
	for _, version := range lab.Versions() {
		if r := run(version, by+files+"put a b"); r.Status != 0 {
			t.Errorf("etcdctl %s does not take certificates of the members' names: %s", version, r.Stderr)
		}
		if r := run(version, secure); (r.Status != 0) != (version == "3.4") {
			t.Errorf("etcdctl %s, secure discovery, certificates of the members' names: status %d: %s", version, r.Status, r.Stderr)
		}
	}
	certificates(func(*lab.Host) string { return "example.org" })
	if r := run("3.4", secure); r.Status != 0 {
		t.Errorf("etcdctl 3.4 does not take certificates of the domain: %s", r.Stderr)
	}
	certificates(func(*lab.Host) string { return "other.example.org" })
	refused("1", "certificate is valid for ", "OK", by+files+"put a b")

	c.zone = lab.NewZone("example.org", 30*time.Second).SRV("_etcd-client", 2379, c.hosts...).Addrs(c.hosts...)
	c.UpdateCoreDNS(c.dns, c.zone)
	c.Eventually("the records for plain HTTP", 30*time.Second, func() error {
		if c.Lookup(c.dns, "_etcd-client._tcp.example.org.", dns.TypeSRV) == "" {
			return errors.New("not there")
		}
		return nil
	})
	refused("1", "ignoring discovered insecure endpoint", "OK", secure)
}
