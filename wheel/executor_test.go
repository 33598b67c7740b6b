package wheel_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// An executor decides how many tasks run at once: one on the worker, each on Goroutines, as
// many as it has workers in a pool; in the order of the deadlines. On an executor a task that
// blocks delays no other for which there is room, and does not hold the worker.
func TestExecutors(t *testing.T) {
	type order struct {
		executor func(t *testing.T) wheel.Executor
		want     string
	}
	each(t, map[string]order{
		"inline":     {executors["inline"], "a@7 b@37 c@67 d@97 e@127"},
		"Goroutines": {executors["Goroutines"], "a@7 b@8 c@9 d@10 e@20"},
		"Pool":       {func(t *testing.T) wheel.Executor { return newPool(t, 3, 10) }, "a@7 b@8 c@9 d@37 e@38"},
	}, func(t *testing.T, o order) {
		w, r := start(t, wheel.Config{Tick: ms, Executor: o.executor(t)}), newRecord(t)
		task := func(name string) func() { return func() { r.run(name); time.Sleep(30 * ms) } }
		must(w.Schedule(7*ms, task("a")))
		var timer wheel.Timer
		timer.Init(w, task("b"))
		must(timer.Arm(8 * ms))
		must(w.ScheduleFunc(9*ms, func(timeout.Timeout) { task("c")() }))
		must(w.Schedule(10*ms, task("d")))
		r.schedule(w, 20*ms, "e")
		r.at(200)
		r.want(o.want)
		s := w.Stats()
		check(t, s.Fired == 5 && s.Rejected == 0 && (s.Overruns == 0) == (s.WorstLag == 0), "the numbers are %+v", s)
		check(t, s.Overruns == 0 || strings.HasSuffix(t.Name(), "inline"), "%d overruns", s.Overruns)
	})
}

// A task that finds no room is refused, passed to OnReject, and counted; the rest is not
// affected.
func TestPoolRejectsWhatFindsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused []func()
		w := start(t, wheel.Config{Tick: ms, Executor: newPool(t, 2, 3), OnReject: func(task func(), err error) {
			check(t, errors.Is(err, wheel.ErrPoolFull), "refused with %v", err)
			refused = append(refused, task)
		}})
		var ran atomic.Int64
		block := make(chan struct{})
		for range 2 {
			must(w.Schedule(ms, func() { <-block; ran.Add(1) }))
		}
		pass(2 * ms)
		for range 10 {
			must(w.Schedule(ms, func() { ran.Add(1) }))
		}
		pass(2 * ms)
		s := w.Stats()
		check(t, s.Rejected == 7 && s.Fired == 12 && s.Pending == 0 && len(refused) == 7,
			"%d were refused; the numbers are %+v", len(refused), s)
		close(block)
		synctest.Wait()
		check(t, ran.Load() == 5, "%d ran, want 5", ran.Load())
		for _, task := range refused {
			task() // the hook has been given the tasks themselves
		}
		check(t, ran.Load() == 12, "%d ran after all, want 12", ran.Load())
	})
}

// A timer of InitOnWorker runs on the worker at its deadline, whatever the executor does:
// none of its runs is refused, also when its task has armed it again.
func TestTimerOnWorkerIsNeverRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, wheel.Config{Tick: ms, Executor: newPool(t, 1, 0), OnReject: func(func(), error) {}})
		block := make(chan struct{})
		defer close(block)
		for range 3 { // the only worker of the pool, and no place behind it
			must(w.Schedule(ms, func() { <-block }))
		}
		var timer wheel.Timer
		r := newRecord(t)
		timer.InitOnWorker(w, func() {
			r.run("t")
			if time.Since(r.start) < 30*ms {
				check(t, timer.Timeout().Reset(10*ms), "its handle does not arm it")
			}
		})
		must(timer.Arm(10 * ms))
		check(t, timer.Deadline().Equal(r.start.Add(10*ms)), "it is due at %v", timer.Deadline())
		r.schedule(w, 10*ms, "refused")
		r.at(100)
		r.want("t@10 t@20 t@30")
		s := w.Stats()
		check(t, s.Rejected == 3 && s.Fired == 7 && s.Pending == 0, "the numbers are %+v", s)
		check(t, timer.State() == timeout.Expired, "in the end it is %v", timer.State())
	})
}

// With an OnReject that runs refused tasks, the worker helps out, and is late because of
// it.
func TestOnRejectThatRunsTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, 1, 1)
		w := start(t, wheel.Config{Tick: ms, Executor: pool, OnReject: func(task func(), _ error) { task() }})
		r := newRecord(t)
		must(0, pool.Execute(func() { time.Sleep(30 * ms) }))
		synctest.Wait() // the pool's worker is busy
		must(0, pool.Execute(r.task("queued")))

		must(w.Schedule(ms, func() {
			time.Sleep(10 * ms)
			r.run("here")
		}))
		r.schedule(w, 5*ms, "here, late")
		r.schedule(w, 40*ms, "pool")
		r.at(60)
		r.want("here@11 here, late@11 queued@30 pool@40")
		s := w.Stats()
		check(t, s.Rejected == 2 && s.Overruns == 1, "the numbers are %+v", s)
	})
}

