#!/usr/bin/env bash
# images.sh: build and test the image of the Dockerfile (run.sh), and one with the plugin
# kubernetes, under the names that the manifests and the plugin's README give. Keeps both as
# docker archives, etcdinit.tar and plugin.tar, in .cache/images/HASH, and prints that folder
# last. HASH covers the sources, so what has not changed is not built twice.
set -euo pipefail
cd "$(dirname "$0")/../.."
sum=$({
	go version
	git ls-files -z -co --exclude-standard -- cmd discovery plugins seed go.mod go.sum Dockerfile .dockerignore e2e/docker deploy/kubernetes/base/kustomization.yaml |
		while IFS= read -r -d '' file; do [ ! -f "$file" ] || sha256sum "$file"; done
} | sha256sum | cut -c1-16)
kept=$PWD/.cache/images/$sum
if [ ! -e "$kept/etcdinit.tar" ] || [ ! -e "$kept/plugin.tar" ]; then
	mkdir -p .cache/images
	new=$(mktemp -d .cache/images/.new-XXXXXX)
	trap 'rm -rf "$new"' EXIT
	name=$(sed -n 's|^ *- name: \(.*/etcdinit\)$|\1|p' deploy/kubernetes/base/kustomization.yaml | head -n 1)
	tag=$(grep -A 1 "^ *- name: $name\$" deploy/kubernetes/base/kustomization.yaml | sed -n 's|^ *newTag: ||p')
	(cd plugins/kubernetes && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$PWD/../../$new/kubernetes" .)
	ETCDINIT_IMAGE_NAME=$name:$tag ETCDINIT_IMAGE_ARCHIVE=$new/etcdinit.tar \
		ETCDINIT_PLUGIN=$new/kubernetes ETCDINIT_PLUGIN_ARCHIVE=$new/plugin.tar \
		ETCDINIT_PLUGIN_NAME=$(sed -n 's|.*newName: \(.*\), newTag: \(.*\)}|\1:\2|p' plugins/kubernetes/README.md) bash e2e/docker/run.sh
	rm -rf "$kept" "$new/kubernetes"
	mv -T "$new" "$kept"
else
	echo "ci: the image is tested already, nothing it is built from has changed"
fi
echo "$kept"
