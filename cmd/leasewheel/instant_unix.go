//go:build unix

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// instantClock translates this process's times into instants.
type instantClock struct {
	time time.Time
	at   instant
}

func newInstantClock() (instantClock, error) {
	var at unix.Timespec
	before := time.Now()
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
	between := before.Add(time.Since(before) / 2)
	return instantClock{time: between, at: instant(at.Nano())}, err
}

// of returns the instant of t, which must have a monotonic reading.
func (c instantClock) of(t time.Time) instant { return c.at + instant(t.Sub(c.time)) }

func (c instantClock) now() instant { return c.of(time.Now()) }
