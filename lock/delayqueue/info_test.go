package delayqueue_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// A message can be read, moved and dropped in each state of its life as documented.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		now := time.Now().Truncate(time.Millisecond)
		put(t, q, message{ID: "a", Payload: []byte("mail"), Due: now.Add(time.Hour)})
		see := func() delayqueue.Info {
			info, err := q.Get(t.Context(), "a")
			require.NoError(t, err)
			assert.Equal(t, "mail", string(info.Payload))
			assert.True(t, now.Equal(info.Put))
			return info
		}
		stats := func() delayqueue.Stats {
			stats, err := q.Stats(t.Context())
			require.NoError(t, err)
			return stats
		}
		info := see()
		assert.Equal(t, delayqueue.Delayed, info.State)
		assert.True(t, info.Due.Equal(now.Add(time.Hour)))
		assert.EqualValues(t, 1, stats().Delayed)
		assert.True(t, stats().NextDue.Equal(info.Due))
		assert.Zero(t, stats().Age)

		time.Sleep(time.Hour + time.Minute)
		assert.Equal(t, delayqueue.Ready, see().State)
		assert.EqualValues(t, 1, stats().Ready)
		assert.Equal(t, time.Minute, stats().Age)
		for _, past := range []time.Time{time.Unix(math.MinInt64/1000-1, 0), now} { // the first one's ms overflow
			require.NoError(t, q.MoveIn(t.Context(), "a", time.Hour))
			assert.Equal(t, delayqueue.Delayed, see().State)
			require.NoError(t, q.Move(t.Context(), "a", past))
			assert.Equal(t, delayqueue.Ready, see().State)
		}

		end := make(chan error)
		stop := work(t, q, func(context.Context, *delivery) error { return <-end }, worker{TTL: time.Minute})
		synctest.Wait()
		info = see()
		assert.Equal(t, delayqueue.Leased, info.State)
		assert.WithinDuration(t, time.Now().Add(time.Minute), info.Until, time.Second)
		assert.Equal(t, 1, info.Attempt)
		assert.EqualValues(t, 1, stats().Leased)
		require.ErrorIs(t, q.MoveIn(t.Context(), "a", 0), delayqueue.ErrLeased)
		require.ErrorIs(t, q.Cancel(t.Context(), "a"), delayqueue.ErrLeased)
		revived, err := q.Revive(t.Context(), "a")
		require.NoError(t, err)
		assert.Zero(t, revived, "it is not dead")

		end <- delayqueue.Reject(errFailed)
		stop()
		info = see()
		assert.Equal(t, delayqueue.Dead, info.State)
		assert.WithinDuration(t, time.Now(), info.Died, time.Second)
		assert.Equal(t, errFailed.Error(), info.LastError)
		assert.EqualValues(t, 1, stats().Dead)
		assert.True(t, stats().OldestDeath.Equal(info.Died))
		require.ErrorIs(t, q.MoveIn(t.Context(), "a", 0), delayqueue.ErrDead)

		require.NoError(t, q.Cancel(t.Context(), "a"))
		require.ErrorIs(t, q.Cancel(t.Context(), "a"), delayqueue.ErrNotFound)
		require.ErrorIs(t, q.MoveIn(t.Context(), "a", 0), delayqueue.ErrNotFound)
		_, err = q.Get(t.Context(), "a")
		require.ErrorIs(t, err, delayqueue.ErrNotFound)
		assert.Empty(t, whole(t, client))
		assert.Equal(t, delayqueue.Stats{}, stats())

		put(t, q, message{ID: "b", Delay: time.Hour})
		require.NoError(t, q.Cancel(t.Context(), "b"))
		assert.Empty(t, whole(t, client))
	})
}

// A message whose lease has ended waits, even before a worker reclaims it: it counts as
// backlog, its age grows, and it can be moved and dropped.
func TestOutlivedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		mine := server.Client(t)
		q, dying := open(t, server.Client(t), config{}), open(t, mine, config{})
		put(t, q, message{ID: "cancelled"}, message{ID: "moved"}, message{ID: "left"}, message{ID: "later", Delay: 20 * time.Minute})
		stop := work(t, dying, func(ctx context.Context, _ *delivery) error {
			<-ctx.Done()
			return nil
		}, worker{TTL: time.Minute, MaxAttempts: 1})
		synctest.Wait()
		mine.AddHook(unplugged{})
		cut := time.Now()
		time.Sleep(5 * time.Minute)
		stop()

		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, delayqueue.Stats{Ready: 3, Delayed: 1, Age: stats.Age, NextDue: stats.NextDue}, stats)
		assert.WithinDuration(t, cut.Add(time.Minute), stats.NextDue, time.Second)
		assert.Equal(t, time.Since(stats.NextDue), stats.Age)
		info, err := q.Get(t.Context(), "moved")
		require.NoError(t, err)
		assert.Equal(t, delayqueue.Ready, info.State)
		assert.Equal(t, 1, info.Attempt)

		require.NoError(t, q.Cancel(t.Context(), "cancelled"))
		require.NoError(t, q.MoveIn(t.Context(), "moved", 10*time.Minute))
		info, err = q.Get(t.Context(), "moved")
		require.NoError(t, err)
		assert.Equal(t, delayqueue.Delayed, info.State)
		assert.Equal(t, map[string][]string{"due": {"moved", "later"}, "leased": {"left"}}, whole(t, server.Client(t)))

		// A move gives it no further attempt.
		l := newLog()
		work(t, q, succeed, worker{MaxAttempts: 1, Report: l.add})
		time.Sleep(30 * time.Minute)
		assert.Equal(t, []string{"later done"}, outcomes(l.all()))
		for _, id := range []string{"moved", "left"} {
			info, err = q.Get(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, delayqueue.Dead, info.State)
			assert.Contains(t, info.LastError, "the lease of attempt 1 ended")
		}
	})
}

