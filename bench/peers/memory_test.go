package peers

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

// BenchmarkMemory measures the heap of a pending timeout without its handle: bytes and
// objects.
func BenchmarkMemory(b *testing.B) {
	each(b, func(b *testing.B, i impl) { i.memory(b, million) })
}

// BenchmarkCollect is one garbage collection with a million timeouts pending, without their
// handles: gc-ns/op is the collector's CPU time as the
// runtime accounts for it, cpu-ns/op that of the whole process.
func BenchmarkCollect(b *testing.B) {
	each(b, func(b *testing.B, i impl) { i.collect(b, million) })
	b.Run("impl=none", func(b *testing.B) { collect(b) })
}

func (o of[H]) memory(b *testing.B, pending int) {
	for b.Loop() {
		t := o.open(o.tick(defaultTick))
		handles := make([]H, pending)
		before := heap()
		for i := range handles {
			handles[i] = t.schedule(delay(i), nothing)
		}
		time.Sleep(settling)
		after := heap()
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(pending), "B/timeout")
		b.ReportMetric(float64(after.HeapObjects-before.HeapObjects)/float64(pending), "objects/timeout")
		for _, h := range handles[:min(pending, o.most())] {
			t.cancel(h)
		}
		t.close()
	}
}

// heap returns the live bytes and objects on the heap.
func heap() (stats runtime.MemStats) {
	// The first collection may find what the second can free.
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats
}

func (o of[H]) collect(b *testing.B, pending int) {
	t := o.open(o.tick(defaultTick))
	defer t.close()
	for i := range pending {
		t.schedule(delay(i), nothing)
	}
	time.Sleep(settling)
	collect(b)
	runtime.KeepAlive(t)
}

func collect(b *testing.B) {
	runtime.GC()
	m := startMeter(b)
	before := gcSeconds()
	for b.Loop() {
		runtime.GC()
	}
	b.ReportMetric((gcSeconds()-before)*1e9/float64(b.N), "gc-ns/op")
	m.report()
}

// gcSeconds is the CPU time that the collector has used so far.
func gcSeconds() float64 {
	sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64()
}
