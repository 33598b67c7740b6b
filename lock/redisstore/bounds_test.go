package redisstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// Other clients' data is untrusted: no run of a script takes long because of it.

// heldFor returns a hold of the lock called a.
func heldFor(kind driver.Kind, n int) *driver.Hold {
	h := &driver.Hold{Kind: kind, Name: "a", Owner: fmt.Sprintf("%s:%d", golf, n), Count: 1, TTL: longTTL}
	switch kind {
	case driver.KindFair:
		h.Queue = inQueue(5 * time.Second)
	case driver.KindWrite:
		h.ReadWrite.BlockReaders = 5 * time.Second
	case driver.KindSemaphore:
		h.Semaphore.Permits = 1
	case driver.KindPermit:
		h.Owner = fmt.Sprintf("%032x", n)
	}
	return h
}

// renewItems renews holds once.
func renewItems(ctx context.Context, s *redisstore.Store, holds ...*driver.Hold) []renewal.Item {
	items := make([]renewal.Item, len(holds))
	for i, h := range holds {
		items[i] = renewal.Item{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}
	}
	s.Renew(ctx, items)
	return items
}

// worked returns how much processor time the server's main thread has used.
func worked(t *testing.T, admin *redis.Client) time.Duration {
	t.Helper()
	var seconds float64
	for name, value := range admin.InfoMap(t.Context(), "cpu").Val()["CPU"] {
		if strings.HasSuffix(name, "_main_thread") {
			part, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err)
			seconds += part
		}
	}
	require.Positive(t, seconds)
	return time.Duration(seconds * float64(time.Second))
}

// calls returns how many commands the server has run since the last CONFIG RESETSTAT.
func calls(t *testing.T, admin *redis.Client) (n int) {
	t.Helper()
	for _, stat := range admin.InfoMap(t.Context(), "commandstats").Val()["Commandstats"] {
		var one int
		if _, err := fmt.Sscanf(stat, "calls=%d", &one); err == nil {
			n += one
		}
	}
	return n
}

// fill runs a script that writes many entries.
func fill(t *testing.T, admin *redis.Client, script string) {
	t.Helper()
	fillWith(t, admin, 10_000, script)
}

// fillWith runs a script that may use the number many.
func fillWith(t *testing.T, admin *redis.Client, many int, script string) {
	t.Helper()
	patient := admin.WithTimeout(5 * time.Minute)
	require.NoError(t, patient.Eval(t.Context(), `
		local now, many = redis.call('time')[1] * 1000, tonumber(ARGV[2])
		local function owner(i) return '285475da-9152-4c83-822a-67ee2f116a79:' .. string.format('%d', i) end
		`+script+`
		return 1`, []string{"a"}, golf, many).Err())
}

const (
	aList     = "redisson_lock_queue:{a}"
	aTimeouts = "redisson_lock_timeout:{a}"
	aPlaces   = "leasewheel_lock_places:{a}"
)

// A value whose size does not matter to a run of a script.
type hugeValue struct {
	name, fill string
	do         []func(context.Context, *redisstore.Store) error // requests
}

