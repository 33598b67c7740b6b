package lock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// refusals is a store that refuses those requests for which answer returns a refusal.
type refusals struct {
	driver.Store
	answer func(request int64) (refusal driver.Answer, refused bool)
	asked  *atomic.Int64
}

func (s refusals) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	if refusal, refused := s.answer(s.asked.Add(1)); refused {
		return refusal, nil
	}
	return s.Store.Acquire(ctx, h)
}

func refusing(t *testing.T, answer func(request int64) (driver.Answer, bool)) *lock.Locker {
	t.Helper()
	l, err := lock.New(refusals{locktest.StartMemory(t).Store(t), answer, new(atomic.Int64)}, lock.Config{Poll: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// The error of a waiter has the TTL of the latest refusal, also if that is unknown.
func TestErrorHasTheLatestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := refusing(t, func(request int64) (driver.Answer, bool) {
			if request <= 2 {
				return driver.Answer{Wait: 3 * time.Second}, true
			}
			return driver.Answer{}, true
		})
		_, err := l.Mutex("a").MaxWait(10 * time.Second).Lock(t.Context())
		var refused *lock.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		require.Zero(t, refused.TTL)
	})
}
