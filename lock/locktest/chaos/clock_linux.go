package chaos

import "golang.org/x/sys/unix"

// hostNow reads CLOCK_MONOTONIC. All processes of a machine share that clock, and stopping a
// process does not stop it.
func hostNow() instant {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return instant(at.Nano())
}