// Close runs the queued tasks and waits for them; later ones are refused.
func TestPoolClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := wheel.NewPool(2, 10)
		var ran atomic.Int64
		for range 10 {
			must(0, pool.Execute(func() { time.Sleep(ms); ran.Add(1) }))
		}
		for range 3 {
			go pool.Close()
		}
		pool.Close()
		check(t, ran.Load() == 10, "%d had run when Close returned, want 10", ran.Load())
		pool.Close()
		err := pool.Execute(func() { t.Error("ran after Close") })
		check(t, errors.Is(err, wheel.ErrPoolClosed), "Execute after Close: %v", err)

		var refused []error
		w := start(t, wheel.Config{Executor: pool, OnReject: func(_ func(), err error) { refused = append(refused, err) }})
		must(w.Schedule(0, func() { t.Error("ran on a closed pool") }))
		pass(20 * ms)
		check(t, len(refused) == 1 && errors.Is(refused[0], wheel.ErrPoolClosed), "the wheel was refused %v", refused)
	})
}

// A task that calls runtime.Goexit, as t.FailNow does, costs a pool none of its
// workers.
func TestGoexitCostsThePoolNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := wheel.NewPool(2, 100)
		ran := 0
		for range 10 {
			must(0, pool.Execute(runtime.Goexit))
		}
		for range 10 {
			must(0, pool.Execute(func() { time.Sleep(ms) }))
		}
		must(0, pool.Execute(func() { ran++ }))
		began := time.Now()
		pool.Close()
		check(t, ran == 1, "a task that was queued has not run when Close returned")
		took := time.Since(began)
		check(t, took == 5*ms, "ten tasks of a millisecond took %v, want 5ms on two workers", took)
	})
}

// One pool behind several wheels.
func TestPoolServesSeveralWheels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, 1, 10)
		r := newRecord(t)
		for i, name := range []string{"a", "b", "c"} {
			w := start(t, wheel.Config{Tick: ms, Executor: pool})
			r.schedule(w, time.Duration(i+1)*ms, name)
		}
		r.at(10)
		r.want("a@1 b@2 c@3")
	})
}

// An executor may call the wheel, and may run the task immediately.
func TestExecutorCallsTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *wheel.Wheel
		var order []string
		again := executor(func(task func()) error {
			if len(order) == 0 {
				must(w.Schedule(ms, func() { order = append(order, "the executor's") }))
			}
			task()
			return nil
		})
		w = start(t, wheel.Config{Tick: ms, Executor: again})
		must(w.Schedule(ms, func() { order = append(order, "the user's") }))
		pass(5 * ms)
		want := []string{"the user's", "the executor's"}
		check(t, slices.Equal(order, want), "ran %q, want %q", order, want)
	})
}

// A pool accepts as many tasks as it has workers and places in its queue: right after
// NewPool, and again once tasks have ended, also by runtime.Goexit.
func TestPoolHasRoomForItsWorkersAndItsQueue(t *testing.T) {
	for range 20 {
		for _, queue := range []int{0, 3} {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(t, 4, queue)
				for range 3 {
					end := make(chan struct{})
					for i := range 4 + queue {
						err := p.Execute(func() {
							<-end
							if i%2 == 0 {
								runtime.Goexit()
							}
						})
						check(t, err == nil, "task %d: %v", i, err)
					}
					err := p.Execute(none)
					check(t, errors.Is(err, wheel.ErrPoolFull), "one more: %v", err)
					close(end)
					synctest.Wait()
				}
			})
		}
	}
}

// Whatever an executor does with a task, the task is run once, by it or by OnReject: a panic
// counts as a refusal, and a task that has begun is not refused. The next task is not affected.
func TestTaskIsRunOnceWhateverItsExecutorDoes(t *testing.T) {
	no := errors.New("no")
	type behaviour struct {
		execute  func(task func()) error
		rejected uint64
	}
	behaviours := map[string]behaviour{
		"refuses":             {func(func()) error { return no }, 1},
		"panics":              {func(func()) error { panic("bug") }, 1},
		"exits":               {func(func()) error { runtime.Goexit(); return nil }, 1},
		"panics, runs it":     {func(task func()) error { time.AfterFunc(5*ms, task); panic("bug") }, 1},
		"runs it, panics":     {func(task func()) error { task(); panic("bug") }, 0},
		"runs it, exits":      {func(task func()) error { task(); runtime.Goexit(); return nil }, 0},
		"runs it, refuses":    {func(task func()) error { task(); return no }, 0},
		"runs it a few times": {func(task func()) error { go task(); go task(); task(); return nil }, 0},
	}
	for name, f := range forms {
		t.Run(name, func(t *testing.T) {
			each(t, behaviours, func(t *testing.T, b behaviour) {
				first := true
				w := start(t, wheel.Config{Tick: ms, Executor: executor(func(task func()) error {
					if first {
						first = false
						return b.execute(task)
					}
					go task()
					return nil
				}), OnReject: func(task func(), _ error) { task() }})
				r := newRecord(t)
				must(f.schedule(w, 10*ms, r.task("a")))
				r.schedule(w, 20*ms, "next")
				r.at(100)
				r.want("a@10 next@20")
				s := w.Stats()
				check(t, s.Rejected == b.rejected && s.Fired == 2, "the numbers are %+v", s)
			})
		})
	}
}
