package delayqueue_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// keyOf returns a key of the queue called mails.
func keyOf(what string) string { return "leasewheel_queue_" + what + ":{mails}" }

// garbage is what other clients may write to a queue's keys.
var garbage = map[string]func(ctx context.Context, c *redis.Client){
	"InfiniteDue": func(ctx context.Context, c *redis.Client) {
		c.Do(ctx, "zadd", keyOf("due"), "inf", "x", "-inf", "y", "1e300", "z", "9007199254740993", "v")
	},
	"InfiniteDueOfAMessage": func(ctx context.Context, c *redis.Client) {
		c.Do(ctx, "zadd", keyOf("due"), "inf", "first")
	},
	"InfiniteLeases": func(ctx context.Context, c *redis.Client) {
		c.Do(ctx, "zadd", keyOf("leased"), "inf", "x", "-inf", "y", "1e300", "z")
	},
	"InfiniteDeaths": func(ctx context.Context, c *redis.Client) {
		c.Do(ctx, "zadd", keyOf("dead"), "inf", "x", "-inf", "y", "1e300", "z")
	},
	"Records": func(ctx context.Context, c *redis.Client) {
		for i, record := range []string{
			"inf 1 1 1 n e", "1e300 1 1 1 n e", "0 inf 1 1 n e", "0 1 1e300 1 n e", "0 1 1 inf n e", "-1 -1 -1 -1 n e",
			strings.Repeat("9", 400) + " 1 1 1 n e", "0 9007199254740993 1 1 n e", "0 1 1 1 n", "", " ", "x",
			strings.Repeat("1 ", 1<<19), "0 1 1 9007199254740991 n e", "9007199254740991 9007199254740991 1 1 n e",
		} {
			id := "bad" + strconv.Itoa(i)
			c.HSet(ctx, keyOf("record"), id, record)
			c.HSet(ctx, keyOf("payload"), id, "payload")
			c.ZAdd(ctx, keyOf([]string{"due", "leased", "dead"}[i%3]), redis.Z{Score: 1, Member: id})
		}
	},
	"Ghosts": func(ctx context.Context, c *redis.Client) {
		for i := range 200 {
			for _, place := range []string{"due", "leased", "dead"} {
				c.ZAdd(ctx, keyOf(place), redis.Z{Score: 1, Member: place + strconv.Itoa(i)})
			}
		}
	},
	"Claims": func(ctx context.Context, c *redis.Client) {
		for i, key := range c.Keys(ctx, "leasewheel_queue_claim:*").Val() {
			c.Del(ctx, key)
			c.LPush(ctx, key, i)
		}
	},
	"ClaimsOfNothing": claims(`nonsense`, `{}`, `[1]`, `["x","y",["a"]]`, `["1","1",[[1],2]]`),
	"ClaimsOfLater":   claims(`["99999999","1",[]]`, `["9007199254740991","1",["a"]]`),
}

// claims overwrites the latest claims of workers.
func claims(texts ...string) func(ctx context.Context, c *redis.Client) {
	return func(ctx context.Context, c *redis.Client) {
		for i, key := range c.Keys(ctx, "leasewheel_queue_claim:*").Val() {
			c.Set(ctx, key, texts[i%len(texts)], 0)
		}
	}
}

// No worker stops, and every call returns, for anything that other clients write.
func TestGarbageStopsNoWorker(t *testing.T) {
	t.Parallel()
	for name, write := range garbage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config{})
			client := server.Client(t)
			q := open(t, client, config{Poll: 20 * time.Millisecond})
			var logs []*log
			for range 5 {
				l := newLog()
				logs = append(logs, l)
				work(t, q, succeed, worker{Report: l.add, Concurrency: 1})
			}
			put(t, q, message{ID: "first", Delay: 300 * time.Millisecond})
			for i := range 20 { // each worker has claimed
				put(t, q, message{ID: strconv.Itoa(i)})
			}
			write(t.Context(), client)
			for i := range 20 {
				put(t, q, message{ID: "after" + strconv.Itoa(i)})
			}
			eventually(t, "all is handled", func() bool {
				n := 0
				for _, l := range logs {
					for _, r := range l.all() {
						if !strings.HasPrefix(r.ID, "bad") {
							n++
						}
					}
				}
				return n >= 41
			})
			_, err := q.Stats(t.Context())
			require.NoError(t, err)
			for _, err := range q.Dead(t.Context()) {
				require.NoError(t, err)
			}
			for _, id := range []string{"x", "first", "bad0", "bad4"} {
				if _, err := q.Get(t.Context(), id); err != nil {
					require.ErrorIs(t, err, delayqueue.ErrNotFound)
				}
			}
		})
	}
}

