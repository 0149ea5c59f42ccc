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

	"go.etcd.io/etcd/client/pkg/v3/tlsutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// TLS is the peer TLS material of etcd's configuration.
type TLS struct {
	CertFile, KeyFile             string
	ClientCertFile, ClientKeyFile string // used when dialling, where set
	CAFile                        string
	ClientCertAuth                bool
	// Auto is peer-auto-tls: encrypted, and nobody's identity is checked. etcd
	// ignores it beside certificate files.
	Auto bool
	// AllowedCN and AllowedHostname are lists, joined by commas.
	AllowedCN, AllowedHostname string
	CRLFile                    string
	SkipClientSAN              bool
	CipherSuites               []string
	MinVersion, MaxVersion     string // as etcd spells them: TLS1.2
}

// Unchecked reports whether nobody's certificate is checked.
func (t TLS) Unchecked() bool { return t.Auto && t.CertFile == "" && t.KeyFile == "" }

// material is what the files held, and what etcd makes of them.
type material struct {
	tls            TLS
	server, client *tls.Certificate
	roots          *x509.CertPool // nil: the system's
	// listen and dial are etcd's own configurations of both sides, with its checks.
	listen, dial *tls.Config
	demand       bool // a caller must show a certificate
	unchecked    bool
	sources      *sources
}

func (t TLS) load() (*material, error) {
	m := &material{tls: t, demand: t.ClientCertAuth || t.CAFile != "", unchecked: t.Unchecked(), sources: newSources(net.DefaultResolver)}
	info, err := t.info()
	if err != nil {
		return nil, err
	}
	if m.unchecked {
		cert, certErr := selfSigned()
		if certErr != nil {
			return nil, certErr
		}
		m.server, m.client, m.demand = cert, cert, false
		m.listen = &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: max(info.MinVersion, tls.VersionTLS12), MaxVersion: info.MaxVersion, CipherSuites: info.CipherSuites}
		m.dial = m.listen.Clone()
		return m, nil
	}
	if t.CertFile != "" {
		if err = m.pairs(); err != nil {
			return nil, err
		}
		if m.listen, err = info.ServerConfig(); err != nil {
			return nil, fmt.Errorf("peer TLS: %w", err)
		}
	}
	if m.dial, err = info.ClientConfig(); err != nil {
		return nil, fmt.Errorf("peer TLS: %w", err)
	}
	return m, nil
}

// pairs reads the files, so that an error names them.
func (m *material) pairs() error {
	t := m.tls
	server, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return fmt.Errorf("peer certificate %s with key %s: %w", t.CertFile, t.KeyFile, err)
	}
	m.server, m.client = &server, &server
	if t.ClientCertFile != "" {
		client, clientErr := tls.LoadX509KeyPair(t.ClientCertFile, t.ClientKeyFile)
		if clientErr != nil {
			return fmt.Errorf("peer client certificate %s with key %s: %w", t.ClientCertFile, t.ClientKeyFile, clientErr)
		}
		m.client = &client
	}
	if t.CAFile != "" {
		m.roots, err = pool(t.CAFile)
	}
	return err
}

// info is etcd's own form of the same.
func (t TLS) info() (transport.TLSInfo, error) {
	info := transport.TLSInfo{
		CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCertFile: t.ClientCertFile, ClientKeyFile: t.ClientKeyFile,
		TrustedCAFile: t.CAFile, ClientCertAuth: t.ClientCertAuth, CRLFile: t.CRLFile, SkipClientSANVerify: t.SkipClientSAN,
		AllowedCNs: list(t.AllowedCN), AllowedHostnames: list(t.AllowedHostname),
	}
	if strings.Contains(t.AllowedCN, ",") {
		info.AllowedCNs = append(info.AllowedCNs, t.AllowedCN) // etcd 3.4 and 3.5 take the whole text as one name
	}
	var err error
	if info.CipherSuites, err = tlsutil.GetCipherSuites(t.CipherSuites); err != nil {
		return info, fmt.Errorf("cipher-suites: %w", err)
	}
	if info.MinVersion, err = tlsutil.GetTLSVersion(t.MinVersion); err != nil {
		return info, fmt.Errorf("tls-min-version: %w", err)
	}
	if info.MaxVersion, err = tlsutil.GetTLSVersion(t.MaxVersion); err != nil {
		return info, fmt.Errorf("tls-max-version: %w", err)
	}
	return info, nil
}

