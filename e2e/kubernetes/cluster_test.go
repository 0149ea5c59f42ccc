//go:build kubernetes

package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// work is the folder of the cluster (see the script cluster), and source a
// copy of the project's deploy folder in it, so that a test may add a
// kustomization of its own without touching the project.
func work(t *testing.T) (dir, source string) {
	t.Helper()
	dir = os.Getenv("ETCDINIT_K8S_DIR")
	if dir == "" {
		t.Skip("ETCDINIT_K8S_DIR names no cluster: start these tests by e2e/kubernetes/run.sh")
	}
	return dir, filepath.Join(dir, "source")
}

// sh runs a shell script in the copy of the project, as somebody would who has
// just cloned it, and returns what it printed.
func sh(t *testing.T, script string) (string, error) {
	t.Helper()
	_, source := work(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = source
	cmd.WaitDelay = 5 * time.Second
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", script, err, out.String(), problem.String())
	}
	return out.String(), nil
}

// must is sh for what has to succeed.
func must(t *testing.T, format string, args ...any) string {
	t.Helper()
	out, err := sh(t, fmt.Sprintf(format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// control runs a command of the script cluster.
func control(t *testing.T, command string, args ...string) {
	t.Helper()
	dir, _ := work(t)
	script, err := filepath.Abs("cluster")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, append([]string{command, dir}, args...)...)
	// Not into pipes: what it starts stays.
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		t.Fatalf("cluster %s: %v\n%s", command, err, text)
	}
}

// eventually waits until what it is given reports no problem.
func eventually(t *testing.T, limit time.Duration, what string, try func() error) {
	t.Helper()
	start := time.Now()
	for {
		err := try()
		if err == nil {
			t.Logf("%s after %.1f s", what, time.Since(start).Seconds())
			return
		}
		if time.Since(start) > limit {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		pause(t, 200*time.Millisecond)
	}
}

// pause waits, unless the test ends.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// namespace makes a namespace that accepts only restricted pods, and removes
// it, with its volumes, when the test is over.
func namespace(t *testing.T, name string) {
	t.Helper()
	must(t, `kubectl create namespace %[1]s && kubectl label namespace %[1]s etcdinit-e2e=yes pod-security.kubernetes.io/enforce=restricted`, name)
	forget(t, name)
}

// forget removes a namespace when the test is over.
func forget(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			dir, _ := work(t)
			cmd := exec.Command("bash", "-c", fmt.Sprintf(`
kubectl -n %[1]s get all,pvc,endpointslices -o wide
kubectl -n %[1]s get events --sort-by=.lastTimestamp | tail -n 40
for pod in $(kubectl -n %[1]s get pods -o name); do echo "== $pod"; kubectl -n %[1]s logs --all-containers --tail=25 $pod; kubectl -n %[1]s logs --all-containers --tail=25 -p $pod; done 2>&1
tail -n 15 %[2]s/log/coredns.log`, name, dir))
			out, _ := cmd.CombinedOutput()
			t.Logf("the namespace at the end:\n%s", out)
		}
		// The pods first, since a namespace waits for their whole grace period.
		cmd := exec.Command("bash", "-c", fmt.Sprintf("kubectl -n %[1]s delete deployments,statefulsets,pods --all --grace-period=1 --timeout=60s && kubectl delete namespace %[1]s --timeout=90s", name))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("delete the namespace %s: %v\n%s", name, err, out)
		}
		reclaim(t)
	})
}

