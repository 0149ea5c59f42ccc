// Package discovery finds the peers of an etcd cluster and which one is us.
//
// A source is a URL: srv://example.org, file:///etc/etcdinit/peers.yaml. A
// Registry turns it into a Provider, Await asks the provider until the answer
// is complete, and MatchSelf finds this host in the answer.
//
//	p, err := registry.Open("srv://example.org", env)
//	peers, err := discovery.Await(ctx, p, discovery.AwaitOptions{Size: 3, Env: env})
//	self, err := discovery.MatchSelf(peers, local)
//
// # The contract of a provider
//
// The answer of Discover is one of three.
//
//  1. The whole peer set, every host with its addresses.
//  2. Not yet: an *Error of kind Retry. The name does not exist, a record or
//     an address is missing, a server does not answer, a file is half written.
//     All these are one class with different words: a person who starts a cluster
//     publishes its names while the nodes boot. Error.After says how long the
//     answer cannot change; Await does not ask sooner.
//  3. Never: an *Error of another kind. The source is malformed (Config), the
//     answer is complete and cannot be used (Unusable), a plugin broke its
//     contract (Plugin). Await returns it at once.
//
// "No answer" is never an empty set, and part of an answer is never an answer:
// an entry that does not resolve is not left out. A node that went on with the
// two peers it saw would be the seed of a second cluster.
//
// A provider asks once for each call of Discover, keeps no goroutine after it
// returned, and obeys the context. It need not sort, lower-case, name or check:
// Await does that for all of them, so that no source can weaken the rules.
// A provider whose list is complete by definition says so by being Sized.
package discovery
