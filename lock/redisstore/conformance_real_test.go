//go:build real

package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// suite is the suite for Redisson's format on servers that the tests share. Its cases
// measure time. In virtual time, package locktest runs it.
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