// reclaim empties volumes that nobody claims any longer and offers them again.
func reclaim(t *testing.T) {
	t.Helper()
	dir, _ := work(t)
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", `
kubectl get pv -o json | jq -r '.items[] | select(.status.phase == "Released") | .metadata.name' | while read -r pv; do
	find "$1/pv/${pv#pv-}" -mindepth 1 -delete
	kubectl patch pv "$pv" --type=json -p '[{"op": "remove", "path": "/spec/claimRef"}]'
done`, "reclaim", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("reclaim the volumes: %v\n%s", err, out)
	}
}

// kustomization writes a kustomization beside the base, as somebody would who
// changes something, and returns its folder.
func kustomization(t *testing.T, name, text string) string {
	t.Helper()
	_, source := work(t)
	dir := filepath.Join("deploy/kubernetes", name)
	if err := os.MkdirAll(filepath.Join(source, dir), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// pod is what these tests want to know of a pod.
type pod struct {
	Metadata struct {
		Name, UID         string
		DeletionTimestamp *string
	}
	Spec   struct{ Hostname string }
	Status struct {
		PodIP                 string
		PodIPs                []struct{ IP string }
		Phase                 string
		Conditions            []struct{ Type, Status string }
		InitContainerStatuses []containerStatus
		ContainerStatuses     []containerStatus
	}
}

type containerStatus struct {
	RestartCount int
	State        state
	LastState    state
}

type state struct {
	Running    *struct{ StartedAt string }
	Waiting    *struct{ Reason, Message string }
	Terminated *struct {
		ExitCode int
		Reason   string
		Message  string
	}
}

// ready tells whether the pod is in service.
func (p pod) ready() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True" && p.Metadata.DeletionTimestamp == nil
		}
	}
	return false
}

// refusal returns how its etcdinit last ended, and what it left as message.
func (p pod) refusal() (status int, message string) {
	for _, c := range p.Status.InitContainerStatuses {
		for _, s := range []state{c.State, c.LastState} {
			if s.Terminated != nil {
				return s.Terminated.ExitCode, s.Terminated.Message
			}
		}
	}
	return -1, ""
}

// pods lists the etcd pods of a namespace by name.
func pods(t *testing.T, ns string) map[string]pod {
	t.Helper()
	out, err := sh(t, fmt.Sprintf("kubectl -n %s get pods -l app.kubernetes.io/name=etcd -o json", ns))
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []pod }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]pod{}
	for _, p := range list.Items {
		found[p.Metadata.Name] = p
	}
	return found
}

// allReady waits until exactly n pods are there and all are ready.
func allReady(t *testing.T, ns string, n int, limit time.Duration) map[string]pod {
	t.Helper()
	var all map[string]pod
	eventually(t, limit, fmt.Sprintf("%s: %d pods ready", ns, n), func() error {
		all = pods(t, ns)
		var not []string
		for name, p := range all {
			if !p.ready() {
				status, message := p.refusal()
				not = append(not, fmt.Sprintf("%s (%s, status %d %s)", name, p.Status.Phase, status, message))
			}
		}
		if len(all) != n || len(not) != 0 {
			return fmt.Errorf("%d pods, not ready: %v", len(all), not)
		}
		return nil
	})
	return all
}

// refused waits until the etcdinit of a pod has ended with a status, and
// returns the message.
func refused(t *testing.T, ns, name string, want int, limit time.Duration) string {
	t.Helper()
	var message string
	eventually(t, limit, fmt.Sprintf("%s/%s: etcdinit refuses with %d", ns, name, want), func() error {
		p := pods(t, ns)[name]
		var status int
		if status, message = p.refusal(); status != want {
			return fmt.Errorf("status %d, %q; pod %s %v", status, message, p.Status.Phase, p.Status.InitContainerStatuses)
		}
		return nil
	})
	return message
}

// etcdctl runs etcdctl in a pod.
func etcdctl(t *testing.T, ns, pod, command string) string {
	t.Helper()
	return must(t, "kubectl -n %s exec %s -c etcd -- etcdctl %s", ns, pod, command)
}

// member is what etcd says of a cluster.
type memberList struct {
	Header struct {
		ClusterID uint64 `json:"cluster_id"`
	}
	Members []struct {
		ID         uint64
		Name       string
		PeerURLs   []string
		ClientURLs []string
		IsLearner  bool
	}
}

// members asks a pod's etcd for the members.
func members(t *testing.T, ns, pod string) memberList {
	t.Helper()
	var list memberList
	if err := json.Unmarshal([]byte(etcdctl(t, ns, pod, "member list -w json")), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// logs returns what the etcdinit of a pod has logged.
func logs(t *testing.T, ns, pod string) string {
	t.Helper()
	out, err := sh(t, fmt.Sprintf("kubectl -n %s logs %s -c etcdinit", ns, pod))
	if err != nil {
		return err.Error()
	}
	return out
}
