package run

import (
	"fmt"
	"os"
	"path/filepath"
)

// Check says whether the file may be run as a plugin (rule 1.3): a regular
// file, executable by us, owned by root or us, not writable for everybody.
// The error is an *Error of reason NotStarted that says what to do.
func Check(path string) error {
	refuse := func(format string, args ...any) error {
		return &Error{Reason: NotStarted, Msg: fmt.Sprintf(format, args...)}
	}
	if !filepath.IsAbs(path) {
		return refuse("%s is not an absolute path", path)
	}
	st, err := os.Stat(path)
	if err != nil {
		return &Error{Reason: NotStarted, Msg: "cannot be looked at", Err: err}
	}
	if !st.Mode().IsRegular() {
		return refuse("%s is refused: it is no regular file (%s)", path, st.Mode())
	}
	if st.Mode().Perm()&0o002 != 0 && ownerKnown {
		return refuse("%s is refused: everybody may write it (mode %04o); chmod o-w %[1]s", path, st.Mode().Perm())
	}
	if uid, ok := ownerOf(st); ok && uid != 0 && uid != os.Geteuid() {
		return refuse("%s is refused: it belongs to uid %d, not to root or to uid %d that etcdinit runs as; chown root %[1]s", path, uid, os.Geteuid())
	}
	if err := executable(path, st); err != nil {
		return &Error{Reason: NotStarted, Msg: fmt.Sprintf("%s is not executable (mode %04o); chmod 755 %[1]s", path, st.Mode().Perm()), Err: err}
	}
	return nil
}
