//go:build !linux

package agent

import "time"

// bootTime is the wall clock: systems without CLOCK_BOOTTIME stop their
// monotonic clocks while the machine sleeps.
func bootTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
