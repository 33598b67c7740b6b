package etcd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/etcdstore"
	"github.com/leasewheel/leasewheel/renewal"
)

const ttl = 30 * time.Second

// pair acquires and releases a lock, with work in between.
type pair func(ctx context.Context, name string, work func()) error

// impls make a client each, as for a process.
var impls = []struct {
	name string
	open func(b *testing.B, client *clientv3.Client) pair
}{
	{"leasewheel", func(b *testing.B, client *clientv3.Client) pair {
		store, err := etcdstore.New(client, etcdstore.Config{})
		require.NoError(b, err)
		locker, err := lock.New(store, lock.Config{TTL: ttl, RequestTimeout: 10 * time.Second})
		require.NoError(b, err)
		b.Cleanup(func() {
			_ = locker.Close()
			_ = store.Close()
		})
		return func(ctx context.Context, name string, work func()) error {
			lease, err := locker.Mutex(name).Lock(ctx)
			if err != nil {
				return err
			}
			work()
			return lease.Unlock(ctx)
		}
	}},
	{"concurrency", func(b *testing.B, client *clientv3.Client) pair {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
		require.NoError(b, err)
		b.Cleanup(func() { _ = session.Close() })
		return func(ctx context.Context, name string, work func()) error {
			m := concurrency.NewMutex(session, "/"+name)
			if err := m.Lock(ctx); err != nil {
				return err
			}
			work()
			return m.Unlock(ctx)
		}
	}},
}

// BenchmarkPairs acquires and releases locks that no other client wants.
func BenchmarkPairs(b *testing.B) {
	c := start(b)
	for _, impl := range impls {
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprintf("impl=%s/clients=%d", impl.name, clients), func(b *testing.B) {
				run := impl.open(b, c.dial(b))
				require.NoError(b, run(b.Context(), "warm up", func() {}))
				var next atomic.Int64
				var work sync.WaitGroup
				begin := c.cpu()
				b.ResetTimer()
				for i := range clients {
					work.Go(func() {
						for next.Add(1) <= int64(b.N) {
							if err := run(b.Context(), fmt.Sprintf("lock %d", i), func() {}); err != nil {
								b.Error(err)
							}
						}
					})
				}
				work.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
				c.perOp(b, begin, b.N)
			})
		}
	}
}

// BenchmarkHandOver has processes contend for one lock. It reports how often two held it at once.
func BenchmarkHandOver(b *testing.B) {
	c := start(b)
	for _, impl := range impls {
		for _, processes := range []int{2, 16} {
			b.Run(fmt.Sprintf("impl=%s/processes=%d", impl.name, processes), func(b *testing.B) {
				var runs []pair
				for range processes {
					runs = append(runs, impl.open(b, c.dial(b)))
				}
				var next, holders, overlaps atomic.Int64
				var work sync.WaitGroup
				begin := c.cpu()
				b.ResetTimer()
				for _, run := range runs {
					work.Go(func() {
						for next.Add(1) <= int64(b.N) {
							err := run(b.Context(), "contended", func() {
								if holders.Add(1) > 1 {
									overlaps.Add(1)
								}
								holders.Add(-1)
							})
							if err != nil {
								b.Error(err)
							}
						}
					})
				}
				work.Wait()
				b.StopTimer()
				b.ReportMetric(float64(overlaps.Load()), "overlaps")
				c.perOp(b, begin, b.N)
			})
		}
	}
}

// BenchmarkRenewals renews many held locks once: ours in batches as the watchdog sends them, and
// with a lease for each lock, as a session for each needs.
func BenchmarkRenewals(b *testing.B) {
	c := start(b)
	for _, locks := range []int{10_000} {
		b.Run(fmt.Sprintf("impl=leasewheel/locks=%d", locks), func(b *testing.B) {
			client := c.dial(b)
			store, err := etcdstore.New(client, etcdstore.Config{Prefix: "renewals"})
			require.NoError(b, err)
			b.Cleanup(func() { _ = store.Close() })
			items := make([]renewal.Item, locks)
			inParallel(locks, func(i int) {
				h := &driver.Hold{Kind: driver.KindMutex, Name: fmt.Sprintf("lock %d", i), Owner: fmt.Sprintf("me:%d", i), Count: 1, TTL: time.Hour}
				if a, err := store.Acquire(b.Context(), h); err != nil || a.Verdict != driver.Granted {
					b.Errorf("%+v, %v", a, err)
				}
				items[i] = renewal.Item{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}
			})
			begin := c.cpu()
			for b.Loop() {
				for from := 0; from < locks; from += 96 {
					some := items[from:min(from+96, locks)]
					store.Renew(b.Context(), some)
					for i := range some {
						if some[i].Outcome != renewal.Renewed {
							b.Fatalf("%v: %v", some[i].Outcome, some[i].Err)
						}
					}
				}
			}
			b.ReportMetric(float64(b.N)*float64(locks)/b.Elapsed().Seconds(), "renewals/s")
			c.perOp(b, begin, b.N*locks)
		})
		b.Run(fmt.Sprintf("impl=lease-each/locks=%d", locks), func(b *testing.B) {
			client := c.dial(b)
			ids := make([]clientv3.LeaseID, locks)
			inParallel(locks, func(i int) {
				granted, err := client.Grant(b.Context(), 3600)
				if err != nil {
					b.Error(err)
					return
				}
				ids[i] = granted.ID
			})
			begin := c.cpu()
			for b.Loop() {
				inParallel(locks, func(i int) {
					if _, err := client.KeepAliveOnce(b.Context(), ids[i]); err != nil {
						b.Error(err)
					}
				})
			}
			b.ReportMetric(float64(b.N)*float64(locks)/b.Elapsed().Seconds(), "renewals/s")
			c.perOp(b, begin, b.N*locks)
		})
	}
}

// inParallel calls f for each number below n, 64 at a time.
func inParallel(n int, f func(i int)) {
	var next atomic.Int64
	var work sync.WaitGroup
	for range 64 {
		work.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	work.Wait()
}
