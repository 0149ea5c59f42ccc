//go:build kubernetes

package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTimeToQuorum measures the time from "kubectl apply" to the first write
// that a cluster of three accepts: the base against the same manifest with
// stock etcd's flags, and against members that are added one by one.
func TestTimeToQuorum(t *testing.T) {
	if os.Getenv("ETCDINIT_K8S_BENCH") == "" {
		t.Skip("ETCDINIT_K8S_BENCH=1 measures")
	}
	const rounds = 5
	api := newAPI(t)
	ways := []struct {
		name, note string
		start      func(t *testing.T, ns string)
	}{
		{"etcdinit", "one configuration for all, as in base", func(t *testing.T, ns string) {
			applyBase(t, ns, "")
		}},
		{"etcdinit, exec", "the same, by the component `exec`", func(t *testing.T, ns string) {
			applyBase(t, ns, "components: [../components/exec]\n")
		}},
		{"stock flags, Parallel", "`--name` and a fixed `--initial-cluster`, otherwise the same", func(t *testing.T, ns string) {
			applyBase(t, ns, stock(ns, "Parallel", "/readyz"))
		}},
		{"stock flags, OrderedReady", "the same, one pod after the other; ready must then mean only alive, or the first pod waits without limit", func(t *testing.T, ns string) {
			applyBase(t, ns, stock(ns, "OrderedReady", "/livez"))
		}},
		{"learners, one by one", "`member add --learner`, start, `member promote`, twice", func(t *testing.T, ns string) {
			grow(t, api, ns)
		}},
	}
	results := make([]result, len(ways))
	order := make([]int, len(ways))
	for i, way := range ways {
		results[i], order[i] = result{Name: way.name, Note: way.note}, i
	}
	for round := range rounds {
		for _, i := range order {
			way, r := ways[i], &results[i]
			t.Run(fmt.Sprintf("%s/%d", way.name, round), func(t *testing.T) {
				ns := "quorum"
				namespace(t, ns)
				// What a namespace brings along is there before the clock starts.
				eventually(t, 20*time.Second, "the namespace is usable", func() error {
					_, err := sh(t, "kubectl -n quorum get serviceaccount default")
					return err
				})
				begin := time.Now()
				way.start(t, ns)
				for {
					if err := api.write(t.Context(), ns, 3); err == nil {
						break
					} else if time.Since(begin) > 4*time.Minute {
						t.Fatalf("no quorum: %v", err)
					}
					pause(t, 50*time.Millisecond)
				}
				took := time.Since(begin)
				r.Seconds = append(r.Seconds, took.Seconds())
				t.Logf("%s: %.2f s", way.name, took.Seconds())
				if took > 12*time.Second { // something was not as it is meant to be: what?
					out, err := sh(t, "kubectl -n quorum get pods,pvc -o wide; kubectl -n quorum get events --sort-by=.lastTimestamp")
					t.Logf("%v\n%s", err, out)
				}
			})
		}
		slices.Reverse(order) // nobody always comes after the same one
	}
	report(t, results)
}

// applyBase applies the base in a namespace, with a patch of the StatefulSet.
func applyBase(t *testing.T, ns, patch string) {
	t.Helper()
	must(t, "kubectl apply -k %s", kustomization(t, "quorum", "namespace: "+ns+"\nresources: [../base]\n"+patch+"transformers: [../parameters]\n"))
}