func list(joined string) []string {
	if joined == "" {
		return nil
	}
	return strings.Split(joined, ",")
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

// serverConfig lets a caller in whose certificate etcd would refuse: caller judges
// it, so that the caller can be told why. It gets no other answer.
func (m *material) serverConfig() *tls.Config {
	c := m.listen.Clone()
	c.NextProtos, c.VerifyPeerCertificate = []string{"http/1.1"}, nil
	if m.demand {
		c.ClientAuth = tls.RequireAnyClientCert
	}
	return c
}

// clientConfig makes the same checks as etcd's, in order to say all that is wrong.
// A connection that fails them is not used.
func (m *material) clientConfig(host string, found func(string)) *tls.Config {
	c := m.dial.Clone()
	allowed, roots := c.VerifyPeerCertificate, c.RootCAs
	c.ServerName, c.VerifyPeerCertificate = host, nil
	c.InsecureSkipVerify = true // VerifyConnection does it, and tells why
	if m.unchecked {
		return c
	}
	c.VerifyConnection = func(s tls.ConnectionState) error {
		findings := m.judge(s.PeerCertificates, side{roots, host, x509.ExtKeyUsageServerAuth, allowed}, time.Now())
		for _, f := range findings {
			found(f)
		}
		if len(findings) > 0 {
			return &certError{strings.Join(findings, "; ")}
		}
		return nil
	}
	return c
}

// certError: the certificate of the peer that was dialled is not one that etcd takes.
type certError struct{ findings string }

func (e *certError) Error() string { return e.findings }

// side is what one side of a connection asks of the other's certificate.
type side struct {
	roots   *x509.CertPool
	host    string // what was dialled; "" for a caller
	usage   x509.ExtKeyUsage
	allowed func([][]byte, [][]*x509.Certificate) error // etcd's check of allowed names, or nil
}

// judge is etcd's verdict, in words: nothing where etcd finds nothing.
func (m *material) judge(chain []*x509.Certificate, s side, now time.Time) []string {
	if len(chain) == 0 {
		return []string{"no certificate was presented"}
	}
	chains, err := chain[0].Verify(x509.VerifyOptions{
		Roots: s.roots, Intermediates: between(chain), DNSName: s.host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{s.usage},
	})
	if err != nil {
		if findings := checkChain(chain, s.roots, s.host, now, s.usage); len(findings) > 0 {
			return findings
		}
		return []string{fmt.Sprintf("the certificate of %s: %v", chain[0].Subject.String(), err)}
	}
	if s.allowed != nil && s.allowed(nil, chains) != nil {
		if m.tls.AllowedCN != "" {
			return []string{fmt.Sprintf("the certificate of %s has the common name %q, and peer-cert-allowed-cn is %s", chain[0].Subject.String(), chain[0].Subject.CommonName, m.tls.AllowedCN)}
		}
		return []string{fmt.Sprintf("the certificate of %s is for %s, and peer-cert-allowed-hostname is %s", chain[0].Subject.String(), names(chain[0]), m.tls.AllowedHostname)}
	}
	return nil
}

func between(chain []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range chain[1:] {
		p.AddCert(c)
	}
	return p
}

// checkChain says all that is wrong with a certificate for one use, whatever the
// configuration allows.
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
	// At a moment when the leaf is valid: its dates were judged above.
	at := now
	if now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		at = leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between(chain), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
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
	findings := m.checkPair(m.server, side{m.dial.RootCAs, host, x509.ExtKeyUsageServerAuth, m.dial.VerifyPeerCertificate}, now, t.CertFile)
	clientFile := t.CertFile
	if t.ClientCertFile != "" {
		clientFile = t.ClientCertFile
	}
	if !m.demand {
		return findings // nobody asks this member for a certificate when it calls
	}
	for _, f := range m.checkPair(m.client, side{m.roots, "", x509.ExtKeyUsageClientAuth, m.listen.VerifyPeerCertificate}, now, clientFile) {
		if !slices.Contains(findings, f) {
			findings = append(findings, f)
		}
	}
	return findings
}

func (m *material) checkPair(cert *tls.Certificate, s side, now time.Time, path string) []string {
	var chain []*x509.Certificate
	for _, der := range cert.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return []string{path + ": " + err.Error()}
		}
		chain = append(chain, c)
	}
	findings := m.judge(chain, s, now)
	if s.usage == x509.ExtKeyUsageClientAuth && m.tls.CRLFile != "" {
		if f := revoked(m.tls.CRLFile, chain); f != "" {
			findings = append(findings, f)
		}
	}
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
