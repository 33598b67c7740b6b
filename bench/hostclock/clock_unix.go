//go:build unix

package hostclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock converts this process's times to instants. It is safe for concurrent use.
type Clock struct {
	time time.Time
	at   Instant
}

// New compares the host's clock with this process's, and returns an error if the host has
// none.
func New() (Clock, error) {
	return calibrate(func() (Instant, error) {
		var at unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
		return Instant(at.Nano()), err
	})
}

// calibrations is how often the host's clock is compared with this process's. If the
// process is interrupted in between, by as much as a time slice, the comparison is wrong
// by up to half of that, and separate holds of a lock seem to overlap. The quickest
// comparison is right within a microsecond.
const calibrations = 64

func calibrate(host func() (Instant, error)) (c Clock, err error) {
	var quickest time.Duration
	for i := range calibrations {
		before := time.Now()
		at, err := host()
		took := time.Since(before)
		if err != nil {
			return c, err
		}
		if i == 0 || took < quickest {
			quickest, c = took, Clock{before.Add(took / 2), at}
		}
	}
	return c, nil
}

// Of returns the instant of t, which must have a monotonic reading.
func (c Clock) Of(t time.Time) Instant { return c.at + Instant(t.Sub(c.time)) }

// Now returns the present instant.
func (c Clock) Now() Instant { return c.Of(time.Now()) }
