package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	"github.com/leasewheel/leasewheel/renewal"
)

// redisson behaves on the wire like a client of Redisson's RLock: it sends the commands
// of its scripts in their order, by their documentation and sources.
type redisson struct {
	*testing.T
	client *redis.Client
	owner  string
}

func newRedisson(t *testing.T, s *redistest.Server) *redisson {
	return &redisson{t, s.Client(t), "285475da-9152-4c83-822a-67ee2f116a79:52"}
}

// tryLock returns the remaining time of another client's lock, and nil when it has
// acquired the lock.
func (r *redisson) tryLock(name string, lease time.Duration) *time.Duration {
	r.Helper()
	reply, err := r.client.Eval(r.Context(), `
		if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		return redis.call('pttl', KEYS[1])`,
		[]string{name}, lease.Milliseconds(), r.owner).Int64()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	require.NoError(r, err)
	left := time.Duration(reply) * time.Millisecond
	return &left
}

// unlock reports whether the lock was this client's.
func (r *redisson) unlock(name, channel string) bool {
	r.Helper()
	reply, err := r.client.Eval(r.Context(), `
		if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
			return nil
		end
		if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then
			return 0
		end
		redis.call('del', KEYS[1])
		redis.call('publish', KEYS[2], ARGV[2])
		return 1`,
		[]string{name, channel}, r.owner, "0").Int64()
	if errors.Is(err, redis.Nil) {
		return false
	}
	require.NoError(r, err)
	return reply == 1
}

func TestWireFormat(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	const leased = time.Hour
	l := locker(t, server.Client(t), lock.Config{TTL: leased})
	message := listening(t, admin, "redisson_lock__channel:{orders:42}")

	lease := mustLock(t, l, "orders:42")
	fields, err := admin.HGetAll(t.Context(), "orders:42").Result()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{lease.Owner(): "1"}, fields)
	assert.Regexp(t, `^[0-9a-f-]{36}:[0-9]+$`, lease.Owner())
	ttl, err := admin.PTTL(t.Context(), "orders:42").Result()
	require.NoError(t, err)
	assert.InDelta(t, leased, ttl, float64(time.Minute))

	token, err := admin.Get(t.Context(), "redisson_lock_token:{orders:42}").Result()
	require.NoError(t, err)
	assert.Equal(t, strconv.FormatInt(lease.Token(), 10), token)
	now, err := admin.Time(t.Context()).Result()
	require.NoError(t, err)
	assert.WithinDuration(t, now, time.UnixMicro(lease.Token()), time.Minute, "a token is the server's time in µs")

	further, err := l.Mutex("orders:42").Lock(lease.Context())
	require.NoError(t, err)
	assert.Equal(t, "2", admin.HGet(t.Context(), "orders:42", lease.Owner()).Val())
	require.NoError(t, further.Unlock(t.Context()))
	assert.Equal(t, "1", admin.HGet(t.Context(), "orders:42", lease.Owner()).Val())

	require.NoError(t, lease.Unlock(t.Context()))
	assert.Zero(t, admin.Exists(t.Context(), "orders:42").Val())
	assert.Equal(t, "0", message(), "one message, and only for the last hold")

	record := admin.HGetAll(t.Context(), awaitAnnounced(t, admin, l)).Val()
	for _, field := range []string{"host", "process", "pid", "since"} {
		assert.NotEmpty(t, record[field], field)
	}
	keys, err := admin.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		assert.Positive(t, admin.TTL(t.Context(), key).Val(), "key %s stays for ever", key)
	}
	assert.Len(t, keys, 2, "%v", keys)
}

func TestSharesLocksWithRedisson(t *testing.T) {
	t.Parallel()
	eachName(t, func(t *testing.T, server *redistest.Server, name string) {
		channel := "redisson_lock__channel:{" + name + "}"
		if strings.Contains(name, "{") {
			channel = "redisson_lock__channel:" + name
		}
		r := newRedisson(t, server)
		l := locker(t, server.Client(t), lock.Config{TTL: time.Hour, Poll: time.Hour})

		lease := mustLock(t, l, name)
		left := r.tryLock(name, time.Minute)
		require.NotNil(t, left, "Redisson has our lock")
		assert.Greater(t, *left, 50*time.Minute)
		assert.False(t, r.unlock(name, channel), "Redisson has released our lock")
		require.NoError(t, lease.Unlock(t.Context()))

		require.Nil(t, r.tryLock(name, time.Hour))
		require.Nil(t, r.tryLock(name, time.Hour))
		_, err := l.Mutex(name).TryLock(t.Context())
		var refused *lock.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		assert.False(t, refused.Foreign)
		got := make(chan *lock.Lease)
		go send(got, func() *lock.Lease { return mustLock(t, l, name) })
		awaitSubscribers(t, server.Client(t), channel, 1)
		assert.False(t, r.unlock(name, channel), "it was held twice")
		assert.True(t, r.unlock(name, channel))
		lease = <-got // woken by Redisson's message
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A forced release by Redisson notifies the victim and wakes a waiter.
func TestForcedReleaseByRedisson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		admin := server.Client(t)
		const ttl = time.Second
		lease := mustLock(t, server.Locker(t, lock.Config{TTL: ttl}), "a")
		got := startWaiter(t, server.Locker(t, lock.Config{Poll: time.Hour}))
		awaitQueued(t, admin, 1)
		require.NoError(t, admin.Del(t.Context(), "a").Err())
		require.NoError(t, admin.Publish(t.Context(), "redisson_lock__channel:{a}", "0").Err())
		begin := time.Now()
		next := <-got
		assert.Zero(t, time.Since(begin))
		assert.Equal(t, renewal.TakenOver, lossAtTheEnd(t, lease).Cause)
		assert.Less(t, time.Since(begin), ttl/2)
		require.NoError(t, next.Unlock(t.Context()))
	})
}

