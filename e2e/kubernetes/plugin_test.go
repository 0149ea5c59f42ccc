//go:build kubernetes

package kubernetes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPlugin boots a cluster whose members are found by exec:kubernetes, from
// the component and the image that the plugin's README shows. DNS has no SRV
// record of them.
func TestPlugin(t *testing.T) {
	namespace(t, "plugin")
	_, source := work(t)
	readme, err := os.ReadFile(filepath.Join(source, "plugins/kubernetes/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(readme)
	if shown == nil {
		t.Fatal("the plugin's README shows no kustomization")
	}
	text := strings.Replace(string(shown[1]), "namespace: etcd", "namespace: plugin", 1)
	text += `patches:
- target: {kind: Service, name: etcd}
  patch: |
    - {op: replace, path: /spec/ports, value: [{name: members, port: 2380}]}
`
	must(t, "kubectl apply -k %s", kustomization(t, "plugin", text))
	all := allReady(t, "plugin", 3, 2*time.Minute)
	etcdctl(t, "plugin", "etcd-0", "put greeting hello")
	before := members(t, "plugin", "etcd-1")
	for _, m := range before.Members {
		if want := "http://" + m.Name + ".etcd.plugin.svc.cluster.local:2380"; len(m.PeerURLs) != 1 || m.PeerURLs[0] != want {
			t.Errorf("%s advertises %v, want %s", m.Name, m.PeerURLs, want)
		}
	}
	for name := range all {
		if out := logs(t, "plugin", name); strings.Contains(out, "_etcd-server") {
			t.Errorf("%s has asked DNS for SRV records: %s", name, out)
		}
	}

	// Least privilege: the list, and nothing else, in this namespace only.
	for _, tt := range []struct{ what, answer string }{
		{"list endpointslices.discovery.k8s.io", "yes"},
		{"get endpointslices.discovery.k8s.io", "no"},
		{"watch endpointslices.discovery.k8s.io", "no"},
		{"list pods", "no"},
		{"get secrets", "no"},
		{"list endpointslices.discovery.k8s.io --all-namespaces", "no"},
		{"list endpointslices.discovery.k8s.io -n default", "no"},
	} {
		as := "--as=system:serviceaccount:plugin:etcd"
		out, err := sh(t, "kubectl auth can-i -n plugin "+tt.what+" "+as+" || true")
		if err != nil || strings.TrimSpace(out) != tt.answer {
			t.Errorf("can %s: %q, %v; want %s", tt.what, out, err, tt.answer)
		}
	}

	// etcd itself has no token.
	if out := must(t, `kubectl -n plugin get pod etcd-0 -o jsonpath='{.spec.containers[0].volumeMounts[*].mountPath}'`); strings.Contains(out, "serviceaccount") {
		t.Errorf("etcd's container has the token: %s", out)
	}

	// New addresses are seen at once, by restarts too.
	must(t, "kubectl -n plugin delete pods --all")
	allReady(t, "plugin", 3, 2*time.Minute)
	if got := etcdctl(t, "plugin", "etcd-2", "get greeting --print-value-only"); got != "hello" {
		t.Errorf("the key is %q, want hello", got)
	}
	if now := members(t, "plugin", "etcd-0"); now.Header.ClusterID != before.Header.ClusterID {
		t.Errorf("cluster %x, was %x", now.Header.ClusterID, before.Header.ClusterID)
	}

	// Without the right to list, the member says which right it lacks.
	must(t, "kubectl -n plugin scale statefulset etcd --replicas=0")
	eventually(t, time.Minute, "no pod is left", func() error {
		if len(pods(t, "plugin")) != 0 {
			return os.ErrExist
		}
		return nil
	})
	must(t, "kubectl -n plugin delete pvc --all && kubectl -n plugin delete rolebinding etcdinit-plugin-kubernetes")
	reclaim(t)
	must(t, "kubectl -n plugin scale statefulset etcd --replicas=3")
	if message := refused(t, "plugin", "etcd-0", 20, time.Minute); !strings.Contains(message, "forbidden") || !strings.Contains(message, "rbac.yaml") {
		t.Errorf("the message does not say what it may not: %s", message)
	}
}
