package wheel_test

import (
	"sync/atomic"
	"testing"
	"time"

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
		check(t, a.Cancel() && !a.Cancel(), "the first cancel should be true and the second false")
		s, d := a.State(), a.Deadline()
		check(t, s == timeout.Cancelled && d.IsZero(), "a cancelled timeout is %v, due at %v", s, d)
		check(t, !a.Reset(second) && !a.ResetAt(time.Now()), "a cancelled one-shot timeout can be reset")
		r.at(15)
		r.want("b@10")
		check(t, !b.Cancel() && !b.Reset(second), "a timeout that has run can be cancelled or reset")
		check(t, c.Cancel(), "c cannot be cancelled")
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
		check(t, !b.Cancel(), "b can be cancelled after it ran")
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
		pass(second)
		check(t, ran == 1 && cancelled == count-1,
			"%d ran and %d were cancelled, want 1 and %d", ran, cancelled, count-1)
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
		pass(200 * ms)
		cancelled := 0
		for i := range ran {
			if won[i] {
				cancelled++
			}
			require(t, won[i] != (ran[i] == 1) && ran[i] <= 1, "%d: cancelled %v, ran %d times", i, won[i], ran[i])
		}
		s := w.Stats()
		check(t, s.Cancelled == uint64(cancelled) && s.Fired == uint64(count-cancelled),
			"%d cancelled of %d; the numbers say %+v", cancelled, count, s)
		check(t, cancelled != 0 && cancelled != count,
			"%d of %d cancelled: the test has not tested both", cancelled, count)
	})
}

// The worker runs due tasks in batches, and looks at new arrivals when a batch is
// through. Tasks of one batch cancel others of it, whose memory is free from the next
// batch on. Tasks of that batch schedule into it. None of their timeouts is lost, and no
// handle is mistaken for another.
func TestTasksScheduleIntoWhatTasksBeforeThemHaveCancelled(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		const tasks = 200
		var first, second [tasks]timeout.Timeout
		ran, again, cancelled := 0, 0, 0
		task := func(i int) func() {
			return func() {
				ran++
				if ran == 1 { // of the first batch: cancels what is in it and behind it
					for k := 0; k < tasks; k += 10 {
						if first[k].Cancel() {
							cancelled++
						}
					}
				}
				if ran >= 70 { // of a later one
					second[i] = must(w.Schedule(5*ms, func() { again++ }))
				}
			}
		}
		// From inside a task, so that most of them use the same inbox.
		must(w.Schedule(ms, func() {
			for i := range first {
				first[i] = must(w.Schedule(ms, task(i)))
			}
		}))
		pass(3 * ms)
		require(t, ran+cancelled == tasks && cancelled >= tasks/10-1,
			"%d ran and %d were cancelled, of %d", ran, cancelled, tasks)
		seen := make(map[timeout.Timeout]bool)
		scheduled := 0
		for _, h := range second {
			if h == (timeout.Timeout{}) {
				continue
			}
			scheduled++
			require(t, !seen[h] && h.State() == timeout.Pending,
				"a handle was given twice: %v, or is %v", seen[h], h.State())
			seen[h] = true
		}
		for _, h := range first {
			require(t, h.State() != timeout.Pending && !h.Cancel() && !h.Reset(time.Hour),
				"a handle of the first round has power over the second")
		}
		pass(10 * ms)
		check(t, again == scheduled && scheduled >= 100, "%d of the %d that tasks have scheduled ran", again, scheduled)
	})
}

// A task that cancels and schedules in turn, on the worker, at every tick: the freed
// memory is reused at once.
func TestTasksThatReplaceEachOther(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 32}, func(t *testing.T, w *wheel.Wheel) {
		rnd := newRand(t)
		const wide = 300
		var slots [wide]struct {
			handle timeout.Timeout
			due    time.Time
		}
		var set func(i int)
		set = func(i int) {
			s := &slots[i]
			s.handle = must(w.Schedule(time.Duration(1+rnd.IntN(40))*ms, func() {
				check(t, time.Now().Equal(s.due), "slot %d ran %v after its deadline", i, time.Since(s.due))
				for range 3 { // itself, and others if they are pending
					set(i)
					if i = rnd.IntN(wide); !slots[i].handle.Cancel() {
						return
					}
				}
				set(i)
			}))
			s.due = s.handle.Deadline()
		}
		must(w.Schedule(ms, func() {
			for i := range slots {
				set(i)
			}
		}))
		pass(2 * second)
		p := w.Stats().Pending
		check(t, p != 0, "nothing is left of what replaces itself")
		for _, u := range w.Drain() {
			late := time.Since(u.Deadline)
			check(t, late < ms, "pending, but was due %v ago", late)
		}
	})
}

// Handles distinguish a task that has begun from a cancelled one, for as long as the
// memory serves no other timeout, and those of timers for ever.
func TestStateTellsExpiredFromCancelled(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		ran := must(w.Schedule(ms, none))
		taken := must(w.Schedule(time.Hour, none))
		time.Sleep(5 * ms)
		taken.Cancel()
		pass(5 * ms)
		check(t, ran.State() == timeout.Expired && taken.State() == timeout.Cancelled,
			"they are %v and %v", ran.State(), taken.State())
		for range 1000 {
			must(w.Schedule(time.Hour, none))
		}
		check(t, ran.State() == timeout.Done && taken.State() == timeout.Done,
			"with their memory in use they are %v and %v", ran.State(), taken.State())
	})
}
