#!/usr/bin/env bash
# snippets.sh: the Ansible, the Ignition and the cloud-init snippet of deploy/systemd/README.md, read by the programs
# that their readers use: ansible-playbook checks the syntax and that the modules exist, butane
# translates, and what it makes holds the files that the README names.
#
# Needs ansible-playbook, ansible-doc, jq, gunzip, cloud-init, and butane (tools/build butane).
set -euo pipefail
cd "$(dirname "$0")/../.."
page=deploy/systemd/README.md
tools=${ETCDINIT_TOOLS_DIR:-$PWD/.cache/tools}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "e2e/systemd: $*" >&2; exit 1; }
# snippet START: the first yaml block after the line that starts so.
snippet() {
	awk -v start="$1" 'index($0, start) == 1 { f = 1 } f && /^```yaml/ { p = 1; next } p && /^```/ { exit } p' $page | grep . || fail "$page has no snippet after '$1'"
}

snippet Ansible: >"$work/play.yaml"
ansible-playbook --syntax-check -i etcd, "$work/play.yaml" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "ansible-playbook does not take the playbook"; }
modules=$(grep -o 'ansible\.builtin\.[a-z_]*' "$work/play.yaml" | sort -u)
for module in $modules; do ansible-doc -t module "$module" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "Ansible has no module $module"; }; done
for file in $(sed -n 's/^ *src: \(.*\)/\1/p' "$work/play.yaml"); do [ -f "$file" ] || fail "the playbook copies $file, which is not there"; done

# The places of the checksums stand for those of the reader's own downloads.
snippet Ignition, | sed "s/sha256-…/sha256-$(printf '%064d' 0)/" >"$work/etcd.bu"
"$tools/butane/butane" --strict --files-dir deploy/systemd "$work/etcd.bu" >"$work/etcd.ign" 2>"$work/log" || { cat "$work/log" >&2; fail "butane does not take the snippet"; }
jq -r '.storage.files[] | select(.path == "/etc/etcd/etcd.yaml").contents | select(.compression == "gzip").source | sub("^data:;base64,"; "")' "$work/etcd.ign" |
	base64 -d | gunzip | cmp - deploy/systemd/config-file/etcd.yaml || fail "the Ignition file does not hold etcd.yaml"
jq -j '.systemd.units[] | select(.name == "etcd.service" and .enabled).contents' "$work/etcd.ign" | cmp - deploy/systemd/exec/etcd.service || fail "the Ignition file does not hold etcd.service"

snippet cloud-init, >"$work/user-data"
cloud-init schema --config-file "$work/user-data" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "cloud-init does not take the user data"; }
python3 -c 'import sys, yaml; print(yaml.safe_load(open(sys.argv[1]))["write_files"][0]["content"], end="")' "$work/user-data" |
	diff - <(grep -v '^#' deploy/systemd/config-file/etcd.yaml) || fail "the user data hold another etcd.yaml than deploy/systemd/config-file"
echo "ci: cloud-init $(cloud-init --version 2>&1 | grep -oE '[0-9.]+' | head -n 1) takes the user data"
echo "ci: Ansible $(ansible-playbook --version | sed -n '1s/.*core \([0-9.]*\).*/\1/p') takes the playbook and has $(wc -w <<<"$modules") of its modules; butane --strict translates the Ignition snippet"
