package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcdinit/etcdinit/plugins"
	"github.com/etcdinit/etcdinit/plugins/plugintest"
)

const pluginName = "kubernetes"

// TestMain makes this binary the plugin itself where it is called by its name:
// that saves a second build of the SDK.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == pluginName {
		main()
	}
	os.Exit(m.Run())
}

// pod is one endpoint of a slice: "etcd-0 192.0.2.10", "+terminating",
// "-hostname", "-node".
func pod(words string) discoveryv1.Endpoint {
	f := strings.Fields(words)
	name, node, yes := f[0], "node-"+f[0], true
	e := discoveryv1.Endpoint{
		Addresses: []string{f[1]}, Hostname: &name, NodeName: &node,
		TargetRef: nil, Conditions: discoveryv1.EndpointConditions{Ready: new(bool)},
	}
	for _, flag := range f[2:] {
		switch flag {
		case "+terminating":
			e.Conditions.Terminating = &yes
		case "-hostname":
			e.Hostname = nil
		case "-node":
			e.NodeName = nil
		}
	}
	return e
}

func slice(family discoveryv1.AddressType, ports string, pods ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{AddressType: family, ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "etcd"}}}
	for p := range strings.FieldsSeq(ports) {
		name, digits, _ := strings.Cut(p, "=")
		var n int32
		if _, err := fmt.Sscan(digits, &n); err != nil {
			panic(err)
		}
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &n})
	}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, pod(p))
	}
	return s
}