func hugeValues() []hugeValue {
	const (
		deadWaiters = `
			for i = 1, many do
				redis.call('rpush', 'redisson_lock_queue:{a}', owner(i))
				redis.call('zadd', 'redisson_lock_timeout:{a}', i, owner(i))
			end`
		deadPlaces = `
			for i = 1, many do
				redis.call('zadd', 'leasewheel_lock_places:{a}', i, owner(i))
				redis.call('zadd', 'redisson_lock_timeout:{a}', i, owner(i))
			end
			redis.call('rpush', 'redisson_lock_queue:{a}', owner(1))`
		deadReaders = `
			redis.call('hset', 'a', 'mode', 'read')
			for i = 1, many do redis.call('hset', 'a', owner(i), 1) end`
		expired = `
			redis.call('set', 'a', 0)
			for i = 1, many do redis.call('zadd', '{a}:timeout', i, string.format('%016d', i)) end`
		foreign = `
			for i = 1, many do redis.call('hset', 'a', 'field' .. i, 1) end`
		longMember = `
			local long = string.rep('x', 2000000)
			redis.call('rpush', 'redisson_lock_queue:{a}', long, owner(1))
			redis.call('zadd', 'redisson_lock_timeout:{a}', '+inf', long)
			redis.call('zadd', 'leasewheel_lock_places:{a}', '+inf', long)
			redis.call('zadd', 'leasewheel_lock_line:{a}', 1, long, 2, long .. ' 1 1')`
		longField = `
			redis.call('hset', 'a', 'mode', 'read', string.rep('f-', 1000000) .. ':1', string.rep('1', 2000000))`
		longOwner = `
			redis.call('hset', 'a', string.rep('f-', 1000000), 1)
			redis.call('pexpire', 'a', 3600000)`
		manyOwners = `
			redis.call('hset', 'a', 'mode', 'read')
			for i = 1, many do redis.call('hset', 'a', 'field' .. i, 9007199254740991) end
			redis.call('pexpire', 'a', 3600000)`
		endless = `
			redis.call('hset', 'a', 'mode', 'read', 'x', 'inf', owner(1), 'inf', owner(2), '1e300', owner(3), '9007199254740991')
			redis.call('hset', 'a', ARGV[1] .. ':1', '9007199254740991')`
		inexact = `redis.call('hset', 'a', 'mode', 'read', ARGV[1] .. ':1', '9007199254740993')`
	)
	ask := func(h *driver.Hold) func(context.Context, *redisstore.Store) error {
		return func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Acquire(ctx, h)
			return err
		}
	}
	release := func(kind driver.Kind) func(context.Context, *redisstore.Store) error {
		return func(ctx context.Context, s *redisstore.Store) error {
			h := heldFor(kind, 1)
			h.Count = 0
			_, err := s.Release(ctx, h)
			return err
		}
	}
	renew := func(kind driver.Kind) func(context.Context, *redisstore.Store) error {
		return func(ctx context.Context, s *redisstore.Store) error {
			h := heldFor(kind, 1)
			return renewItems(ctx, s, h)[0].Err
		}
	}
	count := func(kind driver.Kind, op driver.CountOp) func(context.Context, *redisstore.Store) error {
		return func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Count(ctx, &driver.Count{Kind: kind, Name: "a", Op: op, N: 1, Request: "r", Keep: time.Minute})
			return err
		}
	}
	inspect := func(kind driver.Kind) func(context.Context, *redisstore.Store) error {
		return func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Inspect(ctx, "a", kind)
			return err
		}
	}
	force := func(ctx context.Context, s *redisstore.Store) error {
		_, err := s.ForceRelease(ctx, "a")
		return err
	}
	return []hugeValue{
		{"DeadWaiters", deadWaiters, []func(context.Context, *redisstore.Store) error{
			ask(heldFor(driver.KindFair, 1)), release(driver.KindFair), inspect(driver.KindFair), force,
		}},
		{"DeadPlaces", deadPlaces, []func(context.Context, *redisstore.Store) error{
			ask(heldFor(driver.KindFair, 1)), release(driver.KindFair), inspect(driver.KindFair),
		}},
		{"DeadReaders", deadReaders, []func(context.Context, *redisstore.Store) error{
			ask(heldFor(driver.KindWrite, 2)), ask(heldFor(driver.KindRead, 1)), renew(driver.KindRead),
			inspect(driver.KindRead), release(driver.KindRead), ask(heldFor(driver.KindWrite, 2)), force,
		}},
		{"ExpiredPermits", expired, []func(context.Context, *redisstore.Store) error{
			inspect(driver.KindPermit), ask(heldFor(driver.KindPermit, 1)), renew(driver.KindPermit),
			count(driver.KindPermit, driver.CountRead), release(driver.KindPermit), count(driver.KindPermit, driver.CountDelete),
		}},
		{"ForeignHash", foreign, []func(context.Context, *redisstore.Store) error{
			ask(heldFor(driver.KindFair, 1)), ask(heldFor(driver.KindRead, 1)), ask(heldFor(driver.KindWrite, 1)),
			inspect(driver.KindMutex), force,
		}},
		{"LongMember", longMember, []func(context.Context, *redisstore.Store) error{
			inspect(driver.KindFair), ask(heldFor(driver.KindFair, 1)), release(driver.KindFair), force,
		}},
		{"LongField", longField, []func(context.Context, *redisstore.Store) error{
			ask(heldFor(driver.KindRead, 1)), ask(heldFor(driver.KindWrite, 1)), inspect(driver.KindRead), force,
		}},
		{"LongOwner", longOwner, []func(context.Context, *redisstore.Store) error{inspect(driver.KindMutex), force}},
		{"ManyOwners", manyOwners, []func(context.Context, *redisstore.Store) error{inspect(driver.KindMutex), force}},
		{"EndlessHolds", endless, []func(context.Context, *redisstore.Store) error{
			inspect(driver.KindRead), ask(heldFor(driver.KindWrite, 2)), renew(driver.KindRead), release(driver.KindRead), force,
		}},
		{"InexactHolds", inexact, []func(context.Context, *redisstore.Store) error{
			renew(driver.KindRead), release(driver.KindRead), inspect(driver.KindRead), ask(heldFor(driver.KindRead, 1)), force,
		}},
	}
}

