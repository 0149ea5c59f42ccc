package rendezvous

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// RoundTime bounds a round of probes.
const RoundTime = 2 * time.Second

// NoAnswerWithin begins the words for a peer whose host says nothing at all.
const NoAnswerWithin = "no answer within "

// DialFunc dials an address of the form host:port.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// prober asks members what they are.
type prober struct {
	material *material
	dial     DialFunc
	// patience is how long a round that is complete waits for the sighting of my
	// own URL.
	patience time.Duration
}

// selfTime is the patience of an agent that makes round after round: where the
// network does not lead packets back to their sender (NAT without hairpin), each
// would take all of RoundTime.
const selfTime = 20 * time.Millisecond

// round asks every other member, and this one's own URL, at the same time.
func (p *prober) round(ctx context.Context, plan Plan, c call) Round {
	ctx, cancel := context.WithTimeout(ctx, RoundTime)
	defer cancel()
	others := plan.Others()
	r := Round{Peers: make([]Sighting, len(others)), Self: Sighting{Peer: plan.Self, Detail: "no answer yet"}}
	own := make(chan Sighting, 1)
	go func() { own <- p.member(ctx, plan.Me(), c) }()
	var wg sync.WaitGroup
	for i, m := range others {
		wg.Go(func() { r.Peers[i] = p.member(ctx, m, c) })
	}
	wg.Wait()
	select {
	case r.Self = <-own:
	case <-time.After(p.patience):
	}
	return r
}

// member asks at each of the member's peer URLs until one answers.
func (p *prober) member(ctx context.Context, m Member, c call) Sighting {
	s := Sighting{Peer: m.ID, Detail: "it has no peer URL"}
	for _, raw := range m.PeerURLs {
		s = p.ask(ctx, m.ID, raw, c)
		if s.Kind != NoAnswer {
			return s
		}
	}
	return s
}

// ask makes one sighting. Only what is dialled counts, so no connection is
// ever used twice and no redirect or proxy is followed.
func (p *prober) ask(ctx context.Context, id ID, raw string, c call) Sighting {
	s := Sighting{Peer: id, URL: raw}
	u, err := url.Parse(raw)
	if err != nil {
		s.Detail = err.Error()
		return s
	}
	tr := &http.Transport{
		DialContext: p.dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10,
		TLSClientConfig: p.material.clientConfig(u.Hostname(), func(f string) { s.Certs = append(s.Certs, f) }),
	}
	defer tr.CloseIdleConnections()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { s.Addr = i.Conn.RemoteAddr().String() }})
	get := func(path string) (*http.Response, error) {
		req, reqErr := http.NewRequestWithContext(ctx, http.MethodGet, u.Scheme+"://"+u.Host+path, http.NoBody)
		if reqErr != nil {
			return nil, reqErr
		}
		if c.id != "" {
			req.Header.Set(callHeader, c.String())
		}
		return tr.RoundTrip(req)
	}
	resp, err := get(Path)
	if err != nil {
		s.Detail, s.Trust = plain(err), distrust(err)
		return s
	}
	defer drop(resp)
	switch {
	case resp.Header.Get(refusedHeader) != "":
		s.Trust, s.Detail = RefusesMine, refusedWords(resp.Body)
	case resp.StatusCode == http.StatusOK:
		if s.Answer, err = parse(resp.Body); err != nil {
			s.Kind, s.Detail = Garbage, err.Error()
			return s
		}
		s.Kind = Agent
	case resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests:
		s.Detail = "it is busy: HTTP " + strconv.Itoa(resp.StatusCode)
	default:
		s.etcd(get)
		if s.Kind == Garbage {
			s.Detail = "HTTP " + strconv.Itoa(resp.StatusCode) + " from something that is neither an etcdinit nor an etcd: " + s.Detail
		}
	}
	return s
}

// refusedWords is why an agent refuses this node's certificate.
func refusedWords(body io.Reader) string {
	data, err := io.ReadAll(io.LimitReader(body, maxRefusal))
	if err != nil || len(data) == 0 {
		return "it does not say why"
	}
	return cut(printable(strings.TrimSpace(string(data))), maxRefusal)
}

