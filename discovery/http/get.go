package http

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// get is the body of a 200 answer. The token and the certificates are read at
// every try: they may come late, and change.
func (p *provider) get(ctx context.Context) ([]byte, error) {
	client, err := p.client()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.String(), http.NoBody)
	if err != nil {
		return nil, p.error(discovery.Config, "%v", err)
	}
	req.Header.Set("Accept", "application/json, application/yaml;q=0.9, text/plain;q=0.5")
	req.Header.Set("User-Agent", "etcdinit")
	if p.options.token != "" {
		var token string
		if token, err = p.token(); err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, p.failed(err)
	}
	defer func() { _ = resp.Body.Close() }() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		return nil, p.judge(resp)
	}
	err = p.html(resp)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxSize+1))
	if err != nil {
		return nil, p.failed(err)
	}
	if len(text) > maxSize {
		return nil, p.error(discovery.Unusable, "the answer is larger than %d bytes, which no peers document is", maxSize)
	}
	return text, nil
}

func (p *provider) token() (string, error) {
	b, err := os.ReadFile(p.options.token)
	if err != nil {
		return "", p.error(discovery.Config, "%s: %v", optToken, err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", p.error(discovery.Config, "%s: %s holds no token of printable ASCII in one line", optToken, p.options.token)
	}
	return token, nil
}

func (p *provider) client() (*http.Client, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := p.options.ca; path != "" {
		pem, err := os.ReadFile(path) //nolint:gosec // the operator names the file
		if err != nil {
			return nil, p.error(discovery.Config, "%s: %v", optCA, err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, p.error(discovery.Config, "%s: %s holds no PEM certificate", optCA, path)
		}
	}
	if p.options.cert != "" {
		pair, err := tls.LoadX509KeyPair(p.options.cert, p.options.key)
		if err != nil {
			return nil, p.error(discovery.Config, "%s: %v", optCert, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{
		CheckRedirect: p.redirect,
		// No Proxy: who the members are is not for a proxy to say.
		Transport: &http.Transport{
			DialContext: p.dial, TLSClientConfig: conf, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true,
		},
	}, nil
}

// dial asks the servers of --dns-server where there are any, as all sources do.
func (p *provider) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	host, port, err := net.SplitHostPort(addr)
	if err != nil || len(p.env.DNSServers) == 0 {
		return d.DialContext(ctx, network, addr)
	}
	pass, err := p.dns.Pass()
	if err != nil {
		return nil, err
	}
	found, err := pass.Hosts(ctx, []string{host})
	if err != nil {
		return nil, err
	}
	err = errors.New("no address")
	for _, ip := range found[hosturl.Canonical(host)].Addrs {
		var conn net.Conn
		if conn, err = d.DialContext(ctx, network, net.JoinHostPort(ip.String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// redirectError is a redirect that is not followed.
type redirectError struct{ msg string }

func (e *redirectError) Error() string { return e.msg }

func (p *provider) redirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) > maxRedirects:
		return &redirectError{fmt.Sprintf("more than %d redirects, the last to %s", maxRedirects, req.URL.Redacted())}
	case first.URL.Scheme == "https" && req.URL.Scheme != "https":
		return &redirectError{"the server redirects from https to " + req.URL.Redacted()}
	case (p.options.token != "" || p.options.cert != "") && req.URL.Host != first.URL.Host:
		return &redirectError{"the server redirects to another host, " + req.URL.Redacted() + ", which does not get our credentials"}
	}
	return nil
}

// failed words an exchange that came to no answer.
func (p *provider) failed(err error) error {
	var refused *redirectError
	if errors.As(err, &refused) {
		return p.error(discovery.Unusable, "%s", refused.msg)
	}
	e := p.error(discovery.Retry, "no answer")
	e.Err = bare(err)
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) { // a clock that is not set yet corrects itself
		e.AtDeadline = discovery.Unusable
	}
	return e
}

// bare takes off the method and the URL, which the message has already, and
// which may hold what is nobody else's business.
func bare(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
