package http

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/dnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	asYAML = "peers:\n- {name: a, host: 192.0.2.10, port: 2380}\n- {peerURLs: ['http://192.0.2.11:2380']}\n"
	asJSON = `{"peers":[{"name":"a","host":"192.0.2.10","port":2380},{"peerURLs":["http://192.0.2.11:2380"]}]}`
)

func open(t *testing.T, source string, env discovery.Env) discovery.Provider {
	t.Helper()
	p, err := discovery.Registry{"http": New, "https": New}.Open(source, env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func show(peers []discovery.Peer) string {
	var list []string
	for _, p := range peers {
		list = append(list, fmt.Sprintf("%s/%s:%d%v", p.Name, p.Host, p.Port, p.Addrs))
	}
	return strings.Join(list, " ")
}

func TestAnswers(t *testing.T) {
	reply := func(code int, header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if k, v, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(k, v)
			}
			w.WriteHeader(code)
			fmt.Fprintf(w, "%s", body)
		}
	}
	const whole = "a/192.0.2.10:2380[192.0.2.10] /192.0.2.11:2380[192.0.2.11]"
	tests := []struct {
		name    string
		handler http.HandlerFunc
		size    int
		want    string
		kind    discovery.Kind
		at      discovery.Kind // AtDeadline
		after   time.Duration
		errs    []string
	}{
		{name: "YAML", handler: reply(200, "", asYAML), size: 2, want: whole},
		{name: "JSON", handler: reply(200, "Content-Type: application/json", asJSON), size: 2, want: whole},
		{name: "too few", handler: reply(200, "", asYAML), size: 3, kind: discovery.Retry, errs: []string{"got 2 of 3 peers: 192.0.2.10, 192.0.2.11"}},
		{name: "nothing there", handler: reply(404, "", ""), kind: discovery.Retry, errs: []string{"404 Not Found"}},
		{name: "busy", handler: reply(503, "Retry-After: 7", ""), kind: discovery.Retry, after: 7 * time.Second, errs: []string{"503"}},
		{name: "busy for long", handler: reply(429, "Retry-After: 99999999999", ""), kind: discovery.Retry, errs: []string{"429"}, after: 300 * time.Second},
		{name: "empty", handler: reply(200, "", ""), kind: discovery.Retry, at: discovery.Unusable, errs: []string{"empty"}},
		{name: "cut short", handler: reply(200, "", asJSON[:40]), kind: discovery.Retry, at: discovery.Unusable, errs: []string{"ends too early"}},
		{name: "not allowed", handler: reply(401, "", ""), kind: discovery.Config, errs: []string{"401 Unauthorized", "etcdinit-token-file"}},
		{name: "gone", handler: reply(410, "", ""), kind: discovery.Unusable, errs: []string{"410 Gone"}},
		{name: "a page", handler: reply(200, "Content-Type: text/html; charset=utf-8", "<html>"), kind: discovery.Unusable, errs: []string{"a page (text/html)"}},
		{name: "no document", handler: reply(200, "", "hello: world\n"), kind: discovery.Unusable, errs: []string{"no peers document", "hello: world"}},
		{name: "endless", handler: func(w http.ResponseWriter, _ *http.Request) {
			for range 40 {
				fmt.Fprintf(w, "%s", strings.Repeat("#", 64<<10))
			}
		}, kind: discovery.Unusable, errs: []string{"larger than 1048576 bytes"}},
		{name: "breaks off", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprintf(w, "%s", asYAML)
		}, kind: discovery.Retry, errs: []string{"no answer", "unexpected EOF"}},
		{name: "circle", handler: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) }, kind: discovery.Unusable, errs: []string{"more than 3 redirects"}},
		{name: "moved", handler: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/new" {
				http.Redirect(w, r, "/new", http.StatusMovedPermanently)
				return
			}
			fmt.Fprintf(w, "%s", asYAML)
		}, size: 2, want: whole},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(tt.handler)
			defer srv.Close()
			peers, err := open(t, srv.URL+"/peers", discovery.Env{Size: tt.size}).Discover(t.Context())
			if tt.kind == 0 {
				if got := show(peers); err != nil || got != tt.want {
					t.Errorf("got %s, %v, want %s", got, err, tt.want)
				}
				return
			}
			var e *discovery.Error
			if !errors.As(err, &e) || e.Kind != tt.kind || e.AtDeadline != tt.at || e.After != tt.after || peers != nil {
				t.Fatalf("got %v, %#v", peers, err)
			}
			for _, w := range append(tt.errs, srv.URL+"/peers: ") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("no %q in: %v", w, err)
				}
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	_, err := open(t, srv.URL+"/p?secret=1", discovery.Env{}).Discover(t.Context())
	var e *discovery.Error
	if !errors.As(err, &e) || e.Kind != discovery.Retry || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

