package redisstore_test

import (
	"fmt"
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
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// ourOwner returns an owner with the id of a leasewheel client, a UUID of version 8.
func ourOwner(n int) string { return fmt.Sprintf("00000000-0000-8000-8000-00000000000c:%d", n) }

// ttls returns the TTL of the queue that Redisson shares: of its list and its timeouts.
func ttls(t *testing.T, client *redis.Client) []time.Duration {
	t.Helper()
	return []time.Duration{client.TTL(t.Context(), fairList).Val(), client.TTL(t.Context(), fairTimeouts).Val()}
}

// endless are the TTLs of a queue that Redisson's waiters have for themselves.
var endless = []time.Duration{-1, -1}

// A queue is left to threads of Redisson as they would have it, without a TTL, by whatever
// way the last waiter of ours goes.
func TestFairQueueIsLeftToRedissonWithoutATTL(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]func(t *testing.T, s *redisstore.Store){
		"granted": func(t *testing.T, s *redisstore.Store) {
			free := fairHold(ourOwner(1), 0)
			free.Count = 0
			require.NoError(t, errorOf(s.Release(t.Context(), free)))
			require.Equal(t, driver.Granted, asks(t, s, fairHold(ourOwner(2), time.Minute)).Verdict)
		},
		"gives up": func(t *testing.T, s *redisstore.Store) {
			gone := fairHold(ourOwner(2), 0)
			gone.Count = 0
			require.NoError(t, errorOf(s.Release(t.Context(), gone)))
		},
		"dies": func(t *testing.T, s *redisstore.Store) {
			free := fairHold(ourOwner(1), 0)
			free.Count = 0
			require.NoError(t, errorOf(s.Release(t.Context(), free)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := startServer(t)
			store := open(t, client)
			require.Equal(t, driver.Granted, asks(t, store, fairHold(ourOwner(1), 0)).Verdict)
			asks(t, store, fairHold(ourOwner(2), time.Minute))
			require.InDelta(t, 10*time.Minute, ttls(t, client)[0], float64(time.Minute), "waiters of ours alone")
			thread := newRedissonThread(t, server, 1)
			require.False(t, thread.lock(redissonWait))
			goes(t, store)
			assert.Contains(t, queue(t, client), thread.owner)
			assert.Equal(t, endless, ttls(t, client))
		})
	}
}

func errorOf(_ bool, err error) error { return err }

// A queue in which waiters of ours have died one after the other expires: a dead one is
// not taken for a thread of Redisson.
func TestFairQueueOfDeadWaitersOfOursExpires(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	store := open(t, client)
	require.Equal(t, driver.Granted, asks(t, store, fairHold(ourOwner(1), 0)).Verdict)
	asks(t, store, fairHold(ourOwner(2), time.Minute))
	asks(t, store, fairHold(ourOwner(3), time.Minute))
	require.NoError(t, client.ZAdd(t.Context(), fairPlaces, redis.Z{Score: 1000, Member: ourOwner(3)}).Err()) // it died
	asks(t, store, fairHold(ourOwner(2), time.Minute))                                                        // and then it dies, too
	require.Len(t, queue(t, client), 2)
	for range 2 {
		for _, ttl := range ttls(t, client) {
			assert.InDelta(t, 10*time.Minute, ttl, float64(time.Minute))
		}
		require.NoError(t, errorOf(store.Release(t.Context(), released(fairHold(ourOwner(2), 0))))) // or gives up
	}
	require.Len(t, queue(t, client), 1)
}

// Looking at a fair lock whose Java clients have all crashed changes nothing. A forced
// release drops those whose timeout is over, and keeps the TTL of the others' queue.
func TestLookingAtACrashedFairQueue(t *testing.T) {
	t.Parallel()
	for name, living := range map[string]int{"all dead": 0, "two have time left": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInspectedIn(t)
			const dead = 250
			later := time.Now().Add(time.Hour).UnixMilli()
			i.do("HSET orders " + java + ":1 1\nPEXPIRE orders 3600000")
			for n := range dead + living {
				by := int64(1000 + n)
				if n >= dead {
					by = later
				}
				i.do(fmt.Sprintf("RPUSH %s %s:%d\nZADD %s %d %s:%d", fairList, java, 10+n, fairTimeouts, by, java, 10+n))
			}
			// What clients that were cut off have left.
			i.do(fmt.Sprintf("ZADD %s 1 %s:1\nZADD %s 1 %s", fairTimeouts, java, fairPlaces, ourOwner(1)))
			before := i.dump()
			assert.EqualValues(t, dead+living, i.inspect("orders").WaiterCount)
			assert.Equal(t, []string{"orders"}, i.names())
			assert.Equal(t, before, i.dump(), "looking changes nothing")
			assert.Equal(t, endless, ttls(t, i.admin))

			runs := 0
			for len(queue(t, i.admin)) > living && runs < 10 { // each examines a hundred
				i.do("HSET orders " + java + ":1 1")
				_, err := i.store.ForceRelease(t.Context(), "orders")
				require.NoError(t, err)
				runs++
			}
			assert.LessOrEqual(t, runs, 3)
			if living > 0 {
				assert.Len(t, queue(t, i.admin), living)
				assert.Equal(t, endless, ttls(t, i.admin))
			} else {
				assert.Zero(t, i.admin.Exists(t.Context(), "orders", fairList, fairTimeouts, fairPlaces).Val())
			}
		})
	}
}

