package wheel_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// policies by name.
var policies = map[string]wheel.Missed{
	"Skip": wheel.Skip, "CatchUp": wheel.CatchUp, "Delay": wheel.Delay,
}

// executors by name, made inside the bubble that they serve. The pool has
// workers and a queue to spare.
var executors = map[string]func(t *testing.T) wheel.Executor{
	"inline":     func(*testing.T) wheel.Executor { return nil },
	"Goroutines": func(*testing.T) wheel.Executor { return wheel.Goroutines },
	"Pool":       func(t *testing.T) wheel.Executor { return newPool(t, 4, 64) },
}

// newPool makes a pool that is closed when the test ends, after the wheels before it.
func newPool(t *testing.T, workers, queue int) *wheel.Pool {
	p := wheel.NewPool(workers, queue)
	t.Cleanup(p.Close)
	return p
}

// eachPolicy runs a test in virtual time with each policy, on a wheel with each executor.
func eachPolicy(t *testing.T, test func(t *testing.T, w *wheel.Wheel, missed wheel.Missed)) {
	for policy, missed := range policies {
		t.Run(policy, func(t *testing.T) {
			each(t, executors, func(t *testing.T, executor func(*testing.T) wheel.Executor) {
				test(t, start(t, wheel.Config{Tick: ms, Executor: executor(t)}), missed)
			})
		})
	}
}

// A plan is what a periodic task and its user do on a wheel with ticks of 1 ms, in
// milliseconds since the start. Its want is the runs until a time, under each policy.
type plan struct {
	period  int
	inside  func(run int, h timeout.Timeout) // each run; nil does nothing
	outside map[int]func(w *wheel.Wheel, h timeout.Timeout)
	until   int
	want    map[wheel.Missed]string
	stats   wheel.Stats // in the end
}

// all is the same under every policy.
func all(want string) map[wheel.Missed]string {
	return map[wheel.Missed]string{wheel.Skip: want, wheel.CatchUp: want, wheel.Delay: want}
}

// resetBy returns an action that moves the next run.
func resetBy(t *testing.T, d time.Duration) func(*wheel.Wheel, timeout.Timeout) {
	return func(_ *wheel.Wheel, h timeout.Timeout) { check(t, h.Reset(d), "it cannot be reset") }
}

// setPeriod returns an action that changes the period.
func setPeriod(t *testing.T, d time.Duration) func(*wheel.Wheel, timeout.Timeout) {
	return func(_ *wheel.Wheel, h timeout.Timeout) { check(t, h.SetPeriod(d), "its period cannot be changed") }
}

