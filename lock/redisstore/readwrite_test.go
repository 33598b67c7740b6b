package redisstore_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/leasewheel/leasewheel/renewal"
)

// redissonReadWrite behaves on the wire like a thread that uses Redisson's read-write
// lock of some name. It has the effects of Redisson's scripts, by their documentation and
// sources.
type redissonReadWrite struct {
	*testing.T
	client *redis.Client
	owner  string
	lock   string
	tag    string // begins the keys of holds
}

func newRedissonReadWrite(t *testing.T, client *redis.Client, name string, id int) *redissonReadWrite {
	tag := "{" + name + "}"
	if strings.Contains(name, "{") {
		tag = name
	}
	return &redissonReadWrite{t, client, fmt.Sprintf("285475da-9152-4c83-822a-67ee2f116a79:%d", id), name, tag}
}

// channel is the channel of the lock's messages.
func (r *redissonReadWrite) channel() string { return "redisson_rwlock:" + r.tag }

// timeout is the key of one of an owner's read holds.
func (r *redissonReadWrite) timeout(owner string, i int) string {
	return fmt.Sprintf("%s:%s:rwlock_timeout:%d", r.tag, owner, i)
}

// run returns what a script returns: false for nil.
func (r *redissonReadWrite) run(script string, args ...any) (reply int64, ok bool) {
	r.Helper()
	keys := []string{r.lock, r.tag, r.channel()}
	reply, err := r.client.Eval(r.Context(), script, keys, args...).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, false
	}
	require.NoError(r, err)
	return reply, true
}

// tryRead reports whether it has acquired the read lock.
func (r *redissonReadWrite) tryRead(lease time.Duration) bool {
	r.Helper()
	_, refused := r.run(`
		local mode = redis.call('hget', KEYS[1], 'mode')
		if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 0 then
			return redis.call('pttl', KEYS[1])
		end
		if mode == false then
			redis.call('hset', KEYS[1], 'mode', 'read')
		end
		local hold = redis.call('hincrby', KEYS[1], ARGV[2], 1)
		redis.call('set', KEYS[2] .. ':' .. ARGV[2] .. ':rwlock_timeout:' .. hold, 1, 'px', ARGV[1])
		redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
		return nil`, lease.Milliseconds(), r.owner)
	return !refused
}

// tryWrite reports whether it has acquired the write lock.
func (r *redissonReadWrite) tryWrite(lease time.Duration) bool {
	r.Helper()
	_, refused := r.run(`
		local mode, mine = redis.call('hget', KEYS[1], 'mode'), ARGV[2] .. ':write'
		if mode == false then
			redis.call('hset', KEYS[1], 'mode', 'write', mine, 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		if mode == 'write' and redis.call('hexists', KEYS[1], mine) == 1 then
			redis.call('hincrby', KEYS[1], mine, 1)
			redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
			return nil
		end
		return redis.call('pttl', KEYS[1])`, lease.Milliseconds(), r.owner)
	return !refused
}

// The outcomes of a release by Redisson.
const (
	notHeld = -1
	kept    = 0
	freed   = 1
)

func outcome(code int64, ok bool) int64 {
	if !ok {
		return notHeld
	}
	return code
}

func (r *redissonReadWrite) unlockRead() int64 {
	r.Helper()
	return outcome(r.run(`
		local mode = redis.call('hget', KEYS[1], 'mode')
		if mode == false then
			redis.call('publish', KEYS[3], '0')
			return 1
		end
		if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
			return nil
		end
		local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
		if left == 0 then
			redis.call('hdel', KEYS[1], ARGV[1])
		end
		redis.call('del', KEYS[2] .. ':' .. ARGV[1] .. ':rwlock_timeout:' .. left + 1)
		if redis.call('hlen', KEYS[1]) > 1 then
			local longest = -3
			for _, owner in ipairs(redis.call('hkeys', KEYS[1])) do
				for hold = tonumber(redis.call('hget', KEYS[1], owner)) or 0, 1, -1 do
					longest = math.max(longest, redis.call('pttl', KEYS[2] .. ':' .. owner .. ':rwlock_timeout:' .. hold))
				end
			end
			if longest > 0 then
				redis.call('pexpire', KEYS[1], longest)
				return 0
			end
			if mode == 'write' then
				return 0
			end
		end
		redis.call('del', KEYS[1])
		redis.call('publish', KEYS[3], '0')
		return 1`, r.owner))
}

