package wheel_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

func TestCancel(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		a := r.schedule(w, 10*ms, "a")
		b := r.schedule(w, 10*ms, "b")
		c := r.schedule(w, 20*ms, "c")
		r.at(5)
		if !a.Cancel() || a.Cancel() {
			t.Error("the first cancel should be true and the second false")
		}
		if s, d := a.State(), a.Deadline(); s != timeout.Cancelled || !d.IsZero() {
			t.Errorf("a cancelled timeout is %v, due at %v", s, d)
		}
		if a.Reset(second) || a.ResetAt(time.Now()) {
			t.Error("a cancelled one-shot timeout can be reset")
		}
		r.at(15)
		r.want("b@10")
		if b.Cancel() || b.Reset(second) {
			t.Error("a timeout that has run can be cancelled or reset")
		}
		if !c.Cancel() {
			t.Error("c cannot be cancelled")
		}
		r.at(10_000)
		r.want("")
	})
}

// A timeout cancelled among the arrivals never gets to the worker, and one cancelled in
// the instant of its deadline does not run.
func TestCancelAtTheEdges(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		r.schedule(w, ms, "at once").Cancel() // time stands still, so it is never due
		a := r.schedule(w, 64*ms, "a")
		b := r.schedule(w, 64*ms, "b")
		// Of two that are due together the first cancels the other.
		must(w.Schedule(100*ms, r.task("c")))
		var d, e atomic.Pointer[timeout.Timeout]
		scheduleTo := func(own, other *atomic.Pointer[timeout.Timeout]) {
			h := must(w.Schedule(100*ms, func() { r.run("d-or-e"); other.Load().Cancel() }))
			own.Store(&h)
		}
		scheduleTo(&d, &e)
		scheduleTo(&e, &d)
		time.Sleep(64*ms - 1)
		a.Cancel()
		r.at(80)
		r.want("b@64")
		if b.Cancel() {
			t.Error("b can be cancelled after it ran")
		}
		r.at(200)
		r.want("c@100+d-or-e@100")
	})
}

// All of a tick's tasks but the first are cancelled by the first, from inside.
func TestCancelFromInsideATask(t *testing.T) {
	const count = 500 // several batches
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		handles := make([]timeout.Timeout, count)
		var complete atomic.Bool
		ran, cancelled := 0, 0
		for i := range handles {
			handles[i] = must(w.Schedule(100*ms, func() {
				ran++
				for _, h := range handles {
					if complete.Load() && h.Cancel() {
						cancelled++
					}
				}
			}))
		}
		complete.Store(true)
		time.Sleep(second)
		synctest.Wait()
		if ran != 1 || cancelled != count-1 {
			t.Errorf("%d ran and %d were cancelled, want 1 and %d", ran, cancelled, count-1)
		}
	})
}

// Cancels in random order, before and after deadlines: cancelled tasks do not run, all
// others do.
func TestCancelInRandomOrder(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 16}, func(t *testing.T, w *wheel.Wheel) {
		rnd := newRand(t)
		const count = 2000
		ran := make([]int, count)
		handles := make([]timeout.Timeout, count)
		for i := range handles {
			handles[i] = must(w.Schedule(time.Duration(rnd.Int64N(int64(100*ms))), func() { ran[i]++ }))
		}
		won := make([]bool, count)
		for n, i := range rnd.Perm(count) {
			won[i] = handles[i].Cancel()
			if n%20 == 0 {
				time.Sleep(ms)
			}
		}
		time.Sleep(200 * ms)
		synctest.Wait()
		cancelled := 0
		for i := range ran {
			if won[i] {
				cancelled++
			}
			if won[i] == (ran[i] == 1) || ran[i] > 1 {
				t.Fatalf("%d: cancelled %v, ran %d times", i, won[i], ran[i])
			}
		}
		if s := w.Stats(); s.Cancelled != uint64(cancelled) || s.Fired != uint64(count-cancelled) {
			t.Errorf("%d cancelled of %d; the numbers say %+v", cancelled, count, s)
		}
		if cancelled == 0 || cancelled == count {
			t.Errorf("%d of %d cancelled: the test has not tested both", cancelled, count)
		}
	})
}