// The first run comes at its instant, and not a tick later, the others a period after each
// other, and after what is in their way as the policy says. Between two runs,
// inside of them too, the timeout is pending until it is cancelled.
func TestEvery(t *testing.T) {
	cancel := func(want bool) func(*wheel.Wheel, timeout.Timeout) {
		return func(_ *wheel.Wheel, h timeout.Timeout) {
			check(t, h.Cancel() == want && !h.Cancel() && h.State() == timeout.Cancelled, "a cancel did not return %v, or it is %v", want, h.State())
		}
	}
	for name, p := range map[string]plan{
		"on time, until it is cancelled": {period: 10, until: 1000, want: all("a@10 a@20 a@30 a@40"),
			outside: map[int]func(*wheel.Wheel, timeout.Timeout){45: func(w *wheel.Wheel, h timeout.Timeout) {
				left := time.Until(h.Deadline())
				check(t, left == 5*ms, "the next run is due in %v", left)
				cancel(true)(w, h)
			}},
			stats: wheel.Stats{Scheduled: 5, Fired: 4, Cancelled: 1}},
		"after a run of two periods and more": {period: 300, until: 1600, want: map[wheel.Missed]string{
			wheel.Skip:    "a@300 a@950 a@1200 a@1500",
			wheel.CatchUp: "a@300 a@950 a@950 a@1200 a@1500",
			wheel.Delay:   "a@300 a@950 a@1250 a@1550",
		}, inside: func(run int, _ timeout.Timeout) {
			if run == 1 {
				time.Sleep(650 * ms)
			}
		}},
		// A run that another prevents is not counted, and an outstanding one is not counted
		// before it begins.
		"with runs that are always too long": {period: 10, until: 101, want: map[wheel.Missed]string{
			wheel.Skip: "a@10 a@35 a@60 a@85", wheel.CatchUp: "a@10 a@35 a@60 a@85", wheel.Delay: "a@10 a@35 a@60 a@85",
		}, inside: func(int, timeout.Timeout) { time.Sleep(25 * ms) },
			stats: wheel.Stats{Scheduled: 5, Fired: 4, Pending: 1}},
		"cancelled by a run": {period: 10, until: 1000, want: all("a@10 a@20 a@30"), inside: func(run int, h timeout.Timeout) {
			if run == 3 {
				cancel(false)(nil, h)
			}
		}, stats: wheel.Stats{Scheduled: 4, Fired: 3, Cancelled: 1}},
		"cancelled while a run is under way": {period: 10, until: 1000, want: all("a@10"),
			inside:  func(int, timeout.Timeout) { time.Sleep(100 * ms) },
			outside: map[int]func(*wheel.Wheel, timeout.Timeout){55: cancel(false)}, // four are owed
			stats:   wheel.Stats{Scheduled: 2, Fired: 1, Cancelled: 1}},
		"stopped while a run is under way": {period: 10, until: 1000, want: all("a@10"),
			inside: func(int, timeout.Timeout) { time.Sleep(100 * ms) },
			outside: map[int]func(*wheel.Wheel, timeout.Timeout){55: func(w *wheel.Wheel, _ timeout.Timeout) {
				left := w.Stop()
				check(t, len(left) == 1, "Stop returned %d", len(left))
			}},
			stats: wheel.Stats{Scheduled: 2, Fired: 1, Cancelled: 1}},
		"moved by its user": {period: 100, until: 5000,
			want: all("a@100 a@200 a@340 a@440 a@540 a@607 a@707 a@807 a@2030 a@2130"),
			outside: map[int]func(*wheel.Wheel, timeout.Timeout){
				250: resetBy(t, 90*ms), 600: resetBy(t, 7*ms), 850: resetBy(t, 1180*ms), 2150: resetBy(t, math.MaxInt64),
			}},
		"moved by a run": {period: 100, until: 650, want: all("a@100 a@130 a@380 a@400 a@500 a@600"), inside: func(run int, h timeout.Timeout) {
			check(t, h.State() == timeout.Pending, "inside a run the timeout is %v; the next is pending", h.State())
			switch run {
			case 1:
				h.Reset(30 * ms)
			case 2:
				h.Reset(250 * ms)
			case 3:
				h.Reset(20 * ms)
			}
		}},
		// As with time.Ticker.Reset, the next run is a new period after the change.
		"with a period that its user changes": {period: 100, until: 1010, want: all("a@100 a@200 a@280 a@310 a@340 a@740"),
			outside: map[int]func(*wheel.Wheel, timeout.Timeout){
				250: setPeriod(t, 30*ms), 350: setPeriod(t, 390*ms), 750: setPeriod(t, math.MaxInt64),
			}},
		"with a period that a run changes": {period: 100, until: 650, want: all("a@100 a@150 a@200 a@400 a@600"), inside: func(run int, h timeout.Timeout) {
			switch run {
			case 1:
				setPeriod(t, 50*ms)(nil, h)
			case 3:
				setPeriod(t, 200*ms)(nil, h)
			}
		}},
		// The periods since then are no missed runs.
		"moved to the past": {period: 100, until: 900, want: all("a@100 a@151 a@251 a@351 a@401 a@501 a@601 a@651 a@751 a@851"),
			outside: map[int]func(*wheel.Wheel, timeout.Timeout){
				150: func(_ *wheel.Wheel, h timeout.Timeout) { h.ResetAt(time.Now().Add(-150 * ms)) },
				400: func(_ *wheel.Wheel, h timeout.Timeout) { h.ResetAt(time.Now().Add(-time.Minute)) },
				650: func(_ *wheel.Wheel, h timeout.Timeout) { h.ResetAt(time.Time{}) },
			}},
	} {
		t.Run(name, func(t *testing.T) {
			eachPolicy(t, func(t *testing.T, w *wheel.Wheel, missed wheel.Missed) {
				time.Sleep(time.Hour)
				r := newRecord(t)
				var runs atomic.Int32
				period := time.Duration(p.period) * ms
				h := must(w.EveryFunc(r.start.Add(period), period, missed, func(h timeout.Timeout) {
					r.run("a")
					if run := runs.Add(1); p.inside != nil {
						p.inside(int(run), h)
					}
				}))
				for _, at := range slices.Sorted(maps.Keys(p.outside)) {
					r.at(at)
					p.outside[at](w, h)
				}
				r.at(p.until)
				r.want(p.want[missed])
				if n := uint64(runs.Load()); p.stats == (wheel.Stats{}) {
					s := w.Stats()
					check(t, s.Fired == n && s.Scheduled == n+uint64(s.Pending)+s.Cancelled && s.Pending == 1, "%d runs; the numbers are %+v", n, s)
				} else {
					counts(t, w, "in the end", p.stats)
				}
				h.Cancel()
				pass(second) // for a run that is under way
				r.want("")
			})
		})
	}
}

