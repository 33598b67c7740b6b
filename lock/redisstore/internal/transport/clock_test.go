package transport

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// A reading that took long is ahead of the node's clock by half a second at most, as one that did not:
// a request that arrives after its deadline by more than that is late.
func TestSlowReadingIsAheadByLittle(t *testing.T) {
	for took, ahead := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 100 * time.Millisecond,
		slowReading:            slowReading,
		3 * time.Second:        slowReading,
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := time.Now()
			time.Sleep(took)
			r, err := newReading(asked, strconv.FormatInt(time.Now().UnixMicro(), 10))
			require.NoError(t, err)
			assert.Equal(t, ahead, r.At.Sub(asked))
			assert.Equal(t, took, r.Took)
		})
	}
}

// A query lasts for a second at least, for as long as its request if that is longer, and does not end
// when that is cancelled.
func TestQueryOutlastsItsRequest(t *testing.T) {
	for within, lasts := range map[time.Duration]time.Duration{
		0:                leastQuery,
		time.Millisecond: leastQuery,
		time.Hour:        time.Hour,
		-1:               7 * time.Second, // without a deadline
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if within >= 0 {
				ctx, cancel = context.WithTimeout(t.Context(), within)
			}
			begin := time.Now()
			q, own := new(queries[int]).ask(ctx, &nodes{Unbounded: 7 * time.Second}, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 1, ctx.Err()
			})
			assert.True(t, own)
			cancel()
			<-q.done
			assert.Equal(t, lasts, time.Since(begin))
			assert.ErrorIs(t, q.err, context.DeadlineExceeded)
		})
	}
}

// A cluster is asked for its nodes once, and again after a node did not answer, be it to a query of its clock.
func TestNodeThatDoesNotAnswerReloadsTheNodes(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1000)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{MaxRetries: -1, DialerRetries: 1, ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		asked <- struct{}{}
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil // where no server is
	}})
	defer cluster.Close()
	transport := New(cluster, 0, 0)
	defer transport.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		require.NoError(t, transport.locate(ctx))
	}
	<-asked
	require.Empty(t, asked)
	c := &Call{Script: &Script{Text: lua.File("acquire.lua"), Granting: true}, Keys: []any{"a"}}
	n, err := transport.node(ctx, c)
	require.NoError(t, err)
	for _, reading := range []*Reading{nil, {Sent: time.Now(), At: time.Now()}} {
		n.clock.reading.Store(reading)
		require.Eventually(t, func() bool {
			_, err := transport.Run(ctx, c)
			assert.ErrorIs(t, err, driver.ErrNotDone)
			return len(asked) > 0
		}, time.Minute, time.Millisecond)
		<-asked
	}
}

// answering is a client whose commands are answered here.
func answering(t *testing.T, process func(ctx context.Context, cmds []redis.Cmder)) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{ // which looks no name up: the bubble has no network
		Addr: "127.0.0.1:1", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(answers(process))
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

type answers func(ctx context.Context, cmds []redis.Cmder)

func (answers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a answers) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { a(ctx, []redis.Cmder{cmd}); return cmd.Err() }
}

func (a answers) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { a(ctx, cmds); return nil }
}

// answer answers a command with the value, or the server's clock.
func answer(cmd redis.Cmder, value ...any) {
	c := cmd.(*once)
	c.SetErr(nil)
	if c.SetVal(value); value == nil {
		c.SetVal(strconv.FormatInt(time.Now().UnixMicro(), 10))
	}
}

// A request is not sent if the query of the clock has shown that its reply would come too late.
func TestRequestThatWouldBeAnsweredTooLate(t *testing.T) {
	for _, c := range []struct {
		took, within time.Duration // without a deadline: 0
		sent         bool
	}{
		{3 * time.Second, 0, true},
		{3 * time.Second, 7 * time.Second, true},
		{3 * time.Second, 5 * time.Second, false},
		{slowReading, slowReading + time.Millisecond, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &nodes{Unbounded: time.Minute, client: answering(t, func(_ context.Context, cmds []redis.Cmder) {
				time.Sleep(c.took)
				answer(cmds[0])
			})}
			ctx := t.Context()
			if c.within > 0 {
				bounded, cancel := context.WithTimeout(ctx, c.within)
				defer cancel()
				ctx = bounded
			}
			r, err := new(serverClock).query(ctx, n, "a")
			if c.sent {
				require.NoError(t, err)
				assert.Equal(t, c.took, r.Took)
				return
			}
			require.ErrorIs(t, err, driver.ErrNotDone)
			require.ErrorIs(t, err, driver.ErrUnavailable)
		})
	}
}

// A cluster of which no node answers is asked for its nodes a few times only. A request does not wait
// for them longer than its context allows, nor for what is asked of them.
func TestNodesThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var searches atomic.Int32
		cluster := redis.NewClusterClient(&redis.ClusterOptions{MaxRetries: -1, ClusterSlots: func(ctx context.Context) ([]redis.ClusterSlot, error) {
			searches.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		defer cluster.Close()
		transport := New(cluster, 0, 0)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := transport.Masters(cancelled)
		require.ErrorIs(t, err, context.Canceled)
		ctx, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		time.Sleep(time.Minute) // the search has ended
		searches.Store(0)
		time.AfterFunc(time.Hour/2, func() { assert.EqualValues(t, maxAsked, searches.Load()) })
		_, err = transport.Masters(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		transport.Close()

		// No name: the resolver belongs to the bubble that uses it first.
		single := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), 0, 0)
		defer single.single.Close()
		ctx, give := context.WithCancel(t.Context())
		err = single.AnyMaster(ctx, func(*redis.Client) error {
			give()
			time.Sleep(time.Minute)
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		single.Close()
	})
}

// The refusals of a replica end an epoch, once they have ended: an address leads to the replica until then.
// Other refusals do not.
func TestEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New(nil, 0, 0)
		refuse := func(text string) { tr.Doubt(fault.Classify(fault.Refusal(text))) }
		for epoch := range int64(3) {
			refuse("MISCONF Redis is configured to save RDB snapshots")
			time.Sleep(time.Hour)
			require.Equal(t, epoch, tr.Epoch())
			for range 10 {
				refuse("READONLY You can't write against a read only replica.")
				time.Sleep(calm - 1)
				require.Equal(t, epoch, tr.Epoch(), "it goes on to refuse")
			}
			time.Sleep(time.Nanosecond)
			require.Equal(t, epoch+1, tr.Epoch())
		}
	})
}
