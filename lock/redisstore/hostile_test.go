package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
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

// dead is a member of the wait queue whose client has no subscription.
func dead(n int) string {
	return fmt.Sprintf("285475da-9152-4c83-822a-67ee2f116a79:%d 30000 0 secret", n)
}

// addDead puts n dead waiters into the wait queue, before all others.
func addDead(t *testing.T, admin *redis.Client, n int) {
	t.Helper()
	for i := 0; i < n; i += 1000 {
		members := make([]redis.Z, 0, 1000)
		for j := i; j < min(n, i+1000); j++ {
			members = append(members, redis.Z{Score: float64(j), Member: dead(j)})
		}
		require.NoError(t, admin.ZAdd(t.Context(), mutexQueue, members...).Err())
	}
}

// A run of any script skips a hundred dead waiters at most.
func TestDeadWaitersAreSkippedInSteps(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	holder, next := mutexOf("a", 1), mutexOf("a", 2)
	_, err := store.Acquire(t.Context(), holder)
	require.NoError(t, err)
	const many = 3000
	addDead(t, admin, many)
	held, err := store.Release(t.Context(), released(holder))
	require.NoError(t, err)
	assert.True(t, held)
	left := int64(many)
	for {
		now := admin.ZCard(t.Context(), mutexQueue).Val()
		require.LessOrEqual(t, left-now, int64(100), "in one run")
		left = now
		a, err := store.Acquire(t.Context(), next)
		require.NoError(t, err)
		if a.Verdict == driver.Granted {
			break
		}
		require.Equal(t, time.Millisecond, a.Wait, "it is to ask again at once")
	}
}

// A living waiter behind thousands of dead ones gets the lock by runs that skip a hundred of
// them each, without its poll.
func TestLivingWaiterBehindManyDead(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	mine, theirs := locker(t, server.Client(t), lock.Config{Poll: time.Hour}), locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	lease := mustLock(t, mine, "a")
	got := startWaiter(t, theirs)
	awaitQueued(t, admin, 1)
	const many = 3000
	addDead(t, admin, many)
	before := scripts(t, admin)
	require.NoError(t, lease.Unlock(t.Context()))
	next := <-got
	assert.GreaterOrEqual(t, scripts(t, admin)-before, int64(many/100))
	require.NoError(t, next.Unlock(t.Context()))
}

// An invalid member of the wait queue is dropped when it becomes the head. A run whose time
// grows faster than the member would hang at those of megabytes.
func TestHostileMembersOfTheWaitQueue(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	client := owner(3)[:36]
	hears := admin.Subscribe(t.Context(), "leasewheel_lock__channel:{a}:"+client)
	defer func() { assert.NoError(t, hears.Close()) }()
	_, err := hears.Receive(t.Context())
	require.NoError(t, err)
	for _, member := range []string{
		strings.Repeat(":", 2<<20), strings.Repeat("a:", 1<<20), strings.Repeat("1 ", 1<<20), strings.Repeat("x", 2<<20), "", " ", ":", ": 1 1", "gap ", "x:1", "x:1 1", client + ":1 -1 0 s", client + ":1 0 0 s",
		client + ":1 99999999999999999999 0 s", client + ":1 1e9 0 s", client + ":1 1000 99999999999999999999 s", client + ":1 inf 0 s",
		client + ":1 1000 0 s more", client + ":1\x00 1000", "\xff\xfe:1 1000 0 s\n",
	} {
		for name, score := range map[string]float64{"oldest": 1, "newest": 1e17} {
			require.NoError(t, admin.ZAdd(t.Context(), mutexQueue, redis.Z{Score: score, Member: member}).Err())
			h := mutexOf("a", 1)
			h.Queue = inQueue(time.Minute)
			a, err := store.Acquire(t.Context(), h)
			require.NoError(t, err, "%s %.30q", name, member)
			require.Equal(t, driver.Granted, a.Verdict, "%s %.30q", name, member)
			other := mutexOf("a", 2)
			other.Queue = inQueue(time.Minute)
			a, err = store.Acquire(t.Context(), other)
			require.NoError(t, err)
			require.Equal(t, driver.Refused, a.Verdict)
			_, err = store.Release(t.Context(), released(other))
			require.NoError(t, err)
			held, err := store.Release(t.Context(), released(h))
			require.NoError(t, err)
			require.True(t, held)
			require.Zero(t, admin.Exists(t.Context(), "a", mutexQueue).Val(), "%s %.30q", name, member)
		}
	}
}

