package wheel_test

import (
	"math"
	"strings"
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
	"Pool": func(t *testing.T) wheel.Executor {
		p := wheel.NewPool(4, 64)
		t.Cleanup(p.Close)
		return p
	},
}

// The first run comes a period after the start, and not a tick later, and the others a
// period after each other, under every policy.
func TestEvery(t *testing.T) {
	for policy, missed := range policies {
		for name, executor := range executors {
			t.Run(policy+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := start(t, wheel.Config{Tick: ms, Executor: executor(t)})
					r := newRecord(t)
					h := must(w.Every(10*ms, missed, r.task("a")))
					r.at(9)
					r.want("")
					r.at(45)
					r.want("a@10 a@20 a@30 a@40")
					if s := h.State(); s != timeout.Pending {
						t.Errorf("between two runs the timeout is %v", s)
					}
					if got, want := h.Deadline(), r.start.Add(50*ms); !got.Equal(want) {
						t.Errorf("the next run is due at %v, want %v", got, want)
					}
					if !h.Cancel() || h.Cancel() || h.State() != timeout.Cancelled {
						t.Error("the first cancel should be true and the last one")
					}
					r.at(1000)
					r.want("")
				})
			})
		}
	}
}

// Periods that are no whole ticks: every run is rounded up by itself, and the
// rounding does not add up.
func TestPeriodsAreRoundedOneByOne(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		h := must(w.Every(25*ms, wheel.Skip, r.task("a")))
		r.at(205)
		r.want("a@30 a@50 a@80 a@100 a@130 a@150 a@180 a@200")
		h.Cancel()
	})
}

// After a day every run is still within a tick of its plan.
func TestPeriodicTasksDoNotDrift(t *testing.T) {
	for _, period := range []time.Duration{7777 * ms, 61*second - 1} {
		for policy, missed := range policies {
			if missed == wheel.Delay {
				continue // which plans anew from the run before, a tick late
			}
			bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
				start := time.Now()
				runs := 0
				must(w.Every(period, missed, func() {
					runs++
					plan := time.Duration(runs) * period
					if late := time.Since(start) - plan; late < 0 || late >= w.Tick() {
						t.Fatalf("%s: run %d is %v late", policy, runs, late)
					}
				}))
				time.Sleep(day)
				synctest.Wait()
				if want := int(day / period); runs != want {
					t.Errorf("%s: %d runs of a period of %v, want %d", policy, runs, period, want)
				}
			})
		}
	}
}

// A run that takes two periods and more, and how each policy treats the runs that it
// prevents. The first run is at 300 and ends at 950.
func TestMissedRuns(t *testing.T) {
	for _, tc := range []struct{ policy, executor, want string }{
		{"Skip", "inline", "300 950 1200 1500"},
		{"CatchUp", "inline", "300 950 950 1200 1500"},
		{"Delay", "inline", "300 950 1250 1550"},

		{"Skip", "Goroutines", "300 950 1200 1500"},
		{"CatchUp", "Goroutines", "300 950 950 1200 1500"},
		{"Delay", "Goroutines", "300 950 1250 1550"},

		{"Skip", "Pool", "300 950 1200 1500"},
		{"CatchUp", "Pool", "300 950 950 1200 1500"},
		{"Delay", "Pool", "300 950 1250 1550"},
	} {
		t.Run(tc.policy+"/"+tc.executor, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, wheel.Config{Tick: ms, Executor: executors[tc.executor](t)})
				r := newRecord(t)
				var runs atomic.Int32
				must(w.Every(300*ms, policies[tc.policy], func() {
					r.run("run")
					if runs.Add(1) == 1 {
						time.Sleep(650 * ms)
					}
				}))
				r.at(1600)
				want := strings.Fields(tc.want)
				r.want("run@" + strings.Join(want, " run@"))
				if s := w.Stats(); s.Fired != uint64(len(want)) || s.Scheduled != s.Fired+1 || s.Pending != 1 {
					t.Errorf("%d runs; the numbers are %+v", len(want), s)
				}
			})
		})
	}
}

// Another task that holds the worker makes runs late in the same way.
func TestMissedRunsBehindAnother(t *testing.T) {
	for policy, want := range map[string]string{
		"Skip":    "run@100 run@470 run@500 run@600",
		"CatchUp": "run@100 run@470 run@470 run@470 run@500 run@600",
		"Delay":   "run@100 run@470 run@570",
	} {
		bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
			r := newRecord(t)
			must(w.Every(100*ms, policies[policy], r.task("run")))
			must(w.Schedule(120*ms, func() { time.Sleep(350 * ms) }))
			r.at(650)
			r.want(want)
		})
	}
}

// No two runs are ever under way at once, for any duration and any number of goroutines.
// CatchUp omits none nevertheless.
func TestRunsOfOneTaskDoNotOverlap(t *testing.T) {
	for policy, missed := range policies {
		for name, executor := range executors {
			if name == "inline" {
				continue
			}
			t.Run(policy+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					seed := newRand(t).Uint64()
					w := start(t, wheel.Config{Tick: ms, Executor: executor(t)})
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
					time.Sleep(10 * second)
					synctest.Wait()
					h.Cancel()
					switch {
					case most.Load() != 1:
						t.Errorf("%d runs were under way at once", most.Load())
					case missed == wheel.CatchUp && runs.Load() != 1000:
						t.Errorf("%d runs, want all 1000", runs.Load())
					}
					if s := w.Stats(); s.Fired != uint64(runs.Load()) {
						t.Errorf("%d runs; the numbers are %+v", runs.Load(), s)
					}
				})
			})
		}
	}
}

