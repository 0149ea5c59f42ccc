// Package plugintest holds a plugin against the contract of plugins/README.md.
// The command etcdinit plugins test runs the same checks.
//
//	func TestConformance(t *testing.T) {
//		plugintest.Test(t, "/opt/etcdinit/plugins/hosts", plugintest.Options{
//			Parameters: map[string]string{"file": "testdata/hosts"}, Size: 3,
//		})
//	}
package plugintest
