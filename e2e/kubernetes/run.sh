#!/usr/bin/env bash
# run.sh [up | GO-TEST-FLAG...]: bring up a real Kubernetes and test the manifests and the chart on it.
#
# Without arguments every test runs; flags such as -test.run Base go to the test program. "up"
# stops before the tests and prints how to use the cluster and how to take it down. Our images are
# built from the Dockerfile by a real Docker engine (e2e/docker/images.sh).
#
#   ETCDINIT_K8S_BENCH=1    measure the time to a quorum as well
#   ETCDINIT_K8S_OUT        where its table and plot go (.cache/kubernetes)
#
# Needs root, containerd, runc, the CNI plugins, openssl, jq, iproute2, and for the image dockerd.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
export ETCDINIT_TOOLS_DIR=${ETCDINIT_TOOLS_DIR:-$root/.cache/tools}
[ "$(id -u)" = 0 ] || { echo "e2e/kubernetes: needs root" >&2; exit 20; }
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/etcdinit-k8s-XXXXXX")
cluster=$root/e2e/kubernetes/cluster
tests=
finish() {
	trap - EXIT INT TERM
	local status=$1
	[ -z "$tests" ] || kill "$tests" 2>/dev/null || true
	"$cluster" down "$dir" || status=1
	if [ "$status" = 0 ]; then rm -rf "$dir"; else rm -rf "${dir:?}"/{ctrd*,kubelet*,pv,etcd,source,images}; echo "e2e/kubernetes: the logs are in $dir/log" >&2; fi
	exit "$status"
}
trap 'finish $?' EXIT
trap 'finish 130' INT
trap 'finish 143' TERM

mkdir -p "$dir/images" "$dir/bin" "$dir/source"
CGO_ENABLED=0 go build -trimpath -o "$dir/images/" ./e2e/kubernetes/archive ./e2e/kubernetes/pause
"$dir/images/archive" localhost/pause:1 "$dir/images/pause.tar" /pause "$dir/images/pause=/pause"
bash e2e/docker/images.sh | tee "$dir/images/log"
cp "$(tail -n 1 "$dir/images/log")"/*.tar "$dir/images/"

cp -r deploy "$dir/source/"
mkdir -p "$dir/source/plugins"
cp -r plugins/kubernetes "$dir/source/plugins/"
ln -sfn "$ETCDINIT_TOOLS_DIR/helm/helm" "$dir/bin/helm"
go test -c -tags kubernetes -o "$dir/bin/tests" ./e2e/kubernetes
"$cluster" up "$dir"
for image in "$dir"/images/*.tar; do "$cluster" load "$dir" "$image"; done

if [ "${1-}" = up ]; then
	trap - EXIT INT TERM
	echo "use it:       $cluster run $dir kubectl get pods -A"
	echo "take it down: $cluster down $dir && rm -rf $dir"
	exit 0
fi
export ETCDINIT_K8S_DIR=$dir ETCDINIT_K8S_OUT=${ETCDINIT_K8S_OUT-$root/.cache/kubernetes}
mkdir -p "$ETCDINIT_K8S_OUT"
status=0
cd e2e/kubernetes
"$cluster" run "$dir" "$dir/bin/tests" -test.v -test.timeout "${ETCDINIT_K8S_TIMEOUT:-25m}" "$@" &
tests=$!
wait $tests || status=$?
finish $status
