package delayqueue_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// putTx adds a message and a change to a transaction, and executes it.
func putTx(t *testing.T, client redis.UniversalClient, q *delayqueue.Queue, m message, change func(tx redis.Pipeliner)) (*delayqueue.TxPut, error) {
	t.Helper()
	tx := client.TxPipeline()
	change(tx)
	p, err := q.PutTx(t.Context(), tx, m)
	require.NoError(t, err)
	require.Error(t, p.Err(), "it was not executed")
	_, err = tx.Exec(t.Context())
	return p, err
}

const order = "order:{mails}"

func changeOrder(tx redis.Pipeliner) { tx.HIncrBy(context.Background(), order, "changes", 1) }

// The message is put with the transaction, a sleeping worker is notified of it, and it is
// put once. A message of an id that the queue has stays as it is.
func putInTx(t *testing.T, client redis.UniversalClient) {
	q := open(t, client, config{Poll: time.Hour, MaxLength: 1})
	l := newLog()
	// It does not poll when the lease of the first message would have ended.
	work(t, q, succeed, worker{TTL: time.Hour, Report: l.add})
	put(t, q, message{ID: "warm"})
	l.await(t, 1)
	p, err := putTx(t, client, q, message{Payload: []byte("x"), Delay: 50 * time.Millisecond}, changeOrder)
	require.NoError(t, err)
	require.NoError(t, p.Err())
	r := l.await(t, 2)[1]
	assert.Equal(t, p.ID, r.ID)
	assert.Equal(t, "x", string(r.Payload))
	assert.GreaterOrEqual(t, r.Late(), time.Duration(0))

	put(t, q, message{ID: "a", Payload: []byte("first"), Delay: time.Hour})
	p, err = putTx(t, client, q, message{ID: "a", Payload: []byte("second")}, changeOrder)
	require.NoError(t, err)
	require.ErrorIs(t, p.Err(), delayqueue.ErrDuplicate)
	info, err := q.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "first", string(info.Payload))
	p, err = putTx(t, client, q, message{ID: "b", Delay: time.Hour}, changeOrder)
	require.NoError(t, errors.Join(err, p.Err()), "beyond MaxLength")
	p, err = putTx(t, client, q, message{ID: "b"}, changeOrder)
	require.NoError(t, err)
	require.ErrorIs(t, p.Err(), delayqueue.ErrDuplicate, "of another transaction")
	assert.Equal(t, "4", client.HGet(t.Context(), order, "changes").Val())
	assert.Equal(t, map[string][]string{"due": {"a", "b"}}, whole(t, client))
}

// A transaction that is discarded, aborted by WATCH or refused by the server puts nothing.
func TestPutTxOfNoTransaction(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	client := server.Client(t)
	ctx := t.Context()
	q := open(t, client, config{})

	tx := client.TxPipeline()
	p, err := q.PutTx(ctx, tx, message{ID: "a"})
	require.NoError(t, err)
	tx.Discard()
	_, err = tx.Exec(ctx)
	require.NoError(t, err)
	require.ErrorContains(t, p.Err(), "not executed")

	other := server.Client(t)
	err = client.Watch(ctx, func(tx *redis.Tx) error {
		require.NoError(t, other.HSet(ctx, order, "state", "paid").Err())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			changeOrder(pipe)
			p, err = q.PutTx(ctx, pipe, message{ID: "a"})
			return err
		})
		return err
	}, order)
	require.ErrorIs(t, err, redis.TxFailedErr)
	require.ErrorIs(t, p.Err(), redis.TxFailedErr)

	p, err = putTx(t, client, q, message{ID: "a"}, func(tx redis.Pipeliner) { tx.Do(ctx, "hset", order) })
	require.ErrorContains(t, err, "EXECABORT")
	require.ErrorContains(t, p.Err(), "EXECABORT")
	assert.Empty(t, whole(t, client))
	assert.Zero(t, client.HExists(ctx, order, "changes").Val())
}

