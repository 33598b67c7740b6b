package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// The keys of the fair lock called orders.
const (
	fairList     = "redisson_lock_queue:{orders}"
	fairTimeouts = "redisson_lock_timeout:{orders}"
	fairPlaces   = "leasewheel_lock_places:{orders}"
	fairChannel  = "redisson_lock__channel:{orders}"
)

// redissonWait is how long Redisson keeps the place of a waiter without a limit.
const redissonWait = 5 * time.Minute

// redissonThread behaves on the wire like a thread that uses Redisson's fair lock called
// orders. It has the effects of Redisson's scripts, by their documentation and sources.
type redissonThread struct {
	*testing.T
	client *redis.Client
	owner  string
}

func newRedissonThread(t *testing.T, s *redistest.Server, id int) *redissonThread {
	return &redissonThread{t, s.Client(t), fmt.Sprintf("285475da-9152-4c83-822a-67ee2f116a79:%d", id)}
}

// redissonPurge drops waiters whose timeout is over from the head of the queue.
const redissonPurge = `
	local function purge(list, timeouts, now)
		while true do
			local head = redis.call('lindex', list, 0)
			if head == false then return end
			local by = redis.call('zscore', timeouts, head)
			if by == false or tonumber(by) > tonumber(now) then return end
			redis.call('zrem', timeouts, head)
			redis.call('lpop', list)
		end
	end
	`

// lock makes one request, like a thread that waits for so long.
func (r *redissonThread) lock(wait time.Duration) (got bool) {
	r.Helper()
	_, err := r.client.Eval(r.Context(), redissonPurge+`
		local name, list, timeouts = KEYS[1], KEYS[2], KEYS[3]
		local lease, me, wait, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
		purge(list, timeouts, now)
		if redis.call('exists', name) == 0 and (redis.call('exists', list) == 0 or redis.call('lindex', list, 0) == me) then
			redis.call('lpop', list)
			redis.call('zrem', timeouts, me)
			for _, other in ipairs(redis.call('zrange', timeouts, 0, -1)) do
				redis.call('zincrby', timeouts, -wait, other)
			end
			redis.call('hset', name, me, 1)
			redis.call('pexpire', name, lease)
			return nil
		end
		if redis.call('hexists', name, me) == 1 then
			redis.call('hincrby', name, me, 1)
			redis.call('pexpire', name, lease)
			return nil
		end
		if redis.call('zscore', timeouts, me) ~= false then
			return math.max(0, redis.call('pttl', name))
		end
		local last, left = redis.call('lindex', list, -1), nil
		if last ~= false and last ~= me then
			left = tonumber(redis.call('zscore', timeouts, last)) - now
		else
			left = redis.call('pttl', name)
		end
		if redis.call('zadd', timeouts, left + wait + now, me) == 1 then
			redis.call('rpush', list, me)
		end
		return left`,
		[]string{"orders", fairList, fairTimeouts},
		(30 * time.Second).Milliseconds(), r.owner, wait.Milliseconds(), time.Now().UnixMilli()).Result()
	if errors.Is(err, redis.Nil) {
		return true
	}
	require.NoError(r, err)
	return false
}

// unlock releases the lock and notifies the next waiter.
func (r *redissonThread) unlock() {
	r.Helper()
	reply, err := r.client.Eval(r.Context(), redissonPurge+`
		local name, list, timeouts, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
		purge(list, timeouts, ARGV[2])
		if redis.call('hexists', name, ARGV[1]) == 0 then return 0 end
		if redis.call('hincrby', name, ARGV[1], -1) > 0 then return 0 end
		redis.call('del', name)
		local next = redis.call('lindex', list, 0)
		if next ~= false then redis.call('publish', channel .. ':' .. next, '0') end
		return 1`,
		[]string{"orders", fairList, fairTimeouts, fairChannel}, r.owner, time.Now().UnixMilli()).Int64()
	require.NoError(r, err)
	require.EqualValues(r, 1, reply)
}

// giveUp ends a wait of so long.
func (r *redissonThread) giveUp(wait time.Duration) {
	r.Helper()
	require.NoError(r, r.client.Eval(r.Context(), `
		local list, timeouts, after = KEYS[1], KEYS[2], false
		for _, waiter in ipairs(redis.call('lrange', list, 0, -1)) do
			if after then redis.call('zincrby', timeouts, -tonumber(ARGV[2]), waiter) end
			after = after or waiter == ARGV[1]
		end
		redis.call('zrem', timeouts, ARGV[1])
		return redis.call('lrem', list, 0, ARGV[1])`,
		[]string{fairList, fairTimeouts}, r.owner, wait.Milliseconds()).Err())
}

