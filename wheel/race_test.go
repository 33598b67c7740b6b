package wheel_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// These tests race in real time, under the race detector if it is there. Their checks
// hold in every order of events; the seeds in the log determine the choices, not the
// scheduler.

// races runs a test on both kinds of alarm, and on an executor.
func races(t *testing.T, test func(t *testing.T, c wheel.Config)) {
	t.Run("portable", func(t *testing.T) { test(t, wheel.Config{Tick: ms, Buckets: 16}) })
	t.Run("precise", func(t *testing.T) {
		test(t, wheel.Config{Tick: 200 * time.Microsecond, Buckets: 16, Precise: true})
	})
	t.Run("goroutines", func(t *testing.T) {
		test(t, wheel.Config{Tick: ms, Buckets: 16, Executor: wheel.Goroutines})
	})
}

// crowd runs a function on several goroutines, each with random numbers of its
// own, and waits for all of them.
func crowd(t *testing.T, size int, f func(i int, r *rand.Rand)) {
	seed := newRand(t).Uint64()
	var all sync.WaitGroup
	for i := range size {
		all.Go(func() { f(i, randOf(seed, uint64(i))) })
	}
	all.Wait()
}

// A bet is one timeout whose outcome is fully known afterwards.
type bet struct {
	handle    timeout.Timeout
	ran       atomic.Int32
	cancelled atomic.Int32
	early     atomic.Bool
	// notBefore is the earliest deadline that the timeout may still have, in
	// nanoseconds since the test began: raised only after a Reset succeeded,
	// and lowered before one.
	notBefore atomic.Int64
}

// Goroutines schedule, reset and cancel their own and each other's timeouts while
// these expire. Each runs once or is cancelled once, and none of them early.
func TestRaceOfResetCancelAndFire(t *testing.T) {
	races(t, func(t *testing.T, c wheel.Config) {
		w := start(t, c)
		const goroutines, each = 8, 2500
		bets := make([]bet, goroutines*each)
		var ready [goroutines]atomic.Int64 // how many of each goroutine's are to be seen
		origin := time.Now()
		delay := func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(20 * ms))) }
		crowd(t, goroutines, func(me int, r *rand.Rand) {
			for k := range each {
				b := &bets[me*each+k]
				d := delay(r)
				b.notBefore.Store(int64(time.Since(origin) + d))
				b.handle = must(w.Schedule(d, func() {
					if int64(time.Since(origin)) < b.notBefore.Load() {
						b.early.Store(true)
					}
					b.ran.Add(1)
				}))
				ready[me].Store(int64(k + 1))
				// Only its own goroutine moves a timeout, so that it is
				// known which deadline counts; all may cancel it.
				own := &bets[me*each+k-min(k, r.IntN(30))]
				before, d := own.notBefore.Load(), delay(r)
				at := int64(time.Since(origin) + d)
				own.notBefore.Store(min(before, at))
				if own.handle.Reset(d) {
					own.notBefore.Store(at)
				}
				if other := r.IntN(goroutines); r.IntN(3) == 0 {
					if n := ready[other].Load(); n > 0 {
						o := &bets[other*each+int(n)-1-int(min(n-1, r.Int64N(30)))]
						if o.handle.Cancel() {
							o.cancelled.Add(1)
						}
					}
				}
				if k%100 == 0 {
					time.Sleep(time.Duration(r.Int64N(int64(2 * ms))))
				}
			}
		})
		settled(t, w)
		fired, cancelled := 0, 0
		for i := range bets {
			b := &bets[i]
			check(t, b.ran.Load()+b.cancelled.Load() == 1,
				"ran %d times and was cancelled %d times", b.ran.Load(), b.cancelled.Load())
			check(t, !b.early.Load(), "ran early")
			if s := b.handle.State(); s == timeout.Pending {
				t.Errorf("is %v in the end", s)
			}
			fired += int(b.ran.Load())
			cancelled += int(b.cancelled.Load())
		}
		if s := w.Stats(); s.Scheduled != uint64(len(bets)) || s.Fired != uint64(fired) || s.Cancelled != uint64(cancelled) {
			t.Errorf("%d ran and %d were cancelled; the numbers are %+v", fired, cancelled, s)
		}
		check(t, fired >= len(bets)/10 && cancelled >= len(bets)/10,
			"%d ran and %d were cancelled: that is no race", fired, cancelled)
	})
}