// Many thousand dead entries, or members of 2 MB, let no run of a script take many steps, or
// read a whole value.
func TestHugeValuesDoNotStopTheServer(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	for _, c := range hugeValues() {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, admin.FlushDB(t.Context()).Err())
			fillWith(t, admin, 5000, c.fill)
			for i, do := range c.do {
				require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := do(ctx, store)
				cancel()
				require.NotErrorIs(t, err, driver.ErrUnavailable, "request %d", i)
				require.Less(t, calls(t, admin), 1000, "request %d", i)
				for _, whole := range []string{"hgetall", "hkeys", "hvals", "smembers", "sort"} {
					require.Empty(t, admin.InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_"+whole), "request %d", i)
				}
			}
		})
	}
}

// A living waiter gets a lock soon behind ten thousand dead waiters, although it does not
// poll.
func TestFairWaiterBehindManyDead(t *testing.T) {
	t.Parallel()
	const dead = `
		for i = 1, many do
			redis.call('rpush', 'redisson_lock_queue:{a}', owner(i))
			redis.call('zadd', 'redisson_lock_timeout:{a}', i, owner(i))
		end
		`
	t.Run("Asks", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Config{})
		fill(t, server.Client(t), dead)
		store := open(t, server.Client(t))
		for i := 0; ; i++ {
			answer := asks(t, store, heldFor(driver.KindFair, 1))
			if answer.Verdict == driver.Granted {
				break
			}
			require.Less(t, i, 110, "a hundred at a time")
			require.False(t, answer.Behind)
			require.Positive(t, answer.Wait)
			require.LessOrEqual(t, answer.Wait, 10*time.Millisecond, "it asks again at once")
		}
		assert.Zero(t, server.Client(t).Exists(t.Context(), aList, aTimeouts, aPlaces).Val())
	})
	t.Run("IsTold", func(t *testing.T) {
		t.Parallel()
		server, admin := startServer(t)
		store := open(t, server.Client(t))
		require.Equal(t, driver.Granted, asks(t, store, heldFor(driver.KindFair, 1)).Verdict)
		fill(t, admin, dead)
		waiter := heldFor(driver.KindFair, 2)
		waiter.Queue = inQueue(time.Hour)
		asks(t, store, waiter)
		require.Less(t, admin.LLen(t.Context(), aList).Val(), int64(10_001), "it has dropped some already")
		next := listening(t, admin, "redisson_lock__channel:{a}:"+waiter.Owner)
		free := heldFor(driver.KindFair, 1)
		free.Count = 0
		held, err := store.Release(t.Context(), free)
		require.NoError(t, err)
		require.True(t, held)
		assert.Equal(t, "0", next())
	})
}

// A writer gets a lock soon behind ten thousand dead readers of ours, and not before the last
// living reader is done.
func TestWriterBehindManyDeadReaders(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	const dead = `
		redis.call('hset', 'a', 'mode', 'read')
		for i = 1, many do redis.call('hset', 'a', (string.gsub(owner(i), '%-4c', '-8c')), 1) end`
	fill(t, admin, dead)
	reader := heldFor(driver.KindRead, 1)
	require.Equal(t, driver.Granted, asks(t, store, reader).Verdict)
	for range 300 { // all the dead are dropped by then
		require.Equal(t, driver.Refused, asks(t, store, heldFor(driver.KindWrite, 2)).Verdict, "beside a reader")
	}
	assert.EqualValues(t, 2, admin.HLen(t.Context(), "a").Val())
	fill(t, admin, dead)
	next := listening(t, admin, "redisson_rwlock:{a}")
	reader.Count = 0
	held, err := store.Release(t.Context(), reader)
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, "0", next(), "a waiter asks, and so drops the rest")
	for i := 0; ; i++ {
		answer := asks(t, store, heldFor(driver.KindWrite, 2))
		if answer.Verdict == driver.Granted {
			break
		}
		require.Less(t, i, 110, "a hundred at a time")
		require.LessOrEqual(t, answer.Wait, 10*time.Millisecond, "it asks again at once")
		require.Positive(t, answer.Wait)
	}
}

