package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/etcdinit/etcdinit/plugins"
)

// The values of the parameter names.
const (
	byHostname = "hostname"
	byNode     = "node"
)

// again is when asking again is worth it: pods come one by one.
const again = time.Second

// query is what the source asks for.
type query struct {
	service, namespace, port, names, domain string
	size                                    int
}

// peers makes one peer of the endpoints of each pod. A slice holds addresses of
// one family, so a pod stands in two where there are both. Endpoints count
// whether they are ready or not: no member is ready before all are there. A
// pod that is terminating does not: its successor has another address.
func (q query) peers(all []discoveryv1.EndpointSlice) ([]plugins.Peer, error) {
	var peers []plugins.Peer
	var leaving []string
	for _, slice := range all {
		if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
			continue
		}
		port, err := q.portOf(slice)
		if err != nil {
			return nil, err
		}
		for _, e := range slice.Endpoints {
			p, err := q.peer(e)
			if err != nil {
				return nil, err
			}
			if e.Conditions.Terminating != nil && *e.Conditions.Terminating {
				leaving = append(leaving, p.Name)
				continue
			}
			p.Port = port
			if peers, err = merge(peers, p); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(peers, func(a, b plugins.Peer) int { return strings.Compare(a.Host, b.Host) })
	if len(peers) < q.size {
		return nil, plugins.Retryf(again, "service %s in namespace %s has %d of %d endpoints: %s%s",
			q.service, q.namespace, len(peers), q.size, names(peers), terminating(leaving))
	}
	return peers, nil
}

func terminating(names []string) string {
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "; terminating: " + strings.Join(slices.Compact(names), " ")
}

func names(peers []plugins.Peer) string {
	if len(peers) == 0 {
		return "none"
	}
	var list []string
	for _, p := range peers {
		list = append(list, p.Name)
	}
	return strings.Join(list, " ")
}

// peer is the endpoint without its port.
func (q query) peer(e discoveryv1.Endpoint) (plugins.Peer, error) {
	pod := "an endpoint that is no pod (" + strings.Join(e.Addresses, ",") + ")"
	if e.TargetRef != nil {
		pod = strings.ToLower(e.TargetRef.Kind) + " " + e.TargetRef.Name
	}
	if len(e.Addresses) == 0 {
		return plugins.Peer{}, fmt.Errorf("%s of service %s has no address", pod, q.service)
	}
	if q.names == byNode {
		if e.NodeName == nil || *e.NodeName == "" {
			return plugins.Peer{}, plugins.Configf("%s of service %s is on no node that the EndpointSlice names, so names=node cannot name it", pod, q.service)
		}
		// One host for both families: the node's name, resolved by nobody.
		return plugins.Peer{Name: *e.NodeName, Host: e.Addresses[0], Addrs: e.Addresses[:1]}, nil
	}
	if e.Hostname == nil || *e.Hostname == "" {
		return plugins.Peer{}, plugins.Configf("%s of service %s has no hostname: set hostname and subdomain, or use a StatefulSet whose serviceName is %[2]s; for hostNetwork there is names=node", pod, q.service)
	}
	return plugins.Peer{
		Name:  *e.Hostname,
		Host:  strings.Join([]string{*e.Hostname, q.service, q.namespace, "svc", q.domain}, "."),
		Addrs: slices.Clone(e.Addresses[:1]), // "the first is the pod's", and since 1.31 the only one
	}, nil
}

func merge(peers []plugins.Peer, p plugins.Peer) ([]plugins.Peer, error) {
	for i := range peers {
		q := &peers[i]
		if q.Name != p.Name {
			continue
		}
		if q.Port != p.Port {
			return nil, plugins.Configf("%s has the peer port %d in one EndpointSlice and %d in another", p.Name, q.Port, p.Port)
		}
		if !slices.Contains(q.Addrs, p.Addrs[0]) {
			q.Addrs = append(q.Addrs, p.Addrs[0])
			slices.Sort(q.Addrs)
		}
		return peers, nil
	}
	return append(peers, p), nil
}

// portOf finds the peer port; 0 leaves it to etcd's configuration.
func (q query) portOf(slice discoveryv1.EndpointSlice) (int, error) {
	var has []string
	found := map[string]int{}
	for _, p := range slice.Ports {
		if p.Port == nil {
			continue
		}
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		has = append(has, fmt.Sprintf("%s=%d", name, *p.Port))
		found[name] = int(*p.Port)
	}
	if q.port != "" {
		if n, ok := found[q.port]; ok {
			return n, nil
		}
		return 0, plugins.Configf("service %s has no port named %s, it has %s", q.service, q.port, strings.Join(has, " "))
	}
	if len(found) <= 1 {
		for _, n := range found {
			return n, nil
		}
		return 0, nil
	}
	for _, name := range []string{"peer", "etcd-server", "etcd-server-ssl"} {
		if n, ok := found[name]; ok {
			return n, nil
		}
	}
	return 0, plugins.Configf("service %s has several ports, %s: say port=NAME", q.service, strings.Join(has, " "))
}
