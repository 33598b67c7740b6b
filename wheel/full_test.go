package wheel_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// fill schedules until the wheel is full, and reports how many it took.
func fill(t *testing.T, w *wheel.Wheel, d time.Duration) []timeout.Timeout {
	t.Helper()
	var handles []timeout.Timeout
	for {
		h, err := w.Schedule(d, func() {})
		if err != nil {
			if !errors.Is(err, wheel.ErrFull) {
				t.Fatalf("a full wheel says %v", err)
			}
			return handles
		}
		handles = append(handles, h)
	}
}

// A timeout beyond the limit is refused, by every method, and leaves no trace.
func TestFull(t *testing.T) {
	bubble(t, wheel.Config{MaxPending: 2}, func(t *testing.T, w *wheel.Wheel) {
		var timer wheel.Timer
		timer.Init(w, func() { t.Error("a refused timer was run") })
		if n := len(fill(t, w, time.Hour)); n != 2 {
			t.Fatalf("the wheel took %d, want 2", n)
		}
		before := w.Stats()
		for name, call := range map[string]func() error{
			"Schedule":     func() error { _, err := w.Schedule(0, func() {}); return err },
			"ScheduleAt":   func() error { _, err := w.ScheduleAt(time.Now(), func() {}); return err },
			"ScheduleFunc": func() error { _, err := w.ScheduleFunc(0, func(timeout.Timeout) {}); return err },
			"Every":        func() error { _, err := w.Every(second, wheel.Skip, func() {}); return err },
			"Arm":          func() error { _, err := timer.Arm(0); return err },
			"ArmAt":        func() error { _, err := timer.ArmAt(time.Now()); return err },
		} {
			if err := call(); !errors.Is(err, wheel.ErrFull) {
				t.Errorf("%s on a full wheel: %v, want ErrFull", name, err)
			}
		}
		if timer.Timeout().Reset(0) {
			t.Error("a timer can be reset on a full wheel")
		}
		if s := timer.State(); s != timeout.Idle {
			t.Errorf("a timer that was refused is %v", s)
		}
		if after := w.Stats(); after != before {
			t.Errorf("what was refused has changed the numbers: %+v, before %+v", after, before)
		}
		time.Sleep(second)
	})
}

func TestRoomAfterACancel(t *testing.T) {
	for name, cancel := range map[string]func(*wheel.Wheel) func() bool{
		"one-shot": func(w *wheel.Wheel) func() bool {
			return must(w.Schedule(time.Hour, func() {})).Cancel
		},
		"periodic": func(w *wheel.Wheel) func() bool {
			return must(w.Every(time.Hour, wheel.Skip, func() {})).Cancel
		},
		"func": func(w *wheel.Wheel) func() bool {
			return must(w.ScheduleFunc(time.Hour, func(timeout.Timeout) {})).Cancel
		},
		"timer": func(w *wheel.Wheel) func() bool {
			timer := new(wheel.Timer)
			timer.Init(w, func() {})
			must(timer.Arm(time.Hour))
			return timer.Cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{MaxPending: 3}, func(t *testing.T, w *wheel.Wheel) {
				for range 5 { // room neither wears out nor grows
					cancel := cancel(w)
					if n := len(fill(t, w, time.Hour)); n != 2 && n != 0 {
						t.Fatalf("beside it the wheel took %d, want 2", n)
					}
					if !cancel() {
						t.Error("it cannot be cancelled")
					}
					h, err := w.Schedule(time.Hour, func() {}) // at once, no tick has passed
					if err != nil {
						t.Fatalf("after a cancel: %v", err)
					}
					if _, err := w.Schedule(time.Hour, func() {}); !errors.Is(err, wheel.ErrFull) {
						t.Fatalf("a cancel has made room for two: %v", err)
					}
					h.Cancel()
				}
			})
		})
	}
}

func TestRoomAfterATaskHasRun(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 3}, func(t *testing.T, w *wheel.Wheel) {
		for range 5 {
			var room atomic.Bool
			must(w.Schedule(10*ms, func() {
				// There is room already while the task is running.
				h, err := w.Schedule(time.Hour, func() {})
				room.Store(err == nil && h.Cancel())
			}))
			if n := len(fill(t, w, 20*ms)); n != 2 {
				t.Fatalf("beside it the wheel took %d, want 2", n)
			}
			time.Sleep(30 * ms)
			synctest.Wait()
			if !room.Load() {
				t.Error("a task that runs still takes a place")
			}
			if p := w.Stats().Pending; p != 0 {
				t.Errorf("%d pending, want none", p)
			}
		}
	})
}

