package wheel_test

import (
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// A month of a server's life: sessions that are refreshed at random, end, or
// expire after hours without a sign. Every one expires in the tick of its last
// refresh plus its time to live, or never.
func TestMonthOfSessions(t *testing.T) {
	const sessions, ttl, month = 200, 3 * time.Hour, 30 * day
	bubble(t, wheel.Config{Tick: 10 * ms}, func(t *testing.T, w *wheel.Wheel) {
		rnd := newRand(t)
		type session struct {
			timer wheel.Timer
			due   time.Time // zero: not armed
		}
		all := make([]session, sessions)
		expiries := 0
		for i := range all {
			s := &all[i]
			s.timer.Init(w, func() {
				late := time.Since(s.due)
				check(t, !s.due.IsZero() && late >= 0 && late < 10*ms,
					"session %d expired %v after its deadline", i, late)
				s.due = time.Time{}
				expiries++
			})
		}
		refreshes, ends := 0, 0
		for end := time.Now().Add(month); time.Now().Before(end); {
			pass(time.Duration(rnd.Int64N(int64(3 * time.Minute))))
			s := &all[rnd.IntN(sessions)]
			if rnd.IntN(10) == 0 {
				pending := !s.due.IsZero()
				require(t, s.timer.Cancel() == pending,
					"a session that was pending: %v, was cancelled: %v", pending, !pending)
				s.due = time.Time{}
				ends++
				continue
			}
			d := ttl + time.Duration(rnd.Int64N(int64(time.Hour)))
			s.due = time.Now().Add(d)
			must(s.timer.Arm(d))
			refreshes++
		}
		pass(ttl + 2*time.Hour)
		for i := range all {
			check(t, all[i].timer.State() != timeout.Pending,
				"session %d has not expired by its deadline, %v ago", i, time.Since(all[i].due))
		}
		t.Logf("%d refreshes, %d ends, %d expiries", refreshes, ends, expiries)
		check(t, expiries >= 1000 && ends >= 1000, "%d expiries and %d ends: too few to conclude anything", expiries, ends)
	})
}

// Long silence costs nothing: a century with one timeout in it is over at once.
func TestCenturyWithOneTimeout(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 1}, func(t *testing.T, w *wheel.Wheel) {
		const century = 100 * 365 * day
		r := newRecord(t)
		r.schedule(w, century, "a")
		pass(century - 1)
		r.want("")
		pass(1)
		r.want("a@3153600000000")
	})
}

// A worker that is held up for days, by its own tasks or by the machine, catches up
// without a pass for each missed tick, and later tasks are on time.
func TestHeldUpForDays(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 64}, func(t *testing.T, w *wheel.Wheel) {
		rnd := newRand(t)
		must(w.Schedule(ms, func() { time.Sleep(5 * day) }))
		var order []time.Time
		const tasks = 1000
		for range tasks {
			h := must(w.Schedule(2*ms+time.Duration(rnd.Int64N(int64(4*day))), none))
			deadline := h.Deadline()
			h.Cancel()
			must(w.ScheduleAt(deadline, func() { order = append(order, deadline) }))
		}
		onTime := must(w.Schedule(5*day+time.Hour, none)).Deadline()
		must(w.ScheduleAt(onTime, func() {
			check(t, time.Now().Equal(onTime), "what is due after the hold-up ran %v late", time.Since(onTime))
		}))
		pass(5*day + 2*ms)
		require(t, len(order) == tasks, "%d ran at once, want %d", len(order), tasks)
		for i := 1; i < tasks; i++ {
			require(t, !order[i].Before(order[i-1]), "a deadline of %v ran after one of %v", order[i], order[i-1])
		}
		time.Sleep(2 * time.Hour)
	})
}
