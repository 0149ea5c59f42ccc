# lab.sh: machines for run.sh: real systemd as PID 1 of booted roots (systemd-nspawn), each in a
# network namespace of its own, on one bridge with a DNS server. To be sourced.
#
# Everything is named after $lab and is gone after lab_down: processes, mounts, namespaces, cgroups.
# shellcheck shell=bash

lab=etcdinit-sd-$$
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/$lab-XXXXXX")
declare -A booted # machine → the process of its systemd-nspawn
machines=() # those that "every" speaks to
nameserver=

fail() { echo "e2e/systemd: $*" >&2; exit 1; }
step() { echo "e2e/systemd: $(printf '%4d s' $SECONDS)  $*"; }

# lab_root FILE: a Debian root with systemd, as a tar archive; kept, for it takes a minute.
lab_root() {
	[ ! -s "$1" ] || return 0
	mkdir -p "$(dirname "$1")"
	mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,dbus,iproute2,adduser bookworm "$dir/root.tar" >"$dir/mmdebstrap.log" 2>&1 ||
		{ tail -n 5 "$dir/mmdebstrap.log" >&2; fail "no Debian root could be made"; }
	mv "$dir/root.tar" "$1"
}

# lab_net N...: a switch and the namespaces of the machines 192.0.2.N and of the DNS
# server (192.0.2.53).
lab_net() {
	local n
	ip netns add "$lab-sw"
	ip -n "$lab-sw" link add name switch type bridge
	ip -n "$lab-sw" link set switch up
	for n in 53 "$@"; do
		ip netns add "$lab-$n"
		ip -n "$lab-$n" link add eth0 type veth peer name "p$n" netns "$lab-sw"
		ip -n "$lab-sw" link set "p$n" master switch up
		ip -n "$lab-$n" address add "192.0.2.$n/24" dev eth0
		ip -n "$lab-$n" link set lo up
		ip -n "$lab-$n" link set eth0 up
		ip -n "$lab-$n" route add default via 192.0.2.53
	done
}

# dns_up CONFIGURATION, dns_down: the DNS server.
dns_up() {
	ip netns exec "$lab-53" dnsmasq --keep-in-foreground --conf-file="$1" --user=root --pid-file --no-resolv --no-hosts --log-facility="$dir/dns.log" &
	nameserver=$!
}
dns_down() {
	[ -z "$nameserver" ] || { kill "$nameserver" 2>/dev/null || true; wait "$nameserver" 2>/dev/null || true; }
	nameserver=
}

# machine N: the root of a new machine 192.0.2.N over the common one.
machine() {
	mkdir -p "$dir/$1"/{upper,work,tree}
	mount -t overlay "$lab-$1" -o "lowerdir=$dir/base,upperdir=$dir/$1/upper,workdir=$dir/$1/work" "$dir/$1/tree"
	echo "host-$1" >"$dir/$1/tree/etc/hostname"
	printf '127.0.0.1 localhost\n127.0.1.1 host-%s\n' "$1" >"$dir/$1/tree/etc/hosts"
	echo 'nameserver 192.0.2.53' >"$dir/$1/tree/etc/resolv.conf"
}

# boot N: start its systemd, in a cgroup of its own.
boot() {
	(
		for tree in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
			[ -w "$tree/cgroup.procs" ] || continue
			mkdir -p "$tree/$lab-$1"
			echo "$BASHPID" >"$tree/$lab-$1/cgroup.procs"
		done
		exec setsid systemd-nspawn --quiet --register=no --keep-unit --machine="$lab-$1" -D "$dir/$1/tree" --network-namespace-path="/run/netns/$lab-$1" \
			--resolv-conf=off --timezone=off --link-journal=no --console=passive -b
	) >>"$dir/$1/console" 2>&1 </dev/null &
	booted[$1]=$!
}

# on N COMMAND...: run a command inside a machine, in a copy of the project's deploy folder.
on() {
	local machine=$1 init
	shift
	ran "${!#}"
	init=$(pgrep -P "${booted[$machine]}" | head -n 1) || return 75
	[ -n "$init" ] || return 75
	timeout 150 nsenter -t "$init" -m -u -i -n -p -C -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TERM=dumb SYSTEMD_PAGER=cat SYSTEMD_COLORS=0 sh -c 'cd /srv/etcdinit 2>/dev/null; exec "$@"' sh "$@"
}

# every COMMAND...: the same on all machines, at once.
every() {
	local n status=0 running=()
	for n in "${machines[@]}"; do on "$n" "$@" & running+=($!); done
	for n in "${running[@]}"; do wait "$n" || status=$?; done
	return $status
}

# until_ok SECONDS WHAT COMMAND...: wait for a command to succeed.
until_ok() {
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >"$dir/last" 2>&1; do
		[ $SECONDS -lt $end ] || { cat "$dir/last" >&2; fail "$what: not within the time"; }
		sleep 0.5
	done
}

# lab_down: end what was started.
lab_down() {
	local n
	dns_down
	for n in "${!booted[@]}"; do
		kill -KILL $(pgrep -P "${booted[$n]}") 2>/dev/null || true # its PID 1: the kernel ends the rest
		kill -KILL "${booted[$n]}" 2>/dev/null || true
		wait "${booted[$n]}" 2>/dev/null || true
	done
	awk -v dir="$dir/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
	for n in $(ip netns list | awk -v lab="$lab-" 'index($1, lab) == 1 { print $1 }'); do ip netns delete "$n"; done
	for _ in 1 2 3 4 5; do
		find /sys/fs/cgroup -depth -type d -path "*/$lab-*" -exec rmdir {} \; 2>/dev/null || true
		[ -n "$(find /sys/fs/cgroup -maxdepth 2 -name "$lab-*" 2>/dev/null)" ] || break
		sleep 0.3
	done
}
