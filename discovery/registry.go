package discovery

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// Schemes lists the schemes that Open knows, sorted.
func (r Registry) Schemes() []string {
	return slices.Sorted(maps.Keys(r))
}

// Open makes the provider that a source URL such as "srv://example.org" names.
// It asks nothing yet; a source that cannot be understood is an *Error of kind
// Config.
func (r Registry) Open(source string, env Env) (Provider, error) {
	bad := func(format string, args ...any) (Provider, error) {
		return nil, &Error{
			Kind: Config,
			Msg:  fmt.Sprintf("discovery source %q: ", shown(source)) + fmt.Sprintf(format, args...),
		}
	}
	scheme, _, ok := strings.Cut(source, ":")
	if source == "" || !ok {
		example := "srv://example.org"
		switch {
		case strings.HasPrefix(source, "/"):
			example = "file://" + shown(source)
		case source != "":
			example = "srv://" + shown(source)
		}
		return bad("no scheme, want a URL such as %s; known schemes: %s", example, strings.Join(r.Schemes(), ", "))
	}
	factory, ok := r[strings.ToLower(scheme)]
	if !ok {
		return bad("unknown scheme %q; known schemes: %s", scheme, strings.Join(r.Schemes(), ", "))
	}
	u, err := url.Parse(source)
	if err != nil {
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return bad("%v", err)
	}
	if u.Fragment != "" || strings.Contains(source, "#") {
		return bad("'#' starts a fragment, which no source has; write %%23")
	}
	if u.User != nil {
		return bad("a source has no user or password part")
	}
	if env.Log == nil {
		env.Log = zap.NewNop()
	}
	p, err := factory(u, env)
	if err == nil {
		return p, nil
	}
	var known *Error
	if errors.As(err, &known) {
		return nil, err
	}
	return bad("%v", err)
}

// shown is a source as messages show it: a query may carry what is nobody
// else's business.
func shown(source string) string {
	s, _, cut := strings.Cut(source, "?")
	if at := strings.LastIndex(s, "@"); at >= 0 {
		if i := strings.Index(s, "//"); i >= 0 && i < at {
			s = s[:i+2] + "…" + s[at:]
		}
	}
	if cut {
		s += "?…"
	}
	return s
}
