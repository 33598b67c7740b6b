package redisstore_test

import (
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strconv"
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
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/renewal"
)

// redissonCount behaves on the wire like a client of Redisson with a count of some name:
// of a semaphore or a latch.
type redissonCount struct {
	*testing.T
	client *redis.Client
	keys   []string // the count, the channel, the permits in use
}

// run runs a script on the keys of the count.
func (r *redissonCount) run(script string, args ...any) int64 {
	r.Helper()
	reply, err := r.client.Eval(r.Context(), script, r.keys, args...).Int64()
	require.NoError(r, err)
	return reply
}

// create sets the count unless there is one, and publishes a message.
func (r *redissonCount) create(n, message int64) bool {
	r.Helper()
	return r.run(`
		if redis.call('exists', KEYS[1]) == 1 then
			return 0
		end
		redis.call('set', KEYS[1], ARGV[1])
		redis.call('publish', KEYS[2], ARGV[2])
		return 1`, n, message) == 1
}

// redissonSemaphore behaves on the wire like a client of Redisson with a semaphore of
// some name, with or without permits that expire. It has the effects of Redisson's
// scripts, by their documentation and sources.
type redissonSemaphore struct{ redissonCount }

func newRedissonSemaphore(t *testing.T, s *redistest.Server, name string) *redissonSemaphore {
	tag := "{" + name + "}"
	if strings.Contains(name, "{") {
		tag = name
	}
	return &redissonSemaphore{redissonCount{t, s.Client(t), []string{name, "redisson_sc:" + tag, tag + ":timeout"}}}
}

func (r *redissonSemaphore) channel() string { return r.keys[1] }

func (r *redissonSemaphore) trySet(n int64) bool {
	r.Helper()
	return r.create(n, n)
}

func (r *redissonSemaphore) tryAcquire(n int64) bool {
	r.Helper()
	return r.run(`
		local count = redis.call('get', KEYS[1])
		if count == false or tonumber(count) < tonumber(ARGV[1]) then
			return 0
		end
		redis.call('decrby', KEYS[1], ARGV[1])
		return 1`, n) == 1
}

func (r *redissonSemaphore) release(n int64) {
	r.Helper()
	r.run(`
		local count = redis.call('incrby', KEYS[1], ARGV[1])
		redis.call('publish', KEYS[2], count)
		return 1`, n)
}

// never is the expiry time of Redisson's permits that do not expire.
const never = 922337203685477

// tryTake takes a permit that expires at an instant, by the client's clock. It
// reports the id, and when none was free the instant at which the next one expires.
func (r *redissonSemaphore) tryTake(expires int64) (id string, next int64) {
	r.Helper()
	raw := make([]byte, 16)
	for i := range raw {
		raw[i] = byte(rand.N(256))
	}
	reply, err := r.client.Eval(r.Context(), `
		local expired = redis.call('zrangebyscore', KEYS[3], 0, ARGV[2], 'limit', 0, 1)
		if #expired > 0 then
			redis.call('zrem', KEYS[3], unpack(expired))
			local count = redis.call('incrby', KEYS[1], #expired)
			if count > 0 then
				redis.call('publish', KEYS[2], count)
			end
		end
		local count = redis.call('get', KEYS[1])
		if count ~= false and tonumber(count) >= 1 then
			redis.call('decrby', KEYS[1], 1)
			redis.call('zadd', KEYS[3], ARGV[1], ARGV[3])
			return 'OK'
		end
		local first = redis.call('zrange', KEYS[3], 0, 0, 'withscores')
		if first[1] ~= nil and first[2] ~= ARGV[4] then
			return ':' .. first[2]
		end
		return nil`, r.keys, expires, time.Now().UnixMilli(), string(raw), int64(never)).Text()
	if errors.Is(err, redis.Nil) {
		return "", 0
	}
	require.NoError(r, err)
	if at, found := strings.CutPrefix(reply, ":"); found {
		next, err := strconv.ParseInt(at, 10, 64)
		require.NoError(r, err)
		return "", next
	}
	return hex.EncodeToString(raw), 0
}