func awaitSubscribers(t *testing.T, client *redis.Client, channel string, n int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		return client.PubSubNumSub(t.Context(), channel).Val()[channel] == n
	}, time.Minute, 5*time.Millisecond)
}

// Redisson's fenced lock counts with INCR in the same key: the tokens of a mixed fleet
// grow from one holder to the next.
func TestSharesFencingTokensWithRedisson(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l := locker(t, server.Client(t), lock.Config{})
	const counter = "redisson_lock_token:{a}"
	theirs := func() int64 { return admin.Incr(t.Context(), counter).Val() }
	ours := func() int64 {
		lease := mustLock(t, l, "a")
		defer func() { require.NoError(t, lease.Unlock(t.Context())) }()
		return lease.Token()
	}
	last := theirs()
	for range 5 {
		for _, next := range []func() int64{ours, theirs, theirs, ours, ours} {
			token := next()
			require.Greater(t, token, last)
			last = token
		}
	}
	assert.EqualValues(t, -1, admin.TTL(t.Context(), counter).Val(), "a counter of Redisson's never expires")

	// A counter that is ahead of the clock continues from there.
	ahead := time.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, admin.Set(t.Context(), counter, ahead, 0).Err())
	first := ours()
	assert.Greater(t, first, ahead)
	assert.LessOrEqual(t, first, ahead+16)
	assert.Equal(t, first+16, ours())
}

func TestFencingCounterExpires(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	for fence, want := range map[time.Duration]time.Duration{
		0:                redisstore.DefaultFenceTTL,
		30 * time.Minute: 30 * time.Minute,
		-1:               -1,
	} {
		l := lockerOn(t, openWith(t, server.Client(t), redisstore.Config{FenceTTL: fence}), lock.Config{})
		name := fmt.Sprintf("fence %d", fence)
		require.NoError(t, mustLock(t, l, name).Unlock(t.Context()))
		assert.InDelta(t, want, admin.TTL(t.Context(), "redisson_lock_token:{"+name+"}").Val(), float64(time.Minute))
	}
	_, err := redisstore.New(server.Client(t), redisstore.Config{FenceTTL: time.Microsecond})
	require.ErrorContains(t, err, "FenceTTL")
}

// Readers who join others share their token as long as the counter exists, and each of
// them prolongs it.
func TestFencingCounterOfReaders(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l := lockerOn(t, openWith(t, server.Client(t), redisstore.Config{FenceTTL: time.Hour}), lock.Config{})
	const counter = "redisson_lock_token:{a}"
	read := func() *lock.Lease {
		lease, err := l.ReadWrite("a").Read().Lock(t.Context())
		require.NoError(t, err)
		return lease
	}
	first := read()
	require.NoError(t, admin.Expire(t.Context(), counter, 10*time.Minute).Err())
	second := read()
	assert.Equal(t, first.Token(), second.Token())
	assert.Greater(t, admin.TTL(t.Context(), counter).Val(), 10*time.Minute)
	require.NoError(t, admin.Persist(t.Context(), counter).Err())
	third := read()
	assert.Equal(t, first.Token(), third.Token())
	assert.EqualValues(t, -1, admin.TTL(t.Context(), counter).Val(), "a counter of Redisson's never expires")
	for _, lease := range []*lock.Lease{first, second, third} {
		require.NoError(t, lease.Unlock(t.Context()))
	}
}

// A key with another kind of value, such as the plain string of redsync's and redislock's
// locks, is a lock of another family: refused as such, waited for by polling, and never
// changed.
func TestOtherFamilies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		admin, l := server.Client(t), server.Locker(t, lock.Config{Poll: 100 * time.Millisecond})
		for _, ttl := range []time.Duration{0, time.Minute} {
			require.NoError(t, admin.Set(t.Context(), "a", "redsync's", ttl).Err())
			_, err := l.Mutex("a").TryLock(t.Context())
			var refused *lock.NotAcquiredError
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, driver.ErrForeign)
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			assert.Equal(t, ttl > 0, refused.TTL > 0)

			time.AfterFunc(300*time.Millisecond, func() { admin.Del(context.Background(), "a") })
			lease := mustLock(t, l, "a") // its release is not published
			require.NoError(t, lease.Unlock(t.Context()))
		}

		// The same for a lock that is replaced while it is held.
		brief := server.Locker(t, lock.Config{TTL: 3 * time.Second})
		lease, beside := mustLock(t, brief, "a"), mustLock(t, brief, "b")
		require.NoError(t, admin.Set(t.Context(), "a", "somebody's", 0).Err())
		assert.Equal(t, renewal.TakenOver, lossAtTheEnd(t, lease).Cause)
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		time.Sleep(10 * time.Second)
		require.NoError(t, beside.Err(), "a wrong-typed key costs only itself")
		require.NoError(t, beside.Unlock(t.Context()))
		assert.Equal(t, "somebody's", admin.Get(t.Context(), "a").Val())
	})
}

