package renewal

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// obliging renews everything, at no cost.
type obliging struct{}

func (obliging) Group(string, any) string { return "" }
func (obliging) Renew(_ context.Context, items []Item) {
	for i := range items {
		items[i].Outcome = Renewed
	}
}

// BenchmarkRenewal measures the watchdog's cost of a renewal, from the calendar to the
// batch and back, with a store that answers at no cost: leases of 30 s, on a clock that
// is set ahead from slot to slot. An operation is a slot; ns/renewal is the figure. It
// also reports the heap for a lease, without the bytes of its key and owner, the
// goroutines for all of them, and the leases in a batch.
func BenchmarkRenewal(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint("leases=", n), func(b *testing.B) {
			keys := make([]string, n)
			for i := range keys {
				keys[i] = "key:" + strconv.Itoa(i)
			}
			leases := make([]*Lease, n)
			heap, goroutines := heapInUse(), runtime.NumGoroutine()
			w, err := assemble(obliging{}, Config{}, new(clock))
			require.NoError(b, err)
			defer func() { w.wheel.Stop() }()
			for i, key := range keys {
				leases[i], err = w.Watch(Spec{Key: key, Owner: "owner", TTL: 30 * time.Second, Granted: time.Now()})
				require.NoError(b, err)
			}
			for range 1000 { // the first interval, in which they spread
				w.slot()
			}
			heap, goroutines = heapInUse()-heap, runtime.NumGoroutine()-goroutines
			before := w.stats
			b.ReportAllocs()
			for b.Loop() {
				w.slot()
			}
			renewed := float64(w.stats.Renewed - before.Renewed)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/renewed, "ns/renewal")
			b.ReportMetric(renewed/float64(w.stats.Batches-before.Batches), "leases/batch")
			b.ReportMetric(float64(heap)/float64(n), "B/lease")
			b.ReportMetric(float64(goroutines), "goroutines")
			runtime.KeepAlive(leases)
		})
	}
}

// slot sets the clock ahead by a slot and does all work that is due then.
func (w *Watchdog) slot() {
	w.clock.slept.Add(int64(w.calendar.width))
	quiet := make(chan struct{})
	w.mu.Lock()
	w.collectDue()
	w.send(w.dispatch(w.clock.now()))
	if w.running == 0 {
		close(quiet)
	} else {
		w.quiet = quiet
	}
	w.mu.Unlock()
	<-quiet
}

// heapInUse returns the size of the heap after a collection.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkWatch measures a lease that is acquired and released, as most locks are, long
// before its renewal is due.
func BenchmarkWatch(b *testing.B) {
	w, err := New(obliging{}, Config{})
	require.NoError(b, err)
	defer w.Close(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		l, err := w.Watch(Spec{Key: "key", Owner: "owner", TTL: 30 * time.Second, Granted: time.Now()})
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Stop(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkValid measures the check that a holder makes before it writes.
func BenchmarkValid(b *testing.B) {
	w, err := New(obliging{}, Config{})
	require.NoError(b, err)
	defer w.Close(context.Background())
	l, err := w.Watch(Spec{Key: "key", Owner: "owner", TTL: time.Hour, Granted: time.Now()})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if !l.Valid() {
			b.Fatal(l.Err())
		}
	}
}
