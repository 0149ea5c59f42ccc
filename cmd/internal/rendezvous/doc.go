// Package rendezvous lets the agents of a cluster that does not run yet agree on
// the disks that it is born on, before any of them lets an etcd start.
//
// Machine is the pure part: what an agent knows of its peers from the rounds
// of probes that it made. Barrier is the part with sockets: it answers peers on the
// member's own peer URLs and dials theirs. What follows from a View is decided
// elsewhere. README.md is the specification.
package rendezvous