// A message whose record another client has damaged becomes a dead letter, and can be
// revived.
func TestDamagedRecordLosesNoPayload(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{})
	put(t, q, message{ID: "a", Payload: []byte("work")})
	require.NoError(t, client.HSet(t.Context(), keyOf("record"), "a", "inf inf inf inf inf").Err())
	_, err := q.Put(t.Context(), message{ID: "a", Payload: []byte("other")})
	require.ErrorIs(t, err, delayqueue.ErrDuplicate)
	put(t, q, message{ID: "moved", Payload: []byte("work")})
	require.NoError(t, client.HSet(t.Context(), keyOf("record"), "moved", "inf inf inf inf inf").Err())
	require.ErrorIs(t, q.MoveIn(t.Context(), "moved", time.Hour), delayqueue.ErrDead)
	require.Equal(t, map[string][]string{"due": {"a"}, "dead": {"moved"}}, whole(t, client))
	l := newLog()
	work(t, q, succeed, worker{Report: l.add})
	eventually(t, "it is buried", func() bool {
		info, err := q.Get(t.Context(), "a")
		return err == nil && info.State == delayqueue.Dead && strings.Contains(info.LastError, "damaged")
	})
	revived, err := q.Revive(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, 1, revived)
	assert.Equal(t, "work", string(l.await(t, 1)[0].Payload))
}

// With a fencing counter that is no exact integer, claims are refused with an error that
// names it, and no smaller token is given. The worker continues when it is repaired.
func TestDamagedCounterGrantsNothing(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	ctx := t.Context()
	var said safeBuilder
	q := open(t, client, config{Logger: logTo(&said), Poll: 10 * time.Millisecond})
	l := newLog()
	work(t, q, succeed, worker{Report: l.add})
	put(t, q, message{ID: "warm"})
	last := l.await(t, 1)[0].Token
	for i, counter := range []any{"inf", "1e300", "-5", "9223372036854775806", "9007199254740991", "", strings.Repeat("1", 100), []string{"list"}} {
		require.NoError(t, client.Del(ctx, keyOf("token")).Err())
		if text, ok := counter.(string); ok {
			require.NoError(t, client.Set(ctx, keyOf("token"), text, 0).Err())
		} else {
			require.NoError(t, client.LPush(ctx, keyOf("token"), 1).Err())
		}
		put(t, q, message{ID: strconv.Itoa(i)})
		before := strings.Count(said.String(), keyOf("token"))
		eventually(t, "the key is named", func() bool { return strings.Count(said.String(), keyOf("token")) > before })
		require.Len(t, l.all(), 1+i, "%v", counter)
		require.NoError(t, client.Set(ctx, keyOf("token"), last, 0).Err())
		token := l.await(t, 2+i)[1+i].Token
		require.Greater(t, token, last)
		require.Less(t, token, int64(1)<<53)
		last = token
	}
}

// A key of another type stops a worker only until it is gone.
func TestWorkerOutlivesKeysOfOtherTypes(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{Poll: 10 * time.Millisecond, RetryFor: time.Minute})
	l := newLog()
	work(t, q, succeed, worker{Report: l.add})
	for i, key := range []string{"due", "leased", "dead", "record", "payload", "token"} {
		put(t, q, message{ID: key})
		l.await(t, i+1)
		require.NoError(t, client.Del(t.Context(), keyOf(key)).Err())
		require.NoError(t, client.SAdd(t.Context(), keyOf(key), "x").Err())
		ran := evals(t, client)
		eventually(t, "the worker has claimed meanwhile", func() bool { return evals(t, client) > ran+1 })
		require.NoError(t, client.Del(t.Context(), keyOf(key)).Err())
	}
	put(t, q, message{ID: "last"})
	l.await(t, 7)
}

