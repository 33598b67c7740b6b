package wheel_test

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// Due tasks run in the order of the deadlines even while the worker is late and
// goroutines schedule all the time. The test counts those that were scheduled before
// their deadline and yet ran after a deadline that is more than a tick later.
func TestLateWorkerKeepsTheOrder(t *testing.T) {
	const tick = 100 * time.Microsecond
	w := start(t, wheel.Config{Tick: tick, Logger: slog.New(slog.DiscardHandler)})
	began := time.Now()
	var last time.Duration // the latest deadline that has run; the worker's
	var ran, disorder int
	var worst time.Duration
	var producers sync.WaitGroup
	for seed := range uint64(4) {
		producers.Go(func() {
			rnd := randOf(1, seed)
			for time.Since(began) < 700*ms {
				var inTime atomic.Bool
				d := time.Duration(rnd.Int64N(int64(5 * ms)))
				at := time.Now().Add(d)
				deadline := at.Sub(began)
				must(w.ScheduleAt(at, func() {
					ran++
					if behind := last - deadline; behind > tick && inTime.Load() {
						disorder++
						worst = max(worst, behind)
					}
					last = max(last, deadline)
				}))
				inTime.Store(time.Now().Before(at))
			}
		})
	}
	producers.Wait()
	for w.Stats().Pending > 0 {
		time.Sleep(ms)
	}
	w.Stop()
	if disorder > 0 {
		t.Errorf("%d of %d ran out of order, by up to %v", disorder, ran, worst)
	}
}

// A periodic task survives everything that its executor and OnReject may do with one run.
func TestPeriodicTaskSurvivesItsExecutor(t *testing.T) {
	type once = func(task func()) error
	no := errors.New("no")
	for name, c := range map[string]struct {
		execute  once
		onReject func(task func(), err error)
	}{
		"refused, started elsewhere": {func(func()) error { return no }, func(task func(), _ error) { go task() }},
		"refused, run by the hook":   {func(func()) error { return no }, func(task func(), _ error) { task() }},
		"refused, hook panics":       {func(func()) error { return no }, func(func(), error) { panic("bug") }},
		"refused, hook exits":        {func(func()) error { return no }, func(func(), error) { runtime.Goexit() }},
		"executor panics":            {func(func()) error { panic("bug") }, nil},
		"executor exits":             {func(func()) error { runtime.Goexit(); return nil }, nil},
		"panics after it took it on": {func(task func()) error { go task(); panic("bug") }, nil},
		"runs it twice":              {func(task func()) error { go task(); go task(); return nil }, nil},
		"runs it and refuses":        {func(task func()) error { task(); return no }, nil},
	} {
		for policy, missed := range policies {
			t.Run(name+"/"+policy, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					calls := 0
					w := start(t, wheel.Config{
						Tick:     ms,
						Logger:   slog.New(slog.DiscardHandler),
						OnReject: c.onReject,
						Executor: executor(func(task func()) error {
							if calls++; calls == 2 {
								return c.execute(task)
							}
							go task()
							return nil
						}),
					})
					var runs, under atomic.Int64
					must(w.Every(10*ms, missed, func() {
						if under.Add(1) > 1 {
							t.Error("two runs at once")
						}
						runs.Add(1)
						time.Sleep(ms)
						under.Add(-1)
					}))
					time.Sleep(105 * ms)
					synctest.Wait()
					if n := runs.Load(); n < 9 || n > 10 {
						t.Errorf("%d runs in ten periods, want 9 or 10", n)
					}
				})
			})
		}
	}
}

// crew is an executor of two goroutines with a queue, so that runs wait.
func crew(t *testing.T) wheel.Executor {
	tasks := make(chan func(), 1000)
	t.Cleanup(func() { close(tasks) })
	for range 2 {
		go func() {
			for task := range tasks {
				task()
			}
		}()
	}
	return executor(func(task func()) error { tasks <- task; return nil })
}

// Once Cancel has returned true no run of a periodic task begins.
func TestNoPeriodicRunBeginsAfterCancel(t *testing.T) {
	for name, executor := range map[string]func(t *testing.T) wheel.Executor{
		"inline":     func(*testing.T) wheel.Executor { return nil },
		"goroutines": func(*testing.T) wheel.Executor { return wheel.Goroutines },
		"queue":      crew,
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, wheel.Config{Tick: 100 * time.Microsecond, Executor: executor(t), Logger: slog.New(slog.DiscardHandler)})
			var true_, after atomic.Int64
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
							true_.Add(1)
						}
						if h.State() != timeout.Cancelled {
							t.Errorf("after a cancel it is %v", h.State())
						}
					})
				}
				all.Wait()
			}
			time.Sleep(50 * ms)
			if after.Load() > 0 || true_.Load() == 0 {
				t.Errorf("%d runs began after one of the %d cancels that returned true", after.Load(), true_.Load())
			}
		})
	}
}

