//go:build !unix || solaris || illumos || aix

package membersdb

import (
	"os"
	"time"
)

const lockTimeout = 500 * time.Millisecond

// lockShared does nothing: seeding is not supported here, and a reader does no harm.
func lockShared(*os.File, time.Duration) error { return nil }
