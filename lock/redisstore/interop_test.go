package redisstore_test

import (
	"context"
	"fmt"
	"math"
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
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// lockerWith returns a locker on a store with a given configuration.
func lockerWith(t *testing.T, client redis.UniversalClient, c redisstore.Config) *lock.Locker {
	t.Helper()
	return lockerOn(t, openWith(t, client, c), lock.Config{Poll: time.Hour})
}

// A release reaches a client of the cluster that subscribes without shards.
func TestClusterReleaseReachesUnshardedSubscribers(t *testing.T) {
	t.Parallel()
	cluster := sharedCluster(t)
	client := clusterClient(t, cluster)
	for _, mode := range []redisstore.PubSub{redisstore.PubSubAuto, redisstore.PubSubOff, redisstore.PubSubBoth} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := lockerWith(t, client, redisstore.Config{PubSub: mode})
			name := "without shards:" + mode.String()
			lease := mustLock(t, l, name)
			// Redisson subscribes on the master of the slot, as it does for shards.
			listens := cluster.Owner(t, name).Client(t).Subscribe(t.Context(), "redisson_lock__channel:{"+name+"}")
			defer listens.Close()
			_, err := listens.Receive(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			m, err := listens.ReceiveMessage(ctx)
			require.NoError(t, err, "the release is not published for those who listen without shards")
			assert.Equal(t, "0", m.Payload)
		})
	}
}

// A release that is published by either kind of pub/sub wakes a waiter.
func TestClusterWakesByEitherKindOfPubSub(t *testing.T) {
	t.Parallel()
	cluster := sharedCluster(t)
	client := clusterClient(t, cluster)
	for _, publish := range []string{"publish", "spublish"} {
		t.Run(publish, func(t *testing.T) {
			t.Parallel()
			l := lockerWith(t, client, redisstore.Config{PubSub: redisstore.PubSubBoth})
			name := "either:" + publish
			channel := "redisson_lock__channel:{" + name + "}"
			owner := cluster.Owner(t, name).Client(t)
			require.NoError(t, owner.HSet(t.Context(), name, aJavaOwner, 1).Err())
			require.NoError(t, owner.PExpire(t.Context(), name, time.Hour).Err())
			granted := make(chan *lock.Lease)
			go func() { granted <- mustLock(t, l, name) }()
			require.Eventually(t, func() bool {
				plain := owner.PubSubNumSub(t.Context(), channel).Val()[channel]
				return plain+owner.PubSubShardNumSub(t.Context(), channel).Val()[channel] == 2
			}, time.Minute, 5*time.Millisecond)
			require.NoError(t, owner.Del(t.Context(), name).Err())
			require.NoError(t, owner.Do(t.Context(), publish, channel, "0").Err())
			select {
			case lease := <-granted:
				require.NoError(t, lease.Unlock(t.Context()))
			case <-time.After(time.Minute):
				t.Fatal("the waiter was not woken")
			}
		})
	}
}

const aJavaOwner = "285475da-9152-4c83-822a-67ee2f116a79:52"

// A counter that Redisson uses does not expire.
func TestCounterThatRedissonCountsWithLasts(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	l := lockerWith(t, client, redisstore.Config{FenceTTL: time.Hour})
	const counter = "redisson_lock_token:{fenced}"
	require.NoError(t, mustLock(t, l, "fenced").Unlock(t.Context()))
	require.Positive(t, client.PTTL(t.Context(), counter).Val(), "a counter of ours alone expires")
	theirs := client.Incr(t.Context(), counter).Val()
	lease := mustLock(t, l, "fenced")
	assert.Greater(t, lease.Token(), theirs)
	require.NoError(t, lease.Unlock(t.Context()))
	assert.EqualValues(t, -1, client.PTTL(t.Context(), counter).Val())
}