// A server out of memory refuses the transaction as a whole, or executes it as a whole. It
// refuses one with another command that may need memory. If it runs out of memory while it
// has the commands already, it executes them all.
func TestPutTxOutOfMemory(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	ctx := t.Context()
	q := open(t, client, config{})
	require.NoError(t, client.HSet(ctx, order, "state", "unpaid").Err())
	full := func(change func(redis.Pipeliner)) (*delayqueue.TxPut, error) {
		require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
		p, err := putTx(t, client, q, message{ID: "a"}, change)
		require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
		return p, err
	}
	p, err := full(changeOrder)
	require.ErrorContains(t, err, "EXECABORT")
	require.Error(t, p.Err())
	assert.Empty(t, whole(t, client))
	assert.Equal(t, map[string]string{"state": "unpaid"}, client.HGetAll(ctx, order).Val())

	p, err = full(func(tx redis.Pipeliner) { tx.Del(ctx, order) })
	if err != nil { // Redis 7.0
		require.ErrorContains(t, err, "EXECABORT")
		require.ErrorContains(t, p.Err(), "OOM")
		assert.Empty(t, whole(t, client))
		assert.EqualValues(t, 1, client.Exists(ctx, order).Val())
	} else { // Redis 8 and Valkey
		require.NoError(t, p.Err())
		assert.Equal(t, map[string][]string{"due": {"a"}}, whole(t, client))
		assert.Zero(t, client.Exists(ctx, order).Val())
	}
	require.NoError(t, client.FlushDB(ctx).Err())
	require.NoError(t, client.HSet(ctx, order, "state", "unpaid").Err())

	conn := client.Conn()
	defer conn.Close()
	require.NoError(t, conn.Do(ctx, "multi").Err())
	pipe := conn.Pipeline()
	pipe.Do(ctx, "del", order)
	_, err = q.PutTx(ctx, pipe, message{ID: "a"})
	require.NoError(t, err)
	_, _ = pipe.Exec(ctx) // the replies are that they are queued
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	replies, err := conn.Do(ctx, "exec").Slice()
	require.NoError(t, err)
	assert.Equal(t, []any{int64(1), []any{int64(1)}}, replies)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	assert.Equal(t, map[string][]string{"due": {"a"}}, whole(t, client))
}

// A transaction that the server executes twice puts one message, and one that it receives
// late puts it, too.
func TestPutTxIsRepeated(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{})
	tx := client.TxPipeline()
	changeOrder(tx)
	var puts []*delayqueue.TxPut
	for i := range 3 {
		p, err := q.PutTx(t.Context(), tx, message{ID: strconv.Itoa(i), Delay: time.Hour})
		require.NoError(t, err)
		puts = append(puts, p)
	}
	cmds, err := tx.Exec(t.Context())
	require.NoError(t, err)
	again := client.TxPipeline()
	for _, cmd := range cmds {
		require.NoError(t, again.Process(t.Context(), cmd))
	}
	_, err = again.Exec(t.Context())
	require.NoError(t, err)
	for _, p := range puts {
		require.NoError(t, p.Err())
	}
	assert.Equal(t, map[string][]string{"due": {"0", "1", "2"}}, whole(t, client))
}

// In a cluster, keys of several slots are refused as a whole; the hash tag of a queue's
// name puts them into one.
func TestPutTxInCluster(t *testing.T) {
	t.Parallel()
	client := clusterClient(t, redistest.StartCluster(t, redistest.ClusterConfig{}))
	ctx := t.Context()
	q := openNamed(t, client, "{order:7}:mails", config{})
	p, err := putTx(t, client, q, message{ID: "a", Delay: time.Hour}, func(tx redis.Pipeliner) { tx.Set(ctx, "order:8", "x", 0) })
	require.ErrorIs(t, err, redis.ErrCrossSlot)
	require.ErrorIs(t, p.Err(), redis.ErrCrossSlot)
	assert.Empty(t, client.Get(ctx, "order:8").Val())
	p, err = putTx(t, client, q, message{ID: "a", Delay: time.Hour}, func(tx redis.Pipeliner) { tx.Set(ctx, "{order:7}", "x", 0) })
	require.NoError(t, errors.Join(err, p.Err()))
	assert.Equal(t, []string{"a delayed"}, listed(t, q))
}

// What Put refuses, PutTx refuses before it adds anything to the transaction. A server
// that answers otherwise is an error.
func TestPutTxRefuses(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{})
	tx := client.TxPipeline()
	_, err := q.PutTx(t.Context(), tx, message{})
	require.ErrorIs(t, err, delayqueue.ErrInvalid)
	require.NoError(t, q.Shutdown(t.Context()))
	_, err = q.PutTx(t.Context(), tx, message{ID: "a"})
	require.ErrorIs(t, err, delayqueue.ErrClosed)
	assert.Zero(t, tx.Len())

	require.NoError(t, client.Set(t.Context(), keyOf("record"), "x", 0).Err())
	q = open(t, client, config{})
	p, err := putTx(t, client, q, message{ID: "a"}, changeOrder)
	require.ErrorContains(t, err, "WRONGTYPE")
	require.ErrorContains(t, p.Err(), "WRONGTYPE")
}