func TestPeers(t *testing.T) {
	const v4, v6 = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	three := []string{"etcd-0 192.0.2.10", "etcd-1 192.0.2.11", "etcd-2 192.0.2.12"}
	tests := []struct {
		name   string
		q      query
		slices []discoveryv1.EndpointSlice
		want   string
		code   string
		err    string
	}{
		{
			name: "not ready pods of a StatefulSet", q: query{size: 3},
			slices: []discoveryv1.EndpointSlice{slice(v4, "client=2379 peer=2380", three...)},
			want:   "etcd-0/etcd-0.etcd.db.svc.cluster.local:2380[192.0.2.10] etcd-1/etcd-1.etcd.db.svc.cluster.local:2380[192.0.2.11] etcd-2/etcd-2.etcd.db.svc.cluster.local:2380[192.0.2.12]",
		},
		{
			name: "both families, in slices of one pod each", q: query{size: 1},
			slices: []discoveryv1.EndpointSlice{slice(v4, "peer=2380", three[0]), slice(v6, "peer=2380", "etcd-0 2001:db8::10")},
			want:   "etcd-0/etcd-0.etcd.db.svc.cluster.local:2380[192.0.2.10 2001:db8::10]",
		},
		{
			name: "one is missing", q: query{size: 3},
			slices: []discoveryv1.EndpointSlice{slice(v4, "peer=2380", three[:2]...)},
			code:   plugins.CodeRetry, err: "service etcd in namespace db has 2 of 3 endpoints: etcd-0 etcd-1",
		},
		{
			name: "one is terminating", q: query{size: 3},
			slices: []discoveryv1.EndpointSlice{slice(v4, "peer=2380", "etcd-0 192.0.2.99 +terminating", three[1], three[2])},
			code:   plugins.CodeRetry, err: "2 of 3 endpoints: etcd-1 etcd-2; terminating: etcd-0",
		},
		{
			name: "the successor of one that is terminating", q: query{size: 3},
			slices: []discoveryv1.EndpointSlice{slice(v4, "peer=2380", "etcd-0 192.0.2.99 +terminating"), slice(v4, "peer=2380", three...)},
			want:   "etcd-0/etcd-0.etcd.db.svc.cluster.local:2380[192.0.2.10] etcd-1/etcd-1.etcd.db.svc.cluster.local:2380[192.0.2.11] etcd-2/etcd-2.etcd.db.svc.cluster.local:2380[192.0.2.12]",
		},
		{name: "no slices", q: query{size: 3}, code: plugins.CodeRetry, err: "0 of 3 endpoints: none"},
		{
			name: "no hostname", q: query{size: 1},
			slices: []discoveryv1.EndpointSlice{slice(v4, "peer=2380", "etcd-0 192.0.2.10 -hostname")},
			code:   plugins.CodeConfig, err: "has no hostname: set hostname and subdomain, or use a StatefulSet whose serviceName is etcd",
		},
		{
			name: "by node", q: query{size: 1, names: byNode},
			slices: []discoveryv1.EndpointSlice{slice(v4, "peer=2380", "etcd-0 192.0.2.10 -hostname")},
			want:   "node-etcd-0/192.0.2.10:2380[192.0.2.10]",
		},
		{
			name: "by node that is not told", q: query{size: 1, names: byNode},
			slices: []discoveryv1.EndpointSlice{slice(v4, "peer=2380", "etcd-0 192.0.2.10 -node")},
			code:   plugins.CodeConfig, err: "is on no node",
		},
		{
			name: "port by name", q: query{size: 1, port: "raft"},
			slices: []discoveryv1.EndpointSlice{slice(v4, "peer=1 raft=2381", three[0])},
			want:   "etcd-0/etcd-0.etcd.db.svc.cluster.local:2381[192.0.2.10]",
		},
		{
			name: "no such port", q: query{size: 1, port: "raft"},
			slices: []discoveryv1.EndpointSlice{slice(v4, "peer=1", three[0])},
			code:   plugins.CodeConfig, err: "service etcd has no port named raft, it has peer=1",
		},
		{
			name: "the label of SRV", q: query{size: 1},
			slices: []discoveryv1.EndpointSlice{slice(v4, "etcd-client-ssl=2379 etcd-server-ssl=2380", three[0])},
			want:   "etcd-0/etcd-0.etcd.db.svc.cluster.local:2380[192.0.2.10]",
		},
		{
			name: "which port", q: query{size: 1},
			slices: []discoveryv1.EndpointSlice{slice(v4, "a=1 b=2", three[0])},
			code:   plugins.CodeConfig, err: "has several ports, a=1 b=2: say port=NAME",
		},
		{
			name: "no port", q: query{size: 1}, slices: []discoveryv1.EndpointSlice{slice(v4, "", three[0])},
			want: "etcd-0/etcd-0.etcd.db.svc.cluster.local:0[192.0.2.10]",
		},
		{
			name: "ports that differ", q: query{size: 1},
			slices: []discoveryv1.EndpointSlice{slice(v4, "peer=1", three[0]), slice(v6, "peer=2", "etcd-0 2001:db8::10")},
			code:   plugins.CodeConfig, err: "has the peer port 1 in one EndpointSlice and 2 in another",
		},
		{
			name: "names are no addresses", q: query{size: 1},
			slices: []discoveryv1.EndpointSlice{slice(discoveryv1.AddressTypeFQDN, "peer=1", "x x.example.org")},
			code:   plugins.CodeRetry, err: "0 of 1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.q.service, tt.q.namespace, tt.q.domain = "etcd", "db", "cluster.local"
			if tt.q.names == "" {
				tt.q.names = byHostname
			}
			peers, err := tt.q.peers(tt.slices)
			var got []string
			for _, p := range peers {
				got = append(got, fmt.Sprintf("%s/%s:%d%v", p.Name, p.Host, p.Port, p.Addrs))
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
			var e *plugins.Error
			if (err == nil) != (tt.err == "") || err != nil && (!errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Message, tt.err)) {
				t.Errorf("got %v, want %s %q", err, tt.code, tt.err)
			}
		})
	}
}

// api plays the API server for one namespace: two pages, a token, no more.
type api struct {
	pages [][]discoveryv1.EndpointSlice
	code  int // instead of an answer, if not 0
}

