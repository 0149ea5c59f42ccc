// Package kubernetes runs deploy/kubernetes and deploy/helm on a real
// Kubernetes: API server, controllers, scheduler, kubelet, containerd and
// CoreDNS on this machine, in a network namespace. run.sh starts it; the tests
// have the build tag kubernetes.
package kubernetes
