package wheel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

func TestScheduleRunsAfterItsDelayAndNotBefore(t *testing.T) {
	each(t, forms, func(t *testing.T, f form) {
		w, r := start(t, wheel.Config{}), newRecord(t)
		h := must(f.schedule(w, 2*second, r.task("a")))
		r.at(1999)
		r.want("")
		check(t, h.State() == timeout.Pending, "the timeout is %v 1 ms before its deadline", h.State())
		r.at(2000)
		r.want("a@2000")
		check(t, h.State() == f.over, "the timeout is %v after its task has run", h.State())
		r.at(100_000)
		r.want("")
	})
}

// A load is what a wheel is given: delays, by every form in turn.
type load struct {
	wheel.Config
	begins time.Duration // since the wheel was made
	delays []time.Duration
	pause  func() time.Duration // between two of them; nil is none
}

// loads returns what may lead a wheel to the wrong tick.
func loads(rnd *rand.Rand) map[string]load {
	all := map[string]load{}
	for _, tick := range []time.Duration{100 * time.Microsecond, ms, 10 * ms, 16_666_667, second} {
		var random []time.Duration
		for range 1000 {
			d := time.Duration(rnd.Int64N(int64(300 * tick)))
			if rnd.IntN(4) == 0 { // on the edge of a tick
				d = d / tick * tick
			}
			random = append(random, d)
		}
		all[fmt.Sprint("random, tick ", tick)] = load{wheel.Config{Tick: tick, Buckets: 64}, 0, random,
			func() time.Duration { return time.Duration(rnd.Int64N(int64(tick))) }}
	}
	var everyTick []time.Duration
	for _, i := range rnd.Perm(1024) {
		everyTick = append(everyTick, time.Duration(i)*ms)
	}
	all["every tick of many revolutions"] = load{Config: wheel.Config{Tick: ms, Buckets: 32}, delays: everyTick}
	for _, buckets := range []int{1, 2, 3, 64, 100} {
		var edges []time.Duration
		for _, revolution := range []int{1, 2, 3, 10, 1000} {
			for off := -2; off <= 2; off++ {
				edges = append(edges, time.Duration(revolution*buckets+off)*ms)
			}
		}
		all[fmt.Sprint("around revolutions of ", buckets)] = load{wheel.Config{Tick: ms, Buckets: buckets}, 5*ms + 1, edges, nil}
	}
	for _, order := range [][]int{{5, 4, 3, 2, 1, 0}, {0, 1, 2, 3, 4, 5}, {3, 5, 0, 4, 1, 2}} {
		var rounds []time.Duration
		for _, round := range order {
			rounds = append(rounds, time.Duration(3+16*round)*ms)
		}
		all[fmt.Sprint("rounds of one bucket, ", order)] = load{Config: wheel.Config{Tick: ms, Buckets: 16}, delays: rounds}
	}
	for _, c := range []wheel.Config{ // all that New accepts
		{}, {Tick: 100 * time.Microsecond}, {Tick: time.Hour}, {Tick: 12345678}, {Buckets: 1}, {Buckets: 3}, {Buckets: 63},
		{Buckets: 65}, {Buckets: 1000}, {Buckets: 1 << 20}, {MaxPending: 3}, {MaxPending: math.MaxInt64},
		{Tick: 100 * time.Microsecond, Buckets: 1}, {Tick: 999 * ms, Buckets: 60}, {Tick: 1001 * ms, Buckets: 3600},
	} {
		tick := c.Tick
		if tick == 0 {
			tick = wheel.DefaultTick
		}
		all[fmt.Sprint("config ", tick, c.Buckets, c.MaxPending)] = load{Config: c, delays: []time.Duration{tick, 7 * tick, 2000 * tick}}
	}
	// netty takes over 100,000 in a tick.
	all["hundreds of thousands"] = load{Config: wheel.Config{Tick: ms}, delays: repeated(110_000, ms)}
	// RussellLuo/timingwheel#19: the timer of eight days ran the next day.
	all["eight days, with traffic"] = load{wheel.Config{Tick: ms, Buckets: 20}, 0,
		append([]time.Duration{8 * day}, repeated(8*24, ms)...), func() time.Duration { return time.Hour }}
	all["years, late in a life"] = load{begins: 90*year + 1, delays: []time.Duration{10 * year, 5 * ms, year}}
	all["a century, through one bucket"] = load{Config: wheel.Config{Tick: ms, Buckets: 1}, delays: []time.Duration{100 * year}}
	return all
}

const year = 365 * day

func repeated(n int, d time.Duration) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = d
	}
	return all
}

// Every timeout runs once, at the instant that its handle has named: that of the first tick
// which is not before its deadline.
func TestEveryTimeoutIsInItsTick(t *testing.T) {
	each(t, loads(newRand(t)), func(t *testing.T, l load) {
		w := start(t, l.Config)
		time.Sleep(l.begins)
		type run struct{ wanted, deadline, at time.Time }
		runs := make([]run, len(l.delays))
		longest := time.Duration(0)
		for i, d := range l.delays {
			h := must(forms[formNames[i%len(forms)]].schedule(w, d, func() {
				check(t, runs[i].at.IsZero(), "a delay of %v ran twice", d)
				runs[i].at = time.Now()
			}))
			runs[i].wanted, runs[i].deadline = time.Now().Add(d), h.Deadline()
			longest = max(longest, d)
			if l.pause != nil {
				time.Sleep(l.pause())
			}
		}
		pass(longest + w.Tick()) // the last one may be due a tick after its delay
		for i, r := range runs {
			late := r.at.Sub(r.wanted)
			require(t, r.at.Equal(r.deadline) && late >= 0 && late < w.Tick()+max(1-l.delays[i], 0),
				"a delay of %v by %s ran %v after its deadline, its handle named %v", l.delays[i], formNames[i%len(forms)], late, r.deadline.Sub(r.wanted))
		}
	})
}