// TestTLSAndToken: trust by file, the token in the header and nowhere else,
// our options kept from the server.
func TestTLSAndToken(t *testing.T) {
	var seen *http.Request
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		if r.Header.Get("Authorization") != "Bearer s3cret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, "%s", asJSON)
	}))
	defer srv.Close()
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	source := srv.URL + "/peers?cluster=eu%20a&etcdinit-ca-file=" + url.QueryEscape(ca) + "&etcdinit-token-file=" + token + "&b"
	p := open(t, source, discovery.Env{Size: 2})
	steps := []struct {
		name, token string
		kind        discovery.Kind
		want        string
	}{
		{"no token file", "", discovery.Config, "no such file"},
		{"no token", "\n", discovery.Config, "holds no token"},
		{"two lines", "a\nb", discovery.Config, "holds no token"},
		{"wrong token", "other", discovery.Config, "403 Forbidden (with the token of " + token},
		{"right token", "s3cret\n", 0, ""},
	}
	for _, s := range steps { // one provider: the token is read at each try
		if s.token != "" {
			if err := os.WriteFile(token, []byte(s.token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := p.Discover(t.Context())
		var e *discovery.Error
		if s.kind == 0 && err != nil || s.kind != 0 && (!errors.As(err, &e) || e.Kind != s.kind || !strings.Contains(err.Error(), s.want)) {
			t.Errorf("%s: got %v", s.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the token is told: %v", s.name, err)
		}
	}
	if seen.URL.RawQuery != "cluster=eu%20a&b" {
		t.Errorf("the server saw the query %q", seen.URL.RawQuery)
	}
	_, err := open(t, srv.URL+"/peers", discovery.Env{}).Discover(t.Context())
	var e *discovery.Error
	if !errors.As(err, &e) || e.Kind != discovery.Retry || e.AtDeadline != discovery.Unusable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the CA: %v", err)
	}
}

// TestRedirectsKeepCredentials: neither a token nor anything else goes where
// it was not meant to go.
func TestRedirectsKeepCredentials(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		fmt.Fprintf(w, "%s", asYAML)
	}))
	defer other.Close()
	send := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	plain := httptest.NewServer(send)
	defer plain.Close()
	secure := httptest.NewTLSServer(send)
	defer secure.Close()
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := errors.Join(os.WriteFile(ca, block, 0o600), os.WriteFile(token, []byte("s3cret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, source, want string }{
		{"token to another host", plain.URL + "/?etcdinit-token-file=" + token, "does not get our credentials"},
		{"https to http", secure.URL + "/?etcdinit-ca-file=" + ca, "redirects from https to http://"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := open(t, tt.source, discovery.Env{}).Discover(t.Context())
			var e *discovery.Error
			if !errors.As(err, &e) || e.Kind != discovery.Unusable || !strings.Contains(err.Error(), tt.want) || asked {
				t.Errorf("asked %v, got %v", asked, err)
			}
		})
	}
	if _, err := open(t, plain.URL, discovery.Env{}).Discover(t.Context()); err != nil || !asked {
		t.Errorf("without credentials: asked %v, %v", asked, err)
	}
}

// TestNames: host names in the document, and the server's own with
// --dns-server, are asked of DNS.
func TestNames(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s", `{"peers":[{"host":"a.example.org","port":2380},{"host":"b.example.org","port":2380}]}`)
	}))
	defer srv.Close()
	const zone = "$ORIGIN example.org.\n@ 3600 SOA ns host 1 2 3 4 5\nregistry 30 A 127.0.0.1\na 30 A 192.0.2.10\n"
	dns := dnstest.New(t, zone, dnstest.Faults{})
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, "http://registry.example.org:"+u.Port()+"/", discovery.Env{Size: 2, DNSServers: []netip.AddrPort{dns.Addr()}})
	_, err = p.Discover(t.Context())
	var e *discovery.Error
	if !errors.As(err, &e) || e.Kind != discovery.Retry || !strings.Contains(err.Error(), "b.example.org") {
		t.Errorf("got %v", err)
	}
	dns.Zone(t, zone+"b 30 A 192.0.2.11\n")
	peers, err := p.Discover(t.Context())
	if got := show(peers); err != nil || got != "/a.example.org:2380[192.0.2.10] /b.example.org:2380[192.0.2.11]" {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestSource(t *testing.T) {
	tests := []struct{ name, source, want string }{
		{"opaque", "http:example.org", "want http://HOST"},
		{"no host", "https:///peers", "want https://HOST"},
		{"port", "http://example.org:0/", `port "0"`},
		{"unknown option", "https://example.org/?etcdinit-cafile=/x", "unknown; known are etcdinit-ca-file"},
		{"relative path", "https://example.org/?etcdinit-ca-file=x", "no absolute path"},
		{"twice", "https://example.org/?etcdinit-ca-file=/x&etcdinit-ca-file=/y", "given twice"},
		{"half a pair", "https://example.org/?etcdinit-cert-file=/x", "belong together"},
		{"CA without TLS", "http://example.org/?etcdinit-ca-file=/x", "are for https"},
		{"token in the clear", "http://example.org/?etcdinit-token-file=/x", "not sent in the clear"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := discovery.Registry{"http": New, "https": New}.Open(tt.source, discovery.Env{})
			var e *discovery.Error
			if !errors.As(err, &e) || e.Kind != discovery.Config || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestReadme: the sections are there, every example opens, and the document in
// it is one.
func TestReadme(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, s := range []string{"Name", "Description", "Source", "Examples", "Errors"} {
		if !strings.Contains(text, "\n## "+s+"\n") {
			t.Errorf("section %s is missing", s)
		}
	}
	block := func(after string) string {
		_, rest, _ := strings.Cut(text, after)
		in, _, _ := strings.Cut(rest, "```")
		return in
	}
	lines := strings.Fields(block("## Examples\n\n```\n"))
	if len(lines) < 3 {
		t.Error("no examples")
	}
	for _, source := range lines {
		open(t, source, discovery.Env{})
	}
	doc := block("```yaml\n")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "%s", doc) }))
	defer srv.Close()
	dns := dnstest.New(t, "$ORIGIN example.org.\n@ 3600 SOA ns host 1 2 3 4 5\netcd-a 30 A 192.0.2.10\netcd-b 30 A 192.0.2.11\n", dnstest.Faults{})
	peers, err := open(t, srv.URL, discovery.Env{Size: 3, DNSServers: []netip.AddrPort{dns.Addr()}}).Discover(t.Context())
	if err != nil || len(peers) != 3 {
		t.Errorf("got %v, %v", peers, err)
	}
}
