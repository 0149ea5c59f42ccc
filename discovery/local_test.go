package discovery

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// TestChoice: which addresses count, by interface, by network, and without what
// is left out.
func TestChoice(t *testing.T) {
	list := func(s string) (out []netip.Addr) {
		for a := range strings.FieldsSeq(s) {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	host := []hostInterface{
		{"lo", true, list("127.0.0.1 ::1")},
		{"eth0", true, list("10.0.0.5 10.0.0.100 2001:db8::5")},
		{"eth1", true, list("192.0.2.5")},
		{"docker0", true, list("172.17.0.1")},
		{"wg0", false, nil},
		{"eth2", true, nil},
	}
	tests := []struct {
		which, want string
		kind, final Kind // of the error
	}{
		{"", "10.0.0.5,10.0.0.100,127.0.0.1,172.17.0.1,192.0.2.5,::1,2001:db8::5", 0, 0},
		{"eth0", "10.0.0.5,10.0.0.100,2001:db8::5", 0, 0},
		{"eth0,eth1", "10.0.0.5,10.0.0.100,192.0.2.5,2001:db8::5", 0, 0},
		{"10.0.0.0/8", "10.0.0.5,10.0.0.100", 0, 0},
		{"10.1.2.3/8", "10.0.0.5,10.0.0.100", 0, 0},
		{"2001:db8::/32", "2001:db8::5", 0, 0},
		{"10.0.0.0/8, eth1", "10.0.0.5,10.0.0.100,192.0.2.5", 0, 0},
		{"192.0.2.5", "192.0.2.5", 0, 0},
		{"10.0.0.0/8,!10.0.0.100", "10.0.0.5", 0, 0},
		{"eth0,!10.0.0.0/8", "2001:db8::5", 0, 0},
		{"!10.0.0.100,!docker0,!lo", "10.0.0.5,192.0.2.5,2001:db8::5", 0, 0},
		{"wg0", "interface wg0 is down", Retry, 0},
		{"eth2", "interface eth2 has no global address", Retry, 0},
		{"eth9", `no interface "eth9"; this host has lo, eth0, eth1, docker0, wg0, eth2`, Retry, Config},
		{"198.51.100.0/24", "it has 10.0.0.5,10.0.0.100,127.0.0.1", Retry, Config},
		{"eth1,!192.0.2.5", "no address of this host", Retry, Config},
		{"10.0.0.0/33", `"10.0.0.0/33" is no interface`, Config, 0},
		{"eth0,", `"" is no interface`, Config, 0},
		{"!", `"!" is no interface`, Config, 0},
	}
	for _, tt := range tests {
		t.Run(tt.which, func(t *testing.T) {
			var got []netip.Addr
			c, err := parseChoice(tt.which)
			if err == nil {
				got, err = c.of(host)
			}
			if tt.kind == 0 {
				if err != nil || addrList(got) != tt.want {
					t.Errorf("got %v, %v, want %s", got, err, tt.want)
				}
				return
			}
			if e := (*Error)(nil); !errors.As(err, &e) || e.Kind != tt.kind || e.AtDeadline != tt.final || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %v, %v: %s", err, tt.kind, tt.final, tt.want)
			}
		})
	}
}