// timeout returns for how much longer Redisson keeps the place of a waiter.
func (r *redissonThread) timeout(owner string) time.Duration {
	r.Helper()
	by, err := r.client.ZScore(r.Context(), fairTimeouts, owner).Result()
	require.NoError(r, err, owner)
	return time.Until(time.UnixMilli(int64(by)))
}

// mustLockFair acquires the fair lock called orders.
func mustLockFair(t testing.TB, l *lock.Locker) *lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	lease, err := l.Fair("orders").Lock(ctx)
	if !assert.NoError(t, err) {
		t.FailNow() // ends the calling goroutine, which need not be the test's
	}
	return lease
}

// queue returns the waiters for the lock called orders.
func queue(t testing.TB, client redis.UniversalClient) []string {
	t.Helper()
	waiters, err := client.LRange(t.Context(), fairList, 0, -1).Result()
	require.NoError(t, err)
	return waiters
}

// awaitQueue waits until n wait for the lock called orders, and returns them.
func awaitQueue(t testing.TB, client redis.UniversalClient, n int) (waiters []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiters = queue(t, client)
		return len(waiters) == n
	}, time.Minute, 2*time.Millisecond, "%d in the queue", n)
	return waiters
}

// fairHold is the hold that a waiter for the lock called orders requests.
func fairHold(owner string, place time.Duration) *driver.Hold {
	return &driver.Hold{Kind: driver.KindFair, Name: "orders", Owner: owner, Count: 1, TTL: longTTL, Queue: inQueue(place)}
}

// asks sends a waiter's request.
func asks(t testing.TB, s driver.Store, h *driver.Hold) driver.Answer {
	t.Helper()
	answer, err := s.Acquire(t.Context(), h)
	require.NoError(t, err)
	return answer
}

func TestFairWireFormat(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	const ttl = time.Hour
	l := locker(t, server.Client(t), lock.Config{TTL: ttl, Poll: time.Hour})
	lease := mustLockFair(t, l)
	assert.Equal(t, map[string]string{lease.Owner(): "1"}, admin.HGetAll(t.Context(), "orders").Val())
	assert.InDelta(t, ttl, admin.PTTL(t.Context(), "orders").Val(), float64(time.Minute))
	assert.Empty(t, queue(t, admin), "who need not wait has no place")

	got := make(chan *lock.Lease)
	var waiters []string
	for i := range 2 {
		go send(got, func() *lock.Lease { return mustLockFair(t, l) })
		waiters = awaitQueue(t, admin, i+1)
	}
	assert.Equal(t, []string{fmt.Sprintf("%s:2", l.ClientID()), fmt.Sprintf("%s:3", l.ClientID())}, waiters)
	for _, key := range []string{fairTimeouts, fairPlaces} {
		assert.ElementsMatch(t, waiters, admin.ZRange(t.Context(), key, 0, -1).Val(), key)
	}
	for _, key := range []string{fairList, fairTimeouts, fairPlaces} {
		ttl := admin.TTL(t.Context(), key).Val()
		assert.True(t, ttl > time.Minute && ttl <= 10*time.Minute, "if all die, %s goes in %v", key, ttl)
	}
	awaitSubscribers(t, admin, fairChannel+":"+waiters[0], 1)
	awaitSubscribers(t, admin, fairChannel+":"+waiters[1], 1)

	require.NoError(t, lease.Unlock(t.Context()))
	for _, waiter := range waiters {
		lease := <-got
		assert.Equal(t, waiter, lease.Owner())
		require.NoError(t, lease.Unlock(t.Context()))
	}
	awaitChannels(t, admin, 0)
	record := awaitAnnounced(t, admin, l)
	assert.ElementsMatch(t, []string{"redisson_lock_token:{orders}", record}, admin.Keys(t.Context(), "*").Val())
}

// The holders of a fair lock and of a mutex exclude each other: it is one lock.
func TestFairLockAndMutexAreOneLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	l := locker(t, server.Client(t), lock.Config{})
	lease := mustLockFair(t, l)
	_, err := l.Mutex("orders").TryLock(t.Context())
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	require.NoError(t, lease.Unlock(t.Context()))
	next := mustLock(t, l, "orders")
	assert.Greater(t, next.Token(), lease.Token())
	_, err = l.Fair("orders").TryLock(t.Context())
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	got := make(chan *lock.Lease)
	go send(got, func() *lock.Lease { return mustLockFair(t, l) })
	awaitQueue(t, server.Client(t), 1)
	require.NoError(t, next.Unlock(t.Context())) // which notifies only the mutex's waiters
	require.NoError(t, (<-got).Unlock(t.Context()))
}

