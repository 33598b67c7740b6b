package wheel

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// These are races between two goroutines, led step by step: in package wheel,
// because the steps are those inside of Cancel.

// One goroutine is in the middle of Cancel: it has won the timeout, but not yet notified
// the wheel. Meanwhile the worker passes the bucket, and another goroutine arms the timer
// again.
func TestArmedAgainInTheMiddleOfACancel(t *testing.T) {
	for _, again := range []time.Duration{0, ms, 5 * ms, 64 * ms, second} {
		for _, passed := range []bool{false, true} {
			name := fmt.Sprintf("%v passed %v", again, passed)
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := start(t, Config{Tick: ms, Buckets: 64})
					var ran []time.Time
					var timer Timer
					timer.Init(w, func() { ran = append(ran, time.Now()) })
					Must(timer.Arm(10 * ms))
					// Something to wake the worker, so that it takes the timer in.
					Must(w.Schedule(5*ms, func() {}))
					pass(9 * ms)

					_, won, _ := timer.node.Disarm()
					require(t, won, "not pending")
					if passed {
						pass(2 * ms)
					}
					deadline := time.Now().Add(max(again, ms)) // on a tick
					Must(timer.Arm(again))
					w.disarmed(&timer.node)

					pass(2 * second)
					check(t, len(ran) == 1 && ran[0].Equal(deadline), "ran at %v, want once, at %v", ran, deadline)
				})
			})
		}
	}
}

// A timeout that was moved to an earlier deadline and then cancelled leaves the wheel
// within a tick, not when the worker happens to wake for another reason.
func TestMovedAndCancelledIsReleasedWithinATick(t *testing.T) {
	for _, kind := range []string{"one-shot", "timer"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, Config{Tick: ms})
				// The worker sleeps until this one, a minute away.
				Must(w.Schedule(time.Minute, func() {}))
				var timer Timer
				timer.Init(w, func() {})
				reset, cancel := func(d time.Duration) { Must(timer.Arm(d)) }, timer.Cancel
				if kind == "one-shot" {
					h := Must(w.Schedule(time.Hour, func() {}))
					reset, cancel = func(d time.Duration) { h.Reset(d) }, h.Cancel
				}
				reset(time.Hour)
				Must(w.Schedule(ms, func() {}))
				pass(5 * ms)
				reset(30 * time.Minute)
				check(t, cancel(), "it cannot be cancelled")
				pass(2 * ms)
				left := 0
				w.each(func(*bucket.Node) { left++ })
				check(t, left == 1, "the wheel has %d timeouts, want the one that is pending", left)
			})
		})
	}
}

// A cancel while the worker goes to sleep is seen: each cancel comes just after the
// worker has handled the previous one, when it is about to publish until when it sleeps.
func TestCancelWhileTheWorkerGoesToSleep(t *testing.T) {
	for _, precise := range []bool{false, true} {
		w := start(t, Config{Tick: minTick, Precise: precise})
		var far []timeout.Timeout
		for range 500 {
			far = append(far, Must(w.Schedule(time.Hour, func() {})))
		}
		taken := make(chan struct{})
		Must(w.Schedule(0, func() { close(taken) }))
		<-taken // with the worker, so that a cancel is for it to see to
		for i, h := range far {
			for began := time.Now(); w.soon.Load(); runtime.Gosched() {
				require(t, time.Since(began) <= time.Minute, "the worker never looked at cancel %d", i-1)
			}
			for range i % 4 {
				runtime.Gosched()
			}
			h.Cancel()
		}
	}
}