// giveBack reports whether the permit was in use and had not expired.
func (r *redissonSemaphore) giveBack(id string) bool {
	r.Helper()
	raw, err := hex.DecodeString(id)
	require.NoError(r, err)
	return r.run(`
		local expires = redis.call('zscore', KEYS[3], ARGV[1])
		if redis.call('zrem', KEYS[3], ARGV[1]) ~= 1 then
			return 0
		end
		local count = redis.call('incrby', KEYS[1], 1)
		redis.call('publish', KEYS[2], count)
		return tonumber(expires) > tonumber(ARGV[2]) and 1 or 0`, string(raw), time.Now().UnixMilli()) == 1
}

// listening subscribes and returns a function that waits for the next message.
func listening(t *testing.T, client *redis.Client, channel string) func() string {
	t.Helper()
	messages := client.Subscribe(t.Context(), channel)
	t.Cleanup(func() { _ = messages.Close() })
	_, err := messages.Receive(t.Context())
	require.NoError(t, err)
	return func() string {
		t.Helper()
		m, err := messages.ReceiveTimeout(t.Context(), time.Minute)
		require.NoError(t, err)
		return m.(*redis.Message).Payload
	}
}

// keysBut returns the server's keys except those of requests, of which it checks that
// they expire: a request whose reply the server does not know to have arrived, after two
// hours.
func keysBut(t *testing.T, client *redis.Client, requests string) (keys []string) {
	t.Helper()
	for _, key := range client.Keys(t.Context(), "*").Val() {
		if !strings.HasPrefix(key, requests) {
			keys = append(keys, key)
			continue
		}
		left := client.PTTL(t.Context(), key).Val()
		assert.True(t, left != -1 && left <= 2*time.Hour, "%s has %v", key, left) // -2: it has expired since
	}
	return keys
}

func mustAcquire(t *testing.T, s *lock.Semaphore, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.NoError(t, s.Acquire(ctx, n))
}

func mustHave(t *testing.T, p *lock.Permits) *lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := p.One().Lock(ctx)
	if !assert.NoError(t, err) {
		t.FailNow() // ends the calling goroutine, which need not be the test's
	}
	return lease
}

// eachName runs a test on one server with a name without a hash tag and one with it. It
// empties the server before each.
func eachName(t *testing.T, test func(t *testing.T, server *redistest.Server, name string)) {
	t.Helper()
	server := redistest.Start(t, redistest.Config{})
	for _, name := range []string{"orders:42", "{user:7}:cart"} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, server.Client(t).FlushAll(t.Context()).Err())
			test(t, server, name)
		})
	}
}

func TestSemaphoreWireFormat(t *testing.T) {
	t.Parallel()
	eachName(t, func(t *testing.T, server *redistest.Server, name string) {
		admin := server.Client(t)
		r := newRedissonSemaphore(t, server, name)
		message := listening(t, admin, r.channel())
		s := locker(t, server.Client(t), lock.Config{Poll: time.Hour}).Semaphore(name)
		count := func() string { return admin.Get(t.Context(), name).Val() }

		_, err := s.TrySetPermits(t.Context(), 5)
		require.NoError(t, err)
		assert.Equal(t, "5", count())
		assert.Equal(t, "5", message())
		require.NoError(t, s.Acquire(t.Context(), 4))
		assert.Equal(t, "1", count())
		require.NoError(t, s.Release(t.Context(), 2))
		assert.Equal(t, "3", count())
		assert.Equal(t, "3", message(), "how many there are")
		require.NoError(t, s.AddPermits(t.Context(), 4))
		assert.Equal(t, "7", count())
		assert.Equal(t, "4", message(), "how many there are more")
		require.NoError(t, s.AddPermits(t.Context(), -2))
		_, err = s.Drain(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "0", count())
		require.NoError(t, s.Release(t.Context(), 1))
		assert.Equal(t, "1", message(), "nothing was said of what took permits away")
		assert.Negative(t, admin.PTTL(t.Context(), name).Val())

		requests := strings.Replace(r.channel(), "redisson_sc", "leasewheel_request", 1) + ":"
		assert.Equal(t, []string{name}, keysBut(t, admin, requests))
	})
}

