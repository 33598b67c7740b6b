package wheel

import (
	"testing"
	"time"
)

// A wait lasts as long as it was asked to, so that a precise worker wakes once for a
// deadline. One of centuries, whose seconds do not fit into 32 bits, is cut to a wait that
// they do fit into.
func TestPreciseAlarmsLimits(t *testing.T) {
	check(t, timespec(forever) == nil, "a wait without an end ends")
	for _, d := range []time.Duration{1, 100 * ms, second, longestWait, 69 * 365 * day, 140 * 365 * day, forever - 1} {
		got := time.Duration(timespec(d).Nano())
		check(t, got == min(d, longestWait), "a wait of %v lasts %v", d, got)
	}
}
