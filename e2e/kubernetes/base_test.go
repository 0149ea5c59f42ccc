//go:build kubernetes

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestBase follows one cluster of deploy/kubernetes/base through its life, by
// the commands of the README.
func TestBase(t *testing.T) {
	readme := read(t, "deploy/kubernetes/README.md")
	forget(t, "etcd")
	step := func(name string, f func(t *testing.T)) {
		if !t.Run(name, f) {
			t.FailNow()
		}
	}
	var cluster memberList

	step("two commands", func(t *testing.T) {
		readme.run(t, "Two commands", 0)
		must(t, "kubectl label namespace etcd pod-security.kubernetes.io/enforce=restricted")
		allReady(t, "etcd", 3, 2*time.Minute)
		if out := readme.run(t, "Two commands", 1); !strings.Contains(out, "hello") {
			t.Fatalf("the key is not there: %s", out)
		}
		cluster = members(t, "etcd", "etcd-0")
		for _, m := range cluster.Members {
			want := fmt.Sprintf("http://%s.etcd.etcd.svc.cluster.local:", m.Name)
			if len(m.PeerURLs) != 1 || m.PeerURLs[0] != want+"2380" || len(m.ClientURLs) != 1 || m.ClientURLs[0] != want+"2379" {
				t.Errorf("member %s advertises %v and %v, want %s2380 and %s2379", m.Name, m.PeerURLs, m.ClientURLs, want, want)
			}
		}
		readme.run(t, "When it refuses", 0)
		if out := readme.run(t, "When it refuses", 1); !strings.Contains(out, "etcd-0") {
			t.Errorf("the log does not name the member: %s", out)
		}
	})

	// same checks that this is still the cluster of the beginning, with its data.
	same := func(t *testing.T, through string) {
		t.Helper()
		if now := members(t, "etcd", through); now.Header.ClusterID != cluster.Header.ClusterID || len(now.Members) != 3 {
			t.Errorf("cluster %x with %d members, want %x with 3", now.Header.ClusterID, len(now.Members), cluster.Header.ClusterID)
		}
		for name := range pods(t, "etcd") {
			if got := etcdctl(t, "etcd", name, "get greeting --print-value-only"); got != "hello" {
				t.Errorf("%s: the key is %q, want hello", name, got)
			}
		}
	}

	step("one pod deleted", func(t *testing.T) {
		before := pods(t, "etcd")["etcd-1"]
		must(t, "kubectl -n etcd delete pod etcd-1")
		after := allReady(t, "etcd", 3, 2*time.Minute)["etcd-1"]
		if after.Status.PodIP == before.Status.PodIP || after.Metadata.UID == before.Metadata.UID {
			t.Errorf("etcd-1 has the address %s as before, want another", after.Status.PodIP)
		}
		same(t, "etcd-1")
	})

	// Pods come back at once, at addresses that others had, while DNS still
	// gives out the old ones.
	step("all pods deleted under a DNS cache", func(t *testing.T) {
		control(t, "dns", "30")
		t.Cleanup(func() { control(t, "dns", "0") })
		held := map[string]string{}
		reused := false
		for round := 1; round <= 5 && !reused; round++ {
			for name, p := range pods(t, "etcd") {
				held[p.Status.PodIP] = name
			}
			must(t, "kubectl -n etcd delete pods --all --wait=false")
			eventually(t, 40*time.Second, "every pod is a new one", func() error {
				for name, p := range pods(t, "etcd") {
					if p.Metadata.DeletionTimestamp != nil || p.Status.PodIP == "" {
						return fmt.Errorf("%s is not", name)
					}
				}
				return nil
			})
			for name, p := range allReady(t, "etcd", 3, 3*time.Minute) {
				if was, ok := held[p.Status.PodIP]; ok && was != name {
					t.Logf("round %d: %s has the address %s, which was %s's", round, name, p.Status.PodIP, was)
					reused = true
				}
			}
			same(t, "etcd-0")
		}
		if !reused {
			t.Error("no address was used again by another member: the test did not test anything")
		}
	})

	step("configuration changed", func(t *testing.T) {
		before := pods(t, "etcd")
		dir := kustomization(t, "changed", "namespace: etcd\nresources: [../base]\ntransformers: [../parameters]\nconfigMapGenerator:\n- {name: etcd, behavior: merge, files: [etcd.yaml]}\n")
		must(t, "{ cat deploy/kubernetes/base/etcd.yaml; echo 'heartbeat-interval: 150'; echo 'election-timeout: 1500'; } > %s/etcd.yaml", dir)
		must(t, "kubectl apply -k %s", dir)
		lowest := 3
		eventually(t, 3*time.Minute, "every member has restarted", func() error {
			now, ready, old := pods(t, "etcd"), 0, 0
			for name, p := range now {
				if p.ready() {
					ready++
				}
				if p.Metadata.UID == before[name].Metadata.UID {
					old++
				}
			}
			lowest = min(lowest, ready)
			if old != 0 || ready != 3 || len(now) != 3 {
				return fmt.Errorf("%d old pods, %d ready", old, ready)
			}
			return nil
		})
		if lowest < 2 {
			t.Errorf("at worst %d members were ready, want 2", lowest)
		}
		same(t, "etcd-2")
		if out := must(t, "kubectl -n etcd logs etcd-0 -c etcd"); !strings.Contains(out, "150ms") && !strings.Contains(out, `"heartbeat-interval":"150`) {
			t.Error("etcd does not run with the changed heartbeat interval")
		}
	})

	step("scaled to five", func(t *testing.T) {
		shrink := func() {
			must(t, "kubectl -n etcd wait --for=delete pod/etcd-3 pod/etcd-4 --timeout=1m && kubectl -n etcd delete pvc data-etcd-3 data-etcd-4")
			must(t, "kubectl -n etcd rollout status statefulset/etcd --timeout=3m")
			allReady(t, "etcd", 3, 2*time.Minute)
			same(t, "etcd-0")
		}
		// The replicas alone: more records than members. Nobody is seeded.
		must(t, "kubectl -n etcd scale statefulset etcd --replicas=5")
		for _, name := range []string{"etcd-3", "etcd-4"} {
			var status int
			var message string
			eventually(t, time.Minute, name+" refuses", func() error {
				if status, message = pods(t, "etcd")[name].refusal(); status < 0 {
					return fmt.Errorf("it has not")
				}
				return nil
			})
			if status != 40 && status != 42 || !strings.Contains(message, " of 3 records") {
				t.Errorf("%s ended with %d, want a refusal of more records than members: %s", name, status, message)
			}
		}
		must(t, "kubectl -n etcd scale statefulset etcd --replicas=3")
		shrink()

		// The replicas and the members, as a kustomization does it.
		dir := kustomization(t, "five", "namespace: etcd\nresources: [../base]\ncomponents: [../components/members-5]\ntransformers: [../parameters]\n")
		must(t, "kubectl apply -k %s", dir)
		for _, name := range []string{"etcd-3", "etcd-4"} {
			message := refused(t, "etcd", name, 42, 2*time.Minute)
			if !strings.Contains(message, "member add") {
				t.Errorf("%s: the message does not say how to add a member: %s", name, message)
			}
		}
		must(t, "kubectl -n etcd delete pod etcd-0")
		eventually(t, 2*time.Minute, "an old member restarts beside the new ones", func() error {
			if p := pods(t, "etcd")["etcd-0"]; !p.ready() {
				return fmt.Errorf("%+v", p.Status)
			}
			return nil
		})
		// It warns, unless it was faster than its own record.
		out := must(t, "kubectl -n etcd logs etcd-0 -c etcdinit")
		if !strings.Contains(out, "stored 3 members, discovered 5") && !strings.Contains(out, "of 5 SRV records") {
			t.Errorf("the old member does not tell of the new ones: %s", out)
		}
		must(t, "kubectl apply -k deploy/kubernetes/base")
		shrink()
	})

	step("node crash", func(t *testing.T) {
		before := pods(t, "etcd")
		control(t, "crash")
		control(t, "boot")
		eventually(t, 3*time.Minute, "every member is back", func() error {
			for name, p := range pods(t, "etcd") {
				was := before[name]
				if !p.ready() || p.Metadata.UID == was.Metadata.UID && p.Status.ContainerStatuses[0].RestartCount == was.Status.ContainerStatuses[0].RestartCount {
					return fmt.Errorf("%s: %+v", name, p.Status)
				}
			}
			return nil
		})
		same(t, "etcd-1")
	})

	step("one volume lost", func(t *testing.T) {
		must(t, "kubectl -n etcd delete pvc data-etcd-2 --wait=false && kubectl -n etcd delete pod etcd-2")
		message := refused(t, "etcd", "etcd-2", 42, 2*time.Minute)
		for _, want := range []string{"member remove", "member add"} {
			if !strings.Contains(message, want) {
				t.Errorf("the message does not say %q: %s", want, message)
			}
		}
		if out := readme.run(t, "When it refuses", 0); !strings.Contains(out, "etcd-2\t42\t") {
			t.Errorf("the README's command does not show the refusal: %s", out)
		}
		// The others serve on.
		etcdctl(t, "etcd", "etcd-0", "put meanwhile written")
		readme.run(t, "A volume is lost", 0)
		allReady(t, "etcd", 3, 2*time.Minute)
		same(t, "etcd-2")
		if got := etcdctl(t, "etcd", "etcd-2", "get meanwhile --print-value-only --consistency=s"); got != "written" {
			t.Errorf("etcd-2 does not have what was written meanwhile: %q", got)
		}
		for _, m := range members(t, "etcd", "etcd-0").Members {
			if m.IsLearner {
				t.Errorf("%s is still a learner", m.Name)
			}
		}
	})

	step("the README is complete", func(t *testing.T) {
		readme.run(t, "What to change", 0)
		readme.elsewhere("One container a member", 0) // e2e/docker/run.sh
		readme.elsewhere("One container a member", 1) // TestExec
		must(t, "kubectl delete namespace etcd --timeout=90s")
		reclaim(t)
		readme.run(t, "Members with names", 0)
		allReady(t, "etcd", 3, 2*time.Minute)
		readme.complete(t)
	})
}
