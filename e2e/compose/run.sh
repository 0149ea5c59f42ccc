#!/usr/bin/env bash
# run.sh: the compose file of deploy/compose with a real Docker engine: three members and CoreDNS,
# by docker-compose 1.29 and by Docker Compose 2 (tools/compose).
#
# The commands are those of deploy/compose/README.md, word for word and all of them. The engine runs
# in a network namespace and a folder of this run; both are gone at the end. No registry is asked:
# the images that the files name are made here.
#
# Needs root, dockerd, containerd, runc, docker, docker-compose, ip, iptables, go, jq, script, busybox (static).
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "e2e/compose: needs root" >&2; exit 20; }
tools=${ETCDINIT_TOOLS_DIR:-$PWD/.cache/tools}
lab=etcdinit-compose-$$
work=$(mktemp -d "${TMPDIR:-/tmp}/$lab-XXXXXX")
engine=
finish() {
	local try
	trap - EXIT INT TERM
	if [ -n "$engine" ]; then
		docker ps -aq 2>/dev/null | xargs -r docker rm -f >/dev/null 2>&1 || true
		kill "$engine" 2>/dev/null || true
		for try in $(seq 150); do
			kill -0 "$engine" 2>/dev/null || break
			[ "$try" != 150 ] || kill -KILL "$engine" 2>/dev/null || true
			sleep 0.1
		done
		wait "$engine" 2>/dev/null || true
	fi
	awk -v dir="$work/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
	ip netns delete "$lab" 2>/dev/null || true
	rm -rf "$work"
	exit "$1"
}
trap 'finish $?' EXIT
trap 'finish 130' INT
trap 'finish 143' TERM
fail() {
	echo "e2e/compose: $*" >&2
	[ ! -s "$work/last" ] || cat "$work/last" >&2
	docker-compose -f "$work/source/deploy/compose/docker-compose.yml" logs --tail=5 >&2 2>/dev/null || true
	exit 1
}
ran=$work/ran
# shellcheck source=e2e/readme.sh
. e2e/readme.sh
# shellcheck source=e2e/docker/builder.sh
. e2e/docker/builder.sh

mkdir -p "$work"/{root,run,bin,source,v2,config/cli-plugins}
ip netns add "$lab"
ip -n "$lab" link set lo up
nsenter --net="/run/netns/$lab" dockerd --host "unix://$work/docker.sock" --data-root "$work/root" --exec-root "$work/run" --pidfile "$work/docker.pid" \
	--bridge none --ip-masq=false >"$work/dockerd.log" 2>&1 &
engine=$!
export DOCKER_HOST=unix://$work/docker.sock DOCKER_CONFIG=$work/config DOCKER_BUILDKIT=0

# The images, under the names that the files and the README give.
CGO_ENABLED=0 go build -trimpath -o "$work/bin/" ./e2e/kubernetes/archive
readme=deploy/compose/README.md
etcd=$(sed -n 's/^ARG ETCD=//p' deploy/compose/Dockerfile) dns=$(sed -n 's/^ *image: \(coredns.*\)/\1/p' deploy/compose/docker-compose.yml)
other=$(block $readme images | sed -n 's/.* ETCD=\([^ ]*\).*/\1/p') released=$(block $readme images | sed -n 's/.* ETCDINIT=\([^ ]*\).*/\1/p')
"$work/bin/archive" "$etcd" "$work/etcd.tar" /usr/local/bin/etcd "$tools/etcd-3.6/etcd=/usr/local/bin/etcd" "$tools/etcd-3.6/etcdctl=/usr/local/bin/etcdctl"
"$work/bin/archive" "$other" "$work/other.tar" /usr/local/bin/etcd "$tools/etcd-3.5/etcd=/usr/local/bin/etcd" "$tools/etcd-3.5/etcdctl=/usr/local/bin/etcdctl"
"$work/bin/archive" "$dns" "$work/dns.tar" /coredns "$tools/coredns/coredns=/coredns"
for try in $(seq 100); do
	docker version >/dev/null 2>&1 && break
	if [ "$try" = 100 ] || ! kill -0 "$engine" 2>/dev/null; then tail -n 20 "$work/dockerd.log" >&2; fail "the engine did not come up"; fi
	sleep 0.2
