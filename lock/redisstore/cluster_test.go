package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// unhurriedIO are options of a URL, with which only a server that hangs exceeds a client's limits.
const unhurriedIO = "dial_timeout=2m&read_timeout=1m&write_timeout=1m&pool_timeout=1m"

// clusterClient returns a client as Open makes it, whose limits only a server that hangs exceeds.
func clusterClient(t *testing.T, c *redistest.Cluster) *redis.ClusterClient {
	t.Helper()
	url := strings.Replace(c.URL(), "redis://", "redis-cluster://", 1) + "&" + unhurriedIO
	client, err := redisstore.Dial(url, redisstore.ClientConfig{})
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

// keyOf returns a key of the lock called name.
func keyOf(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + name
	}
	return prefix + "{" + name + "}"
}

// awaitEnqueued waits until a client is in the wait queue of a mutex.
func awaitEnqueued(t *testing.T, client redis.UniversalClient, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return client.ZCard(t.Context(), keyOf("leasewheel_lock_line:", name)).Val() == 1
	}, time.Minute, time.Millisecond, name)
}

// The keys of a lock must be on one server for any name. The keys of redsync and others
// are not, for names with braces.
func TestClusterKeysAreInOneSlot(t *testing.T) {
	t.Parallel()
	cluster := sharedCluster(t)
	client := clusterClient(t, cluster)
	l, other := locker(t, client, lock.Config{}), locker(t, client, lock.Config{})
	for _, name := range []string{
		"orders:42", "{user:7}:cart", "a{b}c", "a}b{c}", "{a}{b}", "{a}:{", "straße", " ", "{a{b}",
		lock.EscapeName("a{b"), lock.EscapeName("}x"), strings.Repeat("x", driver.MaxName),
	} {
		lease := mustLock(t, l, name)
		slot := cluster.Slot(t, name)
		counter := keyOf("redisson_lock_token:", name)
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
		go send(waiting, func() *lock.Lease { return mustLock(t, other, name) })
		awaitEnqueued(t, client, name)
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
	client := clusterClient(t, sharedCluster(t))
	const name, channel = "orders:7", "redisson_lock__channel:{orders:7}"
	l := locker(t, client, lock.Config{Poll: time.Hour})

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
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, client.Del(t.Context(), name).Err())
	require.NoError(t, client.SPublish(t.Context(), channel, "0").Err())
	require.NoError(t, (<-got).Unlock(t.Context()))
}

// awaitSubscribingClients waits until a node has n connections with subscriptions. Those of an earlier
// test may be about to end.
func awaitSubscribingClients(t *testing.T, node *redis.Client, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		list, err := node.Do(t.Context(), "client", "list", "type", "pubsub").Text()
		return err == nil && strings.Count(list, "\n") == n
	}, time.Minute, 5*time.Millisecond, "%d connections with subscriptions", n)
}

func TestClusterOneSubscriptionConnectionPerNode(t *testing.T) {
	cluster := sharedCluster(t)
	mine, theirs := locker(t, clusterClient(t, cluster), lock.Config{}), locker(t, clusterClient(t, cluster), lock.Config{})
	const locks = 30
	locked := contendFor(t, mine, theirs, locks, "lock ")
	nodes := nodeClients(t, cluster)
	shardChannels := func() (all int) {
		for _, node := range nodes {
			all += len(node.PubSubShardChannels(t.Context(), "*").Val())
		}
		return all
	}
	require.Eventually(t, func() bool { return shardChannels() == 3*locks }, time.Minute, 10*time.Millisecond)
	for _, node := range nodes {
		awaitSubscribingClients(t, node, 1)
	}
	locked.handOver(t)
	require.Eventually(t, func() bool { return shardChannels() == 0 }, time.Minute, 10*time.Millisecond)
}

