package wheel_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// counts compares the numbers that count timeouts.
func counts(t *testing.T, w *wheel.Wheel, what string, want wheel.Stats) {
	t.Helper()
	synctest.Wait()
	got := w.Stats()
	got.LastLag, got.WorstLag, got.Overruns = 0, 0, 0
	check(t, got == want, "%s: the numbers are\n%+v, want\n%+v", what, got, want)
}

// Every possible outcome of a timeout, and its counters.
func TestStats(t *testing.T) {
	type step struct {
		what string
		pass time.Duration // after do
		do   func(w *wheel.Wheel)
		want wheel.Stats
	}
	var a, again, every timeout.Timeout
	var timer wheel.Timer
	full := wheel.Config{Tick: ms, MaxPending: 2}
	type story struct {
		config wheel.Config
		steps  []step
	}
	each(t, map[string]story{
		"one-shot": {full, []step{
			{"new", 0, func(*wheel.Wheel) {}, wheel.Stats{}},
			{"scheduled", 0, func(w *wheel.Wheel) { a = must(w.Schedule(10*ms, none)) }, wheel.Stats{Scheduled: 1, Pending: 1}},
			{"reset", 0, func(*wheel.Wheel) { a.Reset(20 * ms); a.Reset(5 * ms) }, wheel.Stats{Scheduled: 1, Pending: 1}},
			{"scheduled at", 0, func(w *wheel.Wheel) { must(scheduleAt(w, time.Hour, none)) }, wheel.Stats{Scheduled: 2, Pending: 2}},
			{"refused as full", 5 * ms, func(w *wheel.Wheel) { refuses(t, w, wheel.ErrFull) }, wheel.Stats{Scheduled: 2, Fired: 1, Pending: 1}},
			{"cancelled after it has run", 0, func(*wheel.Wheel) { a.Cancel(); a.Reset(ms) }, wheel.Stats{Scheduled: 2, Fired: 1, Pending: 1}},
			{"cancelled twice", 0, func(w *wheel.Wheel) { a = must(w.Schedule(10*ms, none)); a.Cancel(); a.Cancel() },
				wheel.Stats{Scheduled: 3, Fired: 1, Cancelled: 1, Pending: 1}},
			{"panicked", ms, func(w *wheel.Wheel) { must(w.Schedule(ms, func() { panic("bug") })) },
				wheel.Stats{Scheduled: 4, Fired: 2, Cancelled: 1, Panics: 1, Pending: 1}},
			{"stopped", 0, func(w *wheel.Wheel) { w.Stop(); refuses(t, w, wheel.ErrStopped) },
				wheel.Stats{Scheduled: 4, Fired: 2, Cancelled: 2, Panics: 1}},
		}},
		"with the worker": {full, []step{
			{"taken in", 5 * ms, func(w *wheel.Wheel) { a = must(w.Schedule(time.Hour, none)); must(w.Schedule(5*ms, none)) },
				wheel.Stats{Scheduled: 2, Fired: 1, Pending: 1}},
			{"cancelled", 0, func(*wheel.Wheel) { a.Cancel() }, wheel.Stats{Scheduled: 2, Fired: 1, Cancelled: 1}},
			{"reclaimed", second, func(*wheel.Wheel) {}, wheel.Stats{Scheduled: 2, Fired: 1, Cancelled: 1}},
		}},
		"timer": {full, []step{
			{"moved twice", 0, func(w *wheel.Wheel) {
				timer.Init(w, none)
				for range 3 {
					must(timer.Arm(10 * ms))
				}
			}, wheel.Stats{Scheduled: 1, Pending: 1}},
			{"run", 10 * ms, func(*wheel.Wheel) {}, wheel.Stats{Scheduled: 1, Fired: 1}},
			{"armed again and cancelled", 0, func(*wheel.Wheel) { must(timer.Arm(10 * ms)); timer.Cancel() },
				wheel.Stats{Scheduled: 2, Fired: 1, Cancelled: 1}},
		}},
		"coming again": {full, []step{
			{"four times", 10 * ms, func(w *wheel.Wheel) {
				n := 0
				again = must(w.ScheduleFunc(ms, func(h timeout.Timeout) {
					if n++; n < 5 {
						h.Reset(ms)
					}
				}))
			}, wheel.Stats{Scheduled: 5, Fired: 5}},
			{"set again", ms, func(*wheel.Wheel) { again.Reset(ms) }, wheel.Stats{Scheduled: 6, Fired: 6}},
		}},
		"periodic": {full, []step{
			{"begun", 0, func(w *wheel.Wheel) { every = must(w.Every(10*ms, wheel.Skip, none)) }, wheel.Stats{Scheduled: 1, Pending: 1}},
			{"ten periods", 100 * ms, func(*wheel.Wheel) {}, wheel.Stats{Scheduled: 11, Fired: 10, Pending: 1}},
			{"moved", ms, func(*wheel.Wheel) { every.Reset(ms) }, wheel.Stats{Scheduled: 12, Fired: 11, Pending: 1}},
			{"cancelled", 0, func(*wheel.Wheel) { every.Cancel() }, wheel.Stats{Scheduled: 12, Fired: 11, Cancelled: 1}},
		}},
		"refused by the executor": {wheel.Config{Tick: ms, Executor: executor(func(func()) error { return errors.New("no") })}, []step{
			{"two", 30 * ms, func(w *wheel.Wheel) { must(w.Schedule(ms, none)); every = must(w.Every(10*ms, wheel.Skip, none)) },
				wheel.Stats{Scheduled: 5, Fired: 4, Rejected: 4, Pending: 1}},
			{"cancelled", 0, func(*wheel.Wheel) { every.Cancel() }, wheel.Stats{Scheduled: 5, Fired: 4, Cancelled: 1, Rejected: 4}},
		}},
	}, func(t *testing.T, c story) {
		w := start(t, c.config)
		for _, s := range c.steps {
			s.do(w)
			time.Sleep(s.pass)
			counts(t, w, s.what, s.want)
		}
	})
}

