package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
