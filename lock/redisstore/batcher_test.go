package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Requests of many goroutines share batches, and each gets its own reply. A key that is
// no lock fails only the requests for it.
func TestRequestsTravelTogether(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	require.NoError(t, admin.Set(t.Context(), "foreign", "x", 0).Err())
	const goroutines, rounds = 100, 5
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hold := func(g, count int64) *driver.Hold {
		return &driver.Hold{Name: fmt.Sprintf("lock %d", g), Owner: owner(int(g)), Count: count, TTL: longTTL}
	}
	var work sync.WaitGroup
	for g := range int64(goroutines) {
		work.Go(func() {
			for range rounds {
				granted, err := store.Acquire(ctx, hold(g, 1))
				assert.NoError(t, err)
				assert.Equal(t, driver.Granted, granted.Verdict)
				theirs := hold(g, 1)
				theirs.Owner = owner(1000)
				refused, err := store.Acquire(ctx, theirs)
				assert.NoError(t, err)
				assert.Equal(t, driver.Refused, refused.Verdict)
				theirs.Name = "foreign"
				foreign, err := store.Acquire(ctx, theirs)
				assert.NoError(t, err)
				assert.True(t, foreign.Foreign)
				held, err := store.Release(ctx, hold(g, 0))
				assert.NoError(t, err)
				assert.True(t, held)
			}
		})
	}
	work.Wait()
}

// A request that is cancelled before it was sent was certainly not carried out. While
// others wait for an unresponsive server, each waits only as long as its own context
// allows.
func TestQueuedRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, wire := startNetwork(t)
		store := open(t, wire.client(t))
		require.NoError(t, store.Ping(t.Context()))
		wire.set(redistest.Fault{Replies: redistest.Drop})
		acquire := func(ctx context.Context, owner string) error {
			_, err := store.Acquire(ctx, &driver.Hold{Name: "a" + owner, Owner: owner, Count: 1, TTL: time.Minute})
			return err
		}
		ask := func(owner string, within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return acquire(ctx, owner)
		}
		var work sync.WaitGroup
		for i := range redisstore.MaxInFlight + 5 {
			work.Go(func() { assert.ErrorIs(t, ask(fmt.Sprintf("busy:%d", i), 2*time.Second), driver.ErrUnavailable) })
			synctest.Wait()
			assert.Equal(t, i+1, store.InFlight()+store.Waiting())
		}
		begin := time.Now()
		err := ask("late:1", 100*time.Millisecond)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorIs(t, err, driver.ErrNotDone)
		assert.Equal(t, 100*time.Millisecond, time.Since(begin))
		work.Wait()
		wire.heal()
		wire.reset(false)
		require.Eventually(t, func() bool { return ask("late:2", time.Second) == nil }, time.Minute, time.Millisecond)
		assert.Zero(t, server.Client(t).Exists(t.Context(), "alate:1").Val())

		// Nor is it sent once the others have returned, though its deadline would allow that.
		wire.set(redistest.Fault{Requests: redistest.Hold})
		for i := range redisstore.MaxInFlight {
			work.Go(func() { assert.NoError(t, ask(fmt.Sprintf("held:%d", i), time.Minute)) })
			synctest.Wait()
			require.Equal(t, i+1, store.InFlight())
		}
		cancelled, cancel := context.WithTimeout(t.Context(), time.Minute)
		time.AfterFunc(time.Second, cancel)
		require.ErrorIs(t, acquire(cancelled, "late:3"), driver.ErrNotDone)
		wire.heal()
		work.Wait()
		synctest.Wait()
		assert.Zero(t, server.Client(t).Exists(t.Context(), "alate:3").Val())
	})
}

