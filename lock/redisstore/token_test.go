package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
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

const counterOfA = "redisson_lock_token:{a}"

// awaitServerClock waits until the server's clock has gone on by d.
func awaitServerClock(t *testing.T, admin *redis.Client, d time.Duration) {
	t.Helper()
	from := admin.Time(t.Context()).Val()
	require.Eventually(t, func() bool { return admin.Time(t.Context()).Val().Sub(from) >= d }, time.Minute, 5*time.Millisecond)
}

// Tokens grow after any loss of the server's data: deleted, lost with a restart, expired,
// or replaced by an older copy, as after a failover. Any number of reserved tokens does
// not change that.
func TestTokensGrowAcrossLossOfData(t *testing.T) {
	t.Parallel()
	for _, life := range []time.Duration{time.Hour, -1} {
		t.Run(fmt.Sprint(life), func(t *testing.T) {
			t.Parallel()
			server, admin := startServer(t)
			store := openWith(t, server.Client(t), redisstore.Config{FenceTTL: life})
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 1))
			restarts, reserved := 0, int64(0)
			var last int64
			for i := range 150 {
				switch dice := random.IntN(100); {
				case dice < 20:
					require.NoError(t, admin.FlushAll(t.Context()).Err())
				case dice < 30: // as if it had expired
					require.NoError(t, admin.Del(t.Context(), counterOfA).Err())
				case dice < 40:
					awaitServerClock(t, admin, time.Duration(random.IntN(20))*time.Millisecond)
				case dice < 45: // an older copy is in place 10 ms later at the earliest
					older, err := admin.Get(t.Context(), counterOfA).Result()
					if err == nil {
						h := mutexOf("a", i+10_000)
						h.Queue.Reserve = random.Int64N(driver.MaxPasses)
						a, err := store.Acquire(t.Context(), h)
						require.NoError(t, err)
						require.Greater(t, a.Token, last)
						last = a.Token + a.Reserved
						_, err = store.Release(t.Context(), released(h))
						require.NoError(t, err)
						awaitServerClock(t, admin, 12*time.Millisecond)
						require.NoError(t, admin.Set(t.Context(), counterOfA, older, time.Hour).Err())
					}
				case dice < 50 && restarts < 3:
					restarts++
					server.Restart(t)
					require.Eventually(t, func() bool { return admin.Ping(t.Context()).Err() == nil }, time.Minute, 5*time.Millisecond)
				}
				h := mutexOf("a", i)
				h.Queue.Reserve = []int64{0, 1, 1000, 100_000, driver.MaxPasses, random.Int64N(driver.MaxPasses)}[random.IntN(6)]
				var a driver.Answer
				var err error
				require.Eventually(t, func() bool {
					a, err = store.Acquire(t.Context(), h)
					return err == nil
				}, time.Minute, 5*time.Millisecond)
				require.Equal(t, driver.Granted, a.Verdict)
				require.Greater(t, a.Token, last, "grant %d", i)
				require.LessOrEqual(t, a.Reserved, h.Queue.Reserve)
				reserved += a.Reserved
				last = a.Token + a.Reserved // the owner may use all of them
				require.LessOrEqual(t, last, admin.Time(t.Context()).Val().UnixMicro(), "ahead of the clock")
				_, err = store.Release(t.Context(), released(h))
				require.NoError(t, err)
			}
			assert.Positive(t, reserved, "and some are reserved")
		})
	}
}

