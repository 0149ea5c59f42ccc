package rendezvous

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// sourceTime bounds the look-ups for one caller: an answer must go out in time.
	sourceTime = 1500 * time.Millisecond
	// sourceGood and sourceBad are how long a caller's address is taken for what it
	// was: agents call many times a second.
	sourceGood, sourceBad = 5 * time.Second, time.Second
	maxSources            = 1024
)

// ComesFrom is in each finding about the address that a call came from.
const ComesFrom = ", and the call comes from "

// caller is etcd's verdict on who calls, in words: nothing where etcd would let
// it in. etcd checks the chain and the allowed names as it shakes hands, then
// the address that the call comes from, then the revocation list.
func (m *material) caller(ctx context.Context, state *tls.ConnectionState, remote string) []string {
	if state == nil || !m.demand {
		return nil
	}
	chain := state.PeerCertificates
	findings := m.judge(chain, side{m.listen.ClientCAs, "", x509.ExtKeyUsageClientAuth, m.listen.VerifyPeerCertificate}, time.Now())
	if len(findings) > 0 {
		return findings
	}
	if !m.tls.SkipClientSAN {
		if f := m.sources.check(ctx, chain[0], remote); f != "" {
			findings = append(findings, f)
		}
	}
	if m.tls.CRLFile != "" {
		if f := revoked(m.tls.CRLFile, chain); f != "" {
			findings = append(findings, f)
		}
	}
	return findings
}

// revoked says which certificate of a chain a revocation list names. A list that
// cannot be read refuses everybody, as in etcd.
func revoked(path string, chain []*x509.Certificate) string {
	data, err := os.ReadFile(path) //nolint:gosec // the path is etcd's own setting
	if err != nil {
		return fmt.Sprintf("peer-crl-file cannot be read, so etcd refuses every certificate: %v", err)
	}
	if block, _ := pem.Decode(data); block != nil && block.Type == "X509 CRL" {
		data = block.Bytes // etcd 3.4 and 3.5 read this form too
	}
	crl, err := x509.ParseRevocationList(data)
	if err != nil {
		return fmt.Sprintf("peer-crl-file %s is no revocation list, so etcd refuses every certificate: %v", path, err)
	}
	for _, c := range chain {
		if slices.ContainsFunc(crl.RevokedCertificateEntries, func(r x509.RevocationListEntry) bool { return r.SerialNumber.Cmp(c.SerialNumber) == 0 }) {
			return fmt.Sprintf("the certificate of %s is revoked: peer-crl-file %s names its serial number %x", c.Subject.String(), path, c.SerialNumber)
		}
	}
	return ""
}

// resolver is what a caller's address is looked up with: etcd takes the system's.
type resolver interface {
	LookupAddr(ctx context.Context, addr string) ([]string, error)
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// sources holds callers' addresses against their certificates.
type sources struct {
	resolver resolver
	mu       sync.Mutex
	seen     map[source]verdict
}

type source struct {
	cert [sha256.Size]byte
	host string
}

type verdict struct {
	finding string
	until   time.Time
}

func newSources(r resolver) *sources {
	return &sources{resolver: r, seen: make(map[source]verdict)}
}

// check says what is wrong with a caller's address; "" for nothing.
func (s *sources) check(ctx context.Context, leaf *x509.Certificate, remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return err.Error()
	}
	key := source{sha256.Sum256(leaf.Raw), host}
	s.mu.Lock()
	v, ok := s.seen[key]
	s.mu.Unlock()
	if ok && time.Now().Before(v.until) {
		return v.finding
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTime)
	defer cancel()
	keep := sourceGood
	if v.finding = s.ask(ctx, leaf, host); v.finding != "" {
		keep = sourceBad
	}
	v.until = time.Now().Add(keep)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) >= maxSources {
		clear(s.seen)
	}
	s.seen[key] = v
	return v.finding
}

// ask does what etcd's listener does with a caller's certificate: a certificate
// without names passes; one with addresses may name the caller's; one with DNS
// names must have a name that the address has (PTR, also under a wildcard), or one
// that leads to the address. etcd asks one after the other, for as long as it
// takes; here all are asked at once.
func (s *sources) ask(ctx context.Context, leaf *x509.Certificate, host string) string {
	if len(leaf.IPAddresses) == 0 && len(leaf.DNSNames) == 0 || len(leaf.IPAddresses) > 0 && leaf.VerifyHostname(host) == nil {
		return ""
	}
	refused := fmt.Sprintf("the certificate of %s is for %s%s%s", leaf.Subject.String(), names(leaf), ComesFrom, host)
	if len(leaf.DNSNames) == 0 {
		return refused
	}
	var exact, wild []string
	for _, name := range leaf.DNSNames {
		if suffix, ok := strings.CutPrefix(name, "*"); ok && strings.HasPrefix(suffix, ".") {
			wild = append(wild, suffix)
		} else {
			exact = append(exact, name)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make([]string, 1+len(exact))
	var wg sync.WaitGroup
	var mu sync.Mutex
	good := false
	note := func(i int, ok bool, text string) {
		mu.Lock()
		defer mu.Unlock()
		seen[i] = text
		if good = good || ok; good {
			cancel()
		}
	}
	wg.Go(func() {
		ptr, err := s.resolver.LookupAddr(ctx, host)
		ok := slices.ContainsFunc(ptr, func(name string) bool {
			name = strings.TrimSuffix(name, ".")
			return slices.Contains(exact, name) || slices.ContainsFunc(wild, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
		})
		note(0, ok, looked("PTR of "+host, ptr, err))
	})
	for i, name := range exact {
		wg.Go(func() {
			addrs, err := s.resolver.LookupHost(ctx, name)
			note(i+1, slices.Contains(addrs, host), looked(name, addrs, err))
		})
	}
	wg.Wait()
	if good {
		return ""
	}
	return refused + " (" + strings.Join(seen, "; ") + ")"
}

func looked(what string, found []string, err error) string {
	if err != nil {
		return what + ": " + err.Error()
	}
	return what + ": " + strings.Join(found, ", ")
}