// Redisson's threads and our waiters share one queue, and wake each other at once.
func TestFairQueueIsSharedWithRedisson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		admin, l := server.Client(t), server.Locker(t, lock.Config{Poll: time.Hour})
		var threads [3]*redissonThread
		for i := range threads {
			threads[i] = &redissonThread{t, server.Client(t), fmt.Sprintf("%s:%d", java, i+1)}
		}
		shareFairQueue(t, l, admin, threads)
	})
}

// shareFairQueue makes three threads of Redisson and three of our waiters queue for a lock,
// until all have held it.
func shareFairQueue(t *testing.T, l *lock.Locker, admin *redis.Client, threads [3]*redissonThread) {
	t.Helper()
	first, second, third := threads[0], threads[1], threads[2]
	require.True(t, first.lock(redissonWait))
	got := make(chan *lock.Lease, 3)
	waits := func(n int) {
		go send(got, func() *lock.Lease { return mustLockFair(t, l) })
		awaitQueue(t, admin, n)
	}
	waits(1)
	require.False(t, second.lock(redissonWait))
	waits(3)
	waits(4)
	require.False(t, third.lock(redissonWait))
	waiters := awaitQueue(t, admin, 5)
	assert.Equal(t, []string{second.owner, third.owner}, []string{waiters[1], waiters[4]})
	awaitChannels(t, admin, 3)
	hears := admin.Subscribe(t.Context(), fairChannel+":"+second.owner, fairChannel+":"+third.owner)
	defer hears.Close()
	for range 2 {
		_, err := hears.Receive(t.Context())
		require.NoError(t, err)
	}
	isTold := func(r *redissonThread) {
		message, err := hears.ReceiveMessage(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{fairChannel + ":" + r.owner, "0"}, []string{message.Channel, message.Payload})
	}

	begin := time.Now()
	first.unlock() // wakes ours
	lease := <-got
	assert.Equal(t, waiters[0], lease.Owner())
	require.False(t, third.lock(redissonWait))
	require.NoError(t, lease.Unlock(t.Context()))
	isTold(second)
	require.False(t, third.lock(redissonWait))
	require.True(t, second.lock(redissonWait))
	second.unlock()
	for _, waiter := range waiters[2:4] {
		lease = <-got
		assert.Equal(t, waiter, lease.Owner())
		require.NoError(t, lease.Unlock(t.Context()))
	}
	isTold(third)
	require.True(t, third.lock(redissonWait))
	third.unlock()
	assert.Zero(t, time.Since(begin), "nobody asks again by himself")
	assert.Zero(t, admin.Exists(t.Context(), "orders", fairList, fairTimeouts, fairPlaces).Val())
}

// A thread of Redisson need not ask again. It has its own timeout, not the seconds of
// ours. When that is over it is dropped.
func TestFairHonoursRedissonsTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		store, thread := server.Store(t), &redissonThread{t, server.Client(t), java + ":1"}
		const place = 5 * time.Second
		require.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":1", 0)).Verdict)
		require.False(t, thread.lock(redissonWait))
		for begin := time.Now(); time.Since(begin) < redissonWait; time.Sleep(place * 3 / 4) {
			require.True(t, asks(t, store, fairHold(golf+":2", place)).Behind)
		}
		_, err := store.Release(t.Context(), &driver.Hold{Kind: driver.KindFair, Name: "orders", Owner: golf + ":1"})
		require.NoError(t, err)
		require.Equal(t, driver.Refused, asks(t, store, fairHold(golf+":2", place)).Verdict)
		assert.EqualValues(t, -1, thread.client.TTL(t.Context(), fairList).Val(), "a queue with a thread of Redisson in it stays")
		assert.EqualValues(t, -1, thread.client.TTL(t.Context(), fairTimeouts).Val())

		gone := redis.Z{Member: thread.owner, Score: float64(time.Now().UnixMilli() - 1)}
		require.NoError(t, thread.client.ZAdd(t.Context(), fairTimeouts, gone).Err())
		require.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":2", place)).Verdict)
		assert.Empty(t, queue(t, thread.client))
	})
}

