package rendezvous

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// TLS is the peer TLS material of etcd's configuration.
type TLS struct {
	CertFile, KeyFile             string
	ClientCertFile, ClientKeyFile string // used when dialling, where set
	CAFile                        string
	ClientCertAuth                bool
	// Auto is peer-auto-tls: encrypted, and nobody's identity is checked.
	Auto bool
}

// material is what the files held.
type material struct {
	server, client *tls.Certificate
	roots          *x509.CertPool // nil: the system's
	auto, demand   bool
}

func (t TLS) load() (*material, error) {
	m := &material{auto: t.Auto, demand: t.ClientCertAuth || t.CAFile != ""}
	if t.Auto && t.CertFile == "" {
		cert, err := selfSigned()
		if err != nil {
			return nil, err
		}
		m.server, m.client, m.demand = cert, cert, false
		return m, nil
	}
	if t.CertFile == "" {
		return m, nil
	}
	server, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("peer certificate %s with key %s: %w", t.CertFile, t.KeyFile, err)
	}
	m.server, m.client = &server, &server
	if t.ClientCertFile != "" {
		client, clientErr := tls.LoadX509KeyPair(t.ClientCertFile, t.ClientKeyFile)
		if clientErr != nil {
			return nil, fmt.Errorf("peer client certificate %s with key %s: %w", t.ClientCertFile, t.ClientKeyFile, clientErr)
		}
		m.client = &client
	}
	if t.CAFile != "" {
		m.roots, err = pool(t.CAFile)
	}
	return m, err
}

func pool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path) //nolint:gosec // the path is etcd's own setting
	if err != nil {
		return nil, fmt.Errorf("peer trusted CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("peer trusted CA %s holds no certificate", path)
	}
	return roots, nil
}

// serverConfig demands what etcd will demand, so that the rehearsal is one.
func (m *material) serverConfig() *tls.Config {
	c := &tls.Config{Certificates: []tls.Certificate{*m.server}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if m.demand {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, m.roots
	}
	return c
}

// clientConfig checks the server's certificate itself, in order to say all
// that is wrong with it. A connection that fails the check is not used.
func (m *material) clientConfig(host string, found func(string)) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: host,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, and tells why
	}
	if m.client != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return m.client, nil }
	}
	if m.auto {
		return c
	}
	c.VerifyConnection = func(s tls.ConnectionState) error {
		findings := checkChain(s.PeerCertificates, m.roots, host, time.Now(), x509.ExtKeyUsageServerAuth)
		for _, f := range findings {
			found(f)
		}
		if len(findings) > 0 {
			return errors.New(strings.Join(findings, "; "))
		}
		return nil
	}
	return c
}

// checkChain says all that is wrong with a certificate for one use.
func checkChain(chain []*x509.Certificate, roots *x509.CertPool, host string, now time.Time, usage x509.ExtKeyUsage) []string {
	if len(chain) == 0 {
		return []string{"no certificate was presented"}
	}
	leaf := chain[0]
	var findings []string
	add := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }
	if host != "" && leaf.VerifyHostname(host) != nil {
		add("the certificate of %s does not cover %s: it is for %s", leaf.Subject.String(), host, names(leaf))
	}
	if now.After(leaf.NotAfter) {
		add("the certificate of %s expired at %s", leaf.Subject.String(), leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if now.Before(leaf.NotBefore) {
		add("the certificate of %s is valid only from %s on: is this node's clock right?", leaf.Subject.String(), leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	if !usable(leaf, usage) {
		add("the certificate of %s lacks the extended key usage %s, which etcd needs of a peer certificate (both server and client authentication)", leaf.Subject.String(), usageName(usage))
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	// At a moment when the leaf is valid: its dates were judged above.
	at := now
	if now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		at = leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		add("the certificate of %s is signed by %s, which the peer trusted CA does not know", leaf.Subject.String(), leaf.Issuer.String())
	case err != nil:
		add("the certificate of %s: %v", leaf.Subject.String(), err)
	}
	return findings
}

func usable(c *x509.Certificate, usage x509.ExtKeyUsage) bool {
	if len(c.ExtKeyUsage) == 0 && len(c.UnknownExtKeyUsage) == 0 {
		return true // no restriction
	}
	for _, u := range c.ExtKeyUsage {
		if u == usage || u == x509.ExtKeyUsageAny {
			return true
		}
	}
	return false
}

func usageName(u x509.ExtKeyUsage) string {
	if u == x509.ExtKeyUsageClientAuth {
		return "clientAuth"
	}
	return "serverAuth"
}

func names(c *x509.Certificate) string {
	var out []string
	out = append(out, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	if len(out) == 0 {
		return "no name (it has no SAN; the common name does not count)"
	}
	return strings.Join(out, ", ")
}

// CheckOwnCert says what is wrong with this member's own peer certificates,
// before a peer or etcd finds out. host is what the others dial.
func CheckOwnCert(t TLS, host string, now time.Time) []string {
	if t.CertFile == "" {
		return nil
	}
	m, err := t.load()
	if err != nil {
		return []string{err.Error()}
	}
	findings := checkPair(m.server, m.roots, host, now, x509.ExtKeyUsageServerAuth, t.CertFile)
	clientFile := t.CertFile
	if t.ClientCertFile != "" {
		clientFile = t.ClientCertFile
	}
	for _, f := range checkPair(m.client, m.roots, "", now, x509.ExtKeyUsageClientAuth, clientFile) {
		if !slices.Contains(findings, f) {
			findings = append(findings, f)
		}
	}
	return findings
}

func checkPair(cert *tls.Certificate, roots *x509.CertPool, host string, now time.Time, usage x509.ExtKeyUsage, path string) []string {
	var chain []*x509.Certificate
	for _, der := range cert.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return []string{path + ": " + err.Error()}
		}
		chain = append(chain, c)
	}
	findings := checkChain(chain, roots, host, now, usage)
	for i := range findings {
		findings[i] = path + ": " + findings[i]
	}
	return findings
}

// selfSigned is the certificate of peer-auto-tls.
func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"etcdinit"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
