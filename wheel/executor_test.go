package wheel_test

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// Without an executor tasks run one after the other, on one goroutine.
func TestInlineTasksRunOneAfterTheOther(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		running, ran := 0, 0
		for i := range 50 {
			must(w.Schedule(time.Duration(i)*ms, func() {
				if running++; running != 1 {
					t.Errorf("%d tasks at once", running)
				}
				time.Sleep(3 * ms)
				running--
				ran++
			}))
		}
		time.Sleep(second)
		synctest.Wait()
		if ran != 50 {
			t.Errorf("%d ran, want 50", ran)
		}
	})
}

// With Goroutines a task that blocks delays no other.
func TestGoroutinesDelayNoOtherTask(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Executor: wheel.Goroutines}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		for _, name := range []string{"a", "b", "c"} {
			must(w.Schedule(10*ms, func() {
				r.run(name)
				time.Sleep(30 * ms)
				r.run(name)
			}))
		}
		r.schedule(w, 20*ms, "d")
		r.at(100)
		r.want("a@10+b@10+c@10 d@20 a@40+b@40+c@40")
		if s := w.Stats(); s.Fired != 4 || s.Rejected != 0 || s.Overruns != 0 {
			t.Errorf("the numbers are %+v", s)
		}
	})
}

// A pool runs as many tasks at once as it has workers, in the order of arrival.
func TestPoolBoundsWhatRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := wheel.NewPool(3, 100)
		defer pool.Close()
		w := start(t, wheel.Config{Tick: ms, Executor: pool})
		var running, most, ran atomic.Int64
		for range 20 {
			must(w.Schedule(ms, func() {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(10 * ms)
				running.Add(-1)
				ran.Add(1)
			}))
		}
		r := newRecord(t)
		r.schedule(w, 2*ms, "behind the others")
		time.Sleep(100 * ms)
		synctest.Wait()
		if most.Load() != 3 || ran.Load() != 20 {
			t.Errorf("%d ran, %d of them at once; want 20 and 3", ran.Load(), most.Load())
		}
		r.want("behind the others@61")
		w.Stop()
	})
}

// A task that finds no room is refused, passed to OnReject, and counted; the rest is not
// affected.
func TestPoolRejectsWhatFindsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := wheel.NewPool(2, 3)
		defer pool.Close()
		var refused []func()
		w := start(t, wheel.Config{Tick: ms, Executor: pool, OnReject: func(task func(), err error) {
			if !errors.Is(err, wheel.ErrPoolFull) {
				t.Errorf("refused with %v", err)
			}
			refused = append(refused, task)
		}})
		var ran atomic.Int64
		block := make(chan struct{})
		for range 2 {
			must(w.Schedule(ms, func() { <-block; ran.Add(1) }))
		}
		time.Sleep(2 * ms)
		synctest.Wait()
		for range 10 {
			must(w.Schedule(ms, func() { ran.Add(1) }))
		}
		time.Sleep(2 * ms)
		synctest.Wait()
		if s := w.Stats(); s.Rejected != 7 || s.Fired != 12 || s.Pending != 0 || len(refused) != 7 {
			t.Errorf("%d were refused; the numbers are %+v", len(refused), s)
		}
		close(block)
		synctest.Wait()
		if ran.Load() != 5 {
			t.Errorf("%d ran, want 5", ran.Load())
		}
		for _, task := range refused {
			task() // the hook has been given the tasks themselves
		}
		if ran.Load() != 12 {
			t.Errorf("%d ran after all, want 12", ran.Load())
		}
		w.Stop()
	})
}

// With an OnReject that runs refused tasks, the worker helps out, and is late because of
// it.
func TestOnRejectThatRunsTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := wheel.NewPool(1, 1)
		defer pool.Close()
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
		if s := w.Stats(); s.Rejected != 2 || s.Overruns != 1 {
			t.Errorf("the numbers are %+v", s)
		}
		w.Stop()
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
		if ran.Load() != 10 {
			t.Errorf("%d had run when Close returned, want 10", ran.Load())
		}
		pool.Close()
		if err := pool.Execute(func() { t.Error("ran after Close") }); !errors.Is(err, wheel.ErrPoolClosed) {
			t.Errorf("Execute after Close: %v", err)
		}

		var refused []error
		w := start(t, wheel.Config{Executor: pool, OnReject: func(_ func(), err error) { refused = append(refused, err) }})
		must(w.Schedule(0, func() { t.Error("ran on a closed pool") }))
		time.Sleep(20 * ms)
		synctest.Wait()
		if len(refused) != 1 || !errors.Is(refused[0], wheel.ErrPoolClosed) {
			t.Errorf("the wheel was refused %v", refused)
		}
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
		if ran != 1 {
			t.Error("a task that was queued has not run when Close returned")
		}
		if took := time.Since(began); took != 5*ms {
			t.Errorf("ten tasks of a millisecond took %v, want 5ms on two workers", took)
		}
	})
}

