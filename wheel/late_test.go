package wheel_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// A task holds the worker, as a pause of the machine would, while many others become due,
// of several revolutions. They run at once afterwards, in the order of their deadlines, and
// later ones come on time. Three of the Go wheels that count ticks are late by the whole
// pause from then on.
func TestLateWorkerCatchesUp(t *testing.T) {
	for _, pause := range []time.Duration{ms, second, 3 * second, time.Hour, 5 * day, 100 * day} {
		for _, buckets := range []int{1, 16, 512, 1 << 14} {
			bubble(t, wheel.Config{Tick: ms, Buckets: buckets}, func(t *testing.T, w *wheel.Wheel) {
				rnd := newRand(t)
				start := time.Now()
				must(w.Schedule(10*ms, func() { time.Sleep(pause) }))
				type run struct{ deadline, at time.Duration }
				var runs []run
				task := func(deadline time.Duration) func() {
					return func() { runs = append(runs, run{deadline, time.Since(start)}) }
				}
				const count = 500
				for range count {
					d := 11*ms + time.Duration(rnd.Int64N(int64(2*pause/ms)))*ms
					h := must(w.ScheduleAt(start.Add(d), none))
					h.Cancel() // its node serves the next
					switch rnd.IntN(3) {
					case 0:
						must(w.ScheduleAt(start.Add(d), task(d)))
					case 1: // from later to d
						must(w.ScheduleAt(start.Add(3*pause+second), task(d))).ResetAt(start.Add(d))
					case 2: // from earlier to d, though that is in the pause
						must(w.ScheduleAt(start.Add(11*ms), task(d))).ResetAt(start.Add(d))
					}
				}
				pass(3*pause + second)
				require(t, len(runs) == count, "%v, %d buckets: %d ran, want %d", pause, buckets, len(runs), count)
				check(t, slices.IsSortedFunc(runs, func(a, b run) int { return cmp.Compare(a.deadline, b.deadline) }),
					"%v, %d buckets: not in the order of the deadlines", pause, buckets)
				late := 0
				for _, r := range runs {
					want := max(r.deadline, 10*ms+pause)
					if want != r.deadline {
						late++
					}
					require(t, r.at == want,
						"%v, %d buckets: a deadline after %v ran after %v, want %v", pause, buckets, r.deadline, r.at, want)
				}
				check(t, pause == ms || late >= count/4 && late <= 3*count/4,
					"%d of %d were late: the test tests one side only", late, count)
			})
		}
	}
}

// Runs that a late worker catches up with come in the order of their deadlines too: between
// one-shot tasks of several batches, some of which others move, and between the runs of other
// periods.
func TestMissedRunsKeepTheOrder(t *testing.T) {
	for _, pause := range []time.Duration{20 * ms, 300 * ms, 5 * second} {
		for _, buckets := range []int{16, 512} {
			bubble(t, wheel.Config{Tick: ms, Buckets: buckets}, func(t *testing.T, w *wheel.Wheel) {
				rnd := newRand(t)
				const begin = 50 * ms
				start := time.Now()
				var ran []time.Duration // the deadlines, in whole ticks
				run := func(deadline time.Duration) {
					ran = append(ran, (deadline + ms - 1).Truncate(ms))
				}
				must(w.Schedule(begin, func() { time.Sleep(pause) }))
				ticks := int(pause / ms)
				const oneShots = 300
				var handles []timeout.Timeout
				moved := map[timeout.Timeout]bool{}
				for range oneShots {
					d := begin + time.Duration(1+rnd.IntN(ticks))*ms
					handles = append(handles, must(w.ScheduleAt(start.Add(d), func() {
						run(d)
						if h := handles[rnd.IntN(oneShots)]; rnd.IntN(4) == 0 && h.Reset(second) { // one that is due, too
							moved[h] = true
						}
					})))
				}
				periodic := 0
				for range 20 {
					period := ms + time.Duration(rnd.IntN(ticks*2))*ms/8
					d := begin + ms
					must(w.EveryFunc(start.Add(d), period, wheel.CatchUp, func(h timeout.Timeout) {
						run(d)
						if d += period; d > begin+pause {
							h.Cancel()
						}
					}))
					periodic += 1 + int((pause-ms)/period)
				}
				pass(begin + pause + ms/2)
				want := oneShots - len(moved) + periodic
				check(t, len(ran) == want, "%v, %d buckets: %d ran, want %d", pause, buckets, len(ran), want)
				check(t, slices.IsSorted(ran), "%v, %d buckets: they ran in the order %v", pause, buckets, ran)
				w.Drain()
				time.Sleep(second)
			})
		}
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
		for range 4000 {
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
	settled(t, w, nil)
	w.Stop()
	check(t, disorder == 0, "%d of %d ran out of order, by up to %v", disorder, ran, worst)
}
