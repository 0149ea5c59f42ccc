package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
)

// freeURLs returns addresses of loopback that are free at this moment.
func freeURLs(t *testing.T, scheme string, n int) []string {
	t.Helper()
	urls := make([]string, 0, n)
	var held []net.Listener
	for range n {
		l := listenOn(t, "127.0.0.1:0")
		held = append(held, l)
		urls = append(urls, scheme+"://"+l.Addr().String())
	}
	for _, l := range held { // not before: each is another one
		closeIt(t, l)
	}
	return urls
}

func listenOn(t *testing.T, addr string) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeIt(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// say answers a request, to whoever is still there.
func say(w io.Writer, text string) {
	if _, err := io.WriteString(w, text); err != nil {
		return
	}
}

func planAt(urls []string, self int) Plan {
	p := Plan{Digest: "d", ClusterID: "c1"}
	for i, u := range urls {
		p.Members = append(p.Members, Member{ID: ID(fmt.Sprintf("a%d", i)), Name: fmt.Sprintf("m%d", i), PeerURLs: []string{u}})
	}
	p.Self = p.Members[self].ID
	return p
}

func startAt(t *testing.T, urls []string, self int, tls TLS) *Barrier {
	t.Helper()
	b, err := Start(t.Context(), Config{Plan: planAt(urls, self), State: Waiting, Listen: []string{urls[self]}, TLS: tls, Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func standings(v View) string {
	out := []string{v.Self.String()}
	for i := range v.Peers {
		word := v.Peers[i].Now.String()
		if v.Peers[i].Steady {
			word += "!"
		}
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

func TestBarrierMeets(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	a := startAt(t, urls, 0, TLS{})
	if got := standings(a.Round(t.Context())); got != "mine silent silent" {
		t.Errorf("alone: %s", got)
	}
	b, c := startAt(t, urls, 1, TLS{}), startAt(t, urls, 2, TLS{})
	for _, x := range []*Barrier{a, b, c} {
		x.Round(t.Context())
		v := x.Round(t.Context())
		if got := standings(v); got != "mine waiting! waiting!" {
			t.Errorf("together: %s", got)
		}
	}
	b.Advance(Committed)
	b.Round(t.Context())
	select {
	case <-a.News():
	case <-time.After(time.Second):
		t.Error("a call with news did not wake the peer")
	}
	if got := standings(a.Round(t.Context())); got != "mine committed! waiting!" {
		t.Errorf("b is committed: %s", got)
	}
	b.Advance(Released)
	done := make(chan struct{})
	go func() { defer close(done); b.Farewell(t.Context(), 10*time.Second) }()
	a.Round(t.Context())
	select {
	case <-done:
		t.Error("left before c had come")
	case <-time.After(50 * time.Millisecond):
	}
	c.Round(t.Context())
	select {
	case <-done:
	case <-time.After(time.Second):
		t.Error("everybody has come, and it stays")
	}
}

// TestBarrierPatient: a call is news only once the round it asks for could
// decide something, and one that comes during a round is not forgotten.
func TestBarrierPatient(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	var early func()
	cfg := Config{Plan: planAt(urls, 0), State: Waiting, Listen: []string{urls[0]}, Log: zaptest.NewLogger(t)}
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if early != nil && "http://"+addr == urls[1] {
			early()
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	a, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, a)
	news := func() bool { return woken(a) }
	b := startAt(t, urls, 1, TLS{})
	b.Round(t.Context())
	if news() {
		t.Error("woken by one of two")
	}
	c := startAt(t, urls, 2, TLS{})
	c.Round(t.Context())
	if !news() {
		t.Error("both have called, and no news")
	}
	a.Round(t.Context())
	for _, x := range []*Barrier{b, c} {
		x.Round(t.Context())
		if news() {
			t.Error("woken by what is known")
		}
	}
	a.Advance(Committed)
	c.Advance(Committed)
	c.Round(t.Context())
	if news() {
		t.Error("woken while one is not as far")
	}
	var once sync.Once
	early = func() { // b is dialled while it commits, and says what it was
		once.Do(func() {
			b.mu.Lock()
			said := call{b.machine.plan.Self, b.machine.nonce, Committed}
			b.mu.Unlock()
			a.answer(said, true)
		})
	}
	if got := standings(a.Round(t.Context())); got != "mine waiting! committed!" {
		t.Errorf("in the round: %s", got)
	}
	if !news() {
		t.Error("what came during the round is forgotten")
	}
}

// TestBarrierTold: only an answer that went out lets an agent leave.
func TestBarrierTold(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	a, b := startAt(t, urls, 0, TLS{}), startAt(t, urls, 1, TLS{})
	b.Advance(Committed)
	a.Advance(Committed)
	a.Round(t.Context())
	a.Advance(Released)
	_, sent := a.answer(call{b.machine.plan.Self, b.machine.nonce, Committed}, true)
	if told, _ := a.allTold(); told {
		t.Error("told before it was sent")
	}
	sent()
	if told, _ := a.allTold(); !told {
		t.Error("sent, and not told")
	}
}

// deaf is a peer that has gone.
type deaf struct{ *httptest.ResponseRecorder }

func (deaf) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestSent: what did not go out was not told.
func TestSent(t *testing.T) {
	sent := 0
	s := &server{busy: make(chan struct{}, 1), answer: func(call, bool) (Answer, func()) { return Answer{}, func() { sent++ } }}
	ask := func(w http.ResponseWriter) {
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path, http.NoBody))
	}
	ask(deaf{httptest.NewRecorder()})
	if sent != 0 {
		t.Error("told a peer that has gone")
	}
	ask(httptest.NewRecorder())
	if sent != 1 {
		t.Error("not told a peer that listens")
	}
}

// woken says whether there is news.
func woken(b *Barrier) bool {
	select {
	case <-b.News():
		return true
	default:
		return false
	}
}

// TestBarrierWithout: nobody waits for a call of who is left out, while it is silent.
func TestBarrierWithout(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	a := startAt(t, urls, 0, TLS{})
	a.without = []string{"m2"}
	a.Round(t.Context())
	b := startAt(t, urls, 1, TLS{})
	b.Round(t.Context())
	if !woken(a) {
		t.Error("the only one that is waited for has called, and no news")
	}
	if v := a.Round(t.Context()); !a.Unsteady(v) || b.Unsteady(v) {
		t.Error("unsteady is: all are there that are waited for, not all for two rounds")
	}
	c := startAt(t, urls, 2, TLS{})
	a.Round(t.Context())
	a.Advance(Committed)
	b.Advance(Committed)
	b.Round(t.Context())
	if woken(a) {
		t.Error("woken although one that is there is not as far")
	}
	closeIt(t, c)
}

// withCommitted starts two agents, and a third that is committed and that the
// test closes.
func withCommitted(t *testing.T) (a, b, c *Barrier) {
	t.Helper()
	urls := freeURLs(t, "http", 3)
	c, err := Start(t.Context(), Config{Plan: planAt(urls, 2), State: Committed, Listen: []string{urls[2]}, Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	return startAt(t, urls, 0, TLS{}), startAt(t, urls, 1, TLS{}), c
}

// TestBarrierSticks: who was committed and is silent now has not to call again.
func TestBarrierSticks(t *testing.T) {
	a, b, c := withCommitted(t)
	a.Advance(Committed)
	a.Round(t.Context())
	closeIt(t, c)
	a.Round(t.Context())
	woken(a)
	b.Advance(Committed)
	b.Round(t.Context())
	if !woken(a) {
		t.Error("the last one is committed, and no news")
	}
}

// TestBarrierReleasedCalls: one that is released decides, whoever is missing.
func TestBarrierReleasedCalls(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	a, b := startAt(t, urls, 0, TLS{}), startAt(t, urls, 1, TLS{})
	a.Advance(Committed)
	a.Round(t.Context())
	b.Advance(Committed)
	b.Advance(Released)
	b.Round(t.Context())
	if !woken(a) {
		t.Error("a peer is released, and no news")
	}
}

// TestFarewell: who is gone is not waited for, and who may have missed that
// this agent is committed is called.
func TestFarewell(t *testing.T) {
	a, b, c := withCommitted(t)
	b.Advance(Committed)
	a.Advance(Committed)
	a.Round(t.Context())
	closeIt(t, c)
	a.Advance(Released)
	woken(b)
	done := make(chan struct{})
	go func() { defer close(done); a.Farewell(t.Context(), time.Minute) }()
	select {
	case <-b.News():
		b.Round(t.Context())
	case <-time.After(10 * time.Second):
		t.Error("b is not called")
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it waits for a peer that has gone")
	}
}

// TestBarrierQuiet: agents that know all of each other do not wake each other for ever.
func TestBarrierQuiet(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	a, b := startAt(t, urls, 0, TLS{}), startAt(t, urls, 1, TLS{})
	for range 2 {
		a.Round(t.Context())
		b.Round(t.Context())
	}
	for len(a.News())+len(b.News()) > 0 {
		select {
		case <-a.News():
		case <-b.News():
		}
	}
	a.Round(t.Context())
	b.Round(t.Context())
	if len(a.News())+len(b.News()) > 0 {
		t.Error("a call without news wakes")
	}
}

func TestBarrierDouble(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	startAt(t, urls, 0, TLS{})
	other, err := newBarrier(Config{Plan: planAt(urls, 0), State: Waiting, Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if got := other.Round(t.Context()).Self; got != Double {
		t.Errorf("another run at my URL: %v", got)
	}
}

// TestListener: only the one path, and never a status that stops an etcd.
func TestListener(t *testing.T) {
	urls := freeURLs(t, "http", 2)
	startAt(t, urls, 0, TLS{})
	for _, tt := range []struct {
		name, method, path string
		want               int
	}{
		{"state", http.MethodGet, Path, 200},
		{"state by post", http.MethodPost, Path, 404},
		{"state with a query", http.MethodGet, Path + "?x=1", 404},
		{"state and more", http.MethodGet, Path + "/x", 404},
		{"raft", http.MethodPost, "/raft", 404},
		{"raft stream", http.MethodGet, "/raft/stream/message/1", 404},
		{"raft probing", http.MethodGet, "/raft/probing", 404},
		{"members", http.MethodGet, "/members", 404},
		{"version", http.MethodGet, "/version", 404},
		{"up and down", http.MethodGet, "/x/../etcdinit/v1/state", 404},
		{"options", http.MethodOptions, "/raft", 404},
		{"connect-like", http.MethodPut, "/", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, urls[0]+tt.path, strings.NewReader(strings.Repeat("x", 1000)))
			if err != nil {
				t.Fatal(err)
			}
			tr := &http.Transport{DisableKeepAlives: true}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer closeIt(t, resp.Body)
			if resp.StatusCode != tt.want {
				t.Errorf("%s %s: %d, want %d", tt.method, tt.path, resp.StatusCode, tt.want)
			}
		})
	}
}

// TestOverload: beyond the limit of requests, 503.
func TestOverload(t *testing.T) {
	s := &server{busy: make(chan struct{}, 1), answer: func(call, bool) (Answer, func()) { return Answer{}, func() {} }}
	s.busy <- struct{}{}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path, http.NoBody))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
	<-s.busy
	w = httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path, http.NoBody))
	if w.Code != http.StatusOK || len(s.busy) != 0 {
		t.Errorf("status %d, %d still busy", w.Code, len(s.busy))
	}
}

// TestSlowLoris: connections that say nothing are ended, and while one host
// holds all that it gets, another one is still answered.
func TestSlowLoris(t *testing.T) {
	l := listenOn(t, "0.0.0.0:0")
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	closeIt(t, l)
	url := "http://127.0.0.1:" + port
	b, err := Start(t.Context(), Config{Plan: planAt([]string{url, "http://127.0.0.1:1"}, 0), State: Waiting, Listen: []string{"http://0.0.0.0:" + port}, Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, b)
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var held []net.Conn
	for range 3 * maxPerHost {
		c, err := from.DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Skipf("no loopback alias here: %v", err)
		}
		t.Cleanup(func() { closeIt(t, c) })
		if _, err := io.WriteString(c, "GET /etcdinit/v1/state HTTP/1.1\r\nX: "); err != nil {
			continue
		}
		held = append(held, c)
	}
	if got := b.Round(t.Context()).Self; got != Mine {
		t.Errorf("with a slow host at the door, my own probe sees: %v", got)
	}
	start := time.Now()
	for _, c := range held {
		if err := c.SetReadDeadline(time.Now().Add(3 * ioTimeout)); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, c)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatalf("a connection that says nothing is held for more than %v", time.Since(start))
		}
	}
}

