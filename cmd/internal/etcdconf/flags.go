package etcdconf

import (
	"fmt"
	"strings"
)

// otherFlags are etcd's other flags of 3.4 to 3.7, by kind. They are carried
// along, never interpreted.
const (
	otherBooleans = `debug discovery-insecure-skip-tls-verify discovery-insecure-transport enable-distributed-tracing
		enable-grpc-gateway enable-log-rotation enable-pprof enable-v2 experimental-compact-hash-check-enabled
		experimental-enable-distributed-tracing experimental-enable-lease-checkpoint
		experimental-enable-lease-checkpoint-persist experimental-initial-corrupt-check experimental-memory-mlock
		experimental-stop-grpc-service-on-defrag
		experimental-txn-mode-write-with-shared-buffer initial-election-tick-advance memory-mlock
		pre-vote socket-reuse-address socket-reuse-port strict-reconfig-check
		unsafe-no-fsync`
	otherIntegers = `auth-token-ttl backend-batch-limit bcrypt-cost bootstrap-defrag-threshold-megabytes
		compaction-batch-limit distributed-tracing-sampling-rate election-timeout
		experimental-bootstrap-defrag-threshold-megabytes experimental-compaction-batch-limit
		experimental-distributed-tracing-sampling-rate experimental-snapshot-catchup-entries heartbeat-interval
		max-concurrent-streams max-request-bytes max-snapshots max-txn-ops max-wals proxy-dial-timeout
		proxy-failure-wait proxy-read-timeout proxy-refresh-interval proxy-write-timeout quota-backend-bytes
		self-signed-cert-validity snapshot-catchup-entries snapshot-count`
	otherDurations = `backend-batch-interval compact-hash-check-time compaction-sleep-interval corrupt-check-time
		discovery-dial-timeout discovery-keepalive-time discovery-keepalive-timeout discovery-request-timeout
		downgrade-check-time experimental-compact-hash-check-time experimental-compaction-sleep-interval
		experimental-corrupt-check-time experimental-downgrade-check-time experimental-warning-apply-duration
		experimental-warning-unary-request-duration experimental-watch-progress-notify-interval
		grpc-keepalive-interval grpc-keepalive-min-time grpc-keepalive-timeout raft-read-timeout raft-write-timeout
		warning-apply-duration warning-unary-request-duration watch-progress-notify-interval`
	otherLists = `log-outputs`
	otherTexts = `auth-token auto-compaction-mode auto-compaction-retention backend-bbolt-freelist-type client-crl-file
		cors discovery-cacert discovery-cert discovery-fallback discovery-key discovery-password discovery-proxy
		discovery-user distributed-tracing-address distributed-tracing-instance-id
		distributed-tracing-service-name experimental-backend-bbolt-freelist-type
		experimental-distributed-tracing-address experimental-distributed-tracing-instance-id
		experimental-distributed-tracing-service-name experimental-enable-v2v3 feature-gates host-whitelist
		listen-client-http-urls listen-metrics-urls log-format log-level log-package-levels log-rotation-config-json
		logger metrics proxy v2-deprecation`
)

// otherPath is where the file has a setting that is not under its flag's name;
// "-" where a configuration file cannot say it at all.
func otherPath(flag string) string {
	switch flag {
	case "socket-reuse-port":
		return "socket-options.reuse-port"
	case "socket-reuse-address":
		return "socket-options.reuse-address"
	case "client-crl-file", "raft-read-timeout", "raft-write-timeout":
		return "-"
	default:
		return ""
	}
}

// refusedKeys are the settings that cannot stand beside a seeded directory.
func refusedKeys() []key {
	return []key{{flag: "discovery"}, {flag: "discovery-endpoints"}, {flag: "discovery-token"}, {flag: "discovery-config"}, {flag: "force-new-cluster", kind: boolean}}
}

// allKeys are all of etcd's settings by flag name, 3.4 to 3.7.
func allKeys() map[string]key {
	all := map[string]key{}
	for kind, names := range map[kind]string{boolean: otherBooleans, integer: otherIntegers, duration: otherDurations, list: otherLists, text: otherTexts} {
		for name := range strings.FieldsSeq(names) {
			all[name] = key{flag: name, kind: kind, path: otherPath(name)}
		}
	}
	for _, k := range append(ownKeys(), refusedKeys()...) {
		all[k.flag] = k
	}
	return all
}

// refused explains why a setting of refusedKeys cannot be used.
func refused(flag string, s setting) error {
	if flag == "force-new-cluster" {
		return invalid(s.place+": it makes every member a cluster of its own, whatever was seeded; take it away", nil)
	}
	return invalid(fmt.Sprintf("%s is %q: etcd's discovery service makes the member list as etcd starts, but here every member's list is seeded before that; take the discovery service's keys away and use discovery-srv, or --discovery with another source", s.place, s.value), nil)
}
