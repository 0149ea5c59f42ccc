//go:build !unix

package seed_test

func setUmask(int) {}
