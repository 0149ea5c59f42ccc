// Package execplugin asks a plugin, an executable that prints the peers, for
// them: the source exec:NAME?key=value. The contract is plugins/README.md.
package execplugin
