package peers

import (
	"log/slog"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/bench"
)

var discard = slog.New(slog.DiscardHandler)

// settling is the time for an implementation's own goroutines to finish their work.
const settling = 2 * defaultTick

// A meter measures the CPU time of the whole process during a benchmark's operations, with
// that of other goroutines.
type meter struct {
	b     *testing.B
	began bench.Usage
	used  bench.Usage
}

// startMeter begins to measure; it resets the benchmark's timer.
func startMeter(b *testing.B) *meter {
	m := &meter{b: b}
	b.ReportAllocs()
	b.ResetTimer()
	m.began = usage(b)
	return m
}

// pause runs a function that does not count. It waits first for the work that earlier
// operations left to other goroutines, which does count as CPU time.
func (m *meter) pause(uncounted func()) {
	m.b.StopTimer()
	m.stop()
	uncounted()
	m.began = usage(m.b)
	m.b.StartTimer()
}

func (m *meter) stop() {
	time.Sleep(settling)
	m.used = sum(m.used, usage(m.b).Since(m.began))
}

// report ends the measurement. It is called after the last operation.
func (m *meter) report() {
	m.b.StopTimer()
	m.stop()
	m.b.ReportMetric(float64(m.used.CPU)/float64(m.b.N), "cpu-ns/op")
}

func usage(b *testing.B) bench.Usage {
	u, ok := bench.ReadUsage()
	if !ok {
		b.Fatal("this system does not tell CPU time")
	}
	return u
}

func sum(a, b bench.Usage) bench.Usage {
	return bench.Usage{CPU: a.CPU + b.CPU, Switches: a.Switches + b.Switches}
}