// While another client has replaced a key, no message is lost: it stays in its place, where it is found once
// the key is restored.
func TestReplacedKeyLosesNoMessage(t *testing.T) {
	t.Parallel()
	waiting := func(ctx context.Context, c *redis.Client) { c.HSet(ctx, keyOf("record"), "a", "1 7 1 1 n ") }
	outlived := func(ctx context.Context, c *redis.Client) {
		waiting(ctx, c)
		c.ZRem(ctx, keyOf("due"), "a")
		c.ZAdd(ctx, keyOf("leased"), redis.Z{Score: 1, Member: "a"})
	}
	damaged := func(ctx context.Context, c *redis.Client) { c.HSet(ctx, keyOf("record"), "a", "inf") }
	for name, test := range map[string]struct {
		key    string
		before func(ctx context.Context, c *redis.Client)
	}{
		"Exhausted": {"dead", waiting}, "Outlived": {"dead", outlived}, "Damaged": {"dead", damaged}, "Unread": {"record", outlived},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t, redistest.Config{}).Client(t)
			q := open(t, client, config{})
			put(t, q, message{ID: "a"})
			test.before(t.Context(), client)
			client.Rename(t.Context(), keyOf(test.key), "aside")
			require.NoError(t, client.LPush(t.Context(), keyOf(test.key), "x").Err())
			err := q.Work(t.Context(), succeed, worker{MaxAttempts: 1})
			require.ErrorContains(t, err, "delayqueue: \"mails\": the key "+keyOf(test.key)+" is no ")
			require.ErrorIs(t, err, redisstore.ErrWrongType)
			require.NoError(t, client.Del(t.Context(), keyOf(test.key)).Err())
			client.Rename(t.Context(), "aside", keyOf(test.key))
			require.Len(t, whole(t, client), 1)
			work(t, q, succeed, worker{MaxAttempts: 1})
			eventually(t, "it is buried", buried(t, q))
		})
	}
	t.Run("Rejected", func(t *testing.T) {
		t.Parallel()
		client := redistest.Start(t, redistest.Config{}).Client(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "a"})
		l := newLog()
		stop := work(t, q, func(ctx context.Context, d *delivery) error {
			if d.Attempt == 1 {
				client.LPush(ctx, keyOf("dead"), "x")
			}
			return delayqueue.Reject(errFailed)
		}, worker{TTL: 100 * time.Millisecond, Report: l.add})
		eventually(t, "the outcome is given up", func() bool {
			return slices.ContainsFunc(l.all(), func(r report) bool { return r.Err != nil && r.Outcome == delayqueue.Forfeited })
		})
		stop()
		require.NoError(t, client.Del(t.Context(), keyOf("dead")).Err())
		require.Len(t, whole(t, client), 1)
		work(t, q, succeed, worker{MaxAttempts: 1})
		eventually(t, "it is buried", buried(t, q))
	})
}

// While another client has replaced a key, a message that is about to be deleted keeps its parts, or
// loses all of them: an id without a message could not be put any more.
func TestReplacedPayloadsLeaveNoID(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, q *delayqueue.Queue, c *redis.Client, replace func()){
		"Done": func(t *testing.T, q *delayqueue.Queue, _ *redis.Client, replace func()) {
			l := newLog()
			stop := work(t, q, func(context.Context, *delivery) error {
				replace()
				return nil
			}, worker{TTL: 100 * time.Millisecond, Report: l.add})
			eventually(t, "the outcome is given up", func() bool {
				return slices.ContainsFunc(l.all(), func(r report) bool { return r.Took > 0 })
			})
			stop()
		},
		"Cancelled": func(t *testing.T, q *delayqueue.Queue, _ *redis.Client, replace func()) {
			replace()
			require.ErrorIs(t, q.Cancel(t.Context(), "a"), redisstore.ErrWrongType)
		},
		"Retention": func(t *testing.T, q *delayqueue.Queue, c *redis.Client, replace func()) {
			c.ZRem(t.Context(), keyOf("due"), "a")
			c.ZAdd(t.Context(), keyOf("dead"), redis.Z{Score: 1, Member: "a"})
			replace()
			require.ErrorIs(t, q.Work(t.Context(), succeed, worker{}), redisstore.ErrWrongType)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t, redistest.Config{}).Client(t)
			q := open(t, client, config{Retention: time.Hour})
			put(t, q, message{ID: "a"})
			test(t, q, client, sync.OnceFunc(func() {
				client.Rename(context.Background(), keyOf("payload"), "aside")
				client.LPush(context.Background(), keyOf("payload"), "x")
			}))
			require.NoError(t, client.Del(t.Context(), keyOf("payload")).Err())
			require.NoError(t, client.Rename(t.Context(), "aside", keyOf("payload")).Err())
			whole(t, client)
		})
	}
}

