package rendezvous

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fakeDNS answers from two tables.
type fakeDNS struct {
	ptr, hosts map[string][]string
	slow       bool // an address without PTR never gets an answer
	asked      atomic.Int32
}

func (f *fakeDNS) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	f.asked.Add(1)
	if f.slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return answered(f.ptr, addr)
}

func (f *fakeDNS) LookupHost(_ context.Context, host string) ([]string, error) {
	return answered(f.hosts, host)
}

func answered(table map[string][]string, name string) ([]string, error) {
	if got, ok := table[name]; ok {
		return got, nil
	}
	return nil, errors.New("no such host")
}

// TestSources: the address that a call comes from against the caller's certificate.
func TestSources(t *testing.T) {
	const from = "192.0.2.11"
	ptr := func(names ...string) *fakeDNS { return &fakeDNS{ptr: map[string][]string{from: names}} }
	host := func(name string, addrs ...string) *fakeDNS {
		return &fakeDNS{hosts: map[string][]string{name: addrs}}
	}
	ip := func(s string) []net.IP { return []net.IP{net.ParseIP(s)} }
	slow := host("a.example.org", from)
	slow.slow = true
	for _, tt := range []struct {
		name  string
		names []string
		ips   []net.IP
		dns   *fakeDNS
		want  []string // none: it passes
	}{
		{"no names at all", nil, nil, &fakeDNS{}, nil},
		{"its address", nil, ip(from), &fakeDNS{}, nil},
		{"another address", nil, ip("192.0.2.99"), ptr("a.example.org."), []string{"192.0.2.99, and the call comes from 192.0.2.11"}},
		{"another address, and a name of its own", []string{"a.example.org"}, ip("192.0.2.99"), host("a.example.org", from), nil},
		{"a name that leads there", []string{"b.example.org", "a.example.org"}, nil, host("a.example.org", "192.0.2.12", from), nil},
		{"a name that leads elsewhere", []string{"a.example.org"}, nil, host("a.example.org", "192.0.2.12"), []string{"a.example.org, and", "a.example.org: 192.0.2.12"}},
		{"a name by PTR", []string{"a.example.org"}, nil, ptr("a.example.org."), nil},
		{"PTR of a name in it", []string{"example.org"}, nil, ptr("a.example.org."), []string{"PTR of 192.0.2.11: a.example.org."}},
		{"wildcard by PTR", []string{"*.example.org"}, nil, ptr("a.example.org."), nil},
		{"wildcard by PTR, two labels", []string{"*.example.org"}, nil, ptr("a.b.example.org."), nil},
		{"wildcard without PTR", []string{"*.example.org"}, nil, host("a.example.org", from), []string{"*.example.org, and the call comes from 192.0.2.11", "no such host"}},
		{"a name that leads there, and PTR does not answer", []string{"a.example.org"}, nil, slow, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			leaf := &x509.Certificate{Raw: []byte(tt.name), DNSNames: tt.names, IPAddresses: tt.ips}
			start := time.Now()
			got := newSources(tt.dns).check(t.Context(), leaf, from+":4711")
			if (got == "") != (tt.want == nil) || time.Since(start) > sourceTime {
				t.Errorf("after %s: %q", time.Since(start), got)
			}
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("no %q in %q", w, got)
				}
			}
		})
	}
	t.Run("an answer is kept", func(t *testing.T) {
		t.Parallel()
		dns := ptr("a.example.org.")
		s := newSources(dns)
		for range 5 {
			if got := s.check(t.Context(), &x509.Certificate{DNSNames: []string{"*.example.org"}}, from+":1"); got != "" {
				t.Error(got)
			}
		}
		if n := dns.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// revoke writes a revocation list.
func (a *authority) revoke(name string, asPEM bool, serials ...int64) string {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: big.NewInt(n), RevocationTime: time.Now()})
	}
	issuer := *a.cert
	issuer.KeyUsage |= x509.KeyUsageCRLSign
	der, err := x509.CreateRevocationList(rand.Reader, list, &issuer, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	if asPEM {
		return a.write(name, "X509 CRL", der)
	}
	return a.writeRaw(name, der)
}

