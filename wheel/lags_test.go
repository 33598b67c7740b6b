package wheel_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// A lag is counted in the first bucket whose bound it does not exceed.
func TestLagsByBound(t *testing.T) {
	var lags wheel.Lags
	last := len(lags.Counts) - 1
	check(t, wheel.LagBound(0) == 64*time.Microsecond && wheel.LagBound(last-1) == 4194304*time.Microsecond && wheel.LagBound(last) == math.MaxInt64,
		"the bounds are %v … %v, %v", wheel.LagBound(0), wheel.LagBound(last-1), wheel.LagBound(last))
	for i := range last {
		lags = wheel.Lags{}
		lags.Add(wheel.LagBound(i))
		lags.Add(wheel.LagBound(i) + 1)
		check(t, lags.Counts[i] == 1 && lags.Counts[i+1] == 1, "%v and one nanosecond more are counted as %v", wheel.LagBound(i), lags.Counts)
	}
	lags = wheel.Lags{}
	for _, d := range []time.Duration{-second, 0, 1, math.MaxInt64 / 2} {
		lags.Add(d)
	}
	check(t, lags.Counts[0] == 3 && lags.Counts[last] == 1 && lags.Total() == 4 && lags.Sum == math.MaxInt64/2+1, "counted: %+v", lags)
}

func TestLagsQuantile(t *testing.T) {
	var lags wheel.Lags
	check(t, lags.Quantile(1) == 0, "the maximum of nothing is %v", lags.Quantile(1))
	for range 98 {
		lags.Add(ms)
	}
	lags.Add(10 * ms)
	lags.Add(100 * ms)
	for _, test := range []struct {
		q     float64
		bound time.Duration
	}{
		{-1, 1024 * time.Microsecond},
		{0.98, 1024 * time.Microsecond},
		{0.981, 16384 * time.Microsecond},
		{0.99, 16384 * time.Microsecond},
		{0.991, 131072 * time.Microsecond},
		{2, 131072 * time.Microsecond},
	} {
		check(t, lags.Quantile(test.q) == test.bound, "quantile %v is %v, want %v", test.q, lags.Quantile(test.q), test.bound)
	}
}

// Every batch of tasks is one lag, from the tick that it was due at to its start. LastLag is
// that of the last batch, WorstLag the longest. Each lag is taken once, and taking changes
// nothing for other readers. A hold of the worker beyond a tick is an overrun; both it and a
// lag of more than ten ticks are warned of, with their durations.
func TestLags(t *testing.T) {
	watched(t, wheel.Config{Tick: 10 * ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		compare := func(what string, got wheel.Lags, delays ...time.Duration) {
			t.Helper()
			var want wheel.Lags
			for _, d := range delays {
				want.Add(d)
			}
			check(t, got == want, "%s: the lags are\n%+v, want\n%+v", what, got, want)
		}
		compare("new", w.Lags())
		var all []time.Duration
		for _, c := range []struct {
			hold, last, worst time.Duration
			overruns          uint64
			overrun, backlog  int // lines of the log
		}{
			{0, 0, 0, 0, 0, 0},
			{10 * ms, 0, 0, 0, 0, 0},
			{10*ms + 1, 1, 1, 1, 1, 0},
			{110 * ms, 100 * ms, 100 * ms, 2, 2, 0}, // ten ticks are no backlog
			{31 * ms, 21 * ms, 100 * ms, 3, 3, 0},
			{110*ms + 1, 100*ms + 1, 100*ms + 1, 4, 4, 1},
			{3 * second, 2990 * ms, 2990 * ms, 5, 5, 2},
			{0, 0, 2990 * ms, 5, 5, 2},
		} {
			before := w.Lags()
			must(w.Schedule(10*ms, func() { time.Sleep(c.hold) }))
			must(w.Schedule(20*ms, none))
			far := must(w.Schedule(time.Hour, none))
			pass(2 * time.Minute)
			far.Cancel()
			pass(ms)
			all = append(all, 0, c.last)
			compare("since a reading", w.Lags().Since(before), 0, c.last)
			compare("since the start", w.Lags(), all...)
			if len(all)%4 == 0 { // every second time
				compare("taken", w.TakeLags(), all[len(all)-4:]...)
				compare("taken again", w.TakeLags())
			}
			s := w.Stats()
			check(t, s.LastLag == c.last && s.WorstLag == c.worst && s.Overruns == c.overruns, "held for %v: the numbers are %+v", c.hold, s)
			log.says(t, saysOverrun, c.overrun)
			log.says(t, saysBacklog, c.backlog)
		}
		log.says(t, "held=10.000001ms", 1)
		log.says(t, "lag=100.000001ms", 1)
	})
}

