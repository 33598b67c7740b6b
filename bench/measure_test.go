package bench

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leasewheel/leasewheel/wheel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// measure runs a plan in virtual time.
func measure(t *testing.T, c Column, p Plan) *Result {
	t.Helper()
	var r *Result
	synctest.Test(t, func(t *testing.T) {
		var err error
		r, err = Measure(t.Context(), c, p, nil)
		require.NoError(t, err)
	})
	return r
}

func TestRuntimeTimersAreExactInVirtualTime(t *testing.T) {
	for _, mode := range []Mode{OneShot, Periodic, Rearmed} {
		t.Run(mode.String(), func(t *testing.T) {
			r := measure(t, Runtime(), Plan{
				Mode: mode, Timeouts: 100, MinDelay: time.Millisecond, MaxDelay: time.Second,
				Duration: 3 * time.Second,
			})
			assert.False(t, r.Broken())
			assert.Equal(t, r.Planned, r.Lateness.Count())
			assert.Zero(t, r.Lateness.Max())
			if mode == OneShot {
				assert.EqualValues(t, 100, r.Planned)
				assert.Zero(t, r.Jitter.Count())
			} else {
				assert.Greater(t, r.Planned, int64(300))
				assert.Equal(t, r.Planned-100, r.Jitter.Count())
			}
		})
	}
}

// skewed are timers that are wrong by a given time.
type skewed struct {
	runtimeTimers
	skew  func(time.Duration) time.Duration
	times int // runs of each one-shot timeout
}

func (s *skewed) Schedule(d time.Duration, task func()) error {
	for range s.times {
		_ = s.runtimeTimers.Schedule(s.skew(d), task)
	}
	return nil
}

func (s *skewed) Repeat(period time.Duration, task func()) error {
	return s.runtimeTimers.Repeat(s.skew(period), task)
}

func skewedColumn(times int, skew func(time.Duration) time.Duration) Column {
	return Column{Name: "skewed", Open: func() (Timers, error) {
		return &skewed{skew: skew, times: times}, nil
	}}
}

func TestEarlyRunsAreCounted(t *testing.T) {
	early := skewedColumn(1, func(d time.Duration) time.Duration { return d - time.Nanosecond })
	r := measure(t, early, Plan{Timeouts: 50, MinDelay: time.Second, MaxDelay: time.Second})
	assert.True(t, r.Broken())
	assert.EqualValues(t, 50, r.Early)
	assert.Equal(t, time.Nanosecond, r.Earliest)
	assert.EqualValues(t, 50, r.Lateness.Count())
}

func TestLatenessIsExactWithinTheHistogramsDigits(t *testing.T) {
	late := skewedColumn(1, func(d time.Duration) time.Duration { return d + 1234567*time.Nanosecond })
	r := measure(t, late, Plan{Timeouts: 10, MinDelay: 0, MaxDelay: time.Second})
	assert.False(t, r.Broken())
	assert.Equal(t, 1234567*time.Nanosecond, r.Lateness.Max())
	assert.Equal(t, 1234567*time.Nanosecond, r.Lateness.Mean())
	assert.InEpsilon(t, 1234567, r.Lateness.Percentile(50), 0.001)
}

func TestLostAndExtraRunsAreCounted(t *testing.T) {
	plan := Plan{Timeouts: 7, MaxDelay: time.Second}
	none := measure(t, skewedColumn(0, func(d time.Duration) time.Duration { return d }), plan)
	assert.True(t, none.Broken())
	assert.EqualValues(t, 7, none.Lost)
	assert.Zero(t, none.Lateness.Count())

	twice := measure(t, skewedColumn(2, func(d time.Duration) time.Duration { return d }), plan)
	assert.True(t, twice.Broken())
	assert.Positive(t, twice.Extra)
}

// A wheel whose tick is longer than the grace of missing runs loses none of them.
func TestLongTicksLoseNoRun(t *testing.T) {
	const tick = 20 * time.Minute
	for _, mode := range []Mode{OneShot, Periodic, Rearmed} {
		t.Run(mode.String(), func(t *testing.T) {
			plan := Plan{Mode: mode, Timeouts: 10, MinDelay: time.Millisecond, MaxDelay: time.Second}
			if mode != OneShot {
				plan.MinDelay, plan.MaxDelay, plan.Duration = tick, 2*tick, 10*tick
			}
			r := measure(t, Wheel(wheel.Config{Tick: tick}), plan)
			assert.False(t, r.Broken(), "%d of %d runs lost", r.Lost, r.Planned)
			assert.Equal(t, r.Planned, r.Lateness.Count())
		})
	}
}

