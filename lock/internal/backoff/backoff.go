// Package backoff computes the pause before a failed request is sent again, and waits for it.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pause returns a pause that doubles with each failure, from first up to most. failures
// is 0 after the first. The pause is drawn from its upper half, so that clients which
// failed together do not retry together. first is positive, and at most most.
func Pause(failures int, first, most time.Duration) time.Duration {
	d := most
	if failures < 32 && first < most>>failures {
		d = first << failures
	}
	return d - rand.N(d/2+1)
}

// Sleep waits for d. It returns false if ctx ends first, or has ended by then.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