// Renewals in a cluster use pipelines, in which go-redis does not load a script that the
// server does not have.
func TestClusterRenewsDespiteScriptFlush(t *testing.T) {
	t.Parallel()
	cluster := sharedCluster(t)
	store := open(t, clusterClient(t, cluster))
	var holds []*driver.Hold
	for i := range 60 {
		holds = append(holds, mutexOf(fmt.Sprintf("%s %d", t.Name(), i), 1))
		granted, err := store.Acquire(t.Context(), holds[i])
		require.NoError(t, err)
		require.Equal(t, driver.Granted, granted.Verdict)
	}
	nodes := nodeClients(t, cluster)
	for range 5 {
		for _, node := range nodes {
			require.NoError(t, node.ScriptFlush(t.Context()).Err())
		}
		for _, item := range renewItems(t.Context(), store, holds...) {
			require.Equal(t, renewal.Renewed, item.Outcome, "%v", item.Err)
		}
	}
	for _, h := range holds {
		held, err := store.Release(t.Context(), released(h))
		require.NoError(t, err)
		require.True(t, held)
	}
}

// changesNothing checks that a change of the topology without loss of data loses no
// lease, and that waiters are woken after it: they do not ask again by themselves.
func changesNothing(t *testing.T, client func() redis.UniversalClient, change func()) {
	t.Helper()
	mine := locker(t, client(), lock.Config{TTL: time.Hour, RetryFor: time.Minute})
	theirs := locker(t, client(), lock.Config{TTL: time.Hour, RetryFor: time.Minute, Poll: time.Hour})
	const locks = 20
	admin := client()
	locked := contendFor(t, mine, theirs, locks, "{a}")
	for i := range locks {
		awaitEnqueued(t, admin, fmt.Sprintf("{a}%d", i))
	}
	change()
	for _, lease := range locked.leases {
		require.NoError(t, lease.Err(), "lost by a change of the topology")
	}
	locked.handOver(t)
}

func TestClusterSlotMoves(t *testing.T) {
	cluster := sharedCluster(t)
	changesNothing(t, func() redis.UniversalClient { return clusterClient(t, cluster) }, func() {
		from := cluster.Owner(t, "{a}")
		to := cluster.Nodes[0]
		if to == from {
			to = cluster.Nodes[1]
		}
		asks := locker(t, clusterClient(t, cluster), lock.Config{RequestTimeout: 100 * time.Millisecond})
		move := cluster.Migrate(t, "{a}", to)
		for i := range 10 {
			move.Move(t, fmt.Sprintf("{a}%d", i)) // without its counter: some commands meet TRYAGAIN
			_, err := asks.Mutex(fmt.Sprintf("{a}%d", i)).TryLock(t.Context())
			require.Error(t, err)
		}
		move.Finish(t)
	})
}

// While the slot of a lock moves, its holder is renewed, wherever the lock is: a move may take
// longer than a lease lasts. With the keys of a lock on two masters there is no answer.
func TestClusterRenewsWhileASlotMoves(t *testing.T) {
	cluster := sharedCluster(t)
	client := clusterClient(t, cluster)
	stores := map[string]*redisstore.Store{
		"tokens that last":       open(t, client),
		"tokens that have ended": openWith(t, client, redisstore.Config{FenceTTL: 2 * time.Millisecond}),
		"tokens without an end":  openWith(t, client, redisstore.Config{FenceTTL: -1}),
	}
	holds := make(map[string][]*driver.Hold)
	var locks []string
	for tokens, store := range stores {
		for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite, driver.KindPermit} {
			h := heldFor(kind, 1)
			h.Name = fmt.Sprintf("{moves}%v, %s", kind, tokens)
			if kind == driver.KindPermit {
				require.NoError(t, client.Set(t.Context(), h.Name, 1, 0).Err())
			}
			require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
			if kind == driver.KindRead {
				h.Count = 2
				require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
			}
			holds[tokens] = append(holds[tokens], h)
			locks = append(locks, h.Name)
		}
	}
	outcomes := func(allowed ...renewal.Outcome) {
		t.Helper()
		for tokens, store := range stores {
			for _, h := range holds[tokens] {
				item := renewItems(t.Context(), store, h)[0]
				assert.Contains(t, allowed, item.Outcome, "%s: %v", h.Name, item.Err)
			}
			for i, item := range renewItems(t.Context(), store, holds[tokens]...) {
				assert.Contains(t, allowed, item.Outcome, "%s, with others: %v", holds[tokens][i].Name, item.Err)
			}
		}
	}
	from, to := cluster.Owner(t, "{moves}"), cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	require.Eventually(t, func() bool {
		counters := from.Client(t).Keys(t.Context(), "redisson_lock_token:{moves}*, tokens that have ended")
		return counters.Err() == nil && len(counters.Val()) == 0
	}, time.Minute, time.Millisecond)
	move := cluster.Migrate(t, "{moves}", to)
	outcomes(renewal.Renewed)
	move.Move(t, locks...)
	outcomes(renewal.Renewed, renewal.Unknown)
	rest, err := from.Client(t).Keys(t.Context(), "*{moves}*").Result()
	require.NoError(t, err)
	move.Move(t, rest...)
	outcomes(renewal.Renewed)
	move.Finish(t)
	outcomes(renewal.Renewed)
}

