package wheel_test

import (
	"errors"
	"math/rand/v2"
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
		var timer wheel.Timer
		timer.Init(w, func() { t.Error("a refused timer was run") })
		fills(t, w, time.Hour, 2)
		refuses(t, w, wheel.ErrFull, &timer)
		check(t, timer.State() == timeout.Idle, "a timer that was refused is %v", timer.State())
		time.Sleep(second)
	})
}

func TestRoomAfterACancel(t *testing.T) {
	each(t, map[string]func(*wheel.Wheel) func() bool{
		"one-shot": func(w *wheel.Wheel) func() bool { return must(w.Schedule(time.Hour, none)).Cancel },
		"periodic": func(w *wheel.Wheel) func() bool { return must(w.Every(time.Hour, wheel.Skip, none)).Cancel },
		"func": func(w *wheel.Wheel) func() bool {
			return must(w.ScheduleFunc(time.Hour, func(timeout.Timeout) {})).Cancel
		},
		"timer": func(w *wheel.Wheel) func() bool { return armed(w, time.Hour, none).Cancel },
	}, func(t *testing.T, schedule func(*wheel.Wheel) func() bool) {
		w := start(t, wheel.Config{MaxPending: 3})
		cancel := schedule(w)
		fills(t, w, time.Hour, 2)
		for range 5 { // room neither wears out nor grows
			check(t, cancel(), "it cannot be cancelled")
			h := must(w.Schedule(time.Hour, none)) // at once, no tick has passed
			refuses(t, w, wheel.ErrFull)
			h.Cancel()
			cancel = schedule(w)
		}
	})
}

func TestRoomAfterATaskHasRun(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 3}, func(t *testing.T, w *wheel.Wheel) {
		for range 5 {
			var room atomic.Bool
			must(w.Schedule(10*ms, func() {
				// There is room already while the task is running.
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

// A pending timeout can be moved on a full wheel, to later and to earlier; one that has
// run has lost its place.
func TestFullWheelMovesWhatItHas(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 2}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		timer := armed(w, second, r.task("timer"))
		h := r.schedule(w, second, "h")
		_, later := timer.Arm(2 * second)
		_, sooner := timer.Arm(30 * ms)
		_, at := timer.ArmAt(r.start.Add(20 * ms))
		err := errors.Join(later, sooner, at)
		check(t, err == nil, "a pending timer on a full wheel: %v", err)
		check(t, h.Reset(2*second) && h.Reset(30*ms), "a pending timeout cannot be reset on a full wheel")
		fills(t, w, time.Hour, 0)
		r.at(20)
		r.want("timer@20")
		other := must(w.Schedule(time.Hour, none))
		refuses(t, w, wheel.ErrFull, timer) // it has run, and its place is taken
		other.Cancel()
		must(timer.Arm(ms))
		r.at(100)
		r.want("timer@21 h@30")
	})
}

// A periodic task keeps its one place from run to run; on a full wheel it goes on.
func TestPeriodicTaskKeepsItsPlace(t *testing.T) {
	for _, missed := range policies {
		bubble(t, wheel.Config{Tick: ms, MaxPending: 1}, func(t *testing.T, w *wheel.Wheel) {
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
}

// Several goroutines fill and empty the wheel on real time: there are never more
// pending than is allowed, and in the end there is room for as many again.
func TestFullUnderContention(t *testing.T) {
	const limit = 50
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

// There is always room for one more, while a pending timer is moved to and fro, and
// another goroutine is refused a timeout beyond the limit: no timeout within the limit is
// refused.
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