// bury makes messages dead letters.
func bury(t *testing.T, q *delayqueue.Queue, messages ...message) {
	t.Helper()
	put(t, q, messages...)
	l := newLog()
	stop := work(t, q, func(context.Context, *delivery) error { return delayqueue.Reject(errFailed) }, worker{Report: l.add})
	l.await(t, len(messages))
	stop()
}

// However many letters die at once or change meanwhile, each is listed once, in the order
// of their deaths.
func deadLettersAreListed(t *testing.T, client redis.UniversalClient) {
	q := open(t, client, config{})
	for letter, err := range q.Dead(t.Context()) {
		assert.Fail(t, "a letter in an empty queue", "%s, %v", letter.ID, err)
	}
	const n = 200
	bury(t, q, numbered(n)...)
	for _, at := range []float64{1000, 2000} { // many in one ms
		for i := range 70 {
			id := fmt.Sprint(int(at)/10 - 100 + i)
			require.NoError(t, client.ZAdd(t.Context(), "leasewheel_queue_dead:{mails}", redis.Z{Score: at, Member: id}).Err())
		}
	}
	list := func(during func(i int, letter delayqueue.Info)) int {
		seen, last := make(map[string]bool), time.Time{}
		for letter, err := range q.Dead(t.Context()) {
			require.NoError(t, err)
			require.False(t, seen[letter.ID], "%s twice", letter.ID)
			assert.False(t, letter.Died.Before(last))
			last = letter.Died
			during(len(seen), letter)
			seen[letter.ID] = true
		}
		return len(seen)
	}
	assert.Equal(t, n, list(func(int, delayqueue.Info) {}))
	const batch = 32 // of a request
	dropped := 0
	assert.Equal(t, n, list(func(i int, letter delayqueue.Info) {
		if i%batch == batch-1 || i%5 == 0 { // the last of a page, too
			require.NoError(t, q.Cancel(t.Context(), letter.ID))
			dropped++
		}
	}))
	assert.Equal(t, n-dropped, list(func(_ int, letter delayqueue.Info) {
		revived, err := q.Revive(t.Context(), letter.ID)
		require.NoError(t, err)
		require.Equal(t, 1, revived)
	}))
	assert.Zero(t, list(func(int, delayqueue.Info) {}))
	assert.Len(t, whole(t, client)["due"], n-dropped)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range q.Dead(ctx) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

// A loop over letters with large payloads gets them in requests of a bounded size.
func largeDeadLetters(t *testing.T, client redis.UniversalClient) {
	q := open(t, client, config{MaxPayload: 4 << 20})
	var messages []message
	for i := range 6 {
		messages = append(messages, message{ID: fmt.Sprint(i), Payload: make([]byte, (i+1)*300<<10)})
	}
	bury(t, q, messages...)
	n := 0
	for letter, err := range q.Dead(t.Context()) {
		require.NoError(t, err)
		var i int
		_, err = fmt.Sscan(letter.ID, &i)
		require.NoError(t, err)
		assert.Len(t, letter.Payload, (i+1)*300<<10)
		n++
	}
	assert.Equal(t, 6, n)
}

func TestNamesOfStatesAndOutcomes(t *testing.T) {
	assert.Equal(t, "delayed ready leased dead State(9)",
		fmt.Sprint(delayqueue.Delayed, " ", delayqueue.Ready, " ", delayqueue.Leased, " ", delayqueue.Dead, " ", delayqueue.State(9)))
	assert.Equal(t, "done retried buried returned forfeited Outcome(9)",
		fmt.Sprint(delayqueue.Done, " ", delayqueue.Retried, " ", delayqueue.Buried, " ", delayqueue.Returned, " ", delayqueue.Forfeited, " ", delayqueue.Outcome(9)))
}
