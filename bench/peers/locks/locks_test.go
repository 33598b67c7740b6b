package locks

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/bench/contention"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Names and lengths of what is measured.
const (
	name   = "bench"
	warmUp = 300 * time.Millisecond
	window = 1500 * time.Millisecond
)

// BenchmarkPairs has goroutines acquire and release locks of their own, 64 each, by
// TCP, as most users do; beside that by a unix socket, and with names that the server
// has never seen.
func BenchmarkPairs(b *testing.B) {
	for _, i := range impls {
		b.Run("impl="+i.name, func(b *testing.B) {
			for _, goroutines := range []int{1, 16, 128} {
				row := fmt.Sprintf("goroutines=%d", goroutines)
				b.Run(row, func(b *testing.B) { i.pairs(b, goroutines, 64, true) })
				b.Run(row+"/names=new", func(b *testing.B) { i.pairs(b, goroutines, 0, true) })
				b.Run(row+"/net=unix", func(b *testing.B) { i.pairs(b, goroutines, 64, false) })
			}
		})
	}
}

func (i impl) pairs(b *testing.B, goroutines, names int, tcp bool) {
	for b.Loop() {
		server := redistest.Start(b, redistest.Config{TCP: tcp})
		locks, err := i.open(server.Options().Addr)
		if err != nil {
			b.Fatal(err)
		}
		calls := i.count(b, server)
		p, err := contention.Pairs{Prefix: name, Goroutines: goroutines, Names: names, WarmUp: warmUp, Window: window}.Measure(b.Context(), locks, calls.edge)
		if err != nil {
			b.Fatal(err)
		}
		if err := locks.Close(); err != nil {
			b.Fatal(err)
		}
		commands, inner := calls.split()
		b.ReportMetric(p.PerSecond(), "pairs/s")
		b.ReportMetric(float64(p.Latency.Percentile(50)), "p50-ns")
		b.ReportMetric(float64(p.Latency.Percentile(99)), "p99-ns")
		b.ReportMetric(float64(p.CPU)/float64(p.Count), "cpu-ns/pair")
		b.ReportMetric(float64(calls.cpu())/float64(p.Count), "server-cpu-ns/pair")
		b.ReportMetric(commands/float64(p.Count), "commands/pair")
		b.ReportMetric(inner/float64(p.Count), "calls/pair")
		calls.budget(b, float64(p.Count), "pair")
		b.ReportMetric(0, "ns/op")
	}
}

// BenchmarkBudget shows what the price of a pair is made of, beside a floor that keeps the same
// promises.
func BenchmarkBudget(b *testing.B) {
	for _, name := range []string{"leasewheel", "promised-redisson", "leasewheel-plain", "promised", "redsync"} {
		i, err := find(name)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("impl="+name, func(b *testing.B) {
			for _, goroutines := range []int{1, 16, 128} {
				b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) { i.pairs(b, goroutines, 64, true) })
			}
		})
	}
}

// A contest is a measurement of hand-overs.
type contest struct {
	waiters, processes int
	hold               time.Duration
	window             time.Duration
}

var contests = []contest{
	{2, 1, 0, window},
	{2, 2, 0, window},
	{16, 1, 0, window},
	{16, 4, 0, window},
	{16, 4, time.Millisecond, window},
	{128, 1, 0, window},
	{128, 4, 0, window},
	// Fairness needs many grants of each waiter.
	{128, 1, time.Millisecond, 3 * window},
	{128, 4, time.Millisecond, 3 * window},
}

// BenchmarkHandOver has waiters contend for one lock.
func BenchmarkHandOver(b *testing.B) {
	for _, i := range impls {
		if i.pairsOnly {
			continue
		}
		b.Run("impl="+i.name, func(b *testing.B) {
			for _, c := range contests {
				b.Run(fmt.Sprintf("waiters=%d/processes=%d/hold=%v", c.waiters, c.processes, c.hold), func(b *testing.B) { i.handOver(b, c) })
			}
		})
	}
}

func (i impl) handOver(b *testing.B, c contest) {
	for b.Loop() {
		server := redistest.Start(b, redistest.Config{TCP: true})
		calls := i.count(b, server)
		h, err := contention.HandOver{
			Name: name, Waiters: c.waiters, Processes: c.processes, Hold: c.hold, WarmUp: warmUp, Window: c.window,
		}.Measure(b.Context(), i.way(server.Options().Addr), calls.edge)
		if err != nil {
			b.Fatal(err)
		}
		commands, inner := calls.split()
		each := max(float64(h.HandOvers), 1)
		b.ReportMetric(h.PerSecond(), "hand-overs/s")
		b.ReportMetric(float64(h.Granted())/h.Elapsed.Seconds(), "grants/s")
		b.ReportMetric(float64(h.Latency.Percentile(50)), "p50-ns")
		b.ReportMetric(float64(h.Latency.Percentile(99)), "p99-ns")
		b.ReportMetric(float64(h.Longest), "longest-wait-ns")
		b.ReportMetric(contention.Jain(h.Grants), "jain")
		b.ReportMetric(float64(h.Overlaps), "overlaps")
		b.ReportMetric(commands/each, "commands/hand-over")
		b.ReportMetric(inner/each, "calls/hand-over")
		b.ReportMetric(float64(calls.cpu())/each, "server-cpu-ns/hand-over")
		b.ReportMetric(0, "ns/op")
	}
}