func TestPermitsWireFormat(t *testing.T) {
	t.Parallel()
	eachName(t, func(t *testing.T, server *redistest.Server, name string) {
		admin := server.Client(t)
		r := newRedissonSemaphore(t, server, name)
		message := listening(t, admin, r.channel())
		l := locker(t, server.Client(t), lock.Config{TTL: time.Hour})
		p := l.Permits(name)
		count := func() string { return admin.Get(t.Context(), name).Val() }
		expiry := func(lease *lock.Lease) time.Duration {
			id, err := hex.DecodeString(lease.Owner())
			require.NoError(t, err)
			assert.Len(t, id, 16)
			at, err := admin.ZScore(t.Context(), r.keys[2], string(id)).Result()
			require.NoError(t, err)
			return time.Until(time.UnixMilli(int64(at)))
		}

		_, err := p.TrySetPermits(t.Context(), 2)
		require.NoError(t, err)
		assert.Equal(t, "2", message())
		first, second := mustHave(t, p), mustHave(t, p)
		assert.Equal(t, "0", count())
		assert.EqualValues(t, 2, admin.ZCard(t.Context(), r.keys[2]).Val())
		assert.InDelta(t, time.Hour, expiry(first), float64(time.Minute))
		assert.InDelta(t, time.Hour, expiry(second), float64(time.Minute))
		assert.NotEqual(t, first.Owner(), second.Owner())
		require.NoError(t, first.Unlock(t.Context()))
		assert.Equal(t, "1", message())
		assert.Equal(t, "1", count())
		assert.EqualValues(t, 1, admin.ZCard(t.Context(), r.keys[2]).Val())
		require.NoError(t, second.Unlock(t.Context()))
		assert.Equal(t, "2", message())

		// If Redisson sets a TTL on a semaphore, its permits expire with it.
		require.NoError(t, admin.PExpire(t.Context(), name, 30*time.Minute).Err())
		first = mustHave(t, p)
		assert.InDelta(t, 30*time.Minute, admin.PTTL(t.Context(), r.keys[2]).Val(), float64(time.Minute))
		require.NoError(t, first.Unlock(t.Context()))

		record := awaitAnnounced(t, admin, l)
		requests := strings.Replace(r.channel(), "redisson_sc", "leasewheel_request", 1) + ":"
		token := strings.Replace(r.channel(), "redisson_sc", "redisson_lock_token", 1)
		assert.ElementsMatch(t, []string{name, record, token}, keysBut(t, admin, requests))
	})
}

func TestSharesSemaphoresWithRedisson(t *testing.T) {
	t.Parallel()
	eachName(t, func(t *testing.T, server *redistest.Server, name string) {
		admin := server.Client(t)
		r := newRedissonSemaphore(t, server, name)
		s := locker(t, server.Client(t), lock.Config{Poll: time.Hour}).Semaphore(name)
		got := make(chan struct{})
		waits := func(n int64) {
			go func() {
				mustAcquire(t, s, n)
				got <- struct{}{}
			}()
			awaitSubscribers(t, admin, r.channel(), 1)
		}
		waits(2)
		require.True(t, r.trySet(3))
		<-got
		first, err := s.TrySetPermits(t.Context(), 9)
		require.NoError(t, err)
		assert.False(t, first)
		require.True(t, r.tryAcquire(1))
		require.False(t, r.tryAcquire(1))
		waits(3)
		require.ErrorIs(t, s.TryAcquire(t.Context(), 1), lock.ErrNotAcquired)
		r.release(2)
		r.release(1)
		<-got
		require.False(t, r.tryAcquire(1))
		require.NoError(t, s.Release(t.Context(), 3))
		require.True(t, r.tryAcquire(3))
		r.release(3)
	})
}

func TestSharesPermitsWithRedisson(t *testing.T) {
	t.Parallel()
	eachName(t, func(t *testing.T, server *redistest.Server, name string) {
		admin := server.Client(t)
		r := newRedissonSemaphore(t, server, name)
		p := locker(t, server.Client(t), lock.Config{Poll: time.Hour}).Permits(name)
		got := make(chan *lock.Lease)
		require.True(t, r.trySet(2))
		theirs, _ := r.tryTake(never)
		require.NotEmpty(t, theirs)
		ours := mustHave(t, p)

		// Neither has a third one. Redisson gets the time at which ours expires.
		id, next := r.tryTake(never)
		require.Empty(t, id)
		assert.InDelta(t, longTTL, time.Until(time.UnixMilli(next)), float64(time.Minute))
		_, err := p.One().TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)

		// Permits that Redisson gives back wake us, and the other way round.
		go send(got, func() *lock.Lease { return mustHave(t, p) })
		awaitSubscribers(t, admin, r.channel(), 1)
		require.True(t, r.giveBack(theirs))
		again := <-got
		message := listening(t, admin, r.channel())
		require.NoError(t, ours.Unlock(t.Context()))
		assert.Equal(t, "1", message())

		// Redisson's permit expires; its owner has lost it.
		theirs, _ = r.tryTake(time.Now().UnixMilli())
		require.NotEmpty(t, theirs)
		last := mustHave(t, p)
		require.False(t, r.giveBack(theirs))
		require.NoError(t, again.Unlock(t.Context()))

		// Our permit is released by force, and its holder is notified.
		require.True(t, r.giveBack(last.Owner()))
		assert.ErrorIs(t, last.Unlock(t.Context()), lock.ErrLost)
		n, err := p.Available(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 2, n)
	})
}

