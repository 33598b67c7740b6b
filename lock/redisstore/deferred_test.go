package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Functions wait for locks that another process holds, without a goroutine each, and each
// runs once when the locks are released.
func TestManyAreDeferred(t *testing.T) {
	t.Parallel()
	many := deferral{functions: 1_000, names: 50}
	many.run(t)
	many.check(t)
}

// Run it with
//
//	go test -run '^$' -bench Deferred -benchtime 1x ./lock/redisstore
func BenchmarkDeferred(b *testing.B) {
	for _, many := range []deferral{
		{functions: 100_000, names: 1_000},
		{functions: 100_000, names: 1_000, passes: 100},
		{functions: 100_000, names: 10},
		{functions: 100_000, names: 100_000},
	} {
		b.Run(fmt.Sprintf("functions=%d/names=%d/passes=%d", many.functions, many.names, many.passes), func(b *testing.B) {
			for b.Loop() {
				many.run(b)
				many.check(b)
			}
			b.ReportMetric(float64(many.goroutines), "goroutines-waiting")
			b.ReportMetric(float64(many.most), "goroutines-most")
			b.ReportMetric(many.bytes, "B/waiting")
			b.ReportMetric(many.accepting.Seconds(), "s-to-defer")
			b.ReportMetric(many.running.Seconds(), "s-to-run")
			b.ReportMetric(float64(many.functions)/many.running.Seconds(), "functions/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// deferral is the result of a measurement.
type deferral struct {
	functions, names, passes int

	ran                []atomic.Int32 // how often, each function
	out                int32          // functions that did not run in the order of their names' queues
	goroutines, most   int            // more than before: while all wait, and at any time
	bytes              float64        // of the heap, for each that waits
	accepting, running time.Duration
}

func (d *deferral) run(tb testing.TB) {
	pprof.SetGoroutineLabels(pprof.WithLabels(tb.Context(), pprof.Labels(deferralLabel, tb.Name())))
	defer pprof.SetGoroutineLabels(tb.Context())
	server := redistest.Start(tb, redistest.Config{})
	locker := func() *lock.Locker {
		store := openWith(tb, server.Client(tb), redisstore.Config{FenceTTL: longTTL}) // no counter ends meanwhile: keys are counted
		l, err := lock.New(store, lock.Config{TTL: longTTL, RequestTimeout: time.Minute})
		if err != nil {
			tb.Fatal(err)
		}
		return l
	}
	other, l := locker(), locker()
	ctx := tb.Context()

	name := func(i int) string { return "lock " + strconv.Itoa(i%d.names) }
	admin := server.Client(tb)
	var held []*lock.Lease
	for i := range d.names {
		lease, err := other.Mutex(name(i)).TryLock(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		held = append(held, lease)
	}

	lease, err := l.Mutex("other").TryLock(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	if err := lease.Unlock(ctx); err != nil {
		tb.Fatal(err)
	}
	// The lines to come are counted: to list 100,000 of them takes the server's time. There are the locks, their
	// counters, and the record of each client, which is written in the background.
	keys := int64(d.names + d.names + 1 + 2)
	require.Eventually(tb, func() bool { return admin.DBSize(ctx).Val() == keys }, time.Minute, time.Millisecond)
	d.ran = make([]atomic.Int32, d.functions)
	latest := make([]int, d.names) // the locks guard them
	var out, done atomic.Int32
	finished := make(chan struct{})
	waiting := make([]*lock.Deferred, d.functions)
	before, goroutines, heap := runtime.NumGoroutine(), ownGoroutines(tb), heapInUse()
	begin := time.Now()
	for i := range d.functions {
		deferred, err := l.Mutex(name(i)).With(lock.Options{Passes: d.passes}).Go(ctx, func(context.Context) error {
			d.ran[i].Add(1)
			if latest[i%d.names] > i {
				out.Add(1)
			}
			latest[i%d.names] = i
			if done.Add(1) == int32(d.functions) {
				close(finished)
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
		waiting[i] = deferred
	}
	d.accepting = time.Since(begin)
	require.Eventually(tb, func() bool {
		return admin.DBSize(ctx).Val() == keys+int64(d.names)
	}, time.Minute, 10*time.Millisecond)
	require.Eventually(tb, func() bool { // the last ones are queued, but may not know yet
		d.goroutines = ownGoroutines(tb) - goroutines
		return d.goroutines < 100
	}, time.Minute, 50*time.Millisecond)
	d.bytes = (heapInUse() - heap) / float64(d.functions)

	begin = time.Now()
	var releasing sync.WaitGroup
	releasing.Go(func() {
		for _, lease := range held {
			if err := lease.Unlock(ctx); err != nil {
				tb.Error(err)
			}
		}
	})
	sample := time.NewTicker(time.Millisecond)
	defer sample.Stop()
	for running := true; running; {
		select {
		case <-finished:
			running = false
		case <-sample.C:
			d.most = max(d.most, runtime.NumGoroutine()-before)
		}
	}
	d.running = time.Since(begin)
	releasing.Wait()
	for i, deferred := range waiting {
		if err := deferred.Wait(ctx); err != nil {
			tb.Fatalf("function %d: %v", i, err)
		}
	}
	d.out = out.Load()
	for _, l := range []*lock.Locker{other, l} {
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
	}
}

// check fails tb unless each function ran once, in order, with few goroutines.
func (d *deferral) check(tb testing.TB) {
	for i := range d.ran {
		if n := d.ran[i].Load(); n != 1 {
			tb.Errorf("function %d ran %d times", i, n)
		}
	}
	if d.out > 0 {
		tb.Errorf("%d functions were overtaken", d.out)
	}
	if d.goroutines >= 100 {
		tb.Errorf("%d goroutines while %d functions waited", d.goroutines, d.functions)
	}
}

const deferralLabel = "deferral"

// ownGoroutines counts the goroutines that the test, or one of its goroutines, has
// started: other tests run at the same time.
func ownGoroutines(tb testing.TB) (count int) {
	var profile strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		tb.Fatal(err)
	}
	label := fmt.Sprintf("%q:%q", deferralLabel, tb.Name())
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(stack, label) {
			continue
		}
		for line := range strings.SplitSeq(stack, "\n") {
			if n, _, found := strings.Cut(line, " @ "); found {
				many, err := strconv.Atoi(n)
				if err != nil {
					tb.Fatal(err)
				}
				count += many
			}
		}
	}
	if count == 0 {
		tb.Fatal("the goroutine profile has no labels")
	}
	return count
}

// heapInUse returns the bytes of reachable heap.
func heapInUse() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