// With any content of a lock's keys, a request ends with an error that has a class or as
// with a valid key. When the key is gone everything works.
func TestGarbageAtEveryKeyOfAMutex(t *testing.T) {
	t.Parallel()
	numbers := []string{"9223372036854775806", "-inf", "nan", "text", "", strings.Repeat("9", 4000)}
	garbage := map[string]func(p redis.Pipeliner, ctx context.Context, key string){
		"list": func(p redis.Pipeliner, ctx context.Context, key string) { p.RPush(ctx, key, "x", "y") },
		"set":  func(p redis.Pipeliner, ctx context.Context, key string) { p.SAdd(ctx, key, "x", "y") },
		"stream": func(p redis.Pipeliner, ctx context.Context, key string) {
			p.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []any{"x", "y"}})
		},
		"zset": func(p redis.Pipeliner, ctx context.Context, key string) {
			p.Do(ctx, "zadd", key, "inf", "gap", "-inf", "x", "5", strings.Repeat(":", 5000), "1e300", owner(3)+" 1000 0 s")
		},
		"hash": func(p redis.Pipeliner, ctx context.Context, key string) { p.HSet(ctx, key, "user", "ada") },
	}
	for i, n := range numbers {
		garbage["string "+fmt.Sprint(i)] = func(p redis.Pipeliner, ctx context.Context, key string) { p.Set(ctx, key, n, 0) }
		garbage["hash "+fmt.Sprint(i)] = func(p redis.Pipeliner, ctx context.Context, key string) {
			p.HSet(ctx, key, owner(1), n, "mode", n, "until", n, "since", n, "peer", n)
		}
	}
	for format, keys := range map[redisstore.Format][]string{
		redisstore.FormatRedisson: {"a", mutexQueue, counterOfA},
		redisstore.FormatPlain:    {"a", "leasewheel_lock_turns:{a}", counterOfA},
	} {
		server, admin := startServer(t)
		store := openWith(t, server.Client(t), redisstore.Config{Format: format})
		subscribe(t, store, mutexOf("a", 1), func(driver.Notice) {})
		sound := func(what string, err error) {
			t.Helper()
			var refusal *redisstore.ServerError
			if err != nil && assert.ErrorAs(t, err, &refusal, what) {
				assert.Error(t, refusal.Fault, "%s: unclassified: %v", what, err)
			}
		}
		for _, key := range keys {
			for kind, write := range garbage {
				for _, heldBefore := range []bool{false, true} {
					what := fmt.Sprintf("%v: %s in %s, held %v", format, kind, key, heldBefore)
					require.NoError(t, admin.FlushAll(t.Context()).Err())
					h := mutexOf("a", 1)
					h.Queue = inQueue(time.Minute)
					if heldBefore {
						_, err := store.Acquire(t.Context(), h)
						require.NoError(t, err)
						require.NoError(t, admin.Del(t.Context(), key).Err())
					}
					_, err := admin.Pipelined(t.Context(), func(p redis.Pipeliner) error {
						write(p, t.Context(), key)
						return nil
					})
					require.NoError(t, err)
					for n := 1; n <= 2; n++ {
						other, again := mutexOf("a", n), mutexOf("a", n)
						other.Queue, again.Count = inQueue(time.Minute), 2
						_, err = store.Acquire(t.Context(), other)
						sound(what+": acquire", err)
						_, err = store.Acquire(t.Context(), again)
						sound(what+": again", err)
						items := []renewal.Item{{Key: "a", Owner: other.Owner, Ref: other.Kind, TTL: time.Minute}}
						store.Renew(t.Context(), items)
						sound(what+": renew", items[0].Err)
						again.Count = 1
						_, err = store.Release(t.Context(), again)
						sound(what+": release one", err)
						other.Queue.Granted = n == 2
						_, err = store.Release(t.Context(), released(other))
						sound(what+": release", err)
					}
					require.NoError(t, admin.Del(t.Context(), keys...).Err())
					last := mutexOf("a", 4)
					a, err := store.Acquire(t.Context(), last)
					require.NoError(t, err, what)
					require.Equal(t, driver.Granted, a.Verdict, what)
				}
			}
		}
	}
}

