package etcdconf

import "fmt"

// refused explains why a setting of refusedKeys cannot be used.
func refused(flag string, s setting) error {
	if flag == "force-new-cluster" {
		return invalid(s.place+": it makes every member a cluster of its own, whatever was seeded; take it away", nil)
	}
	return invalid(fmt.Sprintf("%s is %q: etcd's discovery service makes the member list as etcd starts, but here every member's list is seeded before that; take the discovery service's keys away and use discovery-srv, or --discovery with another source", s.place, s.value), nil)
}
