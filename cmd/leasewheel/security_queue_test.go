package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The ACL user of delay queues in SECURITY.md can do all that they need, and nothing
// else.
func TestLeastUserOfQueues(t *testing.T) {
	t.Parallel()
	rules := leastUser(t, "queue")
	server := redistest.Start(t, redistest.Config{Users: []string{strings.Join(rules, " ")}})
	admin := server.Client(t)
	require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
	options := server.Options()
	options.Username, options.Password = rules[0], "secret"
	client := redis.NewClient(options)
	defer client.Close()
	useQueue(t, client, func() {
		commandtest.Eventually(t, "unsubscribed", func() bool { return slices.Contains(called(t, admin), "unsubscribe") })
	})
	assert.Empty(t, refused(t, admin))
	assert.Equal(t, allowed(rules), called(t, admin), "allowed, and needed")

	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	q, err := delayqueue.New(store, "payments", delayqueue.Config{RequestTimeout: commandtest.Patience, RetryFor: commandtest.Patience})
	require.NoError(t, err)
	_, err = q.Put(t.Context(), delayqueue.Message{ID: "a"})
	require.ErrorContains(t, err, "NOPERM", "another name")
}

func TestLeastUserOfQueuesInCluster(t *testing.T) {
	t.Parallel()
	rules := leastUser(t, "queue", "cluster")
	cluster := startCluster(t, strings.Join(rules, " "))
	useQueue(t, clusterClient(t, cluster, rules[0], "secret"), func() {})
	for _, node := range cluster.Nodes {
		assert.Empty(t, refused(t, node.Client(t)))
	}
}

// A Put in a transaction needs no more than that and the transaction.
func TestLeastUserOfQueuesInTransactions(t *testing.T) {
	t.Parallel()
	rules := append(leastUser(t, "queue"), "+multi", "+exec")
	server := redistest.Start(t, redistest.Config{Users: []string{strings.Join(rules, " ")}})
	options := server.Options()
	options.Username, options.Password = rules[0], "secret"
	client := redis.NewClient(options)
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	q, err := delayqueue.New(store, "orders:mails", delayqueue.Config{})
	require.NoError(t, err)
	tx := client.TxPipeline()
	message, err := q.PutTx(t.Context(), tx, delayqueue.Message{ID: "a"})
	require.NoError(t, err)
	_, err = tx.Exec(t.Context())
	require.NoError(t, err)
	require.NoError(t, message.Err())
	assert.Empty(t, refused(t, server.Client(t)))
}

// useQueue does with a queue what can be done. It calls worked after the end of a worker, whose
// subscription ends in the background, before it closes the connection.
func useQueue(t *testing.T, client redis.UniversalClient, worked func()) {
	t.Helper()
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	require.NoError(t, store.Ping(t.Context()))
	q, err := delayqueue.New(store, "orders:mails", delayqueue.Config{MaxLength: 100, Retention: time.Hour, RequestTimeout: commandtest.Patience, RetryFor: commandtest.Patience})
	require.NoError(t, err)
	_, err = q.PutAll(t.Context(), []delayqueue.Message{{ID: "works"}, {ID: "fails"}, {ID: "later", Delay: time.Hour}, {ID: "never", Delay: time.Hour}})
	require.NoError(t, err)
	require.NoError(t, q.Cancel(t.Context(), "never"))
	require.NoError(t, q.MoveIn(t.Context(), "later", 10*time.Millisecond))
	ctx, stop := context.WithCancel(t.Context())
	left, retried := 3, false
	soon := func(int, error) time.Duration { return 0 } // a stall of the machine costs a message attempts
	require.NoError(t, q.Work(ctx, func(ctx context.Context, d *delayqueue.Delivery) error {
		switch {
		case d.ID == "works":
			for until := d.Until(); !d.Until().After(until); { // until it is renewed
				select {
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done(): // it was lost, and comes again
					return context.Cause(ctx)
				}
			}
		case d.ID == "fails" && !retried:
			return delayqueue.RetryAfter(0, errors.New("once"))
		case d.ID == "fails":
			return delayqueue.Reject(errors.New("for good"))
		}
		return nil
	}, delayqueue.WorkerConfig{Concurrency: 1, TTL: 3 * time.Second, MaxAttempts: -1, Backoff: soon, Report: func(r delayqueue.Report) {
		retried = retried || r.ID == "fails" && r.Outcome == delayqueue.Retried
		if r.Outcome == delayqueue.Done || r.Outcome == delayqueue.Buried {
			left--
		}
		if left == 0 {
			stop()
		}
	}}))
	worked()
	for letter, err := range q.Dead(t.Context()) {
		require.NoError(t, err)
		revived, err := q.Revive(t.Context(), letter.ID)
		require.NoError(t, err)
		assert.Equal(t, 1, revived)
	}
	var many []delayqueue.Message // more than a request lists
	for n := range 40 {
		many = append(many, delayqueue.Message{ID: strconv.Itoa(n), Delay: time.Hour})
	}
	_, err = q.PutAll(t.Context(), many)
	require.NoError(t, err)
	for _, err := range q.List(t.Context(), delayqueue.ListOptions{}) {
		require.NoError(t, err)
	}
	_, err = q.Get(t.Context(), "fails")
	require.NoError(t, err)
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, stats.Ready)
	require.NoError(t, q.Shutdown(t.Context()))
	require.NoError(t, store.Close())
}
