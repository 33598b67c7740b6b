//go:build real

package redistest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A master that dies is replaced, whether it was one from the start or not. Since Redis 8 the
// dead one stays in its shard as a second master. One that the machine holds up for a second is
// replaced, too.
func TestClusterMasterDies(t *testing.T) {
	t.Parallel()
	cluster := StartCluster(t, ClusterConfig{Replicas: 1, NodeTimeout: time.Second, Server: Config{Password: "secret"}})
	client := cluster.Client(t)
	first, second := cluster.Nodes[0], cluster.Nodes[3]
	key := keyOf(t, cluster, first)
	require.NoError(t, client.Set(t.Context(), key, "value", 0).Err())
	first.AwaitReplication(t, 1)
	first.Kill()
	require.Same(t, second, cluster.AwaitFailover(t, key, first))

	first.Restart(t)
	await(t, first.replicates)
	cluster.awaitAgreement(t)
	second.AwaitReplication(t, 1)
	second.Kill()
	require.Same(t, first, cluster.AwaitFailover(t, key, second))
	require.Eventually(t, func() bool { return client.Get(t.Context(), key).Val() == "value" }, patient, 100*time.Millisecond,
		"the client must find the new master")
}

func TestSentinelMasterDies(t *testing.T) {
	t.Parallel()
	set := StartSentinels(t, SentinelConfig{DownAfter: time.Second})
	client := set.Client(t)
	require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
	require.EqualValues(t, 2, client.Wait(t.Context(), 2, patient).Val(), "both replicas have it")

	first := set.Master(t)
	require.Same(t, set.Nodes[0], first)
	first.Kill()
	second := set.AwaitFailover(t, first)
	require.NotSame(t, first, second)
	require.Equal(t, "value", second.Client(t).Get(t.Context(), "key").Val())
	require.Eventually(t, func() bool { return client.Set(t.Context(), "key", "new", 0).Err() == nil }, patient, 100*time.Millisecond,
		"the client must find the new master")

	// The first one would come back as a replica, but only after 10 s.
	second = set.AwaitReplicas(t)
	third := set.Failover(t)
	require.NotSame(t, first, third)
	require.NotSame(t, second, third)
}

// A failover loses the write, with a password on every connection.
func TestSentinelFailoverBeforeReplication(t *testing.T) {
	t.Parallel()
	set := StartSentinels(t, SentinelConfig{Replicas: 1, DownAfter: time.Second, Server: Config{Password: "secret"}})
	client := set.Client(t)
	master := set.Master(t)
	master.CutReplicas(t)
	require.NoError(t, client.Set(t.Context(), "key", "lost", 0).Err())
	require.Zero(t, client.Wait(t.Context(), 1, impatient).Val())
	master.Kill()
	next := set.AwaitFailover(t, master)
	require.Zero(t, next.Client(t).Exists(t.Context(), "key").Val())
}
