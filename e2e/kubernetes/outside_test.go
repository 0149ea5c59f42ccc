//go:build kubernetes

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Members on the addresses of three nodes, reached from beside the cluster.
// When all pods start anew, a member may come up on another node.
func TestHostNetwork(t *testing.T) {
	nodes := []string{"10.221.0.2", "10.221.0.12", "10.221.0.13"}
	for _, n := range []string{"2", "3"} {
		t.Cleanup(func() { control(t, "leave", n) })
		control(t, "join", n)
	}
	namespace(t, "hosts")
	must(t, "kubectl label --overwrite namespace hosts pod-security.kubernetes.io/enforce=privileged")
	must(t, "kubectl apply -k %s", kustomization(t, "hosts", `
namespace: hosts
resources: [../base]
components: [../components/hostnetwork]
patches:
- target: {kind: StatefulSet, name: etcd}
  patch: '[{"op": "add", "path": "/spec/template/spec/tolerations", "value": [{"key": "etcdinit-e2e", "operator": "Exists"}]}]'
transformers: [../parameters]
`))
	onNodes := func() {
		t.Helper()
		var used []string
		for _, p := range allReady(t, "hosts", 3, 2*time.Minute) {
			used = append(used, p.Status.PodIP)
		}
		slices.Sort(used)
		if want := slices.Sorted(slices.Values(nodes)); !slices.Equal(used, want) {
			t.Errorf("the members are at %v, want %v", used, want)
		}
	}
	onNodes()
	before := members(t, "hosts", "etcd-0")
	for _, m := range before.Members {
		if want := "http://" + m.Name + ".etcd.hosts.svc.cluster.local:2380"; len(m.PeerURLs) != 1 || m.PeerURLs[0] != want {
			t.Errorf("%s advertises %v, want %s", m.Name, m.PeerURLs, want)
		}
	}
	etcdctl(t, "hosts", "etcd-1", "put a b")

	must(t, "kubectl -n hosts delete pods --all")
	onNodes()
	if after := members(t, "hosts", "etcd-2"); fmt.Sprint(after.Members) != fmt.Sprint(before.Members) || after.Header.ClusterID != before.Header.ClusterID {
		t.Errorf("members before %v, after %v", before, after)
	}
	client := http.Client{Timeout: 5 * time.Second}
	for _, node := range nodes {
		if got := fetch(t, &client, "http://"+node+":2379"); got != "Yg==" {
			t.Errorf("the key at %s is %q, want Yg== (b)", node, got)
		}
	}
}

// A load balancer for each member, and their names in a zone of the outside:
// a pod has neither the address that its name stands for nor a path to itself
// but the one through the load balancer.
func TestLoadBalancer(t *testing.T) {
	namespace(t, "balanced")
	balancer := newBalancer(t, "balanced")
	must(t, "kubectl apply -k %s", kustomization(t, "balanced", `
namespace: balanced
resources: [../base]
components: [../components/loadbalancer]
transformers: [../parameters]
`))
	allReady(t, "balanced", 3, 2*time.Minute)
	before := members(t, "balanced", "etcd-0")
	for _, m := range before.Members {
		peer, client := "http://"+m.Name+".example.org:2380", "http://"+m.Name+".example.org:2379"
		if len(m.PeerURLs) != 1 || m.PeerURLs[0] != peer || len(m.ClientURLs) != 1 || m.ClientURLs[0] != client {
			t.Errorf("%s advertises %v and %v, want %s and %s", m.Name, m.PeerURLs, m.ClientURLs, peer, client)
		}
	}
	if out := etcdctl(t, "balanced", "etcd-2", "endpoint health --cluster"); strings.Count(out, "is healthy") != 3 {
		t.Errorf("not three healthy members by their names outside: %s", out)
	}
	etcdctl(t, "balanced", "etcd-0", "put a b")

	// A pod gets another address, the load balancer keeps its own.
	was := pods(t, "balanced")["etcd-1"].Status.PodIP
	must(t, "kubectl -n balanced delete pod etcd-1")
	if is := allReady(t, "balanced", 3, 2*time.Minute)["etcd-1"].Status.PodIP; is == was {
		t.Errorf("etcd-1 has the address %s as before, want another", is)
	}
	if after := members(t, "balanced", "etcd-1"); fmt.Sprint(after.Members) != fmt.Sprint(before.Members) {
		t.Errorf("members before %v, after %v", before.Members, after.Members)
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, name := range []string{"etcd-0", "etcd-1", "etcd-2"} {
		if got := fetch(t, &client, "http://"+balancer.address(name)+":2379"); got != "Yg==" {
			t.Errorf("the key by the load balancer of %s is %q, want Yg== (b)", name, got)
		}
	}
}

// fetch reads the key "a" from a member, as a client outside of the cluster.
func fetch(t *testing.T, client *http.Client, endpoint string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint+"/v3/kv/range", strings.NewReader(`{"key": "YQ=="}`))
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Kvs []struct{ Value string } }
	if err := answer(client, req, &got); err != nil {
		t.Errorf("%s: %v", endpoint, err)
		return ""
	}
	if len(got.Kvs) != 1 {
		return ""
	}
	return got.Kvs[0].Value
}