// A damaged fencing counter refuses grants, with an error that names the key. It is left
// unchanged, and never makes a wrong token.
func TestDamagedCounterRefusesGrants(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	for format, kinds := range map[redisstore.Format][]driver.Kind{
		redisstore.FormatRedisson: {driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite},
		redisstore.FormatPlain:    {driver.KindMutex},
	} {
		store := openWith(t, server.Client(t), redisstore.Config{Format: format, PlainTokens: true})
		for _, kind := range kinds {
			for _, damaged := range []string{
				"9223372036854775807", "9223372036854775806", "9007199254740976", "9007199254740992", "9007199254740993", "inf", "-inf", "nan", "1e300",
				"1e3", "0x10", "-1", "1.5", "", " 1", "1 ", "1\n", "text", "00000000000000000001", string(make([]byte, 1<<20)),
			} {
				for _, ttl := range []time.Duration{0, time.Hour} {
					require.NoError(t, admin.FlushAll(t.Context()).Err())
					require.NoError(t, admin.Set(t.Context(), counterOfA, damaged, ttl).Err())
					h := mutexOf("a", 1)
					h.Kind = kind
					_, err := store.Acquire(t.Context(), h)
					require.Error(t, err, "%v %v: %.20q", format, kind, damaged)
					assert.Contains(t, err.Error(), counterOfA)
					assert.NotErrorIs(t, err, driver.ErrUnavailable)
					require.ErrorIs(t, err, driver.ErrNotDone)
					assert.Equal(t, damaged, admin.Get(t.Context(), counterOfA).Val())
					assert.Equal(t, ttl > 0, admin.PTTL(t.Context(), counterOfA).Val() > 50*time.Minute)
					assert.Zero(t, admin.Exists(t.Context(), "a").Val(), "%v %v: %.20q", format, kind, damaged)
				}
			}
			for sound, next := range map[string]int64{"0": 0, "17": 0, "4503599627370496": 1<<52 + 16, "9007199254740975": 1<<53 - 16} {
				require.NoError(t, admin.FlushAll(t.Context()).Err())
				require.NoError(t, admin.Set(t.Context(), counterOfA, sound, 0).Err())
				h := mutexOf("a", 1)
				h.Kind = kind
				a, err := store.Acquire(t.Context(), h)
				require.NoError(t, err)
				assert.Equal(t, fmt.Sprint(a.Token), admin.Get(t.Context(), counterOfA).Val())
				if next > 0 { // ahead of the clock
					assert.Equal(t, next, a.Token)
				}
			}
		}
	}
}

// A counter of 0, which anyone may write, has counted no grant: an owner that joins a
// held lock still gets a token.
func TestCounterOfZeroIsNoToken(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	store := open(t, client)
	for _, test := range []struct {
		kind   driver.Kind
		joiner int
	}{{driver.KindMutex, 1}, {driver.KindFair, 1}, {driver.KindWrite, 1}, {driver.KindRead, 1}, {driver.KindRead, 2}} {
		for _, life := range []time.Duration{0, time.Minute} {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			h := mutexOf("a", 1)
			h.Kind = test.kind
			a, err := store.Acquire(t.Context(), h)
			require.NoError(t, err)
			require.Equal(t, driver.Granted, a.Verdict)
			require.NoError(t, client.Set(t.Context(), counterOfA, 0, life).Err())
			joining := mutexOf("a", test.joiner)
			joining.Kind = test.kind
			joined, err := store.Acquire(t.Context(), joining)
			require.NoError(t, err)
			require.Equal(t, driver.Granted, joined.Verdict)
			require.Greater(t, joined.Token, a.Token, "%v, owner %d, life %v", test.kind, test.joiner, life)
		}
	}
}

// A release of a lock with a damaged counter still succeeds, and grants the lock to no
// waiter.
func TestDamagedCounterHoldsNoReleaseUp(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	holder, waiter := mutexOf("a", 1), mutexOf("a", 2)
	_, err := store.Acquire(t.Context(), holder)
	require.NoError(t, err)
	waiter.Queue = inQueue(time.Minute)
	notices := make(chan driver.Notice, 10)
	subscribe(t, store, waiter, func(n driver.Notice) { notices <- n })
	_, err = store.Acquire(t.Context(), waiter)
	require.NoError(t, err)
	require.NoError(t, admin.Set(t.Context(), counterOfA, "inf", 0).Err())
	held, err := store.Release(t.Context(), released(holder))
	require.NoError(t, err)
	assert.True(t, held)
	assert.Zero(t, admin.Exists(t.Context(), "a").Val())
	select {
	case n := <-notices:
		assert.Equal(t, driver.Notice{}, n, "it is to ask, and learns why")
	case <-time.After(time.Minute):
		t.Fatal("the waiter has no message")
	}
	_, err = store.Acquire(t.Context(), waiter)
	require.ErrorContains(t, err, counterOfA)
}

// Reserved tokens are between the last token and now, and reach back by 10 ms at most.
func TestReservedTokensAreLimited(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	for _, life := range []time.Duration{time.Hour, -1} {
		store, err := redisstore.New(client, redisstore.Config{FenceTTL: life})
		require.NoError(t, err)
		acquire := func(n int) driver.Answer {
			h := mutexOf(fmt.Sprint(life), n)
			h.Queue.Reserve = 5_000_000
			a, err := store.Acquire(t.Context(), h)
			require.NoError(t, err)
			_, err = store.Release(t.Context(), released(h))
			require.NoError(t, err)
			return a
		}
		first := acquire(1)
		assert.Zero(t, first.Reserved, "without a counter nobody knows what was given out")
		second := acquire(2)
		assert.GreaterOrEqual(t, second.Token, first.Token+1)
		if second.Reserved < 10_000 {
			assert.Equal(t, first.Token+1, second.Token)
		}
		awaitServerClock(t, client, 20*time.Millisecond)
		assert.EqualValues(t, 10_000, acquire(3).Reserved)
		require.NoError(t, store.Close())
	}
}

