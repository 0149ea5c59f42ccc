#!/usr/bin/env bash
# run.sh: build the image of the Dockerfile and use it, with a Docker engine of its own.
#
# The engine runs from Debian's docker.io package in a folder of this run, without a bridge
# and without a firewall rule, and is gone at the end, as are its mounts. The builder image is
# made here from this machine's Go and module cache, so the build needs no network.
#
#   ETCDINIT_IMAGE_ARCHIVE  keep the image as this docker archive
#   ETCDINIT_IMAGE_NAME     under this name (etcdinit:test)
#   ETCDINIT_PLUGIN         a plugin's binary: make an image with it too
#   ETCDINIT_PLUGIN_NAME    the name of that image
#   ETCDINIT_PLUGIN_ARCHIVE keep it as this docker archive
#   ETCDINIT_ETCD_ARCHIVE   docker archive of an image of etcd: make one with both programs too
#   ETCDINIT_BOTH_NAME      the name of the image with both
#   ETCDINIT_BOTH_ARCHIVE   keep it as this docker archive
#
# Needs root, dockerd, containerd, runc, go, jq, and busybox (static).
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/etcdinit-docker-XXXXXX")
engine=

# stop ends the engine that this script started and removes what it mounted.
stop() {
	local try
	trap - EXIT
	if [ -n "$engine" ] && kill "$engine" 2>/dev/null; then
		for try in $(seq 150); do
			kill -0 "$engine" 2>/dev/null || break
			[ "$try" != 150 ] || kill -KILL "$engine"
			sleep 0.1
		done
		wait "$engine" 2>/dev/null || true
	fi
	awk -v dir="$work/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
	rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
fail() { echo "e2e/docker: $*" >&2; exit 1; }
# shellcheck source=e2e/docker/builder.sh
. e2e/docker/builder.sh
image=${ETCDINIT_IMAGE_NAME:-etcdinit:test}

mkdir -p "$work"/{root,run,data}
dockerd --host "unix://$work/docker.sock" --data-root "$work/root" --exec-root "$work/run" --pidfile "$work/docker.pid" \
	--bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false >"$work/dockerd.log" 2>&1 &
engine=$!
export DOCKER_HOST=unix://$work/docker.sock DOCKER_CONFIG=$work/config DOCKER_BUILDKIT=0
for try in $(seq 100); do
	docker version >/dev/null 2>&1 && break
	if [ "$try" = 100 ] || ! kill -0 "$engine" 2>/dev/null; then
		tail -n 20 "$work/dockerd.log" >&2
		fail "the engine did not come up"
	fi
	sleep 0.2
done
echo "e2e/docker: engine $(docker version -f '{{.Server.Version}}')"

builder etcdinit-builder:test

version=v0.0.0-image revision=$(git rev-parse HEAD 2>/dev/null || echo none)
start=$SECONDS
docker build --network none --build-arg BUILDER=etcdinit-builder:test --build-arg GOPROXY=file:///modules/proxy \
	--build-arg GONOSUMDB='*' --build-arg VERSION=$version --build-arg REVISION="$revision" -t "$image" . >"$work/build.log" 2>&1 ||
	{ cat "$work/build.log" >&2; fail "the image does not build"; }
echo "e2e/docker: built in $((SECONDS - start)) s"

inspect() { docker image inspect -f "$1" "$image"; }
want() { [ "$2" = "$3" ] || fail "$1 is '$2', want '$3'"; }
size=$(inspect '{{.Size}}')
[ "$size" -le 20000000 ] || fail "the image has $size bytes, want 20000000 at most"
want user "$(inspect '{{.Config.User}}')" 65532:65532
want entrypoint "$(inspect '{{json .Config.Entrypoint}}')" '["/etcdinit"]'
want layers "$(inspect '{{len .RootFS.Layers}}')" 1
want 'the label version' "$(inspect '{{index .Config.Labels "org.opencontainers.image.version"}}')" $version
want 'the label revision' "$(inspect '{{index .Config.Labels "org.opencontainers.image.revision"}}')" "$revision"
want 'the label licenses' "$(inspect '{{index .Config.Labels "org.opencontainers.image.licenses"}}')" Apache-2.0

# A read-only root, no /tmp, no capability, no network but loopback.
run() { docker run --rm --read-only --network none --cap-drop ALL --security-opt no-new-privileges -v "$work/data:/data" "$image" "$@"; }
run version >"$work/version" || fail "version exits with $?"
grep -qF $version "$work/version" || fail "version does not say $version: $(cat "$work/version")"
# README.md's command, word for word; the image is here under the name that it gives.
command=$(grep -o '`docker run [^`]*`' README.md | tr -d '`')
docker tag "$image" "$(grep -o 'ghcr.io[^ ]*' <<<"$command")"
bash -euc "$command" | grep -qF $version || fail "README.md's command does not show the version: $command"
chown 65532:65532 "$work/data"
init=(init --data-dir /data/etcd --discovery 'static:?peer=a=http://127.0.0.1:2380' --initial-cluster-token image
	--listen-peer-urls http://127.0.0.1:2380 --listen-client-urls http://127.0.0.1:2379 --bootstrap-quorum none --env-file /data/etcd.env)
run "${init[@]}" || fail "init exits with $?"
want 'the owner of the data dir' "$(stat -c %u:%g:%a "$work/data/etcd/member")" 65532:65532:700
[ -f "$work/data/etcd/member/snap/db" ] || fail "init left no db"
before=$(cd "$work/data" && find . -type f -exec sha256sum {} + | sort | sha256sum)
run "${init[@]}" || fail "the second init exits with $?"
want 'the data dir after the second init' "$(cd "$work/data" && find . -type f -exec sha256sum {} + | sort | sha256sum)" "$before"
status=0
run init >"$work/refusal" 2>&1 || status=$?
want 'the exit status of init without a configuration' $status 20

# derive IMAGE BINARY: a plugin in a layer of its own, by the Dockerfile that plugins/README.md shows.
derive() {
	local context=$work/derived name
	name=$(basename "$2")
	mkdir -p "$context"
	cp "$2" "$context/$name"
	sed -n '/^```dockerfile$/,/^```$/{//!p}' plugins/README.md | sed "s#^FROM etcdinit\$#FROM $image#; s#hosts#$name#g" >"$context/Dockerfile"
	docker build --network none -t "$1" "$context" >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; fail "the image $1 does not build"; }
	image=$1 run plugins >"$work/plugins" || fail "plugins exits with $?"
	grep -Eq "^$name +[0-9.]+ +/opt/etcdinit/plugins/$name " "$work/plugins" || fail "the image $1 does not list its plugin: $(cat "$work/plugins")"
}
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$work/hosts" ./plugins/hosts
derive "$image-hosts" "$work/hosts"
printf '192.0.2.%s etcd-%s\n' 10 a 11 b 12 c >"$work/data/hosts"
image=$image-hosts run plugins test --size 3 hosts file=/data/hosts >"$work/plugins" || fail "plugins test exits with $?: $(cat "$work/plugins")"
echo "ci: a derived image lists the plugin that was copied into it, and the plugin keeps the contract"
echo "ci: image of $size bytes, one layer, user 65532; init wrote and kept its seed with a read-only root and without /tmp"
[ -z "${ETCDINIT_IMAGE_ARCHIVE-}" ] || docker save -o "$ETCDINIT_IMAGE_ARCHIVE" "$image"
if [ -n "${ETCDINIT_PLUGIN-}" ]; then
	derive "$ETCDINIT_PLUGIN_NAME" "$ETCDINIT_PLUGIN"
	docker save -o "$ETCDINIT_PLUGIN_ARCHIVE" "$ETCDINIT_PLUGIN_NAME"
fi
if [ -n "${ETCDINIT_ETCD_ARCHIVE-}" ]; then
	docker load -q -i "$ETCDINIT_ETCD_ARCHIVE" >/dev/null
	# The command of the README, word for word; both images that it names are here.
	command=$(grep "^docker build -t $ETCDINIT_BOTH_NAME --build-arg ETCDINIT=$image " deploy/kubernetes/README.md) || fail "deploy/kubernetes/README.md does not build $ETCDINIT_BOTH_NAME from $image"
	bash -euc "$command" >"$work/build.log" 2>&1 ||
		{ cat "$work/build.log" >&2; fail "the image $ETCDINIT_BOTH_NAME does not build"; }
	docker save -o "$ETCDINIT_BOTH_ARCHIVE" "$ETCDINIT_BOTH_NAME"
fi
