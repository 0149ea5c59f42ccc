package admit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.uber.org/zap"
)

// Hash is the hash of one member's keys at a revision, without what was compacted
// up to CompactRevision: two hashes compare only where both are equal.
type Hash struct {
	Hash            uint32 `json:"hash"`
	CompactRevision int64  `json:"compact_revision"`
}

// hashPath is where etcd 3.4 to 3.7 tell the hash of their keys on the peer port, a
// learner too; on the client port a learner does not.
const hashPath = "/members/hashkv"

// PeerAccess is how the members' peer ports are reached.
type PeerAccess struct {
	CertFile, KeyFile, CAFile string
	Insecure                  bool
}

// Peers asks members on their peer ports.
type Peers struct{ http *http.Client }

// NewPeers makes a client for peer ports. The error is one of the certificates.
func NewPeers(a PeerAccess) (*Peers, error) {
	info := transport.TLSInfo{CertFile: a.CertFile, KeyFile: a.KeyFile, TrustedCAFile: a.CAFile, InsecureSkipVerify: a.Insecure, Logger: zap.NewNop()}
	tr, err := transport.NewTransport(info, dialTime)
	if err != nil {
		return nil, err
	}
	return &Peers{&http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Hash asks a member for the hash of its keys at a revision.
func (p *Peers) Hash(ctx context.Context, m Member, revision int64) (h Hash, err error) {
	err = errors.New("it has no peer URL")
	for _, url := range m.PeerURLs {
		if h, err = p.hash(ctx, url, revision); err == nil {
			return h, nil
		}
	}
	return h, passing("ask "+m.Name+" for the hash of its keys", err)
}

// passing is a failure on a peer port: but for certificates it passes, a revision
// that was compacted meanwhile too.
func passing(what string, err error) *Error {
	reason := reasonFor(err)
	if reason != Denied {
		reason = Unreachable
	}
	return &Error{reason, what, err}
}

func (p *Peers) hash(ctx context.Context, url string, revision int64) (h Hash, err error) {
	body, err := json.Marshal(struct {
		Revision int64 `json:"revision"`
	}{revision})
	if err != nil {
		return h, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+hashPath, bytes.NewReader(body))
	if err != nil {
		return h, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.http.Do(req)
	if err != nil {
		return h, err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing more is read from it
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return h, err
	}
	if resp.StatusCode != http.StatusOK {
		return h, fmt.Errorf("%s%s: HTTP %d: %.200q", url, hashPath, resp.StatusCode, data)
	}
	err = json.Unmarshal(data, &h)
	return h, err
}

// Close drops the connections.
func (p *Peers) Close() { p.http.CloseIdleConnections() }