// After all locks were released only keys with a TTL are left, no channel, and no more
// commands for the lock.
func TestLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, wire := startNetwork(t)
		admin := server.Client(t)
		mine, theirs := locker(t, wire.client(t), lock.Config{TTL: 3 * time.Second}), locker(t, wire.client(t), lock.Config{TTL: 3 * time.Second})
		lease := mustLock(t, mine, "a")
		got := startWaiter(t, theirs)
		awaitRenewal(t, lease)
		require.NoError(t, lease.Unlock(t.Context()))
		next := <-got
		awaitRenewal(t, next)
		require.NoError(t, next.Unlock(t.Context()))
		awaitChannels(t, admin, 0)
		before := wire.scripts()
		for _, key := range admin.Keys(t.Context(), "*").Val() {
			assert.Positive(t, admin.TTL(t.Context(), key).Val(), "key %s stays for ever", key)
		}
		time.Sleep(5 * time.Minute) // half of the pause between two announcements
		assert.Equal(t, before, wire.scripts(), "commands went on after the last release")
	})
}

// One connection subscribes for any number of locks.
func TestOneSubscriptionConnection(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	mine, theirs := locker(t, server.Client(t), lock.Config{}), locker(t, server.Client(t), lock.Config{})
	const locks = 30
	locked := contendFor(t, mine, theirs, locks, "lock ")
	awaitChannels(t, admin, 3*locks) // Redisson's, that of all clients of ours, and this client's
	list, err := admin.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(list, "\n"), "%s", list)
	locked.handOver(t)
	awaitChannels(t, admin, 0)
	require.Eventually(t, func() bool { // and no connection without subscriptions
		list, err := admin.Do(t.Context(), "client", "list").Text()
		return err == nil && !strings.Contains(list, "cmd=unsubscribe") && !strings.Contains(list, "cmd=ping")
	}, time.Minute, 50*time.Millisecond)
}

// A waiter that asks in the last millisecond of the holder's lease waits that
// millisecond, not for the poll.
func TestLastMillisecondOfALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := locktest.Start(t).Store(t)
		const ttl, step = 20 * time.Millisecond, 100 * time.Microsecond
		ask := func(n int) driver.Answer {
			h := mutexOf("a", n)
			h.TTL = ttl
			return asks(t, store, h)
		}
		require.Equal(t, driver.Granted, ask(0).Verdict)
		for left := ttl; left > 0; left -= step {
			answer := ask(1)
			require.Equal(t, driver.Refused, answer.Verdict)
			require.Positive(t, answer.Wait)
			require.LessOrEqual(t, answer.Wait, left+time.Millisecond)
			time.Sleep(step)
		}
		require.Equal(t, driver.Granted, ask(1).Verdict)
	})
}

// awaitAnnounced returns the key of the locker's record on the server, which its first
// grant writes in the background.
func awaitAnnounced(t *testing.T, admin *redis.Client, l *lock.Locker) string {
	t.Helper()
	key := "leasewheel:client:{" + l.ClientID() + "}"
	require.Eventually(t, func() bool { return admin.Exists(t.Context(), key).Val() == 1 }, time.Minute, time.Millisecond)
	return key
}

// Locks that are used only once leave nothing behind that does not expire within a
// minute.
func TestNamesUsedOnceLeaveNothing(t *testing.T) {
	t.Parallel()
	for _, format := range []redisstore.Format{redisstore.FormatRedisson, redisstore.FormatPlain} {
		server, admin := startServer(t)
		l := lockerOn(t, openWith(t, server.Client(t), redisstore.Config{Format: format}), lock.Config{})
		for i := range 50 {
			require.NoError(t, mustLock(t, l, fmt.Sprint("order ", i)).Unlock(t.Context()))
			if format != redisstore.FormatRedisson {
				continue
			}
			fair, err := l.Fair(fmt.Sprint("fair ", i)).Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, fair.Unlock(t.Context()))
			read, err := l.ReadWrite(fmt.Sprint("read ", i)).Read().Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, read.Unlock(t.Context()))
		}
		keys, err := admin.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		for _, key := range keys {
			if strings.HasPrefix(key, "leasewheel:client:") {
				continue // one for the locker
			}
			left := admin.PTTL(t.Context(), key).Val()
			assert.True(t, left != -1 && left <= time.Minute, "%s has %v", key, left) // -2: it has expired since
		}
	}
}
