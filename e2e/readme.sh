# readme.sh: the commands of a README, run word for word, and each of them. To be sourced.
#
# A block of commands stands behind "<!-- run: NAME -->". A script that sources this has a function fail
# and names in $ran a file, where all commands that are run are put down.
# shellcheck shell=bash
# shellcheck disable=SC2154 # ran: the caller has it

# block README NAME: the commands of a block, as they stand.
block() {
	awk -v mark="<!-- run: $2 -->" '$0 == mark { on = 1; next } on == 1 && $0 == "```sh" { on = 2; next } on == 2 && $0 == "```" { exit } on == 2' "$1" | grep . ||
		fail "$1 has no block $2"
}

# ran COMMANDS: put down what is being run.
ran() { printf '%s\0' "$1" >>"$ran"; }

# complete README: each of its blocks was run, and nothing else in its place.
complete() {
	local text run found missing=0 texts runs
	mapfile -d '' texts < <(awk '$0 == "```sh" { on = 1; text = ""; next } on && $0 == "```" { on = 0; printf "%s%c", text, 0; next } on { text = text (text == "" ? "" : "\n") $0 }' "$1")
	mapfile -d '' runs <"$ran"
	[ ${#texts[@]} != 0 ] || fail "$1 has no commands"
	for text in "${texts[@]}"; do
		found=
		for run in "${runs[@]}"; do [ "$run" != "$text" ] || found=yes; done
		[ -n "$found" ] || { echo "$1: nobody ran these commands as they stand:" >&2; echo "$text" >&2; missing=1; }
	done
	[ $missing = 0 ] || fail "$1 has commands that nobody ran"
	echo "ci: $1: ${#texts[@]} blocks of commands, all run word for word"
}
