package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

var _ = fmt.Sprint
var _ = errors.New
var _ driver.Store
var _ atomic.Int64

// B: many waiters share a context that ends.
func TestZZSharedContext(t *testing.T) {
	for _, end := range []string{"cancel", "close"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				l, store := faultyLocker(t, server, lock.Config{})
				holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
				_ = holder
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var wg sync.WaitGroup
				var slow atomic.Int64
				begin := make(chan time.Time, 1)
				var at atomic.Pointer[time.Time]
				_ = begin
				for range 100 {
					wg.Go(func() {
						_, err := l.Mutex("a").Lock(ctx)
						require.Error(t, err)
						if time.Since(*at.Load()) > 100*time.Millisecond {
							slow.Add(1)
						}
					})
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				before := store.asked()
				store.set(func() { store.acquire = lostRequest })
				now := time.Now()
				at.Store(&now)
				if end == "cancel" {
					cancel()
				} else {
					require.NoError(t, l.Close(t.Context()))
				}
				wg.Wait()
				t.Logf("requests after the end: %d, slow returns: %d, took %v", store.asked()-before, slow.Load(), time.Since(now))
			})
		})
	}
}

// A: runtime.Goexit in the store leaks the queue.
func TestZZGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l, store := faultyLocker(t, server, lock.Config{})
		holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = l.Mutex("a").Lock(t.Context())
		}()
		time.Sleep(time.Second)
		store.set(func() {
			store.acquire = func(context.Context, func() error) error { runtime.Goexit(); return nil }
		})
		unlock(t, holder)
		<-done
		store.set(func() { store.acquire = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		n := lock.QueuesOf(l)
		t.Logf("queues a minute after the last waiter: %d", n)
	})
}