// settled waits until nothing is pending, and all tasks that an executor has accepted
// have ended.
func settled(t *testing.T, w *wheel.Wheel) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); w.Stats().Pending > 0; {
		if time.Now().After(end) {
			for _, u := range w.Drain() {
				t.Errorf("still pending: due %v ago", time.Since(u.Deadline))
			}
			t.Fatalf("never settled: %+v", w.Stats())
		}
		time.Sleep(ms)
	}
	for goroutines := 0; goroutines != runtime.NumGoroutine(); time.Sleep(50 * ms) {
		goroutines = runtime.NumGoroutine() // until none ends any more
	}
}

// One timeout, and as many contenders as possible at the same moment: one of the cancels
// wins, or the wheel does.
func TestRaceForOneTimeout(t *testing.T) {
	races(t, func(t *testing.T, c wheel.Config) {
		w := start(t, c)
		for round := range 100 {
			var ran, cancelled atomic.Int32
			h := must(w.Schedule(w.Tick(), func() { ran.Add(1) }))
			at := h.Deadline()
			if round%2 == 0 {
				at = at.Add(-w.Tick() / 10)
			}
			if at.IsZero() {
				continue // it has run already
			}
			crowd(t, 4, func(int, *rand.Rand) {
				for time.Now().Before(at) {
					runtime.Gosched()
				}
				if h.Cancel() {
					cancelled.Add(1)
				}
			})
			for end := time.Now().Add(5 * second); ran.Load()+cancelled.Load() == 0 && time.Now().Before(end); {
				time.Sleep(100 * time.Microsecond)
			}
			require(t, ran.Load()+cancelled.Load() == 1,
				"round %d: ran %d times, cancelled %d times", round, ran.Load(), cancelled.Load())
		}
	})
}

// Timers that are armed and cancelled by several goroutines at once, and from inside
// their tasks. Every accepted arming of a timer that was not pending ends in one run or
// one cancel, as the numbers must show; and the last arming runs.
func TestRaceForTimers(t *testing.T) {
	races(t, func(t *testing.T, c wheel.Config) {
		w := start(t, c)
		var timers [16]wheel.Timer
		var ran [len(timers)]atomic.Int64
		var early atomic.Int64
		origin := time.Now()
		var floor [len(timers)]atomic.Int64 // no run before this
		for i := range timers {
			timers[i].Init(w, func() {
				if int64(time.Since(origin)) < floor[i].Load() {
					early.Add(1)
				}
				if n := ran[i].Add(1); n%3 == 0 {
					_, _ = timers[i].Arm(time.Duration(n%5) * ms)
				}
			})
		}
		var cancelled atomic.Int64
		crowd(t, 8, func(_ int, r *rand.Rand) {
			for end := time.Now().Add(300 * ms); time.Now().Before(end); {
				i := r.IntN(len(timers))
				switch r.IntN(8) {
				case 0, 1:
					if timers[i].Cancel() {
						cancelled.Add(1)
					}
				case 2:
					must(timers[i].ArmAt(time.Now().Add(-ms)))
				case 3:
					time.Sleep(time.Duration(r.Int64N(int64(ms))))
				case 4:
					if h := timers[i].Timeout(); h.Reset(time.Duration(r.Int64N(int64(5 * ms)))) {
						_ = h.Deadline()
					}
				default:
					must(timers[i].Arm(time.Duration(r.Int64N(int64(5 * ms)))))
				}
			}
		})
		// What is armed now and not touched any more runs, at its deadline.
		var before [len(timers)]int64
		for i := range timers {
			if timers[i].Cancel() {
				cancelled.Add(1)
			}
			time.Sleep(ms)
		}
		settled(t, w)
		for i := range timers {
			before[i] = ran[i].Load()
			floor[i].Store(int64(time.Since(origin) + 20*ms))
			must(timers[i].Arm(20 * ms))
		}
		time.Sleep(25 * ms)
		settled(t, w)
		total := int64(0)
		for i := range timers {
			check(t, ran[i].Load() > before[i], "timer %d was armed and has not run; it is %v", i, timers[i].State())
			total += ran[i].Load()
		}
		check(t, early.Load() == 0, "%d ran early", early.Load())
		s := w.Stats()
		check(t, s.Fired == uint64(total) && s.Cancelled == uint64(cancelled.Load()),
			"%d ran and %d were cancelled; the numbers are %+v", total, cancelled.Load(), s)
	})
}
