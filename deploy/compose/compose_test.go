// Package compose_test holds the compose file against the zone that its DNS server serves.
package compose_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Every member is in the zone with the address that its container has, and
// nobody else is.
func TestZoneFitsComposeFile(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Environment map[string]string
			Networks    map[string]struct {
				Address string `yaml:"ipv4_address"`
			}
			DNS []string
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	zone := read(t, "dns/example.org")
	addresses := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^(etcd-\S+) \d+ IN A (\S+)$`).FindAllStringSubmatch(zone, -1) {
		addresses[match[1]] = match[2]
	}
	var targets []string
	for _, match := range regexp.MustCompile(`(?m)^_etcd-server\._tcp \d+ IN SRV 0 0 2380 (\S+)$`).FindAllStringSubmatch(zone, -1) {
		targets = append(targets, match[1])
	}
	slices.Sort(targets)
	server := file.Services["dns"].Networks["etcd"].Address
	members := map[string]string{}
	for name, service := range file.Services {
		if name == "dns" {
			continue
		}
		members[name] = service.Networks["etcd"].Address
		if !slices.Equal(service.DNS, []string{server}) {
			t.Errorf("%s asks %v, and the DNS server is %s", name, service.DNS, server)
		}
		if service.Environment["ETCDINIT_SIZE"] != "3" {
			t.Errorf("%s is told %q members", name, service.Environment["ETCDINIT_SIZE"])
		}
	}
	if len(members) != 3 || !maps.Equal(members, addresses) {
		t.Errorf("the containers are %v, the zone says %v", members, addresses)
	}
	if names := slices.Sorted(maps.Keys(members)); !slices.Equal(names, targets) {
		t.Errorf("the containers are %v, the SRV records name %v", names, targets)
	}
	if domain := "discovery-srv: example.org\n"; !strings.Contains(read(t, "etcd.yaml"), domain) || !strings.HasPrefix(read(t, "dns/Corefile"), "example.org {") {
		t.Error("etcd.yaml and the zone have different domains")
	}
}