// Another task that holds the worker makes runs late in the same way.
func TestMissedRunsBehindAnother(t *testing.T) {
	for name, want := range map[string]string{
		"Skip":    "run@100 run@470 run@500 run@600",
		"CatchUp": "run@100 run@470 run@470 run@470 run@500 run@600",
		"Delay":   "run@100 run@470 run@570",
	} {
		bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
			r := newRecord(t)
			must(w.Every(100*ms, policies[name], r.task("run")))
			must(w.Schedule(120*ms, func() { time.Sleep(350 * ms) }))
			r.at(650)
			r.want(want)
		})
	}
}

// Periods that fit no tick, a thousand of them: the last run is as exact as the first, and there
// are as many as there were periods. Delay is left out: it plans anew from the run before,
// which is up to a tick late.
func TestPeriodsDoNotDriftOverDays(t *testing.T) {
	for _, c := range []struct{ tick, period, begins time.Duration }{
		{10 * ms, 7777 * ms, 0},
		{10 * ms, 61*second - 1, 0},
		{10 * ms, 20*second + 1, 1234567},
		{10 * ms, 20*second - 1, 1234567},
		{ms, 33_333*ms + 333_333, 1234567},
		{7 * ms, 30 * second, 1234567},
		{second, 7 * time.Minute / 3, 1234567},
		{second, time.Minute, 0},
		{10 * ms, 25 * ms, 0},
	} {
		for _, missed := range []wheel.Missed{wheel.Skip, wheel.CatchUp} {
			bubble(t, wheel.Config{Tick: c.tick}, func(t *testing.T, w *wheel.Wheel) {
				time.Sleep(c.begins)
				began := time.Now()
				runs := 0
				must(w.Every(c.period, missed, func() {
					runs++
					late := time.Since(began) - time.Duration(runs)*c.period
					require(t, late >= 0 && late < c.tick,
						"run %d of every %v was %v off; the tick is %v", runs, c.period, late, c.tick)
				}))
				span := 1000 * c.period
				pass(span + c.tick)
				want := int((span + c.tick) / c.period)
				check(t, runs == want || runs == int(span/c.period),
					"%d runs of every %v in %v, want %d", runs, c.period, span, want)
			})
		}
	}
}

// No two runs are ever under way at once, for any duration and any number of goroutines.
// CatchUp omits none nevertheless.
func TestRunsOfOneTaskDoNotOverlap(t *testing.T) {
	eachPolicy(t, func(t *testing.T, w *wheel.Wheel, missed wheel.Missed) {
		seed := newRand(t).Uint64()
		var under, most, runs atomic.Int32
		h := must(w.Every(10*ms, missed, func() {
			n := under.Add(1)
			most.Store(max(most.Load(), n))
			k := runs.Add(1)
			if k < 100 { // then they are quick, so that CatchUp can
				time.Sleep(time.Duration(randOf(seed, uint64(k)).Int64N(int64(25 * ms))))
			}
			under.Add(-1)
		}))
		pass(5 * second)
		h.Cancel()
		check(t, most.Load() == 1, "%d runs were under way at once", most.Load())
		check(t, missed != wheel.CatchUp || runs.Load() == 500, "%d runs, want all 500", runs.Load())
		s := w.Stats()
		check(t, s.Fired == uint64(runs.Load()), "%d runs; the numbers are %+v", runs.Load(), s)
	})
}