// A waiter of ours gets a fair lock soon behind hundreds of crashed threads of Redisson,
// and leaves nothing of their queue behind.
func TestFairSkipsCrashedThreadsOfRedisson(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	pipe := client.Pipeline()
	for n := range 1000 {
		waiter := fmt.Sprintf("%s:%d", java, n)
		pipe.RPush(t.Context(), fairList, waiter)
		pipe.ZAdd(t.Context(), fairTimeouts, redis.Z{Score: float64(1000 + n), Member: waiter})
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	l := locker(t, client, lock.Config{Poll: time.Hour})
	asked := scripts(t, client)
	require.NoError(t, mustLockFair(t, l).Unlock(t.Context()))
	assert.Less(t, scripts(t, client)-asked, int64(20), "each drops a hundred")
	assert.Zero(t, client.Exists(t.Context(), fairList, fairTimeouts, fairPlaces).Val())
}

// Waiters of ours whose subscriptions are cut again and again keep their places among
// threads of Redisson, and all are served in the order of arrival.
func TestFairOrderOutlivesLostSubscriptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, wire := startNetwork(t)
		admin := server.Client(t)
		l := locker(t, wire.client(t), lock.Config{TTL: 30 * time.Second, Poll: time.Hour})
		newThread := func(n int) *redissonThread {
			return &redissonThread{t, server.Client(t), fmt.Sprintf("%s:%d", java, n)}
		}
		holder := newThread(1)
		require.True(t, holder.lock(redissonWait))
		got := make(chan *lock.Lease, 4)
		threads := map[string]*redissonThread{}
		for n := range 8 { // ours and theirs by turns
			if n%2 == 0 {
				go send(got, func() *lock.Lease { return mustLockFair(t, l) })
			} else {
				thread := newThread(10 + n)
				threads[thread.owner] = thread
				require.False(t, thread.lock(redissonWait))
			}
			awaitQueue(t, admin, n+1)
		}
		order := queue(t, admin)
		for range 5 {
			awaitChannels(t, admin, 4)
			wire.reset(true)
			time.Sleep(50 * time.Millisecond)
			assert.Equal(t, order, queue(t, admin))
		}
		awaitChannels(t, admin, 4)
		assert.Equal(t, endless, ttls(t, admin))

		wire.reset(true) // and the message of the release meets no subscription
		holder.unlock()
		for n, owner := range order {
			if thread := threads[owner]; thread != nil {
				for begin := time.Now(); !thread.lock(redissonWait); time.Sleep(5 * time.Millisecond) {
					require.Less(t, time.Since(begin), 20*time.Second, "waiter %d", n)
				}
				wire.reset(true)
				thread.unlock()
				continue
			}
			select {
			case lease := <-got:
				require.Equal(t, owner, lease.Owner(), "waiter %d", n)
				require.NoError(t, lease.Unlock(t.Context()))
			case <-time.After(20 * time.Second):
				require.FailNow(t, "a waiter was passed over", "waiter %d", n)
			}
		}
		assert.Zero(t, admin.Exists(t.Context(), "orders", fairList, fairTimeouts, fairPlaces).Val())
	})
}

// A waiter of ours that dies behind threads of Redisson blocks those behind it for the wait of
// one thread at most, also if the threads before it wait for seconds only.
func TestDeadWaiterBehindBriefThreads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		store := server.Store(t)
		var threads []*redissonThread
		for n := range 8 {
			threads = append(threads, &redissonThread{t, server.Client(t), fmt.Sprintf("%s:%d", java, n)})
		}
		holder, brief, last := threads[0], threads[1:7], threads[7]
		require.True(t, holder.lock(redissonWait))
		for _, thread := range brief {
			require.False(t, thread.lock(10*time.Second))
		}
		asks(t, store, fairHold(ourOwner(1), 5*time.Second))
		require.False(t, last.lock(redissonWait))
		asks(t, store, fairHold(ourOwner(1), 5*time.Second)) // and dies
		holder.unlock()
		for _, thread := range brief {
			require.True(t, thread.lock(10*time.Second))
			thread.unlock()
		}
		require.Equal(t, []string{ourOwner(1), last.owner}, queue(t, last.client), "its place is kept until its end")
		for begin := time.Now(); !last.lock(redissonWait); time.Sleep(5 * time.Second) {
			require.LessOrEqual(t, time.Since(begin), redissonWait+45*time.Second)
		}
	})
}