// A free lock is granted at once even if stamps of before the server's clock was set back
// leave it to others for a while.
func TestClockSetBackHoldsNoLockUp(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	const turns = "leasewheel_lock_turns:{a}"
	for format, leave := range map[redisstore.Format]func(ahead time.Duration){
		redisstore.FormatRedisson: func(ahead time.Duration) {
			score := float64(admin.Time(t.Context()).Val().Add(ahead).UnixMicro())
			require.NoError(t, admin.ZAdd(t.Context(), mutexQueue, redis.Z{Score: score, Member: "gap"}).Err())
		},
		redisstore.FormatPlain: func(ahead time.Duration) {
			at := admin.Time(t.Context()).Val().Add(ahead).UnixMicro()
			require.NoError(t, admin.HSet(t.Context(), turns, "until", at, "since", at, "peer", at).Err())
		},
	} {
		store := openWith(t, server.Client(t), redisstore.Config{Format: format})
		for i, ahead := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
			require.NoError(t, admin.FlushAll(t.Context()).Err())
			leave(ahead)
			for n := range 20 { // stamps of the future do not outlive it either
				h := mutexOf("a", 100*i+n)
				a, err := store.Acquire(t.Context(), h)
				require.NoError(t, err)
				require.Equal(t, driver.Granted, a.Verdict, "%v, %v ahead", format, ahead)
				_, err = store.Release(t.Context(), released(h))
				require.NoError(t, err)
			}
		}
		// A yield window that is not longer than it can be is kept.
		leave(map[redisstore.Format]time.Duration{redisstore.FormatRedisson: 9 * time.Millisecond, redisstore.FormatPlain: 200 * time.Millisecond}[format])
		require.Eventually(t, func() bool {
			a, err := store.Acquire(t.Context(), mutexOf("a", 1))
			require.NoError(t, err)
			return a.Verdict == driver.Granted
		}, time.Minute, 5*time.Millisecond)
	}
}

// A waiter that was in the wait queue before the server's clock was set back is not behind all
// that come later: with its next request it has the place of one that comes then.
func TestClockSetBackLeavesNoWaiterBehind(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	holder, before, later := mutexOf("a", 1), mutexOf("a", 2), mutexOf("a", 3)
	granted := make(chan string, 2)
	for _, h := range []*driver.Hold{before, later} {
		h.Queue = inQueue(time.Hour)
		subscribe(t, store, h, func(n driver.Notice) {
			if n.Owner != "" {
				granted <- n.Owner
			}
		})
	}
	require.Equal(t, driver.Granted, asks(t, store, holder).Verdict)
	require.Equal(t, driver.Refused, asks(t, store, before).Verdict)
	members := admin.ZRangeWithScores(t.Context(), mutexQueue, 0, -1).Val()
	require.Len(t, members, 1)
	const setBack = 3600e6 // an hour in µs: so far ahead is the place then
	require.NoError(t, admin.ZIncrBy(t.Context(), mutexQueue, setBack, members[0].Member.(string)).Err())
	for _, h := range []*driver.Hold{before, later} {
		require.Equal(t, driver.Refused, asks(t, store, h).Verdict)
	}
	require.Equal(t, []string{before.Owner, later.Owner}, awaitQueued(t, admin, 2))
	_, err := store.Release(t.Context(), released(holder))
	require.NoError(t, err)
	require.Equal(t, before.Owner, <-granted)
}

// Holds are kept and released although the server is out of memory, one by one or all at
// once; and a waiter can leave the wait queue.
func TestHeldLocksNeedNoMemory(t *testing.T) {
	t.Parallel()
	for format, life := range map[redisstore.Format][]time.Duration{
		redisstore.FormatRedisson: {time.Hour, -1}, redisstore.FormatPlain: {time.Hour, -1},
	} {
		for _, life := range life {
			t.Run(fmt.Sprint(format, life), func(t *testing.T) {
				t.Parallel()
				server, admin := startServer(t)
				store := openWith(t, server.Client(t), redisstore.Config{Format: format, FenceTTL: life})
				h, twice, waiter := mutexOf("a", 1), mutexOf("a", 1), mutexOf("a", 2)
				twice.Count, waiter.Queue = 2, inQueue(time.Minute)
				for _, h := range []*driver.Hold{h, twice, waiter} {
					_, err := store.Acquire(t.Context(), h)
					require.NoError(t, err)
				}
				require.NoError(t, admin.PExpire(t.Context(), "a", 5*time.Minute).Err())
				require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())

				before := contents(t, admin)
				_, err := store.Acquire(t.Context(), mutexOf("b", 3))
				require.ErrorIs(t, err, redisstore.ErrOutOfMemory)
				require.ErrorIs(t, err, driver.ErrNotDone)
				assert.Equal(t, before, contents(t, admin), "a refused grant changes nothing")

				items := []renewal.Item{{Key: "a", Owner: h.Owner, Ref: h.Kind, TTL: time.Hour}}
				store.Renew(t.Context(), items)
				assert.Equal(t, renewal.Renewed, items[0].Outcome, "%v", items[0].Err)
				assert.Greater(t, admin.PTTL(t.Context(), "a").Val(), 30*time.Minute)
				_, err = store.Release(t.Context(), released(waiter))
				require.NoError(t, err)
				assert.Zero(t, admin.Exists(t.Context(), mutexQueue).Val())
				held, err := store.Release(t.Context(), h)
				require.NoError(t, err, "the inner Unlock")
				assert.True(t, held)
				held, err = store.Release(t.Context(), released(h))
				require.NoError(t, err)
				assert.True(t, held)
				assert.Zero(t, admin.Exists(t.Context(), "a").Val())
			})
		}
	}
}