// TryLock gets a free lock behind ten thousand waiters, or readers, of processes that were killed.
func TestTryLockBehindManyDead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dead   string
		handle func(l *lock.Locker) *lock.Mutex
	}{
		"mutex": {
			"redis.call('zadd', 'leasewheel_lock_line:{a}', i, owner(i) .. ' 3000 0 secret')",
			func(l *lock.Locker) *lock.Mutex { return l.Mutex("a") },
		},
		"fair": {
			"redis.call('rpush', 'redisson_lock_queue:{a}', owner(i)) redis.call('zadd', 'redisson_lock_timeout:{a}', i, owner(i))",
			func(l *lock.Locker) *lock.Mutex { return l.Fair("a") },
		},
		"write": {
			"redis.call('hset', 'a', 'mode', 'read', owner(i), 1)",
			func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("a").Write() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, admin := startServer(t)
			fill(t, admin, "for i = 1, many do "+c.dead+" end")
			lease, err := c.handle(locker(t, server.Client(t), lock.Config{})).TryLock(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
		})
	}
}

// Expired permits count as available, in any number.
func TestManyExpiredPermitsAreAvailable(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	const expired = `
		redis.call('set', 'a', 0)
		for i = 1, many do redis.call('zadd', '{a}:timeout', i, string.format('%016d', i)) end`
	count := func(op driver.CountOp, request string) int64 {
		t.Helper()
		counted, err := store.Count(t.Context(), &driver.Count{Kind: driver.KindPermit, Name: "a", Op: op, Request: request, Keep: time.Minute})
		require.NoError(t, err)
		return counted.Count
	}
	fill(t, admin, expired)
	assert.EqualValues(t, 10_000, count(driver.CountRead, ""))
	assert.Equal(t, driver.Granted, asks(t, store, heldFor(driver.KindPermit, 1)).Verdict)
	assert.EqualValues(t, 9_999, count(driver.CountDrain, "r"))
	for range 110 {
		require.Zero(t, count(driver.CountRead, ""), "none appears again")
	}
	assert.Equal(t, driver.Refused, asks(t, store, heldFor(driver.KindPermit, 2)).Verdict)
	assert.Equal(t, "0", admin.Get(t.Context(), "a").Val())
	assert.EqualValues(t, 1, admin.ZCard(t.Context(), "{a}:timeout").Val())
}

// A place, or a timeout, further away than it can be dates from before the server's clock
// was set back. It ends like one that is made now.
func TestFairPlacesOutlastNoClockSetBack(t *testing.T) {
	t.Parallel()
	server := startLate(t)
	store, _ := server.open(t, redisstore.FormatRedisson)
	admin := server.Client(t)
	const back, place = time.Hour, 5 * time.Minute
	fair := func(n int) *driver.Hold {
		h := heldFor(driver.KindFair, n)
		h.TTL, h.Queue = time.Hour, inQueue(place)
		return h
	}
	require.Equal(t, driver.Granted, asks(t, store, fair(1)).Verdict)
	asks(t, store, fair(2)) // it dies
	for _, key := range []string{aPlaces, aTimeouts} {
		require.NoError(t, admin.ZIncrBy(t.Context(), key, float64(back.Milliseconds()), fair(2).Owner).Err())
	}
	_, err := store.Release(t.Context(), released(fair(1)))
	require.NoError(t, err)
	require.Equal(t, driver.Refused, asks(t, store, fair(3)).Verdict)
	server.clock.step(t, place*6/10)
	require.Equal(t, driver.Refused, asks(t, store, fair(3)).Verdict)
	server.clock.step(t, place*12/10)
	require.Equal(t, driver.Granted, asks(t, store, fair(3)).Verdict, "the dead one's place, not an hour more")

	// A waiter of Redisson's that will never take the lock.
	_, err = store.Release(t.Context(), released(fair(3)))
	require.NoError(t, err)
	forever := java + ":1"
	require.NoError(t, admin.RPush(t.Context(), aList, forever).Err())
	require.NoError(t, admin.ZAddArgs(t.Context(), aTimeouts, redis.ZAddArgs{Members: []redis.Z{{Score: 1e300, Member: forever}}}).Err())
	asks(t, store, fair(4))
	left := time.UnixMilli(int64(admin.ZScore(t.Context(), aTimeouts, forever).Val())).Sub(admin.Time(t.Context()).Val())
	assert.LessOrEqual(t, left, 11*time.Minute)
	assert.Greater(t, left, 4*time.Minute)
}

