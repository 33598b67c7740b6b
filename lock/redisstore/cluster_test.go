package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// clusterClient returns a client as Open makes it.
func clusterClient(t *testing.T, c *redistest.Cluster) *redis.ClusterClient {
	t.Helper()
	client, err := redisstore.Dial(strings.Replace(c.URL(), "redis://", "redis-cluster://", 1), redisstore.ClientConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client.(*redis.ClusterClient)
}

// nodeClients returns a client of each node of a cluster.
func nodeClients(t *testing.T, c *redistest.Cluster) (clients []*redis.Client) {
	t.Helper()
	for _, node := range c.Nodes {
		clients = append(clients, node.Client(t))
	}
	return clients
}

// The keys of a lock must be on one server for any name. The keys of redsync and others
// are not, for names with braces.
func TestClusterKeysAreInOneSlot(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	client := clusterClient(t, cluster)
	l := locker(t, client, lock.Config{})
	for _, name := range []string{
		"orders:42", "{user:7}:cart", "a{b}c", "a}b{c}", "{a}{b}", "{a}:{", "straße", " ", "{a{b}",
		lock.EscapeName("a{b"), lock.EscapeName("}x"), strings.Repeat("x", lock.MaxName),
	} {
		lease := mustLock(t, l, name)
		slot := cluster.Slot(t, name)
		counter := "redisson_lock_token:{" + name + "}"
		if strings.Contains(name, "{") {
			counter = "redisson_lock_token:" + name
		}
		found := 0
		err := client.ForEachMaster(t.Context(), func(ctx context.Context, master *redis.Client) error {
			keys, err := master.ClusterGetKeysInSlot(ctx, slot, 100).Result()
			for _, key := range keys {
				if key == name || key == counter {
					found++
				}
			}
			return err
		})
		require.NoError(t, err)
		assert.Equal(t, 2, found, "%q and its counter are in slot %d", name, slot)
		waiting := make(chan *lock.Lease)
		go send(waiting, func() *lock.Lease { return mustLock(t, l, name) })
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, (<-waiting).Unlock(t.Context()))
	}
	for _, name := range []string{"a{b", "}x", "a{}b"} { // CROSSSLOT, if they were accepted
		_, err := l.Mutex(name).Lock(t.Context())
		require.ErrorAs(t, err, new(*lock.NameError))
	}
}

// In a cluster Redisson publishes releases with SPUBLISH, which a plain subscriber does
// not receive, and the other way round.
func TestClusterPublishesAsRedissonDoes(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	client := clusterClient(t, cluster)
	const name, channel = "orders:42", "redisson_lock__channel:{orders:42}"
	l := locker(t, client, lock.Config{TTL: time.Hour, Poll: time.Hour})

	hears := client.SSubscribe(t.Context(), channel)
	defer hears.Close()
	_, err := hears.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, mustLock(t, l, name).Unlock(t.Context()))
	message, err := hears.ReceiveMessage(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "0", message.Payload)
	require.NoError(t, hears.Close())

	require.NoError(t, client.HSet(t.Context(), name, "285475da-9152-4c83-822a-67ee2f116a79:52", 1).Err())
	got := make(chan *lock.Lease)
	go send(got, func() *lock.Lease { return mustLock(t, l, name) })
	require.Eventually(t, func() bool {
		return client.PubSubShardNumSub(t.Context(), channel).Val()[channel] == 1
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, client.Del(t.Context(), name).Err())
	require.NoError(t, client.SPublish(t.Context(), channel, "0").Err())
	require.NoError(t, (<-got).Unlock(t.Context()))
}

func TestClusterOneSubscriptionConnectionPerNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	mine, theirs := locker(t, clusterClient(t, cluster), lock.Config{}), locker(t, clusterClient(t, cluster), lock.Config{})
	const locks = 90
	locked := contendFor(t, mine, theirs, locks, "lock ")
	nodes := nodeClients(t, cluster)
	shardChannels := func() (all int) {
		for _, node := range nodes {
			all += len(node.PubSubShardChannels(t.Context(), "*").Val())
		}
		return all
	}
	require.Eventually(t, func() bool { return shardChannels() == 3*locks }, 10*time.Second, 10*time.Millisecond)
	for _, node := range nodes {
		list, err := node.Do(t.Context(), "client", "list", "type", "pubsub").Text()
		require.NoError(t, err)
		assert.Equal(t, 1, strings.Count(list, "\n"), "%s", list)
	}
	locked.handOver(t)
	require.Eventually(t, func() bool { return shardChannels() == 0 }, 10*time.Second, 10*time.Millisecond)
}

