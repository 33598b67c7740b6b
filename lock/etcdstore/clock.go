package etcdstore

import (
	"sync"
	"time"
)

// clock is a clock of leases. It goes on while the system sleeps, as etcd does. Its origin means
// nothing.
type clock func() time.Duration

// combined returns a clock of two: it advances by the larger advance. The monotonic clock may stand
// still during sleep, and the wall clock may be set back.
func combined(monotonic, wall clock) clock {
	var mu sync.Mutex
	var now time.Duration
	m, w := monotonic(), wall()
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		m0, w0 := m, w
		m, w = monotonic(), wall()
		now += max(m-m0, w-w0)
		return now
	}
}

// combinedClock returns the clock of systems that have no better one.
func combinedClock() clock {
	start := time.Now()
	return combined(
		func() time.Duration { return time.Since(start) },
		func() time.Duration { return time.Duration(time.Now().UnixNano()) },
	)
}
