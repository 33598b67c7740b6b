package main

import "time"

// instant is a reading of the host's monotonic clock in nanoseconds. Unlike the
// monotonic part of a time.Time it can be compared between processes.
type instant int64

// after returns how long i is after earlier.
func (i instant) after(earlier instant) time.Duration { return time.Duration(i - earlier) }
