package delayqueue

import "time"

// Backoff says how long a message waits after an attempt that failed, the first
// being 1.
type Backoff func(attempt int, err error) time.Duration

// Exponential returns a backoff of first after the first attempt, doubling with
// each, up to most. A random part of up to a half is taken off, so that messages
// that failed together do not come again together. It panics unless
// 0 < first ≤ most ≤ [MaxDelay].
func Exponential(first, most time.Duration) Backoff {
	if first <= 0 || most < first || most > MaxDelay {
		panic("delayqueue: Exponential needs 0 < first ≤ most ≤ MaxDelay")
	}
	return func(attempt int, _ error) time.Duration {
		return backoff(max(0, attempt-1), first, most)
	}
}
