package delayqueue_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

func putAndHandle(t *testing.T, client redis.UniversalClient) {
	q := open(t, client, config{})
	assert.Equal(t, mails, q.Name())
	binary := []byte("\x00\r\n\xff{}%s 7")
	id, err := q.Put(t.Context(), message{ID: "mail 7 · ü", Payload: binary, Delay: 50 * time.Millisecond})
	require.NoError(t, err)
	assert.Equal(t, "mail 7 · ü", id)
	random, err := q.Put(t.Context(), message{Payload: []byte("x")})
	require.NoError(t, err)
	assert.Len(t, random, 26)
	put(t, q, message{ID: "empty"})

	l := newLog()
	got := make(chan *delivery, 3)
	stop := work(t, q, func(_ context.Context, d *delivery) error {
		assert.True(t, d.Valid())
		assert.Positive(t, time.Until(d.Until()))
		got <- d
		return nil
	}, worker{Report: l.add})
	l.await(t, 3)
	stop()
	close(got)
	tokens := make(map[int64]bool)
	for d := range got {
		assert.Equal(t, 1, d.Attempt)
		assert.Empty(t, d.LastError)
		assert.False(t, d.Claimed.Before(d.Due), "claimed early")
		assert.False(t, tokens[d.Token], "a token twice")
		tokens[d.Token] = true
		switch d.ID {
		case id:
			assert.Equal(t, binary, d.Payload)
			assert.GreaterOrEqual(t, d.Due.Sub(d.Put), 50*time.Millisecond)
			assert.LessOrEqual(t, d.Due.Sub(d.Put), 51*time.Millisecond)
		case "empty":
			assert.Empty(t, d.Payload)
		default:
			assert.Equal(t, random, d.ID)
			assert.Equal(t, d.Put, d.Due)
		}
	}
	assert.Empty(t, whole(t, client))
	assert.False(t, l.all()[0].Valid(), "handled")
}

func duplicatesAreReported(t *testing.T, client redis.UniversalClient) {
	q := open(t, client, config{})
	put(t, q, message{ID: "a", Payload: []byte("first"), Delay: time.Hour})
	id, err := q.Put(t.Context(), message{ID: "a", Payload: []byte("second")})
	require.ErrorIs(t, err, delayqueue.ErrDuplicate)
	assert.Equal(t, "a", id)
	info, err := q.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "first", string(info.Payload))
	assert.Equal(t, delayqueue.Delayed, info.State)

	receipts, err := q.PutAll(t.Context(), []message{{ID: "b", Delay: time.Hour}, {ID: "a"}, {ID: "b"}, {ID: "c", Delay: time.Hour}})
	require.NoError(t, err)
	assert.Equal(t, []delayqueue.Receipt{{ID: "b"}, {ID: "a", Duplicate: true}, {ID: "b", Duplicate: true}, {ID: "c"}}, receipts)
	assert.Len(t, whole(t, client)["due"], 3)

	// Also while a worker has it, and when it is dead; not after it was handled.
	require.NoError(t, q.MoveIn(t.Context(), "a", 0))
	began, end := make(chan struct{}), make(chan error)
	l := newLog()
	work(t, q, func(context.Context, *delivery) error { began <- struct{}{}; return <-end }, worker{Report: l.add})
	<-began
	_, err = q.Put(t.Context(), message{ID: "a"})
	require.ErrorIs(t, err, delayqueue.ErrDuplicate)
	end <- delayqueue.Reject(errFailed)
	l.await(t, 1)
	_, err = q.Put(t.Context(), message{ID: "a"})
	require.ErrorIs(t, err, delayqueue.ErrDuplicate)
	require.NoError(t, q.Cancel(t.Context(), "a"))
	put(t, q, message{ID: "a"})
	<-began
	end <- nil
	assert.Equal(t, delayqueue.Done, l.await(t, 2)[1].Outcome)
	put(t, q, message{ID: "a", Delay: time.Hour})
}

func putAllInPortions(t *testing.T, client redis.UniversalClient) {
	q := open(t, client, config{MaxPayload: 3 << 20})
	var messages []message
	for i := range 300 {
		m := message{ID: fmt.Sprintf("m%03d", i), Payload: []byte{byte(i)}, Delay: time.Hour}
		if i%100 == 0 || i == 1 {
			m.Payload = bytes.Repeat([]byte{byte(i)}, 600<<10+i) // two of them exceed one request
		}
		messages = append(messages, m)
	}
	messages[200].Payload = make([]byte, 3<<20) // so does this one alone
	put(t, q, messages...)
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 300, stats.Delayed)
	for _, m := range []message{messages[0], messages[31], messages[32], messages[200], messages[299]} {
		info, err := q.Get(t.Context(), m.ID)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(m.Payload, info.Payload), m.ID)
	}
	whole(t, client)

	for _, m := range messages {
		require.NoError(t, q.MoveIn(t.Context(), m.ID, 0))
	}
	l := newLog()
	work(t, q, func(_ context.Context, d *delivery) error {
		var i int
		_, err := fmt.Sscanf(d.ID, "m%d", &i)
		assert.NoError(t, err)
		assert.True(t, bytes.Equal(messages[i].Payload, d.Payload), d.ID)
		return nil
	}, worker{Concurrency: 100, Report: l.add})
	l.await(t, 300)
	assert.Empty(t, whole(t, client))
}

