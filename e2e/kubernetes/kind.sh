#!/usr/bin/env bash
# kind.sh: the manifests on a kind cluster: three members, a key written and read, a lost volume refused
# with 42. The whole of it, on every variant, is run.sh, which needs no kind.
#
# Needs docker, kind and kubectl.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=etcdinit-$$
work=$(mktemp -d)
export KUBECONFIG=$work/kubeconfig
trap 'kind delete cluster --name "$name" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
fail() { echo "kind: $*" >&2; kubectl -n etcd get pods -o wide >&2 || true; kubectl -n etcd logs -l app.kubernetes.io/name=etcd --all-containers --prefix --tail=20 >&2 || true; exit 1; }

image=$(sed -n 's/^ *image: \(ghcr.io[^ ]*etcdinit\)$/\1/p' deploy/kubernetes/base/statefulset.yaml)
tag=$(kubectl kustomize deploy/kubernetes/base | sed -n "s|^ *image: \($image.*\)|\1|p")
docker build -t "$tag" .
kind create cluster --name "$name" --wait 2m
kind load docker-image --name "$name" "$tag"
# README.md's commands, word for word.
bash -euc "$(sed -n '/^<!-- run: deploy\/kubernetes -->$/,/^```$/{/^kubectl/p}' README.md)"
kubectl -n etcd rollout status statefulset/etcd --timeout=5m || fail "the members do not become ready"
kubectl -n etcd exec etcd-0 -c etcd -- etcdctl put greeting hello
[ "$(kubectl -n etcd exec etcd-2 -c etcd -- etcdctl get --print-value-only greeting)" = hello ] || fail "the key is not there"
kubectl -n etcd delete pvc data-etcd-1 --wait=false
kubectl -n etcd delete pod etcd-1
status() { kubectl -n etcd get pod etcd-1 -o jsonpath='{.status.initContainerStatuses[0].state.terminated.exitCode}{.status.initContainerStatuses[0].lastState.terminated.exitCode}'; }
for _ in $(seq 60); do [[ "$(status)" != *42* ]] || break; sleep 2; done
[[ "$(status)" = *42* ]] || fail "a lost volume is not refused with 42"
echo "ci: kind: three members from the manifests; a lost volume is refused with 42"
