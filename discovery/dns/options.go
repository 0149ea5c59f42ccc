package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
)

// The values of the option names.
const (
	auto      = "auto"
	byReverse = "reverse"
	byAddress = "address"
)

// options are what may follow the host of a source.
type options struct {
	names     string
	hashNames bool // names that change with the address are wanted
	family    int  // 4 or 6, or 0 for both
	servers   []netip.AddrPort
}

func readOptions(query string) (options, error) {
	o := options{names: auto}
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
		case "names":
			if o.names = value; value != auto && value != byReverse && value != byAddress {
				err = fmt.Errorf("%q, want auto, reverse or address", value)
			}
		case "hash-names":
			if o.hashNames = value == "allow"; !o.hashNames {
				err = fmt.Errorf("%q, want allow", value)
			}
		case "family":
			o.family, err = resolve.Family(value)
		case "server":
			for _, s := range list {
				at, serr := resolve.Server(s)
				err = errors.Join(err, serr)
				o.servers = append(o.servers, at)
			}
		default:
			err = errors.New("unknown; known are names, hash-names, family, server")
		}
		if err != nil {
			return o, fmt.Errorf("option %s: %w", key, err)
		}
	}
	return o, nil
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func join(addrs []netip.Addr) string {
	var list []string
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return strings.Join(list, ", ")
}
