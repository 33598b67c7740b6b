//go:build unix

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// instantClock converts this process's times to instants.
type instantClock struct {
	time time.Time
	at   instant
}

func newInstantClock() (instantClock, error) {
	return calibrate(func() (instant, error) {
		var at unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
		return instant(at.Nano()), err
	})
}

// calibrations is how often the host's clock is compared with this process's. If the
// process is interrupted in between, by as much as a time slice, the comparison is wrong
// by up to half of that, and separate holds of a lock seem to overlap. The quickest
// comparison is right within a microsecond.
const calibrations = 64

func calibrate(host func() (instant, error)) (c instantClock, err error) {
	var quickest time.Duration
	for i := range calibrations {
		before := time.Now()
		at, err := host()
		took := time.Since(before)
		if err != nil {
			return c, err
		}
		if i == 0 || took < quickest {
			quickest, c = took, instantClock{before.Add(took / 2), at}
		}
	}
	return c, nil
}

// of returns the instant of t, which must have a monotonic reading.
func (c instantClock) of(t time.Time) instant { return c.at + instant(t.Sub(c.time)) }

func (c instantClock) now() instant { return c.of(time.Now()) }
