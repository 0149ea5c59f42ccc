package srv

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// options are what may follow the domain of a source.
type options struct {
	service, name, client string
	servers               []netip.AddrPort
	hashNames             bool
	family                int
}

func readOptions(query string) (options, error) {
	var o options
	values, err := url.ParseQuery(query)
	if err != nil {
		return o, err
	}
	for key, list := range values {
		if len(list) > 1 && key != "server" {
			return o, fmt.Errorf("option %s is given %d times", key, len(list))
		}
		value := list[0]
		switch key {
		case "service":
			o.service, err = label(value)
		case "name":
			o.name, err = label(value)
		case "client":
			o.client, err = label(value)
		case "hash-names":
			if o.hashNames = value == "allow"; !o.hashNames {
				err = fmt.Errorf("%q, want allow", value)
			}
		case "family":
			o.family, err = resolve.Family(value)
		case "server":
			o.servers, err = servers(list)
		default:
			err = errors.New("unknown; known are service, name, server, client, hash-names, family")
		}
		if err != nil {
			return o, fmt.Errorf("option %s: %w", key, err)
		}
	}
	if o.service != "" && o.name != "" {
		return o, errors.New("service is the whole label, so name cannot be added to it: give one of the two")
	}
	return o, nil
}

// label is one label of a service name, without the underscore.
func label(s string) (string, error) {
	l := hosturl.Canonical(strings.TrimPrefix(s, "_"))
	if strings.Contains(l, ".") || hosturl.CheckHost(l) != nil || len(l) > 62 {
		return "", fmt.Errorf("%q is not one label such as etcd-server or peer-ssl", s)
	}
	return l, nil
}

func servers(list []string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, s := range list {
		at, err := resolve.Server(s)
		if err != nil {
			return nil, err
		}
		out = append(out, at)
	}
	return out, nil
}
