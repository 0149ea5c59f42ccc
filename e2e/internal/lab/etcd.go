//go:build e2e

package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"
)

// Etcd starts the server of a minor version ("3.6").
func (h *Host) Etcd(version string, args ...string) *Proc {
	h.lab.t.Helper()
	return h.Start(h.lab.Tool("etcd-"+version), args...)
}

// Etcdctl runs etcdctl against this host's own server, fails the test where
// that fails, and returns its output.
func (h *Host) Etcdctl(args ...string) string {
	h.lab.t.Helper()
	return h.MustRun(h.lab.Tool("etcd-3.6/etcdctl"), append(h.clientFlags(h), args...)...)
}

// TryEtcdctl is Etcdctl where failing is allowed.
func (h *Host) TryEtcdctl(args ...string) Result {
	h.lab.t.Helper()
	return h.Run(h.lab.Tool("etcd-3.6/etcdctl"), append(h.clientFlags(h), args...)...)
}

func (h *Host) clientFlags(servers ...*Host) []string {
	endpoints := make([]string, 0, len(servers))
	for _, server := range servers {
		endpoints = append(endpoints, server.Endpoint())
	}
	flags := []string{"--endpoints=" + strings.Join(endpoints, ","), "--command-timeout=10s"}
	if h.lab.authority() != nil {
		pki := h.lab.Home + "/pki/"
		flags = append(flags, "--cacert="+pki+"ca.crt", "--cert="+pki+"member.crt", "--key="+pki+"member.key")
	}
	return flags
}

// Endpoint is the client URL of the host's server, by address.
func (h *Host) Endpoint() string {
	scheme := "http"
	if h.lab.authority() != nil {
		scheme = "https"
	}
	return scheme + "://" + netip.AddrPortFrom(h.Addrs()[0], 2379).String()
}

func (l *Lab) authority() *CA {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ca
}

// Healthy waits until every host's server says it is: it has a leader and can
// read through it.
func (l *Lab) Healthy(hosts ...*Host) {
	l.t.Helper()
	for _, h := range hosts {
		client := h.client()
		l.Eventually("health of "+h.Name, time.Minute, func() error {
			if p := l.lastEtcd(h); p != nil && !p.Running() {
				l.t.Fatalf("%s: %s ended with %v\n%s", h.Name, p.line, p.cmd.ProcessState, lastLines(p.Log(), 20))
			}
			return h.health(client)
		})
	}
}

// client is an HTTP client as the servers' clients must be.
func (h *Host) client() *http.Client {
	h.lab.t.Helper()
	if ca := h.lab.authority(); ca != nil {
		return h.HTTP(ca.ClientConfig())
	}
	return h.HTTP(nil)
}

func (h *Host) health(client *http.Client) error {
	body, err := h.get(client, "/health")
	if err == nil && !strings.Contains(body, `"health":"true"`) {
		err = fmt.Errorf("it says %s", strings.TrimSpace(body))
	}
	return err
}

// ClusterVersion is the version that the cluster has agreed on, as this host's
// server says; "not_decided" before the first election.
func (h *Host) ClusterVersion() (string, error) {
	h.lab.t.Helper()
	body, err := h.get(h.client(), "/version")
	if err != nil {
		return "", err
	}
	var version struct {
		Cluster string `json:"etcdcluster"`
	}
	err = json.Unmarshal([]byte(body), &version)
	return version.Cluster, err
}

func (h *Host) get(client *http.Client, path string) (string, error) {
	request, err := http.NewRequestWithContext(h.lab.ctx, http.MethodGet, h.Endpoint()+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// lastEtcd is the server that was started last on the host; nil for none.
func (l *Lab) lastEtcd(h *Host) *Proc {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range slices.Backward(l.procs) {
		if p.host == h && strings.HasPrefix(p.line, "etcd ") {
			return p
		}
	}
	return nil
}

// Member is one entry of a cluster's member list.
type Member struct {
	ID         uint64   `json:"ID"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner"`
}

// Members is the member list as this host's server has it, by name.
func (h *Host) Members() []Member {
	h.lab.t.Helper()
	var list struct {
		Members []Member `json:"members"`
	}
	h.lab.must(json.Unmarshal([]byte(h.Etcdctl("member", "list", "-w", "json")), &list))
	sort.Slice(list.Members, func(i, j int) bool { return list.Members[i].Name < list.Members[j].Name })
	return list.Members
}

// SameHash waits until the servers of all hosts have the same key-value store
// at the same revision, and returns that revision.
func (l *Lab) SameHash(hosts ...*Host) int64 {
	l.t.Helper()
	var revision int64
	l.Eventually("equal HashKV", 20*time.Second, func() error {
		args := append(hosts[0].clientFlags(hosts...), "endpoint", "hashkv", "-w", "json")
		result := hosts[0].Run(l.Tool("etcd-3.6/etcdctl"), args...)
		var answers []struct {
			Endpoint string
			HashKV   struct {
				Header struct {
					Revision int64 `json:"revision"`
				} `json:"header"`
				Hash uint64 `json:"hash"`
			}
		}
		if err := json.Unmarshal([]byte(result.Stdout), &answers); err != nil {
			return fmt.Errorf("%w: %s%s", err, result.Stdout, result.Stderr)
		}
		if len(answers) != len(hosts) {
			return fmt.Errorf("%d of %d servers answered", len(answers), len(hosts))
		}
		for _, a := range answers {
			if a.HashKV.Hash != answers[0].HashKV.Hash || a.HashKV.Header.Revision != answers[0].HashKV.Header.Revision {
				return fmt.Errorf("%+v", answers)
			}
		}
		revision = answers[0].HashKV.Header.Revision
		return nil
	})
	return revision
}

// Put writes a key through this host's server.
func (h *Host) Put(key, value string) {
	h.lab.t.Helper()
	h.Etcdctl("put", key, value)
}

// Get reads a key through this host's server; "" where it is absent.
func (h *Host) Get(key string) string {
	h.lab.t.Helper()
	return strings.TrimSuffix(h.Etcdctl("get", key, "--print-value-only"), "\n")
}
