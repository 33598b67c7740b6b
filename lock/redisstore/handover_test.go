package redisstore_test

import (
	"context"
	"fmt"
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
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

const mutexQueue = "leasewheel_lock_line:{a}"

// awaitQueued waits until n clients are in the wait queue of the lock called a, and returns
// their owners in order.
func awaitQueued(t testing.TB, admin *redis.Client, n int) (owners []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		members := admin.ZRange(t.Context(), mutexQueue, 0, -1).Val()
		owners = nil
		for _, member := range members {
			owner, _, _ := strings.Cut(member, " ")
			owners = append(owners, owner)
		}
		return len(owners) == n
	}, time.Minute, time.Millisecond, "%d queued", n)
	return owners
}

// startWaiter makes the locker wait for the lock called a.
func startWaiter(t testing.TB, l *lock.Locker) <-chan *lock.Lease {
	got := make(chan *lock.Lease, 1)
	go send(got, func() *lock.Lease { return mustLock(t, l, "a") })
	return got
}

// A release grants the lock to the longest waiting client, on that client's channel. The
// next ones send no requests.
func TestReleaseGrantsToTheFirstInLine(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	const ttl = time.Hour
	first := locker(t, server.Client(t), lock.Config{TTL: ttl, Poll: time.Hour})
	lease := mustLock(t, first, "a")
	var waiting []<-chan *lock.Lease
	var clients []string
	for i := range 3 {
		l := locker(t, server.Client(t), lock.Config{TTL: ttl, Poll: time.Hour})
		waiting = append(waiting, startWaiter(t, l))
		clients = append(clients, l.ClientID())
		awaitQueued(t, admin, i+1)
	}
	hears := admin.Subscribe(t.Context(), "redisson_lock__channel:{a}")
	_, err := hears.Receive(t.Context())
	require.NoError(t, err)

	previous := lease
	for i, got := range waiting {
		require.NoError(t, previous.Unlock(t.Context()))
		if i == 1 { // the subscriber above counts as a client that does not enter the queue
			message, err := hears.ReceiveMessage(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "0", message.Payload, "every other turn the lock is left to the others")
			require.NoError(t, hears.Close())
			require.Eventually(t, func() bool { // the first has its lease, and may have ended its subscription
				const theirs, ours = "redisson_lock__channel:{a}", "leasewheel_lock__channel:{a}"
				n, err := admin.PubSubNumSub(t.Context(), theirs, ours).Result()
				return err == nil && n[theirs] <= n[ours]
			}, time.Minute, time.Millisecond, "only ours are left")
		} else {
			holders := admin.HKeys(t.Context(), "a").Val()
			require.Len(t, holders, 1)
			assert.Equal(t, clients[i], strings.Split(holders[0], ":")[0])
			if i == 0 { // the last one got a notice to ask, one release before, and may do so only now
				left := admin.PTTL(t.Context(), "a").Val()
				assert.InDelta(t, ttl/4, left, float64(time.Minute), "until it renews, the lock is its for a fourth of the TTL")
			}
		}
		next := <-got
		assert.Equal(t, clients[i], strings.Split(next.Owner(), ":")[0])
		assert.Greater(t, next.Token(), previous.Token())
		assert.True(t, next.Valid())
		previous = next
	}
	require.NoError(t, previous.Unlock(t.Context()))
	assert.Zero(t, admin.Exists(t.Context(), "a", mutexQueue).Val())
}

// A hand-over grants for the provisional TTL; the first renewal prolongs it to the TTL.
func TestHandedLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		admin, mine := server.Client(t), server.Locker(t, lock.Config{})
		const ttl, provisional = 12 * time.Second, 3 * time.Second // of which the first renewal comes after a third
		theirs := server.Locker(t, lock.Config{TTL: ttl})
		lease := mustLock(t, mine, "a")
		got := startWaiter(t, theirs)
		awaitQueued(t, admin, 1)
		begin := time.Now()
		require.NoError(t, lease.Unlock(t.Context()))
		handed := <-got
		assert.LessOrEqual(t, handed.Until().Sub(begin), provisional)
		time.Sleep(provisional)
		assert.Greater(t, handed.Until().Sub(begin), ttl)
		time.Sleep(ttl)
		require.NoError(t, handed.Err())
		require.NoError(t, handed.Unlock(t.Context()))

		// A fixed lease is not renewed, so it is handed over for its full time.
		lease = mustLock(t, mine, "a")
		fixed := make(chan *lock.Lease, 1)
		go func() {
			lease, err := theirs.Mutex("a").With(lock.Options{Fixed: true, TTL: 3 * time.Second}).Lock(t.Context())
			assert.NoError(t, err)
			fixed <- lease
		}()
		awaitQueued(t, admin, 1)
		require.NoError(t, lease.Unlock(t.Context()))
		handed = <-fixed
		assert.Greater(t, time.Until(handed.Until()), 2900*time.Millisecond)
		require.NoError(t, handed.Unlock(t.Context()))
	})
}

