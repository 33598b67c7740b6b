package wheel_test

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

func TestStopReturnsNothingOfWhatHasRun(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		for range 3 {
			must(w.Schedule(ms, func() {}))
		}
		time.Sleep(second)
		if left := w.Stop(); len(left) != 0 {
			t.Errorf("Stop returned %d, want none", len(left))
		}
	})
}

// Stop returns all pending timeouts, in every place: just arrived, in a bucket,
// revolutions away, periodic, in a timer; in the order of the deadlines.
func TestStopReturnsWhatIsPending(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 16}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		h := map[string]timeout.Timeout{}
		h["far"] = r.schedule(w, time.Hour, "far")
		h["bucket"] = r.schedule(w, 30*ms, "bucket")
		h["periodic"] = must(w.Every(second, wheel.Skip, r.task("periodic")))
		h["func"] = must(w.ScheduleFunc(500*ms, func(timeout.Timeout) { r.run("func") }))
		var timer wheel.Timer
		timer.Init(w, r.task("timer"))
		must(timer.Arm(40 * ms))
		h["timer"] = timer.Timeout()
		h["moved"] = r.schedule(w, 2*ms, "moved")
		h["moved"].Reset(35 * ms)
		cancelled := r.schedule(w, 33*ms, "cancelled")
		r.schedule(w, 3*ms, "over")
		r.at(10)
		r.want("over@3")
		cancelled.Cancel()
		h["arrived"] = r.schedule(w, 5*ms, "arrived")

		left := w.Stop()
		var names []string
		for _, u := range left {
			u.Task() // is the one that was scheduled
			for name, timeout := range h {
				if u.Timeout == timeout {
					names = append(names, name)
				}
			}
			if s := u.Timeout.State(); s != timeout.Cancelled || u.Timeout.Cancel() {
				t.Errorf("a timeout that Stop returned is %v and can be cancelled", s)
			}
		}
		if want := []string{"arrived", "bucket", "moved", "timer", "func", "periodic", "far"}; !slices.Equal(names, want) {
			t.Errorf("Stop returned %v, want %v", names, want)
		}
		r.want("arrived@10 bucket@10 moved@10 timer@10 func@10 periodic@10 far@10")
		if got, want := left[1].Deadline, r.start.Add(30*ms); !got.Equal(want) {
			t.Errorf("the deadline is %v, want %v", got, want)
		}
		r.at(7_300_000)
		r.want("")
		if s := w.Stats(); s.Pending != 0 || s.Cancelled != 8 || s.Fired != 1 {
			t.Errorf("the numbers are %+v", s)
		}
	})
}

// After Stop every way to schedule is refused and leaves no trace.
func TestStoppedWheelRefuses(t *testing.T) {
	bubble(t, wheel.Config{MaxPending: 5}, func(t *testing.T, w *wheel.Wheel) {
		never := func() { t.Error("a task was run after Stop") }
		var armed, idle wheel.Timer
		armed.Init(w, never)
		idle.Init(w, never)
		must(armed.Arm(second))
		h := must(w.Schedule(second, never))
		p := must(w.Every(second, wheel.Skip, never))
		f := must(w.ScheduleFunc(second, func(timeout.Timeout) { never() }))
		w.Stop()
		before := w.Stats()
		for name, call := range map[string]func() error{
			"Schedule":      func() error { _, err := w.Schedule(0, never); return err },
			"ScheduleAt":    func() error { _, err := w.ScheduleAt(time.Now(), never); return err },
			"ScheduleFunc":  func() error { _, err := w.ScheduleFunc(0, func(timeout.Timeout) {}); return err },
			"Every":         func() error { _, err := w.Every(second, wheel.Skip, never); return err },
			"Arm":           func() error { _, err := armed.Arm(2 * second); return err },
			"Arm, earlier":  func() error { _, err := armed.Arm(0); return err },
			"ArmAt, unused": func() error { _, err := idle.ArmAt(time.Now()); return err },
		} {
			for range 10 { // more often than MaxPending
				if err := call(); !errors.Is(err, wheel.ErrStopped) {
					t.Errorf("%s after Stop: %v, want ErrStopped", name, err)
				}
			}
		}
		for name, timeout := range map[string]timeout.Timeout{"one-shot": h, "periodic": p, "func": f, "timer": armed.Timeout()} {
			if timeout.Reset(2*second) || timeout.Reset(0) || timeout.Cancel() {
				t.Errorf("%s: a timeout of a stopped wheel can be reset or cancelled", name)
			}
		}
		if w.Drain() != nil {
			t.Error("something is pending after Stop")
		}
		if after := w.Stats(); after != before {
			t.Errorf("what was refused has changed the numbers: %+v, before %+v", after, before)
		}
		time.Sleep(time.Minute)
	})
}

