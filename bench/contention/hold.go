//go:build unix

package contention

import (
	"time"

	"golang.org/x/sys/unix"
)

// hold waits for a time. Go's timers may be late by a millisecond, as much as the measured
// times; the system's sleep is late by some 50 µs.
func hold(d time.Duration) {
	for end := time.Now().Add(d); d > 0; d = time.Until(end) {
		t := unix.NsecToTimeval(int64(d + time.Microsecond - 1))
		_, _ = unix.Select(0, nil, nil, nil, &t) // interrupted by signals: the rest follows
	}
}
