//go:build real

package delayqueue_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A failover has limits of seconds: for the master's pause, for its votes, and for the sentinels'
// steps.

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Replicas: 1})
	costsNothing(t, func() redis.UniversalClient { return clusterClient(t, cluster) }, func() {
		cluster.Failover(t, cluster.Owner(t, "{mails}"))
	}, true)
}

// What the old master receives while the new one exists already is lost, as the package
// documentation promises: messages that were just put, and outcomes.
func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{})
	costsNothing(t, func() redis.UniversalClient { return set.Client(t) }, func() {
		set.Master(t).AwaitReplication(t, 2)
		set.Failover(t)
		set.AwaitReplicas(t)
	}, false)
}
