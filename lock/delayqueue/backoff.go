package delayqueue

import (
	"time"

	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// Backoff returns how long a message waits after a failed attempt. The first attempt is
// 1.
type Backoff func(attempt int, err error) time.Duration

// Exponential returns a backoff that is first after the first attempt and doubles with
// each, up to most. A random part of up to a half is subtracted, so that messages that
// failed together are not retried together. It panics unless 0 < first ≤ most ≤
// [MaxDelay].
func Exponential(first, most time.Duration) Backoff {
	if first <= 0 || most < first || most > MaxDelay {
		panic("delayqueue: Exponential needs 0 < first ≤ most ≤ MaxDelay")
	}
	return func(attempt int, _ error) time.Duration {
		return backoff.Pause(max(0, attempt-1), first, most)
	}
}