// distrust says whose part it was that TLS came to nothing.
func distrust(err error) Trust {
	var bad *certError
	var alert tls.AlertError
	var remote *net.OpError
	switch {
	case errors.As(err, &bad):
		return BadCert
	case errors.As(err, &remote) && remote.Op == "remote error":
		switch text := remote.Error(); {
		case strings.Contains(text, "certificate"), strings.Contains(text, "access denied"):
			return RefusesMine
		}
		return NoCommonTLS
	case errors.As(err, &alert), strings.Contains(err.Error(), "tls: "):
		return NoCommonTLS
	}
	return Trusted
}

func drop(resp *http.Response) {
	if err := resp.Body.Close(); err != nil {
		return // nothing more is read from it
	}
}

// etcd recognises an etcd by what it says on its peer port: the ID of its
// cluster, in a header, from its first moment on.
func (s *Sighting) etcd(get func(string) (*http.Response, error)) {
	resp, err := get("/members")
	if err != nil {
		s.Kind, s.Detail = NoAnswer, plain(err)
		return
	}
	defer drop(resp)
	s.Kind = Garbage
	id := ID(strings.TrimLeft(strings.ToLower(resp.Header.Get("X-Etcd-Cluster-Id")), "0"))
	if resp.StatusCode != http.StatusOK || !id.valid() {
		s.Detail = "no cluster ID at /members"
		return
	}
	var list []struct {
		ID         uint64   `json:"id"`
		Name       string   `json:"name"`
		PeerURLs   []string `json:"peerURLs"`
		ClientURLs []string `json:"clientURLs"`
		IsLearner  bool     `json:"isLearner"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&list); err != nil || len(list) > maxMembers {
		s.Detail = "no list of members at /members"
		return
	}
	s.Kind, s.ClusterID, s.Detail = Etcd, id, ""
	for _, m := range list {
		s.Members = append(s.Members, Listed{ID: ID(strconv.FormatUint(m.ID, 16)), Name: clean(m.Name), PeerURLs: cleanAll(m.PeerURLs), ClientURLs: cleanAll(m.ClientURLs), Learner: m.IsLearner, Started: len(m.ClientURLs) > 0})
	}
	s.Version = version(get)
}

// version is only for the message.
func version(get func(string) (*http.Response, error)) string {
	resp, err := get("/version")
	if err != nil {
		return ""
	}
	defer drop(resp)
	var v struct {
		Server string `json:"etcdserver"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 4<<10)).Decode(&v); err != nil {
		return ""
	}
	return clean(v.Server)
}

// plain says why a dial or an exchange failed, in few words.
func plain(err error) string {
	var dns *net.DNSError
	var sys syscall.Errno
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return NoAnswerWithin + RoundTime.String()
	case errors.As(err, &dns):
		return dns.Error()
	case errors.As(err, &sys):
		return sys.Error()
	case errors.Is(err, io.EOF):
		return "it closed the connection"
	case strings.Contains(text, "server gave HTTP response to HTTPS client"), strings.Contains(text, "does not look like a TLS handshake"):
		return "it speaks plain HTTP, this node expects TLS"
	case strings.Contains(text, "remote error: tls: "):
		_, alert, _ := strings.Cut(text, "remote error: tls: ")
		return "it broke off TLS: " + clean(alert)
	case strings.Contains(text, "malformed HTTP response"):
		return "it does not speak plain HTTP (does it expect TLS?)"
	}
	return clean(text)
}

// whoListens asks the address that could not be bound.
func whoListens(ctx context.Context, u *url.URL, m *material) Sighting {
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		return Sighting{}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	open := *m
	open.unchecked = true // whatever its certificate says: it is only for a message
	p := &prober{material: &open, dial: (&net.Dialer{}).DialContext}
	ctx, cancel := context.WithTimeout(ctx, RoundTime)
	defer cancel()
	return p.ask(ctx, "", u.Scheme+"://"+net.JoinHostPort(host, port), call{})
}
