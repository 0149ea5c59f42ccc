package execplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/internal/run"
	"github.com/etcdinit/etcdinit/plugins"
)

// DefaultDirs is where plugins are looked for when nobody said (rule 1.2).
func DefaultDirs() []string {
	return []string{"/opt/etcdinit/plugins", "/usr/local/lib/etcdinit/plugins", "/usr/lib/etcdinit/plugins"}
}

// Find is the absolute path of the plugin of that name: the first file of the
// name in dirs. Where there is none, or it must not be run, the error is a
// *discovery.Error.
func Find(dirs []string, name string) (string, error) {
	if !plugins.ValidName(name) {
		return "", &discovery.Error{
			Kind: discovery.Config,
			Msg:  fmt.Sprintf("%q is no plugin name: 1 to 64 of a-z, 0-9, '.', '_', '-', the first a letter or a digit; never a path", name),
		}
	}
	for _, dir := range orDefault(dirs) {
		path, err := filepath.Abs(filepath.Join(dir, name))
		if err != nil {
			return "", &discovery.Error{Kind: discovery.Plugin, Msg: "plugin " + name, Err: err}
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err := run.Check(path); err != nil {
			return "", &discovery.Error{Kind: discovery.Plugin, Msg: "plugin " + name, Err: err}
		}
		return path, nil
	}
	return "", &discovery.Error{Kind: discovery.Plugin, Msg: fmt.Sprintf("plugin %s is not in %s; there are: %s",
		name, strings.Join(orDefault(dirs), ", "), names(List(dirs)))}
}

func orDefault(dirs []string) []string {
	if len(dirs) == 0 {
		return DefaultDirs()
	}
	return dirs
}

func names(found []Found) string {
	var list []string
	for _, f := range found {
		if f.Err == nil && !f.Shadowed {
			list = append(list, f.Name)
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// Found is a file in a plugin directory whose name is a plugin name.
type Found struct {
	Name string
	Path string
	// Shadowed: a directory before this one has a file of the name.
	Shadowed bool
	// Err is why it must not be run, or nil.
	Err error
}

// List is all plugins in dirs, by name, and of one name the one that is run
// first. A directory that is not there holds none.
func List(dirs []string) []Found {
	var list []Found
	for _, dir := range orDefault(dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			list = append(list, Found{Name: "", Path: dir, Err: err})
		}
		for _, e := range entries {
			if !plugins.ValidName(e.Name()) || e.IsDir() {
				continue
			}
			path, err := filepath.Abs(filepath.Join(dir, e.Name()))
			if err == nil {
				err = run.Check(path)
			}
			list = append(list, Found{
				Name: e.Name(), Path: path, Err: err,
				Shadowed: slices.ContainsFunc(list, func(f Found) bool { return f.Name == e.Name() }),
			})
		}
	}
	slices.SortStableFunc(list, func(a, b Found) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Info asks a plugin what it is.
func Info(ctx context.Context, name string, env discovery.Env) (plugins.Info, error) {
	p, err := open(&url.URL{Scheme: "exec", Opaque: name}, env)
	if err != nil {
		return plugins.Info{}, err
	}
	return p.introduce(ctx)
}

// Call asks the plugin of a source for the peers once, and returns what went
// in and out, as far as it came, also with an error. It holds nothing against
// the plugin's info.
func Call(ctx context.Context, source *url.URL, env discovery.Env) (Exchange, error) {
	p, err := open(source, env)
	if err != nil {
		return Exchange{}, err
	}
	return p.exchange(ctx, p.request())
}