// TestLyingNeighbours: what may sit at a peer's URL, and what is made of it.
func TestLyingNeighbours(t *testing.T) {
	ok := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != Path {
				http.NotFound(w, r)
				return
			}
			say(w, body)
		}
	}
	member := func(id string) string {
		return `{"format":1,"digest":"d","clusterID":"c1","memberID":"` + id + `","nonce":"n","state":"committed"}`
	}
	etcd := func(header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/members" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("X-Etcd-Cluster-Id", header)
			say(w, body)
		}
	}
	for _, tt := range []struct {
		name   string
		h      http.HandlerFunc
		want   Standing
		detail string
	}{
		{"an agent", ok(member("a1")), IsCommitted, ""},
		{"another member's agent", ok(member("a0")), Astray, ""},
		{"a web server", ok("<html>hello</html>"), Unknown, "not an agent's JSON"},
		{"a newer agent", ok(`{"format":9}`), Unknown, "same version"},
		{"a flood", ok(strings.Repeat("x", 2*maxAnswer)), Unknown, "more than"},
		{"404 for all", http.NotFound, Unknown, "neither"},
		{"403 for all", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, Unknown, "neither"},
		{"a redirect to an agent", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, Unknown, "HTTP 302"},
		{"busy", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, Silent, "busy"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Silent, "closed the connection"},
		{"etcd of mine", etcd("00000000000000c1", `[{"id":161,"name":"m0","peerURLs":[]}]`), Running, ""},
		{"etcd of mine that lists nobody", etcd("c1", `[]`), Running, ""},
		{"etcd of mine, null", etcd("c1", `null`), Running, ""},
		{"etcd of others", etcd("c9", `[]`), Foreign, ""},
		{"no cluster ID", etcd("", `[]`), Unknown, "no cluster ID"},
		{"cluster ID 0", etcd("0", `[]`), Unknown, "no cluster ID"},
		{"a cluster ID of nonsense", etcd("zz", `[]`), Unknown, "no cluster ID"},
		{"a list of nonsense", etcd("c1", `{"x":`), Unknown, "no list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(tt.h)
			defer srv.Close()
			urls := append(freeURLs(t, "http", 1), srv.URL)
			v := startAt(t, urls, 0, TLS{}).Round(t.Context())
			if p := v.Peers[0]; p.Now != tt.want || !strings.Contains(p.Last.Detail, tt.detail) {
				t.Errorf("got %v (%s), want %v (%s)", p.Now, p.Last.Detail, tt.want, tt.detail)
			}
		})
	}
}