// A pending timeout can be moved on a full wheel, to later and to earlier; one that has
// run has lost its place.
func TestFullWheelMovesWhatItHas(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 2}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		var timer wheel.Timer
		timer.Init(w, r.task("timer"))
		must(timer.Arm(second))
		h := r.schedule(w, second, "h")
		_, later := timer.Arm(2 * second)
		_, sooner := timer.Arm(30 * ms)
		_, at := timer.ArmAt(r.start.Add(20 * ms))
		if err := errors.Join(later, sooner, at); err != nil {
			t.Errorf("a pending timer on a full wheel: %v", err)
		}
		if !h.Reset(2*second) || !h.Reset(30*ms) {
			t.Error("a pending timeout cannot be reset on a full wheel")
		}
		fill(t, w, time.Hour)
		r.at(20)
		r.want("timer@20")
		other := must(w.Schedule(time.Hour, func() {}))
		if _, err := timer.Arm(ms); !errors.Is(err, wheel.ErrFull) {
			t.Errorf("a timer that has run, with its place taken: %v", err)
		}
		other.Cancel()
		must(timer.Arm(ms))
		r.at(100)
		r.want("timer@21 h@30")
	})
}

// A periodic task keeps its one place from run to run; on a full wheel it goes on.
func TestPeriodicTaskKeepsItsPlace(t *testing.T) {
	for _, missed := range []wheel.Missed{wheel.Skip, wheel.CatchUp, wheel.Delay} {
		bubble(t, wheel.Config{Tick: ms, MaxPending: 1}, func(t *testing.T, w *wheel.Wheel) {
			runs := 0
			h := must(w.Every(10*ms, missed, func() {
				runs++
				if _, err := w.Schedule(0, func() {}); !errors.Is(err, wheel.ErrFull) {
					t.Errorf("inside the periodic task: %v, want ErrFull", err)
				}
			}))
			time.Sleep(105 * ms)
			synctest.Wait()
			if runs != 10 {
				t.Errorf("%d runs, want 10", runs)
			}
			h.Cancel()
			if n := len(fill(t, w, time.Hour)); n != 1 {
				t.Errorf("after its cancel the wheel took %d, want 1", n)
			}
		})
	}
}

// Several goroutines fill and empty the wheel on real time: there are never more
// pending than is allowed, and in the end there is room for as many again.
func TestFullUnderContention(t *testing.T) {
	const limit = 50
	w := start(t, wheel.Config{Tick: ms, MaxPending: limit})
	seed := newRand(t).Uint64()
	var pending atomic.Int64 // counted before it is given up, so never too high
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			rnd := randOf(seed, uint64(g))
			for range 4000 {
				h, err := w.Schedule(time.Hour, func() {})
				if err != nil {
					continue
				}
				if n := pending.Add(1); n > limit {
					t.Errorf("%d are pending, %d are allowed", n, limit)
				}
				pending.Add(-1)
				if rnd.IntN(3) == 0 {
					h.Reset(0) // so that it may be run
				}
				h.Cancel()
			}
		})
	}
	all.Wait()
	w.Drain()
	if n := len(fill(t, w, time.Hour)); n != limit {
		t.Errorf("after all of it the wheel takes %d, want %d", n, limit)
	}
}

// There is always room for one more, while a pending timer is moved to and fro, and
// another goroutine is refused a timeout beyond the limit: no timeout within the limit is
// refused.
func TestNoFalseRefusals(t *testing.T) {
	w := start(t, wheel.Config{Tick: ms, MaxPending: 2})
	var timer wheel.Timer
	timer.Init(w, func() {})
	must(timer.Arm(time.Hour))
	var over atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for !over.Load() {
			must(timer.Arm(time.Hour))
			must(timer.Arm(time.Minute))
		}
	})
	for range 20_000 {
		h, err := w.Schedule(time.Hour, func() {})
		if err != nil {
			t.Errorf("with one pending of two that are allowed: %v", err)
			break
		}
		h.Cancel()
	}
	over.Store(true)
	all.Wait()
}
