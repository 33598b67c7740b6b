package wheel_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

func TestScheduleRunsAfterItsDelayAndNotBefore(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		h := r.schedule(w, 2*second, "a")
		r.at(1999)
		r.want("")
		check(t, h.State() == timeout.Pending, "the timeout is %v 1 ms before its deadline", h.State())
		r.at(2000)
		r.want("a@2000")
		check(t, h.State() == timeout.Expired, "the timeout is %v after its task has run", h.State())
		r.at(100_000)
		r.want("")
	})
}

// Thousands of random delays from random instants: none is early by a
// nanosecond, none is later than a tick.
func TestEveryTimeoutIsInItsTick(t *testing.T) {
	for _, tick := range []time.Duration{100 * time.Microsecond, ms, 10 * ms, 16_666_667, second} {
		t.Run(tick.String(), func(t *testing.T) {
			bubble(t, wheel.Config{Tick: tick, Buckets: 64}, func(t *testing.T, w *wheel.Wheel) {
				rnd := newRand(t)
				ran := 0
				const count = 3000
				for range count {
					d := time.Duration(rnd.Int64N(int64(300 * tick)))
					if rnd.IntN(4) == 0 { // on the edge of a tick
						d = d / tick * tick
					}
					deadline := time.Now().Add(d)
					must(w.Schedule(d, func() {
						ran++
						late := time.Since(deadline)
						check(t, late >= 0 && late < tick,
							"a delay of %v was run %v after its deadline; the tick is %v", d, late, tick)
					}))
					time.Sleep(time.Duration(rnd.Int64N(int64(tick))))
				}
				pass(301 * tick) // the last one may be due a tick after its delay
				check(t, ran == count, "%d ran, want %d", ran, count)
			})
		})
	}
}

// One timeout for each of 1024 ticks, more than the wheel has buckets: at every tick
// exactly the due ones have run.
func TestEveryTickOfManyRevolutions(t *testing.T) {
	const count = 1024
	bubble(t, wheel.Config{Tick: ms, Buckets: 32}, func(t *testing.T, w *wheel.Wheel) {
		var ran [count]atomic.Bool
		start := time.Now()
		for _, i := range rand.Perm(count) {
			must(w.Schedule(time.Duration(i)*ms, func() { ran[i].Store(true) }))
		}
		for now := range count {
			pass(time.Until(start.Add(time.Duration(now) * ms)))
			for i := range ran {
				done := ran[i].Load()
				require(t, done == (max(i, 1) <= now), "at %d ms the timeout of %d ms has run: %v", now, i, done)
			}
		}
	})
}

// Delays on both sides of whole revolutions, up to many of them.
func TestDelaysAroundRevolutions(t *testing.T) {
	for _, buckets := range []int{1, 2, 3, 64, 100} {
		bubble(t, wheel.Config{Tick: ms, Buckets: buckets}, func(t *testing.T, w *wheel.Wheel) {
			time.Sleep(5*ms + 1) // an origin that is not the wheel's own
			var delays []time.Duration
			for _, revolution := range []int{1, 2, 3, 10, 1000} {
				for off := -2; off <= 2; off++ {
					delays = append(delays, time.Duration(revolution*buckets+off)*ms)
				}
			}
			ran := 0
			start := time.Now()
			for _, d := range delays {
				must(w.Schedule(d, func() {
					ran++
					late := time.Since(start) - max(d, 0)
					check(t, late >= 0 && late < ms, "%d buckets: a delay of %v was %v late", buckets, d, late)
				}))
			}
			pass(time.Duration(1000*buckets+10) * ms)
			check(t, ran == len(delays), "%d buckets: %d ran, want %d", buckets, ran, len(delays))
		})
	}
}

func TestNoDelayMeansTheNextTick(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		time.Sleep(23 * ms)
		r := newRecord(t)
		r.schedule(w, 0, "zero")
		r.schedule(w, -1, "negative")
		r.schedule(w, math.MinInt64, "lowest")
		must(w.ScheduleAt(time.Now(), r.task("now")))
		synctest.Wait()
		r.want("")
		pass(7 * ms)
		r.want("zero@7+negative@7+lowest@7+now@7")
	})
}

func TestScheduleAt(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		time.Sleep(second)
		r := newRecord(t)
		must(w.ScheduleAt(r.start.Add(250*time.Microsecond), r.task("rounded")))
		must(w.ScheduleAt(r.start.Add(40*ms), r.task("future")))
		must(w.ScheduleAt(r.start.Add(-10*ms), r.task("past")))
		must(w.ScheduleAt(r.start.Add(-time.Hour), r.task("earlier")))
		must(w.ScheduleAt(time.Time{}, r.task("zero")))
		h := must(w.ScheduleAt(time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC), r.task("never")))
		synctest.Wait()
		r.want("")
		r.at(1)
		r.want("rounded@1+past@1+earlier@1+zero@1")
		r.at(39)
		r.want("")
		r.at(40)
		r.want("future@40")
		check(t, h.Cancel(), "a timeout that is 200 years away cannot be cancelled")
	})
}

// Deadlines beyond all practical need are kept, and do not disturb nearer ones.
func TestVeryLongDelays(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
			h := must(w.Schedule(d, func() { t.Errorf("a delay of %v is over", d) }))
			left := time.Until(h.Deadline())
			check(t, left >= d/2, "a delay of %v ends in %v", d, left)
		}
		r := newRecord(t)
		r.schedule(w, 5*ms, "near")
		r.at(10)
		r.want("near@10")
		p := w.Stats().Pending
		check(t, p == 3, "%d pending, want 3", p)
		left := w.Stop()
		check(t, len(left) == 3, "Stop returned %d, want 3", len(left))
	})
}