// A hash that is no lock is refused as such, and never changed.
func TestForeignHashIsForeign(t *testing.T) {
	t.Parallel()
	const transaction = java + ":52:0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		name    string
		fields  []any
		foreign bool
	}{
		{"User", []any{"user", "ada"}, true},
		{"Mode", []any{"mode", "read"}, true},
		{"ModeAndMore", []any{"mode", "write", "user", "ada"}, true},
		{"Digits", []any{"1:1", 1, "a:1", 1}, true},
		{"Mutex", []any{java + ":52", 1}, false},
		{"Transaction", []any{transaction, 1}, false},
		{"Mixed", []any{java + ":52", 1, "user", "ada"}, false},
		{"Damaged", []any{java + ":52", "one"}, false},
		{"Read", []any{"mode", "read", java + ":52", 1}, false},
		{"Write", []any{"mode", "write", java + ":52:write", 1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := newInspectedIn(t)
			require.NoError(t, i.admin.HSet(t.Context(), "a", c.fields...).Err())
			require.NoError(t, i.admin.Set(t.Context(), "{a}:"+java+":52:rwlock_timeout:1", 1, time.Hour).Err())
			before := i.dump()
			_, hasMode := c.fields[0].(string)
			hasMode = hasMode && c.fields[0] == "mode"
			for _, kind := range []driver.Kind{driver.KindFair, driver.KindRead, driver.KindWrite} {
				h := heldFor(kind, 1)
				h.Queue, h.ReadWrite.BlockReaders = driver.Queue{}, 0
				if kind == driver.KindRead && c.name == "Read" {
					continue // it joins
				}
				answer := asks(t, i.store, h)
				require.Equal(t, driver.Refused, answer.Verdict, kind)
				ofAnotherFamily := (kind == driver.KindFair) == hasMode
				if c.foreign || !ofAnotherFamily {
					assert.Equal(t, c.foreign, answer.Foreign, kind)
				}
			}
			assert.Equal(t, c.foreign, i.inspect("a").Foreign == "hash")
			assert.Equal(t, !c.foreign, new(i.inspect("a")).Held())
			if c.foreign {
				assert.Empty(t, i.names())
				info, err := i.store.ForceRelease(t.Context(), "a")
				require.NoError(t, err)
				assert.Equal(t, "hash", info.Foreign)
				assert.Equal(t, before, i.dump())
			} else {
				assert.Equal(t, []string{"a"}, i.names())
				_, err := i.store.ForceRelease(t.Context(), "a")
				require.NoError(t, err)
				assert.Zero(t, i.admin.Exists(t.Context(), "a").Val())
			}
		})
	}
}

var garbagePart = flag.Int("garbage", 8, "use every n-th garbage at each key")