// A reader is renewed in time although another reader's watchdog, as Redisson's does,
// sets the lock to a shorter lease again and again, and dies.
func TestReaderOutlivesAShorterWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		client := server.Client(t)
		lease, err := server.Locker(t, lock.Config{TTL: 12 * time.Second}).ReadWrite("shared").Read().Lock(t.Context())
		require.NoError(t, err)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(700 * time.Millisecond) {
			require.NoError(t, client.PExpire(t.Context(), "shared", 2100*time.Millisecond).Err())
		}
		require.NoError(t, client.PExpire(t.Context(), "shared", 2100*time.Millisecond).Err())
		for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			require.EqualValues(t, 1, client.Exists(t.Context(), "shared").Val(), "the lock has ended before our lease, until %v", time.Until(lease.Until()))
		}
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A deleted latch wakes Redisson's waiters, which need the message "0".
func TestDeletedLatchWakesRedisson(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	l := lockerWith(t, client, redisstore.Config{})
	set, err := l.Latch("gate").TrySetCount(t.Context(), 2)
	require.NoError(t, err)
	require.True(t, set)
	message := listening(t, client, "redisson_countdownlatch__channel__{gate}")
	_, err = l.Latch("gate").Delete(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "0", message())
}

// Names are mapped to keys and back.
func TestMappedNames(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]redisstore.Config{
		"prefix": {Prefix: "shop:"},
		"functions": {
			MapName: func(name string) string { return "shop:" + strings.ToUpper(name) },
			UnmapName: func(key string) (string, bool) {
				rest, ok := strings.CutPrefix(key, "shop:")
				return strings.ToLower(rest), ok
			},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t, redistest.Config{}).Client(t)
			l, bare := lockerWith(t, client, c), lockerWith(t, client, redisstore.Config{})
			key := "shop:a"
			if c.MapName != nil {
				key = c.MapName("a")
			}
			lease := mustLock(t, l, "a")
			assert.Equal(t, "a", lease.Name())
			_, err := bare.Mutex(key).TryLock(t.Context())
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			other := mustLock(t, bare, "a") // the name is not the key
			info, err := l.Inspect(t.Context(), "a", driver.KindMutex)
			require.NoError(t, err)
			assert.Equal(t, "a", info.Name)
			assert.Equal(t, lease.Owner(), info.Holders[0].Owner)
			var names []string
			for info, err := range l.List(t.Context(), "a*") {
				require.NoError(t, err)
				names = append(names, info.Name)
			}
			assert.Equal(t, []string{"a"}, names)
			require.NoError(t, lease.Unlock(t.Context()))
			require.NoError(t, other.Unlock(t.Context()))
			info, err = l.ForceRelease(t.Context(), "a")
			require.NoError(t, err)
			assert.False(t, info.Held())
		})
	}
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer client.Close()
	_, err := redisstore.New(client, redisstore.Config{MapName: strings.ToUpper})
	require.Error(t, err, "names could not be told from keys")
}

// Several permits are one lease: acquired, renewed and released together.
func TestSeveralPermitsAreOneLease(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	l := lockerWith(t, client, redisstore.Config{})
	p := l.Permits("seats")
	set, err := p.TrySetPermits(t.Context(), 5)
	require.NoError(t, err)
	require.True(t, set)
	three, err := p.Several(3).Lock(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 3, client.ZCard(t.Context(), "{seats}:timeout").Val())
	_, err = p.Several(3).TryLock(t.Context())
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	require.NoError(t, p.SetPermits(t.Context(), 4))
	available, err := p.Available(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, available, "four, of which three are in use")
	require.NoError(t, three.Unlock(t.Context()))
	available, err = p.Available(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 4, available)
	for _, n := range []int64{-1, 0, driver.MaxSeveral + 1} {
		_, err = p.Several(n).TryLock(t.Context())
		require.ErrorAs(t, err, new(*lock.RangeError), "%d", n)
	}
}

