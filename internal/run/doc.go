// Package run calls one plugin once, the way section 2 of the contract
// (plugins/README.md) says: request on stdin, at most 1 MiB from stdout, stderr
// by lines, nothing in the environment but what is given, an empty working
// directory, a process group that is killed at the deadline. It does not read
// what the plugin printed.
package run