// A read-write lock has a key for each hold, which its scripts find. With those on two masters a
// request may be repeated, and the other leases of its batch are renewed.
func TestClusterReadersWhileASlotMoves(t *testing.T) {
	cluster := sharedCluster(t)
	store := open(t, clusterClient(t, cluster))
	named := func(h *driver.Hold, name string) *driver.Hold {
		h.Name = name
		return h
	}
	reader, other := named(heldFor(driver.KindRead, 1), "{readers}"), named(heldFor(driver.KindRead, 1), "{readers}other")
	for reader.Count = 1; reader.Count <= 2; reader.Count++ {
		require.Equal(t, driver.Granted, asks(t, store, reader).Verdict)
	}
	require.Equal(t, driver.Granted, asks(t, store, other).Verdict)
	writer := named(heldFor(driver.KindWrite, 2), "{readers}")
	writer.ReadWrite.BlockReaders = time.Hour
	require.Equal(t, driver.Refused, asks(t, store, writer).Verdict)

	from, to := cluster.Owner(t, "{readers}"), cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	move := cluster.Migrate(t, "{readers}", to)
	move.Move(t, "{readers}:"+reader.Owner+":rwlock_timeout:2")
	_, err := store.Acquire(t.Context(), writer)
	require.ErrorIs(t, err, redisstore.ErrCluster)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	items := renewItems(t.Context(), store, reader, other)
	require.ErrorIs(t, items[0].Err, driver.ErrUnavailable)
	require.NotErrorIs(t, items[0].Err, driver.ErrNotDone)
	assert.Equal(t, renewal.Renewed, items[1].Outcome, items[1].Err)
	move.Finish(t)
	assert.Equal(t, renewal.Renewed, renewItems(t.Context(), store, reader)[0].Outcome)
	assert.Equal(t, driver.Refused, asks(t, store, writer).Verdict)
}

// A master that a slot moves to has a lock before the keys of its holds. A writer that asks there
// does not take the readers for dead.
func TestClusterWriterWhileASlotMoves(t *testing.T) {
	cluster := sharedCluster(t)
	store := open(t, clusterClient(t, cluster))
	reader, writer := heldFor(driver.KindRead, 1), heldFor(driver.KindWrite, 2)
	reader.Name, writer.Name = "{reader}", "{reader}"
	writer.ReadWrite.BlockReaders = time.Hour
	require.Equal(t, driver.Granted, asks(t, store, reader).Verdict)
	require.Equal(t, driver.Refused, asks(t, store, writer).Verdict)

	from, to := cluster.Owner(t, "{reader}"), cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	move := cluster.Migrate(t, "{reader}", to)
	move.Move(t, "{reader}", "redisson_lock_token:{reader}", "leasewheel_lock_claim:{reader}")
	answer, err := store.Acquire(t.Context(), writer)
	assert.ErrorIs(t, err, redisstore.ErrCluster, "%v", answer)
	move.Finish(t)
	assert.Equal(t, renewal.Renewed, renewItems(t.Context(), store, reader)[0].Outcome)
	assert.Equal(t, driver.Refused, asks(t, store, writer).Verdict)
}