// Every begins a period from now, EveryFunc at its instant, or at the next tick if that is past.
func TestEveryBegins(t *testing.T) {
	eachPolicy(t, func(t *testing.T, w *wheel.Wheel, missed wheel.Missed) {
		r := newRecord(t)
		must(w.Every(10*ms, missed, r.task("a")))
		must(w.EveryFunc(r.start.Add(7*ms), 10*ms, missed, func(timeout.Timeout) { r.run("b") }))
		must(w.EveryFunc(time.Time{}, 20*ms, missed, func(timeout.Timeout) { r.run("c") }))
		r.at(32)
		r.want("c@1 b@7 a@10 b@17 a@20 c@21 b@27 a@30")
	})
}

// The plan begins at the first instant itself, not at its tick.
func TestPlanBeginsBetweenTicks(t *testing.T) {
	eachPolicy(t, func(t *testing.T, w *wheel.Wheel, missed wheel.Missed) {
		r := newRecord(t)
		must(w.EveryFunc(r.start.Add(1500*time.Microsecond), 10500*time.Microsecond, missed, func(timeout.Timeout) { r.run("a") }))
		r.at(30)
		r.want(map[wheel.Missed]string{
			wheel.Skip: "a@2 a@12 a@23", wheel.CatchUp: "a@2 a@12 a@23", wheel.Delay: "a@2 a@13 a@24"}[missed])
	})
}

// A first run at an instant that is over comes at the next tick, and the plan begins there:
// also if the instant is the tick that has just come, or lies between that and now.
func TestEveryBeginsWithItsFirstRun(t *testing.T) {
	for _, after := range []time.Duration{0, 500 * time.Microsecond} { // a tick
		for _, past := range []time.Duration{0, 1, 300 * time.Microsecond, ms, 5*ms + 1} {
			eachPolicy(t, func(t *testing.T, w *wheel.Wheel, missed wheel.Missed) {
				time.Sleep(10*ms + after)
				first := time.Now().Add(-past)
				r := newRecord(t)
				r.start = r.start.Add(-after)
				must(w.EveryFunc(first, 100*ms+500*time.Microsecond, missed, func(timeout.Timeout) { r.run("a") }))
				r.at(300)
				r.want(map[wheel.Missed]string{
					wheel.Skip: "a@1 a@102 a@202", wheel.CatchUp: "a@1 a@102 a@202", wheel.Delay: "a@1 a@102 a@203"}[missed])
			})
		}
	}
}

// A refused run is lost and counted; the next comes at its time.
func TestRefusedRunsDoNotEndAPeriodicTask(t *testing.T) {
	each(t, policies, func(t *testing.T, missed wheel.Missed) {
		var refuse atomic.Bool
		w := start(t, wheel.Config{Tick: ms, Executor: executor(func(task func()) error {
			if refuse.Load() {
				return wheel.ErrPoolFull
			}
			go task()
			return nil
		})})
		r := newRecord(t)
		must(w.Every(10*ms, missed, r.task("a")))
		r.at(25)
		refuse.Store(true)
		r.at(45)
		refuse.Store(false)
		r.at(65)
		r.want("a@10 a@20 a@50 a@60")
		counts(t, w, "two of six refused", wheel.Stats{Scheduled: 7, Fired: 6, Rejected: 2, Pending: 1})
	})
}

