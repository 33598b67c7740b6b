package exporter

import (
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// Histogram is the distribution of values that wheels and watchdogs count themselves.
type Histogram struct {
	Bounds []float64 // of each bucket but the last, which has none
	Counts []uint64  // of each bucket
	Count  uint64
	Sum    float64
}

// The histograms of each kind of statistics.
var (
	HistogramsOfWatchdogs = []Metric[renewal.Stats, Histogram]{
		{Description{"leasewheel.renewal.lag", "s", "Time from when a renewal is due to its request.", Histograms}, func(s renewal.Stats) Histogram { return ofLags(s.Lags) }},
		{Description{"leasewheel.renewal.remaining_ratio", "1", "Part of a lease's time that was left when its renewal was confirmed.", Histograms}, remaining},
		{Description{"leasewheel.renewal.request_leases", "{lease}", "Leases in one renewal request.", Histograms}, requestLeases},
	}
	HistogramsOfWheels = []Metric[WheelStats, Histogram]{
		{Description{"leasewheel.wheel.lag", "s", "Time from the tick at which a batch of tasks is due to its start.", Histograms}, func(s WheelStats) Histogram { return ofLags(s.Lags) }},
	}
)

// The histograms of waits and holds, which exporters count, and their bounds in seconds.
var (
	Waits = Description{"leasewheel.lock.wait", "s", "Time from the call of an acquisition to its result.", Histograms}
	Holds = Description{"leasewheel.lock.hold", "s", "Time from a grant to its last unlock, or to its loss.", Histograms}

	WaitBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	HoldBounds = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 600, 3600}
)

func ofLags(lags wheel.Lags) Histogram {
	h := Histogram{Counts: lags.Counts[:], Count: lags.Total(), Sum: lags.Sum.Seconds()}
	for i := range len(lags.Counts) - 1 {
		h.Bounds = append(h.Bounds, wheel.LagBound(i).Seconds())
	}
	return h
}

func remaining(s renewal.Stats) Histogram {
	return bounded(s.Remaining[:], func(i int) float64 { return float64(i+1) / 10 }, s.Renewed, s.RemainingSum)
}

func requestLeases(s renewal.Stats) Histogram {
	return bounded(s.Sizes[:], func(i int) float64 { return float64(int(1) << i) }, s.Batches, float64(s.Sent))
}

// bounded returns a histogram of which no value is above the last bound.
func bounded(counts []int64, bound func(i int) float64, count int64, sum float64) Histogram {
	h := Histogram{Count: uint64(count), Sum: sum}
	for i, n := range counts {
		h.Bounds, h.Counts = append(h.Bounds, bound(i)), append(h.Counts, uint64(n))
	}
	h.Counts = append(h.Counts, 0)
	return h
}