func (r *redissonReadWrite) unlockWrite() int64 {
	r.Helper()
	return outcome(r.run(`
		local mode, mine = redis.call('hget', KEYS[1], 'mode'), ARGV[1] .. ':write'
		if mode == false then
			redis.call('publish', KEYS[3], '1')
			return 1
		end
		if mode ~= 'write' or redis.call('hexists', KEYS[1], mine) == 0 then
			return nil
		end
		if redis.call('hincrby', KEYS[1], mine, -1) > 0 then
			return 0
		end
		redis.call('hdel', KEYS[1], mine)
		if redis.call('hlen', KEYS[1]) == 1 then
			redis.call('del', KEYS[1])
			redis.call('publish', KEYS[3], '1')
		else
			redis.call('hset', KEYS[1], 'mode', 'read')
		end
		return 1`, r.owner))
}

// renewRead prolongs the lock and its own holds.
func (r *redissonReadWrite) renewRead(lease time.Duration) {
	r.Helper()
	_, ok := r.run(`
		for hold = tonumber(redis.call('hget', KEYS[1], ARGV[2])), 1, -1 do
			redis.call('pexpire', KEYS[2] .. ':' .. ARGV[2] .. ':rwlock_timeout:' .. hold, ARGV[1])
		end
		return redis.call('pexpire', KEYS[1], ARGV[1])`, lease.Milliseconds(), r.owner)
	require.True(r, ok)
}

func mustTake(t *testing.T, ctx context.Context, m *lock.Mutex) *lock.Lease { //nolint:revive // the test comes first, as in every helper here
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	lease, err := m.Lock(ctx)
	if !assert.NoError(t, err) {
		t.FailNow() // ends the calling goroutine, which need not be the test's
	}
	return lease
}

