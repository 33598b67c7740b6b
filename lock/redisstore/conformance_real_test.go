//go:build real

package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest/backend"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// suite is the suite for Redisson's format on servers that the tests share. Its cases
// measure time. In virtual time, package backend runs it.
func suite(client func(testing.TB) redis.UniversalClient, tested ...driver.Kind) drivertest.Suite {
	return drivertest.Suite{Tested: tested, Backend: func(t testing.TB) drivertest.Backend {
		return shared(t, client, redisstore.Config{})
	}}
}

func TestSingleServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	drivertest.Run(t, drivertest.Suite{
		Backend: func(t testing.TB) drivertest.Backend { return single(t, server) },
		Own: func(t testing.TB) drivertest.Backend {
			clock := newSteppedClock(t)
			config := durable() // a server that fsyncs each second may delay a write, which its end loses
			config.Env = clock.env()
			own := redistest.Start(t, config)
			b := single(t, own)
			b.Restart = func(data bool) {
				if !data {
					require.NoError(t, own.Client(t).FlushAll(t.Context()).Err())
				}
				own.Restart(t)
			}
			b.StepClock = func(d time.Duration) { clock.step(t, d) }
			return b
		},
	})
}

// single returns the backend of one test on one server.
func single(t testing.TB, server *redistest.Server) drivertest.Backend {
	b := backend.New(func(t testing.TB, clients ...redis.UniversalClient) driver.Store { return open(t, clients[0]) }, backend.Real(server))
	b.Prefix = t.Name() + ":"
	b.Delete = func(name string) { server.Client(t).Del(t.Context(), name) }
	return b
}

// The master gets the same commands as the server of TestSingleServer. What sentinels add,
// the client that asks them and the replicas, is the same for every kind of lock.
func TestSentinel(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{})
	drivertest.Run(t, suite(func(t testing.TB) redis.UniversalClient { return set.Client(t) }, driver.KindMutex))
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	drivertest.Run(t, suite(func(t testing.TB) redis.UniversalClient { return cluster.Client(t) }))
}