done
for image in etcd other dns; do docker load -q -i "$work/$image.tar" >/dev/null; done
builder "$(sed -n 's/^ARG BUILDER=//p' Dockerfile)" GOPROXY=file:///modules/proxy 'GONOSUMDB=*'
echo "e2e/compose: $SECONDS s  the engine is up, with the images that the files name"

cp -r .dockerignore Dockerfile go.mod go.sum cmd discovery internal plugins seed "$work/source/"
mkdir "$work/source/deploy"
cp -r deploy/compose "$work/source/deploy/"
readme=$work/source/$readme
cd "$work/source"
# "docker compose in version 2", says the README.
ln -s "$tools/compose/docker-compose" "$work/config/cli-plugins/docker-compose"
printf '#!/bin/sh\nexec docker compose "$@"\n' >"$work/v2/docker-compose"
chmod 0755 "$work/v2/docker-compose"

# run NAME: commands of the README at a terminal, as they expect one; where they change the folder,
# the next ones are run there. What they printed is in $work/last.
run() {
	local text status=0
	text=$(block "$readme" "$1")
	ran "$text"
	# shellcheck disable=SC2016 # for the shell at the terminal
	README_TEXT=$text README_FOLDER=$work/folder SHELL=/bin/bash \
		script -qefc 'bash -ec "trap '\''pwd >\$README_FOLDER'\'' EXIT; eval \"\$README_TEXT\""' /dev/null </dev/null >"$work/last" 2>&1 || status=$?
	cd "$(cat "$work/folder")"
	return $status
}
# healthy: by the README's command.
healthy() {
	local try
	for try in $(seq 60); do
		run health && [ "$(grep -c 'is healthy' "$work/last")" = 3 ] && return 0
		sleep 1
	done
	fail "the cluster is not healthy"
}
# life: built, up, written to, stopped and started, a volume lost, gone; and again with other images.
life() {
	local try version
	cd "$work/source"
	run start || fail "the first commands fail"
	healthy
	docker-compose exec -T etcd-1 etcdctl put greeting hello >"$work/last" 2>&1 || fail "nothing can be written"
	echo "e2e/compose: $SECONDS s  three members are healthy"
	docker-compose stop -t 10 >"$work/last" 2>&1
	docker-compose up -d >"$work/last" 2>&1 || fail "compose up fails a second time"
	healthy
	[ "$(docker-compose exec -T etcd-3 etcdctl get --print-value-only greeting)" = hello ] || fail "the data are gone"
	echo "e2e/compose: $SECONDS s  stopped and started: the data are there"

	# A lost volume is refused.
	docker-compose rm -s -f etcd-1 >"$work/last" 2>&1
	docker volume rm compose_etcd-1 >/dev/null
	docker-compose up -d etcd-1 >"$work/last" 2>&1
	for try in $(seq 60); do
		run refused || fail "the commands that show a refusal fail"
		! grep -q '"status":42' "$work/last" || break
		[ "$try" != 60 ] || fail "a new volume is not refused with 42"
		sleep 1
	done
	grep -q 'member remove' "$work/last" || fail "the refusal does not say what to do"
	docker-compose down -v -t 1 >"$work/last" 2>&1 || fail "down fails"
	echo "e2e/compose: $SECONDS s  a lost volume is refused"

	docker tag etcdinit "$released"
	run images || fail "other images cannot be used"
	healthy
	version=$(docker-compose exec -T etcd-1 etcd --version | sed -n 's/^etcd Version: //p')
	[ "v$version" = "${other##*:}" ] || fail "etcd $version runs, and not ${other##*:}"
	docker-compose down -v -t 1 >"$work/last" 2>&1 || fail "down fails"
	echo "ci: Docker Compose $(docker-compose version --short): three members and CoreDNS healthy, back with their data, 42 for a lost volume; etcd $version by build arguments"
}
path=$PATH
for program in '' "$work/v2:"; do
	PATH=$program$path
	life
done
cd "$work/source"
complete deploy/compose/README.md
