package wheel_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// payload is memory that a task or a record holds.
type payload struct{ _ [1 << 10]byte }

// gone reports whether the garbage collector has found no reference to it.
func gone[T any](p weak.Pointer[T]) bool {
	for range 3 {
		runtime.GC()
	}
	return p.Value() == nil
}

// A task is released as soon as it can no longer run, in every place of the timeout,
// although its handle is kept: at once when it was cancelled, run, or returned by Stop.
func TestTaskIsReleased(t *testing.T) {
	type life struct {
		delay, wait time.Duration
		end         func(w *wheel.Wheel, h timeout.Timeout)
	}
	cancel := func(_ *wheel.Wheel, h timeout.Timeout) { h.Cancel() }
	each(t, map[string]life{
		"cancelled while arriving": {time.Hour, 0, cancel},
		"cancelled in a bucket":    {time.Hour, 50 * ms, cancel},
		"run":                      {20 * ms, 10 * ms, func(*wheel.Wheel, timeout.Timeout) { pass(40 * ms) }},
		"returned by Stop":         {time.Hour, 0, func(w *wheel.Wheel, _ timeout.Timeout) { w.Stop() }},
	}, func(t *testing.T, c life) {
		w := start(t, wheel.Config{})
		schedule := func() (timeout.Timeout, weak.Pointer[payload]) {
			held := new(payload)
			return must(w.Schedule(c.delay, func() { runtime.KeepAlive(held) })), weak.Make(held)
		}
		h, p := schedule()
		pass(c.wait)
		require(t, !gone(p), "the task of a pending timeout was collected")
		c.end(w, h)
		check(t, gone(p), "the task is still held")
		runtime.KeepAlive(h)
		runtime.KeepAlive(w)
	})
}

// The wheel holds the record around a timer while that is pending. It releases it when the
// timer has run, within a tick of a cancel, even of thousands at once and if the deadline is
// many revolutions away, and at Stop. Neither the wheel nor the other timers hold it then.
func TestRecordAroundATimerIsReleased(t *testing.T) {
	type connection struct {
		idle wheel.Timer
		_    payload
	}
	type ending = func(t *testing.T, w *wheel.Wheel, all []weak.Pointer[connection])
	each(t, map[string]ending{
		"run": func(*testing.T, *wheel.Wheel, []weak.Pointer[connection]) { pass(2 * time.Hour) },
		"cancelled": func(t *testing.T, w *wheel.Wheel, all []weak.Pointer[connection]) {
			for _, p := range all {
				check(t, p.Value().idle.Cancel(), "a pending timer cannot be cancelled")
			}
			pass(w.Tick())
		},
		"stopped": func(_ *testing.T, w *wheel.Wheel, _ []weak.Pointer[connection]) { w.Stop() },
		"stopped by a task": func(_ *testing.T, w *wheel.Wheel, _ []weak.Pointer[connection]) {
			must(w.Schedule(0, func() { w.Stop() }))
			time.Sleep(w.Tick())
			w.Stop()
		},
	}, func(t *testing.T, end ending) {
		w := start(t, wheel.Config{})
		arm := func(d time.Duration) weak.Pointer[connection] {
			c := new(connection)
			c.idle.Init(w, func() { _ = c })
			must(c.idle.Arm(d))
			return weak.Make(c)
		}
		var all []weak.Pointer[connection]
		for i := range 3000 {
			all = append(all, arm(time.Minute+time.Duration(i)*second))
		}
		pass(second)
		all = append(all, arm(time.Hour)) // is arriving
		for i, p := range all {
			require(t, i%1500 != 0 && i != len(all)-1 || !gone(p), "pending timer %d was collected", i)
		}
		end(t, w, all)
		gone(all[0])
		for i, p := range all {
			check(t, p.Value() == nil, "timer %d is still held", i)
		}
		runtime.KeepAlive(w)
	})
}

// A task that receives its own timeout, or is periodic, is released within a tick of its
// cancel, or once the run that was under way has ended, although its handle is kept.
func TestRepeatedTaskIsReleased(t *testing.T) {
	begins := map[string]func(w *wheel.Wheel, task func()) timeout.Timeout{
		"ScheduleFunc": func(w *wheel.Wheel, task func()) timeout.Timeout {
			return must(w.ScheduleFunc(100*ms, func(h timeout.Timeout) { h.Reset(100 * ms); task() }))
		},
		"Every": func(w *wheel.Wheel, task func()) timeout.Timeout {
			return must(w.Every(100*ms, wheel.Skip, task))
		},
		"EveryFunc": func(w *wheel.Wheel, task func()) timeout.Timeout {
			return must(w.EveryFunc(time.Now().Add(100*ms), 100*ms, wheel.CatchUp, func(timeout.Timeout) { task() }))
		},
	}
	for name, begin := range begins {
		for place, at := range map[string]time.Duration{
			"arriving": 0, "in a bucket": 50 * ms, "during a run": 125 * ms, "between two runs": 170 * ms,
		} {
			t.Run(name+", "+place, func(t *testing.T) {
				each(t, executors, func(t *testing.T, executor func(*testing.T) wheel.Executor) {
					w := start(t, wheel.Config{Tick: 10 * ms, Executor: executor(t)})
					schedule := func() (timeout.Timeout, weak.Pointer[payload]) {
						held := new(payload)
						return begin(w, func() { time.Sleep(50 * ms); runtime.KeepAlive(held) }), weak.Make(held)
					}
					h, p := schedule()
					if at != 0 {
						time.Sleep(at)
					}
					require(t, !gone(p), "the task of a pending timeout was collected")
					h.Cancel()
					pass(60 * ms)
					check(t, gone(p), "the task is still held")
					runtime.KeepAlive(h)
					runtime.KeepAlive(w)
				})
			})
		}
	}
}
