//go:build kubernetes

package kubernetes

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Without publishNotReadyAddresses nobody is in DNS before being ready, which
// nobody will be: members wait and say so, and go on when it is put right.
func TestNotPublished(t *testing.T) {
	namespace(t, "unpublished")
	dir := kustomization(t, "unpublished", `
namespace: unpublished
resources: [../base]
patches:
- target: {kind: Service, name: etcd}
  patch: '[{"op": "remove", "path": "/spec/publishNotReadyAddresses"}]'
transformers: [../parameters]
`)
	must(t, "kubectl apply -k %s", dir)
	eventually(t, 90*time.Second, "the members say what may be missing", func() error {
		for _, name := range []string{"etcd-0", "etcd-1", "etcd-2"} {
			if out := logs(t, "unpublished", name); !strings.Contains(out, "publishNotReadyAddresses") {
				return fmt.Errorf("%s: %s", name, out)
			}
		}
		return nil
	})
	for name, p := range pods(t, "unpublished") {
		if len(p.Status.InitContainerStatuses) != 1 || p.Status.InitContainerStatuses[0].State.Running == nil || p.Status.InitContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s does not wait: %+v", name, p.Status.InitContainerStatuses)
		}
	}
	must(t, `kubectl -n unpublished patch service etcd -p '{"spec": {"publishNotReadyAddresses": true}}'`)
	allReady(t, "unpublished", 3, 2*time.Minute)
}

// Another namespace and another cluster domain, with five members.
func TestParameters(t *testing.T) {
	namespace(t, "prod")
	dir := kustomization(t, "prod", `
namespace: prod
namePrefix: blue-
resources: [../base]
components: [../components/members-5]
labels:
- pairs: {app.kubernetes.io/instance: blue}
  includeSelectors: true
configMapGenerator:
- name: etcd
  behavior: merge
  literals: [domain=etcd.prod.svc.k8s.example]
transformers: [../parameters]
`)
	must(t, "kubectl apply -k %s", dir)
	allReady(t, "prod", 5, 3*time.Minute)
	list := members(t, "prod", "blue-etcd-4")
	if len(list.Members) != 5 {
		t.Errorf("%d members, want 5", len(list.Members))
	}
	for _, m := range list.Members {
		if want := "http://" + m.Name + ".blue-etcd.prod.svc.k8s.example:2380"; len(m.PeerURLs) != 1 || m.PeerURLs[0] != want {
			t.Errorf("%s advertises %v, want %s", m.Name, m.PeerURLs, want)
		}
	}
}

func TestOneMember(t *testing.T) {
	namespace(t, "single")
	must(t, "kubectl apply -k %s", kustomization(t, "single", "namespace: single\nresources: [../base]\ncomponents: [../components/members-1]\ntransformers: [../parameters]\n"))
	allReady(t, "single", 1, time.Minute)
	etcdctl(t, "single", "etcd-0", "put a b")
	must(t, "kubectl -n single delete pod etcd-0")
	allReady(t, "single", 1, time.Minute)
	if got := etcdctl(t, "single", "etcd-0", "get a --print-value-only"); got != "b" {
		t.Errorf("the key is %q, want b", got)
	}
}

func TestIPv6(t *testing.T) {
	control(t, "family", "46")
	t.Cleanup(func() { control(t, "family", "4") })
	namespace(t, "six")
	must(t, "kubectl apply -k %s", kustomization(t, "six", "namespace: six\nresources: [../base]\ncomponents: [../components/ipv6]\ntransformers: [../parameters]\n"))
	allReady(t, "six", 3, 2*time.Minute)
	if out := etcdctl(t, "six", "etcd-0", "endpoint health --cluster"); strings.Count(out, "is healthy") != 3 {
		t.Errorf("not three healthy members: %s", out)
	}
	out := must(t, "kubectl -n six get endpointslices -l kubernetes.io/service-name=etcd -o jsonpath='{.items[*].addressType}'")
	if out != "IPv6" {
		t.Errorf("the Service has endpoints of the families %s, want IPv6", out)
	}
}