func TestStopTwice(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		must(w.Schedule(second, func() {}))
		if left := w.Stop(); len(left) != 1 {
			t.Errorf("the first Stop returned %d, want 1", len(left))
		}
		if left := w.Stop(); left != nil {
			t.Errorf("the second Stop returned %v", left)
		}
	})
}

// Stop waits for the task that is running, and so does a second one; the rest of
// its batch is returned.
func TestStopWaitsForTheTaskThatRuns(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		var ended atomic.Bool
		var ran atomic.Int32
		for range 10 {
			must(w.Schedule(10*ms, func() {
				ran.Add(1)
				time.Sleep(second)
				ended.Store(true)
			}))
		}
		time.Sleep(20 * ms)
		var stops sync.WaitGroup
		var left atomic.Int32
		for range 3 {
			stops.Go(func() {
				left.Add(int32(len(w.Stop())))
				if !ended.Load() {
					t.Error("Stop returned while the task was running")
				}
			})
		}
		stops.Wait()
		if ran.Load() != 1 || left.Load() != 9 {
			t.Errorf("%d ran and %d were returned, want 1 and 9", ran.Load(), left.Load())
		}
	})
}

// A task may stop its own wheel: Stop returns at once, with the rest, and nothing runs
// after the task.
func TestStopFromInsideATask(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		var left []wheel.Unrun
		must(w.Schedule(10*ms, func() {
			r.run("a")
			left = w.Stop()
			if again := w.Stop(); again != nil {
				t.Errorf("the second Stop returned %d", len(again))
			}
			if _, err := w.Schedule(0, func() {}); !errors.Is(err, wheel.ErrStopped) {
				t.Errorf("Schedule after Stop: %v", err)
			}
			r.run("b")
		}))
		for range 200 { // its own batch and others
			r.schedule(w, 11*ms, "late")
		}
		r.at(1000)
		r.want("a@10 b@10")
		if len(left) != 200 {
			t.Errorf("Stop returned %d, want 200", len(left))
		}
		if w.Stop() != nil {
			t.Error("a Stop from outside returned something")
		}
	})
}

// Its neighbours in the batch, those due at the same tick, are returned as well.
func TestStopFromInsideABatch(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		const count = 150
		var ran, left atomic.Int32
		for range count {
			must(w.Schedule(10*ms, func() {
				if ran.Add(1) == 100 {
					left.Store(int32(len(w.Stop())))
				}
			}))
		}
		time.Sleep(second)
		synctest.Wait()
		if ran.Load() != 100 || left.Load() != count-100 {
			t.Errorf("%d ran and %d were returned, want 100 and %d", ran.Load(), left.Load(), count-100)
		}
	})
}

// A periodic task, a timer and a task that has just reset itself are among the returned
// ones if they stop the wheel.
func TestStopFromInsideWhatComesAgain(t *testing.T) {
	for name, begin := range map[string]func(*wheel.Wheel, func()) timeout.Timeout{
		"Every": func(w *wheel.Wheel, task func()) timeout.Timeout {
			return must(w.Every(10*ms, wheel.Skip, task))
		},
		"ScheduleFunc": func(w *wheel.Wheel, task func()) timeout.Timeout {
			return must(w.ScheduleFunc(10*ms, func(h timeout.Timeout) { h.Reset(10 * ms); task() }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
				var left []wheel.Unrun
				h := begin(w, func() { left = w.Stop() })
				time.Sleep(second)
				synctest.Wait()
				if len(left) != 1 || left[0].Timeout != h || h.State() != timeout.Cancelled {
					t.Errorf("Stop returned %v, the handle is %v", left, h.State())
				}
			})
		})
	}
}

// Stop does not wait for tasks that an executor has accepted, and one of them may call
// it.
func TestStopFromAnExecutor(t *testing.T) {
	bubble(t, wheel.Config{Executor: wheel.Goroutines}, func(t *testing.T, w *wheel.Wheel) {
		var ran atomic.Int32
		for range 2 {
			must(w.Schedule(10*ms, func() {
				w.Stop()
				time.Sleep(time.Minute)
				ran.Add(1)
			}))
		}
		time.Sleep(second)
		before := time.Now()
		w.Stop()
		if waited := time.Since(before); waited != 0 {
			t.Errorf("Stop waited for %v", waited)
		}
		time.Sleep(time.Hour)
		if ran.Load() != 2 {
			t.Errorf("%d tasks came to their end, want 2", ran.Load())
		}
	})
}

// Stop releases the tasks: a handle that is kept does not hold the task that Stop has
// returned.
func TestStopLetsTasksGo(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		h, p := scheduleHolding(w, time.Hour)
		if left := w.Stop(); len(left) != 1 {
			t.Fatalf("Stop returned %d, want 1", len(left))
		}
		if !gone(p) {
			t.Error("the stopped wheel holds the task that it has returned")
		}
		runtime.KeepAlive(h)
		runtime.KeepAlive(w)
	})
}