// When a thread of Redisson is served it lowers the timeouts of all others by its own
// wait, used or not. That must not drop a living waiter of ours (Redisson #3004), however
// long the thread has waited.
func TestFairWaitersOutliveRedissonsArithmetic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		store := server.Store(t)
		thread := func(n int) *redissonThread {
			return &redissonThread{t, server.Client(t), fmt.Sprintf("%s:%d", java, n)}
		}
		one, two, late := thread(1), thread(2), thread(3)
		holder := fairHold(golf+":1", 0)
		holder.TTL = driver.DefaultTTL // a long one would make up for what is not allowed for
		require.Equal(t, driver.Granted, asks(t, store, holder).Verdict)
		require.False(t, one.lock(redissonWait))
		require.False(t, two.lock(redissonWait))
		waiters := []string{golf + ":2", golf + ":3"}
		for _, waiter := range waiters {
			asks(t, store, fairHold(waiter, time.Minute))
		}
		require.False(t, late.lock(redissonWait))
		hasWaited := func(thread *redissonThread) { // for most of its time
			require.NoError(t, one.client.ZAdd(t.Context(), fairTimeouts,
				redis.Z{Member: thread.owner, Score: float64(time.Now().Add(10 * time.Second).UnixMilli())}).Err())
		}
		hasWaited(one)
		for _, waiter := range waiters {
			asks(t, store, fairHold(waiter, time.Minute))
		}
		_, err := store.Release(t.Context(), &driver.Hold{Kind: driver.KindFair, Name: "orders", Owner: golf + ":1"})
		require.NoError(t, err)
		require.True(t, one.lock(redissonWait))
		one.unlock()
		hasWaited(two)
		require.True(t, two.lock(redissonWait))
		two.unlock()
		require.False(t, late.lock(redissonWait))
		assert.Equal(t, []string{golf + ":2", golf + ":3", late.owner}, queue(t, one.client))

		// A thread that had a wait longer than Redisson's default lowers them by more than
		// was allowed for. A waiter that requests it again then gets its place back.
		one.client.ZIncrBy(t.Context(), fairTimeouts, -float64(time.Hour.Milliseconds()), golf+":2")
		require.False(t, late.lock(redissonWait))
		require.Equal(t, []string{golf + ":3", late.owner}, queue(t, one.client), "Redisson drops it")
		assert.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":2", time.Minute)).Verdict)
		assert.Equal(t, []string{golf + ":3", late.owner}, queue(t, one.client))
	})
}

// The place of a dead waiter among threads of Redisson is not kept for Redisson's
// minutes.
func TestFairDropsItsDeadBehindRedisson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		store, thread := server.Store(t), &redissonThread{t, server.Client(t), java + ":1"}
		require.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":1", 0)).Verdict)
		require.False(t, thread.lock(redissonWait))
		asks(t, store, fairHold("dead:1", 50*time.Millisecond))
		asks(t, store, fairHold("dead:2", 50*time.Millisecond))
		asks(t, store, fairHold(golf+":2", time.Minute))
		_, err := store.Release(t.Context(), &driver.Hold{Kind: driver.KindFair, Name: "orders", Owner: golf + ":1"})
		require.NoError(t, err)
		require.True(t, thread.lock(redissonWait))
		thread.unlock()
		time.Sleep(51 * time.Millisecond)
		require.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":2", time.Minute)).Verdict)
		assert.Empty(t, queue(t, thread.client))
	})
}

// Many waiters, also short-lived ones, do not add up to a timeout of hours for a thread
// of Redisson behind them.
func TestFairDoesNotInflateRedissonsTimeouts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	store := open(t, server.Client(t))
	first, last := newRedissonThread(t, server, 1), newRedissonThread(t, server, 2)
	require.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":1", 0)).Verdict)
	for i := range 100 {
		asks(t, store, fairHold(fmt.Sprintf("%s:%d", golf, 100+i), time.Minute))
	}
	require.False(t, first.lock(redissonWait))
	assert.InDelta(t, redissonWait+longTTL+15*time.Second, first.timeout(first.owner), float64(time.Minute))
	for i := range 3 {
		owner := fmt.Sprintf("brief:%d", i)
		asks(t, store, fairHold(owner, time.Minute))
		_, err := store.Release(t.Context(), &driver.Hold{Kind: driver.KindFair, Name: "orders", Owner: owner})
		require.NoError(t, err)
	}
	asks(t, store, fairHold(golf+":200", time.Minute))
	require.False(t, last.lock(redissonWait))
	assert.InDelta(t, 2*redissonWait+longTTL+15*time.Second, last.timeout(last.owner), float64(time.Minute))

	first.giveUp(redissonWait)
	assert.InDelta(t, redissonWait+longTTL+15*time.Second, last.timeout(last.owner), float64(time.Minute))
	assert.Greater(t, last.timeout(golf+":200"), time.Second)
	asks(t, store, fairHold(golf+":200", time.Minute))
	assert.InDelta(t, redissonWait+longTTL+15*time.Second, last.timeout(golf+":200"), float64(time.Minute), "one of Redisson's is behind it yet")
}

