//go:build e2e

package lab_test

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/etcdinit/etcdinit/e2e/internal/lab"
)

// Stock etcd, discovering by SRV, is what the lab itself is tried with.
func TestStockCluster(t *testing.T) {
	l := lab.New(t)
	ns, hosts := l.Host("dns"), l.Hosts("m1", "m2", "m3")
	zone := lab.Records(hosts)
	servers := map[string]func(*lab.Host, *lab.Zone) *lab.Proc{
		"coredns": func(h *lab.Host, z *lab.Zone) *lab.Proc { return l.CoreDNS(h, z) },
		"dnsmasq": l.Dnsmasq, "bind": l.Bind,
	}
	for name, serve := range servers {
		t.Run(name, func(*testing.T) { serve(ns, zone).Stop() })
	}
	script := l.Script(ns, func(q lab.Query) *dns.Msg { return zone.Answer(q) })
	l.UseDNS(hosts, ns)
	l.Each(hosts, func(h *lab.Host) {
		h.Etcd("3.6", "--name", h.Name, "--discovery-srv", "example.org", "--data-dir", "data",
			"--listen-peer-urls", "http://0.0.0.0:2380", "--listen-client-urls", "http://0.0.0.0:2379",
			"--initial-advertise-peer-urls", "http://"+zone.FQDN(h)+":2380", "--advertise-client-urls", "http://"+zone.FQDN(h)+":2379")
	})
	l.Healthy(hosts...)
	hosts[0].Put("key", "value")
	if got := hosts[2].Get("key"); got != "value" {
		t.Errorf("m3 has %q under the key", got)
	}
	l.SameHash(hosts...)
	if members := hosts[1].Members(); len(members) != 3 || members[0].Name != "m1" {
		t.Errorf("members: %+v", members)
	}
	if len(script.Asked()) == 0 {
		t.Error("the scripted server was asked nothing")
	}
	if content, err := os.ReadFile("/etc/resolv.conf"); err == nil && strings.Contains(string(content), "192.0.2.11") {
		t.Error("a host's resolv.conf is the machine's")
	}
}

// A cut is one way, and heals.
func TestDropIsOneWay(t *testing.T) {
	l := lab.New(t)
	l.Require("iptables")
	a, b := l.Host("a"), l.Host("b")
	listener := a.ListenPacket("192.0.2.11:9")
	heard := func(from *lab.Host) bool {
		conn, err := from.Dial(t.Context(), "udp", "192.0.2.11:9")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // a datagram socket
		if _, err = conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err = listener.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, _, err = listener.ReadFrom(make([]byte, 9))
		return err == nil
	}
	if !heard(b) {
		t.Fatal("a does not hear b")
	}
	a.Drop(b)
	if heard(b) {
		t.Error("a hears b through DROP")
	}
	a.Heal()
	if !heard(b) {
		t.Error("a does not hear b after Heal")
	}
	b.Drop(a)
	if !heard(b) {
		t.Error("a does not hear b, though only b is deaf")
	}
	b.Heal()
	b.Unplug()
	if heard(b) {
		t.Error("a hears b without a cable")
	}
	b.Plug()
	if !heard(b) {
		t.Error("a does not hear b with the cable back")
	}
	b.SetAddrs(netip.MustParseAddr("192.0.2.99"))
	if !heard(b) {
		t.Error("a does not hear b at its new address")
	}
}

// A process dies with its lab.
func TestNothingOutlivesTheLab(t *testing.T) {
	var proc *lab.Proc
	t.Run("lab", func(t *testing.T) {
		proc = lab.New(t).Host("a").Start("sleep", "1000")
	})
	if proc == nil {
		t.SkipNow()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for proc.Running() {
		if ctx.Err() != nil {
			t.Fatal("sleep runs on after its lab has ended")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
