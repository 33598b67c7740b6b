package wheel_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

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
		time.Sleep(3 * ms)
		synctest.Wait()
		if ran+cancelled != tasks || cancelled < tasks/10-1 {
			t.Fatalf("%d ran and %d were cancelled, of %d", ran, cancelled, tasks)
		}
		seen := make(map[timeout.Timeout]bool)
		scheduled := 0
		for _, h := range second {
			if h == (timeout.Timeout{}) {
				continue
			}
			scheduled++
			if seen[h] || h.State() != timeout.Pending {
				t.Fatalf("a handle was given twice: %v, or is %v", seen[h], h.State())
			}
			seen[h] = true
		}
		for _, h := range first {
			if h.State() == timeout.Pending || h.Cancel() || h.Reset(time.Hour) {
				t.Fatal("a handle of the first round has power over the second")
			}
		}
		time.Sleep(10 * ms)
		synctest.Wait()
		if again != scheduled || scheduled < 100 {
			t.Errorf("%d of the %d that tasks have scheduled ran", again, scheduled)
		}
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
				if !time.Now().Equal(s.due) {
					t.Errorf("slot %d ran %v after its deadline", i, time.Since(s.due))
				}
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
		time.Sleep(2 * second)
		synctest.Wait()
		if p := w.Stats().Pending; p == 0 {
			t.Error("nothing is left of what replaces itself")
		}
		for _, u := range w.Drain() {
			if late := time.Since(u.Deadline); late >= ms {
				t.Errorf("pending, but was due %v ago", late)
			}
		}
	})
}