// TestRoundIsBounded: a peer that takes the connection and is silent does not
// hold a round for longer than its time.
func TestRoundIsBounded(t *testing.T) {
	l := listenOn(t, "127.0.0.1:0")
	defer closeIt(t, l)
	b := startAt(t, append(freeURLs(t, "http", 1), "http://"+l.Addr().String()), 0, TLS{})
	start := time.Now()
	v := b.Round(t.Context())
	if took := time.Since(start); took > RoundTime+time.Second || v.Peers[0].Now != Silent {
		t.Errorf("%v after %v", v.Peers[0].Now, took)
	}
	if !strings.Contains(v.Peers[0].Last.Detail, "no answer") {
		t.Errorf("detail: %s", v.Peers[0].Last.Detail)
	}
}

// TestProxyIsNotUsed: a proxy's answer would not be a peer's.
func TestProxyIsNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	urls := freeURLs(t, "http", 2)
	a := startAt(t, urls, 0, TLS{})
	startAt(t, urls, 1, TLS{})
	if got := standings(a.Round(t.Context())); got != "mine waiting" {
		t.Error(got)
	}
}

// TestTaken: who has the listen address already.
func TestTaken(t *testing.T) {
	start := func(url string) error {
		_, err := Start(t.Context(), Config{Plan: planAt([]string{url, "http://127.0.0.1:1"}, 0), State: Waiting, Listen: []string{url}, Log: zaptest.NewLogger(t)})
		return err
	}
	urls := freeURLs(t, "http", 2)
	startAt(t, urls, 0, TLS{})
	var taken *TakenError
	if err := start(urls[0]); !errors.As(err, &taken) || !strings.Contains(err.Error(), "another etcdinit already runs here") {
		t.Errorf("by an agent: %v", err)
	}
	for _, tt := range []struct{ name, cluster, want string }{
		{"etcd", "c9", "etcd already runs here"},
		{"another program", "", "taken by another program"},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/members" || tt.cluster == "" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("X-Etcd-Cluster-Id", tt.cluster)
			say(w, "[]")
		}))
		if err := start(srv.URL); !errors.As(err, &taken) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("by %s: %v", tt.name, err)
		}
		srv.Close()
	}
}

