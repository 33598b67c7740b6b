package wheel_test

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
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

// The first run comes a period after the start, and not a tick later, and the others a
// period after each other, under every policy.
func TestEvery(t *testing.T) {
	eachPolicy(t, func(t *testing.T, w *wheel.Wheel, missed wheel.Missed) {
		r := newRecord(t)
		h := must(w.Every(10*ms, missed, r.task("a")))
		r.at(9)
		r.want("")
		r.at(45)
		r.want("a@10 a@20 a@30 a@40")
		check(t, h.State() == timeout.Pending, "between two runs the timeout is %v", h.State())
		got, want := h.Deadline(), r.start.Add(50*ms)
		check(t, got.Equal(want), "the next run is due at %v, want %v", got, want)
		check(t, h.Cancel() && !h.Cancel() && h.State() == timeout.Cancelled,
			"the first cancel should be true and the last one")
		r.at(1000)
		r.want("")
	})
}

// Periods that are no whole ticks: every run is rounded up by itself, and the
// rounding does not add up.
func TestPeriodsAreRoundedOneByOne(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		must(w.Every(25*ms, wheel.Skip, r.task("a")))
		r.at(205)
		r.want("a@30 a@50 a@80 a@100 a@130 a@150 a@180 a@200")
	})
}

// Periods that fit no tick, for days: the last run is as exact as the first, and there
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
				pass(2*day + c.tick)
				want := int((2*day + c.tick) / c.period)
				check(t, runs == want || runs == int(2*day/c.period),
					"%d runs of every %v in two days, want %d", runs, c.period, want)
			})
		}
	}
}

// A run that takes two periods and more, and how each policy treats the runs that it
// prevents. The first run is at 300 and ends at 950.
func TestMissedRuns(t *testing.T) {
	want := map[wheel.Missed]string{
		wheel.Skip:    "run@300 run@950 run@1200 run@1500",
		wheel.CatchUp: "run@300 run@950 run@950 run@1200 run@1500",
		wheel.Delay:   "run@300 run@950 run@1250 run@1550",
	}
	eachPolicy(t, func(t *testing.T, w *wheel.Wheel, missed wheel.Missed) {
		r := newRecord(t)
		var runs atomic.Int32
		must(w.Every(300*ms, missed, func() {
			r.run("run")
			if runs.Add(1) == 1 {
				time.Sleep(650 * ms)
			}
		}))
		r.at(1600)
		r.want(want[missed])
		n := uint64(strings.Count(want[missed], "run"))
		counts(t, w, "in the end", wheel.Stats{Scheduled: n + 1, Fired: n, Pending: 1})
	})
}

// Another task that holds the worker makes runs late in the same way.
func TestMissedRunsBehindAnother(t *testing.T) {
	each(t, map[string]string{
		"Skip":    "run@100 run@470 run@500 run@600",
		"CatchUp": "run@100 run@470 run@470 run@470 run@500 run@600",
		"Delay":   "run@100 run@470 run@570",
	}, func(t *testing.T, want string) {
		w, r := start(t, wheel.Config{Tick: ms}), newRecord(t)
		_, policy, _ := strings.Cut(t.Name(), "/")
		must(w.Every(100*ms, policies[policy], r.task("run")))
		must(w.Schedule(120*ms, func() { time.Sleep(350 * ms) }))
		r.at(650)
		r.want(want)
	})
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
			if k < 200 { // then they are quick, so that CatchUp can
				time.Sleep(time.Duration(randOf(seed, uint64(k)).Int64N(int64(25 * ms))))
			}
			under.Add(-1)
		}))
		pass(10 * second)
		h.Cancel()
		check(t, most.Load() == 1, "%d runs were under way at once", most.Load())
		check(t, missed != wheel.CatchUp || runs.Load() == 1000, "%d runs, want all 1000", runs.Load())
		s := w.Stats()
		check(t, s.Fired == uint64(runs.Load()), "%d runs; the numbers are %+v", runs.Load(), s)
	})
}

func TestCancelAPeriodicTaskFromInside(t *testing.T) {
	eachPolicy(t, func(t *testing.T, w *wheel.Wheel, missed wheel.Missed) {
		var handle atomic.Pointer[timeout.Timeout]
		var runs atomic.Int32
		h := must(w.Every(10*ms, missed, func() {
			check(t, runs.Add(1) != 3 || !handle.Load().Cancel(), "a run that is under way was taken back")
		}))
		handle.Store(&h)
		pass(second)
		check(t, runs.Load() == 3 && h.State() == timeout.Cancelled,
			"%d runs, the timeout is %v; want 3 and cancelled", runs.Load(), h.State())
	})
}

