package adapters_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// patient has limits that no slow machine reaches.
var patient = lock.Config{TTL: 10 * time.Minute, RequestTimeout: time.Minute}

// redisLocker returns a locker on a server, as one process has it. It ends with t.
func redisLocker(t *testing.T, server *redistest.Server) *lock.Locker {
	t.Helper()
	store, err := redisstore.New(server.Client(t), redisstore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	locker, err := lock.New(store, patient)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	return locker
}
