package bench

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stressExpiries is how many expiries the stress test waits for. The full proof
// is leasewheel accuracy stress; STRESS_EXPIRIES makes this test as long.
func stressExpiries(t *testing.T) int64 {
	text := os.Getenv("STRESS_EXPIRIES")
	if text == "" {
		return 20_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err, "STRESS_EXPIRIES must be a number")
	return n
}

func TestStressAccountsForEveryTimeout(t *testing.T) {
	plan := StressPlan{
		Wheel:    wheel.Config{Tick: time.Millisecond, Logger: slog.New(slog.DiscardHandler)},
		Expiries: stressExpiries(t), Producers: 4, Pending: 5_000, MaxDelay: 20 * time.Millisecond,
		Seed: uint64(time.Now().UnixNano()),
	}
	t.Logf("seed %d", plan.Seed)
	r, err := Stress(t.Context(), plan, nil)
	require.NoError(t, err)
	assert.False(t, r.Broken(), "%+v", r)
	assert.GreaterOrEqual(t, r.Expired, plan.Expiries)
	assert.Equal(t, r.Scheduled, r.Expired+r.Cancelled+r.Unrun+r.Lost)
	assert.Equal(t, r.Expired, r.Lateness.Count())
	assert.Positive(t, r.Cancelled)
	assert.Positive(t, r.Moved)
	assert.Positive(t, r.Unrun+r.Refused, "the wheel was to be stopped while it was scheduled on")
}

func TestStressEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		begun := time.Now()
		time.AfterFunc(time.Hour, func() { cancel(cause) })
		_, err := Stress(ctx, StressPlan{
			Expiries: maxExpiries, Producers: 1, Pending: 10, MaxDelay: time.Minute,
		}, nil)
		assert.ErrorIs(t, err, cause)
		assert.Equal(t, time.Hour, time.Since(begun))
	})
}

// Each fault of the wheel by itself is a broken promise.
func TestStressResultIsBrokenByAnyFault(t *testing.T) {
	sound := StressResult{Scheduled: 4, Expired: 1, Cancelled: 1, Unrun: 1, Refused: 1, Moved: 1}
	assert.False(t, sound.Broken())
	for name, fault := range map[string]func(*StressResult){
		"early":           func(r *StressResult) { r.Early = 1 },
		"lost":            func(r *StressResult) { r.Lost = 1 },
		"doubled":         func(r *StressResult) { r.Doubled = 1 },
		"goroutines left": func(r *StressResult) { r.Goroutines = 1 },
	} {
		r := sound
		fault(&r)
		assert.True(t, r.Broken(), name)
	}
}

// Goroutines that are left after the wheel has stopped are counted.
func TestGoroutinesThatAreLeftAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, end := runtime.NumGoroutine(), make(chan struct{})
		for range 100 { // many, for one of an earlier test may still be ending
			go func() { <-end }()
		}
		assert.Positive(t, goroutinesBeyond(before))
		close(end)
	})
}

// A wheel whose tick is longer than the grace of missing runs loses none of them.
func TestStressWithLongTicksLosesNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Stress(t.Context(), StressPlan{
			Wheel:    wheel.Config{Tick: 20 * time.Minute},
			Expiries: 10, Producers: 1, Pending: 10, MaxDelay: time.Second,
		}, nil)
		require.NoError(t, err)
		assert.False(t, r.Broken(), "%+v", r)
		assert.GreaterOrEqual(t, r.Expired, int64(10))
	})
}

// The stress test proves nothing unless it finds the outcome of each record.
func TestSettleFindsWhatIsWrong(t *testing.T) {
	const deadline = time.Second
	for _, tt := range []struct {
		name  string
		state recordState
		runs  int64
		ran   time.Duration
		want  StressResult
	}{
		{"on time", scheduled, 1, deadline, StressResult{Expired: 1}},
		{"early", scheduled, 1, deadline - 1, StressResult{Expired: 1, Early: 1}},
		{"twice", scheduled, 2, deadline, StressResult{Expired: 1, Doubled: 1}},
		{"never", scheduled, 0, 0, StressResult{Lost: 1}},
		{"cancelled", cancelled, 0, 0, StressResult{Cancelled: 1}},
		{"cancelled and run", cancelled, 1, deadline, StressResult{Cancelled: 1, Doubled: 1}},
		{"run again after it was settled", settled, 1, deadline, StressResult{Doubled: 1}},
		{"nothing", settled, 0, 0, StressResult{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := producer{result: StressResult{Lateness: newDistribution()}}
			r := &record{deadline: deadline, state: tt.state, seen: 5}
			r.runs.Store(5 + tt.runs)
			r.ran.Store(int64(tt.ran))
			p.settle(r, nil)
			p.result.Lateness = nil
			assert.Equal(t, tt.want, p.result)
			assert.Equal(t, settled, r.state)
		})
	}
}

func TestStressPlanRefusesWhatMakesNoSense(t *testing.T) {
	good := StressPlan{Expiries: 1, Producers: 1, Pending: 1}
	assert.NoError(t, good.Validate())
	for _, tt := range []struct {
		change func(*StressPlan)
		says   string
	}{
		{func(p *StressPlan) { p.Expiries = 0 }, "expiries must be 1 to 10000000000, got 0"},
		{func(p *StressPlan) { p.Expiries = maxExpiries + 1 }, "expiries must be"},
		{func(p *StressPlan) { p.Producers = 0 }, "producers must be 1 to 1000, got 0"},
		{func(p *StressPlan) { p.Producers = 1001 }, "got 1001"},
		{func(p *StressPlan) { p.Pending = -1 }, "pending timeouts must be 1 to 10000000 for 1 producers, got -1"},
		{func(p *StressPlan) { p.Producers, p.Pending = 1000, 10_001 }, "1 to 10000 for 1000 producers, got 10001"},
		{func(p *StressPlan) { p.MaxDelay = -1 }, "delay must be 0s to 1m0s, got -1ns"},
		{func(p *StressPlan) { p.MaxDelay = time.Hour }, "delay must be 0s to 1m0s, got 1h0m0s"},
		{func(p *StressPlan) { p.Load = 9 }, "load must be"},
	} {
		p := good
		tt.change(&p)
		assert.ErrorContains(t, p.Validate(), tt.says)
	}
	_, err := Stress(t.Context(), StressPlan{}, nil)
	assert.ErrorContains(t, err, "expiries must be")
}
