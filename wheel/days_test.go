package wheel_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

const day = 24 * time.Hour

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
				if s.due.IsZero() || late < 0 || late >= 10*ms {
					t.Errorf("session %d expired %v after its deadline", i, late)
				}
				s.due = time.Time{}
				expiries++
			})
		}
		refreshes, ends := 0, 0
		for end := time.Now().Add(month); time.Now().Before(end); {
			time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Minute))))
			synctest.Wait()
			s := &all[rnd.IntN(sessions)]
			if rnd.IntN(10) == 0 {
				if pending := !s.due.IsZero(); s.timer.Cancel() != pending {
					t.Fatalf("a session that was pending: %v, was cancelled: %v", pending, !pending)
				}
				s.due = time.Time{}
				ends++
				continue
			}
			d := ttl + time.Duration(rnd.Int64N(int64(time.Hour)))
			s.due = time.Now().Add(d)
			must(s.timer.Arm(d))
			refreshes++
		}
		time.Sleep(ttl + 2*time.Hour)
		synctest.Wait()
		for i := range all {
			if all[i].timer.State() == timeout.Pending {
				t.Errorf("session %d has not expired by its deadline, %v ago", i, time.Since(all[i].due))
			}
		}
		t.Logf("%d refreshes, %d ends, %d expiries", refreshes, ends, expiries)
		if expiries < 1000 || ends < 1000 {
			t.Errorf("%d expiries and %d ends: too few to tell anything", expiries, ends)
		}
	})
}

// Periods that fit no tick, for days: the last run is as exact as the first, and
// there are as many as there were periods.
func TestPeriodsDoNotDriftOverDays(t *testing.T) {
	for _, c := range []struct{ tick, period time.Duration }{
		{10 * ms, 20*second + 1},
		{10 * ms, 20*second - 1},
		{ms, 33_333*ms + 333_333},
		{7 * ms, 30 * second},
		{second, 7 * time.Minute / 3},
	} {
		bubble(t, wheel.Config{Tick: c.tick}, func(t *testing.T, w *wheel.Wheel) {
			time.Sleep(1234567)
			began := time.Now()
			runs := 0
			must(w.Every(c.period, wheel.Skip, func() {
				runs++
				late := time.Since(began) - time.Duration(runs)*c.period
				if late < 0 || late >= c.tick {
					t.Errorf("run %d of every %v was %v off; the tick is %v", runs, c.period, late, c.tick)
				}
			}))
			time.Sleep(2*day + c.tick)
			synctest.Wait()
			if want := int(2 * day / c.period); runs < want || runs > want+1 {
				t.Errorf("%d runs of every %v in two days, want %d", runs, c.period, want)
			}
		})
	}
}

// Long silence costs nothing: a century with one timeout in it is over at once.
func TestCenturyWithOneTimeout(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 1}, func(t *testing.T, w *wheel.Wheel) {
		const century = 100 * 365 * day
		began := time.Now()
		var ran atomic.Int64
		must(w.Schedule(century, func() { ran.Store(int64(time.Since(began))) }))
		time.Sleep(century - 1)
		synctest.Wait()
		if ran.Load() != 0 {
			t.Fatalf("ran after %v", time.Duration(ran.Load()))
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if ran.Load() != int64(century) {
			t.Errorf("ran after %v, want a century, %v", time.Duration(ran.Load()), century)
		}
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
			h := must(w.Schedule(2*ms+time.Duration(rnd.Int64N(int64(4*day))), func() {}))
			deadline := h.Deadline()
			h.Cancel()
			must(w.ScheduleAt(deadline, func() { order = append(order, deadline) }))
		}
		onTime := must(w.Schedule(5*day+time.Hour, func() {})).Deadline()
		must(w.ScheduleAt(onTime, func() {
			if !time.Now().Equal(onTime) {
				t.Errorf("what is due after the hold-up ran %v late", time.Since(onTime))
			}
		}))
		time.Sleep(5*day + 2*ms)
		synctest.Wait()
		if len(order) != tasks {
			t.Fatalf("%d ran at once, want %d", len(order), tasks)
		}
		for i := 1; i < tasks; i++ {
			if order[i].Before(order[i-1]) {
				t.Fatalf("a deadline of %v ran after one of %v", order[i], order[i-1])
			}
		}
		time.Sleep(2 * time.Hour)
	})
}
