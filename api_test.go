package repo_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
)

var updateAPI = flag.Bool("update-api", false, "rewrite api/*.txt")

// public are the packages that others may import; all else is internal.
var public = []string{
	"discovery", "discovery/dns", "discovery/execplugin", "discovery/file", "discovery/http", "discovery/srv", "discovery/static",
	"plugins", "plugins/plugintest", "seed",
}

// The exported API is written down, so that a change of it is seen in review. After one that is
// meant: go test . -run TestAPI -update-api.
func TestAPI(t *testing.T) {
	for _, dir := range public {
		t.Run(dir, func(t *testing.T) {
			file := "api/" + strings.ReplaceAll(dir, "/", "-") + ".txt"
			got := exported(t, dir)
			if *updateAPI {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := read(t, file)
			if got == want {
				return
			}
			have, had := strings.Split(got, "\n"), strings.Split(want, "\n")
			for _, line := range have {
				if !slices.Contains(had, line) {
					t.Errorf("%s: new: %s", file, line)
				}
			}
			for _, line := range had {
				if !slices.Contains(have, line) {
					t.Errorf("%s: gone: %s", file, line)
				}
			}
			t.Error("if that is meant: go test . -run TestAPI -update-api")
		})
	}
}

// exported prints the exported declarations of a package, one a paragraph, in their order by name.
func exported(t *testing.T, dir string) string {
	t.Helper()
	set := token.NewFileSet()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var decls []string
	for _, entry := range entries {
		if name := entry.Name(); !isSource(entry) || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, dir+"/"+entry.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !ast.FileExports(file) {
			continue
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				if f.Body = nil; f.Recv != nil && !ast.IsExported(receiver(f.Recv.List[0].Type)) {
					continue // of a type that nobody can name
				}
			}
			if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
				continue
			}
			var text bytes.Buffer
			if err := printer.Fprint(&text, token.NewFileSet(), decl); err != nil {
				t.Fatal(err)
			}
			decls = append(decls, text.String())
		}
	}
	slices.Sort(decls)
	return strings.Join(decls, "\n") + "\n"
}

// receiver is the name of a method's type.
func receiver(expr ast.Expr) string {
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	if id, ok := expr.(*ast.Ident); ok {
		return id.Name
	}
	return "X" // generic: keep it
}

func isSource(entry fs.DirEntry) bool {
	return entry.Type().IsRegular() && strings.HasSuffix(entry.Name(), ".go")
}