// Amid schedules, cancels, resets and expiries by several goroutines, several more call
// Stop, on real time. Every accepted timeout has run, was cancelled, or was returned:
// exactly one of the three.
func TestStopInAStorm(t *testing.T) {
	for _, c := range []wheel.Config{
		{Tick: ms},
		{Tick: ms, MaxPending: 100},
		{Tick: 100 * time.Microsecond, Buckets: 4},
	} {
		rnd := newRand(t)
		for range 10 {
			stopInAStorm(t, c, time.Duration(rnd.Int64N(int64(3*ms))), rnd.Uint64())
			if t.Failed() {
				return
			}
		}
	}
}

// fate counts the outcomes of a timeout.
type fate struct {
	ran, cancelled, returned atomic.Int32
}

func stopInAStorm(t *testing.T, c wheel.Config, after time.Duration, seed uint64) {
	w := start(t, c)
	goroutines := runtime.NumGoroutine()
	var mu sync.Mutex
	fates := map[timeout.Timeout]*fate{}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			rnd := randOf(seed, uint64(g))
			own := map[timeout.Timeout]*fate{}
			var handles []timeout.Timeout
			var timers []*wheel.Timer
			fired := make(map[*wheel.Timer]*fate)
			for {
				f := new(fate)
				d := time.Duration(rnd.Int64N(int64(10*ms))) - ms
				h, err := w.Schedule(d, func() { f.ran.Add(1) })
				if errors.Is(err, wheel.ErrStopped) {
					break
				}
				if err == nil {
					own[h] = f
					handles = append(handles, h)
				}
				if rnd.IntN(8) == 0 {
					tf := new(fate)
					timer := new(wheel.Timer)
					timer.Init(w, func() { tf.ran.Add(1) })
					if _, err := timer.Arm(d); err == nil {
						own[timer.Timeout()] = tf
						timers = append(timers, timer)
						fired[timer] = tf
					}
				}
				if len(timers) > 0 && rnd.IntN(2) == 0 {
					timer := timers[rnd.IntN(len(timers))]
					if timer.Cancel() {
						fired[timer].cancelled.Add(1)
						timers = slices.DeleteFunc(timers, func(o *wheel.Timer) bool { return o == timer })
					}
				}
				if len(handles) > 0 {
					switch h := handles[rnd.IntN(len(handles))]; rnd.IntN(4) {
					case 0, 1:
						if h.Cancel() {
							own[h].cancelled.Add(1)
						}
					case 2:
						h.Reset(d)
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(fates, own)
		})
	}
	lefts := make([][]wheel.Unrun, 3)
	for i := range lefts {
		all.Go(func() {
			time.Sleep(after)
			lefts[i] = w.Stop()
		})
	}
	all.Wait()
	for _, left := range lefts {
		for _, u := range left {
			fates[u.Timeout].returned.Add(1)
		}
	}
	for _, f := range fates {
		ran, cancelled, returned := f.ran.Load(), f.cancelled.Load(), f.returned.Load()
		if ran+cancelled+returned != 1 {
			t.Errorf("of %d timeouts one has run %d times, was cancelled %d times, returned %d times",
				len(fates), ran, cancelled, returned)
			break
		}
	}
	if s := w.Stats(); s.Scheduled != uint64(len(fates)) || s.Pending != 0 {
		t.Errorf("%d were accepted; the numbers are %+v", len(fates), s)
	}
	for i := 0; runtime.NumGoroutine() >= goroutines; i++ { // the worker was one of them
		if i == 1000 {
			t.Errorf("%d goroutines after Stop, %d before", runtime.NumGoroutine(), goroutines)
			break
		}
		time.Sleep(ms)
	}
}

// Only the caller holds the timeouts that a stopped wheel has not run: neither the wheel
// nor the other timers hold the records in which timers are embedded.
func TestStoppedWheelHoldsNoRecord(t *testing.T) {
	stop := map[string]func(w *wheel.Wheel){
		"from outside": func(w *wheel.Wheel) { w.Stop() },
		"from a task": func(w *wheel.Wheel) {
			must(w.Schedule(0, func() { w.Stop() }))
			time.Sleep(w.Tick())
			w.Stop()
		},
	}
	for name, stop := range stop {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
				arm := func(d time.Duration) weak.Pointer[wheel.Timer] {
					timer := new(wheel.Timer)
					timer.Init(w, func() {})
					if _, err := timer.Arm(d); err != nil {
						t.Fatal(err)
					}
					return weak.Make(timer)
				}
				linked := []weak.Pointer[wheel.Timer]{arm(time.Minute), arm(time.Minute), arm(time.Hour)}
				time.Sleep(second)
				synctest.Wait()
				arriving := arm(time.Hour)
				stop(w)
				for i, p := range append(linked, arriving) {
					if !gone(p) {
						t.Errorf("timer %d is still held", i)
					}
				}
				runtime.KeepAlive(w)
			})
		})
	}
}