// A waiter asks when Redisson's permit expires, which is not published.
func TestWaitsUntilRedissonsPermitExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		p := server.Locker(t, lock.Config{Poll: time.Hour}).Permits("a")
		require.NoError(t, p.SetPermits(t.Context(), 1))
		r := &redissonSemaphore{redissonCount{t, server.Client(t), []string{"a", "redisson_sc:{a}", "{a}:timeout"}}}
		expires := time.Now().Add(10 * time.Second)
		theirs, _ := r.tryTake(expires.UnixMilli())
		require.NotEmpty(t, theirs)
		require.NoError(t, mustHave(t, p).Unlock(t.Context()))
		assert.WithinDuration(t, expires, time.Now(), 100*time.Millisecond)
		assert.False(t, r.giveBack(theirs))
	})
}

// Values that are no count, or no permits, are left as they are.
func TestSemaphoresLeaveForeignValuesAlone(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l := locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	for what, write := range map[string]func(ctx context.Context, name string) error{
		"text": func(ctx context.Context, name string) error { return admin.Set(ctx, name, "opLock token", 0).Err() },
		"no whole number": func(ctx context.Context, name string) error {
			return admin.Set(ctx, name, "1.5", 0).Err()
		},
		"a leading zero": func(ctx context.Context, name string) error { return admin.Set(ctx, name, "03", 0).Err() },
		"a huge number": func(ctx context.Context, name string) error {
			return admin.Set(ctx, name, "9223372036854775807", 0).Err()
		},
		"a list": func(ctx context.Context, name string) error { return admin.RPush(ctx, name, "1").Err() },
	} {
		t.Run(what, func(t *testing.T) {
			name := "a:" + what
			require.NoError(t, write(t.Context(), name))
			before := admin.Dump(t.Context(), name).Val()
			s, p, latch := l.Semaphore(name), l.Permits(name), l.Latch(name)
			_, set := s.TrySetPermits(t.Context(), 1)
			_, available := s.Available(t.Context())
			_, drain := s.Drain(t.Context())
			_, setExpiring := p.TrySetPermits(t.Context(), 1)
			_, expiring := p.One().TryLock(t.Context())
			_, availableExpiring := p.Available(t.Context())
			_, setLatch := latch.TrySetCount(t.Context(), 1)
			_, deleted := latch.Delete(t.Context())
			for i, err := range []error{
				set, available, drain, setExpiring, expiring, availableExpiring, setLatch, deleted, s.TryAcquire(t.Context(), 1),
				s.Release(t.Context(), 1), s.AddPermits(t.Context(), 1), p.AddPermits(t.Context(), 1), latch.CountDown(t.Context()),
			} {
				require.ErrorIs(t, err, driver.ErrForeign, "%d", i)
			}
			assert.Equal(t, before, admin.Dump(t.Context(), name).Val())
		})
	}
	require.NoError(t, admin.Set(t.Context(), "{b}:timeout", "x", 0).Err())
	p := l.Permits("b")
	_, err := p.One().TryLock(t.Context())
	require.ErrorIs(t, err, driver.ErrForeign)
	_, err = p.TrySetPermits(t.Context(), 1)
	require.ErrorIs(t, err, driver.ErrForeign)
}