// balancer is what a cloud does for Services of the type LoadBalancer of a
// namespace (an address, which leads to the endpoints), and what external-dns
// does for their annotation.
type balancer struct {
	t       *testing.T
	ns      string
	applied string
	serial  int64 // of the zone
}

// newBalancer starts a balancer, which ends with the test.
func newBalancer(t *testing.T, ns string) *balancer {
	t.Helper()
	must(t, `
ip route add 10.223.0.0/24 dev node0
iptables -t nat -N BALANCER
iptables -t nat -A PREROUTING -j BALANCER
iptables -t nat -A OUTPUT -j BALANCER
# Otherwise the answer to a pod would not come from the address that it asked.
iptables -t nat -A POSTROUTING -s 10.222.0.0/24 -d 10.222.0.0/24 -j MASQUERADE`)
	b := &balancer{t: t, ns: ns, serial: time.Now().Unix()}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := b.step(ctx); err != nil && ctx.Err() == nil {
				t.Logf("load balancer: %v", err)
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		out, err := exec.Command("bash", "-euc", `
iptables -t nat -D POSTROUTING -s 10.222.0.0/24 -d 10.222.0.0/24 -j MASQUERADE
iptables -t nat -D PREROUTING -j BALANCER
iptables -t nat -D OUTPUT -j BALANCER
iptables -t nat -F BALANCER
iptables -t nat -X BALANCER
ip route del 10.223.0.0/24`).CombinedOutput()
		if err != nil {
			t.Errorf("the load balancer's traces: %v: %s", err, out)
		}
	})
	return b
}

// address is the one that a Service gets; its name ends with a number.
func (*balancer) address(service string) string {
	_, n, _ := strings.Cut(service, "-")
	return "10.223.0.1" + n
}

// step brings rules, Services and zone to what the Services ask for.
func (b *balancer) step(ctx context.Context) error {
	var services struct {
		Items []struct {
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
			Spec struct {
				Type  string
				Ports []struct {
					Name string
					Port int
				}
			}
			Status struct {
				LoadBalancer struct{ Ingress []struct{ IP string } }
			}
		}
	}
	if err := b.get(ctx, "services", &services); err != nil {
		return err
	}
	var endpoints struct {
		Items []struct {
			Metadata struct{ Labels map[string]string }
			Ports    []struct {
				Name string
				Port int
			}
			Endpoints []struct {
				Addresses  []string
				Conditions struct{ Ready *bool }
			}
		}
	}
	if err := b.get(ctx, "endpointslices", &endpoints); err != nil {
		return err
	}
	var rules, zone []string
	for _, s := range services.Items {
		if s.Spec.Type != "LoadBalancer" {
			continue
		}
		name, address := s.Metadata.Name, b.address(s.Metadata.Name)
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			patch := fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": [{"ip": %q}]}}}`, address)
			if out, err := exec.CommandContext(ctx, "kubectl", "-n", b.ns, "patch", "service", name, "--subresource=status", "-p", patch).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		host := strings.TrimSuffix(s.Metadata.Annotations["external-dns.alpha.kubernetes.io/hostname"], ".example.org")
		zone = append(zone, host+" 5 IN A "+address)
		for _, p := range s.Spec.Ports {
			zone = append(zone, fmt.Sprintf("_%s._tcp 5 IN SRV 0 0 %d %s", p.Name, p.Port, host))
		}
		for _, slice := range endpoints.Items {
			if slice.Metadata.Labels["kubernetes.io/service-name"] != name {
				continue
			}
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
					continue
				}
				for _, p := range slice.Ports {
					rules = append(rules, fmt.Sprintf("-A BALANCER -d %s/32 -p tcp -m tcp --dport %d -j DNAT --to-destination %s:%d", address, p.Port, e.Addresses[0], p.Port))
				}
			}
		}
	}
	slices.Sort(rules)
	slices.Sort(zone)
	wanted := strings.Join(slices.Concat(rules, zone), "\n")
	if wanted == b.applied {
		return nil
	}
	cmd := exec.CommandContext(ctx, "iptables-restore", "--noflush")
	cmd.Stdin = strings.NewReader("*nat\n:BALANCER - [0:0]\n" + strings.Join(rules, "\n") + "\nCOMMIT\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("iptables-restore: %w: %s", err, out)
	}
	dir, _ := work(b.t)
	b.serial++
	text := fmt.Sprintf("@ 60 IN SOA ns hostmaster %d 60 60 60 5\n@ 60 IN NS ns\nns 60 IN A 10.221.0.2\n%s\n", b.serial, strings.Join(zone, "\n"))
	if err := os.WriteFile(filepath.Join(dir, "zone"), []byte(text), 0o600); err != nil {
		return err
	}
	b.applied = wanted
	return nil
}

