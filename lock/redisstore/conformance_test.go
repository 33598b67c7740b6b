package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// open returns a store on a new client. Both end with t.
func open(t testing.TB, client redis.UniversalClient) *redisstore.Store {
	t.Helper()
	return openWith(t, client, redisstore.Config{})
}

// openWith is open with a configuration.
func openWith(t testing.TB, client redis.UniversalClient, c redisstore.Config) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(client, c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	return store
}

func TestSingleServer(t *testing.T) {
	t.Parallel()
	locktest.Run(t, locktest.Suite{Backend: func(t testing.TB) locktest.Backend {
		server := redistest.Start(t, redistest.Config{})
		return locktest.Backend{
			Open:   func(t testing.TB) driver.Store { return open(t, server.Client(t)) },
			Delete: func(name string) { server.Client(t).Del(t.Context(), name) },
		}
	}})
}

// shared returns the backend of one test among many on the same servers.
func shared(t testing.TB, client func(testing.TB) redis.UniversalClient, c redisstore.Config) locktest.Backend {
	return locktest.Backend{
		Open:   func(t testing.TB) driver.Store { return openWith(t, client(t), c) },
		Prefix: t.Name() + ":",
		Delete: func(name string) { client(t).Del(t.Context(), name) },
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{})
	locktest.Run(t, locktest.Suite{Backend: func(t testing.TB) locktest.Backend {
		return shared(t, func(t testing.TB) redis.UniversalClient { return set.Client(t) }, redisstore.Config{})
	}})
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	locktest.Run(t, locktest.Suite{Backend: func(t testing.TB) locktest.Backend {
		return shared(t, func(t testing.TB) redis.UniversalClient { return cluster.Client(t) }, redisstore.Config{})
	}})
}