// The lease of several permits is renewed as one, and lost with any of them.
func TestLeaseOfSeveralPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		p := server.Locker(t, lock.Config{}).Permits("seats")
		require.NoError(t, p.SetPermits(t.Context(), 4))
		lease, err := p.Several(3).Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.True(t, lease.Valid(), "%v", lease.Err())
		require.NoError(t, server.Client(t).ZRemRangeByRank(t.Context(), "{seats}:timeout", 1, 1).Err())
		time.Sleep(time.Minute)
		require.ErrorIs(t, lease.Err(), lock.ErrLost)
	})
}

// Setting the number of permits works with any number of expired ones: one run reclaims
// at most a hundred.
func TestSetPermitsWithManyExpired(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	p := lockerWith(t, client, redisstore.Config{}).Permits("seats")
	for name, count := range map[string]any{"a count": 50, "no count": nil} {
		require.NoError(t, client.Del(t.Context(), "seats", "{seats}:timeout").Err())
		if count != nil {
			require.NoError(t, client.Set(t.Context(), "seats", count, 0).Err())
		}
		for i := range 250 {
			require.NoError(t, client.ZAdd(t.Context(), "{seats}:timeout", redis.Z{Score: 1, Member: fmt.Sprintf("%016d", i)}).Err())
		}
		live := redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: strings.Repeat("x", 16)}
		require.NoError(t, client.ZAdd(t.Context(), "{seats}:timeout", live).Err())
		require.NoError(t, p.SetPermits(t.Context(), 10))
		for range 4 {
			available, err := p.Available(t.Context())
			require.NoError(t, err)
			assert.EqualValues(t, 9, available, name)
		}
	}
}

// A number of permits with a TTL is gone afterwards.
func TestPermitsForAWhile(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	l := lockerWith(t, client, redisstore.Config{})
	for i, set := range []func(context.Context, int64, time.Duration) (bool, error){l.Semaphore("s0").TrySetPermitsFor, l.Permits("s1").TrySetPermitsFor} {
		done, err := set(t.Context(), 3, time.Hour)
		require.NoError(t, err)
		require.True(t, done)
		assert.InDelta(t, time.Hour, client.PTTL(t.Context(), fmt.Sprint("s", i)).Val(), float64(time.Minute))
		_, err = set(t.Context(), 3, 0)
		require.Error(t, err)
	}
}

// The permits of one lease have distinct ids, for any first id.
func TestSeveralPermitsHaveIDsOfTheirOwn(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	store := open(t, client)
	for _, first := range []string{"00000000000000000000000000000001", "0123456789abcdef01234567fffffffe", "0123456789abcdef0123456700ffffff"} {
		require.NoError(t, client.FlushAll(t.Context()).Err())
		require.NoError(t, client.Set(t.Context(), "seats", driver.MaxSeveral, 0).Err())
		h := &driver.Hold{Kind: driver.KindPermit, Name: "seats", Owner: first, Count: 1, TTL: time.Minute, Semaphore: driver.Semaphore{Permits: driver.MaxSeveral}}
		a, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, a.Verdict)
		assert.EqualValues(t, driver.MaxSeveral, client.ZCard(t.Context(), "{seats}:timeout").Val(), first)
		again, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		assert.Equal(t, driver.Granted, again.Verdict, "what it has already")
		held, err := store.Release(t.Context(), released(h))
		require.NoError(t, err)
		assert.True(t, held, first)
		assert.EqualValues(t, driver.MaxSeveral, client.DecrBy(t.Context(), "seats", 0).Val(), first)
	}
}

// A permit is not valid beyond the end of its semaphore, renewed or not.
func TestPermitsEndWithTheirSemaphore(t *testing.T) {
	for name, o := range map[string]lock.Options{"renewed": {}, "fixed": {Fixed: true}, "short": {TTL: 1500 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := locktest.Start(t).Locker(t, lock.Config{}).Permits("seats")
				set, err := p.TrySetPermitsFor(t.Context(), 1, 4*time.Second)
				end := time.Now().Add(4 * time.Second)
				require.NoError(t, err)
				require.True(t, set)
				lease, err := p.One().With(o).Lock(t.Context())
				require.NoError(t, err)
				for lease.Err() == nil {
					assert.False(t, lease.Until().After(end), "trusted up to %v after the end", lease.Until().Sub(end))
					time.Sleep(50 * time.Millisecond)
				}
				require.ErrorIs(t, lease.Err(), lock.ErrLost)
			})
		})
	}
}

