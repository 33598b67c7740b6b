package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// Each of them excludes.
func TestLocksExclude(t *testing.T) {
	s := pgtest.Start(t)
	prepare(t, s)
	for _, i := range impls {
		var work sync.WaitGroup
		var inside atomic.Int32
		for range 2 {
			l := i.open(t, s)
			work.Go(func() {
				for range 20 {
					unlock, err := l.lock(t.Context(), "excluded")
					if !assert.NoError(t, err) {
						return
					}
					assert.EqualValues(t, 1, inside.Add(1), i.name)
					inside.Add(-1)
					assert.NoError(t, unlock())
				}
			})
		}
		work.Wait()
	}
}

// What is renewed is held, in each implementation.
func TestRenewersRenew(t *testing.T) {
	s := pgtest.Start(t)
	prepare(t, s)
	names := []string{"a", "b", "c"}
	grantAll(t, pool(t, s), names)
	for _, i := range impls {
		if l, ok := i.open(t, s).(renewer); ok {
			assert.NoError(t, l.renew(t.Context(), names), i.name)
			assert.Error(t, l.renew(t.Context(), append(names, "not held")), i.name)
		}
	}
}

// A pair is a lock without contention and its unlock.
func BenchmarkPairs(b *testing.B) {
	s := pgtest.Start(b)
	prepare(b, s)
	for _, i := range impls {
		for _, goroutines := range []int{1, 16} {
			b.Run(fmt.Sprintf("impl=%s/goroutines=%d", i.name, goroutines), func(b *testing.B) {
				l := i.open(b, s)
				var work sync.WaitGroup
				var left atomic.Int64
				left.Store(int64(b.N))
				cpu := s.CPU()
				b.ResetTimer()
				for g := range goroutines {
					name := fmt.Sprint("pair:", g)
					work.Go(func() {
						for left.Add(-1) >= 0 {
							unlock, err := l.lock(b.Context(), name)
							if err == nil {
								err = unlock()
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
				b.ReportMetric(float64((s.CPU()-cpu).Nanoseconds())/float64(b.N), "server-cpu-ns/pair")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// A hand-over is from the unlock of one process to the lock of another that waits.
func BenchmarkHandOver(b *testing.B) {
	s := pgtest.Start(b)
	prepare(b, s)
	for _, i := range impls {
		b.Run("impl="+i.name, func(b *testing.B) {
			both := [2]locks{i.open(b, s), i.open(b, s)}
			took := make([]time.Duration, 0, b.N)
			unlock, err := both[0].lock(b.Context(), "handed over")
			require.NoError(b, err)
			const warm = 4 // their connections are made
			for n := range warm + b.N {
				next := make(chan func() error)
				go func() {
					unlock, err := both[(n+1)%2].lock(context.Background(), "handed over")
					if err != nil {
						b.Error(err)
					}
					next <- unlock
				}()
				time.Sleep(10 * time.Millisecond) // it waits
				begin := time.Now()
				require.NoError(b, unlock())
				unlock = <-next
				if n >= warm {
					took = append(took, time.Since(begin))
				}
			}
			require.NoError(b, unlock())
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
			b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// grantAll grants leases of an hour to the owner of renewers, in all their tables.
func grantAll(t testing.TB, admin *pgxpool.Pool, names []string) {
	for _, statement := range []string{
		`SELECT ` + schema + `.acquire(name, 'client:1', 1, 3600000, false, 0, 0, int8range(NULL, ` + schema + `.clock() + 600000000)) FROM unnest($1::text[]) AS n(name)`,
		`INSERT INTO leases SELECT name, 'client:1', now() + interval '1 h' FROM unnest($1::text[]) AS n(name) ON CONFLICT DO NOTHING`,
	} {
		_, err := admin.Exec(t.Context(), statement, names)
		require.NoError(t, err)
	}
}

// batch is how many leases one request renews.
const batch = 1000

// An operation renews all leases.
func BenchmarkRenewals(b *testing.B) {
	s := pgtest.Start(b)
	prepare(b, s)
	admin := pool(b, s)
	for _, i := range impls {
		l, ok := i.open(b, s).(renewer)
		if !ok {
			continue
		}
		for _, leases := range []int{10_000, 100_000} {
			b.Run(fmt.Sprintf("impl=%s/leases=%d", i.name, leases), func(b *testing.B) {
				names := make([]string, leases)
				for n := range names {
					names[n] = fmt.Sprintf("renewed:%06d", n)
				}
				grantAll(b, admin, names)
				_, err := admin.Exec(b.Context(), "VACUUM ANALYZE")
				require.NoError(b, err)
				cpu := s.CPU()
				b.ResetTimer()
				for range b.N {
					for some := range slices.Chunk(names, batch) {
						require.NoError(b, l.renew(b.Context(), some))
					}
				}
				all := float64(b.N * leases)
				b.ReportMetric(all/b.Elapsed().Seconds(), "renewals/s")
				b.ReportMetric(float64((s.CPU()-cpu).Nanoseconds())/all, "server-cpu-ns/renewal")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