// Waiting for a foreign value ends with an error that names it.
func TestWaitsForForeignValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		require.NoError(t, server.Client(t).Set(t.Context(), "a", "opLock token", 0).Err())
		l := server.Locker(t, lock.Config{})
		_, err := l.Permits("a").One().MaxWait(time.Minute).Lock(t.Context())
		require.ErrorIs(t, err, driver.ErrForeign)
		require.ErrorIs(t, l.Semaphore("a").MaxWait(time.Minute).Acquire(t.Context(), 1), driver.ErrForeign)
	})
}

// A permit is lost when its key has become something else.
func TestPermitsAreLostToForeignValues(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	require.NoError(t, admin.Set(t.Context(), "a", 3, 0).Err())
	h := heldFor(driver.KindPermit, 1)
	require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
	require.NoError(t, admin.Set(t.Context(), "{a}:timeout", "x", 0).Err())
	assert.Equal(t, []renewal.Outcome{renewal.Taken}, renewed(t, store, h))
	held, err := store.Release(t.Context(), released(h))
	require.NoError(t, err)
	assert.False(t, held)
}

func TestPermitsNeedAnID(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	s := open(t, server.Client(t))
	h := &driver.Hold{Kind: driver.KindPermit, Name: "a", Owner: "me:1", Count: 1, TTL: time.Second}
	_, err := s.Acquire(t.Context(), h)
	require.ErrorContains(t, err, "32 hexadecimal digits")
	_, err = s.Release(t.Context(), h)
	require.ErrorContains(t, err, "32 hexadecimal digits")
	_, err = s.Acquire(t.Context(), &driver.Hold{Kind: driver.KindPermit, Name: "a", Owner: strings.Repeat("0", 32), Count: 2, TTL: time.Second})
	require.ErrorIs(t, err, driver.ErrUnsupported)
	_, err = s.Count(t.Context(), &driver.Count{Kind: driver.KindMutex, Name: "a"})
	require.ErrorIs(t, err, driver.ErrUnsupported)
	_, err = s.Count(t.Context(), &driver.Count{Kind: driver.KindLatch, Name: "a", Op: 99})
	require.ErrorIs(t, err, driver.ErrUnsupported)
}

// Of 7 permits, no more than 7 are in use at a time by 32 users of 4 clients, and fewer while
// other clients have some. When those die, their permits come back.
func TestPermitsAmongClients(t *testing.T) {
	t.Parallel()
	const permits, dying, clients, users, rounds = 7, 2, 4, 8, 8
	server, admin := startServer(t)
	pool := func() *lock.Permits { return locker(t, server.Client(t), lock.Config{Poll: time.Hour}).Permits("pool") }
	p := pool()
	require.NoError(t, p.SetPermits(t.Context(), permits))
	for doomed := range dying {
		mustHave(t, pool())
		require.EqualValues(t, doomed+1, admin.ZCard(t.Context(), "{pool}:timeout").Val())
	}
	use := func(most int64) {
		t.Helper()
		var present, peak atomic.Int64
		var together sync.Once
		var work sync.WaitGroup
		for range clients {
			p := pool()
			for range users {
				work.Go(func() {
					for range rounds {
						assert.NoError(t, p.One().Do(t.Context(), func(ctx context.Context) error {
							now := present.Add(1)
							defer present.Add(-1)
							for before := peak.Load(); now > before && !peak.CompareAndSwap(before, now); before = peak.Load() {
							}
							together.Do(func() {
								assert.Eventually(t, func() bool { return peak.Load() > 1 }, time.Minute, time.Millisecond, "several are in use at a time")
							})
							return admin.Incr(ctx, "served").Err()
						}))
					}
				})
			}
		}
		work.Wait()
		assert.LessOrEqual(t, peak.Load(), most)
		available, err := p.Available(t.Context())
		require.NoError(t, err)
		assert.Equal(t, most, available)
	}
	use(permits - dying)
	for _, id := range admin.ZRange(t.Context(), "{pool}:timeout", 0, -1).Val() { // they expire
		require.NoError(t, admin.ZAdd(t.Context(), "{pool}:timeout", redis.Z{Score: 1, Member: id}).Err())
	}
	use(permits)
	assert.Zero(t, admin.ZCard(t.Context(), "{pool}:timeout").Val())
	assert.EqualValues(t, 2*clients*users*rounds, admin.IncrBy(t.Context(), "served", 0).Val())
}