// slow are timers whose calls take a while.
type slow struct {
	runtimeTimers
	call time.Duration
}

func (s *slow) Schedule(d time.Duration, task func()) error {
	time.Sleep(s.call)
	return s.runtimeTimers.Schedule(d, task)
}

func (s *slow) Repeat(period time.Duration, task func()) error {
	time.Sleep(s.call)
	return s.runtimeTimers.Repeat(period, task)
}

// Reusable has a slow first call, which schedules. The task's calls are fast.
func (s *slow) Reusable(task func()) func(time.Duration) error {
	arm := s.runtimeTimers.Reusable(task)
	return func(d time.Duration) error {
		time.Sleep(s.call)
		s.call = 0
		return arm(d)
	}
}

// The plan counts from the instant before the call that schedules, so the duration of the
// call is lateness.
func TestSchedulingCountsAsLateness(t *testing.T) {
	const call = 5 * time.Millisecond
	for _, mode := range []Mode{OneShot, Periodic, Rearmed} {
		t.Run(mode.String(), func(t *testing.T) {
			column := Column{Name: "slow", Open: func() (Timers, error) { return &slow{call: call}, nil }}
			r := measure(t, column, Plan{
				Mode: mode, Timeouts: 1, MinDelay: time.Second, MaxDelay: time.Second, Duration: time.Second,
			})
			assert.False(t, r.Broken())
			assert.Equal(t, call, r.Lateness.Max())
		})
	}
}

// A period that is too long by a tenth must not look on time: every run is
// measured from the plan, not from the run before.
func TestDriftAddsUp(t *testing.T) {
	slow := skewedColumn(1, func(d time.Duration) time.Duration { return d + d/10 })
	r := measure(t, slow, Plan{
		Mode: Periodic, Timeouts: 1, MinDelay: time.Second, MaxDelay: time.Second, Duration: 10 * time.Second,
	})
	assert.Equal(t, time.Second, r.Lateness.Max())
	assert.InEpsilon(t, 100*time.Millisecond, r.Jitter.Percentile(50), 0.001)
}

// stalling are timers whose process stands still for a while.
type stalling struct {
	runtimeTimers
	at, stall time.Duration
}

func (s *stalling) Reusable(task func()) func(time.Duration) error {
	start := time.Now()
	return s.runtimeTimers.Reusable(func() {
		if since := time.Since(start); since >= s.at && since < s.at+s.stall {
			time.Sleep(s.at + s.stall - since)
		}
		task()
	})
}

// A stall of one second delays ten runs of a timeout every 100 ms, by 1 s,
// 0.9 s, … 0.1 s. Counting from the run before would show a single late run.
func TestStallShowsInEveryRunThatItDelayed(t *testing.T) {
	stall := Column{Name: "stall", Open: func() (Timers, error) {
		return &stalling{at: time.Second, stall: time.Second}, nil
	}}
	r := measure(t, stall, Plan{
		Mode: Rearmed, Timeouts: 1,
		MinDelay: 100 * time.Millisecond, MaxDelay: 100 * time.Millisecond, Duration: 5 * time.Second,
	})
	assert.False(t, r.Broken())
	late := int64(0)
	for _, bar := range r.Lateness.Bars() {
		if bar.To > 0 {
			late += bar.Count
		}
	}
	assert.EqualValues(t, 10, late)
	assert.Equal(t, time.Second, r.Lateness.Max())
}

func TestMeasureEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		start := time.Now()
		_, err := Measure(ctx, Runtime(), Plan{Timeouts: 1, MinDelay: time.Hour, MaxDelay: time.Hour}, nil)
		assert.ErrorIs(t, err, cause)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestProgressCountsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var progress Progress
		_, err := Measure(t.Context(), Runtime(), Plan{Timeouts: 20, MaxDelay: time.Second}, &progress)
		require.NoError(t, err)
		done, total := progress.Load()
		assert.EqualValues(t, 20, done)
		assert.EqualValues(t, 20, total)
	})
}

// Under a load the real clock must be used: a computing goroutine holds virtual
// time still.
func TestLoadsStartAndStop(t *testing.T) {
	for _, load := range []Load{Busy, GC} {
		t.Run(load.String(), func(t *testing.T) {
			r, err := Measure(t.Context(), Runtime(), Plan{Timeouts: 10, MaxDelay: 10 * time.Millisecond, Load: load}, nil)
			require.NoError(t, err)
			assert.False(t, r.Broken())
			assert.True(t, !r.UsageKnown || r.Usage.CPU > 0)
		})
	}
}