// Only a message that the server has sent for this waiter makes it the holder. A forged,
// altered, cut or repeated message makes it ask at most.
func TestForgedGrantsAreNotAccepted(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	mine, theirs := locker(t, server.Client(t), lock.Config{Poll: time.Hour}), locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	channel := "leasewheel_lock__channel:{a}:" + theirs.ClientID()
	hears := admin.Subscribe(t.Context(), channel)
	defer func() { assert.NoError(t, hears.Close()) }()
	_, err := hears.Receive(t.Context())
	require.NoError(t, err)

	// A true message, to send again.
	lease := mustLock(t, mine, "a")
	got := startWaiter(t, theirs)
	awaitQueued(t, admin, 1)
	require.NoError(t, lease.Unlock(t.Context()))
	handed := <-got
	replayed, err := hears.ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.NoError(t, handed.Unlock(t.Context()))

	lease = mustLock(t, mine, "a")
	got = startWaiter(t, theirs)
	waiting := awaitQueued(t, admin, 1)[0]
	const now = "NOW" // when it is published: a message older than the latest refusal is stale
	words := strings.Split(replayed.Payload, " ")
	altered := func(i int, word string) string {
		changed := append([]string{}, words...)
		changed[0], changed[2] = waiting, now
		changed[i] = word
		return strings.Join(changed, " ")
	}
	forged := []string{
		replayed.Payload,
		fmt.Sprintf("%s %s %s 3600000 0", waiting, now, now),
		fmt.Sprintf("%s %s %s 3600000 0 ", waiting, now, now),
		fmt.Sprintf("%s %s %s 3600000 0 0", waiting, now, now),
		fmt.Sprintf("%s %s %s 3600000 0 secret", waiting, now, now),
		altered(0, waiting), altered(3, "3600000"), altered(3, "9223372036854775807"), altered(1, "-5"),
		waiting, waiting + " ", "", " ", "x", strings.Repeat(" ", 1<<20), strings.Repeat("x", 1<<20), waiting + strings.Repeat(" 9", 5000),
		"x", // a holder would not ask after it
	}
	for _, payload := range forged {
		asked := scripts(t, admin)
		payload = strings.ReplaceAll(payload, now, fmt.Sprint(admin.Time(t.Context()).Val().UnixMicro()))
		require.NoError(t, admin.Publish(t.Context(), channel, payload).Err())
		if payload != replayed.Payload { // the message of another acquisition
			require.Eventually(t, func() bool { return len(got) > 0 || scripts(t, admin) > asked }, time.Minute, 5*time.Millisecond, "it asks after %.40q", payload)
		}
		require.Empty(t, got, "%.40q, or the message before, made it a holder beside %s", payload, lease.Owner())
	}
	require.NoError(t, lease.Err())
	require.NoError(t, lease.Unlock(t.Context()))
	next := <-got
	assert.True(t, next.Valid())
	require.NoError(t, next.Unlock(t.Context()))
}

// One forbidden name never fails the requests for another.
func TestForbiddenNameFailsItsOwnOnly(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{TCP: true, Users: []string{"ada on >pw &* +@all ~orders:* ~*{orders:*"}})
	l := locker(t, loginAs(t, server, "ada", "pw"), lock.Config{Poll: time.Hour})
	var busy sync.WaitGroup
	for g := range 16 {
		busy.Go(func() {
			for range 30 {
				lease, err := l.Mutex(fmt.Sprintf("orders:%d", g)).Lock(t.Context())
				if assert.NoError(t, err) {
					assert.NoError(t, lease.Unlock(t.Context()))
				}
			}
		})
	}
	for range 2 * redisstore.MaxInFlight { // one in each batch
		busy.Go(func() {
			for range 30 {
				_, err := l.Mutex("another").TryLock(t.Context())
				assert.ErrorIs(t, err, redisstore.ErrNoPermission)
			}
		})
	}
	busy.Wait()
}

