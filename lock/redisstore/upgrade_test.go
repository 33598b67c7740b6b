package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// withoutShards has nodes refuse all commands of sharded pub/sub, as Redis 6.2 does, until upgrade is
// called.
func withoutShards(t *testing.T, nodes ...*redis.Client) (upgrade func()) {
	t.Helper()
	set := func(rules ...any) {
		t.Helper()
		for _, node := range nodes {
			require.NoError(t, node.Do(t.Context(), append([]any{"acl", "setuser", "default"}, rules...)...).Err())
		}
	}
	set("-spublish", "-ssubscribe", "-pubsub|shardnumsub")
	return func() { set("+@all") }
}

// handsOver has a lock go from one locker to another by nothing but a message: it has neither an end
// nor a poll.
func handsOver(t *testing.T, name string, from, to *lock.Locker, between func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	held := mustLock(t, from, name)
	got := make(chan error, 1)
	go func() {
		lease, err := to.Mutex(name).Lock(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		got <- err
	}()
	between()
	require.NoError(t, held.Unlock(ctx))
	require.NoError(t, <-got, name)
}

// Processes that have seen a cluster without sharded pub/sub and those that see it with that wake each
// other: those before the upgrade live on. With PubSubOn a request before it is refused.
func TestClusterIsUpgradedToShards(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	upgrade := withoutShards(t, nodeClients(t, cluster)...)
	admin := clusterClient(t, cluster)
	unhurried := lock.Config{TTL: time.Hour, Poll: time.Hour, RequestTimeout: time.Minute}
	before, other := locker(t, clusterClient(t, cluster), unhurried), locker(t, clusterClient(t, cluster), unhurried)
	queued := func(name string) func() { return func() { awaitEnqueued(t, admin, name) } }
	shards := openWith(t, clusterClient(t, cluster), redisstore.Config{PubSub: redisstore.PubSubOn})
	_, err := shards.Acquire(t.Context(), mutexOf("shards", 1))
	require.ErrorContains(t, err, "set PubSubAuto or PubSubOff")
	require.ErrorIs(t, err, driver.ErrNotDone)
	require.NotErrorIs(t, err, driver.ErrUnavailable, "to wait does not help")
	handsOver(t, "old", before, other, queued("old"))
	handsOver(t, "over", before, other, func() {
		awaitEnqueued(t, admin, "over")
		upgrade()
	})
	after := locker(t, clusterClient(t, cluster), unhurried)
	handsOver(t, "shards", lockerOn(t, shards, unhurried), after, queued("shards"))
	handsOver(t, "a", before, after, queued("a"))
	handsOver(t, "b", after, before, queued("b"))
	upgrade = withoutShards(t, nodeClients(t, cluster)...)
	handsOver(t, "c", before, other, func() {
		awaitEnqueued(t, admin, "c")
		upgrade()
		handsOver(t, "d", after, before, queued("d"))
	})
}

// While some masters of a cluster have sharded pub/sub and others have not, the locks of all of them
// are handed over, and no release fails.
func TestClusterOfTwoVersions(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	withoutShards(t, cluster.Nodes[0].Client(t))
	admin := clusterClient(t, cluster)
	unhurried := lock.Config{TTL: time.Hour, Poll: time.Hour, RequestTimeout: time.Minute}
	for range 3 { // times, since any master may be the first that answers
		a, b := locker(t, clusterClient(t, cluster), unhurried), locker(t, clusterClient(t, cluster), unhurried)
		for _, node := range cluster.Nodes {
			name := "orders"
			for i := 0; cluster.Owner(t, name) != node; i++ {
				name = fmt.Sprint("orders", i)
			}
			handsOver(t, name, a, b, func() { awaitEnqueued(t, admin, name) })
			handsOver(t, name, b, a, func() { awaitEnqueued(t, admin, name) })
		}
	}
}