// One connection carries the messages, and one message serves all waiters that it can.
func TestSemaphoreCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters, permits = 64, 16
		_, wire := startNetwork(t)
		l := locker(t, wire.client(t), lock.Config{Poll: time.Hour})
		_, err := l.Semaphore("a").TrySetPermits(t.Context(), 0)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var served atomic.Int64
		for range waiters {
			go func() {
				if l.Semaphore("a").Acquire(ctx, 1) == nil {
					served.Add(1)
				}
			}()
		}
		time.Sleep(time.Second)
		before := wire.scripts()
		require.NoError(t, l.Semaphore("a").Release(t.Context(), permits))
		time.Sleep(time.Second)
		assert.EqualValues(t, permits, served.Load())
		assert.LessOrEqual(t, wire.scripts()-before, permits+2, "a release, %d grants, and a refusal", permits)
		cancel()
	})
}

// A release that the network delivers twice gives its permits back once, even if the store
// was asked to forget it in between.
func TestReleaseThatArrivesTwice(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	require.NoError(t, admin.Set(t.Context(), "s", 0, 0).Err())
	release := &driver.Hold{Kind: driver.KindSemaphore, Name: "s", Owner: golf + ":1", TTL: time.Hour, Semaphore: driver.Semaphore{Permits: 1, Owed: true}}
	record := "leasewheel_request:{s}:" + release.Owner
	for range 2 {
		held, err := store.Release(t.Context(), release)
		require.NoError(t, err)
		require.True(t, held)
		_, err = store.Count(t.Context(), &driver.Count{
			Kind: driver.KindSemaphore, Name: "s", Op: driver.CountForget,
			Forget: []string{release.Owner, golf + ":2"}, Keep: time.Minute,
		})
		require.NoError(t, err)
		assert.LessOrEqual(t, admin.PTTL(t.Context(), record).Val(), time.Minute)
	}
	assert.Equal(t, "1", admin.Get(t.Context(), "s").Val())
}

// Permits in use whose count was deleted or evicted count as used when it is created again.
func TestPermitsOutliveTheirCount(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	p := lockerWith(t, client, redisstore.Config{}).Permits("seats")
	for _, number := range []int64{3, 1} {
		set, err := p.TrySetPermits(t.Context(), 2)
		require.NoError(t, err)
		require.True(t, set)
		first, err := p.One().Lock(t.Context())
		require.NoError(t, err)
		second, err := p.One().Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, client.Del(t.Context(), "seats").Err())

		set, err = p.TrySetPermits(t.Context(), number)
		require.NoError(t, err)
		require.True(t, set)
		available, err := p.Available(t.Context())
		require.NoError(t, err)
		require.Equal(t, number-2, available, "two are in use")
		require.NoError(t, first.Unlock(t.Context()))
		require.NoError(t, second.Unlock(t.Context()))
		require.Equal(t, strconv.FormatInt(number, 10), client.Get(t.Context(), "seats").Val())
		require.NoError(t, client.FlushAll(t.Context()).Err())
	}
}

// justEnded returns permits whose number has ended, and one that is in use: it ends a little later, being
// another key.
func justEnded(t *testing.T, client *redis.Client) (*lock.Permits, *lock.Lease) {
	p := lockerWith(t, client, redisstore.Config{}).Permits("seats")
	set, err := p.TrySetPermitsFor(t.Context(), 2, time.Hour)
	require.NoError(t, err)
	require.True(t, set)
	lease, err := p.One().Lock(t.Context())
	require.NoError(t, err)
	require.InDelta(t, time.Hour, client.PTTL(t.Context(), "{seats}:timeout").Val(), float64(time.Minute))
	require.NoError(t, client.Del(t.Context(), "seats").Err()) // as if the hour were over
	return p, lease
}

// A number that is set in between has all its permits, and keeps those that are granted from then on.
func TestSetPermitsJustAfterTheEnd(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	p, _ := justEnded(t, client)

	_, err := p.One().TryLock(t.Context())
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	require.NotErrorIs(t, err, lock.ErrForeign)
	set, err := p.TrySetPermits(t.Context(), 2)
	require.NoError(t, err)
	require.True(t, set)
	lease, err := p.Several(2).TryLock(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, -1, client.PTTL(t.Context(), "{seats}:timeout").Val(), "the permits have no end of their own")
	require.NoError(t, lease.Unlock(t.Context()))
	require.Equal(t, "2", client.Get(t.Context(), "seats").Val())
}

