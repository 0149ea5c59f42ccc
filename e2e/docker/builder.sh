# builder.sh: an image that builds ours without a network: a shell, Go, and the modules of go.mod
# as a file proxy, from this machine. To be sourced, in the project's top folder.
#
# Needs docker, go, jq, busybox (static), and a folder $work.
# shellcheck shell=bash
# shellcheck disable=SC2154 # work: the caller has it

# builder NAME [VARIABLE=VALUE]...: make it under this name; the variables are for its Go command.
# The file proxy is file:///modules/proxy.
builder() {
	local busybox applet proxy cache file name=$1
	shift
	mkdir -p "$work"/builder/{bin,usr/local,tmp,modules}
	busybox=$(command -v busybox) || fail "busybox is not here: install busybox-static"
	cp "$busybox" "$work/builder/bin/busybox"
	for applet in sh cat ls; do ln -s busybox "$work/builder/bin/$applet"; done
	cp -a "$(go env GOROOT)" "$work/builder/usr/local/go"
	rm -rf "$work/builder/usr/local/go/test" "$work/builder/usr/local/go/api" "$work/builder/usr/local/go/doc"
	proxy=$work/builder/modules/proxy cache=$(go env GOMODCACHE)/cache/download
	{
		go mod download -json | jq -r '.Info, .GoMod, .Zip'
		# The module graph reads the go.mod of more modules than the build downloads.
		sed -n 's#^\([^ ]*\) \([^ /]*\)/go.mod .*#\1/@v/\2.mod#p' go.sum | sed 's#[A-Z]#!\L&#g' | sed "s#^#$cache/#"
	} | sort -u >"$work/modules"
	while IFS= read -r file; do [ ! -f "$file" ] || printf '%s\0' "${file#"$cache"/}"; done <"$work/modules" >"$work/modules.present"
	mkdir -p "$proxy"
	tar -C "$cache" --null -T "$work/modules.present" -cf - | tar -C "$proxy" -xf -
	tar -C "$work/builder" -cf - . | docker import --change "ENV PATH=/usr/local/go/bin:/bin GOTOOLCHAIN=local HOME=/tmp $*" - "$name" >/dev/null
	rm -rf "$work/builder"
}
