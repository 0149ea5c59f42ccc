package srv

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/discovery"
	"github.com/etcdinit/etcdinit/discovery/internal/resolve"
)

// TestDockerDNS: only who asks Docker's own DNS is told of dns://.
func TestDockerDNS(t *testing.T) {
	for server, want := range map[string]bool{"127.0.0.11:53": true, "192.0.2.53:53": false} {
		pass, err := resolve.New(discovery.Env{DNSServers: []netip.AddrPort{netip.MustParseAddrPort(server)}}).Pass()
		if err != nil {
			t.Fatal(err)
		}
		err = docker(pass, &discovery.Error{Kind: discovery.Retry, Msg: "NXDOMAIN"})
		if got := strings.Contains(err.Error(), "dns://ALIAS:2380"); got != want {
			t.Errorf("%s: %v", server, err)
		}
	}
}
