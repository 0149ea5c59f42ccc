package app

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
)

const helpAll = "help-all"

// fewFlags is up to how many flags a command's --help shows them all.
const fewFlags = 12

// mainFlags are those that matter to a person who reads a command's help, the most
// important ones first. --help shows the first eight that a command has.
func mainFlags() []string {
	return []string{"config-file", "wait", "stay", "endpoints", "no-verify", "user", "size", "discovery", "timeout", "self-ip", "config-out", "env-file", "dry-run", "data-dir", "report", "probe", "deep", "output"}
}

// shortHelp gives a command with many flags a short --help, and --help-all.
func (a *app) shortHelp(c *cli.Command) {
	if len(c.Flags) <= fewFlags {
		return
	}
	var short []cli.Flag
	for _, name := range mainFlags() {
		i := slices.IndexFunc(c.Flags, func(f cli.Flag) bool { return f.Names()[0] == name })
		if i >= 0 && len(short) < 8 {
			short = append(short, c.Flags[i])
		}
	}
	head := fmt.Sprintf("NAME:\n   etcdinit %s - %s\n\nUSAGE:\n   etcdinit %s\n\nDESCRIPTION:\n   %s\n", c.Name, c.Usage,
		strings.TrimSpace(c.Name+" [flags] "+c.ArgsUsage), strings.ReplaceAll(c.Description, "\n", "\n   "))
	head = strings.ReplaceAll(head, "\n   \n", "\n\n")
	every := &cli.BoolFlag{Name: helpAll, Usage: "show every flag", Hidden: true}
	c.CustomHelpTemplate = quoted(head + "\nFLAGS:\n" + flagTable(append(short, every)))
	var all strings.Builder
	all.WriteString(head)
	for _, category := range categories(c.Flags) {
		all.WriteString("\n" + category.name + "\n" + flagTable(category.flags))
	}
	c.Flags = append(c.Flags, every)
	run := c.Action
	c.Action = func(ctx *cli.Context) error {
		if !ctx.Bool(helpAll) {
			return run(ctx)
		}
		_, err := fmt.Fprint(a.Out, all.String())
		return unprinted(err)
	}
}

// quoted is a template that prints text as it is.
func quoted(text string) string { return strings.ReplaceAll(text, "{{", `{{"{{"}}`) }

type category struct {
	name  string
	flags []cli.Flag
}

// categories sorts flags by their heading; those without one come first.
func categories(flags []cli.Flag) []category {
	list := []category{{name: "FLAGS:"}}
	for _, f := range flags {
		name := "FLAGS:"
		if in, ok := f.(cli.CategorizableFlag); ok && in.GetCategory() != "" {
			name = in.GetCategory()
		}
		i := slices.IndexFunc(list, func(c category) bool { return c.name == name })
		if i < 0 {
			list, i = append(list, category{name: name}), len(list)
		}
		list[i].flags = append(list[i].flags, f)
	}
	return slices.DeleteFunc(list, func(c category) bool { return len(c.flags) == 0 })
}

// flagTable is a line for each flag. A default that says nothing is left out.
func flagTable(flags []cli.Flag) string {
	nothing := regexp.MustCompile(` ?\(default: (false|0|"")\)`)
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, f := range flags {
		fmt.Fprintln(w, "   "+nothing.ReplaceAllString(f.String(), ""))
	}
	if err := w.Flush(); err != nil {
		return err.Error() // a strings.Builder gives none
	}
	return text.String()
}