// write answers; who has gone misses it.
func write(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return
	}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fail := func(code int, reason metav1.StatusReason, msg string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		write(w, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code), Message: msg,
		})
	}
	switch {
	case r.Method != http.MethodGet || r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/db/endpointslices":
		fail(http.StatusNotFound, metav1.StatusReasonNotFound, r.Method+" "+r.URL.Path)
	case r.Header.Get("Authorization") != "Bearer s3cret":
		fail(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	case r.URL.Query().Get("labelSelector") != "kubernetes.io/service-name=etcd":
		fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "selector "+r.URL.RawQuery)
	case a.code == http.StatusForbidden:
		fail(a.code, metav1.StatusReasonForbidden, "endpointslices is forbidden")
	case a.code != 0:
		fail(a.code, metav1.StatusReasonServiceUnavailable, "etcd is slow")
	default:
		page := 0
		if c := r.URL.Query().Get("continue"); c != "" {
			if _, err := fmt.Sscan(c, &page); err != nil {
				fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "continue "+c)
				return
			}
		}
		list := discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{Kind: "EndpointSliceList", APIVersion: "discovery.k8s.io/v1"}}
		list.Items = a.pages[page]
		if page+1 < len(a.pages) {
			list.Continue = strconv.Itoa(page + 1)
		}
		w.Header().Set("Content-Type", "application/json")
		write(w, list)
	}
}

func serve(t *testing.T, a *api) (server, credentials string) {
	t.Helper()
	srv := httptest.NewTLSServer(a)
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	for name, text := range map[string][]byte{
		"token": []byte("s3cret\n"), "namespace": []byte("db"),
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return srv.URL, dir
}

func pages() [][]discoveryv1.EndpointSlice {
	return [][]discoveryv1.EndpointSlice{
		{slice(discoveryv1.AddressTypeIPv4, "peer=2380", "etcd-0 192.0.2.10", "etcd-1 192.0.2.11")},
		{slice(discoveryv1.AddressTypeIPv4, "peer=2380", "etcd-2 192.0.2.12")},
	}
}

func TestDiscover(t *testing.T) {
	tests := []struct {
		name, param, value string
		size, answer       int
		code, want         string
	}{
		{name: "no service", param: "service", size: 3, code: plugins.CodeConfig, want: "service is missing"},
		{name: "no size", code: plugins.CodeConfig, want: "--size is missing"},
		{name: "names", param: "names", value: "pod", size: 3, code: plugins.CodeConfig, want: "names=pod"},
		{name: "no mount", param: "credentials", value: "/nonexistent", size: 3, code: plugins.CodeConfig, want: "automountServiceAccountToken"},
		{name: "plain server", param: "server", value: "http://192.0.2.1", size: 3, code: plugins.CodeConfig, want: "no https URL"},
		{name: "nobody listens", param: "server", value: "https://127.0.0.1:1", size: 3, code: plugins.CodeRetry, want: "connection refused"},
		{name: "forbidden", size: 3, answer: 403, code: plugins.CodeConfig, want: "the Role needs the verb list"},
		{name: "unavailable", size: 3, answer: 503, code: plugins.CodeRetry, want: "list endpointslices of service etcd in namespace db at https://"},
		{name: "too few", size: 4, code: plugins.CodeRetry, want: "has 3 of 4 endpoints"},
		{name: "complete", size: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, dir := serve(t, &api{pages: pages(), code: tt.answer})
			params := map[string]string{"service": "etcd", "server": server, "credentials": dir}
			if tt.param != "" {
				params[tt.param] = tt.value
			}
			peers, err := discover(t.Context(), plugins.Request{Parameters: params, Size: tt.size})
			if tt.want == "" {
				if err != nil || len(peers) != 3 || peers[2].Host != "etcd-2.etcd.db.svc.cluster.local" {
					t.Errorf("got %v, %v", peers, err)
				}
				return
			}
			var e *plugins.Error
			if !errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Message, tt.want) || strings.Contains(e.Message, "s3cret") {
				t.Errorf("got %#v, want %s %q", err, tt.code, tt.want)
			}
		})
	}
}

// TestConformance runs the suite on the plugin as a process.
func TestConformance(t *testing.T) {
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), pluginName)
	if err := os.Symlink(bin, link); err != nil {
		t.Fatal(err)
	}
	server, dir := serve(t, &api{pages: pages()})
	plugintest.Test(t, link, plugintest.Options{
		Size: 3, Parameters: map[string]string{"service": "etcd", "server": server, "credentials": dir},
	})
}
