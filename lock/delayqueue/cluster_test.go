package delayqueue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// clusterClient returns a client as redisstore.Open makes it, whose limits only a server that
// hangs exceeds.
func clusterClient(t *testing.T, c *redistest.Cluster) *redis.ClusterClient {
	t.Helper()
	url := strings.Replace(c.URL(), "redis://", "redis-cluster://", 1) + "&dial_timeout=1m&read_timeout=1m&write_timeout=1m&pool_timeout=1m"
	client, err := redisstore.Dial(url, redisstore.ClientConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client.(*redis.ClusterClient)
}

// All keys of a queue are in one slot, for any name.
func TestNamesInCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	client := clusterClient(t, cluster)
	for _, name := range []string{
		"mails", "{user:7}:mails", "a{b}c", "a}b{c}", "{a}{b}", "straße", " ", lock.EscapeName("a{b"), strings.Repeat("x", driver.MaxName),
	} {
		q := openNamed(t, client, name, config{})
		put(t, q, message{ID: "a"}, message{ID: "b"})
		l := newLog()
		stop := work(t, q, func(_ context.Context, d *delivery) error {
			if d.ID == "b" {
				return delayqueue.Reject(errFailed)
			}
			return nil
		}, worker{Report: l.add})
		assert.ElementsMatch(t, []string{"a done", "b buried"}, outcomes(l.await(t, 2)), name)
		revived, err := q.Revive(t.Context(), "b")
		require.NoError(t, err)
		assert.Equal(t, 1, revived)
		l.await(t, 3)
		require.NoError(t, q.Cancel(t.Context(), "b"))
		stop()
	}
}

// costsNothing checks that a change of the topology without loss of data costs only time,
// on a queue. Meanwhile more messages are put, unless the change loses them, or outcomes.
func costsNothing(t *testing.T, client func() redis.UniversalClient, change func(), putOn bool) {
	t.Helper()
	admin := client()
	putting := open(t, admin, config{})
	messages := numbered(100)
	for i := range messages {
		messages[i].Delay = time.Duration(i) * 20 * time.Millisecond
	}
	put(t, putting, messages...)
	l := newLog()
	for range 2 {
		work(t, open(t, client(), config{RequestTimeout: time.Second, Poll: time.Second}), succeed, worker{Report: l.add})
	}
	l.await(t, 20)
	changed, count := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for more := 0; putOn && more < 20; n++ {
			id := fmt.Sprint("more ", n)
			_, err := putting.Put(context.Background(), message{ID: id})
			assert.NoError(t, err)
			l.awaitID(t, id) //nolint:testifylint // a message that does not come ends the test
			select {
			case <-changed:
				more++
			default:
			}
		}
		count <- n
	}()
	change()
	close(changed)
	n := <-count + len(messages)
	eventually(t, "all are handled", func() bool {
		if !putOn { // the lease of a message whose outcome was lost is ended
			endLeases(t, admin, l.all())
		}
		stats, err := putting.Stats(t.Context())
		return err == nil && stats == delayqueue.Stats{}
	})
	handled := make(map[string]int)
	for _, r := range l.await(t, n) {
		if putOn {
			assert.Equal(t, delayqueue.Done, r.Outcome, r.ID)
		}
		handled[r.ID]++
	}
	assert.Len(t, handled, n)
}

// endLeases ends the leases of the messages that were reported.
func endLeases(t *testing.T, client redis.UniversalClient, of []report) {
	t.Helper()
	for _, r := range of {
		client.ZAddXX(t.Context(), "leasewheel_queue_leased:{mails}", redis.Z{Score: 1, Member: r.ID})
	}
}

// A worker that has seen a cluster without sharded pub/sub is woken before and after its upgrade.
func TestClusterIsUpgradedToShards(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	node := cluster.Owner(t, "{mails}").Client(t)
	require.NoError(t, node.Do(t.Context(), "acl", "setuser", "default", "-spublish", "-ssubscribe", "-pubsub|shardnumsub").Err())
	l := newLog()
	work(t, open(t, clusterClient(t, cluster), config{Poll: time.Hour}), succeed, worker{Report: l.add})
	const channel = "leasewheel_queue_channel:{mails}"
	eventually(t, "the worker listens", func() bool { return node.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 })
	put(t, open(t, clusterClient(t, cluster), config{}), message{ID: "before"})
	l.awaitID(t, "before")
	require.NoError(t, node.Do(t.Context(), "acl", "setuser", "default", "+@all").Err())
	put(t, open(t, clusterClient(t, cluster), config{}), message{ID: "after"})
	l.awaitID(t, "after")
}

func TestClusterSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	costsNothing(t, func() redis.UniversalClient { return clusterClient(t, cluster) }, func() {
		from := cluster.Owner(t, "{mails}")
		to := cluster.Nodes[0]
		if to == from {
			to = cluster.Nodes[1]
		}
		move := cluster.Migrate(t, "{mails}", to)
		for _, part := range []string{"due", "leased", "payload", "record", "token"} { // not all at once: scripts meet TRYAGAIN
			move.Move(t, "leasewheel_queue_"+part+":{mails}")
		}
		eventually(t, "a script has met keys on two nodes", func() bool {
			errs := from.Client(t).Info(t.Context(), "errorstats").Val() + to.Client(t).Info(t.Context(), "errorstats").Val()
			return strings.Contains(errs, "errorstat_TRYAGAIN")
		})
		move.Finish(t)
	}, true)
}
