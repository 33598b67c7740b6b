package wheel_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// A task blocks the worker for 3 s, in which many others become due, of several
// revolutions. They run at once afterwards, in the order of their deadlines, and later
// ones come on time. Three of the Go wheels that count ticks are late by the whole pause
// from then on.
func TestLateWorkerCatchesUp(t *testing.T) {
	for _, buckets := range []int{1, 16, 512, 1 << 14} {
		bubble(t, wheel.Config{Tick: ms, Buckets: buckets}, func(t *testing.T, w *wheel.Wheel) {
			rnd := newRand(t)
			start := time.Now()
			const pause = 3 * second
			must(w.Schedule(10*ms, func() { time.Sleep(pause) }))
			type run struct{ deadline, at time.Duration }
			var runs []run
			task := func(deadline time.Duration) func() {
				return func() { runs = append(runs, run{deadline, time.Since(start)}) }
			}
			const count = 1500
			for range count {
				d := 11*ms + time.Duration(rnd.IntN(6000))*ms
				h := must(w.ScheduleAt(start.Add(d), none))
				h.Cancel() // its node serves the next
				switch rnd.IntN(3) {
				case 0:
					must(w.ScheduleAt(start.Add(d), task(d)))
				case 1: // from later to d
					must(w.ScheduleAt(start.Add(time.Minute), task(d))).ResetAt(start.Add(d))
				case 2: // from earlier to d, though that is in the pause
					must(w.ScheduleAt(start.Add(11*ms), task(d))).ResetAt(start.Add(d))
				}
			}
			pass(10 * second)
			require(t, len(runs) == count, "%d buckets: %d ran, want %d", buckets, len(runs), count)
			check(t, slices.IsSortedFunc(runs, func(a, b run) int { return cmp.Compare(a.deadline, b.deadline) }),
				"%d buckets: not in the order of the deadlines", buckets)
			late := 0
			for _, r := range runs {
				want := max(r.deadline, 10*ms+pause)
				if want != r.deadline {
					late++
				}
				require(t, r.at == want,
					"%d buckets: a deadline after %v ran after %v, want %v", buckets, r.deadline, r.at, want)
			}
			check(t, late >= count/4 && late <= 3*count/4,
				"%d of %d were late: the test tests one side only", late, count)
		})
	}
}

// Resets made while the worker is late count: a timeout postponed in time does not run in
// between, one brought forward does.
func TestResetsWhileTheWorkerIsLate(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 8}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		must(w.Schedule(10*ms, func() { time.Sleep(second) }))
		a := r.schedule(w, 20*ms, "a")
		b := r.schedule(w, 30*ms, "b")
		c := r.schedule(w, 5*second, "c")
		d := r.schedule(w, 25*ms, "d")
		e := r.schedule(w, 40*ms, "e")
		r.at(500)
		check(t, a.Reset(2*second) && b.Reset(-1) && c.ResetAt(r.start.Add(35*ms)) && d.Cancel() && e.Reset(10*ms),
			"what is overdue and has not begun cannot be reset or cancelled")
		r.at(3000)
		r.want("b@1010 c@1010 e@1010 a@2500")
	})
}

// LastLag and WorstLag report how late tasks were begun, Overruns how often they held the
// worker for longer than a tick.
func TestLagIsReported(t *testing.T) {
	bubble(t, wheel.Config{Tick: 10 * ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		r.schedule(w, 10*ms, "on-time")
		r.at(15)
		lags(t, w, 0, 0)
		check(t, w.Stats().Overruns == 0, "%d overruns, want 0", w.Stats().Overruns)
		must(w.ScheduleAt(r.start.Add(20*ms), func() { time.Sleep(3 * second) }))
		must(w.ScheduleAt(r.start.Add(120*ms), r.task("late")))
		r.at(4000)
		r.want("on-time@10 late@3020")
		lags(t, w, 2900*ms, 2900*ms)
		check(t, w.Stats().Overruns == 1, "%d overruns, want 1", w.Stats().Overruns)
		r.schedule(w, 10*ms, "on-time")
		r.at(5000)
		lags(t, w, 0, 2900*ms)
		check(t, w.Stats().Overruns == 1, "%d overruns, want 1", w.Stats().Overruns)
	})
}

// A deadline that lay in the past when it was scheduled does not count as the worker's
// lag, and causes no warning.
func TestDeadlinesInThePastAreNoLag(t *testing.T) {
	watched(t, wheel.Config{Tick: 10 * ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		time.Sleep(time.Hour)
		var timer wheel.Timer
		timer.Init(w, none)
		for _, past := range []time.Duration{ms, second, time.Minute} {
			at := time.Now().Add(-past)
			ran := false
			h := must(w.Schedule(time.Hour, none))
			must(w.ScheduleAt(at, func() { ran = true }))
			h.ResetAt(at)
			must(timer.ArmAt(at))
			pass(10 * ms)
			check(t, ran && h.State() == timeout.Expired && timer.State() == timeout.Expired,
				"what is due since %v has not run within a tick", past)
			s := w.Stats()
			check(t, s.WorstLag <= 10*ms, "after a deadline %v in the past the worst lag is %v", past, s.WorstLag)
			time.Sleep(second)
		}
		log.says(t, "", 0)
	})
}

// A pause of the whole process, or of the clock's reader, is the same to the
// wheel: here the worker is held for hours, and catches up in a moment.
func TestPausesOfAnyLength(t *testing.T) {
	for _, pause := range []time.Duration{ms, second, time.Hour, 100 * 24 * time.Hour} {
		bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
			r := newRecord(t)
			must(w.Schedule(10*ms, func() { time.Sleep(pause) }))
			after := 10 + pause.Milliseconds()
			h := must(w.Schedule(pause+second, r.task("after")))
			if pause >= second {
				r.schedule(w, pause/2, "within")
			}
			due := h.Deadline()
			pass(pause + 2*second)
			want := []string{}
			if pause >= second {
				want = append(want, fmt.Sprint("within@", after))
			}
			want = append(want, fmt.Sprint("after@", due.Sub(r.start).Milliseconds()))
			check(t, slices.Equal(r.runs, want), "after a pause of %v: ran %v, want %v", pause, r.runs, want)
		})
	}
}

// Due tasks run in the order of the deadlines even while the worker is late and
// goroutines schedule all the time. The test counts those that were scheduled before
// their deadline and yet ran after a deadline that is more than a tick later.
func TestLateWorkerKeepsTheOrder(t *testing.T) {
	const tick = 100 * time.Microsecond
	w := start(t, wheel.Config{Tick: tick})
	began := time.Now()
	var last time.Duration // the latest deadline that has run; the worker's
	var ran, disorder int
	var worst time.Duration
	crowd(t, 4, func(_ int, rnd *rand.Rand) {
		for time.Since(began) < 700*ms {
			var inTime atomic.Bool
			at := time.Now().Add(time.Duration(rnd.Int64N(int64(5 * ms))))
			deadline := at.Sub(began)
			must(w.ScheduleAt(at, func() {
				ran++
				if behind := last - deadline; behind > tick && inTime.Load() {
					disorder++
					worst = max(worst, behind)
				}
				last = max(last, deadline)
			}))
			inTime.Store(time.Now().Before(at))
		}
	})
	settled(t, w)
	w.Stop()
	check(t, disorder == 0, "%d of %d ran out of order, by up to %v", disorder, ran, worst)
}