// TestRefusals: what etcd would refuse is no sighting on either side, and both
// are told why.
func TestRefusals(t *testing.T) {
	ca, other := newAuthority(t, "the CA"), newAuthority(t, "another CA")
	issue := func(name string, change func(*leaf)) TLS {
		l := loopback()
		if change != nil {
			change(&l)
		}
		return ca.issue(name, l)
	}
	for _, tt := range []struct {
		name   string
		change func(here, there *TLS) // there is judged by here, which calls it, and is called by it
		// seen is what the judge says of the other's certificate when it dials; told
		// is what it says to the other's calls. Nothing: it passes.
		seen, told string
	}{
		{"nothing is asked", func(_, _ *TLS) {}, "", ""},
		{"allowed name", func(here, _ *TLS) { here.AllowedCN = "me,peer" }, "", ""},
		{"a name with a comma", func(here, _ *TLS) { here.AllowedCN = "not,peer" }, "", ""},
		{"not an allowed name", func(here, _ *TLS) { here.AllowedCN = "me,mine" }, `common name "peer", and peer-cert-allowed-cn is me,mine`, `common name "peer", and peer-cert-allowed-cn is me,mine`},
		{"allowed host", func(here, _ *TLS) { here.AllowedHostname = "etcd.example.org,127.0.0.1" }, "", ""},
		{"not an allowed host", func(here, _ *TLS) { here.AllowedHostname = "etcd.example.org" }, "is for 127.0.0.1, and peer-cert-allowed-hostname is etcd.example.org", "peer-cert-allowed-hostname is etcd.example.org"},
		{"revoked", func(here, _ *TLS) { here.CRLFile = ca.revoke("crl.der", false, 7, 2) }, "", "is revoked: peer-crl-file " + ca.dir + "/crl.der names its serial number 2"},
		{"revoked, in PEM", func(here, _ *TLS) { here.CRLFile = ca.revoke("crl.pem", true, 2) }, "", "is revoked"},
		{"not revoked", func(here, _ *TLS) { here.CRLFile = ca.revoke("none.der", false, 7) }, "", ""},
		{"a file without a revocation list", func(here, _ *TLS) { here.CRLFile = ca.path }, "", "is no revocation list"},
		{"no list", func(here, _ *TLS) { here.CRLFile = "/nonexistent/crl" }, "", "/nonexistent/crl"},
		{"another address", func(_, there *TLS) {
			c := issue("elsewhere", func(l *leaf) { l.ips = []net.IP{net.IPv4(127, 0, 0, 9)} })
			there.ClientCertFile, there.ClientKeyFile = c.CertFile, c.KeyFile
		}, "", "is for 127.0.0.9, and the call comes from 127.0.0.1"},
		{"another address, not looked at", func(here, there *TLS) {
			c := issue("elsewhere", func(l *leaf) { l.ips = []net.IP{net.IPv4(127, 0, 0, 9)} })
			there.ClientCertFile, there.ClientKeyFile = c.CertFile, c.KeyFile
			here.SkipClientSAN = true
		}, "", ""},
		{"server only", func(_, there *TLS) {
			c := issue("server", func(l *leaf) { l.usage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
			there.ClientCertFile, there.ClientKeyFile = c.CertFile, c.KeyFile
		}, "", "lacks the extended key usage clientAuth"},
		{"server only, not asked for", func(here, there *TLS) {
			*there = issue("server", func(l *leaf) { l.usage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
			*here = TLS{CertFile: here.CertFile, KeyFile: here.KeyFile} // and no CA: the system's does not know the peer's
		}, "does not know", ""},
		{"client only", func(_, there *TLS) {
			c := *there
			*there = issue("client", func(l *leaf) { l.usage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
			there.ClientCertFile, there.ClientKeyFile = c.CertFile, c.KeyFile
		}, "lacks the extended key usage serverAuth", ""},
		{"of another CA", func(_, there *TLS) {
			c := other.issue("stranger", loopback())
			there.ClientCertFile, there.ClientKeyFile = c.CertFile, c.KeyFile
		}, "", "signed by CN=another CA"},
		{"expired", func(_, there *TLS) {
			c := issue("old", func(l *leaf) { l.before, l.after = -2*time.Hour, -time.Hour })
			there.ClientCertFile, there.ClientKeyFile = c.CertFile, c.KeyFile
		}, "", "expired at"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			urls := freeURLs(t, "https", 2)
			here, there := issue("me", nil), issue("peer", nil)
			tt.change(&here, &there)
			judge, judged := startAt(t, urls, 0, here), startAt(t, urls, 1, there)
			mine := judge.Round(t.Context()).Peers[0]
			theirs := judged.Round(t.Context()).Peers[0]
			again := judge.View().Peers[0]
			if tt.seen == "" && (mine.Now != IsWaiting || mine.Last.Trust != Trusted) || tt.seen != "" && (mine.Now != Silent || mine.Last.Trust != BadCert || mine.Word() != "bad certificate" || !strings.Contains(mine.Last.Detail, tt.seen)) {
				t.Errorf("dialled, it is %s: %s", mine.Word(), mine.Last.Detail)
			}
			if tt.told == "" && (theirs.Last.Trust == RefusesMine || again.Refused != "") {
				t.Errorf("its calls are refused: %s, %s", theirs.Last.Detail, again.Refused)
			}
			if tt.told != "" && (theirs.Now != Silent || theirs.Last.Trust != RefusesMine || !strings.Contains(theirs.Last.Detail, tt.told) || !strings.Contains(again.Refused, tt.told)) {
				t.Errorf("its calls: %s: %s; here: %s", theirs.Word(), theirs.Last.Detail, again.Refused)
			}
		})
	}
}

// TestCommonTLS: versions and cipher suites are the configured ones.
func TestCommonTLS(t *testing.T) {
	ca := newAuthority(t, "the CA")
	good := ca.issue("me", loopback())
	suite := func(id uint16) []string { return []string{tls.CipherSuiteName(id)} }
	for _, tt := range []struct {
		name        string
		here, there func(*TLS)
		want        Trust
	}{
		{"1.3 and up to 1.2", func(c *TLS) { c.MinVersion = "TLS1.3" }, func(c *TLS) { c.MaxVersion = "TLS1.2" }, NoCommonTLS},
		{"up to 1.2 and 1.3", func(c *TLS) { c.MaxVersion = "TLS1.2" }, func(c *TLS) { c.MinVersion = "TLS1.3" }, NoCommonTLS},
		{"1.2 both", func(c *TLS) { c.MaxVersion = "TLS1.2" }, func(c *TLS) { c.MinVersion = "TLS1.2" }, Trusted},
		{"no suite for the key", func(c *TLS) {
			c.MaxVersion, c.CipherSuites = "TLS1.2", suite(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)
		}, func(*TLS) {}, NoCommonTLS},
		{"a suite for the key", func(c *TLS) {
			c.MaxVersion, c.CipherSuites = "TLS1.2", suite(tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)
		}, func(*TLS) {}, Trusted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			urls := freeURLs(t, "https", 2)
			here, there := good, good
			tt.here(&here)
			tt.there(&there)
			me := startAt(t, urls, 0, here)
			startAt(t, urls, 1, there)
			p := me.Round(t.Context()).Peers[0]
			if p.Last.Trust != tt.want || (p.Now == Silent) != (tt.want != Trusted) || (p.Word() == "no TLS in common") != (tt.want == NoCommonTLS) {
				t.Errorf("%s: %s", p.Word(), p.Last.Detail)
			}
		})
	}
	for _, bad := range []TLS{{CipherSuites: []string{"TLS_NONE"}}, {MinVersion: "1.3"}, {MaxVersion: "TLS1.1"}} {
		if _, err := bad.load(); err == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

// TestFilesWin: certificate files beside peer-auto-tls are used, and checked.
func TestFilesWin(t *testing.T) {
	ca := newAuthority(t, "the CA")
	peer := ca.issue("peer", loopback())
	both := peer
	both.Auto = true
	if both.Unchecked() || !(TLS{Auto: true}).Unchecked() {
		t.Error("which one counts?")
	}
	elsewhere := ca.issue("elsewhere", leaf{ips: []net.IP{net.IPv4(127, 0, 0, 9)}, before: -time.Hour, after: time.Hour, usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	elsewhere.Auto = true
	urls := freeURLs(t, "https", 2)
	me := startAt(t, urls, 0, both)
	startAt(t, urls, 1, elsewhere)
	if p := me.Round(t.Context()).Peers[0]; p.Last.Trust != BadCert || !slices.ContainsFunc(p.Last.Certs, func(f string) bool { return strings.Contains(f, "does not cover 127.0.0.1") }) {
		t.Errorf("%s: %s", p.Word(), p.Last.Detail)
	}
}