// A run that is moved or cancelled while its executor refuses it, or panics, is no refused one: it
// comes at its new deadline, or never, and OnReject is not called.
func TestRefusedRunThatWasMoved(t *testing.T) {
	type change struct {
		do    func(h timeout.Timeout) bool
		want  string
		stats wheel.Stats
	}
	changes := map[string]change{
		"to later": {func(h timeout.Timeout) bool { return h.Reset(30 * ms) }, "a@100 a@230 a@330", wheel.Stats{Scheduled: 4, Fired: 3, Pending: 1}},
		"at once":  {func(h timeout.Timeout) bool { return h.Reset(0) }, "a@100 a@201 a@301", wheel.Stats{Scheduled: 4, Fired: 3, Pending: 1}},
		"for good": {timeout.Timeout.Cancel, "a@100", wheel.Stats{Scheduled: 2, Fired: 1, Cancelled: 1}},
	}
	for name, missed := range policies {
		for _, refuse := range []func() error{func() error { return wheel.ErrPoolFull }, func() error { panic("bug") }} {
			t.Run(name, func(t *testing.T) {
				each(t, changes, func(t *testing.T, c change) {
					calls := 0
					handle := make(chan timeout.Timeout, 1)
					w := start(t, wheel.Config{Tick: ms, OnReject: func(func(), error) { t.Error("the run was refused") },
						Executor: executor(func(task func()) error {
							if calls++; calls == 2 {
								check(t, c.do(<-handle), "it can neither be moved nor cancelled")
								return refuse()
							}
							go task()
							return nil
						})})
					r := newRecord(t)
					handle <- must(w.Every(100*ms, missed, r.task("a")))
					r.at(399)
					r.want(c.want)
					synctest.Wait()
					c.stats.Panics = w.Stats().Panics
					counts(t, w, "in the end", c.stats)
				})
			})
		}
	}
}

// A periodic task survives everything that its executor and OnReject may do with one run.
func TestPeriodicTaskSurvivesItsExecutor(t *testing.T) {
	type behaviour struct {
		execute  func(task func()) error
		onReject func(task func(), err error)
	}
	no := errors.New("no")
	refuse := func(func()) error { return no }
	behaviours := map[string]behaviour{
		"refused, started elsewhere": {refuse, func(task func(), _ error) { go task() }},
		"refused, run by the hook":   {refuse, func(task func(), _ error) { task() }},
		"refused, hook panics":       {refuse, func(func(), error) { panic("bug") }},
		"refused, hook exits":        {refuse, func(func(), error) { runtime.Goexit() }},
		"executor panics":            {func(func()) error { panic("bug") }, nil},
		"executor exits":             {func(func()) error { runtime.Goexit(); return nil }, nil},
		"panics after it took it on": {func(task func()) error { go task(); panic("bug") }, nil},
		"runs it twice":              {func(task func()) error { go task(); go task(); return nil }, nil},
		"runs it and refuses":        {func(task func()) error { task(); return no }, nil},
	}
	for policy, missed := range policies {
		t.Run(policy, func(t *testing.T) {
			each(t, behaviours, func(t *testing.T, b behaviour) {
				calls := 0
				w := start(t, wheel.Config{Tick: ms, OnReject: b.onReject, Executor: executor(func(task func()) error {
					if calls++; calls == 2 {
						return b.execute(task)
					}
					go task()
					return nil
				})})
				var runs, under atomic.Int64
				must(w.Every(10*ms, missed, func() {
					check(t, under.Add(1) == 1, "two runs at once")
					runs.Add(1)
					time.Sleep(ms)
					under.Add(-1)
				}))
				pass(105 * ms)
				n := runs.Load()
				check(t, n == 9 || n == 10, "%d runs in ten periods, want 9 or 10", n)
			})
		})
	}
}

// Once Cancel has returned true no run of a periodic task begins.
func TestNoPeriodicRunBeginsAfterCancel(t *testing.T) {
	races(t, func(t *testing.T, c wheel.Config) {
		c.Tick = 100 * time.Microsecond
		w := start(t, c)
		var won, after, ended atomic.Int64
		for range 60 {
			crowd(t, 8, func(int, *rand.Rand) {
				var cancelled atomic.Bool
				ran := make(chan struct{}, 1)
				h := must(w.Every(w.Tick(), wheel.CatchUp, func() {
					if cancelled.Load() {
						after.Add(1)
					}
					select {
					case ran <- struct{}{}:
					default:
					}
					ended.Add(1)
				}))
				<-ran
				if h.Cancel() {
					cancelled.Store(true)
					won.Add(1)
				}
				check(t, h.State() == timeout.Cancelled, "after a cancel it is %v", h.State())
			})
		}
		settled(t, w, &ended)
		check(t, after.Load() == 0 && won.Load() > 0,
			"%d runs began after one of the %d cancels that returned true", after.Load(), won.Load())
	})
}

