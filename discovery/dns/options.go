package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
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
	family    family
	servers   []netip.AddrPort
}

// family is 4 or 6, or 0 for both.
type family int

func (f family) filter(addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		return f == 4 && !a.Is4() || f == 6 && !a.Is6()
	})
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
			switch value {
			case "4":
				o.family = 4
			case "6":
				o.family = 6
			default:
				err = fmt.Errorf("%q, want 4 or 6", value)
			}
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
