// Package backoff sends failed requests again, and computes the pause before that.
package backoff

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
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

// The bounds of [After]; most bounds [Conflict], too.
const (
	First = 20 * time.Millisecond
	most  = 640 * time.Millisecond
)

// After returns the pause before a request to a store is sent again; see [Pause].
func After(failures int) time.Duration { return Pause(failures, First, most) }

// Conflict returns the pause before a request is tried again that wrote on what others had changed since it read
// it. conflicts is 0 before the first pause, took the time of the latest attempt. Each attempt that succeeds makes
// all others fail that have read before, so as many may be made at once as succeed within one: requests that ask
// for a hold make fewer than those that keep or end one.
func Conflict(conflicts int, took time.Duration, asks bool) time.Duration {
	attempts := 2
	if asks {
		attempts = 64
	}
	took = min(max(took, time.Millisecond), most)
	return Pause(conflicts, took, min(time.Duration(attempts)*took, most))
}

// Retry calls once until it succeeds, or again reports false for its error. It pauses between
// the calls. The context of the calls ends at the limit, which bounds all of them together. If
// it cuts a later call short, or no further call can begin in time, the error is that of the
// latest whole call. If ctx ends, or owner does during a pause, the error also carries that
// cause. It matches [driver.ErrNotDone] only if those of all calls do.
func Retry(ctx, owner context.Context, limit time.Duration, again func(error) bool, once func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	by, _ := limited.Deadline()
	maybe := false // a call may have been applied
	var whole error
	for failures := 0; ; failures++ {
		err := once(limited)
		if err == nil {
			return nil
		}
		repeats := again(err)
		if whole == nil || !repeats || time.Now().Before(by) {
			whole = err
		}
		maybe = maybe || !errors.Is(err, driver.ErrNotDone)
		if maybe && errors.Is(whole, driver.ErrNotDone) {
			whole = maybeApplied{whole}
		}
		pause, ended := After(failures), ctx
		switch {
		case ctx.Err() != nil:
		case !repeats, time.Since(start)+pause > limit:
			return whole
		default:
			ended = SleepBoth(ctx, owner, pause)
		}
		if ended != nil {
			return fmt.Errorf("%w (last error: %w)", context.Cause(ended), whole)
		}
	}
}

// maybeApplied is the error of a call that has changed nothing, after one that may have.
type maybeApplied struct{ error }

func (e maybeApplied) Is(target error) bool {
	return target != driver.ErrNotDone && errors.Is(e.error, target)
}

func (e maybeApplied) As(target any) bool { return errors.As(e.error, target) }

// SleepBoth waits for d. It returns the context that ends first, or nil.
func SleepBoth(ctx, owner context.Context, d time.Duration) (ended context.Context) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx
	case <-owner.Done():
		return owner
	}
}

// Sleep waits for d. It returns false if ctx ends first, or has ended by then.
func Sleep(ctx context.Context, d time.Duration) bool {
	return SleepBoth(ctx, context.Background(), d) == nil && ctx.Err() == nil
}