// recording is a store that records the results of renewals.
type recording struct {
	*redisstore.Store
	mu     sync.Mutex
	rounds int
	errs   []error
}

func (r *recording) Renew(ctx context.Context, items []renewal.Item) {
	r.Store.Renew(ctx, items)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds++
	for _, item := range items {
		if item.Err != nil {
			r.errs = append(r.errs, item.Err)
		}
	}
}

// Renewals in a cluster use pipelines, in which go-redis does not load a script that the
// server does not have.
func TestClusterRenewsDespiteScriptFlush(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	store := &recording{Store: open(t, clusterClient(t, cluster))}
	const ttl = 3 * time.Second // so that a busy machine loses none
	l, err := lock.New(store, lock.Config{TTL: ttl})
	require.NoError(t, err)
	defer l.Close(context.Background())
	leases := make([]*lock.Lease, 200)
	for i := range leases {
		leases[i] = mustLock(t, l, fmt.Sprintf("lock %d", i))
	}
	nodes := nodeClients(t, cluster)
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, node := range nodes {
			require.NoError(t, node.ScriptFlush(t.Context()).Err())
		}
	}
	for _, lease := range leases {
		require.NoError(t, lease.Err())
		require.NoError(t, lease.Unlock(t.Context()))
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	for _, err := range store.errs { // a busy machine may be late
		assert.NotContains(t, err.Error(), "NOSCRIPT")
	}
	assert.GreaterOrEqual(t, store.rounds, 4)
}

// changesNothing checks that a change of the topology without loss of data loses no
// lease, and that waiters are woken after it.
func changesNothing(t *testing.T, client func() redis.UniversalClient, change func()) {
	t.Helper()
	mine := locker(t, client(), lock.Config{TTL: 10 * time.Second, RetryFor: 20 * time.Second})
	theirs := locker(t, client(), lock.Config{TTL: 10 * time.Second, RetryFor: 20 * time.Second, Poll: time.Hour})
	const locks = 20
	locked := contendFor(t, mine, theirs, locks, "{a}")
	time.Sleep(100 * time.Millisecond)
	change()
	for _, lease := range locked.leases {
		require.NoError(t, lease.Err(), "lost by a change of the topology")
	}
	begin := time.Now()
	locked.handOver(t)
	took := time.Since(begin)
	t.Logf("took %v", took)
	assert.Less(t, took, 5*time.Second)
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Replicas: 1})
	changesNothing(t, func() redis.UniversalClient { return clusterClient(t, cluster) }, func() {
		cluster.Failover(t, cluster.Owner(t, "{a}"))
	})
}

func TestClusterMasterDies(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Replicas: 1})
	changesNothing(t, func() redis.UniversalClient { return clusterClient(t, cluster) }, func() {
		master := cluster.Owner(t, "{a}")
		master.AwaitReplication(t, 1)
		master.Kill()
		cluster.AwaitFailover(t, "{a}", master)
	})
}

func TestClusterSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	changesNothing(t, func() redis.UniversalClient { return clusterClient(t, cluster) }, func() {
		from := cluster.Owner(t, "{a}")
		to := cluster.Nodes[0]
		if to == from {
			to = cluster.Nodes[1]
		}
		move := cluster.Migrate(t, "{a}", to)
		for i := range 10 {
			move.Move(t, fmt.Sprintf("{a}%d", i)) // without its counter: some commands meet TRYAGAIN
		}
		time.Sleep(500 * time.Millisecond)
		move.Finish(t)
	})
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{})
	changesNothing(t, func() redis.UniversalClient { return set.Client(t) }, func() {
		set.Failover(t)
		// Until the old master knows of the move, slots that were released there come
		// back.
		set.AwaitReplicas(t)
	})
}

func TestSentinelMasterDies(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{})
	changesNothing(t, func() redis.UniversalClient { return set.Client(t) }, func() {
		master := set.Master(t)
		master.AwaitReplication(t, 2)
		master.Kill()
		set.AwaitFailover(t, master)
	})
}