// The timeout that keeps Redisson from dropping a waiter of ours counts only the waiters
// of Redisson's before it. Otherwise a killed process with many waiters would block Java
// for minutes each.
func TestOurOwnWaitersDelayNoDeadOne(t *testing.T) {
	t.Parallel()
	server, client := startServer(t)
	store := open(t, client)
	const ttl = 2 * time.Minute // whose end the timeouts follow
	ask := func(n int) {
		h := mutexOf("orders", n)
		h.Kind, h.TTL, h.Queue.Keep = driver.KindFair, ttl, time.Minute
		_, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
	}
	holder := mutexOf("orders", 1)
	holder.Kind, holder.TTL = driver.KindFair, ttl
	_, err := store.Acquire(t.Context(), holder)
	require.NoError(t, err)
	const ours = 4
	for n := range ours {
		ask(10 + n)
	}
	for n := range 3 {
		require.False(t, newRedissonThread(t, server, n+1).lock(5*time.Minute))
	}
	ask(20)
	for n := range ours {
		ask(10 + n)
	}
	now := client.Time(t.Context()).Val().UnixMilli()
	timeout := func(n int) time.Duration {
		by := client.ZScore(t.Context(), fairTimeouts, owner(n)).Val()
		return time.Duration(int64(by)-now) * time.Millisecond
	}
	for n := range ours {
		assert.Less(t, timeout(10+n), redissonWait, "waiter %d", n)
	}
	assert.Greater(t, timeout(20), 15*time.Minute, "behind three threads")
}

// Requests beside the head of a fair queue do not clear the mark that the head is
// subscribed: otherwise the end of its process would go unnoticed.
func TestNeighboursLeaveTheMarkOfAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		client, l := server.Client(t), server.Locker(t, lock.Config{})
		lease, err := l.Fair("a").Lock(t.Context())
		require.NoError(t, err)
		var work sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 8 {
			work.Go(func() { _, _ = l.Fair("a").Lock(ctx) })
		}
		for range 4 * 30 { // each asks again after a third of its place's time
			time.Sleep(50 * time.Millisecond)
			require.EqualValues(t, 8, client.ZCard(t.Context(), aPlaces).Val())
			head := client.LIndex(t.Context(), "redisson_lock_queue:{a}", 0).Val()
			score := client.ZScore(t.Context(), aPlaces, head).Val()
			require.InDelta(t, 0.5, score-math.Floor(score), 0.1, "the head listens")
		}
		cancel()
		work.Wait()
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A user without the right to count subscribers waits for fair locks and releases them.
func TestFairLocksNeedNoListOfListeners(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"ada on >pw ~* &* +@all -pubsub"}})
	client := loginAs(t, server, "ada", "pw")
	mine, theirs := lockerWith(t, client, redisstore.Config{}), lockerWith(t, client, redisstore.Config{})
	lease, err := mine.Fair("a").Lock(t.Context())
	require.NoError(t, err)
	got := make(chan *lock.Lease)
	go send(got, func() *lock.Lease {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease, err := theirs.Fair("a").Lock(ctx)
		assert.NoError(t, err)
		return lease
	})
	admin := server.Client(t)
	require.Eventually(t, func() bool { return admin.ZCard(t.Context(), aPlaces).Val() == 1 }, time.Minute, 5*time.Millisecond, "it waits")
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, (<-got).Unlock(t.Context()))
}