// Requests of one batch keep their own deadlines, though they share a run: the one with the
// short deadline ends with it, and has done nothing. The one with the long deadline gets its
// reply from a slow server, and needs no second run.
func TestRequestsOfABatchKeepTheirDeadlines(t *testing.T) {
	t.Parallel()
	for _, format := range []redisstore.Format{redisstore.FormatRedisson, redisstore.FormatPlain} {
		t.Run(fmt.Sprint(format), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, wire := startNetwork(t)
				store := openWith(t, wire.client(t), redisstore.Config{Format: format})
				ask := func(n int, within time.Duration) error {
					ctx, cancel := context.WithTimeout(t.Context(), within)
					defer cancel()
					_, err := store.Acquire(ctx, mutexOf(fmt.Sprint(n), n))
					return err
				}
				var work sync.WaitGroup
				fill := func(first int) { // one request in each batch
					for i := range redisstore.MaxInFlight {
						work.Go(func() { assert.NoError(t, ask(first+i, 20*time.Second)) })
						synctest.Wait()
						require.Equal(t, i+1, store.InFlight())
					}
				}
				const delay, impatience = 700 * time.Millisecond, 2 * time.Second
				require.NoError(t, ask(-1, 20*time.Second))
				for _, first := range []int{0, 10} { // the first makes the connections
					wire.heal()
					work.Wait()
					wire.set(redistest.Fault{Requests: redistest.Hold})
					fill(first)
				}
				begin := time.Now()
				work.Go(func() {
					err := ask(20, impatience)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.ErrorIs(t, err, driver.ErrUnavailable)
					assert.Equal(t, impatience, time.Since(begin))
				})
				work.Go(func() { assert.NoError(t, ask(21, 20*time.Second)) })
				synctest.Wait()
				require.Equal(t, 2, store.Waiting())
				before := wire.scripts()
				wire.set(redistest.Fault{Delay: delay})
				work.Wait()
				assert.Equal(t, redisstore.MaxInFlight+1, wire.scripts()-before)
				admin := server.Client(t)
				assert.Equal(t, []int64{0, 1}, []int64{admin.Exists(t.Context(), "20").Val(), admin.Exists(t.Context(), "21").Val()})
				require.Greater(t, time.Since(begin), impatience, "the second batch's reply came after the impatient one's deadline")
			})
		})
	}
}

// together sends requests in one batch, behind three others that the server delays.
func together(t *testing.T, store *redisstore.Store, admin *redis.Client, requests []func()) {
	t.Helper()
	require.NoError(t, admin.Do(t.Context(), "client", "pause", time.Hour.Milliseconds(), "write").Err())
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // without a deadline, a request has 10 s
	defer cancel()
	var work sync.WaitGroup
	for i := range redisstore.MaxInFlight {
		work.Go(func() {
			h := &driver.Hold{Name: "before", Owner: fmt.Sprintf("before:%d", i), TTL: time.Minute}
			_, err := store.Release(ctx, h)
			assert.NoError(t, err)
		})
		assert.Eventually(t, func() bool { // else two of them leave in one batch
			return strings.Count(admin.ClientList(t.Context()).Val(), " flags=b") == i+1
		}, time.Minute, time.Millisecond)
	}
	for _, request := range requests {
		work.Go(request)
	}
	assert.Eventually(t, func() bool { return store.Waiting() == len(requests) }, time.Minute, time.Millisecond)
	require.NoError(t, admin.Do(t.Context(), "client", "unpause").Err())
	work.Wait()
}