// While everything goes on the numbers are never absurd: Pending is not negative, and
// counters never shrink.
func TestStatsInAStorm(t *testing.T) {
	w := start(t, wheel.Config{Tick: ms})
	var over atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		var last wheel.Stats
		for !over.Load() {
			s := w.Stats()
			check(t, s.Pending >= 0 && s.Scheduled >= last.Scheduled && s.Fired >= last.Fired && s.Cancelled >= last.Cancelled && s.WorstLag >= last.WorstLag,
				"the numbers went from %+v to %+v", last, s)
			last = s
		}
	})
	crowd(t, 4, func(_ int, rnd *rand.Rand) {
		var own [10]timeout.Timeout
		for range 20_000 {
			i := rnd.IntN(len(own))
			own[i].Cancel()
			own[i] = must(w.Schedule(time.Duration(rnd.IntN(3))*ms, none))
		}
	})
	over.Store(true)
	all.Wait()
	settled(t, w, nil)
}

// Statistics and lags in a log are groups of plain numbers.
func TestStatsInALog(t *testing.T) {
	var all wheel.Lags
	all.Add(ms)
	all.Add(3 * ms)
	for want, value := range map[string]any{
		"x.pending=1 x.scheduled=2 x.fired=3 x.cancelled=4 x.rejected=5 x.panics=6 x.last_lag=7ns x.worst_lag=1s x.overruns=9\n": wheel.Stats{
			Pending: 1, Scheduled: 2, Fired: 3, Cancelled: 4, Rejected: 5, Panics: 6, LastLag: 7, WorstLag: second, Overruns: 9},
		"x.total=2 x.sum=4ms x.p50=1.024ms x.p99=4.096ms x.max=4.096ms\n": all,
	} {
		var log lines
		log.logger().Info("now", "x", value)
		check(t, strings.HasSuffix(log.String(), want), "logged %q, want %q", log.String(), want)
	}
}
