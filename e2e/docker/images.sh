#!/usr/bin/env bash
# images.sh: build and test the image of the Dockerfile (run.sh), one with the plugin kubernetes,
# and one with etcd (deploy/compose/Dockerfile), under the names that the manifests and the plugin's
# README give. Keeps them as docker archives, etcdinit.tar, plugin.tar and both.tar, and the image of
# etcd that they need as etcd.tar, in .cache/images/HASH, and prints that folder last. HASH covers the
# sources, so what has not changed is not built twice.
set -euo pipefail
cd "$(dirname "$0")/../.."
sum=$({
	go version
	git ls-files -z -co --exclude-standard -- cmd discovery internal plugins seed go.mod go.sum Dockerfile .dockerignore e2e/docker e2e/kubernetes/archive tools/etcd-3.6 \
		deploy/compose/Dockerfile deploy/kubernetes/README.md deploy/kubernetes/base/kustomization.yaml deploy/kubernetes/components/exec |
		while IFS= read -r -d '' file; do [ ! -f "$file" ] || sha256sum "$file"; done
} | sha256sum | cut -c1-16)
kept=$PWD/.cache/images/$sum
if [ ! -e "$kept/etcdinit.tar" ]; then
	mkdir -p .cache/images
	new=$(mktemp -d .cache/images/.new-XXXXXX)
	trap 'rm -rf "$new"' EXIT
	# image NAME: that of the manifests whose name ends so, with its tag.
	image() { sed -n "\|^ *- name: .*/$1\$|{s|^ *- name: ||;h;n;s|^ *newTag: ||;H;x;s|\n|:|p}" deploy/kubernetes/base/kustomization.yaml; }
	etcd=$(image etcd)
	both=$(sed -n 's|^ *newName: ||p' deploy/kubernetes/components/exec/kustomization.yaml):${etcd##*:}
	tool=${ETCDINIT_TOOLS_DIR:-$PWD/.cache/tools}/etcd-3.6
	built=$("$tool/etcd" --version | sed -n 's/etcd Version: //p')
	[ "${etcd##*:}" = "v$built" ] || { echo "e2e/docker: the manifests name $etcd, but tools/etcd-3.6 is $built" >&2; exit 1; }
	CGO_ENABLED=0 go build -trimpath -o "$new/archive" ./e2e/kubernetes/archive
	"$new/archive" "$etcd" "$new/etcd.tar" /usr/local/bin/etcd \
		"$tool/etcd=/usr/local/bin/etcd" "$tool/etcdctl=/usr/local/bin/etcdctl" "$tool/etcdutl=/usr/local/bin/etcdutl"
	(cd plugins/kubernetes && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$PWD/../../$new/kubernetes" .)
	ETCDINIT_IMAGE_NAME=$(image etcdinit) ETCDINIT_IMAGE_ARCHIVE=$new/etcdinit.tar \
		ETCDINIT_ETCD_ARCHIVE=$new/etcd.tar ETCDINIT_BOTH_NAME=$both ETCDINIT_BOTH_ARCHIVE=$new/both.tar \
		ETCDINIT_PLUGIN=$new/kubernetes ETCDINIT_PLUGIN_ARCHIVE=$new/plugin.tar \
		ETCDINIT_PLUGIN_NAME=$(sed -n 's|.*newName: \(.*\), newTag: \(.*\)}|\1:\2|p' plugins/kubernetes/README.md) bash e2e/docker/run.sh
	rm -rf "$kept" "$new/kubernetes" "$new/archive"
	mv -T "$new" "$kept"
	# Those of former sources, unless somebody may still read them.
	find .cache/images -mindepth 1 -maxdepth 1 ! -name "$sum" -mtime +1 -exec rm -rf {} +
else
	echo "ci: the image is tested already, nothing it is built from has changed"
fi
echo "$kept"
