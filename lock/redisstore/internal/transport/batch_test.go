package transport

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// ending is a context that ends as soon as it is waited for, after something else.
type ending struct {
	context.Context
	first func()
}

func (e ending) Done() <-chan struct{} {
	e.first()
	done := make(chan struct{})
	close(done)
	return done
}

func (ending) Err() error { return context.Canceled }

// A reply that has come by the end of the context counts: it may have granted a lock.
func TestReplyAtTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	for range 30 { // a select would choose at random
		q := &queue{inFlight: MaxInFlight}
		answer := func() {
			for _, r := range q.next() {
				r.reply = "granted"
				close(r.done)
			}
		}
		reply, err := q.run(&request{ctx: ending{t.Context(), answer}})
		require.NoError(t, err)
		require.Equal(t, "granted", reply)
	}
}

// A batch has a bounded size, and the requests leave in their order.
func TestSizeOfABatch(t *testing.T) {
	t.Parallel()
	var all, left []*request
	for range 2*batchSize + 1 {
		all = append(all, new(request))
	}
	q := &queue{inFlight: 1, queued: all}
	for batch := q.next(); batch != nil; batch = q.next() {
		require.LessOrEqual(t, len(batch), batchSize)
		left = append(left, batch...)
	}
	require.Len(t, left, len(all))
	for i := range all {
		require.Same(t, all[i], left[i])
	}
	require.Zero(t, q.inFlight)
}

// A batch has the latest deadline of its requests, and none if one of them has none.
func TestDeadlineOfABatch(t *testing.T) {
	for _, c := range []struct {
		within []time.Duration // 0: without a deadline
		want   time.Duration
	}{
		{[]time.Duration{time.Hour, time.Minute}, time.Hour},
		{[]time.Duration{time.Minute, time.Hour, time.Minute}, time.Hour},
		{[]time.Duration{0, time.Minute}, 0},
		{[]time.Duration{time.Minute, 0}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin, runs := time.Now(), 0
			var batch []*request
			transport := New(answering(t, func(ctx context.Context, cmds []redis.Cmder) {
				runs++
				by, bounded := ctx.Deadline()
				assert.Equal(t, c.want > 0, bounded)
				assert.True(t, !bounded || by.Sub(begin) == c.want, "%v", by.Sub(begin))
				for _, cmd := range cmds {
					answer(cmd, int64(1))
				}
			}), 0, 0)
			n := transport.nodeAt("")
			n.clock.reading.Store(&Reading{Sent: begin, At: begin})
			for _, within := range c.within {
				ctx := t.Context()
				if within > 0 {
					bounded, cancel := context.WithTimeout(ctx, within)
					defer cancel()
					ctx = bounded
				}
				batch = append(batch, unshared(ctx, n))
			}
			n.requests.send(batch)
			assert.Equal(t, 1, runs)
		})
	}
}

// unshared returns a queued request that shares no run.
func unshared(ctx context.Context, n *node) *request {
	return &request{ctx: ctx, node: n, done: make(chan struct{}), Call: &Call{Script: &Script{Text: lua.File("acquire.lua"), Granting: true}, Keys: []any{"a"}}}
}

// A hook that panics when the late requests of a batch are repeated does so for their callers. The
// others have their replies.
func TestHookThatPanicsInARepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		transport := New(answering(t, func(_ context.Context, cmds []redis.Cmder) {
			switch {
			case cmds[0].Name() == "eval": // to read the clock again
				answer(cmds[0])
			case !first:
				panic("a hook's")
			default:
				first = false
				answer(cmds[0], int64(1))
				answer(cmds[1], tooLate)
			}
		}), 0, 0)
		n := transport.nodeAt("")
		n.clock.reading.Store(&Reading{Sent: time.Now(), At: time.Now()})
		batch := []*request{unshared(t.Context(), n), unshared(t.Context(), n)}
		n.requests.send(batch)
		for _, r := range batch {
			<-r.done
		}
		assert.Equal(t, []any{int64(1)}, batch[0].reply)
		assert.Equal(t, &panicked{"a hook's"}, batch[1].reply)
	})
}

// What begins after Close begins once.
func TestGoAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b background
		b.Close()
		var begun atomic.Int32
		b.Go(func() { begun.Add(1) })
		synctest.Wait()
		require.EqualValues(t, 1, begun.Load())
	})
}
