package wheel_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// fills checks that a wheel has room for so many, and fills it.
func fills(t *testing.T, w *wheel.Wheel, d time.Duration, room int) {
	t.Helper()
	for range room {
		_, err := w.Schedule(d, none)
		require(t, err == nil, "there is no room: %v", err)
	}
	refuses(t, w, wheel.ErrFull)
}

// A timeout beyond the limit is refused, by every method, and leaves no trace.
func TestFull(t *testing.T) {
	bubble(t, wheel.Config{MaxPending: 2}, func(t *testing.T, w *wheel.Wheel) {
		timer := idle(w, func() { t.Error("a refused timer was run") })
		fills(t, w, time.Hour, 2)
		refuses(t, w, wheel.ErrFull, timer)
		check(t, timer.State() == timeout.Idle, "a timer that was refused is %v", timer.State())
		time.Sleep(second)
	})
}

// A timer of InitOnWorker takes no place, gives none back, and is never refused: neither on a
// full wheel nor when its place was taken while its task ran.
func TestFullRefusesNoTimerOnWorker(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 2}, func(t *testing.T, w *wheel.Wheel) {
		var timer wheel.Timer
		runs := 0
		timer.InitOnWorker(w, func() {
			if runs++; runs < 10 {
				must(timer.Arm(ms))
			}
		})
		must(timer.Arm(ms))
		fills(t, w, time.Hour, 2)
		must(timer.Arm(10 * ms)) // to later, to earlier, and anew
		must(timer.Arm(ms))
		check(t, timer.Cancel(), "it cannot be cancelled")
		refuses(t, w, wheel.ErrFull)
		must(timer.Arm(ms))
		pass(20 * ms)
		check(t, runs == 10, "it ran %d times, want 10", runs)
		refuses(t, w, wheel.ErrFull)

		must(timer.Arm(time.Hour))
		check(t, len(w.Drain()) == 2, "Drain does not return what others have scheduled, and that alone")
		check(t, timer.State() == timeout.Pending, "after Drain it is %v", timer.State())
		fills(t, w, time.Hour, 2)
		check(t, len(w.Stop()) == 3, "Stop does not return all three")
	})
}

// A cancel makes room at once: no tick has to pass.
func TestRoomAfterACancel(t *testing.T) {
	each(t, forms, func(t *testing.T, f form) {
		w := start(t, wheel.Config{MaxPending: 3})
		h := must(f.schedule(w, time.Hour, none))
		fills(t, w, time.Hour, 2)
		for range 5 { // room neither wears out nor grows
			check(t, h.Cancel(), "it cannot be cancelled")
			other := must(w.Schedule(time.Hour, none))
			refuses(t, w, wheel.ErrFull)
			other.Cancel()
			h = must(f.schedule(w, time.Hour, none))
		}
	})
}

// A task that has begun takes no place, not even while it runs.
func TestRoomAfterATaskHasRun(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 3}, func(t *testing.T, w *wheel.Wheel) {
		for range 5 {
			var room atomic.Bool
			must(w.Schedule(10*ms, func() {
				h, err := w.Schedule(time.Hour, none)
				room.Store(err == nil && h.Cancel())
			}))
			fills(t, w, 20*ms, 2)
			pass(30 * ms)
			check(t, room.Load(), "a task that runs still takes a place")
			p := w.Stats().Pending
			check(t, p == 0, "%d pending, want none", p)
		}
	})
}

// A pending timeout has its one place, however often it is moved, and is never refused; one
// that has run has lost its place.
func TestFullWheelMovesWhatItHas(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 2}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		timer := armed(w, second, r.task("timer"))
		for range 10 { // gone and back
			timer.Cancel()
			must(timer.Arm(second))
		}
		h := r.schedule(w, second, "h")
		for i := range 10 {
			_, later := timer.Arm(time.Duration(2000+i) * ms)
			_, sooner := timer.Arm(time.Duration(100-i) * ms)
			_, at := timer.ArmAt(r.start.Add(20 * ms))
			err := errors.Join(later, sooner, at)
			check(t, err == nil, "a pending timer on a full wheel: %v", err)
			check(t, h.Reset(2*second) && h.Reset(30*ms), "a pending timeout cannot be reset on a full wheel")
		}
		fills(t, w, time.Hour, 0)
		r.at(20)
		r.want("timer@20")
		other := must(w.Schedule(time.Hour, none))
		refuses(t, w, wheel.ErrFull, timer) // it has run, and its place is taken
		check(t, timer.State() == timeout.Expired, "refused, it is %v", timer.State())
		other.Cancel()
		must(timer.Arm(ms))
		r.at(100)
		r.want("timer@21 h@30")
		fills(t, w, time.Hour, 2)
	})
}