// Inspection reports the token of a lock, and since when it is held, for as long as that is: the
// counter lives on with the renewals. Once the lock is free, the counter ends.
func TestCounterLivesAsLongAsTheHold(t *testing.T) {
	t.Parallel()
	handles := map[string]func(*lock.Locker) *lock.Mutex{
		"mutex":  func(l *lock.Locker) *lock.Mutex { return l.Mutex("a") },
		"fair":   func(l *lock.Locker) *lock.Mutex { return l.Fair("a") },
		"writer": func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("a").Write() },
		"plain":  func(l *lock.Locker) *lock.Mutex { return l.Mutex("a") },
	}
	for name, handle := range handles {
		for _, ttl := range []time.Duration{3 * time.Second, 30 * time.Second} {
			t.Run(name+" "+ttl.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					config := redisstore.Config{PlainTokens: true}
					if name == "plain" {
						config.Format = redisstore.FormatPlain
					}
					client := locktest.Start(t).Client(t)
					l := lockerWith(t, client, config)
					begin := time.Now()
					lease, err := handle(l).With(lock.Options{TTL: ttl}).Lock(t.Context())
					require.NoError(t, err)
					time.Sleep(time.Second) // the client announces itself in the background
					for held := time.Duration(0); held < 4*time.Minute; held += 20 * time.Second {
						info, err := l.Inspect(t.Context(), "a", driver.KindMutex)
						require.NoError(t, err)
						require.Equal(t, lease.Token(), info.Token, held)
						require.WithinDuration(t, begin, info.Holders[0].Since, time.Second, held)
						time.Sleep(20 * time.Second)
					}
					require.NoError(t, lease.Unlock(t.Context()))
					time.Sleep(redisstore.DefaultFenceTTL + time.Second)
					info, err := l.Inspect(t.Context(), "a", driver.KindMutex)
					require.NoError(t, err)
					assert.Zero(t, info.Token)
				})
			})
		}
	}
}

// A counter outlives each grant by at least half of FenceTTL, however often the lock is
// acquired: the grants of one half do not prolong it. A counter without a TTL gets none, by a
// renewal neither.
func TestCounterOutlivesEachGrant(t *testing.T) {
	for name, endless := range map[string]bool{"its own": false, "without a TTL": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				const life = 600 * time.Millisecond
				admin, store := server.Client(t), openWith(t, server.Client(t), redisstore.Config{FenceTTL: life})
				if endless {
					require.NoError(t, admin.Set(t.Context(), counterOfA, 16, 0).Err())
				}
				var kept []time.Duration
				for i := range 100 {
					h := mutexOf("a", i)
					require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
					if endless { // the counter is in some of the renewals
						brief := *h
						brief.TTL = life
						require.Equal(t, []renewal.Outcome{renewal.Renewed}, renewed(t, store, &brief))
					}
					left := admin.PTTL(t.Context(), counterOfA).Val()
					if endless {
						require.Equal(t, time.Duration(-1), left)
					} else {
						require.GreaterOrEqual(t, left, life/2-time.Millisecond, "rounded")
						require.LessOrEqual(t, left, life)
					}
					kept = append(kept, left)
					_, err := store.Release(t.Context(), released(h))
					require.NoError(t, err)
					time.Sleep(life / 25)
				}
				if !endless {
					assert.Less(t, slices.Min(kept), life*9/10, "not each grant costs a call to prolong it")
				}
			})
		})
	}
}