// A Secret of the layout that cert-manager makes, with the names of the
// Certificate in the overlay.
func TestTLS(t *testing.T) {
	namespace(t, "tls")
	dir := kustomization(t, "secure", "namespace: tls\nresources: [../base]\ncomponents: [../components/tls]\ntransformers: [../parameters]\n")
	must(t, `
kubectl kustomize %[1]s > %[1]s/all.yaml
names=$(awk '/^  dnsNames:/ { on = 1; next } /^  - / { if (on) print "DNS:" $2; next } { on = 0 }' %[1]s/all.yaml | paste -sd , -)
cd %[1]s
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=etcd-ca 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout tls.key -out tls.csr -subj /CN=etcd 2>/dev/null
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out tls.crt -extfile <(printf 'subjectAltName=%%s,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' "$names") 2>/dev/null
kubectl -n tls create secret generic etcd-tls --from-file=ca.crt --from-file=tls.crt --from-file=tls.key
kubectl apply -f <(awk 'BEGIN { RS = "---\n"; ORS = "---\n" } !/kind: Certificate/' all.yaml)`, dir)
	allReady(t, "tls", 3, 2*time.Minute)
	if out := etcdctl(t, "tls", "etcd-0", "endpoint health --cluster"); strings.Count(out, "is healthy") != 3 || !strings.Contains(out, "https://etcd-2.etcd.tls.svc.cluster.local:2379") {
		t.Errorf("not three healthy members by https: %s", out)
	}
	must(t, "kubectl -n tls delete pod etcd-1")
	allReady(t, "tls", 3, 2*time.Minute)
}

// Members with names, off and on in another order, and with swapped volumes.
func TestNamed(t *testing.T) {
	namespace(t, "named")
	dir := kustomization(t, "names", "namespace: named\nresources: [../named]\ntransformers: [../parameters]\n")
	apply := func(name string) {
		must(t, "kubectl kustomize %s | awk 'BEGIN { RS = \"---\\n\"; ORS = \"---\\n\" } /name: %s\\n/' | kubectl apply -f -", dir, name)
	}
	// One after the other, in another order than the alphabet's.
	must(t, "kubectl kustomize %s | awk 'BEGIN { RS = \"---\\n\"; ORS = \"---\\n\" } !/kind: Deployment/' | kubectl apply -f -", dir)
	for _, member := range []string{"charlie", "alfa", "bravo"} {
		apply("etcd-" + member)
		pause(t, 2*time.Second)
	}
	byHost := func(all map[string]pod) map[string]pod {
		found := map[string]pod{}
		for _, p := range all {
			found[p.Spec.Hostname] = p
		}
		return found
	}
	all := byHost(allReady(t, "named", 3, 2*time.Minute))
	before := members(t, "named", all["alfa"].Metadata.Name)
	etcdctl(t, "named", all["bravo"].Metadata.Name, "put a b")
	must(t, "kubectl -n named scale deployment etcd-alfa etcd-bravo etcd-charlie --replicas=0 && kubectl -n named wait --for=delete pod -l app.kubernetes.io/name=etcd --timeout=1m")
	for _, member := range []string{"bravo", "charlie", "alfa"} {
		must(t, "kubectl -n named scale deployment etcd-%s --replicas=1", member)
		pause(t, 2*time.Second)
	}
	all = byHost(allReady(t, "named", 3, 2*time.Minute))
	after := members(t, "named", all["charlie"].Metadata.Name)
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("members before %v, after %v", before, after)
	}
	if got := etcdctl(t, "named", all["alfa"].Metadata.Name, "get a --print-value-only"); got != "b" {
		t.Errorf("the key is %q, want b", got)
	}

	// alfa and bravo get each other's volume.
	must(t, "kubectl -n named scale deployment etcd-alfa etcd-bravo --replicas=0 && kubectl -n named wait --for=delete pod -l 'etcd-member in (alfa, bravo)' --timeout=1m")
	claim := `kubectl -n named patch deployment etcd-%s --type=strategic -p '{"spec": {"replicas": 1, "template": {"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "etcd-%s"}}]}}}}'`
	must(t, claim, "alfa", "bravo")
	must(t, claim, "bravo", "alfa")
	for member, other := range map[string]string{"alfa": "bravo", "bravo": "alfa"} {
		var message string
		// A restart asks DNS for two seconds and does not depend on it. Where the
		// records of pods that start are later than that, the guard sees nothing;
		// then the pod starts again.
		for try := 1; message == ""; try++ {
			eventually(t, time.Minute, "etcdinit of "+member+" has ended", func() error {
				status, said := byHost(pods(t, "named"))[member].refusal()
				switch {
				case status == 43:
					message = said
				case status == 0 && try <= 5:
					t.Logf("%s: DNS came too late for the guard, try %d: %s", member, try, said)
					must(t, "kubectl -n named delete pod -l etcd-member=%s", member)
				default:
					return fmt.Errorf("status %d: %s", status, said)
				}
				return nil
			})
		}
		if !strings.Contains(message, member) || !strings.Contains(message, other) {
			t.Errorf("the message does not name %s and %s: %s", member, other, message)
		}
	}
	// Put right, all is well, with the data.
	must(t, "kubectl -n named scale deployment etcd-alfa etcd-bravo --replicas=0 && kubectl -n named wait --for=delete pod -l 'etcd-member in (alfa, bravo)' --timeout=1m")
	must(t, claim, "alfa", "alfa")
	must(t, claim, "bravo", "bravo")
	all = byHost(allReady(t, "named", 3, 2*time.Minute))
	if got := etcdctl(t, "named", all["alfa"].Metadata.Name, "get a --print-value-only"); got != "b" {
		t.Errorf("the key is %q, want b", got)
	}
}

