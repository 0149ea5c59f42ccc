package rendezvous

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	path string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.path = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	return a.writeRaw(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func (a *authority) writeRaw(name string, data []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

type leaf struct {
	names         []string
	ips           []net.IP
	before, after time.Duration
	usage         []x509.ExtKeyUsage
}

func both() []x509.ExtKeyUsage {
	return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
}

func loopback() leaf {
	return leaf{ips: []net.IP{net.IPv4(127, 0, 0, 1)}, before: -time.Hour, after: time.Hour, usage: both()}
}

func (a *authority) issue(name string, l leaf) TLS {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(l.before), NotAfter: time.Now().Add(l.after),
		DNSNames: l.names, IPAddresses: l.ips, ExtKeyUsage: l.usage, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return TLS{CertFile: a.write(name+".pem", "CERTIFICATE", der), KeyFile: a.write(name+"-key.pem", "PRIVATE KEY", pkcs8), CAFile: a.path, ClientCertAuth: true}
}

// TestRehearsal: what a probe says of the other's certificate, and what
// CheckOwnCert says of the same one at its home.
func TestRehearsal(t *testing.T) {
	ca, other := newAuthority(t, "the CA"), newAuthority(t, "another CA")
	elsewhere, expired, early, client := loopback(), loopback(), loopback(), loopback()
	elsewhere.ips, elsewhere.names = nil, []string{"etcd-1.example.org"}
	expired.before, expired.after = -2*time.Hour, -time.Hour
	early.before, early.after = time.Hour, 2*time.Hour
	client.usage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	worst := expired
	worst.ips = []net.IP{net.IPv4(192, 0, 2, 1)}
	for _, tt := range []struct {
		name string
		peer TLS
		want []string
	}{
		{"good", ca.issue("good", loopback()), nil},
		{"another host's", ca.issue("elsewhere", elsewhere), []string{"does not cover 127.0.0.1", "etcd-1.example.org"}},
		{"no SAN", ca.issue("nosan", leaf{before: -time.Hour, after: time.Hour, usage: both()}), []string{"does not cover 127.0.0.1", "no SAN"}},
		{"expired", ca.issue("expired", expired), []string{"expired at "}},
		{"not yet", ca.issue("early", early), []string{"valid only from", "clock"}},
		{"client only", ca.issue("client", client), []string{"serverAuth"}},
		{"another CA", other.issue("stranger", loopback()), []string{"signed by CN=another CA", "does not know"}},
		{"all at once", ca.issue("worst", worst), []string{"does not cover 127.0.0.1", "192.0.2.1", "expired at "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			urls := freeURLs(t, "https", 2)
			peer := tt.peer
			peer.CAFile, peer.ClientCertAuth = ca.path, false
			me := startAt(t, urls, 0, ca.issue("me", loopback()))
			startAt(t, urls, 1, peer)
			p := me.Round(t.Context()).Peers[0]
			if want := map[bool]Standing{true: IsWaiting, false: Silent}[tt.want == nil]; p.Now != want {
				t.Errorf("the peer is %v: %s", p.Now, p.Last.Detail)
			}
			if tt.want == nil && len(p.Last.Certs) > 0 {
				t.Errorf("findings: %q", p.Last.Certs)
			}
			own := CheckOwnCert(peer, "127.0.0.1", time.Now())
			if tt.want == nil && len(own) > 0 {
				t.Errorf("own findings: %q", own)
			}
			for _, w := range tt.want {
				if !strings.Contains(strings.Join(p.Last.Certs, "\n"), w) || !strings.Contains(p.Last.Detail, w) {
					t.Errorf("no %q in %q, detail %s", w, p.Last.Certs, p.Last.Detail)
				}
				if !strings.Contains(strings.Join(own, "\n"), w) {
					t.Errorf("no %q in its own findings %q", w, own)
				}
			}
		})
	}
}

// TestClientUsage: a certificate that cannot be used to dial is told at home.
func TestClientUsage(t *testing.T) {
	ca := newAuthority(t, "the CA")
	server := loopback()
	server.usage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	peer := ca.issue("server", server)
	if own := strings.Join(CheckOwnCert(peer, "127.0.0.1", time.Now()), "\n"); !strings.Contains(own, "clientAuth") {
		t.Errorf("own findings: %q", own)
	}
	peer.ClientCertFile, peer.ClientKeyFile = ca.issue("dial", loopback()).CertFile, filepath.Join(ca.dir, "dial-key.pem")
	if own := CheckOwnCert(peer, "127.0.0.1", time.Now()); len(own) > 0 {
		t.Errorf("with a client certificate of its own: %q", own)
	}
}

// TestMutual: a peer without a certificate of the CA gets no answer.
func TestMutual(t *testing.T) {
	ca, other := newAuthority(t, "the CA"), newAuthority(t, "another CA")
	urls := freeURLs(t, "https", 2)
	startAt(t, urls, 1, ca.issue("peer", loopback()))
	stranger := other.issue("stranger", loopback())
	stranger.CAFile = ca.path
	if p := startAt(t, urls, 0, stranger).Round(t.Context()).Peers[0]; p.Now != Silent {
		t.Errorf("a stranger is answered: %v", p.Now)
	}
}

func TestAutoTLS(t *testing.T) {
	urls := freeURLs(t, "https", 2)
	a := startAt(t, urls, 0, TLS{Auto: true})
	startAt(t, urls, 1, TLS{Auto: true})
	if got := standings(a.Round(t.Context())); got != "waiting" {
		t.Error(got)
	}
}

// TestMixedSchemes: one side speaks TLS, the other does not.
func TestMixedSchemes(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	startAt(t, urls, 1, TLS{})
	secure := strings.Replace(urls[1], "http:", "https:", 1)
	p := startAt(t, []string{urls[0], secure}, 0, TLS{}).Round(t.Context()).Peers[0]
	if p.Now != Silent || !strings.Contains(p.Last.Detail, "plain HTTP") {
		t.Errorf("%v: %s", p.Now, p.Last.Detail)
	}
}

func TestBadMaterial(t *testing.T) {
	ca := newAuthority(t, "the CA")
	good := ca.issue("good", loopback())
	other := ca.issue("other", loopback())
	for _, tt := range []struct {
		name string
		tls  TLS
		want string
	}{
		{"no such file", TLS{CertFile: "/nonexistent/cert.pem", KeyFile: good.KeyFile}, "/nonexistent/cert.pem"},
		{"another key", TLS{CertFile: good.CertFile, KeyFile: other.KeyFile}, other.KeyFile},
		{"a CA without a certificate", TLS{CertFile: good.CertFile, KeyFile: good.KeyFile, CAFile: good.KeyFile}, "holds no certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if own := strings.Join(CheckOwnCert(tt.tls, "127.0.0.1", time.Now()), "\n"); !strings.Contains(own, tt.want) {
				t.Errorf("own findings: %q", own)
			}
			if _, err := New(Config{Start: Start{Plan: planAt([]string{"http://127.0.0.1:1"}, 0)}, TLS: tt.tls}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("start: %v", err)
			}
		})
	}
}
