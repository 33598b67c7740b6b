package redisstore_test

import (
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
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/backend"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// openPlain returns a store of plain locks with tokens on a client, which ends with t.
func openPlain(t testing.TB, client redis.UniversalClient) *redisstore.Store {
	t.Helper()
	return openWith(t, client, redisstore.Config{Format: redisstore.FormatPlain, PlainTokens: true})
}

// plainSuite is the suite for plain locks on servers that the tests share, with tokens or
// without.
func plainSuite(client func(t testing.TB) redis.UniversalClient, tokens bool) drivertest.Suite {
	return drivertest.Suite{
		Kinds:     []driver.Kind{driver.KindMutex},
		Uncounted: true,
		Untokened: !tokens,
		Backend: func(t testing.TB) drivertest.Backend {
			return shared(t, client, redisstore.Config{Format: redisstore.FormatPlain, PlainTokens: tokens})
		},
	}
}

// TestPlainSingleServer and TestPlainCluster run the suite on real servers, the latter without
// tokens.
func TestPlainInBubble(t *testing.T) {
	suite := plainSuite(nil, true)
	suite.Bubble = true
	suite.Backend = func(t testing.TB) drivertest.Backend {
		return backend.InBubble(func(t testing.TB, clients ...redis.UniversalClient) driver.Store {
			return openPlain(t, clients[0])
		}, locktest.Start(t))
	}
	drivertest.Run(t, suite)
}

func TestPlainWireFormat(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l := lockerOn(t, openPlain(t, server.Client(t)), lock.Config{TTL: time.Hour})
	message := listening(t, admin, "redisson_lock__channel:{orders:42}")

	lease := mustLock(t, l, "orders:42")
	assert.Equal(t, lease.Owner(), admin.Get(t.Context(), "orders:42").Val())
	assert.InDelta(t, time.Hour, admin.PTTL(t.Context(), "orders:42").Val(), float64(time.Minute))
	assert.Equal(t, strconv.FormatInt(lease.Token(), 10), admin.Get(t.Context(), "redisson_lock_token:{orders:42}").Val())
	further, err := l.Mutex("orders:42").Lock(lease.Context())
	require.NoError(t, err)
	assert.Equal(t, lease.Owner(), admin.Get(t.Context(), "orders:42").Val(), "the count of holds is the process's")
	require.NoError(t, further.Unlock(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
	assert.Zero(t, admin.Exists(t.Context(), "orders:42").Val())
	assert.Equal(t, "0", message())
	again := mutexOf("orders:42", 1)
	again.Count = 2
	without := openWith(t, server.Client(t), redisstore.Config{Format: redisstore.FormatPlain})
	assert.Equal(t, driver.NotHeld, asks(t, without, again).Verdict, "a further hold of a lock that was lost")

	awaitAnnounced(t, admin, l)
	keys := admin.Keys(t.Context(), "*").Val()
	for _, key := range keys {
		assert.Positive(t, admin.TTL(t.Context(), key).Val(), "key %s stays for ever", key)
	}
	assert.ElementsMatch(t, []string{
		"redisson_lock_token:{orders:42}", "leasewheel_lock_turns:{orders:42}", "leasewheel:client:{" + l.ClientID() + "}",
	}, keys)
}

func TestPlainRefusesOtherKinds(t *testing.T) {
	t.Parallel()
	l := lockerOn(t, openPlain(t, locktest.Start(t).Client(t)), lock.Config{})
	store := openPlain(t, locktest.Start(t).Client(t))
	for kind, err := range map[driver.Kind]error{
		driver.KindFair:      failure(l.Fair("a").Lock(t.Context())),
		driver.KindRead:      failure(l.ReadWrite("a").Read().TryLock(t.Context())),
		driver.KindWrite:     failure(l.ReadWrite("a").Write().MaxWait(time.Minute).Lock(t.Context())),
		driver.KindSemaphore: l.Semaphore("a").Acquire(t.Context(), 1),
	} {
		require.ErrorIs(t, err, driver.ErrUnsupported, kind)
		require.ErrorContains(t, err, "plain string", kind)
		assert.ErrorIs(t, store.Supports(kind), driver.ErrUnsupported, kind)
	}
	require.NoError(t, store.Supports(driver.KindMutex))
	_, err := redisstore.New(locktest.Start(t).Client(t), redisstore.Config{Format: 7})
	require.ErrorContains(t, err, "accepted are")
}

func failure(_ *lock.Lease, err error) error { return err }

// A key of any other type or format blocks the name, and nothing more.
func TestFormatsFindForeignValues(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	hash, plain := open(t, server.Client(t)), openPlain(t, server.Client(t))
	hold := &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "285475da-9152-4c83-822a-67ee2f116a79:1", Count: 1, TTL: time.Minute}
	ended := *hold
	ended.Count = 0
	for _, test := range []struct {
		name  string
		store *redisstore.Store
		put   func() error
	}{
		{"a redsync lock, for Redisson's format", hash, func() error {
			return admin.Set(t.Context(), "a", "1Q7nKmHGVgeCFGqEb1GRDg==", time.Hour).Err()
		}},
		{"a Redisson lock, for the plain format", plain, func() error {
			return admin.HSet(t.Context(), "a", hold.Owner, 1).Err()
		}},
		{"a list, for the plain format", plain, func() error { return admin.LPush(t.Context(), "a", "x").Err() }},
		{"a list, for Redisson's format", hash, func() error { return admin.LPush(t.Context(), "a", "x").Err() }},
	} {
		require.NoError(t, admin.Del(t.Context(), "a").Err())
		require.NoError(t, test.put(), test.name)
		require.NoError(t, admin.PExpire(t.Context(), "a", time.Hour).Err())
		before := admin.Dump(t.Context(), "a").Val()
		answer, err := test.store.Acquire(t.Context(), hold)
		require.NoError(t, err, test.name)
		assert.Equal(t, driver.Refused, answer.Verdict, test.name)
		assert.True(t, answer.Foreign, test.name)
		assert.InDelta(t, time.Hour, answer.Wait, float64(time.Minute), test.name)
		held, err := test.store.Release(t.Context(), &ended)
		require.NoError(t, err, test.name)
		assert.False(t, held, test.name)
		assert.Equal(t, []renewal.Outcome{renewal.Taken}, renewed(t, test.store, hold), test.name)
		info, err := test.store.ForceRelease(t.Context(), "a")
		require.NoError(t, err, test.name)
		assert.NotEmpty(t, info.Foreign, test.name)
		assert.Equal(t, before, admin.Dump(t.Context(), "a").Val(), test.name)
	}
}

// renewed renews holds once and returns the outcomes.
func renewed(t *testing.T, s *redisstore.Store, holds ...*driver.Hold) (outcomes []renewal.Outcome) {
	t.Helper()
	for _, item := range renewItems(t.Context(), s, holds...) {
		outcomes = append(outcomes, item.Outcome)
	}
	return outcomes
}

// A lock that goes from one waiter of ours to the next is left to peers every second if
// one was seen, otherwise every ten seconds; and never without waiters of ours. Requests for a
// lock without tokens, which are simple, leave it, too.
func TestPlainLeavesTheLockToPeers(t *testing.T) {
	const turns = "leasewheel_lock_turns:{a}"
	for _, test := range []struct {
		name         string
		tokens       bool
		peer, waiter bool
		held         time.Duration // by each owner
		free         time.Duration // how long the lock goes from one to the next; 0: for ever
		ago          time.Duration // when the peer was seen
	}{
		{"a peer was seen", true, true, true, 50 * time.Millisecond, time.Second, 0},
		{"a peer was seen, and holds are long", true, true, true, 1100 * time.Millisecond, 2200 * time.Millisecond, 0},
		{"no peer was seen", true, false, true, 50 * time.Millisecond, 10 * time.Second, 0},
		{"no peer was seen, and holds are long", true, false, true, 1100 * time.Millisecond, 12100 * time.Millisecond, 0},
		{"no waiter", true, true, false, time.Second, 0, 0},
		{"a peer was seen, without tokens", false, true, true, 50 * time.Millisecond, time.Second, 0},
		{"a peer was seen nine minutes ago", true, true, true, 50 * time.Millisecond, time.Second, 9 * time.Minute},
		{"a peer was seen eleven minutes ago", true, true, true, 50 * time.Millisecond, 10 * time.Second, 11 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				admin := server.Client(t)
				store := openWith(t, server.Client(t), redisstore.Config{Format: redisstore.FormatPlain, PlainTokens: test.tokens})
				hold := driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "285475da-9152-4c83-822a-67ee2f116a79:1", Count: 1, TTL: time.Minute}
				ended := hold
				ended.Count = 0
				if test.peer {
					require.NoError(t, admin.Set(t.Context(), "a", "1Q7nKmHGVgeCFGqEb1GRDg==", time.Hour).Err())
					answer, err := store.Acquire(t.Context(), &hold)
					require.NoError(t, err)
					assert.True(t, answer.Silent)
					assert.False(t, answer.Foreign)
					require.NoError(t, admin.Del(t.Context(), "a").Err())
					require.NoError(t, admin.PExpire(t.Context(), turns, time.Hour).Err()) // as if ours had gone on since
					time.Sleep(test.ago)
				}
				if test.waiter {
					sub, err := store.Subscribe(t.Context(), &hold, func(driver.Notice) {})
					require.NoError(t, err)
					defer sub.Close()
				}
				begin, left := time.Now(), driver.Answer{}
				for left.Wait == 0 && time.Since(begin) < time.Minute {
					answer, err := store.Acquire(t.Context(), &hold)
					require.NoError(t, err)
					if answer.Verdict == driver.Refused {
						left = answer
						continue
					}
					time.Sleep(test.held)
					held, err := store.Release(t.Context(), &ended)
					require.NoError(t, err)
					require.True(t, held)
				}
				if test.free == 0 {
					assert.Zero(t, left)
					return
				}
				assert.InDelta(t, test.free, time.Since(begin), float64(150*time.Millisecond))
				assert.InDelta(t, 250*time.Millisecond, left.Wait, float64(5*time.Millisecond))
				ok, err := admin.SetNX(t.Context(), "a", "1Q7nKmHGVgeCFGqEb1GRDg==", time.Hour).Result()
				require.NoError(t, err)
				assert.True(t, ok, "it is free for peers")
				assert.False(t, admin.HExists(t.Context(), turns, "since").Val(), "the next window is as far away")
				require.NoError(t, admin.Del(t.Context(), "a").Err())
				time.Sleep(left.Wait)
				answer, err := store.Acquire(t.Context(), &hold)
				require.NoError(t, err)
				assert.Equal(t, driver.Granted, answer.Verdict, "and then for us again")
			})
		})
	}
}