// With any content of a lock's keys, a request soon succeeds or fails with an error of a
// known class, and grants nothing that another owner may have.
func TestGarbageAtEveryKey(t *testing.T) {
	t.Parallel()
	keys := []string{
		"a", "redisson_lock_token:{a}", aList, aTimeouts, aPlaces,
		"{a}:" + golf + ":1:rwlock_timeout:1", "{a}:" + java + ":1:rwlock_timeout:1", "leasewheel_lock_claim:{a}",
		"{a}:timeout", "leasewheel_request:{a}:" + golf + ":1", "leasewheel_request:{a}:r",
	}
	var garbage [][]any
	for _, text := range []string{"", "x", "inf", "-inf", "nan", "1e300", "-1", "9223372036854775806", "0x10", " 7", "1.5", strings.Repeat("9", 5000)} {
		garbage = append(garbage, []any{"SET", text})
	}
	for _, score := range []string{"-inf", "0", "1.5", "1e300", "inf"} {
		garbage = append(garbage, []any{"ZADD", score, java + ":1"}, []any{"ZADD", score, strings.Repeat("x ", 1000)}, []any{"ZADD", score, ""})
	}
	for _, count := range []string{"inf", "0", "-1", "nan", "1e300", "9007199254740993", strings.Repeat("1", 100), ""} {
		garbage = append(garbage, []any{"HSET", java + ":1", count}, []any{"HSET", "mode", "read", java + ":1", count},
			[]any{"HSET", "mode", "read", "x", count}, []any{"HSET", "mode", "write", java + ":1:write", count})
	}
	garbage = append(garbage,
		[]any{"HSET", "mode", "inf"}, []any{"RPUSH", java + ":1", "x", ""}, []any{"SADD", "x"}, []any{"XADD", "*", "a", "b"})

	server, admin := startServer(t)
	store := open(t, server.Client(t))
	for k, key := range keys {
		for n, g := range garbage {
			if (n+k)%*garbagePart > 0 {
				continue
			}
			require.NoError(t, admin.FlushDB(t.Context()).Err())
			require.NoError(t, admin.Do(t.Context(), append([]any{g[0], key}, g[1:]...)...).Err())
			for _, kind := range []driver.Kind{driver.KindFair, driver.KindRead, driver.KindWrite, driver.KindSemaphore, driver.KindPermit, driver.KindLatch} {
				what := fmt.Sprintf("%v: %s %.60v", kind, key, g)
				useInGarbage(t, store, admin, kind, key == "a", what)
			}
		}
	}
}

// useInGarbage makes all requests for a kind of lock.
func useInGarbage(t *testing.T, store *redisstore.Store, admin *redis.Client, kind driver.Kind, taken bool, what string) {
	t.Helper()
	classified := func(err error) {
		t.Helper()
		var refused *redisstore.ServerError
		if err != nil && (!errors.As(err, &refused) || refused.Fault == nil && !strings.Contains(err.Error(), "DAMAGED")) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, second := heldFor(kind, 1), heldFor(kind, 2)
	a, err := store.Acquire(ctx, first)
	classified(err)
	if err == nil && a.Verdict == driver.Granted && (kind == driver.KindFair || kind == driver.KindRead || kind == driver.KindWrite) {
		if a.Token < 0 || a.Token > 1<<53 {
			t.Errorf("%s: token %d", what, a.Token)
		}
		if taken && admin.Type(ctx, "a").Val() != "hash" {
			t.Errorf("%s: granted", what)
		}
		if kind != driver.KindRead {
			b, err := store.Acquire(ctx, second)
			classified(err)
			if b.Verdict == driver.Granted {
				t.Errorf("%s: granted twice", what)
			}
		}
	}
	_, err = store.Acquire(ctx, second)
	classified(err)
	for _, h := range []*driver.Hold{first, second} {
		h.Count = 0
		_, err = store.Release(ctx, h)
		classified(err)
	}
	for _, h := range leasesOf(kind) {
		classified(renewItems(ctx, store, h)[0].Err)
	}
	for _, op := range []driver.CountOp{driver.CountRead, driver.CountAdd, driver.CountDrain, driver.CountCreate, driver.CountDelete} {
		if kind < driver.KindSemaphore || kind == driver.KindLatch && op == driver.CountDrain {
			continue
		}
		_, err = store.Count(ctx, &driver.Count{Kind: kind, Name: "a", Op: op, N: 1, Request: "r", Keep: time.Minute})
		classified(err)
	}
	_, err = store.Inspect(ctx, "a", kind)
	classified(err)
	_, err = store.Fence(ctx, first, 5)
	classified(err)
	_, err = store.ForceRelease(ctx, "a")
	classified(err)
}

// leasesOf returns the leases of a kind that are renewed.
func leasesOf(kind driver.Kind) []*driver.Hold {
	if kind == driver.KindSemaphore || kind == driver.KindLatch {
		return nil
	}
	return []*driver.Hold{heldFor(kind, 1)}
}
