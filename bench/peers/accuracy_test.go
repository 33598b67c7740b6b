package peers

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/wheel"
)

// BenchmarkEarly schedules 10,000 timeouts of random delays and counts those
// that run before their deadline.
func BenchmarkEarly(b *testing.B) {
	each(b, func(b *testing.B, i impl) {
		lateness(b, i.column(defaultTick), bench.Plan{
			Timeouts: 10_000, MinDelay: 10 * time.Millisecond, MaxDelay: 2 * time.Second, Seed: 1,
		})
	})
}

// BenchmarkLateness measures the wheel beside the runtime, and the peers that support ticks
// of a millisecond, on an idle machine and with every core busy.
func BenchmarkLateness(b *testing.B) {
	for _, load := range []bench.Load{bench.Idle, bench.Busy} {
		for _, tick := range []time.Duration{time.Millisecond, defaultTick} {
			for _, c := range latenessColumns(tick) {
				b.Run(fmt.Sprintf("impl=%s/tick=%v/load=%v", c.Name, tick, load), func(b *testing.B) {
					lateness(b, c, bench.Plan{
						Timeouts: 10_000, MinDelay: time.Millisecond, MaxDelay: 2 * time.Second, Load: load, Seed: 1,
					})
				})
			}
		}
	}
}

func latenessColumns(tick time.Duration) []bench.Column {
	precise := bench.Wheel(wheel.Config{Tick: tick, Buckets: buckets, Precise: true, Logger: discard})
	precise.Name = "wheel-precise"
	columns := []bench.Column{precise}
	for _, i := range impls {
		if i.tick(tick) == tick {
			columns = append(columns, i.column(tick))
		}
	}
	return columns
}

func lateness(b *testing.B, c bench.Column, p bench.Plan) {
	for b.Loop() {
		r, err := bench.Measure(b.Context(), c, p, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(r.Early), "early")
		b.ReportMetric(float64(r.Lost), "lost")
		b.ReportMetric(float64(r.Lateness.Percentile(50)), "p50-ns")
		b.ReportMetric(float64(r.Lateness.Percentile(99)), "p99-ns")
		b.ReportMetric(float64(r.Lateness.Max()), "max-ns")
		b.ReportMetric(0, "ns/op")
	}
}
