package wheel_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// The first cancel of a pending timeout is true and the last one: at once, while time
// stands still, later, in the instant before its deadline. What has run cannot be cancelled.
func TestCancel(t *testing.T) {
	each(t, forms, func(t *testing.T, f form) {
		w, r := start(t, wheel.Config{Tick: ms}), newRecord(t)
		cancel := func(h timeout.Timeout) {
			t.Helper()
			check(t, h.Cancel() && !h.Cancel(), "the first cancel should be true and the second false")
			s, d := h.State(), h.Deadline()
			check(t, s == timeout.Cancelled && d.IsZero(), "a cancelled timeout is %v, due at %v", s, d)
		}
		cancel(must(f.schedule(w, ms, r.task("at once"))))
		early, last := must(f.schedule(w, 64*ms, r.task("early"))), must(f.schedule(w, 64*ms, r.task("last")))
		runs := must(f.schedule(w, 64*ms, r.task("runs")))
		r.at(5)
		cancel(early)
		time.Sleep(59*ms - 1)
		cancel(last)
		r.at(10_000)
		r.want("runs@64")
		check(t, runs.Cancel() == (f.over == timeout.Pending), "a timeout that has run can be cancelled")
	})
}

// Handles distinguish a task that has begun from a cancelled one, for as long as the
// memory serves no other timeout.
func TestStateDistinguishesExpiredFromCancelled(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		ran := wheel.InOrder(w, ms, none)
		taken := wheel.InOrder(w, time.Hour, none)
		time.Sleep(5 * ms)
		taken.Cancel()
		pass(5 * ms)
		check(t, ran.State() == timeout.Expired && taken.State() == timeout.Cancelled,
			"they are %v and %v", ran.State(), taken.State())
		for range 1000 {
			wheel.InOrder(w, time.Hour, none)
		}
		check(t, ran.State() == wheel.Done && taken.State() == wheel.Done,
			"with their memory in use they are %v and %v", ran.State(), taken.State())
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
		counts(t, w, "in the end", wheel.Stats{Scheduled: count, Fired: 1, Cancelled: count - 1})
	})
}

// Tasks that cancel and schedule in turn, on the worker, several batches of them at every
// tick: the memory of what a task has cancelled is reused by the next. None of the timeouts
// is lost, no handle is mistaken for another, and those of earlier lives have no power.
func TestTasksThatReplaceEachOther(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 32}, func(t *testing.T, w *wheel.Wheel) {
		rnd := newRand(t)
		const wide = 1000
		var slots [wide]struct {
			handle timeout.Timeout
			due    time.Time
		}
		seen := make(map[timeout.Timeout]bool)
		ran, cancelled := 0, 0
		var free []int // the slots of what was cancelled
		var set func(i int)
		set = func(i int) {
			s := &slots[i]
			before := s.handle
			s.handle = must(w.Schedule(time.Duration(1+rnd.IntN(8))*ms, func() {
				ran++
				check(t, time.Now().Equal(s.due), "slot %d ran %v after its deadline", i, time.Since(s.due))
				set(i)
				for range 2 { // and others, at once or later
					k := rnd.IntN(wide)
					if !slots[k].handle.Cancel() {
						continue
					}
					cancelled++
					if free = append(free, k); rnd.IntN(2) == 0 && len(free) == 1 || len(free) > 20 {
						for _, k := range free {
							set(k)
						}
						free = free[:0]
					}
				}
			}))
			s.due = s.handle.Deadline()
			require(t, !seen[s.handle] && s.handle.State() == timeout.Pending,
				"a handle was given twice: %v, or is %v", seen[s.handle], s.handle.State())
			seen[s.handle] = true
			require(t, before.State() != timeout.Pending && !before.Cancel() && !before.Reset(time.Hour),
				"the handle of an earlier life has power over a later one")
		}
		// From inside a task, so that most of them use the same inbox.
		must(w.Schedule(ms, func() {
			for i := range slots {
				set(i)
			}
		}))
		pass(60 * ms)
		left := w.Drain()
		for _, u := range left {
			late := time.Since(u.Deadline)
			check(t, late < ms, "pending, but was due %v ago", late)
		}
		check(t, len(seen) == ran+cancelled+len(left) && ran > 5*wide && cancelled > wide,
			"%d were scheduled, %d ran, %d were cancelled, %d are left", len(seen), ran, cancelled, len(left))
	})
}

