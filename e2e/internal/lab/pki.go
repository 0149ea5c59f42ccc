//go:build e2e

package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// CA issues the lab's certificates.
type CA struct {
	lab  *Lab
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a certificate authority.
func (l *Lab) NewCA(name string) *CA {
	l.t.Helper()
	ca := &CA{lab: l}
	ca.key = l.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, ca.key.Public(), ca.key)
	l.must(err)
	ca.cert, err = x509.ParseCertificate(der)
	l.must(err)
	return ca
}

func (l *Lab) newKey() *ecdsa.PrivateKey {
	l.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	l.must(err)
	return key
}

// PEM is the authority's own certificate.
func (ca *CA) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}))
}

// Issue makes a certificate and key (PEM) for DNS names and IP addresses, good
// for server and client; change may make it worse.
func (ca *CA) Issue(names []string, change func(*x509.Certificate)) (cert, key string) {
	ca.lab.t.Helper()
	private := ca.lab.newKey()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	ca.lab.must(err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "etcd"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, private.Public(), ca.key)
	ca.lab.must(err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	ca.lab.must(err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// PKI writes pki/ca.crt, pki/member.crt and pki/member.key into each host:
// good for its own name in the zone, the zone itself (etcd's servers ask for
// it when they discover by SRV) and its addresses. From then on the lab's
// clients speak TLS.
func (l *Lab) PKI(hosts []*Host, zone *Zone) *CA {
	l.t.Helper()
	ca := l.NewCA("lab")
	for _, h := range hosts {
		names := []string{zone.FQDN(h), zone.Origin, "localhost", "127.0.0.1"}
		for _, addr := range h.Addrs() {
			names = append(names, addr.String())
		}
		cert, key := ca.Issue(names, nil)
		h.Write("pki/ca.crt", ca.PEM())
		h.Write("pki/member.crt", cert)
		h.Write("pki/member.key", key)
	}
	l.mu.Lock()
	l.ca = ca
	l.mu.Unlock()
	return ca
}

// ClientConfig is what a client with a certificate of this authority has.
func (ca *CA) ClientConfig() *tls.Config {
	ca.lab.t.Helper()
	cert, key := ca.Issue([]string{"client"}, nil)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	ca.lab.must(err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}
}