// A renewal that is refused because of one lease succeeds for all others, in the same
// request of the watchdog.
func TestForbiddenLeaseFailsNoOtherRenewal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"ada on >pw ~* &* +@all"}})
	admin := server.Client(t)
	client := loginAs(t, server, "ada", "pw")
	for format, kinds := range map[redisstore.Format][]driver.Kind{
		redisstore.FormatRedisson: {driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite},
		redisstore.FormatPlain:    {driver.KindMutex},
	} {
		store := openWith(t, client, redisstore.Config{Format: format})
		require.NoError(t, admin.FlushAll(t.Context()).Err())
		require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "ada", "~*").Err())
		var items []renewal.Item
		for _, kind := range kinds {
			for _, name := range []string{"orders:1", "orders:2", "forbidden", "orders:3"} {
				h := mutexOf(fmt.Sprint(name, " ", uint8(kind)), 1)
				h.Kind = kind
				a, err := store.Acquire(t.Context(), h)
				require.NoError(t, err)
				require.Equal(t, driver.Granted, a.Verdict)
				items = append(items, renewal.Item{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL})
			}
		}
		require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "ada", "resetkeys", "~orders:*", "~*{orders:*").Err())
		store.Renew(t.Context(), items)
		for _, item := range items {
			if strings.HasPrefix(item.Key, "orders") {
				assert.Equal(t, renewal.Renewed, item.Outcome, "%v %s: %v", format, item.Key, item.Err)
			} else {
				assert.Equal(t, renewal.Unknown, item.Outcome)
				assert.ErrorIs(t, item.Err, redisstore.ErrNoPermission)
			}
		}
	}
}

// A lock is freed although another program has replaced a key that belongs to it.
func TestReleaseBesideAReplacedKey(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	for kind, prefixes := range map[driver.Kind][]string{
		driver.KindMutex: {"redisson_lock_token", "leasewheel_lock_line", "leasewheel_lock_turns"},
		driver.KindFair:  {"redisson_lock_token", "redisson_lock_queue", "redisson_lock_timeout", "leasewheel_lock_places"},
		driver.KindWrite: {"redisson_lock_token", "leasewheel_lock_claim"},
	} {
		for _, prefix := range prefixes {
			hold, replaced := mutexOf("a", 1), prefix+":{a}"
			hold.Kind = kind
			require.Equal(t, driver.Granted, asks(t, store, hold).Verdict)
			require.NoError(t, admin.Del(t.Context(), replaced).Err())
			require.NoError(t, admin.SAdd(t.Context(), replaced, "another's").Err())
			held, err := store.Release(t.Context(), released(hold))
			require.NoError(t, err, "%v, %s", kind, replaced)
			assert.True(t, held, "%v, %s", kind, replaced)
			assert.Zero(t, admin.Exists(t.Context(), "a").Val(), "%v, %s", kind, replaced)
			assert.Equal(t, []string{"another's"}, admin.SMembers(t.Context(), replaced).Val())
			require.NoError(t, admin.Del(t.Context(), replaced).Err())
		}
	}
}

// The error for a key that another program has replaced names it, and the kind of value that it is to have.
func TestErrorNamesAReplacedKey(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l := locker(t, server.Client(t), lock.Config{})
	for key, c := range map[string]struct {
		lock *lock.Mutex
		kind string
	}{
		"redisson_lock_token:{a}":    {l.Mutex("a"), "string"},
		"leasewheel_lock_line:{a}":   {l.Mutex("a"), "zset"},
		"redisson_lock_queue:{a}":    {l.Fair("a"), "list"},
		"redisson_lock_timeout:{a}":  {l.Fair("a"), "zset"},
		"leasewheel_lock_places:{a}": {l.Fair("a"), "zset"},
	} {
		require.NoError(t, admin.Del(t.Context(), key).Err())
		require.NoError(t, admin.SAdd(t.Context(), key, "another's").Err())
		_, err := c.lock.Lock(t.Context())
		isFault(t, err, redisstore.ErrWrongType)
		require.ErrorContains(t, err, "the key "+key+" is no "+c.kind+": rename or delete it")
		require.NoError(t, admin.Del(t.Context(), key).Err())
		require.NoError(t, mustTake(t, t.Context(), c.lock).Unlock(t.Context()))
	}
}
