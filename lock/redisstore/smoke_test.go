package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

func TestSmoke(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	store, err := redisstore.Open(server.URL(), redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	locker, err := lock.New(store, lock.Config{TTL: 2 * time.Second})
	require.NoError(t, err)
	defer locker.Close(context.Background())
	ctx := t.Context()
	lease, err := locker.Mutex("a").Lock(ctx)
	require.NoError(t, err)
	t.Log(lease.Token(), lease.Owner())
	_, err = locker.Mutex("a").TryLock(ctx)
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	t.Log(err)
	again, err := locker.Mutex("a").Lock(lease.Context())
	require.NoError(t, err)
	require.NoError(t, again.Unlock(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		l2, err := locker.Mutex("a").Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, l2.Unlock(ctx))
	}()
	time.Sleep(3 * time.Second)
	start := time.Now()
	require.NoError(t, lease.Err())
	require.NoError(t, lease.Unlock(ctx))
	<-done
	t.Log(time.Since(start))
}