// The requests of one batch succeed or fail independently.
func TestOneBatchForManyLocks(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	hold := func(name string, n int, count int64) *driver.Hold {
		return &driver.Hold{Name: name, Owner: owner(n), Count: count, TTL: longTTL, Queue: inQueue(time.Minute)}
	}
	released := func(t *testing.T, h *driver.Hold, want bool) func() {
		return func() {
			held, err := store.Release(t.Context(), h)
			assert.NoError(t, err)
			assert.Equal(t, want, held)
		}
	}
	released(t, hold("nothing", 12, 0), false)() // loads the script
	_, err := store.Acquire(t.Context(), hold("mine", 11, 1))
	require.NoError(t, err)
	require.NoError(t, admin.Set(t.Context(), "foreign", "x", 0).Err())

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // without a deadline, a subscription has 2 s
	defer cancel()
	// Once without any of the locks, and once with some.
	for _, others := range []bool{false, true} {
		t.Run(fmt.Sprintf("others=%v", others), func(t *testing.T) {
			var mu sync.Mutex
			got := map[string][]driver.Answer{}
			asks := func(h *driver.Hold) func() {
				return func() {
					a, err := store.Acquire(t.Context(), h)
					assert.NoError(t, err)
					mu.Lock()
					defer mu.Unlock()
					_, n, _ := strings.Cut(h.Owner, ":")
					a.Reserved, _ = strconv.ParseInt(n, 10, 64)
					got[h.Name] = append(got[h.Name], a)
				}
			}
			requests := []func(){asks(hold("free", 10, 1))}
			for n := range 10 {
				requests = append(requests, asks(hold("a", n, 1)))
			}
			if others {
				requests = append(requests, asks(hold("mine", 11, 2)), asks(hold("nothing", 12, 2)), asks(hold("foreign", 13, 1)))
			}
			together(t, store, admin, requests)
			require.Len(t, got["free"], 1)
			assert.Equal(t, driver.Granted, got["free"][0].Verdict)
			holder := -1
			for _, a := range got["a"] {
				if a.Verdict == driver.Granted {
					require.Negative(t, holder, "two have been granted the lock")
					holder = int(a.Reserved)
				} else {
					assert.Equal(t, driver.Refused, a.Verdict)
					assert.Greater(t, a.Wait, longTTL/2)
					assert.NotZero(t, a.At, "it is queued")
				}
			}
			require.GreaterOrEqual(t, holder, 0)
			assert.EqualValues(t, 9, admin.ZCard(t.Context(), mutexQueue).Val())
			assert.Equal(t, map[string]string{owner(holder): "1"}, admin.HGetAll(t.Context(), "a").Val())
			if others {
				assert.Equal(t, driver.Granted, got["mine"][0].Verdict)
				assert.Equal(t, driver.NotHeld, got["nothing"][0].Verdict)
				assert.True(t, got["foreign"][0].Foreign)
			}

			notices := make(chan driver.Notice, 10)
			s, err := store.Subscribe(ctx, hold("a", holder, 1), func(n driver.Notice) { notices <- n })
			require.NoError(t, err)
			defer s.Close()
			hears := admin.Subscribe(t.Context(), "redisson_lock__channel:{free}")
			defer func() { assert.NoError(t, hears.Close()) }()
			_, err = hears.Receive(t.Context())
			require.NoError(t, err)

			requests = []func(){released(t, hold("free", 10, 0), true), released(t, hold("a", holder, 0), true), released(t, hold("a", 20, 0), false)}
			if others {
				requests = append(requests, released(t, hold("mine", 11, 1), true), released(t, hold("foreign", 13, 0), false))
			}
			together(t, store, admin, requests)
			var next driver.Notice
			for next.Owner == "" { // a subscription begins with a notice to ask
				select {
				case next = <-notices:
				case <-time.After(time.Minute):
					require.Fail(t, "nobody was told")
				}
			}
			assert.NotEqual(t, owner(holder), next.Owner)
			assert.Equal(t, map[string]string{next.Owner: "1"}, admin.HGetAll(t.Context(), "a").Val(), "the first in the queue has it")
			assert.EqualValues(t, 8, admin.ZCard(t.Context(), mutexQueue).Val())
			assert.Zero(t, admin.Exists(t.Context(), "free").Val())
			message, err := hears.ReceiveMessage(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "0", message.Payload)
			assert.Equal(t, "1", admin.HGet(t.Context(), "mine", owner(11)).Val())
			require.NoError(t, admin.Del(t.Context(), "a", mutexQueue, "leasewheel_lock_turns:{a}").Err()) // owners like these count as peers, which get turns
		})
	}
}
