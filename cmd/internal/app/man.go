package app

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// Man returns the manual page etcdinit(8), made from the command line's own
// declarations. The program itself does not use it.
func Man(version string) string {
	top := (&app{IO: IO{Version: version}}).cli()
	var page roff
	page.line(".TH etcdinit 8 \"\" \"etcdinit " + text(top.Version) + "\" \"System administration\"")
	page.section("NAME")
	page.line("etcdinit \\- " + text(top.Usage))
	page.section("SYNOPSIS")
	page.line(".B etcdinit")
	page.line(text(strings.TrimPrefix(top.UsageText, "etcdinit ")))
	page.section("DESCRIPTION")
	page.prose(top.Description)
	page.section("GLOBAL FLAGS")
	for _, f := range top.VisibleFlags() {
		page.flag(f)
	}
	page.section("COMMANDS")
	for _, c := range top.VisibleCommands() {
		page.command("", c)
	}
	page.section("SEE ALSO")
	page.line(".BR etcd (1),\n.BR systemd.service (5)")
	return page.String()
}

// roff is a manual page in the making.
type roff struct{ strings.Builder }

func (r *roff) line(s string)       { fmt.Fprintln(r, s) }
func (r *roff) section(name string) { r.line(".SH " + name) }

// command describes one command with its flags, and those below it.
func (r *roff) command(parent string, c *cli.Command) {
	name := strings.TrimSpace(parent + " " + c.Name)
	r.line(".SS \"" + text("etcdinit "+strings.TrimSpace(name+" "+c.ArgsUsage)) + "\"")
	r.line(text(strings.ToUpper(c.Usage[:1]) + c.Usage[1:] + "."))
	if c.Description != "" {
		r.line(".PP")
		r.prose(c.Description)
	}
	for _, category := range c.VisibleFlagCategories() {
		if category.Name() != "" {
			r.line(".PP")
			r.line(".I " + text(category.Name()))
		}
		for _, f := range category.Flags() {
			r.flag(f)
		}
	}
	for _, sub := range c.Subcommands {
		if !sub.Hidden {
			r.command(name, sub)
		}
	}
}

// flag writes what --help says of a flag, whose two halves a tab separates.
func (r *roff) flag(f fmt.Stringer) {
	names, meaning, _ := strings.Cut(f.String(), "\t")
	if strings.HasPrefix(names, "--help") {
		return
	}
	r.line(".TP")
	r.line(".B " + text(strings.TrimSpace(names)))
	r.line(text(strings.TrimSpace(meaning)))
}

// prose writes paragraphs; what is indented stays as it is.
func (r *roff) prose(description string) {
	for i, paragraph := range strings.Split(strings.Trim(description, "\n"), "\n\n") {
		if i > 0 {
			r.line(".PP")
		}
		asIs := strings.HasPrefix(paragraph, " ")
		if asIs {
			r.line(".nf\n.RS 4")
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			r.line(text(strings.TrimSpace(line)))
		}
		if asIs {
			r.line(".RE\n.fi")
		}
	}
}

// text keeps a line from being read as a request or with ligatures and dashes.
func text(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "…", "...").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