// No delay means the next tick, and so does any instant in the past.
func TestNoDelayMeansTheNextTick(t *testing.T) {
	each(t, forms, func(t *testing.T, f form) {
		for _, d := range []time.Duration{0, -1, -10 * ms, -time.Hour, math.MinInt64} {
			w := start(t, wheel.Config{})
			time.Sleep(23 * ms)
			r := newRecord(t)
			must(f.schedule(w, d, r.task("a")))
			must(w.ScheduleAt(time.Time{}, r.task("a")))
			synctest.Wait()
			r.want("")
			r.at(7)
			r.want("a@7+a@7")
		}
	})
}

// Deadlines beyond all practical need are kept, and do not disturb nearer ones.
func TestVeryLongDelays(t *testing.T) {
	each(t, forms, func(t *testing.T, f form) {
		w, r := start(t, wheel.Config{}), newRecord(t)
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2, 200 * year} {
			left := time.Until(must(f.schedule(w, d, r.task("far"))).Deadline())
			check(t, left >= d/2, "a delay of %v ends in %v", d, left)
		}
		r.schedule(w, 5*ms, "near")
		r.at(10)
		r.want("near@10")
		left := w.Stop()
		check(t, len(left) == 4, "Stop returned %d, want 4", len(left))
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

// From inside of tasks the past means the next tick too: a task that sets itself again lets
// time pass, also in the very instant of a tick.
func TestPastInstantsLetTimePass(t *testing.T) {
	each(t, map[string]func(w *wheel.Wheel, self *wheel.Timer, task func()){
		"Arm":        func(_ *wheel.Wheel, self *wheel.Timer, _ func()) { must(self.Arm(0)) },
		"ArmAt":      func(_ *wheel.Wheel, self *wheel.Timer, _ func()) { must(self.ArmAt(time.Time{})) },
		"Reset":      func(_ *wheel.Wheel, self *wheel.Timer, _ func()) { self.Timeout().Reset(0) },
		"ResetAt":    func(_ *wheel.Wheel, self *wheel.Timer, _ func()) { self.Timeout().ResetAt(time.Time{}) },
		"Schedule":   func(w *wheel.Wheel, _ *wheel.Timer, task func()) { must(w.Schedule(0, task)) },
		"ScheduleAt": func(w *wheel.Wheel, _ *wheel.Timer, task func()) { must(scheduleAt(w, -second, task)) },
	}, func(t *testing.T, again func(*wheel.Wheel, *wheel.Timer, func())) {
		w, r := start(t, wheel.Config{Tick: ms}), newRecord(t)
		var self wheel.Timer
		runs := 0
		var task func()
		task = func() {
			runs++
			require(t, runs < 1000, "a task that sets itself again holds the worker")
			r.run("a")
			again(w, &self, task)
		}
		self.Init(w, task)
		again(w, &self, task)
		r.at(10)
		r.want("a@1 a@2 a@3 a@4 a@5 a@6 a@7 a@8 a@9 a@10")
		w.Stop()
	})
}

// Mistakes of the program panic, and schedule nothing.
func TestMisusePanics(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		timer := idle(w, none)
		for name, call := range map[string]func(){
			"Schedule":       func() { _, _ = w.Schedule(second, nil) },
			"ScheduleAt":     func() { _, _ = w.ScheduleAt(time.Now(), nil) },
			"ScheduleFunc":   func() { _, _ = w.ScheduleFunc(second, nil) },
			"Every":          func() { _, _ = w.Every(second, wheel.Skip, nil) },
			"EveryFunc":      func() { _, _ = w.EveryFunc(time.Now(), second, wheel.Skip, nil) },
			"Timer.Init":     func() { new(wheel.Timer).Init(w, nil) },
			"a nil wheel":    func() { new(wheel.Timer).Init(nil, none) },
			"a second Init":  func() { timer.Init(w, none) },
			"InitOnWorker":   func() { new(wheel.Timer).InitOnWorker(w, nil) },
			"Init, on it":    func() { timer.InitOnWorker(w, none) },
			"unknown policy": func() { _, _ = w.Every(second, wheel.Delay+1, none) },
			"no worker":      func() { wheel.NewPool(0, 1) },
			"workers below":  func() { wheel.NewPool(-1, 1) },
			"a queue below":  func() { wheel.NewPool(1, -1) },
			"many workers":   func() { wheel.NewPool(1<<16+1, 0) },
			"a long queue":   func() { wheel.NewPool(1, 1<<24+1) },
		} {
			check(t, panics(call), "%s does not panic", name)
		}
		s := w.Stats()
		check(t, s.Scheduled == 0, "misuse was counted as scheduled: %+v", s)
	})
}

// panics reports whether f panics with a message of this package's.
func panics(f func()) (did bool) {
	defer func() { did = strings.HasPrefix(fmt.Sprint(recover()), "wheel: ") }()
	f()
	return false
}