// A cancel also cancels outstanding runs. It returns false, since a run is under way, and
// as after Stop no further one begins.
func TestCancelledRunsAreNotCaughtUpWith(t *testing.T) {
	for how, end := range map[string]func(*wheel.Wheel, timeout.Timeout) bool{
		"Cancel": func(_ *wheel.Wheel, h timeout.Timeout) bool { return !h.Cancel() && h.State() == timeout.Cancelled },
		"Stop":   func(w *wheel.Wheel, _ timeout.Timeout) bool { return len(w.Stop()) == 1 },
	} {
		t.Run(how, func(t *testing.T) {
			each(t, executors, func(t *testing.T, executor func(*testing.T) wheel.Executor) {
				w, r := start(t, wheel.Config{Tick: ms, Executor: executor(t)}), newRecord(t)
				h := must(w.Every(10*ms, wheel.CatchUp, func() {
					r.run("run")
					time.Sleep(100 * ms)
				}))
				r.at(55) // one is under way, four are owed
				check(t, end(w, h), "a periodic task cannot be ended while it runs")
				pass(second)
				r.want("run@10")
				counts(t, w, "one run and one cancel", wheel.Stats{Scheduled: 2, Fired: 1, Cancelled: 1})
			})
		})
	}
}

// Resetting the handle moves the next run, and with it all that follow.
func TestResetAPeriodicTask(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		h := must(w.Every(100*ms, wheel.Skip, r.task("a")))
		r.at(250)
		h.Reset(90 * ms) // to later
		r.at(600)
		r.want("a@100 a@200 a@340 a@440 a@540")
		h.Reset(7 * ms) // to earlier
		r.at(850)
		r.want("a@607 a@707 a@807")
		h.Cancel()
		r.at(2000)
		check(t, h.Reset(30*ms), "a cancelled periodic task cannot be set again")
		r.at(2150)
		r.want("a@2030 a@2130")
		h.Reset(math.MaxInt64) // to never
		r.at(5000)
		r.want("")
		check(t, h.State() == timeout.Pending, "put off for ever, it is %v", h.State())
	})
}

// To the past means the next tick, once: the periods since then are no missed runs that
// would have to be caught up with.
func TestResetAPeriodicTaskToThePast(t *testing.T) {
	each(t, policies, func(t *testing.T, missed wheel.Missed) {
		w := start(t, wheel.Config{Tick: ms})
		time.Sleep(time.Hour)
		r := newRecord(t)
		h := must(w.Every(100*ms, missed, r.task("run")))
		for i, past := range []time.Time{r.start, r.start.Add(-time.Minute), {}} {
			now := 150 + 202*i
			r.at(now)
			h.ResetAt(past)
			r.at(now + 101)
			runs := r.take()
			check(t, len(runs) == 3, "ran %v, want once in time, once at the reset at %d ms, once 100 ms later", runs, now)
		}
	})
}

func TestResetAPeriodicTaskFromInside(t *testing.T) {
	eachPolicy(t, func(t *testing.T, w *wheel.Wheel, missed wheel.Missed) {
		r := newRecord(t)
		var handle atomic.Pointer[timeout.Timeout]
		var runs atomic.Int32
		h := must(w.Every(100*ms, missed, func() {
			r.run("a")
			h := handle.Load()
			check(t, h.State() == timeout.Pending, "inside a run the timeout is %v; the next is pending", h.State())
			switch runs.Add(1) {
			case 1:
				h.Reset(30 * ms)
			case 2:
				h.Reset(250 * ms)
			case 3:
				h.Cancel()
				h.Reset(20 * ms)
			}
		}))
		handle.Store(&h)
		r.at(650)
		r.want("a@100 a@130 a@380 a@400 a@500 a@600")
	})
}

