//go:build e2e && linux

// Command floor makes the file-system calls of a script, one a line, and
// nothing else: the time below which no program that leaves the same bytes
// with the same syncs behind can come. The script is a trace of init.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if err := replay(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func replay(script string) (err error) {
	content, err := os.ReadFile(script)
	if err != nil {
		return err
	}
	r := replayer{open: map[string]*os.File{}}
	defer func() {
		for _, f := range r.open {
			err = errors.Join(err, f.Close())
		}
	}()
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		if err := r.call(strings.Split(lines.Text(), "\t")); err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
	}
	return nil
}

type replayer struct{ open map[string]*os.File }

// call makes one call: its name, a path, and what else the call needs.
func (r *replayer) call(words []string) error {
	path := words[1]
	number := func(i int) int64 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	switch words[0] {
	case "mkdir":
		return os.Mkdir(path, 0o700)
	case "unlink":
		return os.Remove(path)
	case "rename":
		for name, f := range r.open { // descriptors follow a rename, names do not
			if name == path || strings.HasPrefix(name, path+"/") {
				if err := f.Close(); err != nil {
					return err
				}
				delete(r.open, name)
			}
		}
		return os.Rename(path, words[2])
	}
	f, err := r.file(path)
	if err != nil {
		return err
	}
	switch words[0] {
	case "create":
		return nil
	case "write":
		_, err = f.WriteAt(bytes.Repeat([]byte{0xe7}, int(number(3))), number(2))
	case "truncate":
		err = f.Truncate(number(2))
	case "fallocate":
		err = unix.Fallocate(int(f.Fd()), 0, number(2), number(3))
	case "sync":
		err = f.Sync()
	default:
		err = errors.New("no such call")
	}
	return err
}

// file opens a path once: a directory for reading, all else for writing.
func (r *replayer) file(path string) (*os.File, error) {
	if f := r.open[path]; f != nil {
		return f, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.EISDIR) {
		f, err = os.Open(path)
	}
	if err == nil {
		r.open[path] = f
	}
	return f, err
}
