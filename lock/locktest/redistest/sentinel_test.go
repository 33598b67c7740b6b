package redistest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	set := StartSentinels(t, SentinelConfig{})
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
	set := StartSentinels(t, SentinelConfig{Replicas: 1, Server: Config{Password: "secret"}})
	client := set.Client(t)
	master := set.Master(t)
	master.CutReplicas(t)
	require.NoError(t, client.Set(t.Context(), "key", "lost", 0).Err())
	require.Zero(t, client.Wait(t.Context(), 1, impatient).Val())
	master.Kill()
	next := set.AwaitFailover(t, master)
	require.Zero(t, next.Client(t).Exists(t.Context(), "key").Val())
}
