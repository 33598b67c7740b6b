//go:build linux

package chaos

import (
	"time"

	"golang.org/x/sys/unix"
)

// instant is a reading of CLOCK_MONOTONIC in nanoseconds. All processes of a machine
// share that clock, and stopping a process does not stop it.
type instant int64

func now() instant {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return instant(at.Nano())
}

func (i instant) add(d time.Duration) instant       { return i + instant(d) }
func (i instant) sub(earlier instant) time.Duration { return time.Duration(i - earlier) }

// forever is later than every reading.
const forever = instant(1<<63 - 1)

// instantOf returns the reading at which t is reached. It is early rather than late
// if the process is stopped between the two clocks' readings.
func instantOf(t time.Time) instant {
	at := now()
	return at.add(time.Until(t))
}