// Nor does it end a periodic task.
func TestGoexitDoesNotEndAPeriodicTask(t *testing.T) {
	for name, missed := range map[string]wheel.Missed{
		"skip": wheel.Skip, "catch up": wheel.CatchUp, "delay": wheel.Delay,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{Tick: ms, Executor: wheel.Goroutines}, func(t *testing.T, w *wheel.Wheel) {
				r := newRecord(t)
				must(w.Every(10*ms, missed, func() {
					r.run("a")
					runtime.Goexit()
				}))
				r.at(35)
				r.want("a@10 a@20 a@30")
			})
		})
	}
}

// A run that is dropped because another is under way is not counted, and an outstanding
// one is not counted before it begins: the handle can still be cancelled.
func TestDroppedRunsOfAPeriodicTaskAreNotCounted(t *testing.T) {
	for name, c := range map[string]struct {
		missed wheel.Missed
		fired  uint64 // by 101 ms
	}{
		"skip":     {wheel.Skip, 4}, // at 10, 35, 60 and 85 ms, late each time
		"delay":    {wheel.Delay, 4},
		"catch up": {wheel.CatchUp, 4},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{Tick: ms, Executor: wheel.Goroutines}, func(t *testing.T, w *wheel.Wheel) {
				var ran atomic.Uint64
				h := must(w.Every(10*ms, c.missed, func() {
					ran.Add(1)
					time.Sleep(25 * ms)
				}))
				time.Sleep(101 * ms)
				synctest.Wait()
				if s := w.Stats(); s.Fired != c.fired || s.Pending != 1 {
					t.Errorf("the numbers are %+v, want %d fired", s, c.fired)
				}
				h.Cancel()
				time.Sleep(second)
				synctest.Wait()
				if ran.Load() != c.fired {
					t.Errorf("%d runs, want %d", ran.Load(), c.fired)
				}
			})
		})
	}
}

// One pool behind several wheels.
func TestPoolServesSeveralWheels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := wheel.NewPool(1, 10)
		defer pool.Close()
		r := newRecord(t)
		for i, name := range []string{"a", "b", "c"} {
			w := start(t, wheel.Config{Tick: ms, Executor: pool})
			r.schedule(w, time.Duration(i+1)*ms, name)
			defer w.Stop()
		}
		r.at(10)
		r.want("a@1 b@2 c@3")
	})
}

func TestNewPoolPanicsOnSenselessNumbers(t *testing.T) {
	for _, c := range [][2]int{{0, 1}, {-1, 1}, {1, -1}, {1<<16 + 1, 0}, {1, 1<<24 + 1}} {
		if !panics(func() { wheel.NewPool(c[0], c[1]) }) {
			t.Errorf("NewPool with %d workers and a queue of %d does not panic", c[0], c[1])
		}
	}
}

// Stop does not wait for tasks that an executor has accepted, and returns none of them.
func TestStopLeavesTheExecutorsTasksAlone(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Executor: wheel.Goroutines}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		must(w.Schedule(ms, func() { time.Sleep(50 * ms); r.run("taken on") }))
		r.schedule(w, 20*ms, "pending")
		r.at(10)
		left := w.Stop()
		if since := time.Since(r.start); since != 10*ms || len(left) != 1 {
			t.Errorf("Stop returned %d after %v; want 1, at once", len(left), since)
		}
		r.at(100)
		r.want("taken on@51")
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
		time.Sleep(5 * ms)
		synctest.Wait()
		if want := []string{"the user's", "the executor's"}; !slices.Equal(order, want) {
			t.Errorf("ran %q, want %q", order, want)
		}
	})
}