// The level "restricted", under which nearly all of these tests run, does
// refuse; and a real API server accepts the policies of the page about networks.
func TestAccepted(t *testing.T) {
	namespace(t, "accepted")
	if _, err := sh(t, "kubectl -n accepted run root --image=localhost/pause:1 --dry-run=server"); err == nil || !strings.Contains(err.Error(), "restricted") {
		t.Errorf("a pod that is not restricted is accepted: %v", err)
	}
	must(t, "awk '/^```yaml/ { on = 1; next } /^```/ { on = 0 } on' deploy/kubernetes/NETWORK.md | kubectl -n accepted apply --dry-run=server -f -")
}

// The chart, by the commands of its README.
func TestHelm(t *testing.T) {
	dir, _ := work(t)
	must(t, "test -x %s || exit 1", filepath.Join(dir, "bin/helm"))
	readme := read(t, "deploy/helm/README.md")
	forget(t, "etcd")
	readme.run(t, "Two commands", 0)
	must(t, "kubectl label namespace etcd pod-security.kubernetes.io/enforce=restricted")
	allReady(t, "etcd", 3, 2*time.Minute)
	if out := readme.run(t, "Two commands", 1); !strings.Contains(out, "hello") {
		t.Errorf("the key is not there: %s", out)
	}
	if out := readme.run(t, "Two commands", 2); !strings.Contains(out, "Succeeded") {
		t.Errorf("helm test: %s", out)
	}
	before := members(t, "etcd", "etcd-0")
	first := pods(t, "etcd")
	readme.run(t, "What to change", 0)
	eventually(t, 3*time.Minute, "the upgrade has restarted every member", func() error {
		now := pods(t, "etcd")
		for name, p := range now {
			if !p.ready() || p.Metadata.UID == first[name].Metadata.UID {
				return fmt.Errorf("%s has not", name)
			}
		}
		return nil
	})
	if after := members(t, "etcd", "etcd-2"); fmt.Sprint(after.Members) != fmt.Sprint(before.Members) {
		t.Errorf("members before the upgrade %v, after it %v", before.Members, after.Members)
	}
	if got := etcdctl(t, "etcd", "etcd-1", "get greeting --print-value-only"); got != "hello" {
		t.Errorf("the key is %q, want hello", got)
	}
	readme.run(t, "When it refuses", 0)
	readme.complete(t)
}

// TestHeal: a volume is lost, and the member comes back by itself under another ID; then
// the cluster grows from three to five by one number. A sidecar promotes.
func TestHeal(t *testing.T) {
	const ns = "heal"
	namespace(t, ns)
	overlay := func(name, components string) string {
		return kustomization(t, name, `
namespace: heal
resources: [../base]
components: [`+components+`]
configMapGenerator:
- name: etcd
  behavior: merge
  literals: [replace-after=5s]
transformers: [../parameters]
`)
	}
	must(t, "kubectl apply -k %s", overlay("heal", "../components/heal"))
	allReady(t, ns, 3, 3*time.Minute)
	etcdctl(t, ns, "etcd-0", "put greeting hello")
	before := members(t, ns, "etcd-0")
	pause(t, 6*time.Second) // etcd changes no members of a cluster that is younger
	must(t, "kubectl -n heal delete pvc data-etcd-1 --wait=false && kubectl -n heal delete pod etcd-1")
	voters := func(through string, want int) error {
		now := members(t, ns, through)
		n := 0
		for _, m := range now.Members {
			for _, was := range before.Members {
				if m.Name == "etcd-1" && m.ID == was.ID {
					return fmt.Errorf("etcd-1 has its old ID")
				}
			}
			if m.Name != "" && !m.IsLearner {
				n++
			}
		}
		if n != want || len(now.Members) != want {
			return fmt.Errorf("%d of %d members vote, want %d", n, len(now.Members), want)
		}
		return nil
	}
	eventually(t, 3*time.Minute, "etcd-1 votes again, with nobody's help", func() error { return voters("etcd-0", 3) })
	allReady(t, ns, 3, 2*time.Minute)
	if got := etcdctl(t, ns, "etcd-1", "get greeting --print-value-only"); got != "hello" {
		t.Errorf("the key is %q on the new volume, want hello", got)
	}

	before = memberList{}
	must(t, "kubectl apply -k %s", overlay("healfive", "../components/heal, ../components/members-5"))
	eventually(t, 6*time.Minute, "five members vote", func() error { return voters("etcd-0", 5) })
	allReady(t, ns, 5, 3*time.Minute)
	if got := etcdctl(t, ns, "etcd-4", "get greeting --print-value-only"); got != "hello" {
		t.Errorf("the key is %q on the fifth member, want hello", got)
	}
}
