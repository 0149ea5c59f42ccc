package app

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// meantFlag adds to the error of an unknown flag the one that was meant, if one is
// close: ", did you mean --size?".
func meantFlag(err error, c *cli.Command) string {
	_, flag, unknown := strings.Cut(err.Error(), "flag provided but not defined: ")
	if !unknown {
		return ""
	}
	var names []string
	for _, f := range c.Flags {
		names = append(names, f.Names()...)
	}
	if name := closest(strings.TrimLeft(flag, "-"), names); name != "" {
		return ", did you mean --" + name + "?"
	}
	return ""
}

// meantCommand is the same for a command.
func (a *app) meantCommand(given string) string {
	var names []string
	for _, c := range a.cli().Commands {
		names = append(names, c.Name)
	}
	if name := closest(given, names); name != "" {
		return ", did you mean " + name + "?"
	}
	return ""
}

// closest is the name that a typing error turns into the given one; "" if none is
// close. Underscores and capitals are such errors, too.
func closest(given string, names []string) string {
	given = strings.ToLower(strings.ReplaceAll(given, "_", "-"))
	best, least := "", min(max(1, len(given)/2), 2)+1
	for _, name := range names {
		if len(name) < 2 {
			continue
		}
		if d := distance(given, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance is how many letters must be changed, added or taken away.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
