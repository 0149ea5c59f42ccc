package http

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
)

// The options in the query of a source.
const (
	prefix   = "etcdinit-"
	optCA    = prefix + "ca-file"
	optToken = prefix + "token-file"
	optCert  = prefix + "cert-file"
	optKey   = prefix + "key-file"
)

// options are paths; "" where absent.
type options struct {
	ca, token, cert, key string
}

// readOptions takes our options out of a query and leaves the rest as it is.
func readOptions(query string) (o options, rest string, err error) {
	var others []string
	seen := map[string]bool{}
	for part := range strings.SplitSeq(query, "&") {
		if !strings.HasPrefix(part, prefix) {
			if part != "" {
				others = append(others, part)
			}
			continue
		}
		key, raw, _ := strings.Cut(part, "=")
		value, err := url.QueryUnescape(raw)
		if err != nil {
			return o, "", fmt.Errorf("option %s: %w", key, err)
		}
		field := map[string]*string{optCA: &o.ca, optToken: &o.token, optCert: &o.cert, optKey: &o.key}[key]
		switch {
		case field == nil:
			return o, "", fmt.Errorf("option %s: unknown; known are %s, %s, %s, %s", key, optCA, optToken, optCert, optKey)
		case seen[key]:
			return o, "", fmt.Errorf("option %s is given twice", key)
		case !filepath.IsAbs(value):
			return o, "", fmt.Errorf("option %s: %q is no absolute path", key, value)
		}
		seen[key], *field = true, value
	}
	if (o.cert == "") != (o.key == "") {
		return o, "", fmt.Errorf("options %s and %s belong together", optCert, optKey)
	}
	return o, strings.Join(others, "&"), nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
