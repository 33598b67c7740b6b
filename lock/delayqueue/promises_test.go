package delayqueue_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// outage fails requests while it is down, without sending them.
type outage struct {
	down atomic.Bool
	as   error // io.EOF if nil
}

func (o *outage) err() error { return cmp.Or(o.as, io.EOF) }

func (*outage) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *outage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if o.down.Load() {
			cmd.SetErr(o.err())
			return o.err()
		}
		return next(ctx, cmd)
	}
}

func (o *outage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if o.down.Load() {
			for _, cmd := range cmds {
				cmd.SetErr(o.err())
			}
			return o.err()
		}
		return next(ctx, cmds)
	}
}

// A handler's context ends before another worker can have the message, even on a wheel
// with a coarse tick.
func TestContextEndsBeforeAnotherWorkerBegins(t *testing.T) {
	for _, ttl := range []time.Duration{200 * time.Millisecond, 230 * time.Millisecond, 310 * time.Millisecond, time.Second} {
		for phase := time.Duration(0); phase < 50*time.Millisecond; phase += 7 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				coarse, err := wheel.New(wheel.Config{Tick: 50 * time.Millisecond})
				require.NoError(t, err)
				defer coarse.Stop()
				mine := server.Client(t)
				away := new(outage)
				mine.AddHook(away)
				first, second := open(t, mine, config{Wheel: coarse}), open(t, server.Client(t), config{})
				time.Sleep(phase)
				put(t, second, message{ID: "a"})
				begun, lost, l := make(chan struct{}), make(chan time.Time, 1), newLog()
				stop := work(t, first, func(ctx context.Context, _ *delivery) error {
					close(begun)
					<-ctx.Done()
					lost <- time.Now()
					return nil
				}, worker{TTL: ttl, Concurrency: 1, Report: l.add})
				<-begun
				away.down.Store(true)
				again := make(chan time.Time, 1)
				stopOther := work(t, second, func(context.Context, *delivery) error {
					again <- time.Now()
					return nil
				}, worker{})
				assert.False(t, (<-lost).After(<-again), "TTL %v, phase %v", ttl, phase)
				stopOther()
				away.down.Store(false)
				stop()
				assert.Equal(t, []string{"a forfeited"}, outcomes(l.all()), "it is the other worker's outcome")
			})
		}
	}
}

// A TTL that is too short for the ticks of the wheel is refused.
func TestShortTTLOnACoarseWheelIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coarse, err := wheel.New(wheel.Config{Tick: 50 * time.Millisecond})
		require.NoError(t, err)
		defer coarse.Stop()
		q := open(t, embedded(t), config{Wheel: coarse})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, q.Work(ctx, succeed, worker{TTL: 190 * time.Millisecond}), delayqueue.ErrInvalid)
	})
}

// The settlement of a handler whose lease ends in an outage counts afterwards, as long as
// no other worker has the message.
func TestSettlementOutlastsAnOutageLongerThanTheLease(t *testing.T) {
	settlementOutlasts(t, new(outage), 3*time.Second, time.Second)
}

// settlementOutlasts checks that the outcome of a message, whose lease has a TTL, counts after an outage
// that begins in its handler and lasts for so long, also if the worker ends meanwhile and the lease runs.
func settlementOutlasts(t *testing.T, away *outage, lasts, ttl time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		client.AddHook(away)
		q := open(t, client, config{})
		put(t, q, message{ID: "a"})
		l := newLog()
		stop := work(t, q, func(context.Context, *delivery) error {
			away.down.Store(true)
			return nil
		}, worker{TTL: ttl, Concurrency: 1, Report: l.add})
		time.Sleep(lasts / 2)
		if lasts < ttl {
			go stop()
		}
		time.Sleep(lasts / 2)
		assert.Empty(t, l.all())
		away.down.Store(false)
		time.Sleep(delayqueue.DefaultTTL)
		assert.Equal(t, []string{"a done"}, outcomes(l.all()))
		assert.Empty(t, whole(t, client))
	})
}

// refusal is what a server replies.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// The outcome of a message counts once a server that refuses to write accepts it, while its lease
// runs.
func TestOutcomeOutlastsARefusal(t *testing.T) {
	away := &outage{as: refusal("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.")}
	settlementOutlasts(t, away, delayqueue.DefaultTTL*2/3, delayqueue.DefaultTTL)
}

