package redistest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	set := StartSentinels(t, SentinelConfig{Server: Config{Password: "secret"}})
	client := set.Client(t)
	require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
	first := set.Master(t)
	require.Same(t, set.Nodes[0], first)
	first.AwaitReplication(t, 2)

	second := set.Failover(t)
	require.NotSame(t, first, second)
	require.Equal(t, "value", second.Client(t).Get(t.Context(), "key").Val())
	require.Eventually(t, func() bool { return client.Set(t.Context(), "key", "new", 0).Err() == nil }, patient, 100*time.Millisecond,
		"the client must find the new master")
}
