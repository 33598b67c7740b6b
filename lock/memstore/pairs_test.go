package memstore_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/memstore"
)

// A pair is a Lock without contention and its Unlock, with a lease that is watched. The store
// alone has a third of it.
func BenchmarkPair(b *testing.B) {
	pairs := func(open func(b *testing.B) driver.Store) func(b *testing.B) {
		return func(b *testing.B) {
			locker, err := lock.New(open(b), lock.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer locker.Close()
			mutex := locker.Mutex("orders:42")
			b.ReportAllocs()
			for b.Loop() {
				lease, err := mutex.Lock(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Unlock(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		}
	}
	b.Run("memory", pairs(func(*testing.B) driver.Store { return memstore.New() }))
	b.Run("Redis in the process", pairs(func(b *testing.B) driver.Store { return locktest.Start(b).Store(b) }))
	b.Run("memory, the store alone", func(b *testing.B) {
		store := memstore.New()
		take, free := driver.Hold{Name: "orders:42", Owner: "a:1", Count: 1, TTL: driver.DefaultTTL}, driver.Hold{Name: "orders:42", Owner: "a:1"}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := store.Acquire(b.Context(), &take); err != nil {
				b.Fatal(err)
			}
			if _, err := store.Release(b.Context(), &free); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
	})
}
