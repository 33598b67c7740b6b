// Package hostclock reads the monotonic clock that all processes of a host share, so that
// they can compare their times. The monotonic part of a time.Time means nothing to another
// process.
package hostclock

import "time"

// Instant is a reading of the host's monotonic clock, in nanoseconds.
type Instant int64

// Since returns how long i is after earlier.
func (i Instant) Since(earlier Instant) time.Duration { return time.Duration(i - earlier) }