func full(t *testing.T, client redis.UniversalClient) {
	q := open(t, client, config{MaxLength: 3})
	put(t, q, message{ID: "a", Delay: time.Hour})
	receipts, err := q.PutAll(t.Context(), []message{{ID: "b", Delay: time.Hour}, {ID: "a"}, {ID: "c", Delay: time.Hour}, {ID: "d"}, {ID: "e"}})
	require.ErrorIs(t, err, delayqueue.ErrFull)
	assert.Equal(t, []delayqueue.Receipt{{ID: "b"}, {ID: "a", Duplicate: true}, {ID: "c"}}, receipts)
	_, err = q.Put(t.Context(), message{ID: "c"})
	require.ErrorIs(t, err, delayqueue.ErrDuplicate, "a duplicate needs no room")
	require.NoError(t, q.Cancel(t.Context(), "b"))
	put(t, q, message{ID: "d", Delay: time.Hour})
	assert.Len(t, whole(t, client)["due"], 3)
}

func TestBadMessages(t *testing.T) {
	q := open(t, embedded(t), config{MaxPayload: 10})
	for name, m := range map[string]message{
		"needs an id or a payload": {},
		"513 bytes":                {ID: strings.Repeat("x", delayqueue.MaxID+1)},
		"not UTF-8":                {ID: "\xff"},
		"control character":        {ID: "a\nb"},
		"payload of 11 bytes":      {ID: "a", Payload: make([]byte, 11)},
		"delay of -1ns":            {ID: "a", Delay: -1},
		"delay of 87600h0m0.001s":  {ID: "a", Delay: delayqueue.MaxDelay + time.Millisecond},
		"both a Delay and a Due":   {ID: "a", Delay: 1, Due: time.Now()},
		"further than 87600h":      {ID: "a", Due: time.Now().Add(delayqueue.MaxDelay + time.Minute)},
	} {
		_, err := q.PutAll(t.Context(), []message{{ID: "fine"}, m})
		require.ErrorIs(t, err, delayqueue.ErrInvalid, name)
		assert.ErrorContains(t, err, name)
		assert.NotContains(t, err.Error(), "\n")
	}
	_, err := q.Get(t.Context(), "fine")
	require.ErrorIs(t, err, delayqueue.ErrNotFound, "a message beside an invalid one was put")
	put(t, q, message{ID: strings.Repeat("x", delayqueue.MaxID), Payload: make([]byte, 10), Delay: delayqueue.MaxDelay})

	for _, id := range []string{"", "\x00", "\xff", strings.Repeat("x", delayqueue.MaxID+1)} {
		_, err := q.Get(t.Context(), id)
		require.ErrorIs(t, err, delayqueue.ErrInvalid)
		require.ErrorIs(t, q.Cancel(t.Context(), id), delayqueue.ErrInvalid)
		require.ErrorIs(t, q.Move(t.Context(), id, time.Now()), delayqueue.ErrInvalid)
		_, err = q.Revive(t.Context(), id)
		require.ErrorIs(t, err, delayqueue.ErrInvalid)
	}
	require.ErrorIs(t, q.Move(t.Context(), "a", time.Time{}), delayqueue.ErrInvalid)
	require.ErrorIs(t, q.MoveIn(t.Context(), "a", -1), delayqueue.ErrInvalid)
	require.ErrorIs(t, q.Move(t.Context(), "a", time.Now().Add(11*365*24*time.Hour)), delayqueue.ErrInvalid)
}