// contendInBubble makes n lockers acquire the mutex "a" again and again, each for so long,
// until stop.
func contendInBubble(t *testing.T, server *locktest.Server, n int, hold time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for range n {
		l := server.Locker(t, lock.Config{})
		work.Go(func() {
			for ctx.Err() == nil {
				lease, err := l.Mutex("a").Lock(ctx)
				if err != nil {
					continue
				}
				time.Sleep(hold)
				assert.NoError(t, lease.Unlock(context.WithoutCancel(ctx)))
			}
		})
	}
	return func() {
		cancel()
		work.Wait()
	}
}

// A client that polls gets its share, however long each of ours has the lock.
func TestLongHoldsDoNotStarveWhoPolls(t *testing.T) {
	const channel = "redisson_lock__channel:{a}"
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		theirs := &redisson{t, server.Client(t), aJavaOwner}
		require.Nil(t, theirs.tryLock("a", 30*time.Second))
		stop := contendInBubble(t, server, 2, 2500*time.Millisecond)
		time.Sleep(300 * time.Millisecond) // they are refused, and another client's hold is recorded
		require.True(t, theirs.unlock("a", channel))
		for turns := range 20 {
			begin := time.Now()
			for ; theirs.tryLock("a", 30*time.Second) != nil; time.Sleep(60 * time.Millisecond) {
				require.Less(t, time.Since(begin), 15*time.Second, "a client that polls is starved after %d turns", turns)
			}
			require.True(t, theirs.unlock("a", channel))
		}
		stop()
	})
}

// A client that polls, of which the server has no trace, gets its share among clients of
// ours that hand the lock over to each other: the first time within 10 s or two, then
// some times every second.
func TestHandOverDoesNotStarveWhoPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		stop := contendInBubble(t, server, 3, 100*time.Millisecond)
		time.Sleep(time.Second)
		theirs := &redisson{t, server.Client(t), aJavaOwner}
		limit := 20 * time.Second
		for turns := range 4 {
			begin := time.Now()
			for ; theirs.tryLock("a", 30*time.Second) != nil; time.Sleep(8 * time.Millisecond) {
				require.Less(t, time.Since(begin), limit, "a client that polls is starved after %d turns", turns)
			}
			require.True(t, theirs.unlock("a", "redisson_lock__channel:{a}"))
			limit = time.Second
		}
		stop()
	})
}

// A killed waiter of ours at the head of a fair queue delays none of Redisson's: the
// release drops it when it is no longer subscribed.
func TestFairReleaseSkipsAnUnsubscribedHead(t *testing.T) {
	t.Parallel()
	server, client := startServer(t)
	const ttl = 2 * time.Minute
	holder := locker(t, client, lock.Config{TTL: ttl})
	lease, err := holder.Fair("orders").Lock(t.Context())
	require.NoError(t, err)

	dying := redis.NewClient(server.Options())
	store, err := redisstore.New(dying, redisstore.Config{})
	require.NoError(t, err)
	l, err := lock.New(store, lock.Config{TTL: ttl, RequestTimeout: time.Minute})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = l.Fair("orders").Lock(ctx)
	}()
	places := func() float64 {
		all := client.ZRangeWithScores(t.Context(), "leasewheel_lock_places:{orders}", 0, 0).Val()
		if len(all) == 0 {
			return 0
		}
		return all[0].Score
	}
	require.Eventually(t, func() bool { p := places(); return p != float64(int64(p)) }, time.Minute, 5*time.Millisecond, "it listens")
	thread := newRedissonThread(t, server, 1)
	require.False(t, thread.lock(redissonWait))
	assert.Less(t, thread.timeout(thread.owner), 2*redissonWait, "a waiter behind ours is not counted")

	require.NoError(t, dying.Close()) // as a killed process: nothing leaves the queue
	require.NoError(t, store.Close())
	require.Eventually(t, func() bool {
		return len(client.PubSubChannels(t.Context(), "*"+l.ClientID()+"*").Val()) == 0
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, lease.Unlock(t.Context()))
	assert.True(t, thread.lock(redissonWait), "the lock is free, and the head of the queue dead")
	cancel()
	<-ended
	_ = l.Close()
}