// A peer's release is not published: waiters ask every 60 to 180 ms.
func TestPlainPollsAsOftenAsPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		admin := server.Client(t)
		l := lockerOn(t, openPlain(t, server.Client(t)), lock.Config{Poll: time.Hour})
		for range 5 {
			require.NoError(t, admin.Set(t.Context(), "a", "1Q7nKmHGVgeCFGqEb1GRDg==", time.Hour).Err())
			var freed time.Time
			time.AfterFunc(time.Second, func() {
				freed = time.Now()
				assert.NoError(t, admin.Del(t.Context(), "a").Err())
			})
			lease := mustLock(t, l, "a")
			assert.LessOrEqual(t, time.Since(freed), 200*time.Millisecond)
			require.NoError(t, lease.Unlock(t.Context()))
		}
	})
}

// Any string is a lock if the caller asks for its name. Lists contain only strings that
// look like locks. Other programs' values do no harm to a terminal.
func TestPlainInspectsStrangers(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l := lockerOn(t, openPlain(t, server.Client(t)), lock.Config{})
	lease := mustLock(t, l, "ours")
	for name, value := range map[string]string{
		"redsync":   "1Q7n+mHGVgeCFG/Eb1GRDg==",
		"redislock": "W8rYbM3zVwYyq0X2nC4k-g host 7, job {9}",
		"page":      "<html>\x1b[2J</html>",
		"number":    "42",
	} {
		require.NoError(t, admin.Set(t.Context(), name, value, time.Hour).Err())
		info, err := l.Inspect(t.Context(), name, driver.KindMutex)
		require.NoError(t, err)
		require.Len(t, info.Holders, 1, name)
		assert.Equal(t, strings.ReplaceAll(value, "\x1b", "%1B"), info.Holders[0].Owner)
		assert.Zero(t, info.Holders[0].Client)
		assert.Zero(t, info.Holders[0].Since)
	}
	require.NoError(t, admin.Set(t.Context(), "lasting", "1Q7n+mHGVgeCFG/Eb1GRDg==", 0).Err())
	var names []string
	for info, err := range l.List(t.Context(), "*") {
		require.NoError(t, err)
		names = append(names, info.Name)
	}
	assert.ElementsMatch(t, []string{"ours", "redsync", "redislock"}, names)

	info, err := l.ForceRelease(t.Context(), "page")
	require.NoError(t, err)
	assert.Len(t, info.Holders, 1)
	assert.Zero(t, admin.Exists(t.Context(), "page").Val())
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestPlainCountersAreRaised(t *testing.T) {
	t.Parallel()
	store := openPlain(t, locktest.Start(t).Client(t))
	hold := driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "285475da-9152-4c83-822a-67ee2f116a79:1", Count: 1, TTL: time.Minute}
	answer, err := store.Acquire(t.Context(), &hold)
	require.NoError(t, err)
	raised, err := store.Fence(t.Context(), &hold, answer.Token+100)
	require.NoError(t, err)
	assert.True(t, raised)
	ended := hold
	ended.Count = 0
	_, err = store.Release(t.Context(), &ended)
	require.NoError(t, err)
	hold.Owner += "1"
	next, err := store.Acquire(t.Context(), &hold)
	require.NoError(t, err)
	assert.Greater(t, next.Token, answer.Token+100)
	other := hold
	other.Owner += "1"
	raised, err = store.Fence(t.Context(), &other, next.Token+100)
	require.NoError(t, err)
	assert.False(t, raised)
}