func TestReadWriteWireFormat(t *testing.T) {
	t.Parallel()
	eachName(t, func(t *testing.T, server *redistest.Server, name string) {
		admin := server.Client(t)
		r := newRedissonReadWrite(t, server.Client(t), name, 1)
		l := locker(t, server.Client(t), lock.Config{TTL: time.Hour})
		rw := l.ReadWrite(name)
		message := listening(t, admin, r.channel())
		fields := func() map[string]string { return admin.HGetAll(t.Context(), name).Val() }
		holds := func(owner string) (keys []string) {
			for i := range 4 {
				if key := r.timeout(owner, i); admin.Exists(t.Context(), key).Val() == 1 {
					assert.InDelta(t, time.Hour, admin.PTTL(t.Context(), key).Val(), float64(time.Minute))
					keys = append(keys, key)
				}
			}
			return keys
		}

		reader := mustTake(t, t.Context(), rw.Read())
		assert.Equal(t, map[string]string{"mode": "read", reader.Owner(): "1"}, fields())
		assert.Regexp(t, `^[0-9a-f-]{36}:[0-9]+$`, reader.Owner())
		assert.Equal(t, []string{r.timeout(reader.Owner(), 1)}, holds(reader.Owner()))
		assert.Equal(t, "1", admin.Get(t.Context(), r.timeout(reader.Owner(), 1)).Val())
		assert.InDelta(t, time.Hour, admin.PTTL(t.Context(), name).Val(), float64(time.Minute))
		further := mustTake(t, reader.Context(), rw.Read())
		beside := mustTake(t, t.Context(), rw.Read())
		assert.Equal(t, map[string]string{"mode": "read", reader.Owner(): "2", beside.Owner(): "1"}, fields())
		assert.Len(t, holds(reader.Owner()), 2)
		assert.Len(t, holds(beside.Owner()), 1)
		require.NoError(t, further.Unlock(t.Context()))
		assert.Equal(t, []string{r.timeout(reader.Owner(), 1)}, holds(reader.Owner()))
		require.NoError(t, reader.Unlock(t.Context()))
		assert.Equal(t, map[string]string{"mode": "read", beside.Owner(): "1"}, fields())
		require.NoError(t, beside.Unlock(t.Context()))
		assert.Empty(t, fields())
		assert.Equal(t, "0", message(), "one message, and only for the last reader")

		writer := mustTake(t, t.Context(), rw.Write())
		assert.Equal(t, map[string]string{"mode": "write", writer.Owner() + ":write": "1"}, fields())
		reader = mustTake(t, writer.Context(), rw.Read())
		assert.Equal(t, map[string]string{"mode": "write", writer.Owner() + ":write": "1", reader.Owner(): "1"}, fields())
		require.NoError(t, writer.Unlock(t.Context()))
		assert.Equal(t, map[string]string{"mode": "read", reader.Owner(): "1"}, fields())
		assert.Equal(t, "1", message(), "a message for the readers that wait")
		assert.Equal(t, "00", message(), "and one for a thread of Redisson that is about to wait")
		require.NoError(t, reader.Unlock(t.Context()))
		assert.Equal(t, "0", message())
		writer = mustTake(t, t.Context(), rw.Write())
		require.NoError(t, writer.Unlock(t.Context()))
		assert.Equal(t, "1", message())
		assert.Equal(t, "00", message())

		record := awaitAnnounced(t, admin, l)
		assert.ElementsMatch(t, []string{record, "redisson_lock_token:" + r.tag}, admin.Keys(t.Context(), "*").Val())
	})
}

func TestSharesReadWriteLocksWithRedisson(t *testing.T) {
	t.Parallel()
	eachName(t, func(t *testing.T, server *redistest.Server, name string) {
		admin := server.Client(t)
		first, second := newRedissonReadWrite(t, server.Client(t), name, 1), newRedissonReadWrite(t, server.Client(t), name, 2)
		l := locker(t, server.Client(t), lock.Config{TTL: time.Hour, Poll: time.Hour})
		rw := l.ReadWrite(name)
		got := make(chan *lock.Lease)
		waits := func(side *lock.Mutex) {
			t.Helper()
			_, err := side.TryLock(t.Context())
			var refused *lock.NotAcquiredError
			require.ErrorAs(t, err, &refused)
			assert.False(t, refused.Foreign)
			go send(got, func() *lock.Lease { return mustTake(t, t.Context(), side) })
			awaitSubscribers(t, admin, first.channel(), 1)
		}

		// Readers of both clients together; the last one's release wakes our writer.
		reader := mustTake(t, t.Context(), rw.Read())
		require.True(t, first.tryRead(time.Hour))
		require.True(t, first.tryRead(time.Hour))
		require.True(t, second.tryRead(time.Minute))
		require.False(t, second.tryWrite(time.Hour))
		require.EqualValues(t, kept, second.unlockRead())
		require.EqualValues(t, notHeld, second.unlockRead())
		waits(rw.Write())
		require.NoError(t, reader.Unlock(t.Context()))
		require.EqualValues(t, kept, first.unlockRead())
		require.EqualValues(t, freed, first.unlockRead())
		writer := <-got

		// Our writer continues as a reader, which admits Redisson's.
		require.False(t, first.tryRead(time.Hour))
		require.False(t, first.tryWrite(time.Hour))
		require.EqualValues(t, notHeld, first.unlockWrite())
		reader = mustTake(t, writer.Context(), rw.Read())
		require.False(t, first.tryRead(time.Hour))
		require.NoError(t, writer.Unlock(t.Context()))
		require.True(t, first.tryRead(time.Minute))
		require.False(t, first.tryWrite(time.Hour))
		require.EqualValues(t, kept, first.unlockRead())
		assert.Greater(t, admin.PTTL(t.Context(), name).Val(), 50*time.Minute, "Redisson has found our hold")
		require.NoError(t, reader.Unlock(t.Context()))

		// Redisson's writer, twice.
		require.True(t, first.tryWrite(time.Hour))
		require.True(t, first.tryWrite(time.Hour))
		waits(rw.Read())
		require.EqualValues(t, kept, first.unlockWrite())
		require.EqualValues(t, freed, first.unlockWrite())
		require.NoError(t, (<-got).Unlock(t.Context()))

		// Redisson's writer continues as a reader, without a message.
		require.True(t, first.tryWrite(time.Hour))
		require.True(t, first.tryRead(time.Hour))
		waits(rw.Write())
		require.EqualValues(t, freed, first.unlockWrite())
		reader = mustTake(t, t.Context(), rw.Read())
		require.EqualValues(t, kept, first.unlockRead())
		require.NoError(t, reader.Unlock(t.Context()))
		require.NoError(t, (<-got).Unlock(t.Context()))
		require.Zero(t, admin.Exists(t.Context(), name, first.timeout(first.owner, 1), first.timeout(first.owner, 2)).Val())
	})
}

