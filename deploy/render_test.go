package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// object is a Kubernetes object.
type object = map[string]any

// kubeVersion is what the chart is rendered for; helm built from its module
// knows of none.
const kubeVersion = "1.37.2"

// tool returns the command of a pinned tool, or of one that is on the path.
func tool(t *testing.T, name string, pinned ...string) []string {
	t.Helper()
	dir := os.Getenv("ETCDINIT_TOOLS_DIR")
	if dir == "" {
		dir = "../.cache/tools"
	}
	file := filepath.Join(dir, pinned[0])
	if _, err := os.Stat(file); err == nil {
		if file, err = filepath.Abs(file); err != nil {
			t.Fatal(err)
		}
		return append([]string{file}, pinned[1:]...)
	}
	if file, err := exec.LookPath(name); err == nil {
		return []string{file}
	}
	t.Skipf("no %s: build it with tools/build", name)
	return nil
}

// run runs a command and returns what it printed.
func run(command []string, args ...string) (string, error) {
	var out, problem bytes.Buffer
	cmd := exec.Command(command[0], append(command[1:len(command):len(command)], args...)...)
	cmd.Stdout, cmd.Stderr = &out, &problem
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, problem.String())
	}
	return out.String(), err
}

// kustomize renders a folder below kubernetes.
func kustomize(t *testing.T, dir string) map[string]object {
	t.Helper()
	out, err := run(tool(t, "kubectl", "kubernetes/hyperkube", "kubectl"), "kustomize", dir)
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v", dir, err)
	}
	return objects(t, out)
}

// chart renders the chart as the release etcd in the namespace etcd.
func chart(t *testing.T, args ...string) map[string]object {
	t.Helper()
	out, err := run(tool(t, "helm", "helm/helm"), append([]string{"template", "etcd", "helm", "--skip-tests", "--kube-version", kubeVersion, "--namespace", "etcd"}, args...)...)
	if err != nil {
		t.Fatalf("helm template %v: %v", args, err)
	}
	return objects(t, out)
}

// overlay writes a kustomization beside the others, as somebody would who
// changes something, and renders it.
func overlay(t *testing.T, text string) map[string]object {
	t.Helper()
	dir, err := os.MkdirTemp("kubernetes", ".test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(filepath.Join(dir, "kustomization.yaml")); _ = os.Remove(dir) })
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kustomize(t, dir)
}

var hashed = regexp.MustCompile(`\betcd-[a-z0-9]{10}\b`)

// objects reads a stream of objects and keys them by kind and name.
func objects(t *testing.T, stream string) map[string]object {
	t.Helper()
	found := map[string]object{}
	// The hash that kustomize puts behind a ConfigMap's name.
	decoder := yaml.NewDecoder(strings.NewReader(hashed.ReplaceAllString(stream, "etcd")))
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if o != nil {
			found[fmt.Sprintf("%s %s/%s", o["kind"], get(o, "metadata", "namespace"), get(o, "metadata", "name"))] = o
		}
	}
}

