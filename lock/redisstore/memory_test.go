package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// full makes the server refuse all commands that may need memory.
func full(t *testing.T, admin *redis.Client, yes bool) {
	t.Helper()
	most := "0"
	if yes {
		most = "1"
	}
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", most).Err())
}

// A server out of memory allows holds of every kind to be renewed, lowered and released,
// and a latch to be counted down. Each is tested by itself, since in a run that does
// several things the first write may hide the others.
func TestKeepsAndGivesBackWithoutMemory(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	for _, endless := range []bool{false, true} {
		config := redisstore.Config{}
		if endless { // the fencing counter needs no renewal, which would be a first write
			config.FenceTTL = -1
		}
		store := openWith(t, server.Client(t), config)
		for _, kind := range []driver.Kind{driver.KindFair, driver.KindRead, driver.KindWrite, driver.KindPermit} {
			full(t, admin, false)
			require.NoError(t, admin.FlushDB(t.Context()).Err())
			require.NoError(t, admin.Set(t.Context(), "a", 1, 0).Err())
			if kind != driver.KindPermit {
				require.NoError(t, admin.Del(t.Context(), "a").Err())
			}
			h := heldFor(kind, 1)
			require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
			if kind != driver.KindPermit {
				h.Count = 2
				require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
			}
			full(t, admin, true)
			item := renewItems(t.Context(), store, h)[0]
			require.NoError(t, item.Err, kind)
			require.Equal(t, renewal.Renewed, item.Outcome, kind)
			for range 2 { // the second time, no hold is left to be lowered
				if kind == driver.KindPermit {
					break
				}
				h.Count = 1
				held, err := store.Release(t.Context(), h)
				require.NoError(t, err, kind)
				require.True(t, held, kind)
			}
			other := heldFor(kind, 2)
			other.Queue, other.ReadWrite.BlockReaders = driver.Queue{}, 0
			if kind != driver.KindRead { // readers may join
				answer, err := store.Acquire(t.Context(), other)
				if err == nil {
					require.Equal(t, driver.Refused, answer.Verdict, kind)
				}
			}
			h.Count = 0
			held, err := store.Release(t.Context(), h)
			require.NoError(t, err, kind)
			require.True(t, held, kind)
			_, err = store.Acquire(t.Context(), other)
			require.ErrorIs(t, err, redisstore.ErrOutOfMemory, "%v: nothing new is granted", kind)
		}

		full(t, admin, false)
		require.NoError(t, admin.FlushDB(t.Context()).Err())
		require.NoError(t, admin.Set(t.Context(), "a", 2, 0).Err())
		h := heldFor(driver.KindSemaphore, 1)
		require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
		full(t, admin, true)
		_, err := store.Acquire(t.Context(), heldFor(driver.KindSemaphore, 2))
		require.ErrorIs(t, err, redisstore.ErrOutOfMemory)
		h.Count = 0
		for _, owed := range []bool{false, true} {
			h.Semaphore.Owed = owed
			held, err := store.Release(t.Context(), h)
			require.NoError(t, err)
			require.True(t, held)
		}
		require.Equal(t, "2", admin.Get(t.Context(), "a").Val(), "given back once")
		none := heldFor(driver.KindSemaphore, 4) // its request may still be on its way
		none.Count = 0
		held, err := store.Release(t.Context(), none)
		require.NoError(t, err)
		require.False(t, held)
		owed := heldFor(driver.KindSemaphore, 3)
		owed.Count, owed.Semaphore.Owed = 0, true
		_, err = store.Release(t.Context(), owed)
		require.NoError(t, err)
		require.Equal(t, "3", admin.Get(t.Context(), "a").Val())
		for left := int64(2); left >= 0; left-- {
			counted, err := store.Count(t.Context(), &driver.Count{
				Kind: driver.KindLatch, Name: "a", Op: driver.CountAdd, N: -1, Request: string(rune('a' + left)), Keep: time.Minute,
			})
			require.NoError(t, err)
			require.Equal(t, left, counted.Count)
		}
	}
}

// Without memory, holds of every kind are kept and released, no permit vanishes, and no second
// client is granted what the first one holds.
func TestOutOfMemoryLosesNothing(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l, other := locker(t, server.Client(t), lock.Config{Poll: time.Hour}), locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	ctx := t.Context()

	_, err := l.Permits("permits").TrySetPermits(ctx, 3)
	require.NoError(t, err)
	_, err = l.Semaphore("semaphore").TrySetPermits(ctx, 3)
	require.NoError(t, err)
	var leases, inner []*lock.Lease
	for _, m := range []*lock.Mutex{l.Mutex("mutex"), l.Fair("fair"), l.ReadWrite("read").Read(), l.ReadWrite("write").Write()} {
		lease := mustTake(t, ctx, m)
		leases = append(leases, lease)
		inner = append(inner, mustTake(t, lease.Context(), m))
	}
	for range 3 {
		lease, err := l.Permits("permits").One().TryLock(ctx)
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	require.NoError(t, l.Semaphore("semaphore").TryAcquire(ctx, 3))

	full(t, admin, true)
	noneIsGranted := func() {
		t.Helper()
		for _, m := range []*lock.Mutex{other.Mutex("mutex"), other.Fair("fair"), other.ReadWrite("read").Write(), other.ReadWrite("write").Write()} {
			_, err := m.TryLock(ctx)
			require.Error(t, err, m.Name())
		}
		_, err := other.Permits("permits").One().TryLock(ctx)
		require.Error(t, err)
		require.Error(t, other.Semaphore("semaphore").TryAcquire(ctx, 1))
	}
	noneIsGranted()
	for _, lease := range inner {
		require.NoError(t, lease.Unlock(ctx), "an inner hold of %s", lease.Name())
	}
	noneIsGranted()
	for _, lease := range leases {
		require.NoError(t, lease.Err(), "%s was kept", lease.Name())
		require.NoError(t, lease.Unlock(ctx), lease.Name())
	}
	for range 3 {
		require.NoError(t, l.Semaphore("semaphore").Release(ctx, 1))
	}
	for what, available := range map[string]func(context.Context) (int64, error){
		"permits": l.Permits("permits").Available, "semaphore": l.Semaphore("semaphore").Available,
	} {
		n, err := available(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 3, n, what)
	}
	full(t, admin, false)
}