// A dead reader of either client among readers of the other costs its own TTL.
func TestDeadReadersBesideRedisson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name, brief, long = "orders", 100 * time.Millisecond, 30 * time.Second
		server := locktest.Start(t)
		r, dead := newRedissonReadWrite(t, server.Client(t), name, 1), newRedissonReadWrite(t, server.Client(t), name, 2)
		l, store := server.Locker(t, lock.Config{TTL: 3 * time.Second, Poll: time.Hour}), server.Store(t)

		// Redisson's die beside ours, which continues.
		reader := mustTake(t, t.Context(), l.ReadWrite(name).Read())
		require.True(t, dead.tryRead(brief))
		require.True(t, dead.tryRead(brief))
		time.Sleep(10 * time.Second)
		require.NoError(t, reader.Err())
		info, err := l.Inspect(t.Context(), name, driver.KindRead)
		require.NoError(t, err)
		assert.EqualValues(t, 1, info.HolderCount)
		require.False(t, r.tryWrite(time.Hour))
		require.NoError(t, reader.Unlock(t.Context()))
		require.True(t, r.tryWrite(time.Hour))
		require.EqualValues(t, freed, r.unlockWrite())

		// Ours die beside Redisson's, which continues.
		require.True(t, r.tryRead(long))
		answer := asks(t, store, &driver.Hold{Kind: driver.KindRead, Name: name, Owner: golf + ":7", Count: 1, TTL: brief})
		require.Equal(t, driver.Granted, answer.Verdict)
		time.Sleep(brief)
		r.renewRead(long)
		require.EqualValues(t, freed, r.unlockRead())
		require.NoError(t, mustTake(t, t.Context(), l.ReadWrite(name).Write()).Unlock(t.Context()))
	})
}

