#!/usr/bin/env bash
# run.sh: the units of deploy/systemd on real systemd: three booted Debian machines and a DNS server.
#
# First Debian's etcd-server, whose package starts a cluster of its own, then a current etcd with
# each of the other forms. The commands are those of deploy/systemd/README.md and
# deploy/packages/README.md, word for word and all of them.
#
#   ETCDINIT_SYSTEMD_ROOT  keep the Debian root in this archive (.cache/systemd/root.tar)
#
# Needs root, systemd-nspawn, mmdebstrap, dnsmasq, ip, nsenter, make, rpm, and apt-get for Debian's etcd.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "e2e/systemd: needs root" >&2; exit 20; }
tools=${ETCDINIT_TOOLS_DIR:-$PWD/.cache/tools}
# shellcheck source=e2e/systemd/lab.sh
. e2e/systemd/lab.sh
finish() {
	trap - EXIT INT TERM
	lab_down || true
	if [ "$1" = 0 ]; then rm -rf "$dir"; else
		for n in "${!booted[@]}"; do rm -rf "${dir:?}/$n"/{tree,work}; done
		rm -rf "${dir:?}"/{base,source}
		echo "e2e/systemd: the logs and what the machines wrote are in $dir" >&2
	fi
	exit "$1"
}
trap 'finish $?' EXIT
trap 'finish 130' INT
trap 'finish 143' TERM

readme=deploy/systemd/README.md
packages=deploy/packages/README.md
ran=$dir/ran
# shellcheck source=e2e/readme.sh
. e2e/readme.sh
by_address() { echo "http://192.0.2.${machines[0]}:2379,http://192.0.2.${machines[1]}:2379,http://192.0.2.${machines[2]}:2379"; }

# records: the README's records, for the machines of now.
records() {
	printf 'port=53\nlisten-address=192.0.2.53\nbind-interfaces\n' >"$dir/dns.conf"
	grep -E '^(local|srv-host|host-record)=' $readme | sed "s/192\.0\.2\.11/192.0.2.${machines[0]}/; s/192\.0\.2\.12/192.0.2.${machines[1]}/; s/192\.0\.2\.13/192.0.2.${machines[2]}/" >>"$dir/dns.conf"
	dns_down
	dns_up "$dir/dns.conf"
}

# start_machines [packaged]: boot them, each with the project's deploy folder and the binary,
# unless a package brings that.
start_machines() {
	local n
	for n in "${machines[@]}"; do
		machine "$n"
		[ "${1-}" = packaged ] || install -m 0755 "$dir/etcdinit" "$dir/$n/tree/usr/bin/etcdinit"
		mkdir -p "$dir/$n/tree/srv/etcdinit"
		cp -r deploy "$dir/$n/tree/srv/etcdinit/"
		boot "$n"
	done
	for n in "${machines[@]}"; do until_ok 60 "the boot of machine $n" on "$n" systemctl is-system-running; done
}

