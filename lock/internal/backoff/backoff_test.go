package backoff

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// The pauses after conflicts grow with the time of an attempt, and further for those that ask.
func TestConflict(t *testing.T) {
	const took = 10 * time.Millisecond
	for _, conflicts := range []int{0, 1, 6, math.MaxInt} {
		for asks, most := range map[bool]time.Duration{false: 2 * took, true: 64 * took} {
			longest := min(took<<min(conflicts, 20), most)
			pause := Conflict(conflicts, took, asks)
			if pause < longest/2 || pause > longest {
				t.Errorf("%v after %d conflicts, not up to %v", pause, conflicts, longest)
			}
		}
	}
	if Conflict(0, 0, true) <= 0 {
		t.Error("no pause after an attempt that took no time")
	}
	if pause := Conflict(9, time.Hour, true); pause > most {
		t.Errorf("%v after an attempt of an hour, not %v at most", pause, most)
	}
}

func TestPauseDoublesUpToMost(t *testing.T) {
	const first, most = 20 * time.Millisecond, 640 * time.Millisecond
	for failures, want := range map[int]time.Duration{
		0: first, 1: 2 * first, 4: 16 * first, 5: most, 6: most, 31: most, 32: most, math.MaxInt: most,
	} {
		var shortest, longest time.Duration = math.MaxInt64, 0
		for range 10_000 {
			p := Pause(failures, first, most)
			shortest, longest = min(shortest, p), max(longest, p)
		}
		if shortest < want/2 || shortest > want*6/10 || longest > want || longest < want*9/10 {
			t.Errorf("after %d failures: %v to %v, want %v to %v", failures, shortest, longest, want/2, want)
		}
	}
}

func TestPauseOfTheLongestDurations(t *testing.T) {
	for failures := range 100 {
		if p := Pause(failures, 1, math.MaxInt64); p < 0 {
			t.Errorf("after %d failures: %v", failures, p)
		}
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if !Sleep(t.Context(), time.Second) || time.Since(begin) != time.Second {
			t.Errorf("a second took %v", time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if Sleep(ctx, time.Hour) || time.Since(begin) != 2*time.Second {
			t.Errorf("a context of a second took %v", time.Since(begin))
		}
	})
}

// An error after which nothing is repeated is returned, even if the context ended before it came: it is
// about the request, and what repetitions met before it is not.
func TestRetryReturnsAFinalError(t *testing.T) {
	passing, final := errors.New("passing"), errors.New("final")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		err := Retry(ctx, t.Context(), time.Hour, func(err error) bool { return errors.Is(err, passing) }, func(context.Context) error {
			if time.Since(begin) == 0 {
				return passing
			}
			time.Sleep(time.Second)
			return final
		})
		if !errors.Is(err, final) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Retry returned %v", err)
		}
	})
}

// The error of a call that has changed nothing, after one that may have, matches all that it
// matched but ErrNotDone, and nothing else.
func TestRetryAfterACallThatMayBeApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		final, calls := &finalError{}, 0
		err := Retry(t.Context(), t.Context(), time.Hour, func(error) bool { return calls < 2 }, func(context.Context) error {
			if calls++; calls == 1 {
				return driver.ErrUnavailable
			}
			return fmt.Errorf("%w: %w", final, driver.ErrNotDone)
		})
		var as *finalError
		if errors.Is(err, driver.ErrNotDone) || !errors.Is(err, final) || !errors.As(err, &as) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Retry returned %v", err)
		}
	})
}

type finalError struct{}

func (*finalError) Error() string { return "final" }