func TestCancelAPeriodicTaskFromInside(t *testing.T) {
	for policy, missed := range policies {
		for name, executor := range executors {
			t.Run(policy+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := start(t, wheel.Config{Tick: ms, Executor: executor(t)})
					var handle atomic.Pointer[timeout.Timeout]
					var runs atomic.Int32
					h := must(w.Every(10*ms, missed, func() {
						if runs.Add(1) == 3 && handle.Load().Cancel() {
							t.Error("a run that is under way was taken back")
						}
					}))
					handle.Store(&h)
					time.Sleep(second)
					synctest.Wait()
					if runs.Load() != 3 || h.State() != timeout.Cancelled {
						t.Errorf("%d runs, the timeout is %v; want 3 and done", runs.Load(), h.State())
					}
				})
			})
		}
	}
}

// A cancel also cancels outstanding runs. It returns false, since a run is under way, and
// as after Stop no further one begins.
func TestCancelledRunsAreNotCaughtUpWith(t *testing.T) {
	for name, executor := range executors {
		for how, end := range map[string]func(*wheel.Wheel, timeout.Timeout) bool{
			"Cancel": func(_ *wheel.Wheel, h timeout.Timeout) bool { return !h.Cancel() && h.State() == timeout.Cancelled },
			"Stop":   func(w *wheel.Wheel, _ timeout.Timeout) bool { return len(w.Stop()) == 1 },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := start(t, wheel.Config{Tick: ms, Executor: executor(t)})
					r := newRecord(t)
					h := must(w.Every(10*ms, wheel.CatchUp, func() {
						r.run("run")
						time.Sleep(100 * ms)
					}))
					r.at(55) // one is under way, four are owed
					if !end(w, h) {
						t.Error("a periodic task cannot be ended while it runs")
					}
					time.Sleep(second)
					synctest.Wait()
					r.want("run@10")
					if s := w.Stats(); s.Fired != 1 || s.Cancelled != 1 || s.Scheduled != 2 || s.Pending != 0 {
						t.Errorf("one run and one cancel; the numbers are %+v", s)
					}
				})
			})
		}
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
		if !h.Reset(30 * ms) { // after a cancel
			t.Error("a cancelled periodic task cannot be set again")
		}
		r.at(2150)
		r.want("a@2030 a@2130")
		h.Reset(math.MaxInt64) // to never
		r.at(5000)
		r.want("")
		if s := h.State(); s != timeout.Pending {
			t.Errorf("put off for ever, it is %v", s)
		}
	})
}

// To the past means the next tick, once: the periods since then are no missed runs that
// would have to be caught up with.
func TestResetAPeriodicTaskToThePast(t *testing.T) {
	for policy, missed := range policies {
		bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
			time.Sleep(time.Hour)
			r := newRecord(t)
			h := must(w.Every(100*ms, missed, r.task(policy)))
			for i, past := range []time.Time{r.start, r.start.Add(-time.Minute), {}} {
				now := 150 + 202*i
				r.at(now)
				h.ResetAt(past)
				r.at(now + 101)
				if runs := r.take(); len(runs) != 3 {
					t.Errorf("ran %v, want once in time, once at the reset at %d ms, once 100 ms later", runs, now)
				}
			}
		})
	}
}

func TestResetAPeriodicTaskFromInside(t *testing.T) {
	for policy, missed := range policies {
		for name, executor := range executors {
			t.Run(policy+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := start(t, wheel.Config{Tick: ms, Executor: executor(t)})
					r := newRecord(t)
					var handle atomic.Pointer[timeout.Timeout]
					var runs atomic.Int32
					h := must(w.Every(100*ms, missed, func() {
						r.run("a")
						h := handle.Load()
						if s := h.State(); s != timeout.Pending {
							t.Errorf("inside a run the timeout is %v; the next is pending", s)
						}
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
			})
		}
	}
}

// A refused run is lost and counted; the next comes at its time.
func TestRefusedRunsDoNotEndAPeriodicTask(t *testing.T) {
	for policy, missed := range policies {
		synctest.Test(t, func(t *testing.T) {
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
			if s := w.Stats(); s.Fired != 6 || s.Rejected != 2 {
				t.Errorf("%s: of 6 runs 2 were refused; the numbers are %+v", policy, s)
			}
		})
	}
}

func TestPeriodsOutOfRange(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		for _, period := range []time.Duration{math.MinInt64, -second, 0, 1, 10*ms - 1} {
			h, err := w.Every(period, wheel.Skip, func() { t.Error("it was run all the same") })
			if err == nil || !strings.Contains(err.Error(), period.String()) || !strings.Contains(err.Error(), "10ms") {
				t.Errorf("a period of %v: %v; want an error that names it and the tick", period, err)
			}
			if h != (timeout.Timeout{}) {
				t.Error("a refused periodic task has a handle")
			}
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
			go func() {
				time.Sleep(p.ended - p.begun)
				if !h.Cancel() {
					t.Error("a periodic task cannot be cancelled")
				}
			}()
		}
		time.Sleep(10 * second)
		synctest.Wait()
		for i, p := range tasks {
			if want := int64((p.ended - p.begun) / p.period); p.runs.Load() != want {
				t.Errorf("%d: period %v, from %v to %v: %d runs, want %d", i, p.period, p.begun, p.ended, p.runs.Load(), want)
			}
		}
	})
}
