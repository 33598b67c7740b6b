package redistest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// keyOf returns a key that a node serves.
func keyOf(t *testing.T, c *Cluster, node *Server) string {
	t.Helper()
	for i := range 1000 {
		if key := fmt.Sprint("key", i); c.Owner(t, key) == node {
			return key
		}
	}
	t.Fatal("no key found that the node serves")
	return ""
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := StartCluster(t, ClusterConfig{})
	client := cluster.Client(t)
	for _, node := range cluster.Nodes {
		key := keyOf(t, cluster, node)
		require.NoError(t, client.Set(t.Context(), key, "value", 0).Err())
		require.EqualValues(t, 1, node.Client(t).Exists(t.Context(), key).Val(), "%s is on its owner", key)
	}
	options, err := redis.ParseClusterURL(cluster.URL())
	require.NoError(t, err)
	require.Equal(t, cluster.Options().Addrs, options.Addrs)

	t.Run("an unresponsive master leaves the others working", func(t *testing.T) {
		mute, other := cluster.Nodes[0], cluster.Nodes[1]
		muteKey, otherKey := keyOf(t, cluster, mute), keyOf(t, cluster, other)
		mute.Pause()
		defer mute.Resume()
		require.NoError(t, client.Get(t.Context(), otherKey).Err())
		ctx, cancel := context.WithTimeout(t.Context(), impatient)
		defer cancel()
		require.Error(t, client.Get(ctx, muteKey).Err())
	})

	t.Run("a slot moves", func(t *testing.T) {
		from, to := cluster.Nodes[1], cluster.Nodes[2]
		key := "{" + keyOf(t, cluster, from) + "}"
		first, second := key+"first", key+"second"
		require.NoError(t, client.MSet(t.Context(), first, 1, second, 2).Err())

		migration := cluster.Migrate(t, key, to)
		migration.Move(t, first)
		direct := from.Client(t)
		require.ErrorContains(t, direct.Get(t.Context(), first).Err(), "ASK")
		require.NoError(t, direct.Get(t.Context(), second).Err())
		require.ErrorContains(t, direct.MGet(t.Context(), first, second).Err(), "TRYAGAIN")
		require.Equal(t, "1", client.Get(t.Context(), first).Val(), "a cluster client follows")

		migration.Finish(t)
		require.ErrorContains(t, direct.Get(t.Context(), second).Err(), "MOVED")
		require.Equal(t, "2", client.Get(t.Context(), second).Val())
		require.Same(t, to, cluster.Owner(t, key))
	})
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	cluster := StartCluster(t, ClusterConfig{Replicas: 1, Server: Config{Password: "secret"}})
	client := cluster.Client(t)
	first := cluster.Nodes[0]
	key := keyOf(t, cluster, first)
	require.NoError(t, client.Set(t.Context(), key, "value", 0).Err())

	second := cluster.Failover(t, first)
	require.Same(t, second, cluster.Owner(t, key))
	require.NoError(t, client.Set(t.Context(), key, "after", 0).Err())
}

// What another connection has written is waited for, also on servers whose WAIT covers only
// what its own connection wrote.
func TestAwaitReplicationCoversEveryConnection(t *testing.T) {
	t.Parallel()
	cluster := StartCluster(t, ClusterConfig{Replicas: 1})
	master, replica := cluster.Nodes[0], cluster.Nodes[3]
	master.AwaitReplication(t, 1) // the replica is connected
	replica.Pause()
	require.NoError(t, master.Client(t).Set(t.Context(), keyOf(t, cluster, master), "value", 0).Err())
	var resumed atomic.Bool
	time.AfterFunc(200*time.Millisecond, func() {
		resumed.Store(true)
		replica.Resume()
	})
	master.AwaitReplication(t, 1)
	require.True(t, resumed.Load(), "a replica that is paused has nothing new")
}
