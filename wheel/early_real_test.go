//go:build real

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
	const rounds, longest = 600, 300 * ms
	rnd := newRand(t)
	var ran atomic.Int64
	early := func(kind string, at time.Time) {
		ran.Add(1)
		left := time.Until(at)
		check(t, left <= 0, "broken promise: %s: %v early", kind, left)
	}
	for range rounds {
		d := time.Duration(rnd.Int64N(int64(longest)))
		for name, f := range forms {
			at := time.Now().Add(d)
			must(f.schedule(w, d, func() { early(name, at) }))
		}
		at := time.Now().Add(d)
		must(armed(w, time.Hour, func() { early("to earlier", at) }).Arm(d))

		var deadline atomic.Pointer[time.Time]
		sooner, later := time.Now().Add(d/2), time.Now().Add(d)
		deadline.Store(&sooner)
		h := must(w.ScheduleAt(sooner, func() { early("to later", *deadline.Load()) }))
		if h.ResetAt(later) { // or it has run already
			deadline.Store(&later)
		}

		// One that is set again from inside, twice.
		again, begun := 0, time.Now()
		must(w.ScheduleFunc(d/3, func(h timeout.Timeout) {
			again++
			early("again", begun.Add(time.Duration(again)*(d/3)))
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
		check(t, left <= 0, "broken promise: run %d of a period of %v was %v early", every, period, left)
	}))
	want := int64((len(forms) + 5) * rounds)
	for limit := time.Now().Add(time.Minute); ran.Load() < want; time.Sleep(ms) {
		require(t, !time.Now().After(limit), "%d have run after a minute, want %d", ran.Load(), want)
	}
	w.Stop()
	check(t, ran.Load() == want && every != 0, "%d ran, want %d; the periodic task %d times", ran.Load(), want, every)
}
