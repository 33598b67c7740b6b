package etcdstore

import (
	"time"

	"golang.org/x/sys/unix"
)

// systemClock returns the clock of the time since the system was started.
func systemClock() clock {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return combinedClock()
	}
	return func() time.Duration {
		var t unix.Timespec
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) //nolint:errcheck // it has succeeded
		return time.Duration(t.Nano())
	}
}
