// Package discovery finds the peers of an etcd cluster and which one is us.
package discovery
