package app

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
	"go.uber.org/zap"
)

const (
	flagsBegin = "<!-- flags: UPDATE_README=1 go test ./cmd/internal/app -run TestReadmeFlags -->\n"
	flagsEnd   = "<!-- end of flags -->"
)

// TestReadmeFlags holds the table of flags in docs/flags.md against the commands.
func TestReadmeFlags(t *testing.T) {
	const path = "../../../docs/flags.md"
	readme, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(readme, []byte(flagsBegin))
	if !ok {
		t.Fatalf("docs/flags.md has no line %q", flagsBegin)
	}
	got, after, ok := bytes.Cut(rest, []byte(flagsEnd))
	if !ok {
		t.Fatalf("docs/flags.md has no line %q", flagsEnd)
	}
	want := readmeTable(t)
	if string(got) == want {
		return
	}
	if os.Getenv("UPDATE_README") == "" {
		t.Errorf("docs/flags.md does not list the flags as they are; update it with UPDATE_README=1\ngot:\n%s\nwant:\n%s", got, want)
		return
	}
	updated := bytes.Join([][]byte{before, []byte(flagsBegin), []byte(want), []byte(flagsEnd), after}, nil)
	if err := os.WriteFile(path, updated, 0o644); err != nil {
		t.Fatal(err)
	}
}

func readmeTable(t *testing.T) string {
	t.Helper()
	var etcd, ours strings.Builder
	seen := map[string]bool{}
	program := (&app{log: zap.NewNop()}).cli()
	for _, f := range program.Flags {
		seen[f.Names()[0]] = true // each command has them too, without their variables
	}
	var lists [][]cli.Flag
	for _, c := range program.Commands {
		lists = append(lists, c.Flags)
	}
	for i, flags := range append(lists, program.Flags) {
		for _, f := range flags {
			name := f.Names()[0]
			doc, ok := f.(cli.DocGenerationFlag)
			if !ok || name == "help" || name == helpAll || i < len(lists) && seen[name] {
				continue
			}
			seen[name] = true
			if in, ok := f.(cli.CategorizableFlag); ok && in.GetCategory() == groupEtcd {
				fmt.Fprintf(&etcd, "`--%s` ", name)
				continue
			}
			variable := ""
			if vars := doc.GetEnvVars(); len(vars) > 0 {
				variable = "`" + vars[0] + "`"
			}
			usage := strings.NewReplacer("`", "", "|", "\\|").Replace(doc.GetUsage())
			if d := doc.GetDefaultText(); d != "" && d != "false" && d != "0" && d != `""` {
				usage += " (default " + strings.Trim(d, `"`) + ")"
			}
			fmt.Fprintf(&ours, "| `--%s` | %s | %s |\n", name, variable, usage)
		}
	}
	return "\netcd's own, each also as its `ETCD_*` variable: " + strings.TrimSpace(etcd.String()) + ".\n\n| flag | variable | meaning |\n|---|---|---|\n" + ours.String() + "\n"
}