// payload is memory that a task holds.
type payload struct{ _ [1 << 10]byte }

// scheduleHolding schedules a task that holds the only reference to a payload.
func scheduleHolding(w *wheel.Wheel, d time.Duration) (timeout.Timeout, weak.Pointer[payload]) {
	p := new(payload)
	return must(w.Schedule(d, func() { runtime.KeepAlive(p) })), weak.Make(p)
}

// gone reports whether the garbage collector has found no reference to it.
func gone[T any](p weak.Pointer[T]) bool {
	for range 3 {
		runtime.GC()
	}
	return p.Value() == nil
}

// A cancelled task is released at once, in every place of the timeout, although its
// handle is kept and no time has passed.
func TestCancelledTaskIsLetGoAtOnce(t *testing.T) {
	for name, wait := range map[string]time.Duration{"arriving": 0, "in a bucket": 50 * ms} {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
				h, p := scheduleHolding(w, time.Hour)
				time.Sleep(wait)
				synctest.Wait()
				if gone(p) {
					t.Fatal("the task of a pending timeout was collected")
				}
				h.Cancel()
				if !gone(p) {
					t.Error("the task of a cancelled timeout is still held")
				}
				runtime.KeepAlive(h)
			})
		})
	}
}

// A task that has run is released too, although the handle is kept.
func TestTaskThatRanIsLetGo(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		h, p := scheduleHolding(w, 20*ms)
		time.Sleep(50 * ms)
		synctest.Wait()
		if !gone(p) {
			t.Error("the task is still held after it ran")
		}
		runtime.KeepAlive(h)
	})
}

// Within a tick of the cancel the worker also releases the record, even if its deadline
// is many revolutions away: here that of a timer, which is the user's own memory.
func TestCancelledRecordIsLetGoWithinATick(t *testing.T) {
	type connection struct {
		idle wheel.Timer
		_    payload
	}
	for name, wait := range map[string]time.Duration{"arriving": 0, "in a bucket": 50 * ms} {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
				arm := func() weak.Pointer[connection] {
					c := new(connection)
					c.idle.Init(w, func() {})
					if _, err := c.idle.Arm(time.Hour); err != nil {
						t.Fatal(err)
					}
					return weak.Make(c)
				}
				cancel := func(p weak.Pointer[connection]) {
					if !p.Value().idle.Cancel() {
						t.Error("the timer cannot be cancelled")
					}
				}
				p := arm()
				time.Sleep(wait)
				synctest.Wait()
				if gone(p) {
					t.Fatal("a pending timer was collected")
				}
				cancel(p)
				time.Sleep(w.Tick())
				synctest.Wait()
				if !gone(p) {
					t.Error("a cancelled timer is still held a tick later")
				}
			})
		})
	}
}

// The same for a burst of cancels: none waits for another tick.
func TestManyCancelledRecordsAreLetGoWithinATick(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		const count = 5000
		timers := make([]*wheel.Timer, count)
		var some []weak.Pointer[wheel.Timer]
		for i := range timers {
			timers[i] = new(wheel.Timer)
			timers[i].Init(w, func() {})
			if _, err := timers[i].Arm(time.Hour); err != nil {
				t.Fatal(err)
			}
			if i%500 == 0 {
				some = append(some, weak.Make(timers[i]))
			}
		}
		time.Sleep(second)
		synctest.Wait()
		for _, timer := range timers {
			timer.Cancel()
		}
		clear(timers)
		time.Sleep(w.Tick())
		synctest.Wait()
		for i, p := range some {
			if !gone(p) {
				t.Errorf("timer %d is still held a tick after its cancel", i*500)
			}
		}
		runtime.KeepAlive(timers)
	})
}
