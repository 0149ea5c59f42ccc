package app

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// serverModule is the etcd whose packages write the seed.
const serverModule = "go.etcd.io/etcd/server/v3"

type versions struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Etcd     string `json:"etcd"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readVersions tells what the build information says; a version that the linker was given counts more.
func readVersions(linked, revision string) versions {
	v := versions{Version: "(devel)", Revision: revision, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if linked != "" {
		v.Version = linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if linked == "" && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v.Revision == "" {
			v.Revision = s.Value
		}
	}
	for _, dep := range info.Deps {
		if dep.Path == serverModule {
			v.Etcd = dep.Version
		}
	}
	return v
}

func (a *app) versionCommand() *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		Description: "Prints the version of etcdinit and of the etcd module whose packages write the seed.",
		Flags:       []cli.Flag{outputFlag()},
		Action: func(c *cli.Context) error {
			asJSON, err := wantJSON(c)
			if err != nil {
				return err
			}
			v := readVersions(a.Version, a.Revision)
			if asJSON {
				return a.printJSON(v)
			}
			fmt.Fprintf(a.Out, "etcdinit version: %s\nRevision: %s\netcd module: %s\nGo version: %s\nPlatform: %s\n", v.Version, cmp.Or(v.Revision, "unknown (built without its repository)"), v.Etcd, v.Go, v.Platform)
			return nil
		},
	}
}
