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

// pairs is a measurement of acquisitions and releases.
type pairs struct {
	goroutines int
	processes  int // 0: one
	names      int // of each goroutine; 0: a new one for each pair
	unix       bool
	delay      time.Duration // of the network, each way
}

// BenchmarkPairs has goroutines acquire and release locks of their own, 64 each, by
// TCP, as most users do; beside that by a unix socket, and with names that the server
// has never seen.
func BenchmarkPairs(b *testing.B) {
	for _, i := range impls {
		b.Run("impl="+i.name, func(b *testing.B) {
			for _, goroutines := range []int{1, 16, 128} {
				row := fmt.Sprintf("goroutines=%d", goroutines)
				b.Run(row, func(b *testing.B) { i.pairs(b, pairs{goroutines: goroutines, names: 64}) })
				b.Run(row+"/names=new", func(b *testing.B) { i.pairs(b, pairs{goroutines: goroutines}) })
				b.Run(row+"/net=unix", func(b *testing.B) { i.pairs(b, pairs{goroutines: goroutines, names: 64, unix: true}) })
			}
		})
	}
}

// BenchmarkApart divides the goroutines among processes, and puts half a millisecond between the
// clients and the server, each way.
func BenchmarkApart(b *testing.B) {
	for _, name := range []string{"leasewheel", "leasewheel-plain", "redsync", "rueidislock-tuned", "promised-redisson", "grouped", "autopipelined"} {
		i, err := find(name)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("impl="+name, func(b *testing.B) {
			for _, goroutines := range []int{16, 128} {
				for _, processes := range []int{1, 4, 16} {
					b.Run(fmt.Sprintf("goroutines=%d/processes=%d", goroutines, processes), func(b *testing.B) {
						i.pairs(b, pairs{goroutines: goroutines, processes: processes, names: 64})
					})
				}
			}
			for _, goroutines := range []int{1, 16, 128} {
				b.Run(fmt.Sprintf("goroutines=%d/delay=1ms", goroutines), func(b *testing.B) {
					i.pairs(b, pairs{goroutines: goroutines, names: 64, delay: time.Millisecond / 2})
				})
			}
		})
	}
}

func (i impl) pairs(b *testing.B, p pairs) {
	for b.Loop() {
		server := redistest.Start(b, redistest.Config{TCP: !p.unix})
		address := server.Options().Addr
		if p.delay > 0 {
			proxy := redistest.StartProxy(b, server)
			proxy.Set(redistest.Fault{Delay: p.delay})
			address = proxy.Options().Addr
		}
		calls := i.count(b, server)
		m, err := contention.Pairs{
			Prefix: name, Goroutines: p.goroutines, Processes: p.processes, Names: p.names, WarmUp: warmUp, Window: window,
		}.Measure(b.Context(), i.way(address), calls.edge)
		if err != nil {
			b.Fatal(err)
		}
		commands, inner := calls.split()
		each := float64(m.Count)
		b.ReportMetric(m.PerSecond(), "pairs/s")
		b.ReportMetric(float64(m.Latency.Percentile(50)), "p50-ns")
		b.ReportMetric(float64(m.Latency.Percentile(99)), "p99-ns")
		b.ReportMetric(float64(m.CPU)/each, "cpu-ns/pair")
		b.ReportMetric(float64(calls.cpu())/each, "server-cpu-ns/pair")
		b.ReportMetric(commands/each, "commands/pair")
		b.ReportMetric(inner/each, "calls/pair")
		if p.processes <= 1 {
			calls.budget(b, each, "pair")
		}
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
				b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) { i.pairs(b, pairs{goroutines: goroutines, names: 64}) })
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
