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

// otherKind is a store whose names are in use by locks of another kind until free is closed.
type otherKind struct {
	driver.Store
	free chan struct{}
}

func (s otherKind) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	select {
	case <-s.free:
		return s.Store.Acquire(ctx, h)
	default:
		return driver.Answer{OtherKind: true}, nil
	}
}

// The error names the reason, and a waiter polls: the end of the other lock may send no message.
func TestLockOfAnotherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := otherKind{locktest.StartMemory(t).Store(t), make(chan struct{})}
		l, err := lock.New(store, lock.Config{Poll: time.Hour})
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()

		_, err = l.Mutex("a").TryLock(t.Context())
		var refused *lock.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		require.True(t, refused.OtherKind)
		require.ErrorContains(t, err, "another kind")
		require.NotErrorIs(t, err, lock.ErrForeign)

		begin := time.Now()
		time.AfterFunc(time.Second, func() { close(store.free) })
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(begin), 2*time.Second)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}