// A batch is a lag and, if it holds the worker, an overrun also if a task ends it badly, or cancels
// or moves the first timeouts of the batch behind its own.
func TestLagsOfBatchesThatAreDisturbed(t *testing.T) {
	const tasks = 100 // two batches
	disturb := map[string]func([]timeout.Timeout){
		"cancel": func(next []timeout.Timeout) { next[0].Cancel(); next[1].Cancel() },
		"move":   func(next []timeout.Timeout) { next[0].Reset(time.Hour); next[1].Reset(time.Hour) },
	}
	for name, end := range endings {
		disturb[name] = func([]timeout.Timeout) { end() }
	}
	each(t, disturb, func(t *testing.T, disturb func([]timeout.Timeout)) {
		w := start(t, wheel.Config{Tick: ms})
		handles := make([]timeout.Timeout, tasks)
		for i := range handles {
			handles[i] = wheel.InOrder(w, 10*ms, func() {
				if i == 0 {
					time.Sleep(second)
					disturb(handles[64:])
				}
			})
		}
		pass(2 * second)
		var want wheel.Lags
		want.Add(0)
		want.Add(second)
		s := w.Stats()
		check(t, w.Lags() == want && s.LastLag == second && s.WorstLag == second && s.Overruns == 1,
			"the numbers are %+v, the lags %+v", s, w.Lags())
	})
}

// Concurrent calls of TakeLags share the batches: none is missing, none is returned twice.
func TestTakeLagsInAStorm(t *testing.T) {
	w := start(t, wheel.Config{Tick: ms})
	var mu sync.Mutex
	var taken wheel.Lags // guarded by mu
	take := func() {
		lags := w.TakeLags()
		mu.Lock()
		defer mu.Unlock()
		for i, n := range lags.Counts {
			taken.Counts[i] += n
		}
		taken.Sum += lags.Sum
	}
	for i := range 200 {
		must(w.Schedule(time.Duration(i%50)*ms, none))
	}
	crowd(t, 4, func(int, *rand.Rand) {
		for w.Stats().Pending > 0 {
			take()
		}
	})
	w.Stop() // the worker counts nothing afterwards
	take()
	check(t, taken == w.Lags() && taken.Total() > 0, "taken were\n%+v of\n%+v", taken, w.Lags())
}

// Periodic tasks that are due together share batches, on time and late: the clock is read, and a
// lag is counted, for 64 of them. With CatchUp a late one ends its batch, as its next run may
// come before the others.
func TestPeriodicTasksShareBatches(t *testing.T) {
	each(t, policies, func(t *testing.T, missed wheel.Missed) {
		w := start(t, wheel.Config{Tick: ms})
		must(w.Schedule(15*ms, func() { time.Sleep(20 * ms) }))
		for range 64 {
			must(w.Every(10*ms, missed, none))
		}
		pass(12 * ms)
		n := w.Lags().Total()
		check(t, n == 1, "64 runs on time are %d batches", n)
		pass(25 * ms) // those of tick 20, 30 are missed meanwhile
		n = w.Lags().Total()
		check(t, n == 3 || missed == wheel.CatchUp, "then, with 64 late runs, there are %d batches, want 3", n)
	})
}
