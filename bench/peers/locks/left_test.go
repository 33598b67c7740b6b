package locks

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

const (
	distinctNames = 1_000_000
	waitersInAll  = 10_000
	contended     = 500 // locks
)

// leftAfter is by when a lock without waiters has left no keys: the default life of
// a fencing counter, and two passes of the server over keys that have expired.
const leftAfter = 65 * time.Second

// BenchmarkNames acquires and releases a million locks, each once, and reports what is
// left on the server at once and a minute later.
func BenchmarkNames(b *testing.B) {
	for _, i := range impls {
		b.Run("impl="+i.name, i.names)
	}
}

func (i impl) names(b *testing.B) {
	for b.Loop() {
		server := redistest.Start(b, redistest.Config{TCP: true})
		locks, err := i.open(server.Options().Addr)
		if err != nil {
			b.Fatal(err)
		}
		admin := server.Client(b)
		const each = distinctNames / 128
		begin := time.Now()
		var all errgroup.Group
		for g := range 128 {
			all.Go(func() error {
				for n := range each {
					release, err := locks.Acquire(b.Context(), fmt.Sprintf("%s-%d-%d", name, g, n))
					if err != nil {
						return err
					}
					if err := release(b.Context()); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(128*each)/time.Since(begin).Seconds(), "pairs/s")
		size := func() float64 {
			n, err := admin.DBSize(b.Context()).Result()
			if err != nil {
				b.Fatal(err)
			}
			return float64(n)
		}
		b.ReportMetric(size(), "keys-at-once")
		time.Sleep(leftAfter)
		b.ReportMetric(size(), "keys-after-a-minute")
		b.ReportMetric(0, "ns/op")
		if err := locks.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWaiters has 10,000 goroutines wait for 500 locks, and reports what each costs:
// the bytes on the heap and of stacks, goroutines beside its own, and connections of all.
func BenchmarkWaiters(b *testing.B) {
	for _, i := range impls {
		if !i.pairsOnly {
			b.Run("impl="+i.name, i.waiters)
		}
	}
}

func (i impl) waiters(b *testing.B) {
	for b.Loop() {
		server := redistest.Start(b, redistest.Config{TCP: true})
		holder, err := i.open(server.Options().Addr)
		if err != nil {
			b.Fatal(err)
		}
		var held []func() error
		for n := range contended {
			release, err := holder.Acquire(b.Context(), fmt.Sprint(name, n))
			if err != nil {
				b.Fatal(err)
			}
			held = append(held, func() error { return release(b.Context()) })
		}
		locks, err := i.open(server.Options().Addr)
		if err != nil {
			b.Fatal(err)
		}
		admin := server.Client(b)
		connected := func() float64 {
			clients, err := admin.Info(b.Context(), "clients").Result()
			if err != nil {
				b.Fatal(err)
			}
			var n float64
			_, _ = fmt.Sscanf(clients, "# Clients\r\nconnected_clients:%f", &n)
			return n
		}
		before, goroutines, connections := memory(), runtime.NumGoroutine(), connected()
		var all errgroup.Group
		for n := range waitersInAll {
			all.Go(func() error {
				release, err := locks.Acquire(b.Context(), fmt.Sprint(name, n%contended))
				if err != nil {
					return err
				}
				return release(b.Context())
			})
		}
		time.Sleep(5 * time.Second) // the slowest peer polls every half second
		b.ReportMetric((memory()-before)/waitersInAll, "B/waiter")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines-waitersInAll)/waitersInAll, "goroutines/waiter")
		b.ReportMetric(connected()-connections, "connections")
		begin := time.Now()
		for _, release := range held {
			if err := release(); err != nil {
				b.Fatal(err)
			}
		}
		if err := all.Wait(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(begin)), "all-granted-ns")
		b.ReportMetric(0, "ns/op")
		for _, l := range []interface{ Close() error }{locks, holder} {
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// memory returns the bytes that are live on the heap and in use for stacks.
func memory() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc + stats.StackInuse)
}
