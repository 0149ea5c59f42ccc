//go:build unix

package seed_test

import "syscall"

func setUmask(mask int) { syscall.Umask(mask) }
