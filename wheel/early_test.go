package wheel_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// On real clocks nothing is early, for every way to set a deadline and every alarm. The
// lateness depends on the machine, and is measured by the command's accuracy report
// rather than tested.
func TestNothingIsEarlyOnRealClocks(t *testing.T) {
	for _, tick := range []time.Duration{100 * time.Microsecond, ms, 10 * ms} {
		for _, precise := range []bool{false, true} {
			t.Run(fmt.Sprintf("tick %v, precise %v", tick, precise), func(t *testing.T) {
				t.Parallel()
				nothingIsEarly(t, start(t, wheel.Config{Tick: tick, Precise: precise}))
			})
		}
	}
}

func nothingIsEarly(t *testing.T, w *wheel.Wheel) {
	const (
		rounds  = 600 // of each kind
		longest = 300 * ms
	)
	rnd := newRand(t)
	var ran atomic.Int64
	// dueAt returns a task that is to run no earlier than at; due, one that is
	// to run no earlier than d from now.
	dueAt := func(kind string, at time.Time) func() {
		return func() {
			ran.Add(1)
			left := time.Until(at)
			check(t, left <= 0, "%s: %v early", kind, left)
		}
	}
	due := func(kind string, d time.Duration) func() { return dueAt(kind, time.Now().Add(d)) }
	for range rounds {
		d := time.Duration(rnd.Int64N(int64(longest)))
		must(w.Schedule(d, due("Schedule", d)))
		at := time.Now().Add(d)
		must(w.ScheduleAt(at, dueAt("ScheduleAt", at)))

		var task func()
		timer := new(wheel.Timer)
		timer.Init(w, func() { task() })
		must(timer.Arm(time.Hour))
		task = due("Timer", d)
		must(timer.Arm(d)) // to earlier

		var deadline atomic.Pointer[time.Time]
		sooner, later := time.Now().Add(d/2), time.Now().Add(d)
		deadline.Store(&sooner)
		h := must(w.ScheduleAt(sooner, func() { dueAt("ResetAt", *deadline.Load())() }))
		if h.ResetAt(later) { // or it has run already
			deadline.Store(&later)
		}

		// One that is set again from inside, twice.
		again, begun := 0, time.Now()
		must(w.ScheduleFunc(d/3, func(h timeout.Timeout) {
			again++
			ran.Add(1)
			left := time.Duration(again)*(d/3) - time.Since(begun)
			check(t, left <= 0, "run %d of a delay of %v was %v early", again, d/3, left)
			if again < 3 {
				h.Reset(d / 3)
			}
		}))

		if rnd.IntN(4) == 0 {
			time.Sleep(time.Duration(rnd.Int64N(int64(500 * time.Microsecond))))
		}
	}
	every, period := 0, 3*w.Tick()+time.Microsecond
	begun := time.Now()
	must(w.Every(period, wheel.CatchUp, func() {
		every++
		left := time.Duration(every)*period - time.Since(begun)
		check(t, left <= 0, "run %d of a period of %v was %v early", every, period, left)
	}))
	for limit := time.Now().Add(time.Minute); w.Stats().Pending > 1; time.Sleep(ms) {
		require(t, !time.Now().After(limit), "%d are still pending after a minute", w.Stats().Pending)
	}
	w.Stop()
	n := ran.Load()
	check(t, n == 7*rounds, "%d ran, want %d", n, 7*rounds)
	check(t, every != 0, "the periodic task has not run")
}
