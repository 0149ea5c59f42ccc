package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since boot, with the time that the machine slept.
func bootTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(ts.Nano())
}
