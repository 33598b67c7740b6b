//go:build real

package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Sentinels and the nodes of a cluster take a master on a busy machine for dead.

// fenced is a resource that refuses writes with a token smaller than the largest that it
// has seen.
type fenced struct {
	mu      sync.Mutex
	largest int64
}

func (f *fenced) write(token int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token < f.largest {
		return false
	}
	f.largest = token
	return true
}

func TestClusterMasterDies(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Replicas: 1, NodeTimeout: time.Second})
	changesNothing(t, func() redis.UniversalClient { return clusterClient(t, cluster) }, func() {
		master := cluster.Owner(t, "{a}")
		master.AwaitReplication(t, 1)
		master.Kill()
		cluster.AwaitFailover(t, "{a}", master)
	})
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{})
	changesNothing(t, func() redis.UniversalClient { return set.Client(t) }, func() {
		set.Master(t).AwaitReplication(t, 2) // a failover loses what was not replicated
		set.Failover(t)
		// Until the old master knows of the move, slots that were released there come
		// back.
		set.AwaitReplicas(t)
	})
}

func TestSentinelMasterDies(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{DownAfter: time.Second})
	changesNothing(t, func() redis.UniversalClient { return set.Client(t) }, func() {
		master := set.Master(t)
		master.AwaitReplication(t, 2)
		master.Kill()
		set.AwaitFailover(t, master)
	})
}

// replicated returns a locker that waits for replicas. It ends with t.
func replicated(t testing.TB, client redis.UniversalClient, replicas int, c lock.Config) *lock.Locker {
	t.Helper()
	return lockerOn(t, openWith(t, client, redisstore.Config{Replicas: replicas, ReplicaTimeout: 300 * time.Millisecond}), c)
}

// A failover before replication loses the lock, as documented: two owners hold it by
// their clocks, but their tokens differ, and a holder whose lease is renewed learns of
// the loss at the next renewal.
func TestFailoverBeforeReplication(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	set := redistest.StartSentinels(t, redistest.SentinelConfig{DownAfter: time.Second})
	master := set.Master(t)
	mine := locker(t, set.Client(t), lock.Config{TTL: ttl})
	theirs := locker(t, set.Client(t), lock.Config{TTL: ttl})
	resource := &fenced{}

	warm := mustLock(t, mine, "fixed") // gives the replicas an earlier token
	require.True(t, resource.write(warm.Token()))
	require.NoError(t, warm.Unlock(t.Context()))
	master.AwaitReplication(t, 2)

	master.CutReplicas(t)
	fixed, err := mine.Mutex("fixed").With(lock.Options{TTL: time.Minute, Fixed: true}).Lock(t.Context())
	require.NoError(t, err)
	require.True(t, resource.write(fixed.Token()))
	renewed := mustLock(t, mine, "renewed")
	holder := watch(renewed)
	master.Kill()
	set.AwaitFailover(t, master)
	promoted := time.Now()

	second := mustLock(t, theirs, "fixed")
	require.True(t, fixed.Valid() && second.Valid(), "two hold the lock, as documented")
	require.Greater(t, second.Token(), fixed.Token(), "broken promise: the token grows although its counter was lost")
	require.True(t, resource.write(second.Token()))
	require.False(t, resource.write(fixed.Token()), "broken promise: and keeps the stale holder out")

	told, loss := holder.lossIsInTime(t, ttl)
	t.Logf("told of the loss %v after the failover, by %v; a renewal is due every %v", told.Sub(promoted).Round(time.Millisecond), loss.Cause, ttl/3)
	assert.Less(t, told.Sub(promoted), ttl/3+time.Second)
	require.ErrorIs(t, renewed.Unlock(t.Context()), lock.ErrLost)
	require.NoError(t, second.Unlock(t.Context()))
}

// If a replica's acknowledgement is required, the same grant is refused and released. The
// test runs alone: sentinels consider a busy machine dead, and the test counts replicas.
func TestFailoverWithReplicas(t *testing.T) {
	set := redistest.StartSentinels(t, redistest.SentinelConfig{DownAfter: time.Second})
	master := set.Master(t)
	brief := replicated(t, set.Client(t), 1, lock.Config{RequestTimeout: 3 * time.Second})
	long := replicated(t, set.Client(t), 2, lock.Config{})

	held := mustLock(t, long, "held") // by all replicas, so by the promoted one
	master.CutReplicas(t)
	_, err := brief.Mutex("a").TryLock(t.Context())
	isFault(t, err, redisstore.ErrUnreplicated)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, driver.ErrNotDone)
	admin := master.Client(t)
	require.Eventually(t, func() bool { return admin.Exists(t.Context(), "a").Val() == 0 }, time.Minute, 5*time.Millisecond, "the grant is given back")

	got := make(chan error, 1)
	go func() {
		lease, err := long.Mutex("a").TryLock(context.Background())
		if err == nil {
			err = lease.Unlock(context.Background())
		}
		got <- err
	}()
	time.Sleep(500 * time.Millisecond)
	master.AcceptReplicas(t)
	require.NoError(t, <-got, "it is asked for again until the replicas are back")

	set.AwaitReplicas(t)
	master.Kill()
	set.AwaitFailover(t, master)
	_, err = locker(t, set.Client(t), lock.Config{}).Mutex("held").TryLock(t.Context())
	require.ErrorIs(t, err, lock.ErrNotAcquired, "what was replicated survives a failover")
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock(t.Context()))
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Replicas: 1})
	changesNothing(t, func() redis.UniversalClient { return clusterClient(t, cluster) }, func() {
		cluster.Failover(t, cluster.Owner(t, "{a}"))
	})
}