// A permit that is given back in between makes no number of one permit, which would have no end.
func TestReleaseJustAfterTheEnd(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	p, lease := justEnded(t, client)
	require.NoError(t, lease.Unlock(t.Context()))
	require.Zero(t, client.Exists(t.Context(), "seats").Val())
	set, err := p.TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	require.True(t, set)
}

// In the last millisecond of a number PTTL is 0, as it is here for the script. A permit that is
// granted then ends with the number.
func TestPermitOfTheLastInstant(t *testing.T) {
	t.Parallel()
	const lastInstant = `local redis = setmetatable({call = function(...)
		local command, key = ...
		if command == 'pttl' and key == KEYS[1] then return 0 end
		return redis.call(...)
	end}, {__index = redis})
	`
	script := lua.File("permit_acquire.lua")()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	store := open(t, bareClient(t, startProxy(t, func(command []string) (to *redis.Client, refusal string) {
		if len(command) > 1 && command[1] == script.SHA {
			command[0], command[1] = "eval", lastInstant+script.Source
		}
		return client, ""
	})))
	require.NoError(t, client.Set(t.Context(), "seats", 1, time.Hour).Err())
	_, err := store.Acquire(t.Context(), &driver.Hold{Kind: driver.KindPermit, Name: "seats", Owner: hex.EncodeToString([]byte("0123456789abcdef")), Count: 1, TTL: time.Hour})
	require.NoError(t, err)
	require.Equal(t, "0", client.Get(t.Context(), "seats").Val())
	left := client.PTTL(t.Context(), "{seats}:timeout").Val()
	require.NotEqual(t, time.Duration(-1), left, "its permits have no end")
	require.Less(t, left, time.Second)
}

// After the end of a number of permits, permits in use are gone, and a number that is set
// then has no end. The permits of Redisson that outlive the number count as used.
func TestSetPermitsAfterTheEnd(t *testing.T) {
	for name, set := range map[string]func(ctx context.Context, p *lock.Permits) error{
		"SetPermits": func(ctx context.Context, p *lock.Permits) error { return p.SetPermits(ctx, 3) },
		"AddPermits": func(ctx context.Context, p *lock.Permits) error { return p.AddPermits(ctx, 3) },
		"TrySetPermits": func(ctx context.Context, p *lock.Permits) error {
			set, err := p.TrySetPermits(ctx, 3)
			if err == nil && !set {
				err = lock.ErrNotAcquired
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				client, p := server.Client(t), server.Locker(t, lock.Config{Poll: time.Hour}).Permits("seats")
				const life = time.Minute
				begin := time.Now()
				first, err := p.TrySetPermitsFor(t.Context(), 2, life)
				require.NoError(t, err)
				require.True(t, first)
				lease, err := p.One().Lock(t.Context())
				require.NoError(t, err)
				waiter := make(chan error, 1)
				go func() {
					lease, err := p.Several(3).Lock(t.Context()) // more than there are
					if err == nil {
						err = lease.Unlock(t.Context())
					}
					waiter <- err
				}()
				<-lease.Lost()
				time.Sleep(time.Until(begin.Add(life + time.Second)))
				require.Zero(t, client.Exists(t.Context(), "seats", "{seats}:timeout").Val())

				require.NoError(t, set(t.Context(), p))
				synctest.Wait()
				require.Len(t, waiter, 1, "the waiter was not woken")
				require.NoError(t, <-waiter)
				require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
				assert.EqualValues(t, -1, client.PTTL(t.Context(), "seats").Val())
				assert.Equal(t, "3", client.Get(t.Context(), "seats").Val(), "the lost permit is not given back")
			})
		})
	}
	t.Run("Redisson", func(t *testing.T) {
		client := redistest.Start(t, redistest.Config{}).Client(t)
		p := lockerWith(t, client, redisstore.Config{}).Permits("seats")
		later := float64(time.Now().Add(time.Hour).UnixMilli())
		require.NoError(t, client.ZAdd(t.Context(), "{seats}:timeout", redis.Z{Score: later, Member: strings.Repeat("\xaa", 16)}).Err())
		require.NoError(t, p.SetPermits(t.Context(), 3))
		available, err := p.Available(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 2, available)
	})
}