// An instant in the past, and no delay at all, mean the next tick from inside of tasks
// too: a task that resets itself lets time pass.
func TestPastInstantsLetTimePass(t *testing.T) {
	const most = 1000
	for name, again := range map[string]func(w *wheel.Wheel, task func(func())){
		"ArmAt": func(w *wheel.Wheel, task func(func())) {
			timer := new(wheel.Timer)
			timer.Init(w, func() { task(func() { _, _ = timer.ArmAt(time.Time{}) }) })
			_, _ = timer.ArmAt(time.Now())
		},
		"Arm": func(w *wheel.Wheel, task func(func())) {
			timer := new(wheel.Timer)
			timer.Init(w, func() { task(func() { _, _ = timer.Arm(0) }) })
			_, _ = timer.Arm(0)
		},
		"Schedule": func(w *wheel.Wheel, task func(func())) {
			var self func()
			self = func() { task(func() { must(w.Schedule(0, self)) }) }
			self()
		},
		"ScheduleAt": func(w *wheel.Wheel, task func(func())) {
			var self func()
			self = func() { task(func() { must(w.ScheduleAt(time.Now().Add(-second), self)) }) }
			self()
		},
		"ResetAt": func(w *wheel.Wheel, task func(func())) {
			must(w.ScheduleFunc(0, func(h timeout.Timeout) { task(func() { h.ResetAt(time.Time{}) }) }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
				runs := 0
				again(w, func(set func()) {
					if runs++; runs < most {
						set()
					}
				})
				time.Sleep(10*ms + ms/2)
				synctest.Wait()
				if runs < 10 || runs > 12 {
					t.Errorf("%d runs in ten ticks", runs)
				}
			})
		})
	}
}

// With Delay two runs never begin closer than a period, however long a run waited
// in its executor's queue.
func TestDelayCountsFromTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := make(chan func(), 10)
		defer close(tasks)
		go func() {
			for task := range tasks {
				task()
			}
		}()
		w := start(t, wheel.Config{Tick: ms, Executor: executor(func(task func()) error { tasks <- task; return nil })})
		var last time.Time
		h := must(w.Every(100*ms, wheel.Delay, func() {
			if since := time.Since(last); since < 100*ms {
				t.Errorf("two runs are %v apart", since)
			}
			last = time.Now()
		}))
		for _, at := range []time.Duration{95 * ms, 450 * ms} {
			must(w.Schedule(at, func() { time.Sleep(90 * ms) }))
		}
		time.Sleep(second)
		synctest.Wait()
		h.Cancel()
		w.Stop()
	})
}

// Drain returns all pending timeouts, in every place, and the wheel goes on.
func TestDrainReturnsWhatIsPending(t *testing.T) {
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, wheel.Config{Tick: ms, Executor: executor(t), MaxPending: 6})
				r := newRecord(t)
				r.schedule(w, 5*ms, "ran")
				var timer, gone wheel.Timer
				timer.Init(w, r.task("timer"))
				gone.Init(w, r.task("gone"))
				must(timer.Arm(time.Hour))
				must(gone.Arm(time.Hour))
				every := must(w.Every(10*ms, wheel.Skip, func() { r.run("every"); time.Sleep(15 * ms) }))
				far := r.schedule(w, 2*time.Hour, "far")
				gone.Cancel()
				r.at(12) // the periodic task is running
				near := r.schedule(w, time.Minute, "near")
				drained := w.Drain()
				var got []timeout.Timeout
				for _, u := range drained {
					got = append(got, u.Timeout)
					if u.Timeout.State() != timeout.Cancelled || u.Timeout.Cancel() || u.Task == nil {
						t.Errorf("a drained timeout is %v", u.Timeout.State())
					}
				}
				want := []timeout.Timeout{every, near, timer.Timeout(), far}
				if len(got) != len(want) {
					t.Fatalf("%d drained, want %d", len(got), len(want))
				}
				for i := range want {
					if got[i] != want[i] {
						t.Errorf("%d: not in the order of the deadlines", i)
					}
				}
				if s := w.Stats(); s.Pending != 0 || s.Cancelled != 5 {
					t.Errorf("the numbers are %+v", s)
				}
				for range 5 { // there is room, and the wheel goes on
					r.schedule(w, 10*ms, "later")
				}
				must(timer.Arm(20 * ms))
				r.at(500)
				later := "later@22+later@22+later@22+later@22+later@22"
				if name == "inline" { // behind the periodic task
					later = "later@25 later@25 later@25 later@25 later@25"
				}
				r.want("ran@5 every@10 " + later + " timer@32")
			})
		})
	}
}

// EveryFunc begins at its instant, and its task cancels and moves itself.
func TestEveryFuncTimesItself(t *testing.T) {
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, wheel.Config{Tick: ms, Executor: executor(t)})
				r := newRecord(t)
				runs := 0
				h := must(w.EveryFunc(r.start.Add(7*ms), 10*ms, wheel.Skip, func(h timeout.Timeout) {
					r.run("a")
					switch runs++; runs {
					case 3:
						h.Reset(25 * ms)
					case 5:
						if h.Cancel() {
							t.Error("a run that is under way was taken back")
						}
					}
				}))
				must(w.EveryFunc(time.Time{}, 100*ms, wheel.Skip, func(timeout.Timeout) { r.run("at once") }))
				r.at(150)
				r.want("at once@1 a@7 a@17 a@27 a@52 a@62 at once@101")
				if h.State() != timeout.Cancelled {
					t.Errorf("it is %v", h.State())
				}
				w.Stop()
			})
		})
	}
}

// Handles distinguish a task that has begun from a cancelled one, for as long as the
// memory serves no other timeout, and those of timers for ever.
func TestStateTellsExpiredFromCancelled(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		ran := must(w.Schedule(ms, func() {}))
		taken := must(w.Schedule(time.Hour, func() {}))
		time.Sleep(5 * ms)
		taken.Cancel()
		time.Sleep(5 * ms)
		synctest.Wait()
		if ran.State() != timeout.Expired || taken.State() != timeout.Cancelled {
			t.Errorf("they are %v and %v", ran.State(), taken.State())
		}
		for range 1000 {
			must(w.Schedule(time.Hour, func() {}))
		}
		if ran.State() != timeout.Done || taken.State() != timeout.Done {
			t.Errorf("with their memory in use they are %v and %v", ran.State(), taken.State())
		}
	})
}