// get walks down an object; what is not there is nil.
func get(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := v.(object)
			if !ok {
				return nil
			}
			v = m[step]
		case int:
			list, ok := v.([]any)
			if !ok || step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

// config parses the etcd configuration in a ConfigMap.
func config(t *testing.T, all map[string]object, name string) object {
	t.Helper()
	text, ok := get(all[name], "data", "etcd.yaml").(string)
	if !ok {
		t.Fatalf("no etcd.yaml in %s: have %v", name, keys(all))
	}
	var c object
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func keys(all map[string]object) []string {
	var names []string
	for name := range all {
		names = append(names, name)
	}
	return names
}

// substance removes what only says who rendered an object.
func substance(t *testing.T, all map[string]object) map[string]object {
	t.Helper()
	for name, o := range all {
		for _, where := range [][]any{{"metadata"}, {"spec", "template", "metadata"}} {
			if meta, ok := get(o, where...).(object); ok {
				for _, kind := range []string{"labels", "annotations"} {
					if m, ok := meta[kind].(object); ok {
						for _, key := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "checksum/config"} {
							delete(m, key)
						}
						if len(m) == 0 {
							delete(meta, kind)
						}
					}
				}
			}
		}
		if o["kind"] == "Certificate" {
			delete(get(o, "metadata").(object), "labels")
		}
		if o["kind"] == "ConfigMap" {
			get(o, "data").(object)["etcd.yaml"] = config(t, all, name)
		}
	}
	return all
}

// The chart and the kustomizations are one deployment written twice.
func TestChartEqualsKustomize(t *testing.T) {
	tests := []struct {
		name, dir string
		values    []string
	}{
		{"base", "kubernetes/base", nil},
		{"one member", "kubernetes/overlays/members-1", []string{"--set", "members=1"}},
		{"five members", "kubernetes/overlays/members-5", []string{"--set", "members=5"}},
		{"TLS", "kubernetes/overlays/tls", []string{"--set", "tls.enabled=true,tls.issuerRef.name=etcd"}},
		{"IPv6", "kubernetes/overlays/ipv6", []string{"--set", "ipFamily=IPv6"}},
		{"exec", "kubernetes/overlays/exec", []string{"--set", "etcdinit.exec=true,image.repository=etcdinit-etcd"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := substance(t, kustomize(t, tt.dir)), substance(t, chart(t, tt.values...))
			for name, want := range ours {
				got, ok := theirs[name]
				if !ok {
					t.Errorf("the chart has no %s", name)
					continue
				}
				differ(t, name, got, want)
			}
			for name := range theirs {
				if _, ok := ours[name]; !ok {
					t.Errorf("kustomize has no %s", name)
				}
			}
		})
	}
}

// differ reports where two values differ; lists of named things have no order.
func differ(t *testing.T, path string, chart, kustomize any) {
	t.Helper()
	switch want := kustomize.(type) {
	case object:
		got, ok := chart.(object)
		if !ok {
			t.Errorf("%s: the chart has %v, kustomize %v", path, chart, kustomize)
			return
		}
		for key := range want {
			differ(t, path+"."+key, got[key], want[key])
		}
		for key := range got {
			if _, ok := want[key]; !ok {
				t.Errorf("%s.%s: the chart has %v, kustomize nothing", path, key, got[key])
			}
		}
	case []any:
		got, ok := chart.([]any)
		if !ok || len(got) != len(want) {
			t.Errorf("%s: the chart has %v, kustomize %v", path, chart, kustomize)
			return
		}
		for i := range want {
			other := got[i]
			if name := get(want[i], "name"); name != nil {
				for _, candidate := range got {
					if get(candidate, "name") == name && get(candidate, "mountPath") == get(want[i], "mountPath") {
						other = candidate
					}
				}
			}
			differ(t, fmt.Sprintf("%s[%d]", path, i), other, want[i])
		}
	default:
		if !reflect.DeepEqual(chart, kustomize) {
			t.Errorf("%s: the chart has %v, kustomize %v", path, chart, kustomize)
		}
	}
}

// A namespace, a cluster domain and a number of members reach everything that
// depends on them.
func TestParametersReachEverything(t *testing.T) {
	const domain = "etcd.prod.svc.k8s.example"
	rendered := map[string]map[string]object{
		"kustomize": overlay(t, `
namespace: prod
resources: [../base]
components: [../components/tls, ../components/members-5]
configMapGenerator:
- name: etcd
  behavior: merge
  literals: [domain=etcd.etcd.svc.k8s.example]
transformers: [../parameters]
`),
		"helm": chart(t, "--namespace", "prod", "--set", "members=5,clusterDomain=k8s.example,tls.enabled=true,tls.issuerRef.name=etcd"),
	}
	for name, all := range rendered {
		t.Run(name, func(t *testing.T) {
			c := config(t, all, "ConfigMap prod/etcd")
			for _, key := range []string{"discovery-srv", "initial-cluster-token"} {
				if c[key] != domain {
					t.Errorf("%s: got %v, want %s", key, c[key], domain)
				}
			}
			sts := all["StatefulSet prod/etcd"]
			if got := get(sts, "spec", "replicas"); got != 5 {
				t.Errorf("replicas: got %v, want 5", got)
			}
			if got := get(all["ConfigMap prod/etcd"], "data", "members"); got != "5" {
				t.Errorf("members: got %v, want 5", got)
			}
			names, _ := get(all["Certificate prod/etcd"], "spec", "dnsNames").([]any)
			for _, want := range []string{"etcd-0." + domain, "etcd-4." + domain, "etcd-client.prod.svc", "etcd-client.prod.svc.k8s.example"} {
				found := false
				for _, got := range names {
					found = found || got == want
				}
				if !found {
					t.Errorf("the certificate does not name %s: %v", want, names)
				}
			}
			for key, o := range all {
				if text := fmt.Sprint(o); strings.Contains(text, "cluster.local") || strings.Contains(text, "etcd.etcd.") {
					t.Errorf("%s still has the default namespace or domain: %s", key, text)
				}
			}
		})
	}
}

// With each component, alone and before "exec", etcd's configuration is one that
// etcd could read.
func TestComponents(t *testing.T) {
	entries, err := os.ReadDir("kubernetes/components")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		for _, more := range []string{"", ", ../components/exec"} {
			t.Run(e.Name()+more, func(t *testing.T) {
				if e.Name() == "exec" && more != "" {
					t.SkipNow()
				}
				all := overlay(t, "namespace: prod\nresources: [../base]\ncomponents: [../components/"+e.Name()+more+"]\ntransformers: [../parameters]\n")
				c := config(t, all, "ConfigMap prod/etcd")
				for _, key := range []string{"discovery-srv", "initial-cluster-token"} {
					if c[key] != "etcd.prod.svc.cluster.local" {
						t.Errorf("%s: got %v", key, c[key])
					}
				}
				// What etcdinit is told reaches the container that it runs in.
				spec := get(all["StatefulSet prod/etcd"], "spec", "template", "spec")
				where := "initContainers"
				if e.Name() == "exec" || more != "" {
					where = "containers"
				}
				env := fmt.Sprint(get(spec, where, 0, "env"))
				if has := strings.Contains(env, "ETCDINIT_SELF_NAME") && strings.Contains(env, "srv://example.org"); has != (e.Name() == "loadbalancer") || !strings.Contains(env, "ETCDINIT_SIZE") {
					t.Errorf("the variables in %s: %s", where, env)
				}
				inits := fmt.Sprint(get(spec, "initContainers"))
				sidecar := strings.Contains(inits, "--stay")
				if strings.Count(inits, "ghcr.io/etcdinit/etcdinit") != strings.Count(inits, "ghcr.io/etcdinit/etcdinit:v") {
					t.Errorf("an image without its version: %s", inits)
				}
				if want := e.Name() == "heal" && more == ""; sidecar != want || !strings.Contains(env, "ETCDINIT_IF_RUNNING") {
					t.Errorf("a sidecar that promotes: %v, want %v; the variables: %s", sidecar, want, env)
				}
				if c["data-dir"] != "/var/lib/etcd/data" || c["quota-backend-bytes"] != 2147483648 {
					t.Errorf("the configuration is not whole: %v", c)
				}
			})
		}
	}
}

