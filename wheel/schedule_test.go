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
		if s := h.State(); s != timeout.Pending {
			t.Errorf("the timeout is %v 1 ms before its deadline", s)
		}
		r.at(2000)
		r.want("a@2000")
		if s := h.State(); s != timeout.Expired {
			t.Errorf("the timeout is %v after its task has run", s)
		}
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
						if late := time.Since(deadline); late < 0 || late >= tick {
							t.Errorf("a delay of %v was run %v after its deadline; the tick is %v", d, late, tick)
						}
					}))
					time.Sleep(time.Duration(rnd.Int64N(int64(tick))))
				}
				time.Sleep(300 * tick)
				synctest.Wait()
				if ran != count {
					t.Errorf("%d ran, want %d", ran, count)
				}
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
			time.Sleep(time.Until(start.Add(time.Duration(now) * ms)))
			synctest.Wait()
			for i := range ran {
				if done := ran[i].Load(); done != (max(i, 1) <= now) {
					t.Fatalf("at %d ms the timeout of %d ms has run: %v", now, i, done)
				}
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
					if late := time.Since(start) - max(d, 0); late < 0 || late >= ms {
						t.Errorf("%d buckets: a delay of %v was %v late", buckets, d, late)
					}
				}))
			}
			time.Sleep(time.Duration(1000*buckets+10) * ms)
			synctest.Wait()
			if ran != len(delays) {
				t.Errorf("%d buckets: %d ran, want %d", buckets, ran, len(delays))
			}
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
		time.Sleep(7 * ms)
		synctest.Wait()
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
		if !h.Cancel() {
			t.Error("a timeout that is 200 years away cannot be cancelled")
		}
	})
}

// Deadlines beyond all practical need are kept, and do not disturb nearer ones.
func TestVeryLongDelays(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
			h := must(w.Schedule(d, func() { t.Errorf("a delay of %v is over", d) }))
			if left := time.Until(h.Deadline()); left < d/2 {
				t.Errorf("a delay of %v ends in %v", d, left)
			}
		}
		r := newRecord(t)
		r.schedule(w, 5*ms, "near")
		r.at(10)
		r.want("near@10")
		if p := w.Stats().Pending; p != 3 {
			t.Errorf("%d pending, want 3", p)
		}
		if left := w.Stop(); len(left) != 3 {
			t.Errorf("Stop returned %d, want 3", len(left))
		}
	})
}

// The wheel goes on for years: delays that begin late in its life are as exact
// as the first.
func TestYears(t *testing.T) {
	const year = 365 * 24 * time.Hour
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		for range 10 {
			start := time.Now()
			var ran []time.Duration
			for _, d := range []time.Duration{10 * year, 5 * ms, year} {
				must(w.Schedule(d, func() { ran = append(ran, time.Since(start)) }))
			}
			time.Sleep(10*year + time.Hour)
			synctest.Wait()
			if want := []time.Duration{10 * ms, year, 10 * year}; !slices.Equal(ran, want) {
				t.Fatalf("ran after %v, want %v", ran, want)
			}
			time.Sleep(-time.Since(start) % (10 * ms))
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
			if !h.Reset(700 * ms) {
				t.Error("a task cannot reset its own timeout")
			}
		}))
		r.at(3500)
		r.want("b@700 a@1000 b@1400 a@2000 b@2100 b@2800 a@3000 b@3500")
	})
}

// Tasks scheduled at once from inside a task run at the next tick, not in a loop
// that never lets time pass.
func TestReschedulingWithoutDelayLetsTimePass(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		must(w.ScheduleFunc(0, func(h timeout.Timeout) {
			r.run("a")
			h.Reset(0) // in the very instant of a tick
		}))
		r.at(3)
		r.want("a@1 a@2 a@3")
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
			if !panics(call) {
				t.Errorf("%s does not panic", name)
			}
		}
		if s := w.Stats(); s.Scheduled != 0 {
			t.Errorf("misuse was counted as scheduled: %+v", s)
		}
	})
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestTick(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		if w.Tick() != wheel.DefaultTick {
			t.Errorf("the tick is %v, want %v", w.Tick(), wheel.DefaultTick)
		}
	})
	bubble(t, wheel.Config{Tick: 7 * ms}, func(t *testing.T, w *wheel.Wheel) {
		if w.Tick() != 7*ms {
			t.Errorf("the tick is %v, want 7ms", w.Tick())
		}
	})
}

// Deadline is the exact instant at which the task will run.
func TestDeadlineIsWhenItRuns(t *testing.T) {
	bubble(t, wheel.Config{Tick: 3 * ms}, func(t *testing.T, w *wheel.Wheel) {
		rnd := newRand(t)
		for range 200 {
			time.Sleep(time.Duration(rnd.Int64N(int64(5 * ms))))
			var deadline atomic.Pointer[time.Time]
			h := must(w.Schedule(ms+time.Duration(rnd.Int64N(int64(second))), func() {
				if now := time.Now(); !now.Equal(*deadline.Load()) {
					t.Errorf("ran at %v, the deadline was %v", now, *deadline.Load())
				}
			}))
			at := h.Deadline()
			deadline.Store(&at)
		}
		time.Sleep(2 * second)
	})
}