// Each hand-over takes two commands for any number of clients: one to enqueue, one to
// release.
func TestCommandsOfAHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, wire := startNetwork(t)
		wire.set(redistest.Fault{Delay: time.Millisecond})
		const clients, rounds = 8, 10
		lockers := make([]*lock.Locker, clients)
		for i := range lockers {
			lockers[i] = locker(t, wire.client(t), lock.Config{Poll: time.Hour})
		}
		var work sync.WaitGroup
		var holders atomic.Int64
		contend := func() {
			for _, l := range lockers {
				work.Go(func() {
					for range rounds {
						lease := mustLock(t, l, "a")
						assert.EqualValues(t, 1, holders.Add(1), "holders")
						time.Sleep(time.Millisecond)
						holders.Add(-1)
						assert.NoError(t, lease.Unlock(t.Context()))
					}
				})
			}
			work.Wait()
		}
		contend() // connections and subscriptions are made
		before := wire.scripts()
		contend()
		assert.LessOrEqual(t, float64(wire.scripts()-before)/(clients*rounds), 2.2)
	})
}

// scripts returns how many script commands clients have sent.
func scripts(t *testing.T, admin *redis.Client) (calls int64) {
	t.Helper()
	stats := admin.InfoMap(t.Context(), "commandstats")
	for _, command := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		var n int64
		if _, err := fmt.Sscanf(stats.Item("Commandstats", command), "calls=%d", &n); err == nil {
			calls += n
		}
	}
	return calls
}

// A release itself skips a waiter whose process has died.
func TestReleaseSkipsDeadWaiters(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	mine, theirs := locker(t, server.Client(t), lock.Config{}), locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	lease := mustLock(t, mine, "a")
	got := startWaiter(t, theirs)
	awaitQueued(t, admin, 1)
	for i := range 100 { // before it in the queue, and without subscribers
		require.NoError(t, admin.ZAdd(t.Context(), mutexQueue, redis.Z{
			Score: float64(i), Member: fmt.Sprintf("285475da-9152-4c83-822a-67ee2f116a79:%d 30000 0", i),
		}).Err())
	}
	require.NoError(t, lease.Unlock(t.Context()))
	handed := <-got
	assert.Equal(t, map[string]string{handed.Owner(): "1"}, admin.HGetAll(t.Context(), "a").Val())
	require.NoError(t, handed.Unlock(t.Context()))
}

// A frozen client that is granted the lock keeps it for the provisional TTL, well under a
// TTL. Then the next waiter gets it.
func TestOfferToTheFrozenEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		admin, mine, theirs := server.Client(t), server.Locker(t, lock.Config{}), server.Locker(t, lock.Config{})
		const frozen = "285475da-9152-4c83-822a-67ee2f116a79"
		conn := admin.Subscribe(t.Context(), "leasewheel_lock__channel:{a}", "leasewheel_lock__channel:{a}:"+frozen)
		defer func() { assert.NoError(t, conn.Close()) }()
		_, err := conn.Receive(t.Context())
		require.NoError(t, err)
		lease := mustLock(t, mine, "a")
		got := startWaiter(t, theirs)
		awaitQueued(t, admin, 1)
		require.NoError(t, admin.ZAdd(t.Context(), mutexQueue, redis.Z{Score: 1, Member: frozen + ":1 1000 0"}).Err())
		begin := time.Now()
		require.NoError(t, lease.Unlock(t.Context()))
		next := <-got
		took := time.Since(begin)
		assert.GreaterOrEqual(t, took, time.Second)
		assert.Less(t, took, 7*time.Second, "it asks at the next Poll, with a TTL of 30 s")
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// A grant to a waiter that has given up goes on to the next one.
func TestGrantToOneThatGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, wire := startNetwork(t)
		wire.set(redistest.Fault{Delay: 50 * time.Microsecond, Jitter: 300 * time.Microsecond})
		const clients, rounds = 4, 60
		var work sync.WaitGroup
		var taken atomic.Int64
		for i := range clients {
			l := locker(t, wire.client(t), lock.Config{TTL: driver.DefaultTTL, Poll: time.Hour})
			work.Go(func() {
				for n := range rounds {
					lease, err := l.Mutex("a").MaxWait(time.Duration(n%7*(i+1)) * 200 * time.Microsecond).Lock(t.Context())
					if err == nil {
						taken.Add(1)
						err = lease.Unlock(t.Context())
					} else if assert.ErrorIs(t, err, lock.ErrNotAcquired) {
						err = nil
					}
					assert.NoError(t, err)
				}
			})
		}
		work.Wait()
		begin := time.Now()
		require.NoError(t, mustLock(t, server.Locker(t, lock.Config{}), "a").Unlock(t.Context()))
		assert.Less(t, time.Since(begin), time.Second, "no grant was left to its TTL, which is 7.5 s for a waiter")
		assert.Greater(t, taken.Load(), int64(10))
	})
}

