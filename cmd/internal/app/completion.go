package app

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"
)

// The scripts ask the program itself what may come next, so they never lag
// behind it; the protocol is urfave/cli's --generate-bash-completion.
const (
	bashCompletion = `# etcdinit completion for bash: source <(etcdinit completion bash)
_etcdinit() {
	local cur=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]:0:COMP_CWORD}")
	[[ $cur == -* ]] && words+=("$cur")
	mapfile -t COMPREPLY < <(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur")
}
complete -o bashdefault -o default -F _etcdinit etcdinit
`
	zshCompletion = `#compdef etcdinit
# etcdinit completion for zsh: source <(etcdinit completion zsh)
_etcdinit() {
	local -a opts
	local cur=${words[-1]}
	if [[ $cur == -* ]]; then
		opts=("${(@f)$(${words[@]:0:#words[@]-1} $cur --generate-bash-completion 2>/dev/null)}")
	else
		opts=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}")
	fi
	if [[ -n ${opts[1]} ]]; then _describe 'values' opts; else _files; fi
}
compdef _etcdinit etcdinit
`
	fishCompletion = `# etcdinit completion for fish: etcdinit completion fish | source
function __etcdinit_complete
	set -l words (commandline -opc)
	set -l cur (commandline -ct)
	string match -q -- '-*' $cur; and set -a words $cur
	$words --generate-bash-completion 2>/dev/null
end
complete -c etcdinit -a '(__etcdinit_complete)'
`
)

func (a *app) completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for bash, zsh or fish",
		ArgsUsage: "bash|zsh|fish",
		Description: `   source <(etcdinit completion bash)
   source <(etcdinit completion zsh)
   etcdinit completion fish | source`,
		BashComplete: func(*cli.Context) { fmt.Fprintln(a.Out, "bash\nzsh\nfish") },
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usage(errors.New("completion takes one shell: bash, zsh or fish"))
			}
			script, ok := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Args().First()]
			if !ok {
				return usage(fmt.Errorf("no completion for %q: bash, zsh or fish", c.Args().First()))
			}
			fmt.Fprint(a.Out, script)
			return nil
		},
	}
}