// A waiter of ours counts the wait of Redisson's first thread as FairLockWaitTimeout. Where that is
// short, a thread that dies behind it blocks the queue for a short time; where it is long,
// Redisson does not drop it.
func TestFairLockWaitTimeout(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		wait, kept := []time.Duration{10 * time.Second, time.Hour}[n%2], n >= 2
		synctest.Test(t, func(t *testing.T) {
			server := locktest.Start(t)
			store := openWith(t, server.Client(t), redisstore.Config{FairLockWaitTimeout: wait})
			var threads []*redissonThread
			for n := range 3 {
				threads = append(threads, &redissonThread{t, server.Client(t), fmt.Sprintf("%s:%d", java, n)})
			}
			holder, first, dying := threads[0], threads[1], threads[2]
			require.True(t, holder.lock(wait))
			require.False(t, first.lock(wait))
			asks(t, store, fairHold(ourOwner(1), 5*time.Second))
			if kept { // by a request for several places
				ask, err := store.KeepPlaces(t.Context(), "orders", []string{ourOwner(1)}, 5*time.Second)
				require.NoError(t, err)
				require.Empty(t, ask)
			}
			require.False(t, dying.lock(wait))
			holder.unlock()
			require.True(t, first.lock(wait))
			first.unlock()
			require.False(t, dying.lock(wait), "before a waiter of ours, which Redisson has dropped")
			require.Equal(t, driver.Granted, asks(t, store, fairHold(ourOwner(1), 5*time.Second)).Verdict)
			require.NoError(t, errorOf(store.Release(t.Context(), released(fairHold(ourOwner(1), 0)))))
			// The last thread dies here.
			begin := time.Now()
			for asks(t, store, fairHold(ourOwner(2), 5*time.Second)).Verdict != driver.Granted {
				time.Sleep(4 * time.Second)
			}
			assert.LessOrEqual(t, time.Since(begin), 2*wait+time.Minute)
		})
	}
}

// A thread of Redisson that waits with a limit, by tryLock, keeps its place for that: a pause of its process
// costs it no place, whatever the fleet's FairLockWaitTimeout is.
func TestShortFairLockWaitTimeoutShortensNoTryLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		store := openWith(t, server.Client(t), redisstore.Config{FairLockWaitTimeout: time.Second})
		holder := &redissonThread{t, server.Client(t), java + ":1"}
		first := &redissonThread{t, server.Client(t), java + ":2"}
		require.True(t, holder.lock(time.Second))
		require.False(t, first.lock(4*time.Minute))
		holder.unlock()
		for range 10 { // first's process is stopped meanwhile
			require.Equal(t, driver.Refused, asks(t, store, fairHold(ourOwner(1), 5*time.Second)).Verdict, "broken promise: the order of the queue")
			time.Sleep(4 * time.Second)
		}
		require.True(t, first.lock(4*time.Minute))
	})
}

// An owner that does not wait, and finds a dead waiter at the head of a free lock, wakes the first
// living one.
func TestTryWakesTheFirstLivingWaiter(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	store := open(t, client)
	require.Equal(t, driver.Granted, asks(t, store, fairHold(ourOwner(1), 0)).Verdict)
	for n := range 3 {
		asks(t, store, fairHold(ourOwner(2+n), time.Minute))
	}
	require.NoError(t, client.ZAdd(t.Context(), fairPlaces, redis.Z{Score: 1000, Member: ourOwner(2)}).Err()) // it died
	require.NoError(t, client.Del(t.Context(), "orders").Err())                                               // and the holder
	waiters := client.PSubscribe(t.Context(), fairChannel+":*")
	defer waiters.Close()
	_, err := waiters.Receive(t.Context())
	require.NoError(t, err)
	assert.Equal(t, driver.Refused, asks(t, store, fairHold(ourOwner(5), 0)).Verdict)
	m, err := waiters.ReceiveTimeout(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, fairChannel+":"+ourOwner(3), m.(*redis.Message).Channel)
	assert.Equal(t, []string{ourOwner(3), ourOwner(4)}, queue(t, client))
}

// A thread of Redisson before 3.32 that has waited for longer than the lease it saw waits for a
// message. A waiter of ours behind it sends that, once it finds the lock free: the holder has died.
func TestBlockedThreadIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		admin, l := server.Client(t), server.Locker(t, lock.Config{Poll: time.Hour})
		thread := &redissonThread{t, server.Client(t), java + ":1"}
		_ = mustLockFair(t, server.Locker(t, lock.Config{}))
		require.False(t, thread.lock(redissonWait))
		got := make(chan *lock.Lease, 2)
		for n := range 2 {
			go send(got, func() *lock.Lease { return mustLockFair(t, l) })
			awaitQueue(t, admin, n+2)
		}
		time.Sleep(time.Minute) // until both are idle
		subscription := admin.Subscribe(t.Context(), fairChannel+":"+thread.owner)
		defer subscription.Close()
		_, err := subscription.Receive(t.Context())
		require.NoError(t, err)
		require.NoError(t, admin.Del(t.Context(), "orders").Err())
		_, err = subscription.ReceiveTimeout(t.Context(), 5*time.Second)
		require.NoError(t, err)
		require.True(t, thread.lock(redissonWait))
		thread.unlock()
		for range 2 {
			require.NoError(t, (<-got).Unlock(t.Context()))
		}
	})
}