// The wheel goes on for years: delays that begin late in its life are as exact
// as the first.
func TestYears(t *testing.T) {
	const year = 365 * day
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		for range 10 {
			r := newRecord(t)
			r.schedule(w, 10*year, "ten years")
			r.schedule(w, 5*ms, "a tick")
			r.schedule(w, year, "a year")
			pass(10*year + time.Hour)
			check(t, slices.Equal(r.take(), []string{"a tick@10", "a year@31536000000", "ten years@315360000000"}), "other times than scheduled")
			time.Sleep(-time.Since(r.start) % (10 * ms))
		}
	})
}

// A task that schedules itself anew each time goes round the wheel.
func TestSelfRescheduling(t *testing.T) {
	bubble(t, wheel.Config{Tick: 100 * ms, Buckets: 4}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		var again func()
		again = func() {
			r.run("a")
			must(w.Schedule(second, again))
		}
		must(w.Schedule(second, again))
		must(w.ScheduleFunc(700*ms, func(h timeout.Timeout) {
			r.run("b")
			check(t, h.Reset(700*ms), "a task cannot reset its own timeout")
		}))
		r.at(3500)
		r.want("b@700 a@1000 b@1400 a@2000 b@2100 b@2800 a@3000 b@3500")
	})
}

// An instant in the past, and no delay at all, mean the next tick from inside of tasks
// too: a task that sets itself again lets time pass, also in the very instant of a tick.
func TestPastInstantsLetTimePass(t *testing.T) {
	type wheelTask = func(w *wheel.Wheel, run func())
	timer := func(arm func(timer *wheel.Timer)) wheelTask {
		return func(w *wheel.Wheel, run func()) {
			timer := new(wheel.Timer)
			timer.Init(w, func() { run(); arm(timer) })
			arm(timer)
		}
	}
	schedule := func(schedule func(w *wheel.Wheel, task func())) wheelTask {
		return func(w *wheel.Wheel, run func()) {
			var self func()
			self = func() { run(); schedule(w, self) }
			schedule(w, self)
		}
	}
	reset := func(reset func(h timeout.Timeout)) wheelTask {
		return func(w *wheel.Wheel, run func()) {
			must(w.ScheduleFunc(0, func(h timeout.Timeout) { run(); reset(h) }))
		}
	}
	each(t, map[string]wheelTask{
		"Arm":        timer(func(timer *wheel.Timer) { must(timer.Arm(0)) }),
		"ArmAt":      timer(func(timer *wheel.Timer) { must(timer.ArmAt(time.Time{})) }),
		"Schedule":   schedule(func(w *wheel.Wheel, task func()) { must(w.Schedule(0, task)) }),
		"ScheduleAt": schedule(func(w *wheel.Wheel, task func()) { must(w.ScheduleAt(time.Now().Add(-second), task)) }),
		"Reset":      reset(func(h timeout.Timeout) { h.Reset(0) }),
		"ResetAt":    reset(func(h timeout.Timeout) { h.ResetAt(time.Time{}) }),
	}, func(t *testing.T, begin wheelTask) {
		w, r := start(t, wheel.Config{Tick: ms}), newRecord(t)
		runs := 0
		begin(w, func() {
			runs++
			require(t, runs < 1000, "a task that sets itself again holds the worker")
			r.run("a")
		})
		r.at(10)
		r.want("a@1 a@2 a@3 a@4 a@5 a@6 a@7 a@8 a@9 a@10")
		w.Stop()
	})
}

func TestNilTasksPanic(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		for name, call := range map[string]func(){
			"Schedule":     func() { _, _ = w.Schedule(second, nil) },
			"ScheduleAt":   func() { _, _ = w.ScheduleAt(time.Now(), nil) },
			"ScheduleFunc": func() { _, _ = w.ScheduleFunc(second, nil) },
			"Every":        func() { _, _ = w.Every(second, wheel.Skip, nil) },
			"Timer.Init":   func() { new(wheel.Timer).Init(w, nil) },
			"unknown policy": func() {
				_, _ = w.Every(second, wheel.Delay+1, func() {})
			},
			"nil wheel": func() { new(wheel.Timer).Init(nil, func() {}) },
		} {
			check(t, panics(call), "%s does not panic", name)
		}
		s := w.Stats()
		check(t, s.Scheduled == 0, "misuse was counted as scheduled: %+v", s)
	})
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestTick(t *testing.T) {
	for tick, want := range map[time.Duration]time.Duration{0: wheel.DefaultTick, 7 * ms: 7 * ms} {
		bubble(t, wheel.Config{Tick: tick}, func(t *testing.T, w *wheel.Wheel) {
			check(t, w.Tick() == want, "the tick is %v, want %v", w.Tick(), want)
		})
	}
}

// Deadline is the exact instant at which the task will run.
func TestDeadlineIsWhenItRuns(t *testing.T) {
	bubble(t, wheel.Config{Tick: 3 * ms}, func(t *testing.T, w *wheel.Wheel) {
		rnd := newRand(t)
		for range 200 {
			time.Sleep(time.Duration(rnd.Int64N(int64(5 * ms))))
			var deadline atomic.Pointer[time.Time]
			h := must(w.Schedule(ms+time.Duration(rnd.Int64N(int64(second))), func() {
				now := time.Now()
				check(t, now.Equal(*deadline.Load()), "ran at %v, the deadline was %v", now, *deadline.Load())
			}))
			at := h.Deadline()
			deadline.Store(&at)
		}
		time.Sleep(2 * second)
	})
}