// A name prefix makes a second cluster in a namespace.
func TestNamePrefix(t *testing.T) {
	all := overlay(t, `
namespace: prod
namePrefix: blue-
labels:
- pairs: {app.kubernetes.io/instance: blue}
  includeSelectors: true
resources: [../base]
transformers: [../parameters]
`)
	for name, o := range all {
		if o["kind"] == "ConfigMap" {
			if got := config(t, all, name)["discovery-srv"]; got != "blue-etcd.prod.svc.cluster.local" {
				t.Errorf("discovery-srv: got %v", got)
			}
		}
	}
	sts := all["StatefulSet prod/blue-etcd"]
	if got := get(sts, "spec", "serviceName"); got != "blue-etcd" {
		t.Errorf("serviceName: got %v, want blue-etcd", got)
	}
	if got := get(all["Service prod/blue-etcd"], "spec", "selector", "app.kubernetes.io/instance"); got != "blue" {
		t.Errorf("the Service selects %v, want blue", got)
	}
}

// The promises that people read the manifests for.
func TestManifestsAreRestricted(t *testing.T) {
	for _, dir := range []string{"base", "named", "overlays/tls", "overlays/ipv6", "overlays/exec", "overlays/members-1", "overlays/members-5"} {
		t.Run(dir, func(t *testing.T) {
			pods := 0
			for name, o := range kustomize(t, "kubernetes/"+dir) {
				spec, ok := get(o, "spec", "template", "spec").(object)
				if !ok {
					continue
				}
				pods++
				for path, want := range map[string]any{
					"runAsNonRoot": true, "seccompProfile.type": "RuntimeDefault",
				} {
					var steps []any
					for _, step := range strings.Split("securityContext."+path, ".") {
						steps = append(steps, step)
					}
					if got := get(spec, steps...); got != want {
						t.Errorf("%s: %s is %v, want %v", name, path, got, want)
					}
				}
				for _, key := range []string{"automountServiceAccountToken", "enableServiceLinks"} {
					if spec[key] != false {
						t.Errorf("%s: %s is %v, want false", name, key, spec[key])
					}
				}
				for _, kind := range []string{"initContainers", "containers"} {
					list, _ := spec[kind].([]any)
					want := 1
					if kind == "initContainers" && dir == "overlays/exec" {
						want = 0
					}
					if len(list) != want {
						t.Errorf("%s: %d %s, want %d", name, len(list), kind, want)
					}
					for _, c := range list {
						context := get(c, "securityContext")
						want := object{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": object{"drop": []any{"ALL"}}}
						if !reflect.DeepEqual(context, want) {
							t.Errorf("%s: securityContext of %v is %v", name, get(c, "name"), context)
						}
						if get(c, "terminationMessagePolicy") != "FallbackToLogsOnError" || get(c, "resources", "limits", "memory") == nil {
							t.Errorf("%s: %v lacks a termination message policy or a memory limit", name, get(c, "name"))
						}
					}
				}
			}
			if pods == 0 {
				t.Error("no pods")
			}
		})
	}
}

// The members of the named form are apart: a selector, a volume and a name each.
func TestNamedMembersAreApart(t *testing.T) {
	all := kustomize(t, "kubernetes/named")
	if len(all) != 10 { // a ConfigMap, two Services, a budget, three claims and Deployments
		t.Errorf("%d objects: %v", len(all), keys(all))
	}
	for _, member := range []string{"alfa", "bravo", "charlie"} {
		d := all["Deployment etcd/etcd-"+member]
		spec := get(d, "spec", "template", "spec")
		for what, got := range map[string][2]any{
			"hostname":  {get(spec, "hostname"), member},
			"subdomain": {get(spec, "subdomain"), "etcd"},
			"strategy":  {get(d, "spec", "strategy", "type"), "Recreate"},
			"selector":  {get(d, "spec", "selector", "matchLabels", "etcd-member"), member},
		} {
			if got[0] != got[1] {
				t.Errorf("%s: %s is %v, want %v", member, what, got[0], got[1])
			}
		}
		if !strings.Contains(fmt.Sprint(get(spec, "volumes")), "claimName:etcd-"+member) {
			t.Errorf("%s: its volume is not etcd-%s: %v", member, member, get(spec, "volumes"))
		}
	}
	for _, name := range []string{"Service etcd/etcd", "PodDisruptionBudget etcd/etcd"} {
		if strings.Contains(fmt.Sprint(all[name]), "etcd-member") {
			t.Errorf("%s selects one member: %v", name, all[name])
		}
	}
}

// What a chart is expected to have beside the cluster, each by its value.
func TestChartOptions(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	all := chart(t, "--set", "image.registry=mirror.example.org:5000/etcd,image.digest="+digest+",etcdinit.image.registry=mirror.example.org",
		"--set", "extraVolumes[0].name=ca,extraVolumes[0].secret.secretName=ca,extraVolumeMounts[0].name=ca,extraVolumeMounts[0].mountPath=/ca",
		"--set", "networkPolicy.enabled=true,networkPolicy.clients[0].podSelector.matchLabels.app=api,etcdinit.ifRunning=replace,podMonitor.enabled=true,podMonitor.labels.team=db")
	spec := get(all["StatefulSet etcd/etcd"], "spec", "template", "spec")
	policy, monitor := get(all["NetworkPolicy etcd/etcd"], "spec"), all["PodMonitor etcd/etcd"]
	for what, got := range map[string][2]any{
		"etcd's image":     {get(spec, "containers", 0, "image"), "mirror.example.org:5000/etcd/etcd-development/etcd@" + digest},
		"etcdinit's image": {get(spec, "initContainers", 0, "image"), "mirror.example.org/etcdinit/etcdinit:v1.0.0"},
		"spread over":      {get(spec, "topologySpreadConstraints", 0, "topologyKey"), "topology.kubernetes.io/zone"},
		"the spread is":    {get(spec, "topologySpreadConstraints", 0, "whenUnsatisfiable"), "ScheduleAnyway"},
		"a lost volume":    {get(all["ConfigMap etcd/etcd"], "data", "if-running"), "replace"},
		"eviction":         {get(all["PodDisruptionBudget etcd/etcd"], "spec", "unhealthyPodEvictionPolicy"), "AlwaysAllow"},
		"clients":          {get(policy, "ingress", 1, "from", 0, "podSelector", "matchLabels", "app"), "api"},
		"metrics for":      {get(policy, "ingress", 2, "from"), nil},
		"the monitor's":    {get(monitor, "metadata", "labels", "team"), "db"},
		"the monitor asks": {get(monitor, "spec", "podMetricsEndpoints", 0, "port"), "metrics"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %v, want %v", what, got[0], got[1])
		}
	}
	for _, kind := range []string{"initContainers", "containers"} {
		if !strings.Contains(fmt.Sprint(get(spec, kind, 0, "volumeMounts")), "mountPath:/ca name:ca") {
			t.Errorf("%s do not see the extra volume", kind)
		}
	}
	for name := range chart(t) {
		if strings.HasPrefix(name, "NetworkPolicy") || strings.HasPrefix(name, "PodMonitor") {
			t.Errorf("%s is there by default", name)
		}
	}
}

// The notes say how to try it, warn of an even number, and explain 42.
func TestChartNotes(t *testing.T) {
	helm := tool(t, "helm", "helm/helm")
	// helm shows notes only with a cluster; here they are a value of a template.
	dir := filepath.Join(t.TempDir(), "etcd")
	if err := os.CopyFS(dir, os.DirFS("helm")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("helm/templates/NOTES.txt")
	if err != nil {
		t.Fatal(err)
	}
	wrapped := `{{ define "notes" }}` + string(text) + `{{ end }}notes: {{ include "notes" . | quote }}`
	if err := os.WriteFile(filepath.Join(dir, "templates", "notes.yaml"), []byte(wrapped), 0o600); err != nil {
		t.Fatal(err)
	}
	notes := func(set string) string {
		t.Helper()
		out, err := run(helm, "template", "etcd", dir, "--namespace", "etcd", "--kube-version", kubeVersion, "--show-only", "templates/notes.yaml", "--set", set)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if text := notes("members=3"); strings.Contains(text, "WARNING") || !strings.Contains(text, "Exit status 42 means") || !strings.Contains(text, "test etcd") {
		t.Error(text)
	}
	if text := notes("members=4"); !strings.Contains(text, "WARNING: 4 members survive no more failures than 3") {
		t.Error(text)
	}
	if text := notes("members=1,tls.enabled=true,tls.existingSecret=mine"); strings.Contains(text, "WARNING") || !strings.Contains(text, "the CA of the Secret mine") {
		t.Error(text)
	}
}

func TestChartLint(t *testing.T) {
	helm := tool(t, "helm", "helm/helm")
	for _, args := range [][]string{nil, {"--set", "tls.enabled=true,tls.existingSecret=x"}, {"--set", "hostNetwork=true,members=1"}, {"--set", "etcdinit.exec=true,image.repository=both,tls.enabled=true,tls.existingSecret=x"}} {
		if out, err := run(helm, append([]string{"lint", "--strict", "--kube-version", kubeVersion, "helm"}, args...)...); err != nil {
			t.Errorf("helm lint %v: %v\n%s", args, err, out)
		}
	}
}

// What the schema refuses, and what it lets pass.
func TestChartValues(t *testing.T) {
	helm := tool(t, "helm", "helm/helm")
	tests := []struct {
		name, set, want string
	}{
		{"unknown value", "replicas=3", "replicas"},
		{"the number by another name", "replicaCount=3", "set members instead"},
		{"no members", "members=0", "members"},
		{"members are a number", "members=three", "members"},
		{"dot at the end of the domain", "clusterDomain=cluster.local.", "clusterDomain"},
		{"a name in the configuration", "config.name=x", "config.name: remove it"},
		{"bootstrap in the configuration", "config.initial-cluster=x", "config.initial-cluster: remove it"},
		{"listen URLs in the configuration", "config.listen-peer-urls=x", "config.listen-peer-urls: remove it"},
		{"TLS in the configuration", "config.peer-transport-security.cert-file=x", "tls.enabled"},
		{"two sources of certificates", "tls.enabled=true,tls.existingSecret=x,tls.issuerRef.name=y", "one of the two"},
		{"half a digest", "image.digest=sha256:abc", "digest"},
		{"TLS with nothing", "tls.enabled=true", "tls.existingSecret"},
		{"shared volumes", "persistence.accessModes={ReadWriteMany}", "accessModes"},
		{"family", "ipFamily=v6", "ipFamily"},
		{"timeout", "etcdinit.timeout=soon", "timeout"},
		{"exec", "etcdinit.exec=always,image.repository=both", "exec"},
		{"exec with stock etcd", "etcdinit.exec=true", "both programs"},
		{"more of etcd's keys", "config.heartbeat-interval=200", ""},
		{"no such class", "persistence.storageClass=-", ""},
		{"OpenShift", "podSecurityContext.runAsUser=null,podSecurityContext.fsGroup=null", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := run(helm, "template", "etcd", "helm", "--kube-version", kubeVersion, "--set", tt.set)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("helm template --set %s: %v", tt.set, err)
			case tt.want != "" && err == nil:
				t.Errorf("helm template --set %s: no error", tt.set)
			case tt.want != "" && !strings.Contains(err.Error(), tt.want):
				t.Errorf("helm template --set %s: %v does not name %s", tt.set, err, tt.want)
			}
		})
	}
}

// A changed configuration changes the pods, so that they restart.
func TestChangedConfigurationRestarts(t *testing.T) {
	sum := func(args ...string) any {
		return get(chart(t, args...)["StatefulSet etcd/etcd"], "spec", "template", "metadata", "annotations", "checksum/config")
	}
	if a, b := sum(), sum("--set", "config.heartbeat-interval=200"); a == nil || a == b {
		t.Errorf("checksums %v and %v, want two different", a, b)
	}
	// The number of members alone does not: a running cluster does not care.
	if a, b := sum(), sum("--set", "members=5"); a != b {
		t.Errorf("checksums %v and %v, want one", a, b)
	}
}
