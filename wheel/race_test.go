package wheel_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// These tests race on real clocks, under the race detector if it is there. Their checks
// hold in every order of events and at every speed; the seeds in the log determine the
// choices, not the scheduler.

// races runs a test on both kinds of alarm, and on each executor.
func races(t *testing.T, test func(t *testing.T, c wheel.Config)) {
	for name, c := range map[string]wheel.Config{
		"portable":   {Tick: ms},
		"precise":    {Tick: 200 * time.Microsecond, Precise: true},
		"goroutines": {Tick: 200 * time.Microsecond, Precise: true, Executor: wheel.Goroutines},
		"pool":       {Tick: 200 * time.Microsecond, Precise: true, Executor: newPool(t, 4, 1<<18)}, // refuses nothing
	} {
		c.Buckets = 16
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
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

// await waits for a condition, and reports whether it came within a minute: only a hang
// takes that long.
func await(condition func() bool) bool {
	limit, next := time.After(time.Minute), time.NewTicker(ms)
	defer next.Stop()
	for !condition() {
		select {
		case <-next.C:
		case <-limit:
			return false
		}
	}
	return true
}

// settled waits until nothing is pending, and every task that has begun has ended; ended
// counts those, if it is not nil. It is read first: a task that ends in between may have armed
// a timer after the numbers were read.
func settled(t *testing.T, w *wheel.Wheel, ended *atomic.Int64) {
	t.Helper()
	var s wheel.Stats
	if !await(func() bool {
		before := int64(0)
		if ended != nil {
			before = ended.Load()
		}
		s = w.Stats()
		return s.Pending == 0 && (ended == nil || before == int64(s.Fired))
	}) {
		for _, u := range w.Drain() {
			t.Errorf("still pending: due %v ago", time.Since(u.Deadline))
		}
		t.Fatalf("never settled: %+v", s)
	}
}

// once names the forms of timeouts that run once.
var once = slices.DeleteFunc(slices.Clone(formNames), func(name string) bool { return forms[name].over == timeout.Pending })

// One timeout, and as many contenders as possible at the same moment: one of the cancels
// wins, or the wheel does. One cancel is enough: false means that the task has begun.
func TestRaceForOneTimeout(t *testing.T) {
	races(t, func(t *testing.T, c wheel.Config) {
		w := start(t, c)
		var bets [100]bet
		var ended atomic.Int64
		for round := range bets {
			b := &bets[round]
			h := must(w.Schedule(w.Tick(), func() { b.ran.Add(1); ended.Add(1) }))
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
					b.cancelled.Add(1)
				}
			})
		}
		settled(t, w, &ended)
		for i := range bets {
			ran, cancelled := bets[i].ran.Load(), bets[i].cancelled.Load()
			check(t, ran+cancelled == 1, "round %d: ran %d times, cancelled %d times", i, ran, cancelled)
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
		var early, ended, cancelled atomic.Int64
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
				ended.Add(1)
			})
		}
		crowd(t, 8, func(_ int, r *rand.Rand) {
			for range 4000 {
				i := r.IntN(len(timers))
				switch r.IntN(8) {
				case 0, 1:
					if timers[i].Cancel() {
						cancelled.Add(1)
					}
				case 2:
					must(timers[i].ArmAt(time.Now().Add(-ms)))
				case 3:
					runtime.Gosched()
				case 4:
					if h := timers[i].Timeout(); h.Reset(time.Duration(r.Int64N(int64(5 * ms)))) {
						_ = h.Deadline()
					}
				default:
					must(timers[i].Arm(time.Duration(r.Int64N(int64(5 * ms)))))
				}
			}
		})
		settled(t, w, &ended)
		// What is armed now and not touched any more runs, at its deadline.
		var before [len(timers)]int64
		for i := range timers {
			before[i] = ran[i].Load()
			floor[i].Store(int64(time.Since(origin) + 20*ms))
			must(timers[i].Arm(20 * ms))
		}
		settled(t, w, &ended)
		for i := range timers {
			check(t, ran[i].Load() > before[i], "timer %d was armed and has not run; it is %v", i, timers[i].State())
		}
		check(t, early.Load() == 0, "%d ran early", early.Load())
		s := w.Stats()
		check(t, s.Cancelled == uint64(cancelled.Load()), "%d were cancelled; the numbers are %+v", cancelled.Load(), s)
	})
}
