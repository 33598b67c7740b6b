package delayqueue_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// clusterClient returns a client as redisstore.Open makes it.
func clusterClient(t *testing.T, c *redistest.Cluster) redis.UniversalClient {
	t.Helper()
	client, err := redisstore.Dial(strings.Replace(c.URL(), "redis://", "redis-cluster://", 1), redisstore.ClientConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// All keys of a queue are in one slot, for any name.
func TestNamesInCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	client := clusterClient(t, cluster)
	for _, name := range []string{
		"mails", "{user:7}:mails", "a{b}c", "a}b{c}", "{a}{b}", "straße", " ", lock.EscapeName("a{b"), strings.Repeat("x", lock.MaxName),
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

// costsNothing checks that a change of the topology without loss of data costs only time.
// Meanwhile more messages are put, unless the change loses them.
func costsNothing(t *testing.T, client func() redis.UniversalClient, change func(), putOn bool) {
	t.Helper()
	putting := open(t, client(), config{RetryFor: time.Minute})
	var messages []message
	for i := range 300 {
		messages = append(messages, message{ID: "early " + strconv.Itoa(i), Delay: time.Duration(i) * 10 * time.Millisecond})
	}
	put(t, putting, messages...)
	l := newLog()
	for range 2 {
		work(t, open(t, client(), config{RetryFor: time.Minute}), func(context.Context, *delivery) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		}, worker{TTL: 15 * time.Second, Report: l.add})
	}
	ctx, stop := context.WithCancel(t.Context())
	count := make(chan int)
	go func() {
		n := 0
		for ; putOn && ctx.Err() == nil; n++ {
			_, err := putting.Put(context.Background(), message{ID: strconv.Itoa(n), Delay: 10 * time.Millisecond})
			assert.NoError(t, err)
			time.Sleep(5 * time.Millisecond)
		}
		count <- n
	}()
	l.await(t, 50)
	change()
	begun, before := time.Now(), len(l.all())
	if putOn {
		l.await(t, before+20)
		assert.Less(t, time.Since(begun), 10*time.Second)
	}
	stop()
	n := <-count + len(messages)
	eventually(t, "all are handled", func() bool {
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

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Replicas: 1})
	costsNothing(t, func() redis.UniversalClient { return clusterClient(t, cluster) }, func() {
		cluster.Failover(t, cluster.Owner(t, "{mails}"))
	}, true)
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
		time.Sleep(500 * time.Millisecond)
		move.Finish(t)
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