// The lease of a message ends with its outcome: it is neither renewed nor reported as lost afterwards.
func TestOutcomeEndsTheLease(t *testing.T) {
	for name, err := range map[string]error{
		"done": nil, "retried": delayqueue.RetryAfter(time.Hour, errFailed), "buried": delayqueue.Reject(errFailed),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var renewals, losses atomic.Int64
				q := open(t, embedded(t), config{Renewal: renewal.Config{Observer: &renewal.Observer{
					Batch: func(renewal.Batch) { renewals.Add(1) },
					Lost:  func(*renewal.Lease, *renewal.LostError) { losses.Add(1) },
				}}})
				put(t, q, message{ID: "a"})
				l := newLog()
				work(t, q, func(context.Context, *delivery) error { return err }, worker{Report: l.add})
				time.Sleep(delayqueue.DefaultTTL)
				assert.Equal(t, []string{"a " + name}, outcomes(l.all()))
				assert.Zero(t, renewals.Load())
				assert.Zero(t, losses.Load())
			})
		})
	}
}

// widest is the most arguments of a request, or parts of a reply.
type widest struct{ atomic.Int64 }

func (*widest) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *widest) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		parts := len(cmd.Args())
		if c, ok := cmd.(interface{ Slice() ([]any, error) }); ok {
			reply, _ := c.Slice()
			parts = max(parts, len(reply))
		}
		for most := h.Load(); int64(parts) > most && !h.CompareAndSwap(most, int64(parts)); most = h.Load() {
		}
		return err
	}
}

func (*widest) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A request of any configuration is for some dozens of messages; renewals are for some more.
func TestRenewalsAreBounded(t *testing.T) {
	for size, bound := range map[int]int{0: renewal.DefaultBatchSize, 8: 8, 1 << 16: renewal.DefaultBatchSize} {
		synctest.Test(t, func(t *testing.T) {
			sizes, most, client := make(chan int, 1000), new(widest), embedded(t)
			client.AddHook(most)
			q := open(t, client, config{Renewal: renewal.Config{
				BatchSize: size, Observer: &renewal.Observer{Batch: func(b renewal.Batch) { sizes <- b.Size }},
			}})
			put(t, q, numbered(300)...)
			work(t, q, func(context.Context, *delivery) error {
				time.Sleep(delayqueue.DefaultTTL)
				return nil
			}, worker{Concurrency: 300})
			time.Sleep(2 * delayqueue.DefaultTTL)
			require.NotEmpty(t, sizes)
			for range len(sizes) {
				assert.LessOrEqual(t, <-sizes, bound)
			}
			assert.Less(t, most.Load(), int64(3*renewal.DefaultBatchSize+20), "Put, claims, renewals and outcomes")
			assert.Empty(t, whole(t, client))
		})
	}
}

// On a server that is mute, Work returns a RequestTimeout after its leases are over, however many
// outcomes wait to be sent; two after its own end if they are over and it claims messages again.
func TestWorkEndsOnAMuteServer(t *testing.T) {
	for name, test := range map[string]struct {
		n   int
		ttl time.Duration
		// when the worker ends, after the end of the leases
		after, bound time.Duration
	}{
		"leases run":           {320, 2 * time.Second, -time.Second, delayqueue.DefaultRequestTimeout},
		"leases have ended":    {1, 10 * time.Minute, 2 * time.Second, delayqueue.DefaultRequestTimeout},
		"outcomes are dropped": {2, 10 * time.Minute, time.Hour, 2 * delayqueue.DefaultRequestTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				q := open(t, server.Client(t), config{})
				put(t, q, numbered(test.n)...)
				ctx, cancel := context.WithCancel(t.Context())
				release, until, ended := make(chan struct{}), make(chan time.Time, test.n), make(chan error, 1)
				go func() {
					ended <- q.Work(ctx, func(_ context.Context, d *delivery) error {
						<-release
						until <- d.Until()
						return nil
					}, worker{Concurrency: test.n, TTL: test.ttl})
				}()
				time.Sleep(test.ttl / 2)
				server.Freeze()
				defer server.Thaw()
				close(release)
				var over time.Time
				for range test.n {
					if at := <-until; at.After(over) {
						over = at
					}
				}
				time.Sleep(time.Until(over) + test.after)
				cancel()
				require.NoError(t, <-ended)
				assert.LessOrEqual(t, time.Since(over), max(0, test.after)+test.bound)
			})
		})
	}
}

// The pauses after failures start anew with each outage.
func TestPauseStartsAnewAfterRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		away := new(outage)
		client.AddHook(away)
		var said safeBuilder
		q := open(t, client, config{Poll: time.Second, Logger: logTo(&said)})
		work(t, q, succeed, worker{})
		longest := time.Duration(0)
		for range 2 {
			time.Sleep(10 * time.Second)
			before := len(said.String())
			away.down.Store(true)
			time.Sleep(time.Minute)
			away.down.Store(false)
			pauses := strings.Split(said.String()[before:], "after=")[1:]
			require.NotEmpty(t, pauses)
			for i, text := range pauses {
				pause, err := time.ParseDuration(strings.Fields(text)[0])
				require.NoError(t, err)
				if longest = max(longest, pause); i == 0 {
					assert.LessOrEqual(t, pause, 50*time.Millisecond, "the first of an outage")
				}
			}
		}
		assert.Greater(t, longest, time.Second)
	})
}