# healthy KEY: the three answer, are one cluster, and what the second was told as KEY the third knows.
healthy() {
	until_ok 60 "a healthy cluster" on "${machines[0]}" etcdctl endpoint health --endpoints="$(by_address)"
	[ "$(on "${machines[2]}" etcdctl --endpoints="http://192.0.2.${machines[2]}:2379" get --print-value-only "$1")" = "of $1" ] || fail "the key $1 is not there"
	[ "$(on "${machines[0]}" etcdctl --endpoints="http://192.0.2.${machines[0]}:2379" member list | cut -d , -f 3 | sort | tr -d '\n')" = ' etcd-1 etcd-2 etcd-3' ] || fail "not the three members of the records"
}
put() { on "${machines[1]}" etcdctl --endpoints="http://192.0.2.${machines[1]}:2379" put "$1" "of $1" >/dev/null || fail "the key $1 was not written"; }

# status_line UNIT STATUS N WORD...: systemctl status says the exit status, and one line the words.
status_line() {
	local unit=$1 status=$2 n=$3 word
	shift 3
	on "$n" systemctl status "$unit" --no-pager --full --lines=20 >"$dir/status" 2>&1 || true
	grep -qE "status=${status}[/)]" "$dir/status" || { cat "$dir/status" >&2; fail "systemctl status $unit does not show status $status"; }
	[ "$(grep -c '"level":"error"' "$dir/status")" = 1 ] || { cat "$dir/status" >&2; fail "not one line tells the error"; }
	for word in "$@"; do
		grep '"level":"error"' "$dir/status" | grep -qF -- "$word" || { cat "$dir/status" >&2; fail "the line does not say: $word"; }
	done
}

# printed: the commands of the refusal that status_line saw, a line each.
printed() { sed -n 's/^[^{]*\({.*"level":"error".*\)$/\1/p' "$dir/status" | jq -r '.commands[]'; }

# verified UNIT...: systemd-analyze verify has nothing to say.
verified() {
	local said
	said=$(on "${machines[0]}" systemd-analyze verify "$@" 2>&1 | grep -vE "Command 'man .*' failed" || true)
	[ -z "$said" ] || fail "systemd-analyze verify $*: $said"
}

# exposure UNIT TEXT: its score is the one that the README gives on the line that holds TEXT.
exposure() {
	local is
	is=$(on "${machines[0]}" systemd-analyze security --no-pager "$1" | sed -n 's/.*exposure level for [^:]*: \([0-9.]*\) .*/\1/p')
	echo "ci: exposure of $2: $is"
	grep -F "$2" $readme | grep -qF "| $is |" || { echo "e2e/systemd: $readme gives another exposure than $is for $2" >&2; exposed=1; }
}
exposed=0

# reboot_without_dns: all at once. etcdinit is through with it on each, and etcd runs; whether
# the members find each other is up to who else knows their names.
reboot_without_dns() {
	local n
	dns_down
	every systemctl reboot 2>/dev/null || true
	for n in "${machines[@]}"; do wait "${booted[$n]}" || true; boot "$n"; done
	for n in "${machines[@]}"; do
		until_ok 60 "etcd on machine $n after the reboot" on "$n" sh -c '[ "$(cat /proc/$(systemctl show etcd -P MainPID)/comm)" = etcd ]'
	done
}

# lose_disk UNIT: the second machine loses its disk and refuses.
lose_disk() {
	local n=${machines[1]}
	on "$n" systemctl stop etcd
	on "$n" sh -c 'rm -rf /var/lib/etcd/default'
	! on "$n" systemctl start etcd 2>/dev/null || fail "etcd starts on an empty disk"
	status_line "$1" 42 "$n" 'member remove' 'member add' etcd-2
	[ -z "$(on "$n" sh -c 'ls -A /var/lib/etcd/default 2>/dev/null')" ] || fail "something was written to the empty disk"
	# What the README shows it with.
	on "$n" sh -ec "$(block $readme "$1-status")" >"$dir/status.readme" 2>&1 || true
	grep -qE 'status=42[/)]' "$dir/status.readme" || { cat "$dir/status.readme" >&2; fail "the README's command does not show the status"; }
	on "$n" sh -ec "$(block $readme lines)" >"$dir/lines" || fail "the README's command for all lines fails"
	grep -q '"status":42' "$dir/lines" || { tail "$dir/lines" >&2; fail "the README's command for all lines does not show the refusal"; }
}

# heal: what the refusal of lose_disk says, by the README's commands.
heal() {
	local n=${machines[1]} commands
	mapfile -t commands < <(printed)
	[ ${#commands[@]} = 4 ] || fail "not four commands: ${commands[*]}"
	on "${machines[0]}" timeout 60 sh -ec "${commands[0]}
${commands[1]}" >"$dir/last" 2>&1 || { cat "$dir/last" >&2; fail "the member cannot be removed and added"; }
	[ "${commands[2]}" = "systemctl restart etcd.service" ] || fail "the service is not started again by: ${commands[2]}"
	on "$n" timeout 60 sh -ec "systemctl reset-failed etcd
${commands[2]}" >"$dir/last" 2>&1 || { cat "$dir/last" >&2; fail "the service does not start"; }
	on "$n" timeout 60 sh -ec "${commands[3]}" >"$dir/last" 2>&1 || { cat "$dir/last" >&2; fail "the new member is not promoted"; }
	healthy "$1"
}

# heal_alone: a disk is lost, and the same service brings its member back, by the setting that the README
# names.
heal_alone() {
	local n=${machines[2]} before after id='etcdctl --endpoints=http://localhost:2379 member list'
	before=$(on "${machines[0]}" sh -c "$id" | grep etcd-3 | cut -d , -f 1)
	on "$n" sh -ec 'mkdir -p /run/systemd/system/etcd.service.d
printf "[Service]\nEnvironment=ETCDINIT_IF_RUNNING=replace ETCDINIT_REPLACE_AFTER=5s\n" >/run/systemd/system/etcd.service.d/zz.conf
systemctl daemon-reload; systemctl stop etcd; rm -rf /var/lib/etcd/default'
	on "$n" sh -ec "$(block $readme promote)" || fail "the README's command for the promotion fails"
	on "$n" timeout 60 systemctl start etcd || { on "$n" systemctl status etcd --no-pager --full >&2; fail "the lost member does not come back by itself"; }
	until_ok 60 "the new member votes by itself" on "${machines[0]}" sh -ec "$id | grep etcd-3 | grep -q 'false$'"
	healthy "$1"
	after=$(on "${machines[0]}" sh -c "$id" | grep etcd-3 | cut -d , -f 1)
	[ "$before" != "$after" ] || fail "the member is back under its old ID"
	on "$n" sh -ec 'rm -rf /run/systemd/system/etcd.service.d; systemctl daemon-reload'
}

# advised STATUS: the command that the README's table has for a status.
advised() { sed -n "s/^| $1 .*\`\([^\`]*\)\` *|\$/\1/p; s/^| $1 .*\`\([^\`]*\)\`, or.*/\1/p" $readme | grep . || fail "$readme has no command for $1"; }

# two_rows: a missing directory and a process that holds it, by the commands of the README's table.
two_rows() {
	local n=${machines[1]}
	on "$n" sh -c 'systemctl stop etcd; mv /var/lib/etcd /var/lib/etcd.away'
	! on "$n" systemctl start etcd 2>/dev/null || fail "etcd starts without its directory"
	on "$n" systemctl status etcd >"$dir/last" || true
	grep -q 'status=226/' "$dir/last" || { cat "$dir/last" >&2; fail "a missing directory is not 226"; }
	on "$n" sh -ec "$(advised 226)"
	[ "$(on "$n" stat -c %U:%G:%a /var/lib/etcd)" = etcd:etcd:700 ] || fail "the README's command makes another directory"
	on "$n" sh -ec 'rmdir /var/lib/etcd; mv /var/lib/etcd.away /var/lib/etcd; systemctl reset-failed etcd; systemctl start etcd'
	on "$n" sh -ec "$(advised 32)" >"$dir/last" || { cat "$dir/last" >&2; fail "the README's command for 32 fails"; }
	grep -q '/usr/bin/etcd' "$dir/last" || { cat "$dir/last" >&2; fail "the README's command for 32 does not show the etcd that runs"; }
}

step "build"
lab_root "${ETCDINIT_SYSTEMD_ROOT:-$PWD/.cache/systemd/root.tar}"
mkdir "$dir/base"
tar -C "$dir/base" -xpf "${ETCDINIT_SYSTEMD_ROOT:-$PWD/.cache/systemd/root.tar}"
CGO_ENABLED=0 go build -trimpath -o "$dir/etcdinit" ./cmd/etcdinit
# here COMMANDS: on this machine, in a copy of the project. Its rpm has no database of packages here,
# and installs into the root of the machine $into.
mkdir "$dir/source"
cp -r Makefile LICENSE go.mod go.sum cmd discovery internal plugins seed deploy "$dir/source/"
mkdir "$dir/source/tools"
cp -r tools/build tools/packages tools/nfpm "$dir/source/tools/"
here() {
	ran "$1"
	(
		cd "$dir/source"
		export ETCDINIT_TOOLS_DIR=$tools SOURCE_DATE_EPOCH=$epoch
		rpm() { command rpm --root "$dir/$into/tree" --nodeps "$@"; }
		eval "$1"
	)
}
epoch=$(git log -1 --format=%ct 2>/dev/null || echo 0)
build=$(block $packages build)
for commands in "$build" "${build//1.0.0/1.0.1}"; do here "$commands" >"$dir/packages.log" 2>&1 || { cat "$dir/packages.log" >&2; fail "the packages cannot be built"; }; done
(cd "$dir" && apt-get -qq download etcd-server etcd-client >apt.log 2>&1) || { cat "$dir/apt.log" >&2; fail "Debian's etcd-server could not be fetched"; }
lab_net 11 12 13 21 22 23

machines=(11 12 13)
records
start_machines
step "booted: systemd $(on 11 systemctl --version | sed -n 's/^systemd \([0-9]*\).*/\1/p')"
for n in "${machines[@]}"; do cp "$dir"/etcd-*.deb "$dir/$n/tree/srv/"; done
every sh -c 'dpkg -i /srv/etcd-server*.deb /srv/etcd-client*.deb >/srv/dpkg.log 2>&1' || { on 11 cat /srv/dpkg.log >&2; fail "Debian's package does not install"; }
for n in "${machines[@]}"; do
	until_ok 30 "the cluster that the package starts" on "$n" sh -c "systemctl is-active etcd && etcdctl --endpoints=http://localhost:2379 member list | grep host-$n"
done
exposure etcd.service "etcd.service as it comes"
step "Debian's etcd-server is installed and runs a cluster of one on each"
! every sh -ec "$(block $readme debian)" 2>/dev/null || fail "the cluster of Debian's package was taken for ours"
for n in "${machines[@]}"; do status_line etcd 43 "$n" "host-$n" '"commands":["systemctl stop etcd","mv /var/lib/etcd/default '; done
verified etcd.service
exposure etcd.service "(debian/etcdinit.conf)"
advice=$(printed)
step "refused with 43; followed: ${advice//$'\n'/; }"
every sh -ec "$advice"
every systemctl restart etcd || { on 11 systemctl status etcd --no-pager --full >&2; fail "etcd does not start"; }
on 11 sh -ec "$(block $readme health)" >/dev/null 2>&1 || fail "not healthy"
put debian
healthy debian
for n in "${machines[@]}"; do
	[ -z "$(on "$n" systemctl show etcd -P StatusText)" ] || fail "etcd runs, and its status still speaks of waiting"
	! on "$n" sh -ec "$(block $readme etcd-status)" | grep -q 'status=4' || fail "etcd runs, and its status shows a failure"
done
step "healthy: etcd $(on 11 etcd --version | sed -n 's/^etcd Version: //p')"
# With the names in the hosts file, etcd needs no DNS either.
hosts=$(sed -n 's/^host-record=\([^,]*\),\(.*\)/\2 \1/p' "$dir/dns.conf")
every sh -c "echo '$hosts' >>/etc/hosts"
reboot_without_dns
healthy debian
step "all rebooted without DNS: healthy, the data are there"
records
two_rows
healthy debian
lose_disk etcd
step "a lost disk is refused with 42"
every systemctl poweroff 2>/dev/null || true
for n in "${machines[@]}"; do wait "${booted[$n]}" || true; unset "booted[$n]"; done

machines=(21 22 23)
records
start_machines packaged
for n in "${machines[@]}"; do
	install -m 0755 "$tools"/etcd-3.7/{etcd,etcdctl} "$dir/$n/tree/usr/bin/"
	mkdir -p "$dir/$n/tree/srv/etcdinit/dist/packages"
	cp "$dir"/source/dist/packages/*.deb "$dir/$n/tree/srv/etcdinit/dist/packages/"
done
# README.md has the same command, in the folder of the file.
grep -qF "\`$(block $packages deb | sed 's|dist/packages/||')\`" README.md || fail "README.md installs the package by another command than $packages"
every sh -c "$(block $packages deb)" >"$dir/dpkg" 2>&1 || { cat "$dir/dpkg" >&2; fail "the .deb does not install"; }
[ "$(on 21 stat -c %U:%G:%a /var/lib/etcd)" = etcd:etcd:700 ] || fail "the .deb made no directory of etcd's"
on 21 etcdinit version | grep -qF v1.0.0 || fail "the .deb brings another version: $(on 21 etcdinit version)"
[ "$(on 21 systemctl is-enabled etcdinit)" = disabled ] || fail "the .deb enables a service"
step "booted three more, with etcd $("$tools/etcd-3.7/etcd" --version | sed -n 's/^etcd Version: //p')"

# A lone machine waits for the others, longer than systemd gives it; one whose messages systemd
# ignores is ended.
for n in 21 22; do
	on "$n" sh -ec "$(block $readme config-file | sed 's/ && systemctl enable --now etcd//')"
	on "$n" sh -c 'mkdir -p /run/systemd/system/etcd.service.d && printf "[Service]\nTimeoutStartSec=6\n" >/run/systemd/system/etcd.service.d/zz.conf'
done
on 22 sh -c 'echo "NotifyAccess=none" >>/run/systemd/system/etcd.service.d/zz.conf'
for n in 21 22; do on "$n" sh -c 'systemctl daemon-reload; systemctl start --no-block etcd'; done
verified etcd.service
exposure etcd.service "(config-file/etcdinit.conf)"
until_ok 30 "the end of a start that asks for no time" on 22 sh -c '[ "$(systemctl show etcd -P Result)" = timeout ]'
sleep 6
[ "$(on 21 systemctl show etcd -P ActiveState)" = activating ] || fail "systemd ended a start that asked for more time"
on 21 systemctl show etcd -P StatusText | grep -q '^etcdinit: waiting: ' || fail "the status does not say what is waited for"
step "alone: $(on 21 systemctl show etcd -P StatusText | cut -c 1-100)"
every sh -c 'systemctl stop etcd 2>/dev/null; rm -rf /run/systemd/system/etcd.service.d; systemctl daemon-reload; systemctl reset-failed' || true

clear_machines() {
	every sh -c 'systemctl disable --now etcd etcdinit 2>/dev/null; rm -rf /etc/systemd/system/etcd* /var/lib/etcd/* /run/etcdinit; systemctl daemon-reload; systemctl reset-failed' || true
	records
}

# upgrade: the new .deb on machines that run etcd with the old one's unit enabled.
upgrade() {
	local before
	before=$(on 21 systemctl show etcd -P MainPID)
	every sh -c "$(block $packages deb | sed 's/1\.0\.0/1.0.1/')" >"$dir/dpkg" 2>&1 || { cat "$dir/dpkg" >&2; fail "the .deb does not upgrade"; }
	[ "$(on 21 systemctl show etcd -P MainPID)" = "$before" ] || fail "the upgrade restarted etcd"
	[ "$(on 21 systemctl is-enabled etcdinit)" = enabled ] || fail "the upgrade disabled etcdinit.service"
	on 21 etcdinit version | grep -qF v1.0.1 || fail "the upgrade brought no new version"
	on 21 systemctl restart etcd || fail "etcd does not start after the upgrade"
	healthy oneshot
}

for form in config-file oneshot exec; do
	unit=etcd
	[ $form = config-file ] || clear_machines
	case $form in
	oneshot)
		unit=etcdinit
		every sh -ec "install -D -m 0644 deploy/systemd/config-file/etcd.service /etc/systemd/system/etcd.service"
		;;
	esac
	every sh -ec "$(block $readme $form)" 2>"$dir/enable" || { cat "$dir/enable" >&2; on 21 systemctl status etcd etcdinit --no-pager --full >&2; fail "$form: the commands fail"; }
	put $form
	healthy $form
	verified etcd.service
	case $form in
	oneshot) verified etcdinit.service; exposure etcdinit.service "(oneshot/etcdinit.service)" ;;
	exec) exposure etcd.service "(exec/etcd.service)" ;;
	esac
	[ "$(on 21 stat -c %U:%a /var/lib/etcd)" = etcd:700 ] || fail "$form: /var/lib/etcd is $(on 21 stat -c %U:%a /var/lib/etcd)"
	reboot_without_dns
	records
	healthy $form
	[ $form != oneshot ] || upgrade
	lose_disk $unit
	if [ $form = config-file ]; then
		heal $form
		step "the lost member is back, by the refusal's own commands"
		heal_alone $form
		step "another lost member is back, by itself"
	fi
	case $form in
	oneshot | exec) [ "$(on 22 systemctl show $unit -P NRestarts)" = 0 ] || fail "$form: 42 was tried again" ;;
	esac
	step "$form: healthy, healthy after a reboot without DNS, 42 for a lost disk"
done
# What passes by itself is tried again; here the records are not there in time.
clear_machines
dns_down
on 21 sh -ec "$(block $readme exec | sed 's/ && systemctl enable --now etcd//')
mkdir -p /run/systemd/system/etcd.service.d
printf '[Service]\nEnvironment=ETCDINIT_TIMEOUT=1s\nRestartSec=1s\n' >/run/systemd/system/etcd.service.d/zz.conf
systemctl daemon-reload; systemctl start --no-block etcd"
until_ok 40 "a second try after 30" on 21 sh -c '[ "$(systemctl show etcd -P NRestarts)" -ge 2 ] && [ "$(systemctl show etcd -P ExecMainStatus)" = 30 ]'
step "exec: 30 is tried again"
# Purged, with the oneshot enabled: nothing of etcd's is lost, and nothing dangles.
on 21 sh -c "echo data >/var/lib/etcd/kept; systemctl enable etcdinit" 2>/dev/null
on 21 sh -c "$(block $packages purge)" >"$dir/dpkg" 2>&1 || { cat "$dir/dpkg" >&2; fail "the .deb does not purge"; }
[ "$(on 21 cat /var/lib/etcd/kept)" = data ] || fail "the purge took data along"
on 21 getent passwd etcd >/dev/null || fail "the purge took the user along, whose the data are"
[ -z "$(on 21 sh -c 'ls -d /usr/bin/etcdinit /etc/systemd/system/etcd.service.requires/etcdinit.service /usr/share/doc/etcdinit /usr/share/man/man8/etcdinit* 2>/dev/null')" ] || fail "the purge left something"
step "the .deb: installed, upgraded under a running etcd, purged; the data stay"

# The .rpm, into roots of their own; a bare one has no /proc, as that of an image in the making.
machine 32
into=32
here "$(block $packages rpm)" 2>"$dir/rpm" && ! grep -q 'scriptlet failed' "$dir/rpm" || { cat "$dir/rpm" >&2; fail "the .rpm does not install into a bare root"; }
machine 31
mount -t proc proc "$dir/31/tree/proc"
into=31
here "$(block $packages rpm)" || fail "the .rpm does not install"
[ "$(chroot "$dir/31/tree" stat -c %U:%G:%a /var/lib/etcd)" = etcd:etcd:700 ] || fail "the .rpm's script made no user or directory"
rpm --root "$dir/31/tree" -V --nodeps etcdinit || fail "the .rpm's files are not what it says"
rpm --root "$dir/31/tree" --nodeps -U "$dir"/source/dist/packages/etcdinit-1.0.1-1.*.rpm || fail "the .rpm does not upgrade"
chroot "$dir/31/tree" etcdinit version | grep -qF v1.0.1 || fail "the .rpm's upgrade brought no new version"
here "$(block $packages rpm-remove)" || fail "the .rpm does not go"
[ ! -e "$dir/31/tree/usr/bin/etcdinit" ] || fail "the .rpm left its program"
[ -d "$dir/31/tree/var/lib/etcd" ] || fail "the .rpm took data along"
step "the .rpm: installed with its scripts, upgraded, removed"
complete $readme
complete $packages
[ $exposed = 0 ] || fail "an exposure differs from the README's"
echo "ci: three machines with systemd $(on 21 systemctl --version | sed -n 's/^systemd \([0-9]*\).*/\1/p'): Debian's etcd 3.4 from its package's own cluster, etcd 3.7 as config-file, oneshot and exec"