// A client of Redisson's, which does not enter the queue, gets its share among clients
// that hand the lock over to each other without a pause.
func TestHandOverDoesNotStarveRedisson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, wire := startNetwork(t)
		wire.set(redistest.Fault{Delay: 50 * time.Microsecond, Jitter: 100 * time.Microsecond})
		ctx, cancel := context.WithCancel(t.Context())
		var ours atomic.Int64
		var work sync.WaitGroup
		for range 4 {
			l := locker(t, wire.client(t), lock.Config{})
			work.Go(func() {
				for ctx.Err() == nil {
					if lease, err := l.Mutex("a").Lock(ctx); err == nil {
						ours.Add(1)
						assert.NoError(t, lease.Unlock(context.WithoutCancel(ctx)))
					}
				}
			})
		}
		const channel, turns = "redisson_lock__channel:{a}", 20
		theirs := &redisson{t, wire.client(t), "285475da-9152-4c83-822a-67ee2f116a79:52"}
		hears := server.Client(t).Subscribe(t.Context(), channel)
		messages := hears.Channel()
		before := ours.Load()
		for range turns {
			for theirs.tryLock("a", 30*time.Second) != nil {
				select {
				case <-messages:
				case <-time.After(time.Second):
					require.Fail(t, "a client of Redisson's is starved")
				}
			}
			time.Sleep(2 * time.Millisecond) // holds the lock
			require.True(t, theirs.unlock("a", channel))
		}
		other := ours.Load() - before
		// Who is first after a release is a race that ours win about every other time.
		assert.Greater(t, other*9, int64(turns), "and does not starve them: a tenth of the turns is theirs at least")
		require.NoError(t, hears.Close())
		cancel()
		work.Wait()
	})
}

// As long as no peer was seen, a yield window is short for those who ask in it: they ask again,
// and may meet a peer's hold. Otherwise they come back at its end.
func TestYieldWindowIsAskedInForPeers(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	waits := func(peer bool) (wait time.Duration) {
		require.Eventually(t, func() bool { // the window may be over before the request arrives
			now := admin.Time(t.Context()).Val()
			const turns = "leasewheel_lock_turns:{a}"
			require.NoError(t, admin.HSet(t.Context(), turns, "until", now.Add(140*time.Millisecond).UnixMicro()).Err())
			if peer {
				require.NoError(t, admin.HSet(t.Context(), turns, "peer", now.UnixMicro()).Err())
			}
			require.NoError(t, admin.ZAdd(t.Context(), mutexQueue, redis.Z{Score: 1, Member: "other:1 1000 0 secret"}).Err())
			h := mutexOf("a", 1)
			a, err := store.Acquire(t.Context(), h)
			require.NoError(t, err)
			if a.Verdict == driver.Granted {
				_, err := store.Release(t.Context(), released(h))
				require.NoError(t, err)
			}
			wait = a.Wait
			return a.Verdict == driver.Refused && (!peer || wait > 3*time.Millisecond)
		}, time.Minute, time.Millisecond)
		return wait
	}
	assert.LessOrEqual(t, waits(false), 3*time.Millisecond)
	assert.LessOrEqual(t, waits(true), 140*time.Millisecond)

	// Without waiters there is no window.
	until := admin.Time(t.Context()).Val().Add(140 * time.Millisecond).UnixMicro()
	require.NoError(t, admin.Del(t.Context(), mutexQueue).Err())
	require.NoError(t, admin.HSet(t.Context(), "leasewheel_lock_turns:{a}", "until", until).Err())
	h := mutexOf("a", 1)
	h.Queue = inQueue(time.Minute)
	assert.Equal(t, driver.Granted, asks(t, store, h).Verdict)
}

// Tokens are the server's time in microseconds, also in the first tenth of a second,
// whose text has fewer digits.
func TestTokensAreMicroseconds(t *testing.T) {
	t.Parallel()
	clock := newSteppedClock(t)
	server := redistest.Start(t, redistest.Config{Env: clock.env()})
	store, admin := open(t, server.Client(t)), server.Client(t)
	h := mutexOf("a", 1)
	for short, long := false, false; !short || !long; {
		for _, fraction := range []time.Duration{0, 500 * time.Millisecond} {
			clock.step(t, fraction-time.Duration(time.Now().Nanosecond()))
			before := admin.Time(t.Context()).Val().UnixMicro()
			granted, err := store.Acquire(t.Context(), h)
			require.NoError(t, err)
			require.GreaterOrEqual(t, granted.Token, before-before%16, "rounded down to a multiple of 16")
			require.LessOrEqual(t, granted.Token, admin.Time(t.Context()).Val().UnixMicro())
			_, err = store.Release(t.Context(), released(h))
			require.NoError(t, err)
			require.NoError(t, admin.FlushDB(t.Context()).Err())
			short = short || granted.Token%1_000_000 < 100_000
			long = long || granted.Token%1_000_000 >= 100_000
		}
	}
}
