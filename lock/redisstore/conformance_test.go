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

// startServer returns a server and a client that looks at it. Both end with t.
func startServer(t testing.TB) (*redistest.Server, *redis.Client) {
	t.Helper()
	server := redistest.Start(t, redistest.Config{})
	return server, server.Client(t)
}

// startProxied is startServer with a proxy, through which the tested clients go.
func startProxied(t testing.TB) (*redistest.Server, *redistest.Proxy, *redis.Client) {
	t.Helper()
	server, admin := startServer(t)
	return server, redistest.StartProxy(t, server), admin
}

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

// shared returns the backend of one test among many on the same servers.
func shared(t testing.TB, client func(testing.TB) redis.UniversalClient, c redisstore.Config) locktest.Backend {
	return locktest.Backend{
		Open:   func(t testing.TB) driver.Store { return openWith(t, client(t), c) },
		Prefix: t.Name() + ":",
		Delete: func(name string) { client(t).Del(t.Context(), name) },
	}
}

// suite is the suite for Redisson's format on servers that the tests share.
func suite(client func(testing.TB) redis.UniversalClient, tested ...driver.Kind) locktest.Suite {
	return locktest.Suite{Tested: tested, Backend: func(t testing.TB) locktest.Backend {
		return shared(t, client, redisstore.Config{})
	}}
}

func TestSingleServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	locktest.Run(t, suite(func(t testing.TB) redis.UniversalClient { return server.Client(t) }))
}

// The master gets the same commands as the server of TestSingleServer. What sentinels add,
// the client that asks them and the replicas, is the same for every kind of lock.
func TestSentinel(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{})
	locktest.Run(t, suite(func(t testing.TB) redis.UniversalClient { return set.Client(t) }, driver.KindMutex))
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	locktest.Run(t, suite(func(t testing.TB) redis.UniversalClient { return cluster.Client(t) }))
}