func TestSurvey(t *testing.T) {
	urls := freeURLs(t, "http", 3)
	startAt(t, urls, 1, TLS{})
	startAt(t, urls, 2, TLS{})
	v, err := Survey(context.Background(), Config{Plan: planAt(urls, 0), State: Waiting, Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if got := standings(v); got != "silent waiting! waiting!" {
		t.Error(got)
	}
}

func TestBucket(t *testing.T) {
	k := bucket{tokens: wakeBurst}
	now := time.Unix(0, 0)
	taken := 0
	for range 1000 {
		if k.take(now) {
			taken++
		}
	}
	if taken != wakeBurst {
		t.Errorf("%d at once", taken)
	}
	for range 40 {
		now = now.Add(wakeEvery / 4)
		if k.take(now) {
			taken++
		}
	}
	if taken != wakeBurst+10 {
		t.Errorf("%d after a while", taken)
	}
}

// TestConnLimit: one host gets its share, all hosts together get theirs.
func TestConnLimit(t *testing.T) {
	c := &connLimit{perHost: make(map[string]int)}
	got := 0
	for c.enter("192.0.2.1") {
		got++
	}
	if got != maxPerHost {
		t.Errorf("one host has %d connections", got)
	}
	for i := range 2 * maxConns {
		if c.enter(fmt.Sprintf("192.0.2.%d", 2+i%200)) {
			got++
		}
	}
	if got != maxConns {
		t.Errorf("all hosts have %d connections", got)
	}
	c.leave("192.0.2.1")
	if !c.enter("192.0.2.1") {
		t.Error("a connection that was closed still counts")
	}
}