// Once Redisson has counted with a counter, no grant of any kind sets an expiry again, and
// tokens grow.
func TestCountersOfRedissonNeverExpireAgain(t *testing.T) {
	t.Parallel()
	grant := func(l *lock.Locker, f func(ctx context.Context) (*lock.Lease, error)) func(t *testing.T) int64 {
		return func(t *testing.T) int64 {
			t.Helper()
			lease, err := f(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
			return lease.Token()
		}
	}
	for name, lockOf := range map[string]func(l *lock.Locker) func(ctx context.Context) (*lock.Lease, error){
		"mutex":   func(l *lock.Locker) func(context.Context) (*lock.Lease, error) { return l.Mutex("a").Lock },
		"fair":    func(l *lock.Locker) func(context.Context) (*lock.Lease, error) { return l.Fair("a").Lock },
		"reader":  func(l *lock.Locker) func(context.Context) (*lock.Lease, error) { return l.ReadWrite("a").Read().Lock },
		"writer":  func(l *lock.Locker) func(context.Context) (*lock.Lease, error) { return l.ReadWrite("a").Write().Lock },
		"permits": func(l *lock.Locker) func(context.Context) (*lock.Lease, error) { return l.Permits("a").One().Lock },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t, redistest.Config{}).Client(t)
			l := lockerWith(t, client, redisstore.Config{FenceTTL: time.Hour})
			if name == "permits" {
				_, err := l.Permits("a").TrySetPermits(t.Context(), 1)
				require.NoError(t, err)
			}
			acquire := grant(l, lockOf(l))
			first := acquire(t)
			require.Positive(t, client.PTTL(t.Context(), counterOfA).Val(), "a counter of ours alone expires")
			last := client.Incr(t.Context(), counterOfA).Val()
			assert.Greater(t, last, first)
			for range 3 {
				token := acquire(t)
				assert.Greater(t, token, last)
				assert.EqualValues(t, -1, client.PTTL(t.Context(), counterOfA).Val())
				last = client.Incr(t.Context(), counterOfA).Val()
				assert.Greater(t, last, token)
			}
		})
	}
}

// A quorum that raises a counter leaves the mark of Redisson's use: the counter lasts.
func TestRaisedCounterOfRedissonLasts(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	store, err := redisstore.New(client, redisstore.Config{FenceTTL: time.Hour})
	require.NoError(t, err)
	defer store.Close()
	h := mutexOf("a", 1)
	answer := asks(t, store, h)
	raise := func(by int64) {
		held, err := store.Fence(t.Context(), h, answer.Token+by)
		require.NoError(t, err)
		require.True(t, held)
	}
	raise(1000)
	require.Positive(t, client.PTTL(t.Context(), counterOfA).Val())
	require.NoError(t, client.Incr(t.Context(), counterOfA).Err())
	raise(100_000)
	assert.EqualValues(t, -1, client.PTTL(t.Context(), counterOfA).Val())
}

// A proposed token is the grant's if it is ahead of the clock by a second at most and
// larger than the last one. Any other proposal changes nothing.
func TestProposedToken(t *testing.T) {
	t.Run("Server", func(t *testing.T) {
		server, admin := startServer(t)
		proposeTokens(t, admin, server.Client(t))
	})
	t.Run("Bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // the server's clock does not go on
			server := locktest.Start(t)
			heeded, ignored := proposeTokens(t, server.Client(t), server.Client(t))
			require.Equal(t, []int{24, 40}, []int{heeded, ignored})
		})
	})
}

// proposeTokens proposes tokens of each kind. It returns how many were granted, and how many
// not by the clock.
func proposeTokens(t *testing.T, admin, client *redis.Client) (heeded, ignored int) {
	t.Helper()
	for request, place := range map[string]time.Duration{"short": 0, "with all arguments": time.Second} {
		for _, life := range []time.Duration{time.Hour, -1} {
			store := openWith(t, client, redisstore.Config{FenceTTL: life})
			for counter, last := range map[string]time.Duration{"none": 0, "old": -time.Hour, "ahead": time.Hour} {
				for _, ahead := range []time.Duration{
					-time.Hour, 0, 10 * time.Millisecond, 800 * time.Millisecond, 999 * time.Millisecond,
					1001 * time.Millisecond, time.Minute, 1000 * time.Hour,
				} {
					what := fmt.Sprintf("%s request, life %v, counter %s, %v ahead", request, life, counter, ahead)
					key := "redisson_lock_token:{" + what + "}"
					now := admin.Time(t.Context()).Val()
					if last != 0 {
						require.NoError(t, admin.Set(t.Context(), key, now.Add(last).UnixMicro()/16*16, time.Hour).Err())
					}
					h := mutexOf(what, 1)
					h.Queue = inQueue(place)
					proposed := now.Add(ahead).UnixMicro() / 16 * 16
					answer, clock, err := store.AcquireProposing(t.Context(), h, proposed)
					require.NoError(t, err)
					require.Equal(t, driver.Granted, answer.Verdict)
					require.Equal(t, strconv.FormatInt(answer.Token, 10), admin.Get(t.Context(), key).Val())
					by := time.UnixMicro(proposed).Sub(clock)
					switch {
					case last > 0:
						require.Equal(t, now.Add(last).UnixMicro()/16*16+16, answer.Token, what)
					case by > 0 && by <= time.Second:
						require.Equal(t, proposed, answer.Token, what)
						heeded++
					default:
						require.Equal(t, clock.UnixMicro()/16*16, answer.Token, what)
						ignored++
					}
				}
			}
		}
	}
	return heeded, ignored
}
