package rendezvous

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

const (
	maxConns    = 256
	maxPerHost  = 32
	maxRequests = 64
	maxHeader   = 4 << 10
	ioTimeout   = 2 * time.Second
	callHeader  = "Etcdinit-Call"
	// refusedHeader marks the answer to a caller whose certificate etcd would
	// refuse: it says why, and nothing of this agent.
	refusedHeader = "Etcdinit-Refused"
	maxRefusal    = 2 << 10
)

// TakenError says that a listen address cannot be used now: somebody else has it,
// or this host does not have it yet. Both can pass.
type TakenError struct {
	Addr string
	// By says who it is, where that could be told.
	By Sighting
	// Err is the cause.
	Err error
}

func (e *TakenError) Error() string {
	switch e.By.Kind {
	case Etcd:
		return fmt.Sprintf("etcd already runs here: the listen address %s belongs to an etcd %s of cluster %s", e.Addr, e.By.Version, e.By.ClusterID)
	case Agent:
		return fmt.Sprintf("another etcdinit already runs here: the listen address %s belongs to the agent of member %s (%s)", e.Addr, e.By.Answer.MemberID, e.By.Answer.State)
	case NoAnswer, Garbage:
	}
	if e.Absent() {
		return "the listen address " + e.Addr + " is on no interface of this host yet (ip address tells which are)"
	}
	return "the listen address " + e.Addr + " is taken by another program (ss -ltnp tells which)"
}

func (e *TakenError) Unwrap() error { return e.Err }

// Absent reports whether nobody has the address, this host included: an interface
// that comes up late, a virtual address that another host still holds.
func (e *TakenError) Absent() bool { return errors.Is(e.Err, syscall.EADDRNOTAVAIL) }

// call is what a probe says of its sender: who it is, how far, and a short hash
// of what it proposes. It is only a reason to look there, never a fact.
type call struct {
	id    ID
	nonce string
	state State
	key   string
}

func (c call) String() string {
	return strings.Join([]string{string(c.id), c.nonce, string(c.state), c.key}, " ")
}

func parseCall(s string) (call, bool) {
	f := strings.Split(s, " ")
	if len(s) > maxText || len(f) != 4 || !ID(f[0]).valid() {
		return call{}, false
	}
	return call{ID(f[0]), f[1], State(f[2]), f[3]}, true
}

// answerFunc says what a peer that asks is told, and takes note once that is
// sent. It is nil where nothing can be said at this moment.
type answerFunc func(c call, known bool) (a *Answer, sent func())

// server answers peers on the member's listen-peer-urls.
type server struct {
	http      http.Server
	busy      chan struct{} // a token for each request in work
	material  *material
	answer    answerFunc
	refused   func(c call, known bool, why string)
	raft      func(http.Header) // is told of each call that an etcd makes here
	listeners []net.Listener
	done      sync.WaitGroup
}

func serve(ctx context.Context, urls []string, m *material, answer answerFunc, refused func(c call, known bool, why string), raft func(http.Header), z *zap.Logger) (*server, error) {
	s := &server{busy: make(chan struct{}, maxRequests), material: m, answer: answer, refused: refused, raft: raft}
	s.http = http.Server{
		Handler: s, ReadHeaderTimeout: ioTimeout, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, IdleTimeout: ioTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: log.New(debugWriter{z}, "", 0), //nolint:forbidigo // net/http wants one; it writes to the zap logger
		TLSNextProto:                 map[string]func(*http.Server, *tls.Conn, http.Handler){},
		DisableGeneralOptionsHandler: true, // it would answer "OPTIONS *" with 200
	}
	s.http.SetKeepAlivesEnabled(false)
	conns := &connLimit{perHost: make(map[string]int)}
	for _, u := range urls {
		l, err := bind(ctx, u, m)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		l = &limited{Listener: l, limit: conns}
		if strings.HasPrefix(u, "https:") {
			l = tls.NewListener(l, m.serverConfig())
		}
		s.listeners = append(s.listeners, l)
	}
	for _, l := range s.listeners {
		s.done.Go(func() {
			if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				z.Warn("stopped answering peers on "+l.Addr().String(), zap.Error(err))
			}
		})
	}
	return s, nil
}

func bind(ctx context.Context, raw string, m *material) (net.Listener, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("listen-peer-urls: %w", err)
	case u.Scheme == "https" && m.listen == nil:
		return nil, fmt.Errorf("listen-peer-urls: %s without a peer certificate (peer-transport-security)", raw)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("listen-peer-urls: %s: only http and https are supported", raw)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", u.Host)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &TakenError{Addr: u.Host, By: whoListens(ctx, u, m), Err: err}
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil, &TakenError{Addr: u.Host, Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("listen for peers on %s: %w", u.Host, err)
	}
	return l, nil
}

// ServeHTTP knows one path. No other answer is ever 200, 403 or 410: live
// etcds of the cluster dial this address too, and a 403 makes them stop.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	default:
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	if strings.HasPrefix(r.URL.Path, raftPath) && len(s.material.caller(r.Context(), r.TLS, r.RemoteAddr)) == 0 {
		s.raft(r.Header)
	}
	if r.URL.Path != Path || r.URL.RawQuery != "" || r.Method != http.MethodGet {
		http.NotFound(w, r)
		return
	}
	c, known := parseCall(r.Header.Get(callHeader))
	if why := s.material.caller(r.Context(), r.TLS, r.RemoteAddr); len(why) > 0 {
		text := cut(printable(strings.Join(why, "; ")), maxRefusal)
		s.refused(c, known, text)
		w.Header().Set(refusedHeader, "certificate")
		http.Error(w, text, http.StatusServiceUnavailable)
		return
	}
	answer, sent := s.answer(c, known)
	if answer == nil {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, err = w.Write(body)
	if err = errors.Join(err, http.NewResponseController(w).Flush()); err == nil {
		sent() // or the peer has gone; it will ask again
	}
}

func (s *server) close() error {
	err := s.http.Close()
	for _, l := range s.listeners {
		if cerr := l.Close(); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	s.done.Wait()
	return err
}

// connLimit counts connections, of all and of each remote host.
type connLimit struct {
	mu      sync.Mutex
	all     int
	perHost map[string]int
}

func (c *connLimit) enter(host string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= maxConns || c.perHost[host] >= maxPerHost {
		return false
	}
	c.all++
	c.perHost[host]++
	return true
}

func (c *connLimit) leave(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	c.perHost[host]--
	if c.perHost[host] == 0 {
		delete(c.perHost, host)
	}
}

// limited closes what is beyond the limit, so that one host that holds its
// connections open does not keep the peers out.
type limited struct {
	net.Listener
	limit *connLimit
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(c.RemoteAddr().String())
		if err == nil && l.limit.enter(host) {
			return &counted{Conn: c, leave: sync.OnceFunc(func() { l.limit.leave(host) })}, nil
		}
		if err := c.Close(); err != nil {
			continue
		}
	}
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

type debugWriter struct{ z *zap.Logger }

func (w debugWriter) Write(p []byte) (int, error) {
	w.z.Debug("peer connection", zap.String("seen", strings.TrimSpace(string(p))))
	return len(p), nil
}
