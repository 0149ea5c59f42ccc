// Command archive makes an image of one layer, as "docker save" writes it, out
// of static programs: an image from scratch without a container engine.
//
//	archive IMAGE ARCHIVE COMMAND FILE=PATH...
//
// COMMAND is what the image runs; each FILE appears in it at the absolute PATH.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: archive IMAGE ARCHIVE COMMAND FILE=PATH...")
		os.Exit(20)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

// write makes the archive.
func write(image, archive, command string, files []string) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	made := map[string]bool{"/": true}
	for _, file := range files {
		source, target, ok := strings.Cut(file, "=")
		if !ok || !path.IsAbs(target) {
			return fmt.Errorf("%q is not FILE=PATH with an absolute path", file)
		}
		data, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		var folders []string
		for dir := path.Dir(target); !made[dir]; dir = path.Dir(dir) {
			made[dir] = true
			folders = append([]string{dir}, folders...)
		}
		for _, dir := range folders {
			if err := add(w, strings.TrimPrefix(dir, "/")+"/", 0o755, tar.TypeDir, nil); err != nil {
				return err
			}
		}
		if err := add(w, strings.TrimPrefix(target, "/"), 0o755, tar.TypeReg, data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	id := sha256.Sum256(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Cmd": []string{command}, "Env": []string{"PATH=" + path.Dir(command)}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(id[:])}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{image}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w = tar.NewWriter(&out)
	for _, part := range []struct {
		name string
		data []byte
	}{{"layer.tar", layer.Bytes()}, {"config.json", config}, {"manifest.json", manifest}} {
		if err := add(w, part.name, 0o644, tar.TypeReg, part.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(archive, out.Bytes(), 0o600)
}

// add writes one entry.
func add(w *tar.Writer, name string, mode int64, kind byte, data []byte) error {
	header := &tar.Header{Name: name, Mode: mode, Typeflag: kind, Size: int64(len(data)), ModTime: time.Unix(0, 0)}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
