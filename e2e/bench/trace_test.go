//go:build e2e

package bench

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// traced are the calls that a trace of init is made of.
const traced = "trace=mkdir,mkdirat,openat,write,pwrite64,fallocate,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat"

var (
	callLine = regexp.MustCompile(`^(?:\d+ +)?(\w+)\((.*)$`)
	inFD     = regexp.MustCompile(`^\d+<([^>]+)>`)
	quoted   = regexp.MustCompile(`"([^"]*)"`)
	noResult = regexp.MustCompile(`\) += (-1|\?) `) // short lines are padded
)

// script turns the output of "strace -f -y -s 0" into what floor replays: the
// calls below dir, in their order, without those that failed.
func script(tb testing.TB, trace, dir string) (text string, syncs int) {
	tb.Helper()
	var out strings.Builder
	offset := map[string]int64{}
	lines := strings.Split(trace, "\n")
	for i, line := range lines {
		m := callLine.FindStringSubmatch(line)
		if m == nil || failed(lines[i:]) {
			continue
		}
		call, args := m[1], m[2]
		var path string
		if fd := inFD.FindStringSubmatch(args); fd != nil {
			path = fd[1]
		}
		names := quoted.FindAllStringSubmatch(args, -1)
		if !strings.HasPrefix(call, "f") && !strings.Contains(call, "write") {
			if len(names) == 0 {
				continue
			}
			path = names[0][1]
		}
		if path != dir && !strings.HasPrefix(path, dir+"/") {
			continue
		}
		switch call {
		case "mkdir", "mkdirat":
			fmt.Fprintf(&out, "mkdir\t%s\n", path)
		case "openat":
			if strings.Contains(args, "O_CREAT") {
				fmt.Fprintf(&out, "create\t%s\n", path)
				offset[path] = 0
			}
		case "write":
			n := last(tb, args, 1)
			fmt.Fprintf(&out, "write\t%s\t%d\t%d\n", path, offset[path], n)
			offset[path] += n
		case "pwrite64":
			fmt.Fprintf(&out, "write\t%s\t%d\t%d\n", path, last(tb, args, 1), last(tb, args, 2))
		case "ftruncate":
			fmt.Fprintf(&out, "truncate\t%s\t%d\n", path, last(tb, args, 1))
		case "fallocate":
			fmt.Fprintf(&out, "fallocate\t%s\t%d\t%d\n", path, last(tb, args, 2), last(tb, args, 1))
		case "fsync", "fdatasync":
			fmt.Fprintf(&out, "sync\t%s\n", path)
			syncs++
		case "rename", "renameat", "renameat2":
			to := names[1][1]
			fmt.Fprintf(&out, "rename\t%s\t%s\n", path, to)
			for name, at := range offset {
				if rest, below := strings.CutPrefix(name, path); below {
					offset[to+rest] = at
				}
			}
		case "unlink", "unlinkat":
			fmt.Fprintf(&out, "unlink\t%s\n", path)
		}
	}
	return out.String(), syncs
}

// failed tells whether the call that begins in the first of the lines failed,
// also where another thread's calls stand between its beginning and its end.
func failed(lines []string) bool {
	pid, _, _ := strings.Cut(lines[0], " ")
	end := lines[0]
	if strings.Contains(end, "<unfinished") {
		for _, line := range lines[1:] {
			if strings.HasPrefix(line, pid+" ") && strings.Contains(line, " resumed>") {
				end = line
				break
			}
		}
	}
	return noResult.MatchString(end)
}

// last is the nth argument of a call from its end.
func last(tb testing.TB, args string, nth int) int64 {
	tb.Helper()
	args, _, _ = strings.Cut(args, ")")
	args, _, _ = strings.Cut(args, " <unfinished")
	words := strings.Split(args, ",")
	n, err := strconv.ParseInt(strings.TrimSpace(words[len(words)-nth]), 10, 64)
	if err != nil {
		tb.Fatalf("trace: %s: %v", args, err)
	}
	return n
}
