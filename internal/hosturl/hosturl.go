// Package hosturl reads scheme://host:port.
package hosturl

import (
	"net"
	"strings"
)

// Host returns the host of a URL of the form scheme://host:port; "" if it is none.
func Host(url string) string {
	_, rest, ok := strings.Cut(url, "://")
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(rest)
	if err != nil {
		return ""
	}
	return host
}