func TestBadQueues(t *testing.T) {
	store, err := redisstore.New(embedded(t), redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	for _, name := range []string{"", "a{b", "}", "a\nb", "\xff", strings.Repeat("x", 513)} {
		_, err := delayqueue.New(store, name, config{})
		require.ErrorIs(t, err, delayqueue.ErrInvalid, name)
	}
	_, err = delayqueue.New(nil, mails, config{})
	require.ErrorIs(t, err, delayqueue.ErrInvalid)
	for says, c := range map[string]config{
		"RequestTimeout": {RequestTimeout: -1}, "Poll": {Poll: -1}, "MaxLength": {MaxLength: -1}, "MaxPayload": {MaxPayload: 1 << 30},
		"Retention": {Retention: -1}, "Retention ": {Retention: time.Microsecond},
	} {
		_, err := delayqueue.New(store, mails, c)
		require.ErrorIs(t, err, delayqueue.ErrInvalid)
		assert.ErrorContains(t, err, says)
	}
}

func TestBadWorkers(t *testing.T) {
	q := open(t, embedded(t), config{})
	require.ErrorIs(t, q.Work(t.Context(), nil, worker{}), delayqueue.ErrInvalid)
	for says, c := range map[string]worker{
		"Concurrency": {Concurrency: -1}, "Concurrency 65537": {Concurrency: 1<<16 + 1},
		"TTL": {TTL: time.Millisecond}, "TTL 25h": {TTL: 25 * time.Hour}, "MaxHold": {MaxHold: -1},
	} {
		err := q.Work(t.Context(), succeed, c)
		require.ErrorIs(t, err, delayqueue.ErrInvalid)
		assert.ErrorContains(t, err, says)
	}
	for _, bad := range [][2]time.Duration{{0, 1}, {2, 1}, {1, math.MaxInt64}} {
		assert.Panics(t, func() { delayqueue.Exponential(bad[0], bad[1]) })
	}
}

// A Put whose reply was lost is repeated, and its first attempt is no duplicate.
func TestPutFindsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		client := server.Client(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "warm", Delay: time.Hour})
		client.AddHook(new(deaf))
		put(t, q, message{ID: "a", Delay: time.Hour})
		assert.Equal(t, map[string][]string{"due": {"a", "warm"}}, whole(t, client))
		_, err := q.Put(t.Context(), message{ID: "a"})
		require.ErrorIs(t, err, delayqueue.ErrDuplicate)
	})
}

// An unresponsive server is reported as such, in time.
func TestUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		q := open(t, server.Client(t), config{})
		put(t, q, message{ID: "a", Delay: time.Hour})
		server.Freeze()
		defer server.Thaw()
		begun := time.Now()
		_, err := q.Put(t.Context(), message{ID: "b"})
		require.ErrorIs(t, err, delayqueue.ErrUnavailable)
		assert.Equal(t, delayqueue.DefaultRetryFor, time.Since(begun))
		_, err = q.Stats(t.Context())
		require.ErrorIs(t, err, delayqueue.ErrUnavailable)
		require.ErrorIs(t, q.Cancel(t.Context(), "a"), delayqueue.ErrUnavailable, "which is not sent again")
		failed := 0
		for _, err := range q.List(t.Context(), delayqueue.ListOptions{}) {
			require.ErrorIs(t, err, delayqueue.ErrUnavailable)
			failed++
		}
		assert.Equal(t, 1, failed)

		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errFailed)
		defer cancel()
		_, err = q.Get(ctx, "a")
		require.ErrorIs(t, err, errFailed, "the cause of the context")

		away, client := new(outage), server.Client(t)
		client.AddHook(away)
		away.down.Store(true)
		begun = time.Now()
		_, err = open(t, client, config{RetryFor: -1}).Stats(t.Context())
		require.ErrorIs(t, err, delayqueue.ErrUnavailable)
		assert.Zero(t, time.Since(begun), "it is sent once")
	})
}

// The server keeps milliseconds, so that a due time is rounded up: a message is never early.
func TestDueTimeIsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, locktest.Start(t).Client(t), config{})
		hour := time.Now().Truncate(time.Millisecond).Add(time.Hour)
		for past, want := range map[time.Duration]time.Duration{0: 0, 1: time.Millisecond, time.Millisecond - 1: time.Millisecond} {
			put(t, q, message{ID: past.String(), Due: hour.Add(past)})
			info, err := q.Get(t.Context(), past.String())
			require.NoError(t, err)
			assert.Equal(t, want, info.Due.Sub(hour), past)
		}
	})
}

// Close ends a request that is repeated, as soon as the latest repetition has returned.
func TestCloseDuringARepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		q := open(t, server.Client(t), config{RequestTimeout: time.Second, RetryFor: time.Hour})
		server.Freeze()
		defer server.Thaw()
		ended := make(chan error, 1)
		go func() {
			_, err := q.Put(t.Context(), message{ID: "a"})
			ended <- err
		}()
		time.Sleep(10 * time.Second)
		begun := time.Now()
		require.NoError(t, q.Close())
		require.ErrorIs(t, <-ended, delayqueue.ErrClosed)
		assert.LessOrEqual(t, time.Since(begun), time.Second)
	})
}
