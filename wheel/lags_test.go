package wheel_test

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// Every batch of tasks is one lag, from the tick that it was due at to its start. Each lag
// is taken once, and taking changes nothing for other readers.
func TestLags(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		behind := func(d time.Duration) {
			must(w.Schedule(ms, func() { time.Sleep(ms + d) }))
			must(w.Schedule(2*ms, none))
			time.Sleep(second)
			synctest.Wait()
		}
		want := func(what string, got wheel.Lags, delays ...time.Duration) {
			t.Helper()
			var want wheel.Lags
			for _, d := range delays {
				want.Add(d)
			}
			check(t, got == want, "%s: the lags are\n%+v, want\n%+v", what, got, want)
		}
		want("new", w.Lags())
		behind(50 * ms)
		want("read", w.Lags(), 0, 50*ms)
		want("taken", w.TakeLags(), 0, 50*ms)
		want("taken again", w.TakeLags())
		before := w.Lags()
		behind(3 * ms)
		want("since a reading", w.Lags().Since(before), 0, 3*ms)
		want("since the start", w.Lags(), 0, 50*ms, 0, 3*ms)
		want("taken since", w.TakeLags(), 0, 3*ms)
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
	var ran, takers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		takers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					take()
				}
			}
		})
	}
	for i := range 200 {
		ran.Add(1)
		must(w.Schedule(time.Duration(i%50)*ms, ran.Done))
	}
	ran.Wait()
	close(stop)
	takers.Wait()
	w.Stop() // the worker counts nothing afterwards
	take()
	check(t, taken == w.Lags() && taken.Total() > 0, "taken were\n%+v of\n%+v", taken, w.Lags())
}

func TestLagsInALog(t *testing.T) {
	var log bytes.Buffer
	var lags wheel.Lags
	lags.Add(ms)
	lags.Add(3 * ms)
	slog.New(slog.NewTextHandler(&log, nil)).Info("now", "lags", lags)
	const want = "lags.total=2 lags.sum=4ms lags.p50=1.024ms lags.p99=4.096ms lags.max=4.096ms\n"
	if !strings.HasSuffix(log.String(), want) {
		t.Errorf("logged %q", log.String())
	}
}
