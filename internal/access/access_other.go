//go:build !unix

package access

// writable is not known here before the write.
func writable(string, bool) error { return nil }