// get lists objects of the namespace.
func (b *balancer) get(ctx context.Context, kind string, list any) error {
	out, err := exec.CommandContext(ctx, "kubectl", "-n", b.ns, "get", kind, "-o", "json").Output()
	if err != nil {
		return err
	}
	return json.Unmarshal(out, list)
}

// The component "exec": one container a member, by the image that
// deploy/compose/Dockerfile makes of stock etcd and etcdinit.
func TestExec(t *testing.T) {
	readme := read(t, "deploy/kubernetes/README.md")
	namespace(t, "etcd")
	must(t, "kubectl apply -k deploy/kubernetes/overlays/exec")
	first := allReady(t, "etcd", 3, 2*time.Minute)
	before := members(t, "etcd", "etcd-0")
	etcdctl(t, "etcd", "etcd-0", "put a b")
	for name, p := range first {
		if len(p.Status.InitContainerStatuses) != 0 || len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: want one container, started once: %+v", name, p.Status)
		}
		// When etcd ends one day, its own last lines are the reason.
		dir, _ := work(t)
		files, err := filepath.Glob(filepath.Join(dir, "kubelet", "root", "pods", p.Metadata.UID, "containers/etcd/*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("the termination log of %s: %v, %v", name, files, err)
		}
		if said, err := os.ReadFile(files[0]); err != nil || len(said) != 0 {
			t.Errorf("%s says before its end why it ended: %q, %v", name, said, err)
		}
	}
	must(t, "kubectl -n etcd delete pods --all")
	allReady(t, "etcd", 3, 2*time.Minute)
	if after := members(t, "etcd", "etcd-2"); fmt.Sprint(after.Members) != fmt.Sprint(before.Members) {
		t.Errorf("members before %v, after %v", before.Members, after.Members)
	}
	if got := etcdctl(t, "etcd", "etcd-1", "get a --print-value-only"); got != "b" {
		t.Errorf("the key is %q, want b", got)
	}

	// A refusal is seen where an init container's would be, and the others serve.
	must(t, "kubectl -n etcd delete pvc data-etcd-2 --wait=false && kubectl -n etcd delete pod etcd-2")
	eventually(t, 2*time.Minute, "etcd-2 refuses", func() error {
		p := pods(t, "etcd")["etcd-2"]
		for _, c := range p.Status.ContainerStatuses {
			for _, s := range []state{c.State, c.LastState} {
				if s.Terminated != nil && s.Terminated.ExitCode == 42 && strings.Contains(s.Terminated.Message, "member remove") {
					return nil
				}
			}
		}
		return fmt.Errorf("%+v", p.Status)
	})
	eventually(t, time.Minute, "the README's command shows the refusal", func() error {
		if out := readme.run(t, "One container a member", 1); !strings.Contains(out, "etcd-2\t42\t") {
			return errors.New(out)
		}
		return nil
	})
	etcdctl(t, "etcd", "etcd-0", "put meanwhile written")
}