// A message that cannot become a dead letter, since another client has replaced their key, costs
// those before it neither their claim nor an attempt.
func TestReplacedKeyCostsNoOtherMessage(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{Poll: 10 * time.Millisecond})
	put(t, q, message{ID: "a"}, message{ID: "exhausted"})
	client.ZAdd(t.Context(), keyOf("due"), redis.Z{Score: 1, Member: "a"})
	client.HSet(t.Context(), keyOf("record"), "exhausted", "1 7 1 1 n ")
	require.NoError(t, client.LPush(t.Context(), keyOf("dead"), "x").Err())
	l := newLog()
	work(t, q, succeed, worker{MaxAttempts: 1, TTL: time.Hour, Report: l.add})
	assert.Equal(t, delayqueue.Done, l.await(t, 1)[0].Outcome)
	require.NoError(t, client.Del(t.Context(), keyOf("dead")).Err())
	eventually(t, "the other is buried", buried(t, q))
}

// The key that is replaced is named, and no other one, though the user has no right to look at all.
func TestReplacedKeyIsNamedWithoutRights(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{})
	require.NoError(t, client.LPush(t.Context(), keyOf("record"), "x").Err())
	require.NoError(t, client.ACLSetUser(t.Context(), "default", "-zcard").Err())
	_, err := q.Put(t.Context(), message{ID: "a"})
	require.ErrorContains(t, err, "the key "+keyOf("record")+" is no hash")
}

// buried returns a condition: the queue has a dead letter.
func buried(t *testing.T, q *delayqueue.Queue) func() bool {
	return func() bool {
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		return stats.Dead == 1
	}
}

// A user who may not publish puts and handles messages, which workers find by their polls.
func TestWorkWithoutTheRightToPublish(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{Poll: 10 * time.Millisecond})
	require.NoError(t, client.ACLSetUser(t.Context(), "default", "-publish").Err())
	put(t, q, message{ID: "a"}, message{ID: "moved", Delay: time.Hour})
	require.NoError(t, q.MoveIn(t.Context(), "moved", 0))
	l := newLog()
	work(t, q, func(_ context.Context, d *delivery) error {
		if d.Attempt == 1 {
			return delayqueue.RetryAfter(0, errFailed)
		}
		return nil
	}, worker{Report: l.add})
	assert.ElementsMatch(t, []string{"a retried", "moved retried", "a done", "moved done"}, outcomes(l.await(t, 4)))
	assert.Empty(t, whole(t, client))
}

// evals returns how many scripts the server has run by their SHA-1.
func evals(t testing.TB, client *redis.Client) (n int) {
	t.Helper()
	stats, err := client.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, err = fmt.Sscanf(stats["Commandstats"]["cmdstat_evalsha"], "calls=%d", &n)
	require.NoError(t, err)
	return n
}

// No run of a script examines more than some hundred entries, of any number.
func TestRunsAreBounded(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	ctx := t.Context()
	q := open(t, client, config{Poll: 10 * time.Millisecond})
	pipe := client.Pipeline()
	for i := range 5000 {
		if pipe.Len() > 500 {
			_, err := pipe.Exec(ctx)
			require.NoError(t, err)
		}
		id := strconv.Itoa(i)
		pipe.ZAdd(ctx, keyOf("due"), redis.Z{Score: 1, Member: "due" + id})
		pipe.Do(ctx, "zadd", keyOf("due"), "inf", "never"+id)
		pipe.ZAdd(ctx, keyOf("leased"), redis.Z{Score: 1, Member: "leased" + id})
		pipe.Do(ctx, "zadd", keyOf("leased"), "inf", "forever"+id)
		pipe.ZAdd(ctx, keyOf("dead"), redis.Z{Score: 1, Member: "dead" + id})
		pipe.HSet(ctx, keyOf("record"), "never"+id, "0 0 1 1 n ")
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	calls := func() (all, runs int) {
		stats, err := client.InfoMap(ctx, "commandstats").Result()
		require.NoError(t, err)
		for name, text := range stats["Commandstats"] {
			var n int
			_, err := fmt.Sscanf(text, "calls=%d", &n)
			require.NoError(t, err)
			if all += n; strings.HasPrefix(name, "cmdstat_eval") {
				runs += n
			}
		}
		return all, runs
	}
	allBefore, runsBefore := calls()
	l := newLog()
	work(t, q, succeed, worker{Report: l.add})
	put(t, q, message{ID: "a"})
	l.await(t, 1)
	for _, err := range q.Dead(ctx) {
		require.NoError(t, err)
	}
	_, err = q.Stats(ctx)
	require.NoError(t, err)
	all, runs := calls()
	t.Logf("%d commands in %d runs", all-allBefore, runs-runsBefore)
	assert.Less(t, (all-allBefore)/(runs-runsBefore), 32*4*4)
}
