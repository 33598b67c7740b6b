package lock_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/retry"
)

// A waiter follows its retry policy, however slow the poll, and gives up when the policy
// stops. It leaves nothing behind.
func TestRetriesRunOnTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{Poll: time.Hour})
		other := server.Locker(t, lock.Config{TTL: time.Hour})
		holder, err := other.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		begin, before := time.Now(), store.asked()
		_, err = l.Mutex("a").With(lock.Options{Retry: retry.Exponential(time.Second, 4*time.Second).Limited(5)}).Lock(t.Context())
		require.ErrorIs(t, err, lock.ErrRetriesExhausted)
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		about(t, (1+2+4+4)*time.Second, time.Since(begin).Truncate(100*time.Millisecond))
		assert.Equal(t, 1+5, store.asked()-before, "once to see whether it is free, and five times in the queue")
		time.Sleep(time.Second)
		require.NoError(t, holder.Unlock(t.Context()))
		lease, err := other.Mutex("a").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// MaxWaiters bounds the waiters for one lock, of any kind. Further ones fail at once, and
// other names have their own limit.
func TestWaitersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{MaxWaiters: 3})
		for _, m := range []*lock.Mutex{l.Mutex("a"), l.Fair("b"), l.ReadWrite("c").Write()} {
			lease, err := m.Lock(t.Context())
			require.NoError(t, err)
			var work sync.WaitGroup
			join := func(ctx context.Context, is error) {
				work.Go(func() { assert.ErrorIs(t, m.Do(ctx, func(context.Context) error { return nil }), is) })
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			join(ctx, context.Canceled)
			join(t.Context(), nil)
			join(t.Context(), nil)
			time.Sleep(100 * time.Millisecond)
			require.Equal(t, 3, l.Stats().Waiting)
			begin := time.Now()
			_, err = m.Lock(t.Context())
			require.ErrorIs(t, err, lock.ErrTooManyWaiters)
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			assert.Less(t, time.Since(begin), 10*time.Millisecond)
			cancel()
			synctest.Wait()
			join(t.Context(), nil)
			synctest.Wait()
			_, err = m.MaxWait(time.Second).Lock(t.Context())
			require.ErrorIs(t, err, lock.ErrTooManyWaiters, "after one has left and one has come")
			require.NoError(t, lease.Unlock(t.Context()))
			work.Wait()
			require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }), "there is room again")
		}
	})
}

// MaxWaiters bounds the waiters of a latch, too.
func TestWaitersOfALatchAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{MaxWaiters: 1}).Latch("ready")
		_, err := l.TrySetCount(t.Context(), 1)
		require.NoError(t, err)
		waited := make(chan error)
		go func() { waited <- l.Wait(t.Context()) }()
		synctest.Wait()
		err = l.Wait(t.Context())
		require.ErrorIs(t, err, lock.ErrTooManyWaiters)
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.EqualError(t, err, `lock: "ready" not acquired: the latch is closed: lock: too many waiters`)
		require.NoError(t, l.CountDown(t.Context()))
		require.NoError(t, <-waited)
	})
}

// A policy that panics ends only its own wait.
func TestRetryPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		var log bytes.Buffer
		l := server.Locker(t, lock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		held := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
		broken := lock.Options{Retry: func(int) (time.Duration, bool) { panic("no idea") }}
		_, err := l.Mutex("a").With(broken).Lock(t.Context())
		require.ErrorIs(t, err, lock.ErrRetriesExhausted)
		synctest.Wait()
		require.Contains(t, log.String(), "no idea")
		got := await(t, l.Mutex("a"))
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, (<-got).Unlock(t.Context()))
	})
}