// stock turns the base into what people write who have only etcd's own flags.
func stock(ns, policy, readiness string) string {
	domain := "etcd." + ns + ".svc.cluster.local"
	var cluster []string
	for i := range 3 {
		cluster = append(cluster, fmt.Sprintf("etcd-%d=http://etcd-%d.%s:2380", i, i, domain))
	}
	command := []string{
		"/usr/local/bin/etcd", "--name=$(POD_NAME)", "--data-dir=/var/lib/etcd/data",
		"--listen-peer-urls=http://0.0.0.0:2380", "--listen-client-urls=http://0.0.0.0:2379", "--listen-metrics-urls=http://0.0.0.0:2381",
		"--initial-advertise-peer-urls=http://$(POD_NAME)." + domain + ":2380", "--advertise-client-urls=http://$(POD_NAME)." + domain + ":2379",
		"--initial-cluster-state=new", "--initial-cluster-token=" + domain, "--initial-cluster=" + strings.Join(cluster, ","),
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=1h", "--quota-backend-bytes=2147483648",
	}
	list, err := json.Marshal(command)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf(`patches:
- target: {kind: StatefulSet, name: etcd}
  patch: |
    - {op: replace, path: /spec/podManagementPolicy, value: %s}
    - {op: remove, path: /spec/template/spec/initContainers}
    - {op: replace, path: /spec/template/spec/containers/0/command, value: %s}
    - {op: replace, path: /spec/template/spec/containers/0/readinessProbe/httpGet/path, value: %s}
    - {op: add, path: /spec/template/spec/containers/0/env, value: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}
`, policy, list, readiness)
}

// grow starts one member and adds two, as a program would that reacts at once.
func grow(t *testing.T, api *api, ns string) {
	t.Helper()
	domain := "etcd." + ns + ".svc.cluster.local"
	_, source := work(t)
	template, err := os.ReadFile(filepath.Join(source, "deploy/kubernetes/rejoin.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := kustomization(t, "grow", "namespace: "+ns+"\nresources: [../base]\npatches:\n- patch: |\n    {$patch: delete, apiVersion: apps/v1, kind: StatefulSet, metadata: {name: etcd}}\n")
	must(t, "kubectl apply -k %s", dir)
	var cluster []string
	for i := range 3 {
		name := fmt.Sprintf("etcd-%d", i)
		cluster = append(cluster, fmt.Sprintf("%s=http://%s.%s:2380", name, name, domain))
		var id string
		if i > 0 {
			var added struct{ Member struct{ ID string } }
			api.insist(t, ns, "/v3/cluster/member/add", map[string]any{"peerURLs": []string{"http://" + name + "." + domain + ":2380"}, "isLearner": true}, &added)
			id = added.Member.ID
		}
		text := strings.NewReplacer("MEMBER-rejoin", name, "MEMBER", name, "DOMAIN", domain, "CLUSTER", strings.Join(cluster, ",")).Replace(string(template))
		if i == 0 {
			text = strings.Replace(text, "--initial-cluster-state=existing", "--initial-cluster-state=new", 1)
		}
		text += fmt.Sprintf("---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-%s}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 8Gi}}}}\n", name)
		file := filepath.Join(source, dir, name+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		must(t, "kubectl -n %s apply -f %s", ns, file)
		if i > 0 {
			api.insist(t, ns, "/v3/cluster/member/promote", map[string]any{"ID": id}, nil)
		}
	}
}

// api talks to the API server and to etcd without the cost of starting kubectl.
type api struct {
	kube, etcd http.Client
	url        string
}

// newAPI reads the administrator's credentials.
func newAPI(t *testing.T) *api {
	t.Helper()
	dir, _ := work(t)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "pki/admin.crt"), filepath.Join(dir, "pki/admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "pki/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &api{
		kube: http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}}},
		etcd: http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
		url:  "https://10.221.0.2:6443",
	}
}

// addresses returns the addresses of the pods that have one.
func (a *api) addresses(ctx context.Context, ns string) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+"/api/v1/namespaces/"+ns+"/pods?labelSelector=app.kubernetes.io/name=etcd", nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []pod }
	if err := answer(&a.kube, req, &list); err != nil {
		return nil, err
	}
	var found []string
	for _, p := range list.Items {
		if p.Status.PodIP != "" {
			found = append(found, p.Status.PodIP)
		}
	}
	return found, nil
}

