package adapters_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// redisLocker returns a locker on a server, as one process has it. It ends with t.
func redisLocker(t *testing.T, server *redistest.Server) *lock.Locker {
	t.Helper()
	store, err := redisstore.Open(server.URL(), redisstore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	locker, err := lock.New(store, lock.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	return locker
}