// A periodic task keeps its one place from run to run; on a full wheel it goes on.
func TestPeriodicTaskKeepsItsPlace(t *testing.T) {
	each(t, policies, func(t *testing.T, missed wheel.Missed) {
		w := start(t, wheel.Config{Tick: ms, MaxPending: 1})
		runs := 0
		h := must(w.Every(10*ms, missed, func() {
			runs++
			_, err := w.Schedule(0, none)
			check(t, errors.Is(err, wheel.ErrFull), "inside the periodic task: %v, want ErrFull", err)
		}))
		pass(105 * ms)
		check(t, runs == 10, "%d runs, want 10", runs)
		h.Cancel()
		fills(t, w, time.Hour, 1)
	})
}

// Several goroutines fill and empty the wheel on real time: there are never more pending
// than is allowed, and in the end there is room for as many again.
func TestFullUnderContention(t *testing.T) {
	const limit = 2 // fewer than the goroutines, of which each has one at most
	w := start(t, wheel.Config{Tick: ms, MaxPending: limit})
	var pending atomic.Int64 // counted before it is given up, so never too high
	crowd(t, 4, func(_ int, rnd *rand.Rand) {
		for range 4000 {
			h, err := w.Schedule(time.Hour, none)
			if err != nil {
				continue
			}
			n := pending.Add(1)
			check(t, n <= limit, "%d are pending, %d are allowed", n, limit)
			pending.Add(-1)
			if rnd.IntN(3) == 0 {
				h.Reset(0) // so that it may be run
			}
			h.Cancel()
		}
	})
	w.Drain()
	fills(t, w, time.Hour, limit)
}

// Timers on the worker, that expire all the time, and timeouts that take places, which are
// drained, beside each other: the former are never refused, and the places stay as many.
func TestPlacesBesideTimersOnWorker(t *testing.T) {
	races(t, func(t *testing.T, c wheel.Config) {
		c.MaxPending = 2
		w := start(t, c)
		timers := make([]wheel.Timer, 3)
		for i := range timers {
			timers[i].InitOnWorker(w, none)
		}
		crowd(t, 4, func(_ int, rnd *rand.Rand) {
			for range 5_000 {
				timer := &timers[rnd.IntN(len(timers))]
				switch rnd.IntN(5) {
				case 0:
					timer.Cancel()
				case 1:
					w.Drain()
				case 2, 3:
					_, err := timer.Arm(time.Duration(rnd.IntN(3)) * c.Tick / 2)
					check(t, err == nil, "a timer on the worker is refused: %v", err)
				default:
					_, err := w.Schedule(time.Duration(rnd.IntN(3))*c.Tick/2, none)
					check(t, err == nil || errors.Is(err, wheel.ErrFull), "refused with %v", err)
				}
			}
		})
		w.Drain()
		for i := range timers {
			timers[i].Cancel()
		}
		require(t, await(func() bool { return w.Stats().Pending == 0 }), "some are pending for ever: %+v", w.Stats())
		fills(t, w, time.Hour, 2)
	})
}

// Once a timeout that expires counts as ended, its place is free.
func TestPlaceOfWhatHasEnded(t *testing.T) {
	w := start(t, wheel.Config{Tick: 200 * time.Microsecond, Precise: true, MaxPending: 1})
	for range 200 {
		_, err := w.Schedule(0, none)
		require(t, err == nil, "there is no room: %v", err)
		for w.Stats().Pending > 0 {
			runtime.Gosched()
		}
	}
}

// No timeout within the limit is refused: there is room for one more, while a pending timer
// is moved to and fro.
func TestNoFalseRefusals(t *testing.T) {
	w := start(t, wheel.Config{Tick: ms, MaxPending: 2})
	timer := armed(w, time.Hour, none)
	var over atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for !over.Load() {
			must(timer.Arm(time.Hour))
			must(timer.Arm(time.Minute))
		}
	})
	for range 20_000 {
		h, err := w.Schedule(time.Hour, none)
		if err != nil {
			t.Errorf("with one pending of two that are allowed: %v", err)
			break
		}
		h.Cancel()
	}
	over.Store(true)
	all.Wait()
}

// The only timer of a wheel is armed by several goroutines at once, and cancelled, while it
// expires all the time. No Arm is refused: there is a place for it.
func TestOnlyTimerIsNotRefused(t *testing.T) {
	races(t, func(t *testing.T, c wheel.Config) {
		c.MaxPending = 1
		w := start(t, c)
		timer := idle(w, none)
		crowd(t, 4, func(i int, rnd *rand.Rand) {
			for range 20_000 {
				if i == 0 {
					timer.Cancel()
					continue
				}
				_, err := timer.Arm(time.Duration(rnd.IntN(3)) * c.Tick / 2)
				if err != nil {
					t.Errorf("a timer alone on its wheel is refused: %v", err)
					break
				}
			}
		})
		timer.Cancel()
		fills(t, w, time.Hour, 1)
		w.Drain()
	})
}