// call asks the first member that answers.
func (a *api) call(ctx context.Context, ns, path string, in, out any) error {
	addresses, err := a.addresses(ctx, ns)
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	err = errors.New("no pod has an address")
	for _, address := range addresses {
		var req *http.Request
		req, err = http.NewRequestWithContext(ctx, http.MethodPost, "http://"+net.JoinHostPort(address, "2379")+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		if err = answer(&a.etcd, req, out); err == nil {
			return nil
		}
	}
	return err
}

// insist calls until it works.
func (a *api) insist(t *testing.T, ns, path string, in, out any) {
	t.Helper()
	end := time.Now().Add(2 * time.Minute)
	for {
		err := a.call(t.Context(), ns, path, in, out)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", path, err)
		}
		pause(t, 50*time.Millisecond)
	}
}

// write puts a key into a cluster of so many voters.
func (a *api) write(ctx context.Context, ns string, voters int) error {
	if err := a.call(ctx, ns, "/v3/kv/put", map[string]string{"key": "a2V5", "value": "dmFsdWU="}, nil); err != nil {
		return err
	}
	var list struct{ Members []struct{ IsLearner bool } }
	if err := a.call(ctx, ns, "/v3/cluster/member/list", map[string]any{}, &list); err != nil {
		return err
	}
	for _, m := range list.Members {
		if !m.IsLearner {
			voters--
		}
	}
	if voters != 0 {
		return fmt.Errorf("%d voters too few", voters)
	}
	return nil
}

// answer sends a request and reads the JSON that comes back.
func answer(client *http.Client, req *http.Request, out any) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, data)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// result is what one way of starting took.
type result struct {
	Name    string
	Note    string
	Seconds []float64
}

// spread returns the fastest, the median and the slowest run.
func (r result) spread() (low, median, high float64) {
	s := slices.Clone(r.Seconds)
	slices.Sort(s)
	if len(s) == 0 {
		return 0, 0, 0
	}
	return s[0], s[len(s)/2], s[len(s)-1]
}

// report writes the table and the plot.
func report(t *testing.T, results []result) {
	t.Helper()
	var table strings.Builder
	table.WriteString("| way | median | fastest | slowest | what it is |\n|---|---:|---:|---:|---|\n")
	for _, r := range results {
		low, median, high := r.spread()
		fmt.Fprintf(&table, "| %s | %.1f s | %.1f s | %.1f s | %s |\n", r.Name, median, low, high, r.Note)
	}
	t.Logf("from apply to the first write of three members:\n%s", table.String())
	out := os.Getenv("ETCDINIT_K8S_OUT")
	if out == "" {
		return
	}
	for name, text := range map[string]string{"time-to-quorum.md": table.String(), "time-to-quorum.svg": plot(results)} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(text), 0o644); err != nil { //nolint:gosec // a page for everybody
			t.Error(err)
		}
	}
}

// plot draws a bar for each median, a dot for each run.
func plot(results []result) string {
	const left, width, row = 190.0, 420.0, 44
	most := 1.0
	for _, r := range results {
		_, _, high := r.spread()
		most = max(most, high)
	}
	step := 1.0
	for most/step > 8 {
		if step *= 2; most/step > 8 {
			step *= 2.5
		}
	}
	x := func(seconds float64) float64 { return left + seconds/most*width }
	height := row*len(results) + 70
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" font-family="sans-serif" font-size="13">`+"\n", left+width+60, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="10" y="22" font-weight="bold">From kubectl apply to the first write of three members</text>`+"\n")
	bottom := row*len(results) + 40
	for s := 0.0; s <= most; s += step {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="34" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle" fill="#555">%g s</text>`+"\n", x(s), x(s), bottom, x(s), bottom+18, s)
	}
	for i, r := range results {
		_, median, _ := r.spread()
		y := 42 + row*i
		color := "#9aa5b1"
		if strings.HasPrefix(r.Name, "etcdinit") {
			color = "#2f7d4f"
		}
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="end">%s</text>`, left-8, y+19, r.Name)
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="28" fill="%s"/>`, left, y, x(median)-left, color)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#fff" font-weight="bold">%.1f s</text>`+"\n", left+6, y+19, median)
		for _, s := range r.Seconds {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="3" fill="#222" fill-opacity="0.6"/>`, x(s), y+14)
		}
		b.WriteString("\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}