// A run that waits in its executor's queue has not begun: it is still cancelled, moved, and
// returned by Stop. The queue is blocked from 5 to 95 ms.
func TestRunsThatWaitInAQueue(t *testing.T) {
	type change struct {
		do   func(w *wheel.Wheel, h timeout.Timeout) bool // at 50 ms
		want string                                       // until 125 ms
	}
	each(t, map[string]change{
		"nothing":   {func(*wheel.Wheel, timeout.Timeout) bool { return true }, "a@95 a@100 a@110 a@120"},
		"cancelled": {func(_ *wheel.Wheel, h timeout.Timeout) bool { return h.Cancel() && !h.Cancel() }, ""},
		"drained":   {func(w *wheel.Wheel, _ timeout.Timeout) bool { return len(w.Drain()) == 1 }, ""},
		"stopped":   {func(w *wheel.Wheel, _ timeout.Timeout) bool { return len(w.Stop()) == 1 }, ""},
		"to later":  {func(_ *wheel.Wheel, h timeout.Timeout) bool { return h.Reset(56 * ms) }, "a@106 a@116"},
		"to sooner": {func(_ *wheel.Wheel, h timeout.Timeout) bool { return h.Reset(6 * ms) }, "a@95 a@96 a@106 a@116"},
	}, func(t *testing.T, c change) {
		w, r := start(t, wheel.Config{Tick: ms, Executor: newPool(t, 1, 1000)}), newRecord(t)
		must(w.Schedule(5*ms, func() { time.Sleep(90 * ms) }))
		h := must(w.Every(10*ms, wheel.Skip, r.task("a")))
		r.at(50)
		check(t, c.do(w, h), "a run that waits cannot be taken back")
		r.at(125)
		r.want(c.want)
		h.Cancel()
		w.Stop()
	})
}

// With Delay two runs never begin closer than a period, however long a run waited
// in its executor's queue.
func TestDelayCountsFromTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, wheel.Config{Tick: ms, Executor: newPool(t, 1, 1000)})
		var last time.Time
		must(w.Every(100*ms, wheel.Delay, func() {
			since := time.Since(last)
			check(t, since >= 100*ms, "two runs are %v apart", since)
			last = time.Now()
		}))
		for _, at := range []time.Duration{95 * ms, 450 * ms} {
			must(w.Schedule(at, func() { time.Sleep(90 * ms) }))
		}
		pass(second)
	})
}

func TestPeriodsOutOfRange(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		for _, period := range []time.Duration{math.MinInt64, -second, 0, 1, 10*ms - 1} {
			h, err := w.Every(period, wheel.Skip, func() { t.Error("it was run all the same") })
			check(t, err != nil && strings.Contains(err.Error(), period.String()) && strings.Contains(err.Error(), "10ms"),
				"a period of %v: %v; want an error that names it and the tick", period, err)
			check(t, h == timeout.Timeout{}, "a refused periodic task has a handle")
			h, err = w.EveryFunc(time.Now(), period, wheel.Skip, func(timeout.Timeout) { t.Error("it was run all the same") })
			check(t, err != nil && h == timeout.Timeout{}, "a period of %v from an instant on: %v, %v", period, h, err)
		}
		r := newRecord(t)
		must(w.Every(10*ms, wheel.Skip, r.task("tick"))) // the shortest
		for _, missed := range policies {
			must(w.Every(math.MaxInt64, missed, r.task("never"))) // the longest
		}
		r.at(35)
		r.want("tick@10 tick@20 tick@30")
	})
}

// The period changes only of what has one, to one that a wheel can keep, until the end.
func TestSetPeriodRefuses(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		h := must(w.Every(20*ms, wheel.Skip, r.task("tick")))
		for _, period := range []time.Duration{math.MinInt64, 0, 10*ms - 1} {
			check(t, !h.SetPeriod(period), "the period became %v", period)
		}
		self := must(w.ScheduleFunc(second, func(timeout.Timeout) {}))
		for _, other := range []timeout.Timeout{{}, r.schedule(w, 30*ms, "once"), self} {
			check(t, !other.SetPeriod(10*ms), "%v has a period", other)
		}
		r.at(45)
		r.want("tick@20 once@30 tick@40")
		check(t, h.SetPeriod(10*ms), "the shortest period is refused")
		r.at(75)
		r.want("tick@60 tick@70")
		h.Cancel()
		check(t, !h.SetPeriod(20*ms), "the period of a cancelled task changed")
		r.at(100)
		r.want("")
	})
}

