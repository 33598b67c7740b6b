package pgstore_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// benchStore returns a store on the shared server, which has fsync.
func benchStore(b *testing.B) *pgstore.Store {
	b.Helper()
	s := server(b)
	require.NoError(b, pgstore.Migrate(b.Context(), s.Pool(b), "bench"))
	return open(b, s, pgstore.Config{Schema: "bench"}, func(c *pgxpool.Config) { c.MaxConns = 32 })
}

// A pair is a Lock without contention and its Unlock, each of one statement.
func BenchmarkPair(b *testing.B) {
	store := benchStore(b)
	for _, goroutines := range []int{1, 16} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			locker, err := lock.New(store, lock.Config{})
			require.NoError(b, err)
			defer locker.Close()
			var work sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			for g := range goroutines {
				mutex := locker.Mutex(fmt.Sprint("pair:", g))
				work.Go(func() {
					for left.Add(-1) >= 0 {
						lease, err := mutex.Lock(b.Context())
						if err == nil {
							err = lease.Unlock(b.Context())
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			work.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// A hand-over is from one locker's Unlock to the return of another's Lock that waits.
func BenchmarkHandOver(b *testing.B) {
	var lockers [2]*lock.Locker
	for i := range lockers {
		var err error
		lockers[i], err = lock.New(benchStore(b), lock.Config{})
		require.NoError(b, err)
		defer lockers[i].Close()
	}
	took := make([]time.Duration, 0, b.N)
	lease, err := lockers[0].Mutex("hand over").Lock(b.Context())
	require.NoError(b, err)
	b.ResetTimer()
	for i := range b.N {
		next := make(chan *lock.Lease)
		go func() {
			lease, err := lockers[(i+1)%2].Mutex("hand over").Lock(b.Context())
			if err != nil {
				b.Error(err)
			}
			next <- lease
		}()
		time.Sleep(5 * time.Millisecond) // it waits
		begin := time.Now()
		require.NoError(b, lease.Unlock(b.Context()))
		lease = <-next
		took = append(took, time.Since(begin))
	}
	require.NoError(b, lease.Unlock(b.Context()))
	reportMedian(b, took, "ms")
}

func reportMedian(b *testing.B, took []time.Duration, unit string) {
	sorted := slices.Sorted(slices.Values(took))
	b.ReportMetric(float64(sorted[len(sorted)/2].Microseconds())/1000, "p50-"+unit)
	b.ReportMetric(float64(sorted[len(sorted)*99/100].Microseconds())/1000, "p99-"+unit)
	b.ReportMetric(0, "ns/op")
}

// An operation renews so many leases, by a thousand in a statement.
func BenchmarkRenewals(b *testing.B) {
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindWrite} {
		for _, n := range []int{10_000, 100_000} {
			b.Run(fmt.Sprint(kind, " ", n), func(b *testing.B) {
				store := benchStore(b)
				items := make([]renewal.Item, n)
				var work sync.WaitGroup
				for g := range 16 {
					work.Go(func() {
						for i := g; i < n; i += 16 {
							h := &driver.Hold{Kind: kind, Name: fmt.Sprintf("renewed %v:%06d", kind, i), Owner: "client:1", Count: 1, TTL: time.Hour}
							items[i] = renewal.Item{Key: h.Name, Owner: h.Owner, Ref: driver.RefOf(h), TTL: h.TTL}
							if _, err := store.Acquire(b.Context(), h); err != nil {
								b.Error(err)
							}
						}
					})
				}
				work.Wait()
				b.ResetTimer()
				for range b.N {
					for begin := 0; begin < n; begin += 1000 {
						store.Renew(b.Context(), items[begin:begin+1000])
					}
				}
				b.StopTimer()
				for i := range items {
					require.Equal(b, renewal.Renewed, items[i].Outcome, items[i].Err)
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "renewals/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
