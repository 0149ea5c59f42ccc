#!/usr/bin/env bash
# run.sh: the compose file of deploy/compose with a real Docker engine: three members and CoreDNS,
# by docker-compose 1.29 and by Docker Compose 2 (tools/compose).
#
# The engine runs in a network namespace and a folder of this run; both are gone at the end.
#
# Needs root, dockerd, containerd, runc, docker, docker-compose, ip, iptables, go.
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
	compose -f "$work/compose/docker-compose.yml" logs --tail=5 >&2 2>/dev/null || true
	exit 1
}

mkdir -p "$work"/{root,run,bin}
ip netns add "$lab"
ip -n "$lab" link set lo up
nsenter --net="/run/netns/$lab" dockerd --host "unix://$work/docker.sock" --data-root "$work/root" --exec-root "$work/run" --pidfile "$work/docker.pid" \
	--bridge none --ip-masq=false >"$work/dockerd.log" 2>&1 &
engine=$!
export DOCKER_HOST=unix://$work/docker.sock DOCKER_CONFIG=$work/config DOCKER_BUILDKIT=0

# The images, under the names that the files give.
CGO_ENABLED=0 go build -trimpath -o "$work/bin/" ./cmd/etcdinit ./e2e/kubernetes/archive
etcd=$(sed -n 's/^ARG ETCD=//p' deploy/compose/Dockerfile) dns=$(sed -n 's/^ *image: \(coredns.*\)/\1/p' deploy/compose/docker-compose.yml)
"$work/bin/archive" etcdinit:latest "$work/etcdinit.tar" /etcdinit "$work/bin/etcdinit=/etcdinit"
"$work/bin/archive" "$etcd" "$work/etcd.tar" /usr/local/bin/etcd "$tools/etcd-3.6/etcd=/usr/local/bin/etcd" "$tools/etcd-3.6/etcdctl=/usr/local/bin/etcdctl"
"$work/bin/archive" "$dns" "$work/dns.tar" /coredns "$tools/coredns/coredns=/coredns"
for try in $(seq 100); do
	docker version >/dev/null 2>&1 && break
	if [ "$try" = 100 ] || ! kill -0 "$engine" 2>/dev/null; then tail -n 20 "$work/dockerd.log" >&2; fail "the engine did not come up"; fi
	sleep 0.2
done
for image in etcdinit etcd dns; do docker load -q -i "$work/$image.tar" >/dev/null; done

cp -r deploy/compose "$work/compose"
cd "$work/compose"
# compose is one of the two programs: docker-compose, or docker compose.
compose() { "$program" "$@"; }
# healthy: by the README's command.
healthy() {
	local try
	for try in $(seq 60); do
		compose exec -T etcd-1 etcdctl endpoint health --cluster >"$work/last" 2>&1 && [ "$(grep -c 'is healthy' "$work/last")" = 3 ] && return 0
		sleep 1
	done
	fail "the cluster is not healthy"
}
# life: up, written to, stopped and started, a volume lost, gone.
life() {
	compose up -d --build >"$work/last" 2>&1 || fail "compose up fails"
	healthy
	compose exec -T etcd-1 etcdctl put greeting hello >"$work/last" 2>&1 || fail "nothing can be written"
	echo "e2e/compose: $SECONDS s  three members are healthy"
	compose stop -t 10 >"$work/last" 2>&1
	compose up -d >"$work/last" 2>&1 || fail "compose up fails a second time"
	healthy
	[ "$(compose exec -T etcd-3 etcdctl get --print-value-only greeting)" = hello ] || fail "the data are gone"
	echo "e2e/compose: $SECONDS s  stopped and started: the data are there"

	# A lost volume is refused.
	compose rm -s -f etcd-2 >"$work/last" 2>&1
	docker volume rm compose_etcd-2 >/dev/null
	compose up -d etcd-2 >"$work/last" 2>&1
	for try in $(seq 60); do
		compose logs --no-color --tail=1 etcd-2 >"$work/last" 2>&1
		! grep -q '"status":42' "$work/last" || break
		[ "$try" != 60 ] || fail "a new volume is not refused with 42"
		sleep 1
	done
	grep -q 'member remove' "$work/last" || fail "the refusal does not say what to do"
	echo "ci: Docker Compose $(compose version --short): three members and CoreDNS healthy, back with their data, 42 for a lost volume"
	compose down -v -t 1 >"$work/last" 2>&1 || fail "down fails"
}
for program in docker-compose "$tools/compose/docker-compose"; do life; done