// A client learns from its subscriptions that a slot has moved. Those of the slot move, and the
// others of their connection are not affected.
func TestClusterMovedSlotEndsNoOtherSubscription(t *testing.T) {
	cluster := sharedCluster(t)
	store := open(t, clusterClient(t, cluster))
	from, to := cluster.Owner(t, "{moves}"), cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	stays := "stays"
	for i := 0; cluster.Owner(t, stays) != from; i++ {
		stays = fmt.Sprint("stays", i)
	}
	var woken atomic.Int32
	subscribe(t, store, mutexOf("{moves}", 1), func(driver.Notice) {})
	subscribe(t, store, mutexOf(stays, 1), func(driver.Notice) { woken.Add(1) })
	old, added := from.Client(t), to.Client(t)
	connection := regexp.MustCompile(`(?m)^id=(\d+) .* ssub=6 `).FindStringSubmatch(old.ClientList(t.Context()).Val())
	require.NotNil(t, connection)

	cluster.Migrate(t, "{moves}", to).Finish(t)
	channels := []string{"redisson_lock__channel:{moves}", "leasewheel_lock__channel:{moves}", "leasewheel_lock__channel:{moves}:" + owner(1)[:36]}
	require.Eventually(t, func() bool {
		subscribed := added.PubSubShardNumSub(t.Context(), channels...).Val()
		return subscribed[channels[0]] == 1 && subscribed[channels[1]] == 1 && subscribed[channels[2]] == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, old.SPublish(t.Context(), "redisson_lock__channel:{"+stays+"}", "0").Err())
	require.Eventually(t, func() bool { return woken.Load() > 0 }, time.Minute, time.Millisecond)
	assert.Contains(t, old.ClientList(t.Context()).Val(), "id="+connection[1]+" ")
	assert.EqualValues(t, 1, woken.Load())
}

// A cluster whose nodes leave their addresses to the client, as behind a translation of addresses, is refused with
// the setting to change.
func TestClusterWithoutAddresses(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Server: redistest.Config{Directives: []string{"cluster-preferred-endpoint-type unknown-endpoint"}}})
	_, err := locker(t, cluster.Client(t), lock.Config{}).Mutex("a").Lock(t.Context())
	require.ErrorContains(t, err, "cluster-preferred-endpoint-type")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

// A cluster that is down and allows reads refuses the writes of scripts alone: that passes, too.
func TestClusterThatIsDownButAllowsReads(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Masters: 1, Server: redistest.Config{Directives: []string{"cluster-allow-reads-when-down yes"}}})
	store, node := open(t, cluster.Client(t)), cluster.Nodes[0]
	awaitState := func(state string) {
		t.Helper()
		client := node.Client(t)
		require.Eventually(t, func() bool {
			return strings.HasPrefix(client.ClusterInfo(t.Context()).Val(), "cluster_state:"+state)
		}, time.Minute, time.Millisecond)
	}
	other := cluster.Slot(t, "other")
	do(t, node, "config", "set", "cluster-require-full-coverage", "yes")
	do(t, node, "cluster", "delslots", other)
	awaitState("fail")
	_, err := store.Acquire(t.Context(), mutexOf("a", 1))
	isFault(t, err, redisstore.ErrCluster)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorIs(t, err, driver.ErrNotDone)
	got := make(chan *lock.Lease, 1)
	l := lockerOn(t, store, lock.Config{})
	go send(got, func() *lock.Lease { return mustLock(t, l, "a") })
	do(t, node, "cluster", "addslots", other)
	require.NoError(t, (<-got).Unlock(t.Context()))
}
