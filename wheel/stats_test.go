package wheel_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
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
func TestStatsOfOneShotTasks(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 2}, func(t *testing.T, w *wheel.Wheel) {
		counts(t, w, "new", wheel.Stats{})
		a := must(w.Schedule(10*ms, none))
		counts(t, w, "scheduled", wheel.Stats{Scheduled: 1, Pending: 1})
		a.Reset(20 * ms)
		a.Reset(5 * ms)
		counts(t, w, "reset", wheel.Stats{Scheduled: 1, Pending: 1})
		must(w.ScheduleAt(time.Now().Add(time.Hour), none))
		counts(t, w, "scheduled at", wheel.Stats{Scheduled: 2, Pending: 2})
		refuses(t, w, wheel.ErrFull)
		counts(t, w, "refused as full", wheel.Stats{Scheduled: 2, Pending: 2})
		time.Sleep(5 * ms)
		counts(t, w, "run", wheel.Stats{Scheduled: 2, Fired: 1, Pending: 1})
		a.Cancel()
		a.Reset(ms)
		counts(t, w, "cancelled after it has run", wheel.Stats{Scheduled: 2, Fired: 1, Pending: 1})
		b := must(w.Schedule(10*ms, none))
		b.Cancel()
		b.Cancel()
		counts(t, w, "cancelled twice", wheel.Stats{Scheduled: 3, Fired: 1, Cancelled: 1, Pending: 1})
		must(w.Schedule(ms, func() { panic("bug") }))
		time.Sleep(ms)
		counts(t, w, "panicked", wheel.Stats{Scheduled: 4, Fired: 2, Cancelled: 1, Panics: 1, Pending: 1})
		w.Stop()
		counts(t, w, "stopped", wheel.Stats{Scheduled: 4, Fired: 2, Cancelled: 2, Panics: 1})
		refuses(t, w, wheel.ErrStopped)
		counts(t, w, "refused as stopped", wheel.Stats{Scheduled: 4, Fired: 2, Cancelled: 2, Panics: 1})
	})
}

// The same for cancels that reach the worker, in and out of the batch.
func TestStatsOfWhatTheWorkerHas(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		var batch []timeout.Timeout
		for range 4 {
			batch = append(batch, must(w.Schedule(10*ms, func() {
				for i, h := range batch[1:] { // whichever is first
					if i == 0 {
						h.Reset(time.Hour)
					} else {
						h.Cancel()
					}
				}
			})))
		}
		far := must(w.Schedule(time.Hour, none))
		must(w.Schedule(5*ms, none))
		time.Sleep(5 * ms)
		counts(t, w, "taken in", wheel.Stats{Scheduled: 6, Fired: 1, Pending: 5})
		far.Cancel()
		counts(t, w, "cancelled with the worker", wheel.Stats{Scheduled: 6, Fired: 1, Cancelled: 1, Pending: 4})
		pass(5 * ms)
		s := w.Stats()
		check(t, s.Scheduled == 6 && s.Scheduled == s.Fired+s.Cancelled+uint64(s.Pending), "the numbers are %+v", s)
	})
}

func TestStatsOfTimersAndTasksThatComeAgain(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		var timer wheel.Timer
		timer.Init(w, none)
		for range 3 {
			must(timer.Arm(10 * ms)) // moved twice
		}
		counts(t, w, "armed", wheel.Stats{Scheduled: 1, Pending: 1})
		time.Sleep(10 * ms)
		counts(t, w, "run", wheel.Stats{Scheduled: 1, Fired: 1})
		must(timer.Arm(10 * ms))
		timer.Cancel()
		counts(t, w, "armed again and cancelled", wheel.Stats{Scheduled: 2, Fired: 1, Cancelled: 1})

		n := 0
		must(w.ScheduleFunc(ms, func(h timeout.Timeout) {
			if n++; n < 5 {
				h.Reset(ms)
			}
		}))
		time.Sleep(10 * ms)
		counts(t, w, "came again four times", wheel.Stats{Scheduled: 7, Fired: 6, Cancelled: 1})

		every := must(w.Every(10*ms, wheel.Skip, func() {}))
		counts(t, w, "every", wheel.Stats{Scheduled: 8, Fired: 6, Cancelled: 1, Pending: 1})
		time.Sleep(100 * ms)
		counts(t, w, "ten periods", wheel.Stats{Scheduled: 18, Fired: 16, Cancelled: 1, Pending: 1})
		every.Reset(ms)
		time.Sleep(ms)
		counts(t, w, "moved", wheel.Stats{Scheduled: 19, Fired: 17, Cancelled: 1, Pending: 1})
		every.Cancel()
		counts(t, w, "no more", wheel.Stats{Scheduled: 19, Fired: 17, Cancelled: 2})
	})
}

func TestStatsOfRefusals(t *testing.T) {
	no := executor(func(func()) error { return errors.New("no") })
	bubble(t, wheel.Config{Tick: ms, Executor: no}, func(t *testing.T, w *wheel.Wheel) {
		must(w.Schedule(ms, none))
		every := must(w.Every(10*ms, wheel.Skip, func() {}))
		time.Sleep(30 * ms)
		counts(t, w, "refused", wheel.Stats{Scheduled: 5, Fired: 4, Rejected: 4, Pending: 1})
		every.Cancel()
	})
}

// While everything goes on the numbers are never absurd: Pending is not negative, and
// counters never shrink.
func TestStatsInAStorm(t *testing.T) {
	w := start(t, wheel.Config{Tick: ms})
	const goroutines, held = 4, 10
	var storm sync.WaitGroup
	stop := make(chan struct{})
	for range goroutines {
		storm.Go(func() {
			var own [held]timeout.Timeout
			for {
				select {
				case <-stop:
					return
				default:
				}
				i := rand.IntN(held)
				own[i].Cancel()
				own[i] = must(w.Schedule(time.Duration(rand.IntN(3))*ms, none))
			}
		})
	}
	var last wheel.Stats
	for end := time.Now().Add(200 * ms); time.Now().Before(end); {
		s := w.Stats()
		require(t, s.Pending >= 0 && s.Scheduled >= last.Scheduled && s.Fired >= last.Fired && s.Cancelled >= last.Cancelled && s.WorstLag >= last.WorstLag,
			"the numbers went from %+v to %+v", last, s)
		last = s
	}
	close(stop)
	storm.Wait()
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
