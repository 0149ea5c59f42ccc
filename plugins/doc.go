// Package plugins holds what a discovery plugin of etcdinit reads and writes,
// and Main, which makes a function one. README.md beside it is the contract:
// numbered, with examples that tests run, and with JSON Schemas in schema/.
//
// The package needs the standard library only. A plugin is
//
//	func main() {
//		plugins.Main(func(ctx context.Context, req plugins.Request) ([]plugins.Peer, error) {
//			return []plugins.Peer{{Host: "etcd-a.example.org"}}, nil
//		})
//	}
package plugins