// EveryFunc begins at its instant, and its task cancels and moves itself.
func TestEveryFuncTimesItself(t *testing.T) {
	each(t, executors, func(t *testing.T, executor func(*testing.T) wheel.Executor) {
		w, r := start(t, wheel.Config{Tick: ms, Executor: executor(t)}), newRecord(t)
		runs := 0
		h := must(w.EveryFunc(r.start.Add(7*ms), 10*ms, wheel.Skip, func(h timeout.Timeout) {
			r.run("a")
			switch runs++; runs {
			case 3:
				h.Reset(25 * ms)
			case 5:
				check(t, !h.Cancel(), "a run that is under way was taken back")
			}
		}))
		must(w.EveryFunc(time.Time{}, 100*ms, wheel.Skip, func(timeout.Timeout) { r.run("at once") }))
		r.at(150)
		r.want("at once@1 a@7 a@17 a@27 a@52 a@62 at once@101")
		check(t, h.State() == timeout.Cancelled, "it is %v", h.State())
	})
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

// A task that calls runtime.Goexit on its own goroutine does not end a periodic task.
func TestGoexitDoesNotEndAPeriodicTask(t *testing.T) {
	each(t, policies, func(t *testing.T, missed wheel.Missed) {
		w, r := start(t, wheel.Config{Tick: ms, Executor: wheel.Goroutines}), newRecord(t)
		must(w.Every(10*ms, missed, func() {
			r.run("a")
			runtime.Goexit()
		}))
		r.at(35)
		r.want("a@10 a@20 a@30")
	})
}

// A run that is dropped because another is under way is not counted, and an outstanding
// one is not counted before it begins: the handle can still be cancelled. The runs begin
// at 10, 35, 60 and 85 ms.
func TestDroppedRunsOfAPeriodicTaskAreNotCounted(t *testing.T) {
	each(t, policies, func(t *testing.T, missed wheel.Missed) {
		w := start(t, wheel.Config{Tick: ms, Executor: wheel.Goroutines})
		var ran atomic.Uint64
		h := must(w.Every(10*ms, missed, func() {
			ran.Add(1)
			time.Sleep(25 * ms)
		}))
		pass(101 * ms)
		counts(t, w, "after 101 ms", wheel.Stats{Scheduled: 5, Fired: 4, Pending: 1})
		h.Cancel()
		pass(second)
		check(t, ran.Load() == 4, "%d runs, want 4", ran.Load())
	})
}

// queued makes an executor of some goroutines behind one queue, so that runs wait.
func queued(goroutines int) func(t *testing.T) wheel.Executor {
	return func(t *testing.T) wheel.Executor {
		tasks := make(chan func(), 1000)
		t.Cleanup(func() { close(tasks) })
		for range goroutines {
			go func() {
				for task := range tasks {
					task()
				}
			}()
		}
		return executor(func(task func()) error { tasks <- task; return nil })
	}
}

// Once Cancel has returned true no run of a periodic task begins.
func TestNoPeriodicRunBeginsAfterCancel(t *testing.T) {
	for name, executor := range map[string]func(t *testing.T) wheel.Executor{
		"inline": executors["inline"], "goroutines": executors["Goroutines"], "queue": queued(2),
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, wheel.Config{Tick: 100 * time.Microsecond, Executor: executor(t)})
			var won, after atomic.Int64
			for range 200 {
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						var cancelled atomic.Bool
						ran := make(chan struct{}, 1)
						h := must(w.Every(100*time.Microsecond, wheel.CatchUp, func() {
							if cancelled.Load() {
								after.Add(1)
							}
							select {
							case ran <- struct{}{}:
							default:
							}
						}))
						<-ran
						if h.Cancel() {
							cancelled.Store(true)
							won.Add(1)
						}
						check(t, h.State() == timeout.Cancelled, "after a cancel it is %v", h.State())
					})
				}
				all.Wait()
			}
			time.Sleep(50 * ms)
			check(t, after.Load() == 0 && won.Load() > 0,
				"%d runs began after one of the %d cancels that returned true", after.Load(), won.Load())
		})
	}
}

// With Delay two runs never begin closer than a period, however long a run waited
// in its executor's queue.
func TestDelayCountsFromTheRun(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Executor: queued(1)(t)}, func(t *testing.T, w *wheel.Wheel) {
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

// Many periodic tasks that begin and are cancelled at random times: each has run
// as often as it had periods, no more and no less.
func TestManyPeriodicTasks(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 64}, func(t *testing.T, w *wheel.Wheel) {
		rnd := newRand(t)
		type task struct {
			begun, ended, period time.Duration
			runs                 atomic.Int64
		}
		start := time.Now()
		var tasks []*task
		for range 200 {
			time.Sleep(time.Duration(rnd.IntN(10)) * ms)
			p := &task{begun: time.Since(start), period: time.Duration(1+rnd.IntN(300)) * ms}
			p.ended = p.begun + time.Duration(rnd.IntN(5000))*ms + ms/2
			tasks = append(tasks, p)
			h := must(w.Every(p.period, wheel.Skip, func() { p.runs.Add(1) }))
			time.AfterFunc(p.ended-p.begun, func() {
				check(t, h.Cancel(), "a periodic task cannot be cancelled")
			})
		}
		pass(10 * second)
		for i, p := range tasks {
			want := int64((p.ended - p.begun) / p.period)
			check(t, p.runs.Load() == want, "%d: period %v, from %v to %v: %d runs, want %d",
				i, p.period, p.begun, p.ended, p.runs.Load(), want)
		}
	})
}