// In a cluster a waiter's channel is on the node of its lock, and ends with the lock.
func TestClusterFairChannels(t *testing.T) {
	cluster := sharedCluster(t)
	mine, theirs := locker(t, clusterClient(t, cluster), lock.Config{Poll: time.Hour}), locker(t, clusterClient(t, cluster), lock.Config{Poll: time.Hour})
	owner := cluster.Owner(t, "orders").Client(t)
	channels := func() int {
		return len(owner.PubSubShardChannels(t.Context(), fairChannel+":*").Val())
	}
	lease := mustLockFair(t, mine)
	const waiters = 30
	got := make(chan *lock.Lease, waiters)
	for i := range waiters {
		go send(got, func() *lock.Lease { return mustLockFair(t, []*lock.Locker{mine, theirs}[i%2]) })
	}
	require.Eventually(t, func() bool { return channels() == waiters }, time.Minute, 5*time.Millisecond)
	awaitSubscribingClients(t, owner, 2) // one for each process
	order := queue(t, clusterClient(t, cluster))
	require.NoError(t, lease.Unlock(t.Context()))
	for i := range waiters {
		lease := <-got
		assert.Equal(t, order[i], lease.Owner())
		require.NoError(t, lease.Unlock(t.Context()))
	}
	require.Eventually(t, func() bool { return channels() == 0 }, time.Minute, 5*time.Millisecond)
}

// Waiters of several clients are served in the order of the server's queue, each as soon as
// the lock is free. If one client is cut off while it waits, the others are still served.
func TestFairAmongClients(t *testing.T) {
	t.Parallel()
	for _, cutOff := range []bool{false, true} {
		t.Run(fmt.Sprint("cut off=", cutOff), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, wire := startNetwork(t)
				admin := server.Client(t)
				victim := locker(t, wire.client(t), lock.Config{TTL: driver.DefaultTTL, RequestTimeout: time.Second})
				lockers := []*lock.Locker{victim, server.Locker(t, lock.Config{}), server.Locker(t, lock.Config{})}
				lease := mustLockFair(t, lockers[1])
				const waiters = 30
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan string, waiters)
				var work sync.WaitGroup
				for i := range waiters {
					work.Go(func() {
						lease, err := lockers[i%3].Fair("orders").Lock(ctx)
						if err == nil {
							served <- lease.Owner()
							err = lease.Unlock(ctx)
						}
						assert.True(t, err == nil || cutOff && i%3 == 0, "%v", err)
					})
					awaitQueue(t, admin, i+1)
				}
				want := queue(t, admin)
				if cutOff {
					wire.set(redistest.Blackhole)
					want = slices.DeleteFunc(want, func(owner string) bool { return strings.HasPrefix(owner, victim.ClientID()) })
				}
				begin := time.Now()
				require.NoError(t, lease.Unlock(t.Context()))
				for i, owner := range want {
					require.Equal(t, owner, <-served, "waiter %d", i)
				}
				if !cutOff {
					assert.Zero(t, time.Since(begin))
				}
				cancel()
				work.Wait()
				wire.heal()
				wire.reset(false)
			})
		})
	}
}

// waitFairly makes n goroutines of this process each take the lock called orders once, and
// record it in the list called served.
func waitFairly(ctx context.Context, locker *lock.Locker, client redis.UniversalClient, waiters int) (err error) {
	failures := make(chan error, waiters)
	for range waiters {
		go func() {
			lease, err := locker.Fair("orders").Lock(ctx)
			if err != nil {
				failures <- err
				return
			}
			err = client.RPush(ctx, "served", lease.Owner()).Err()
			failures <- errors.Join(err, lease.Unlock(ctx))
		}()
	}
	for range waiters {
		err = errors.Join(err, <-failures)
	}
	return err
}
