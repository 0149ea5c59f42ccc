#!/usr/bin/env bash
# run.sh: init on arm64 and s390x, under qemu's user mode, against init on this machine.
#
# The WAL must be the same bytes everywhere. The db must be the same bytes wherever the byte
# order is the same; bbolt writes its pages in the machine's own byte order, so on s390x, a
# big-endian machine, what inspect prints of the two directories must be the same instead.
# The member is named by --self-ip: qemu hands a big-endian program netlink answers it cannot read,
# so that the list of network interfaces cannot be had there.
# Needs go, jq, qemu-aarch64-static and qemu-s390x-static.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/etcdinit-qemu-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "e2e/qemu: $*" >&2; exit 1; }

declare -A runner=([$(go env GOARCH)]='')
runner[arm64]=${runner[arm64]-qemu-aarch64-static}
runner[s390x]=${runner[s390x]-qemu-s390x-static}
here=$(go env GOARCH)

# etcdinit ARCH ARG...: run the program of that machine.
etcdinit() {
	local arch=$1
	shift
	${runner[$arch]:+"${runner[$arch]}"} "$work/etcdinit-$arch" "$@"
}

for arch in "$here" arm64 s390x; do
	[ -e "$work/etcdinit-$arch" ] || CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -o "$work/etcdinit-$arch" ./cmd/etcdinit
	etcdinit "$arch" init --data-dir "$work/$arch" --self-ip 192.0.2.2 --bootstrap-quorum none --initial-cluster-token qemu \
		--listen-peer-urls http://0.0.0.0:2380 --listen-client-urls http://0.0.0.0:2379 \
		--discovery 'static:?peer=a=http://192.0.2.1:2380&peer=b=http://192.0.2.2:2380&peer=c=http://192.0.2.3:2380' \
		>"$work/$arch.log" 2>&1 || { cat "$work/$arch.log" >&2; fail "init on $arch exits with an error"; }
	(cd "$work/$arch" && find . -mindepth 1 -printf '%P %y %m\n' | LC_ALL=C sort) >"$work/$arch.tree"
	(cd "$work/$arch" && find . -type f -name '*.wal' -exec sha256sum {} + | LC_ALL=C sort) >"$work/$arch.wal"
	(cd "$work/$arch" && sha256sum member/snap/db) >"$work/$arch.db"
	[ -s "$work/$arch.wal" ] || fail "init on $arch left no WAL"
	etcdinit "$arch" inspect --data-dir "$work/$arch" -o json | jq --arg dir "$work/$arch" 'walk(if type == "string" then gsub($dir; "DIR") else . end) | del(.. | .modified?)' >"$work/$arch.json"
	[ -s "$work/$arch.json" ] || fail "inspect on $arch prints nothing"
done

for arch in arm64 s390x; do
	[ "$arch" != "$here" ] || continue
	diff "$work/$here.tree" "$work/$arch.tree" || fail "$here and $arch write other files (lines above)"
	diff "$work/$here.wal" "$work/$arch.wal" || fail "$here and $arch write another WAL (lines above)"
	diff "$work/$here.json" "$work/$arch.json" || fail "inspect on $here and on $arch tells other things (lines above)"
	if [ "$arch" = s390x ]; then
		echo "ci: $arch: the WAL of $here byte for byte; the db says the same in the other byte order"
	else
		diff "$work/$here.db" "$work/$arch.db" || fail "$here and $arch write another db (lines above)"
		echo "ci: $arch: WAL and db of $here byte for byte"
	fi
done