// However a change of the period and a run meet, runs go on with the new period.
func TestSetPeriodRacesRuns(t *testing.T) {
	eachPolicy(t, func(t *testing.T, w *wheel.Wheel, missed wheel.Missed) {
		var runs atomic.Int64
		h := must(w.Every(ms, missed, func() { runs.Add(1) }))
		var changes sync.WaitGroup
		for range 4 {
			changes.Go(func() {
				for range 200 {
					h.SetPeriod(time.Duration(1+rand.IntN(3)) * ms)
					time.Sleep(ms)
				}
			})
		}
		changes.Wait()
		check(t, h.SetPeriod(5*ms), "its period cannot be changed")
		synctest.Wait() // a run that has begun at this instant is counted
		before := runs.Load()
		time.Sleep(501 * ms)
		check(t, runs.Load()-before == 100, "%d runs in 500 ms, want one every 5 ms", runs.Load()-before)
		h.Cancel()
	})
}

// With Delay two runs never begin closer than a period, though the executor refuses the
// second of them, due at 200 ms, and maybe the third, and OnReject starts them elsewhere some
// time later. It does nothing where another run began less than a period before. A Reset moves
// the next run nevertheless, with the other policies too.
func TestDelayCountsFromTheRunElsewhere(t *testing.T) {
	for _, c := range []struct {
		after   int // the refusal, in milliseconds
		refused int
		reset   time.Duration // from 240 ms; 0 is none
		missed  wheel.Missed
		want    string
	}{
		{0, 1, 0, wheel.Delay, "a@100 a@200 a@300 a@400 a@500"},
		{50, 1, 0, wheel.Delay, "a@100 a@250 a@350 a@450"},
		{95, 1, 0, wheel.Delay, "a@100 a@295 a@395 a@495"},
		{105, 1, 0, wheel.Delay, "a@100 a@300 a@400 a@500"},
		{199, 1, 0, wheel.Delay, "a@100 a@300 a@400 a@500"},
		{130, 2, 0, wheel.Delay, "a@100 a@330 a@430"},
		{50, 1, 20 * ms, wheel.Delay, "a@100 a@250 a@260 a@360 a@460"},
		{50, 1, 200 * ms, wheel.Delay, "a@100 a@250 a@440"},
		{55, 1, 5 * ms, wheel.Delay, "a@100 a@245 a@345 a@445"},
		{50, 1, 20 * ms, wheel.Skip, "a@100 a@250 a@260 a@360 a@460"},
		{50, 1, 20 * ms, wheel.CatchUp, "a@100 a@250 a@260 a@360 a@460"},
	} {
		t.Run(fmt.Sprint(c.after, c.refused, c.reset, c.missed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				w := start(t, wheel.Config{Tick: ms, Executor: executor(func(task func()) error {
					if calls++; calls > 1 && calls <= 1+c.refused {
						return wheel.ErrPoolFull
					}
					go task()
					return nil
				}), OnReject: func(task func(), _ error) { time.AfterFunc(time.Duration(c.after)*ms, task) }})
				r := newRecord(t)
				h := must(w.Every(100*ms, c.missed, r.task("a")))
				r.at(240)
				if c.reset != 0 {
					check(t, h.Reset(c.reset), "it cannot be reset")
				}
				r.at(505)
				r.want(c.want)
			})
		})
	}
}

// What OnReject receives runs the task once at most, however often it is called.
func TestRefusedRunRunsOnce(t *testing.T) {
	each(t, policies, func(t *testing.T, missed wheel.Missed) {
		calls := 0
		var refused func()
		w := start(t, wheel.Config{Tick: ms, Executor: executor(func(task func()) error {
			if calls++; calls == 2 {
				return wheel.ErrPoolFull
			}
			go task()
			return nil
		}), OnReject: func(task func(), _ error) { refused = task }})
		r := newRecord(t)
		h := must(w.Every(100*ms, missed, r.task("a")))
		for _, at := range []int{220, 240, 450} {
			r.at(at)
			refused()
		}
		r.want(map[wheel.Missed]string{
			wheel.Skip: "a@100 a@220 a@300 a@400", wheel.CatchUp: "a@100 a@220 a@300 a@400", wheel.Delay: "a@100 a@220 a@320 a@420"}[missed])
		check(t, h.Cancel(), "a run is under way")
	})
}