// A request that reaches the server after its caller gave up changes nothing.
func TestLateRequestOfAQueueChangesNothing(t *testing.T) {
	for name, request := range map[string]func(context.Context, *delayqueue.Queue) error{
		"Put": func(ctx context.Context, q *delayqueue.Queue) error {
			_, err := q.Put(ctx, message{ID: "late"})
			return err
		},
		"Cancel": func(ctx context.Context, q *delayqueue.Queue) error { return q.Cancel(ctx, "b") },
		"Move":   func(ctx context.Context, q *delayqueue.Queue) error { return q.MoveIn(ctx, "b", 0) },
		"Revive": func(ctx context.Context, q *delayqueue.Queue) error {
			_, err := q.Revive(ctx, "dead")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				network := new(redistest.Late)
				defer network.Close()
				admin := server.Client(t)
				options := *admin.Options()
				options.Dialer = network.Over(options.Dialer)
				client := redis.NewClient(&options)
				t.Cleanup(func() { assert.NoError(t, client.Close()) })
				near, q := open(t, admin, config{}), open(t, client, config{RetryFor: -1})
				bury(t, near, message{ID: "dead"})
				put(t, q, message{ID: "b", Delay: time.Hour})
				require.NoError(t, request(t.Context(), q)) // loads the script
				_ = near.Cancel(t.Context(), "late")
				_ = near.Cancel(t.Context(), "b")
				_ = near.Cancel(t.Context(), "dead")
				bury(t, near, message{ID: "dead"})
				put(t, near, message{ID: "b", Delay: time.Hour})
				before := whole(t, admin)
				network.Hold(true)
				require.Error(t, request(t.Context(), q))
				network.Hold(false)
				time.Sleep(1100 * time.Millisecond) // the server's clock may lag by a second
				require.Equal(t, 1, network.Deliver())
				synctest.Wait()
				assert.Equal(t, before, whole(t, admin))
				info, err := near.Get(t.Context(), "b")
				require.NoError(t, err)
				assert.Equal(t, delayqueue.Delayed, info.State)
			})
		})
	}
}

// Out of memory, no message is lost that a Put has accepted, a Put is refused as a whole,
// and settlements are accepted, beside locks that use the same store.
func TestOutOfMemoryLosesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	admin := server.Client(t)
	ctx := t.Context()
	store, err := redisstore.New(server.Client(t), redisstore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	q, err := delayqueue.New(store, mails, config{RequestTimeout: time.Minute, RetryFor: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, q.Shutdown(context.Background())) })
	l, err := lock.New(store, lock.Config{TTL: time.Hour, RequestTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })

	reports, began, release := newLog(), make(chan struct{}), make(chan struct{})
	put(t, q, message{ID: "held"})
	stop := work(t, q, func(ctx context.Context, d *delivery) error {
		close(began)
		<-release
		return nil
	}, worker{Concurrency: 1, Report: reports.add})
	<-began
	held, err := l.Mutex("held").Lock(ctx)
	require.NoError(t, err)

	require.NoError(t, admin.ConfigSet(ctx, "maxmemory", "1").Err())
	var work sync.WaitGroup
	var accepted sync.Map
	var refused atomic.Int64
	for i := range 8 {
		work.Go(func() {
			for n := range 30 {
				id := fmt.Sprintf("%d.%d", i, n)
				switch i % 4 {
				case 0:
					_, _ = l.Permits("p").One().TryLock(ctx)
				case 1:
					_, _ = l.Mutex("fresh " + id).TryLock(ctx)
				case 2:
					if _, err := q.Put(ctx, message{ID: id}); err == nil {
						accepted.Store(id, true)
					} else {
						refused.Add(1)
					}
				default:
					receipts, err := q.PutAll(ctx, []message{{ID: id}, {ID: id + "b"}})
					if err == nil {
						accepted.Store(id, true)
					} else {
						assert.Empty(t, receipts)
						refused.Add(1)
					}
				}
			}
		})
	}
	work.Wait()
	close(release)
	assert.Equal(t, []string{"held done"}, outcomes(reports.await(t, 1)), "words are heard")
	stop()
	require.NoError(t, admin.ConfigSet(ctx, "maxmemory", "0").Err())
	lost := 0
	accepted.Range(func(id, _ any) bool {
		if _, err := q.Get(ctx, id.(string)); err != nil {
			lost++
		}
		return true
	})
	assert.Zero(t, lost, "messages that a Put has accepted")
	assert.Positive(t, refused.Load())
	places := whole(t, admin)
	assert.Empty(t, places["due"], "of a Put that was refused nothing is left")
	require.NoError(t, held.Unlock(ctx))
}