// netty#14959: a timeout that was cancelled in its due tick, while a task held the
// worker, was counted out twice. netty, lines 421 and 436: timeouts refused or returned
// by stop are never counted out.
func TestWhatIsCancelledWhileTheWorkerIsHeldIsCountedOnce(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 10}, func(t *testing.T, w *wheel.Wheel) {
		held := make(chan struct{})
		wheel.InOrder(w, ms, func() { <-held })
		var same []timeout.Timeout
		for range 5 {
			same = append(same, wheel.InOrder(w, ms, func() { t.Error("ran though cancelled") }))
		}
		next := must(w.Schedule(2*ms, func() { t.Error("ran though cancelled") }))
		time.Sleep(5 * ms)
		cancelled := 0
		for _, h := range append(same, next) {
			if h.Cancel() {
				cancelled++
			}
		}
		close(held)
		synctest.Wait()
		s := w.Stats()
		check(t, cancelled == 6 && s.Cancelled == 6 && s.Pending == 0,
			"%d were cancelled; the numbers are %+v", cancelled, s)
		fills(t, w, time.Hour, 10) // there is room for all, and for no more
		w.Stop()
		refuses(t, w, wheel.ErrStopped)
		check(t, w.Stats().Pending == 0, "%d pending after Stop", w.Stats().Pending)
	})
}

// A task that receives its own timeout, or runs periodically, moves its own next run in each
// run. A cancel or a Drain ends it: before a run, during one and from inside of one. No
// Reset succeeds afterwards, and no run begins.
func TestCancelIsFinal(t *testing.T) {
	type begin func(w *wheel.Wheel, task func(timeout.Timeout)) timeout.Timeout
	begins := map[string]begin{
		"ScheduleFunc": func(w *wheel.Wheel, task func(timeout.Timeout)) timeout.Timeout {
			return must(w.ScheduleFunc(100*ms, task))
		},
	}
	for name, missed := range policies {
		begins["EveryFunc, "+name] = func(w *wheel.Wheel, task func(timeout.Timeout)) timeout.Timeout {
			return must(w.EveryFunc(time.Now().Add(100*ms), 100*ms, missed, task))
		}
	}
	for name, begin := range begins {
		for place, at := range map[string]time.Duration{"before its first run": 50 * ms, "during a run": 120 * ms, "inside a run": 0} {
			for limit, most := range map[string]int64{"": 0, ", limited": 1} {
				t.Run(name+", "+place+limit, func(t *testing.T) {
					each(t, executors, func(t *testing.T, executor func(*testing.T) wheel.Executor) {
						w := start(t, wheel.Config{Tick: ms, Executor: executor(t), MaxPending: most})
						runs, resets := 0, 0
						h := begin(w, func(h timeout.Timeout) {
							runs++
							if at == 0 {
								check(t, !h.Cancel(), "the run has begun")
							}
							time.Sleep(50 * ms)
							if h.Reset(80 * ms) {
								resets++
							}
						})
						if at != 0 {
							time.Sleep(at)
							check(t, h.Cancel() == (place == "before its first run"), "cancelled %s", place)
						}
						pass(second)
						first := runs
						for range 3 {
							check(t, !h.Reset(0) && !h.Reset(time.Hour) && !h.ResetAt(time.Time{}), "a Reset after the cancel succeeds")
							check(t, h.State() == timeout.Cancelled && !h.Cancel(), "it is %v", h.State())
							pass(second)
						}
						check(t, runs == first && resets == 0 && runs <= 1, "%d runs, %d of them after the cancel; %d resets succeeded", runs, runs-first, resets)
						check(t, w.Stats().Pending == 0, "the numbers are %+v", w.Stats())
						_, err := w.Schedule(0, none)
						check(t, err == nil, "a place is still taken: %v", err)
					})
				})
			}
		}
	}
}

// A task that receives its own timeout has, once it has reset that in a run, another run that can be
// cancelled, while the first is under way.
func TestCancelOfTheNextRun(t *testing.T) {
	each(t, executors, func(t *testing.T, executor func(*testing.T) wheel.Executor) {
		w, r := start(t, wheel.Config{Tick: ms, Executor: executor(t)}), newRecord(t)
		h := must(w.ScheduleFunc(10*ms, func(h timeout.Timeout) {
			r.run("begun")
			h.Reset(20 * ms)
			time.Sleep(10 * ms)
			r.run("ended")
		}))
		r.at(15)
		check(t, h.Cancel() && !h.Cancel() && !h.Reset(ms), "the next run cannot be cancelled, or twice, or is not the last")
		r.at(1000)
		r.want("begun@10 ended@20")
	})
}

// What Drain has returned does not come back either.
func TestDrainIsFinal(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		handles := []timeout.Timeout{
			must(w.Every(100*ms, wheel.Skip, r.task("every"))),
			must(w.ScheduleFunc(100*ms, func(timeout.Timeout) { r.run("func") })),
		}
		check(t, len(w.Drain()) == 2, "Drain has not returned both")
		for _, h := range handles {
			check(t, !h.Reset(0) && !h.Reset(second), "a Reset after Drain succeeds")
		}
		r.at(10_000)
		r.want("")
	})
}
