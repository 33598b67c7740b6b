//go:build real

package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// The commands of the format run on one server with tokens, and in a cluster without. A
// master with sentinels gets the same commands as one server, see TestSentinel. The suite's
// cases measure time. In virtual time, TestPlainInBubble runs the suite with tokens.
func TestPlainSingleServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	drivertest.Run(t, plainSuite(func(t testing.TB) redis.UniversalClient { return server.Client(t) }, true))
}

func TestPlainCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	drivertest.Run(t, plainSuite(func(t testing.TB) redis.UniversalClient { return cluster.Client(t) }, false))
}
