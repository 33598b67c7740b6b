package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// begun is a store whose leases begin before the request.
type begun struct {
	driver.Store
	first time.Duration
}

func (s begun) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	a, err := s.Store.Acquire(ctx, h)
	if a.Verdict == driver.Granted {
		a.First = s.first
	}
	return a, err
}

// A lease whose first period is shorter is valid for that, and for its TTL once it was renewed.
func TestFirstPeriodIsShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, first = 30 * time.Second, 6 * time.Second
		l := locker(t, begun{locktest.StartMemory(t).Store(t), first}, lock.Config{TTL: ttl})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, time.Until(lease.Until()), first)
		time.Sleep(first)
		require.True(t, lease.Valid(), "it was renewed")
		require.Greater(t, time.Until(lease.Until()), 2*first)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A grant that ends too soon to be renewed is no lease: Lock waits for another, and TryLock is
// refused. Permits have such grants when their semaphore is about to end.
func TestGrantThatEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{})
		p := l.Permits("a")
		create := func() {
			t.Helper()
			created, err := p.TrySetPermitsFor(t.Context(), 1, time.Minute)
			require.NoError(t, err)
			require.True(t, created)
			time.Sleep(time.Minute - 20*time.Millisecond)
		}
		create()
		_, err := p.One().TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		create()
		leases := make(chan *lock.Lease)
		go func() {
			lease, err := p.One().Lock(t.Context())
			assert.NoError(t, err)
			leases <- lease
		}()
		time.Sleep(time.Minute)
		created, err := p.TrySetPermits(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, created)
		require.NoError(t, (<-leases).Unlock(t.Context()))
	})
}

// A grant that has ended when it arrives is requested again.
func TestGrantThatEndsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: begun{locktest.StartMemory(t).Store(t), 400 * time.Millisecond}}
		l := locker(t, store, lock.Config{})
		requests := 0
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				if requests++; requests == 1 {
					defer time.Sleep(500 * time.Millisecond)
				}
				return do()
			}
		})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		require.Equal(t, 2, requests)
	})
}