// The watchdog of Redisson 3.44 to 4.3 renews the hash of some readers alone, and lets their holds
// end. Such a reader keeps our writers out until the hash ends.
func TestReaderWithoutHoldsBesideRedisson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name, lease = "orders", 30 * time.Second
		server := locktest.Start(t)
		r, admin := newRedissonReadWrite(t, server.Client(t), name, 1), server.Client(t)
		l := server.Locker(t, lock.Config{TTL: 3 * time.Second, Poll: time.Hour})
		writer := l.ReadWrite(name).Write()
		watchdog := func() { require.True(t, admin.PExpire(t.Context(), name, lease).Val()) }
		refused := func() {
			t.Helper()
			_, err := writer.TryLock(t.Context())
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			info, err := l.Inspect(t.Context(), name, driver.KindWrite)
			require.NoError(t, err)
			require.Len(t, info.Holders, 1)
			assert.Equal(t, r.owner, info.Holders[0].Owner)
		}

		require.True(t, r.tryRead(lease))
		for range 4 {
			time.Sleep(lease / 3)
			watchdog()
		}
		require.Zero(t, admin.Exists(t.Context(), r.timeout(r.owner, 1)).Val())
		refused()

		// Readers of ours beside it end, with the lock's end theirs and not.
		for range 2 {
			reader := mustTake(t, t.Context(), l.ReadWrite(name).Read())
			_, err := writer.TryLock(t.Context())
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			watchdog()
			require.NoError(t, reader.Unlock(t.Context()))
			refused()
		}
		require.EqualValues(t, freed, r.unlockRead())
		require.NoError(t, mustTake(t, t.Context(), writer).Unlock(t.Context()))

		// It dies: the hash ends as its watchdog has left it.
		require.True(t, r.tryRead(lease))
		time.Sleep(lease / 3)
		watchdog()
		time.Sleep(lease - time.Second)
		refused()
		time.Sleep(time.Second)
		require.NoError(t, mustTake(t, t.Context(), writer).Unlock(t.Context()))
	})
}

// A reader keeps writers out while any hold of its has not ended: also one before its latest
// hundred, and one that has no end.
func TestReadersOfAnyHoldKeepWritersOut(t *testing.T) {
	const ours = "00000000-0000-8000-8000-00000000000c:1"
	for name, h := range map[string]driver.Hold{
		"the first of many": {Count: 101, TTL: time.Minute},
		"without an end":    {Count: 1, TTL: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				admin, store := server.Client(t), server.Store(t)
				for count := int64(1); count <= h.Count; count++ {
					reader := heldFor(driver.KindRead, 1)
					reader.Owner, reader.Count, reader.TTL = ours, count, time.Second
					if count == 1 && h.TTL > 0 {
						reader.TTL = h.TTL
					}
					require.Equal(t, driver.Granted, asks(t, store, reader).Verdict)
				}
				if h.TTL < 0 {
					require.True(t, admin.Persist(t.Context(), "a").Val())
					require.True(t, admin.Persist(t.Context(), "{a}:"+ours+":rwlock_timeout:1").Val())
				}
				for range 2 {
					time.Sleep(2 * time.Second)
					require.Equal(t, driver.Refused, asks(t, store, heldFor(driver.KindWrite, 2)).Verdict)
				}
				if h.TTL > 0 {
					time.Sleep(h.TTL)
					require.Equal(t, driver.Granted, asks(t, store, heldFor(driver.KindWrite, 2)).Verdict)
				}
			})
		})
	}
}

// A claim of ours keeps no reader of Redisson's out, and does not disturb it either.
func TestClaimsBesideRedisson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		r := newRedissonReadWrite(t, server.Client(t), "orders", 1)
		rw := server.Locker(t, lock.Config{TTL: time.Hour, Poll: time.Hour}).ReadWrite("orders").WritersFirst()
		require.True(t, r.tryRead(time.Hour))
		got := make(chan *lock.Lease)
		go send(got, func() *lock.Lease { return mustTake(t, t.Context(), rw.Write()) })
		synctest.Wait()
		require.EqualValues(t, 1, r.client.Exists(t.Context(), "leasewheel_lock_claim:{orders}").Val())
		assert.LessOrEqual(t, r.client.PTTL(t.Context(), "leasewheel_lock_claim:{orders}").Val(), 5*time.Second)
		require.True(t, r.tryRead(time.Hour))
		_, err := rw.Read().TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.EqualValues(t, kept, r.unlockRead())
		require.EqualValues(t, freed, r.unlockRead())
		writer := <-got
		assert.Zero(t, r.client.Exists(t.Context(), "leasewheel_lock_claim:{orders}").Val())
		require.NoError(t, writer.Unlock(t.Context()))
		require.True(t, r.tryRead(time.Hour))
	})
}

