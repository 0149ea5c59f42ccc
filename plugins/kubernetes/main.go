// Command kubernetes is a plugin of etcdinit: the peers are the endpoints of a
// Service, read from the API server with the pod's own service account.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"

	"github.com/etcdinit/etcdinit/plugins"
)

const (
	// defaultServer is the API server's name in every cluster: the environment
	// of a plugin is empty, so that KUBERNETES_SERVICE_HOST is not there.
	defaultServer = "https://kubernetes.default.svc"
	// mounted is where Kubernetes puts token, ca.crt and namespace.
	mounted = "/var/run/secrets/kubernetes.io/serviceaccount"
)

func main() {
	plugins.Info{
		Name:        "kubernetes",
		Version:     "1.0.0",
		Description: "members from the EndpointSlices of a Service",
		Parameters: []plugins.Parameter{
			{Name: "service", Description: "the headless Service", Required: true},
			{Name: "namespace", Description: "its namespace", Default: "the pod's own"},
			{Name: "port", Description: "name of the peer port", Default: "the only one, or that of peer, etcd-server, etcd-server-ssl"},
			{Name: "names", Description: "hostname: of the pod; node: name of the node and its address, for hostNetwork", Default: "hostname"},
			{Name: "cluster-domain", Description: "DNS domain of the cluster", Default: "cluster.local"},
			{Name: "server", Description: "URL of the API server", Default: defaultServer},
			{Name: "credentials", Description: "directory with token, ca.crt and namespace", Default: mounted},
		},
	}.Main(discover)
}

func discover(ctx context.Context, req plugins.Request) ([]plugins.Peer, error) {
	q := query{
		service: req.Parameters["service"], namespace: req.Parameters["namespace"], port: req.Parameters["port"],
		names: or(req.Parameters["names"], byHostname), domain: or(req.Parameters["cluster-domain"], "cluster.local"), size: req.Size,
	}
	switch {
	case q.service == "":
		return nil, plugins.Configf("the parameter service is missing: exec:kubernetes?service=NAME")
	case q.names != byHostname && q.names != byNode:
		return nil, plugins.Configf("names=%s is neither %s nor %s", q.names, byHostname, byNode)
	case q.size == 0:
		return nil, plugins.Configf("--size is missing: EndpointSlices do not say how many members are meant to be there")
	}
	dir := or(req.Parameters["credentials"], mounted)
	if q.namespace == "" {
		b, err := os.ReadFile(filepath.Join(dir, "namespace")) //nolint:gosec // the directory is the operator's word
		if err != nil {
			return nil, plugins.Configf("no namespace: %v; is automountServiceAccountToken off?", err)
		}
		q.namespace = strings.TrimSpace(string(b))
	}
	slices, err := list(ctx, or(req.Parameters["server"], defaultServer), dir, q)
	if err != nil {
		return nil, err
	}
	return q.peers(slices)
}

func or(s, absent string) string {
	if s == "" {
		return absent
	}
	return s
}

// list reads all slices of the Service, page by page.
func list(ctx context.Context, server, dir string, q query) ([]discoveryv1.EndpointSlice, error) {
	if u, err := url.Parse(server); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, plugins.Configf("server=%s is no https URL", server)
	}
	token, err := os.ReadFile(filepath.Join(dir, "token")) //nolint:gosec // the directory is the operator's word
	if err != nil {
		return nil, plugins.Configf("no token of a service account: %v; is automountServiceAccountToken off?", err)
	}
	c, err := client.NewForConfig(&rest.Config{
		Host: server, BearerToken: strings.TrimSpace(string(token)), UserAgent: "etcdinit-plugin-kubernetes",
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")},
	})
	if err != nil {
		return nil, plugins.Configf("%v", err)
	}
	opts := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + q.service, Limit: 100}
	var all []discoveryv1.EndpointSlice
	for {
		page, err := c.EndpointSlices(q.namespace).List(ctx, opts)
		if err != nil {
			return nil, asked(err, q, server)
		}
		all = append(all, page.Items...)
		if opts.Continue = page.Continue; opts.Continue == "" {
			return all, nil
		}
	}
}

// asked says what an error of the API server means for us.
func asked(err error, q query, server string) error {
	what := fmt.Sprintf("list endpointslices of service %s in namespace %s", q.service, q.namespace)
	switch {
	case apierrors.IsForbidden(err):
		return plugins.Configf("%s: %v; the Role needs the verb list on endpointslices in discovery.k8s.io (rbac.yaml)", what, err)
	case apierrors.IsUnauthorized(err):
		return plugins.Configf("%s: the API server does not take the token: %v", what, err)
	case apierrors.IsBadRequest(err) || apierrors.IsInvalid(err):
		return plugins.Configf("%s: %v", what, err)
	}
	after := 2 * time.Second
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.RetryAfterSeconds > 0 {
		after = time.Duration(status.Status().Details.RetryAfterSeconds) * time.Second
	}
	return plugins.Retryf(after, "%s at %s: %v", what, server, err)
}
