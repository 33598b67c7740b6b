package peers

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkBurst has a million timeouts come due at one instant,
// BenchmarkSpread within a second. Measured from that instant on: CPU time of
// the process for all of them, how long after its deadline the last task ran,
// and how many goroutines there were at once.
func BenchmarkBurst(b *testing.B) {
	each(b, func(b *testing.B, i impl) { i.burst(b, million, 0) })
}

func BenchmarkSpread(b *testing.B) {
	each(b, func(b *testing.B, i impl) { i.burst(b, million, time.Second) })
}

// leads are the times allowed for scheduling a million timeouts: the first suffices for all
// but the slowest on an idle machine.
var leads = []time.Duration{4 * time.Second, 12 * time.Second, 36 * time.Second}

func (o of[H]) burst(b *testing.B, count int, spread time.Duration) {
	for b.Loop() {
		var r burstResult
		scheduled := false
		for _, lead := range leads {
			if r, scheduled = o.burstOnce(b, count, spread, lead); scheduled {
				break
			}
		}
		if !scheduled {
			b.Fatalf("%d timeouts cannot be scheduled in %v", count, leads[len(leads)-1])
		}
		b.ReportMetric(float64(r.cpu), "cpu-ns/burst")
		b.ReportMetric(float64(r.last), "last-late-ns")
		b.ReportMetric(float64(r.goroutines), "goroutines")
		b.ReportMetric(0, "ns/op") // mostly the waiting before the burst
	}
}

// A burstResult has the figures of one burst.
type burstResult struct {
	cpu, last  time.Duration
	goroutines int64
}

// burstOnce is one burst, lead from now; scheduled is false if that time was too short.
func (o of[H]) burstOnce(b *testing.B, count int, spread, lead time.Duration) (r burstResult, scheduled bool) {
	t := o.open(o.tick(defaultTick))
	defer t.close()
	var ran, peak atomic.Int64
	finished := make(chan time.Time, 1)
	task := func() {
		n := ran.Add(1)
		if n%4096 == 0 {
			raise(&peak, int64(runtime.NumGoroutine()))
		}
		if n == int64(count) {
			finished <- time.Now()
		}
	}
	due := time.Now().Add(lead)
	for i := range count {
		left := time.Until(due)
		if left < lead/4 {
			return r, false
		}
		t.schedule(left+spread*time.Duration(i)/time.Duration(count), task)
	}
	runtime.GC()
	time.Sleep(time.Until(due) - lead/16)
	before := usage(b)
	last := <-finished
	// Wait for tasks that have not returned, and for the wheel's work after the last task.
	time.Sleep(settling)
	r.cpu = usage(b).Since(before).CPU
	r.last = last.Sub(due.Add(spread))
	r.goroutines = peak.Load()
	return r, true
}

// raise stores v if it is greater than the stored value.
func raise(greatest *atomic.Int64, v int64) {
	for {
		old := greatest.Load()
		if v <= old || greatest.CompareAndSwap(old, v) {
			return
		}
	}
}

// BenchmarkSelfRearm has 100,000 timeouts of three seconds arm themselves again
// from their own tasks, as the renewals of leases do.
func BenchmarkSelfRearm(b *testing.B) {
	eachThat(b, impl.canRearm, func(b *testing.B, i impl) {
		for _, tick := range distinct(i.tick(defaultTick), i.tick(100*time.Millisecond)) {
			b.Run("tick="+tick.String(), func(b *testing.B) { i.selfRearm(b, 100_000, 3*time.Second, tick) })
		}
	})
}

func (o of[H]) selfRearm(b *testing.B, count int, period, tick time.Duration) {
	t := o.open(tick)
	var closed atomic.Bool
	var fired atomic.Int64
	again := func() bool {
		fired.Add(1)
		return !closed.Load()
	}
	for i := range count {
		first := period * time.Duration(i+1) / time.Duration(count)
		if o.rearm != nil {
			o.rearm(t, first, period, again)
			continue
		}
		var task func()
		task = func() {
			if again() {
				t.schedule(period, task)
			}
		}
		t.schedule(first, task)
	}
	time.Sleep(period + settling)
	for b.Loop() {
		before, firedBefore, began := usage(b), fired.Load(), time.Now()
		time.Sleep(period)
		used, n, took := usage(b).Since(before).CPU, fired.Load()-firedBefore, time.Since(began)
		b.ReportMetric(float64(used)/float64(n), "cpu-ns/fire")
		b.ReportMetric(100*float64(used)/float64(took), "%core")
		b.ReportMetric(0, "ns/op")
	}
	closed.Store(true)
	time.Sleep(settling) // no task may run on closed timers
	t.close()
}