// A claim is renewed as long as its writer waits.
func TestKeepsUpAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rw := locktest.Start(t).Locker(t, lock.Config{TTL: time.Hour, Poll: time.Hour}).ReadWrite("orders").WritersFirst()
		reader := mustTake(t, t.Context(), rw.Read())
		got := make(chan *lock.Lease)
		go send(got, func() *lock.Lease { return mustTake(t, t.Context(), rw.Write()) })
		for range 100 {
			time.Sleep(300 * time.Millisecond)
			_, err := rw.Read().TryLock(t.Context())
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		}
		require.NoError(t, reader.Unlock(t.Context()))
		require.NoError(t, (<-got).Unlock(t.Context()))
	})
}

// A name with another kind of lock, or of value, is refused as such and never changed.
func TestReadWriteAmongOtherFamilies(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l, store := locker(t, server.Client(t), lock.Config{}), open(t, server.Client(t))
	rw := l.ReadWrite("a")
	foreign := func() {
		t.Helper()
		for _, side := range []*lock.Mutex{rw.Read(), rw.Write()} {
			_, err := side.TryLock(t.Context())
			require.ErrorIs(t, err, driver.ErrForeign)
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		}
	}
	require.NoError(t, admin.Set(t.Context(), "a", "redsync's", 0).Err())
	foreign()
	require.NoError(t, admin.Del(t.Context(), "a").Err())
	mutex := mustLock(t, l, "a")
	foreign()
	require.NoError(t, mutex.Unlock(t.Context()))

	for _, kind := range []driver.Kind{driver.KindRead, driver.KindWrite} {
		holds := []*driver.Hold{mutexOf("a", 1), mutexOf("b", 1), mutexOf("c", 1), mutexOf("d", 1)}
		holds[0].Kind, holds[1].Kind, holds[2].Kind = kind, driver.KindRead, driver.KindWrite
		for _, h := range holds {
			require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
		}
		_, err := l.Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, admin.Set(t.Context(), "a", "somebody's", 0).Err())
		assert.Equal(t, []renewal.Outcome{renewal.Taken, renewal.Renewed, renewal.Renewed, renewal.Renewed}, renewed(t, store, holds...),
			"a wrong-typed key costs only itself")
		for i, h := range holds {
			held, err := store.Release(t.Context(), released(h))
			require.NoError(t, err)
			assert.Equal(t, i > 0, held)
		}
		assert.Equal(t, "somebody's", admin.Get(t.Context(), "a").Val())
		require.NoError(t, admin.Del(t.Context(), "a").Err())
	}
}

// Leases of every kind, with each hold of a reader, are renewed in one round trip.
func TestRenewsEveryKindInOneRoundTrip(t *testing.T) {
	t.Parallel()
	_, client := startServer(t)
	roundTrips := redistest.CountRoundTrips(client)
	store := open(t, client)
	var items []renewal.Item
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite} {
		for i := range 20 {
			h := &driver.Hold{Kind: kind, Name: fmt.Sprintf("%v %d", kind, i), Owner: golf + ":1", Count: 1, TTL: 40 * time.Minute}
			for h.Count = 1; h.Count <= 3; h.Count++ {
				answer, err := store.Acquire(t.Context(), h)
				require.NoError(t, err)
				require.Equal(t, driver.Granted, answer.Verdict)
			}
			items = append(items, renewal.Item{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: time.Hour})
		}
	}
	roundTrips.Store(0)
	store.Renew(t.Context(), items) // loads the scripts
	roundTrips.Store(0)
	store.Renew(t.Context(), items)
	assert.EqualValues(t, 1, roundTrips.Load())
	for _, item := range items {
		assert.Equal(t, renewal.Renewed, item.Outcome)
		assert.Greater(t, client.PTTL(t.Context(), item.Key).Val(), 59*time.Minute)
	}
	for i := range 20 {
		for hold := 1; hold <= 3; hold++ {
			key := fmt.Sprintf("{read lock %d}:%s:1:rwlock_timeout:%d", i, golf, hold)
			assert.Greater(t, client.PTTL(t.Context(), key).Val(), 59*time.Minute, key)
		}
	}
}
