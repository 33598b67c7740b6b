package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/leasewheel/leasewheel/renewal"
)

// locker returns a locker on client. It ends with t.
func locker(t testing.TB, client redis.UniversalClient, c lock.Config) *lock.Locker {
	t.Helper()
	return lockerOn(t, open(t, client), c)
}

// lockerOn returns a locker on a store. It ends with t. Unless c says otherwise, no machine is
// too slow for its requests, or for its leases.
func lockerOn(t testing.TB, store *redisstore.Store, c lock.Config) *lock.Locker {
	t.Helper()
	c.TTL, c.RequestTimeout = cmp.Or(c.TTL, longTTL), cmp.Or(c.RequestTimeout, time.Minute)
	l, err := lock.New(store, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// loginAs returns a client of a server for one of its users, which ends with t.
func loginAs(t testing.TB, server *redistest.Server, user, password string) *redis.Client {
	t.Helper()
	options := server.Options()
	options.Username, options.Password = user, password
	options.ReadTimeout, options.WriteTimeout = answersWithin, answersWithin // contexts bound requests
	client := redis.NewClient(options)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

func mustLock(t testing.TB, l *lock.Locker, name string) *lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	lease, err := l.Mutex(name).Lock(ctx)
	if !assert.NoError(t, err) {
		t.FailNow() // ends the calling goroutine, which need not be the test's
	}
	return lease
}

// contended is n locks of one locker, for each of which another one waits.
type contended struct {
	leases []*lock.Lease
	waits  sync.WaitGroup
}

// contendFor makes one locker take n locks, and another one wait for each of them.
func contendFor(t *testing.T, mine, theirs *lock.Locker, n int, name string) *contended {
	t.Helper()
	c := new(contended)
	for i := range n {
		name := fmt.Sprintf("%s%d", name, i)
		c.leases = append(c.leases, mustLock(t, mine, name))
		c.waits.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			lease, err := theirs.Mutex(name).Lock(ctx)
			if assert.NoError(t, err) {
				assert.NoError(t, lease.Unlock(ctx))
			}
		})
	}
	return c
}

// handOver releases the locks, and returns when each waiter has had its own.
func (c *contended) handOver(t *testing.T) {
	t.Helper()
	for _, lease := range c.leases {
		require.NoError(t, lease.Unlock(t.Context()))
	}
	c.waits.Wait()
}

// send sends the result of take, or a zero value if take has failed the test, which would
// otherwise wait for a value for ever.
func send[T any](to chan<- T, take func() T) {
	var taken T
	defer func() { to <- taken }()
	taken = take()
}

// awaitRenewal waits until the lease is renewed.
func awaitRenewal(t testing.TB, lease *lock.Lease) {
	t.Helper()
	until := lease.Until()
	require.Eventually(t, func() bool { return lease.Err() != nil || lease.Until().After(until) }, time.Minute, 5*time.Millisecond)
	require.NoError(t, lease.Err())
}

func TestServerPausesBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		const ttl = 4 * time.Second
		lease := mustLock(t, server.Locker(t, lock.Config{TTL: ttl}), "a")
		for range 20 {
			server.Freeze()
			time.Sleep(ttl/2 - 100*time.Millisecond)
			server.Thaw()
			awaitRenewal(t, lease)
		}
		require.NoError(t, lease.Err(), "a pause shorter than half a TTL costs no lease")
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A server that does not answer: the holder learns of the loss before another owner can
// have the lock. Others get the error that the store is unavailable, not that the lock is
// taken. Afterwards everything works.
func TestServerIsUnresponsive(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(*locktest.Server, *network) (lift func()){
		"stopped":   func(s *locktest.Server, _ *network) func() { s.Freeze(); return s.Thaw },
		"blackhole": func(_ *locktest.Server, n *network) func() { n.set(redistest.Blackhole); return n.heal },
		"replies lost": func(_ *locktest.Server, n *network) func() {
			n.set(redistest.Fault{Replies: redistest.Drop})
			return n.heal
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, wire := startNetwork(t)
				const ttl, limit = time.Second, 300 * time.Millisecond
				mine := locker(t, wire.client(t), lock.Config{TTL: ttl, RequestTimeout: limit, RetryFor: time.Second})
				lease := mustLock(t, mine, "a")
				require.NoError(t, mustLock(t, mine, "free").Unlock(t.Context()))

				lift := strike(server, wire)
				begin := time.Now()
				_, err := mine.Mutex("free").TryLock(t.Context())
				require.ErrorIs(t, err, driver.ErrUnavailable)
				require.NotErrorIs(t, err, lock.ErrNotAcquired)
				assert.Equal(t, limit, time.Since(begin), "requests are bounded")

				assert.Equal(t, renewal.Unreachable, lossAtTheEnd(t, lease).Cause)
				require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)

				lift()
				other := server.Locker(t, lock.Config{})
				begin = time.Now()
				for _, name := range []string{"a", "free"} {
					require.NoError(t, mustLock(t, other, name).Unlock(t.Context()))
				}
				assert.LessOrEqual(t, time.Since(begin), ttl)
			})
		})
	}
}

// lossAtTheEnd waits in a bubble until a lease is lost, a tick of the wheel after its end at most.
func lossAtTheEnd(t testing.TB, lease *lock.Lease) (loss *lock.LostError) {
	t.Helper()
	<-lease.Lost()
	assert.LessOrEqual(t, time.Since(lease.Until()), 10*time.Millisecond, "lost late")
	require.ErrorAs(t, lease.Err(), &loss)
	return loss
}

// While a holder that cannot reach the server considers the lock its own, no other owner
// has it (rueidislock notified its holder 2.5 s too late).
func TestNoOverlapWhileTheServerIsUnresponsive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, wire := startNetwork(t)
		mine, theirs := locker(t, wire.client(t), lock.Config{TTL: time.Second}), server.Locker(t, lock.Config{TTL: time.Second})
		for after := time.Duration(0); after < 500*time.Millisecond; after += 37 * time.Millisecond {
			lease := mustLock(t, mine, "a")
			time.Sleep(after)
			wire.set(redistest.Blackhole)
			next := make(chan *lock.Lease, 1)
			var got time.Time
			go send(next, func() *lock.Lease {
				lease := mustLock(t, theirs, "a")
				got = time.Now()
				return lease
			})
			_ = lossAtTheEnd(t, lease) // why does not matter
			told := time.Now()
			theirLease := <-next
			assert.False(t, lease.Until().After(got), "another client had the lock %v before until", lease.Until().Sub(got))
			assert.False(t, told.After(got), "the holder was told %v after another client had the lock", told.Sub(got))
			require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
			require.NoError(t, theirLease.Unlock(t.Context()))
			wire.heal()
			wire.reset(false)
		}
	})
}

// The reply to a request is lost with its connection. go-redis's own retries would report
// a lock taken by ourselves, and a release of a lock that is not held.
func TestReplyIsLostOnTheWire(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{-1, 0, 5} { // of go-redis: none, its default, many
		synctest.Test(t, func(t *testing.T) {
			server, wire := startNetwork(t)
			options := wire.options()
			options.MaxRetries = retries
			client := redis.NewClient(options)
			t.Cleanup(func() { _ = client.Close() })
			mine := locker(t, client, lock.Config{RequestTimeout: time.Second})
			require.NoError(t, mustLock(t, mine, "warm up").Unlock(t.Context()))
			cut := func() {
				wire.set(redistest.Fault{Replies: redistest.Drop})
				time.AfterFunc(100*time.Millisecond, func() {
					wire.heal()
					wire.reset(false)
				})
			}

			cut()
			lease, err := mine.Mutex("a").TryLock(t.Context())
			require.NoError(t, err)
			admin := server.Client(t)
			assert.Equal(t, "1", admin.HGet(t.Context(), "a", lease.Owner()).Val(), "however often it was sent")

			cut()
			require.NoError(t, lease.Unlock(t.Context()))
			assert.Zero(t, admin.Exists(t.Context(), "a").Val())
		})
	}
}

// A very bad network that still works loses no lease of 8 s.
func TestBadNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, wire := startNetwork(t)
		const ttl = 8 * time.Second
		wire.set(redistest.Fault{Delay: 25 * time.Millisecond, Jitter: 50 * time.Millisecond, Slice: true})
		config := lock.Config{TTL: ttl, RequestTimeout: time.Second}
		lockers := []*lock.Locker{locker(t, wire.client(t), config), locker(t, wire.client(t), config)}
		kept := mustLock(t, lockers[0], "kept")
		end := time.Now().Add(ttl + ttl/2)
		var work sync.WaitGroup
		var holders, taken int // guarded by the lock
		for i := range 4 {
			work.Go(func() {
				for time.Now().Before(end) {
					lease := mustLock(t, lockers[i%2], "shared")
					holders++
					assert.Equal(t, 1, holders)
					taken++
					holders--
					// A request without a reply in time is repeated in the background.
					if err := lease.Unlock(t.Context()); err != nil {
						assert.ErrorIs(t, err, driver.ErrUnavailable)
					}
				}
			})
		}
		for time.Now().Before(end) {
			// Long enough for most connections to be made, and for a renewal on them: the
			// lease has time for several attempts.
			time.Sleep(time.Second)
			wire.reset(false)
		}
		work.Wait()
		require.NoError(t, kept.Err())
		require.NoError(t, kept.Unlock(t.Context()))
		assert.Greater(t, taken, 4, "and locks change hands")
	})
}

// Waiters whose subscription is cut are still woken by the next release, through the
// subscription that replaces it, long before the poll.
func TestSubscriptionIsCut(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	mine := locker(t, server.Client(t), lock.Config{TTL: time.Hour})
	theirs := locker(t, server.Client(t), lock.Config{TTL: time.Hour, Poll: time.Hour})
	for _, kind := range []string{"pubsub", "normal"} {
		t.Run(kind, func(t *testing.T) {
			const locks = 20
			locked := contendFor(t, mine, theirs, locks, "lock ")
			awaitChannels(t, admin, 3*locks)
			for range 3 {
				_ = admin.Do(t.Context(), "client", "kill", "type", kind, "skipme", "yes").Err()
				time.Sleep(rand.N(10 * time.Millisecond))
			}
			locked.handOver(t)
			awaitChannels(t, admin, 0)
		})
	}
}

// awaitChannels waits until the server has n channels with subscribers.
func awaitChannels(t testing.TB, client *redis.Client, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		channels, err := client.PubSubChannels(t.Context(), "*").Result()
		return err == nil && len(channels) == n
	}, time.Minute, 5*time.Millisecond, "%d channels", n)
}

// A server may lose its scripts at any moment without an effect on callers.
func TestScriptFlushStorm(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	l := lockerOn(t, store, lock.Config{})
	kept := mustLock(t, l, "kept")
	ctx, cancel := context.WithCancel(t.Context())
	var flushes atomic.Int32
	var storm sync.WaitGroup
	storm.Go(func() {
		for ctx.Err() == nil && assert.NoError(t, admin.ScriptFlush(context.Background()).Err()) {
			flushes.Add(1)
		}
	})
	for range 60 {
		before := flushes.Load()
		require.NoError(t, mustLock(t, l, "a").Unlock(t.Context()))
		renewed := renewItems(t.Context(), store, &driver.Hold{Name: "kept", Owner: kept.Owner(), TTL: longTTL})
		require.Equal(t, renewal.Renewed, renewed[0].Outcome, "%v", renewed[0].Err)
		require.Eventually(t, func() bool { return flushes.Load() > before }, time.Minute, 100*time.Microsecond) // its goroutine may begin late
	}
	cancel()
	storm.Wait()
	require.NoError(t, kept.Unlock(t.Context()))
}

// Loss of the server's data: DEL is in the suite, here are the other ways.
func TestServerLosesItsData(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*locktest.Server){
		"FLUSHALL": (*locktest.Server).DeleteAll,
		"restart empty": func(s *locktest.Server) {
			s.Disconnect()
			s.DeleteAll()
			s.Reconnect()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				const ttl = 1500 * time.Millisecond
				l := server.Locker(t, lock.Config{TTL: ttl})
				lease, begin := mustLock(t, l, "a"), time.Now()
				lose(server)
				assert.Equal(t, renewal.Deleted, lossAtTheEnd(t, lease).Cause)
				assert.Less(t, time.Since(begin), ttl/2, "by the first renewal")
				next := mustLock(t, l, "a")
				assert.Greater(t, next.Token(), lease.Token(), "tokens grow although the counter is lost")
				require.NoError(t, next.Unlock(t.Context()))
				require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
			})
		})
	}
}

// A server out of memory grants no new locks, with an error that names the reason; held
// ones live on.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	l := lockerOn(t, store, lock.Config{})
	lease := mustLock(t, l, "held")
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := l.Mutex("a").TryLock(t.Context())
	isFault(t, err, redisstore.ErrOutOfMemory)
	renewed := renewItems(t.Context(), store, &driver.Hold{Name: "held", Owner: lease.Owner(), TTL: longTTL})
	require.Equal(t, renewal.Renewed, renewed[0].Outcome, "it needs no memory")
	require.NoError(t, lease.Unlock(t.Context()), "nor does a release")
	exists, err := admin.Exists(t.Context(), "held", "a").Result()
	require.NoError(t, err)
	assert.Zero(t, exists)
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.NoError(t, mustLock(t, l, "a").Unlock(t.Context()))
}

// isFault fails t unless err is a server's refusal of a class, in one line that has an
// advice and no secret.
func isFault(t testing.TB, err, class error) {
	t.Helper()
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
	var refusal *redisstore.ServerError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, class, refusal.Fault)
	assert.NotContains(t, err.Error(), "\n")
	assert.NotContains(t, err.Error(), secret)
}

const secret = "hunter2"

// Servers that refuse requests for a while are reported by the class of the refusal, and
// serve again afterwards.
func TestPassingRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		class        error
		strike, lift func(t *testing.T, s *redistest.Server)
	}{
		"READONLY": {
			redisstore.ErrReadOnly,
			func(t *testing.T, s *redistest.Server) { do(t, s, "replicaof", "127.0.0.1", "1") },
			func(t *testing.T, s *redistest.Server) { do(t, s, "replicaof", "no", "one") },
		},
		"NOREPLICAS": {
			redisstore.ErrNoReplicas,
			func(t *testing.T, s *redistest.Server) { do(t, s, "config", "set", "min-replicas-to-write", "1") },
			func(t *testing.T, s *redistest.Server) { do(t, s, "config", "set", "min-replicas-to-write", "0") },
		},
		"BUSY": {
			redisstore.ErrBusy,
			func(t *testing.T, s *redistest.Server) {
				do(t, s, "config", "set", "busy-reply-threshold", "1")
				client := s.Client(t)
				go func() { _ = client.Eval(context.Background(), "while true do end", nil).Err() }()
				require.Eventually(t, func() bool {
					return redis.HasErrorPrefix(client.Ping(t.Context()).Err(), "BUSY")
				}, time.Minute, time.Millisecond)
			},
			func(t *testing.T, s *redistest.Server) { do(t, s, "script", "kill") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config{})
			store := open(t, server.Client(t))
			_, err := store.Acquire(t.Context(), mutexOf("warm up", 1))
			require.NoError(t, err)
			test.strike(t, server)
			_, err = store.Acquire(t.Context(), mutexOf("a", 1))
			isFault(t, err, test.class)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			got := make(chan *lock.Lease, 1)
			l := lockerOn(t, store, lock.Config{})
			go send(got, func() *lock.Lease { return mustLock(t, l, "a") })
			test.lift(t, server)
			require.NoError(t, (<-got).Unlock(t.Context()))
		})
	}
}

func do(t *testing.T, s *redistest.Server, args ...any) {
	t.Helper()
	require.NoError(t, s.Client(t).Do(t.Context(), args...).Err())
}

// A request for which the client may make no connection was not sent.
func TestRequestWithoutAConnectionIsNotDone(t *testing.T) {
	t.Parallel()
	options := locktest.Start(t).Client(t).Options()
	options.PoolSize, options.MaxActiveConns, options.ContextTimeoutEnabled = 2, 1, true
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	only := client.Conn()
	require.NoError(t, only.Ping(t.Context()).Err())
	_, err = store.Release(t.Context(), mutexOf("a", 1))
	require.ErrorIs(t, err, redis.ErrPoolExhausted)
	require.ErrorIs(t, err, driver.ErrNotDone)
	require.NoError(t, only.Close())
	_, err = store.Release(t.Context(), mutexOf("a", 1))
	require.NoError(t, err)
}

// Every refusal in the documentation of Redis has its class. Temporary ones are waited out,
// as long as the request has time.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for text, test := range map[string]struct {
		class   error
		passing bool
	}{
		"READONLY You can't write against a read only replica.":                                 {redisstore.ErrReadOnly, true},
		"READONLY You can't write against a read only replica. script: 4f, on @user_script:9.":  {redisstore.ErrReadOnly, true},
		"UNBLOCKED force unblock from blocking operation, instance state changed":               {redisstore.ErrReadOnly, true},
		"ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0": {redisstore.ErrReadOnly, true},
		"LOADING Redis is loading the dataset in memory":                                        {redisstore.ErrLoading, true},
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL":                    {redisstore.ErrBusy, true},
		"NOREPLICAS Not enough good replicas to write.":                                         {redisstore.ErrNoReplicas, true},
		"CLUSTERDOWN Hash slot not served":                                                      {redisstore.ErrCluster, true},
		"MASTERDOWN Link with MASTER is down":                                                   {redisstore.ErrCluster, true},
		"TRYAGAIN Multiple keys request during rehashing of slot":                               {redisstore.ErrCluster, true},
		"MOVED 3999 127.0.0.1:6381":                                                             {redisstore.ErrCluster, true},
		"ERR max number of clients reached":                                                     {redisstore.ErrMaxClients, true},
		"OOM command not allowed when used memory > 'maxmemory'.":                               {redisstore.ErrOutOfMemory, false},
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to":       {redisstore.ErrMisconfigured, false},
		"NOAUTH Authentication required.":                                                       {redisstore.ErrAuth, false},
		"WRONGPASS invalid username-password pair or user is disabled.":                         {redisstore.ErrAuth, false},
		"ERR invalid password":                                                                  {redisstore.ErrAuth, false},
		"ERR Client sent AUTH, but no password is set":                                          {redisstore.ErrAuth, false},
		"NOPERM this user has no permissions to run the 'evalsha' command":                      {redisstore.ErrNoPermission, false},
		"ERR The user executing the script can't run this command or subcommand script: 4f":     {redisstore.ErrNoPermission, false},
		"ERR ACL failure in script: this user has no permissions to run the 'pexpire' command":  {redisstore.ErrNoPermission, false},
		"WRONGTYPE Operation against a key holding the wrong kind of value":                     {redisstore.ErrWrongType, false},
		"CROSSSLOT Keys in request don't hash to the same slot":                                 {redisstore.ErrCrossSlot, false},
		"ERR Script attempted to access a non local key in a cluster node script: 4f, on":       {redisstore.ErrCluster, true},
		"ERR Attempted to access a non local key in a cluster node script: on @user_script:227": {redisstore.ErrCluster, true},
		"ERR something new": {nil, false},
	} {
		t.Run(strings.Fields(text)[0], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := locktest.Start(t).Client(t)
				refused := &refusing{err: redisError(text)}
				client.AddHook(refused)
				l := locker(t, client, lock.Config{RequestTimeout: time.Second})
				begin := time.Now()
				_, err := l.Mutex("a").TryLock(t.Context())
				isFault(t, err, test.class)
				require.ErrorContains(t, err, text[strings.Index(text, " ")+1:])
				require.Equal(t, test.passing, errors.Is(err, driver.ErrUnavailable))
				assert.Equal(t, test.passing, time.Since(begin) > 0, "it is repeated")
				if test.passing {
					time.AfterFunc(20*time.Second, func() { refused.over.Store(true) })
					lease, err := l.Mutex("a").MaxWait(time.Minute).Lock(t.Context())
					require.NoError(t, err)
					require.NoError(t, lease.Unlock(t.Context()))
				}
			})
		})
	}
}

// refusing is a hook that answers every command with a server's error, until it is over.
type refusing struct {
	err  error
	over atomic.Bool
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func (*refusing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.over.Load() {
			return next(ctx, cmd)
		}
		cmd.SetErr(h.err)
		return h.err
	}
}
func (*refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestMisconfiguredServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Directives: []string{`save "3600 1000000"`}})
	l := locker(t, server.Client(t), lock.Config{})
	lease := mustLock(t, l, "held")
	breakSaving(t, server)
	_, err := l.Mutex("a").TryLock(t.Context())
	isFault(t, err, redisstore.ErrMisconfigured)
	err = lease.Unlock(t.Context())
	require.ErrorIs(t, err, redisstore.ErrMisconfigured)
	do(t, server, "config", "set", "stop-writes-on-bgsave-error", "no")
	require.NoError(t, mustLock(t, l, "held").Unlock(t.Context()), "the release is made up for")
}

// breakSaving makes the server's next save fail.
func breakSaving(t *testing.T, s *redistest.Server) {
	t.Helper()
	client := s.Client(t)
	dir, err := client.ConfigGet(t.Context(), "dir").Result()
	require.NoError(t, err)
	blockFile(t, dir["dir"]+"/dump.rdb")
	require.NoError(t, client.BgSave(t.Context()).Err())
	require.Eventually(t, func() bool {
		info, err := client.Info(t.Context(), "persistence").Result()
		return err == nil && strings.Contains(info, "rdb_last_bgsave_status:err")
	}, time.Minute, 5*time.Millisecond)
}

func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{
		Password: secret,
		Users:    []string{"alice on >" + secret + " ~* &* +@all"},
	})
	for name, change := range map[string]func(*redis.Options){
		"no password":    func(o *redis.Options) { o.Password = "" },
		"wrong password": func(o *redis.Options) { o.Password = secret + "x" },
		"no such user":   func(o *redis.Options) { o.Username = "bob" },
		"wrong for user": func(o *redis.Options) { o.Username, o.Password = "alice", secret+"x" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := server.Options()
			change(options)
			client := redis.NewClient(options)
			t.Cleanup(func() { _ = client.Close() })
			_, err := locker(t, client, lock.Config{}).Mutex("a").Lock(t.Context())
			isFault(t, err, redisstore.ErrAuth)
			require.NotErrorIs(t, err, driver.ErrUnavailable, "it is no use to try again")
			isFault(t, open(t, client).Ping(t.Context()), redisstore.ErrAuth)
		})
	}
}

func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{
		"nokeys on >" + secret + " ~other:* &* +@all",
		"noscript on >" + secret + " ~* &* +@all -@scripting",
		"nocommand on >" + secret + " ~* &* +@all -pexpire",
		"nochannel on >" + secret + " ~* resetchannels +@all",
	}})
	as := func(user string) *redis.Client { return loginAs(t, server, user, secret) }
	admin := server.Client(t)
	for _, user := range []string{"nokeys", "noscript", "nocommand"} {
		_, err := locker(t, as(user), lock.Config{}).Mutex("a").TryLock(t.Context())
		isFault(t, err, redisstore.ErrNoPermission)
	}
	// A grant that failed midway is released.
	require.Eventually(t, func() bool { return admin.Exists(t.Context(), "a").Val() == 0 }, time.Minute, 10*time.Millisecond)

	l := locker(t, as("nochannel"), lock.Config{Poll: 10 * time.Millisecond})
	lease := mustLock(t, locker(t, server.Client(t), lock.Config{}), "a")
	got := make(chan *lock.Lease)
	asked := scripts(t, admin)
	go send(got, func() *lock.Lease { return mustLock(t, l, "a") }) // it waits without messages, by polling
	require.Eventually(t, func() bool { return scripts(t, admin) > asked+3 }, time.Minute, time.Millisecond)
	require.NoError(t, lease.Unlock(t.Context()))
	isFault(t, (<-got).Unlock(t.Context()), redisstore.ErrNoPermission)
}

// A user has no right to one command of a script for a while. What the script does until then changes
// nothing, or has an end, and the request has its effect when it is sent again.
func TestRightThatIsMissingMidway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"ada on >" + secret + " ~* &* +@all"}})
	admin := server.Client(t)
	store := open(t, loginAs(t, server, "ada", secret))
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite, driver.KindSemaphore, driver.KindPermit} {
		counts := kind == driver.KindSemaphore || kind == driver.KindPermit
		for _, command := range []string{
			"set", "incrby", "decrby", "del", "unlink", "type", "pttl", "pexpire", "hset", "hdel", "hget",
			"zadd", "zrem", "zscore", "zcount", "zremrangebyrank", "zpopmin", "publish",
		} {
			for _, used := range []bool{false, true} { // whether the lock has a fencing counter
				name := fmt.Sprint(kind, command, used)
				holds := 0
				hold := func() *driver.Hold {
					holds++
					h := &driver.Hold{Kind: kind, Name: name, Owner: fmt.Sprint(golf, ":", holds), TTL: time.Hour, Semaphore: driver.Semaphore{Permits: 1}}
					if kind == driver.KindPermit {
						h.Owner = fmt.Sprintf("%032x", holds)
					}
					if kind == driver.KindMutex && used { // a request with all arguments
						h.Queue = inQueue(time.Minute)
					}
					return h
				}
				acquire := func(h *driver.Hold) error {
					h.Count = 1
					answer, err := store.Acquire(t.Context(), h)
					assert.True(t, err != nil || answer.Verdict == driver.Granted, "%s: %+v", name, answer)
					return err
				}
				release := func(h *driver.Hold) error {
					h.Count = 0
					_, err := store.Release(t.Context(), h)
					return err
				}
				require.NoError(t, admin.FlushAll(t.Context()).Err())
				held, wanted := hold(), hold()
				if counts {
					require.NoError(t, admin.Set(t.Context(), name, 3, 0).Err())
				}
				if counts || used {
					require.NoError(t, acquire(held))
				}
				if !counts && used {
					require.NoError(t, release(held))
				}
				if kind == driver.KindPermit && used { // and one has expired
					require.NoError(t, admin.Decr(t.Context(), name).Err())
					require.NoError(t, admin.ZAdd(t.Context(), "{"+name+"}:timeout", redis.Z{Score: 1, Member: "expired"}).Err())
				}
				do(t, server, "acl", "setuser", "ada", "-"+command)
				_ = acquire(wanted) // not all kinds need the command
				if command == "zremrangebyrank" {
					_ = acquire(wanted)
				}
				for _, key := range admin.Keys(t.Context(), "*").Val() {
					if !counts || key != name && !strings.HasSuffix(key, ":timeout") {
						assert.NotEqual(t, time.Duration(-1), admin.PTTL(t.Context(), key).Val(), "%s: %s has no end", name, key)
					}
				}
				_ = release(held)
				do(t, server, "acl", "setuser", "ada", "+"+command)
				require.NoError(t, release(held))
				require.NoError(t, release(wanted))
				if counts {
					count, err := store.Count(t.Context(), &driver.Count{Kind: kind, Name: name, Op: driver.CountRead})
					require.NoError(t, err)
					assert.Equal(t, int64(3), count.Count, name)
				} else {
					require.NoError(t, acquire(hold()), name)
				}
			}
		}
	}
}

// A request that changes a count, and was refused since its user has no right to a command, changes it
// when it is sent again.
func TestRightToCountIsMissingMidway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"ada on >" + secret + " ~* &* +@all"}})
	admin := server.Client(t)
	store := open(t, loginAs(t, server, "ada", secret))
	for name, test := range map[string]struct {
		count   driver.Count
		command string
		want    string
	}{
		"add":        {driver.Count{Kind: driver.KindSemaphore, Op: driver.CountAdd, N: 2}, "incrby", "5"},
		"drain":      {driver.Count{Kind: driver.KindSemaphore, Op: driver.CountDrain}, "decrby", "0"},
		"add once":   {driver.Count{Kind: driver.KindSemaphore, Op: driver.CountAdd, N: 2}, "set", "5"},
		"drain once": {driver.Count{Kind: driver.KindSemaphore, Op: driver.CountDrain}, "set", "0"},
		"set once":   {driver.Count{Kind: driver.KindPermit, Op: driver.CountSet, N: 7}, "set", "7"},
		"set":        {driver.Count{Kind: driver.KindPermit, Op: driver.CountSet, N: 7}, "incrby", "7"},
		"count down": {driver.Count{Kind: driver.KindLatch, Op: driver.CountAdd, N: -1}, "incrby", "2"},
		"open":       {driver.Count{Kind: driver.KindLatch, Op: driver.CountAdd, N: -3}, "set", ""},
	} {
		require.NoError(t, admin.Set(t.Context(), name, 3, 0).Err())
		c := test.count
		c.Name, c.Request, c.Keep = name, name, time.Hour
		do(t, server, "acl", "setuser", "ada", "-"+test.command)
		_, err := store.Count(t.Context(), &c)
		isFault(t, err, redisstore.ErrNoPermission)
		assert.Equal(t, "3", admin.Get(t.Context(), name).Val(), name)
		do(t, server, "acl", "setuser", "ada", "+"+test.command)
		_, err = store.Count(t.Context(), &c)
		require.NoError(t, err)
		assert.Equal(t, test.want, admin.Get(t.Context(), name).Val(), name)
	}

	require.NoError(t, admin.Set(t.Context(), "owed", 3, 0).Err())
	owed := &driver.Hold{Kind: driver.KindSemaphore, Name: "owed", Owner: golf + ":1", TTL: time.Hour, Semaphore: driver.Semaphore{Permits: 1, Owed: true}}
	do(t, server, "acl", "setuser", "ada", "-incrby")
	_, err := store.Release(t.Context(), owed)
	isFault(t, err, redisstore.ErrNoPermission)
	assert.Empty(t, admin.Keys(t.Context(), "leasewheel_request:{owed}*").Val(), "it would have no end")
	do(t, server, "acl", "setuser", "ada", "+incrby")
	_, err = store.Release(t.Context(), owed)
	require.NoError(t, err)
	assert.Equal(t, "4", admin.Get(t.Context(), "owed").Val())

	do(t, server, "acl", "setuser", "ada", "-pexpire")
	_, err = store.Count(t.Context(), &driver.Count{
		Kind: driver.KindPermit, Name: "ends", Op: driver.CountCreate, N: 1, TTL: time.Hour, Request: "ends", Keep: time.Hour,
	})
	require.NoError(t, err)
	assert.Positive(t, admin.PTTL(t.Context(), "ends").Val())
}

// A release or renewal that the server refuses, since the user has no right to a command, is an
// error, and not the answer that the owner holds nothing.
func TestMissingRightIsNoLoss(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"ada on >" + secret + " ~* &* +@all"}})
	client := loginAs(t, server, "ada", secret)
	for name, store := range map[string]*redisstore.Store{"redisson": open(t, client), "plain": openPlain(t, client)} {
		for kind, place := range map[string]time.Duration{"simple": 0, "with all arguments": time.Minute} {
			h := mutexOf(name+kind, 1)
			h.Queue = inQueue(place)
			require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
			do(t, server, "acl", "setuser", "ada", "-hget", "-hdel", "-hexists", "-getrange")
			item := renewItems(t.Context(), store, h)[0]
			assert.Equal(t, renewal.Unknown, item.Outcome, h.Name)
			isFault(t, item.Err, redisstore.ErrNoPermission)
			for _, count := range []int64{1, 0} {
				gone := released(h)
				gone.Count = count
				_, err := store.Release(t.Context(), gone)
				isFault(t, err, redisstore.ErrNoPermission)
			}
			do(t, server, "acl", "setuser", "ada", "+@all")
			assert.Equal(t, []renewal.Outcome{renewal.Renewed}, renewed(t, store, h))
			held, err := store.Release(t.Context(), released(h))
			require.NoError(t, err)
			assert.True(t, held, h.Name)
		}
	}
}

func TestServerIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{TCP: true})
	admin := server.Client(t)
	require.NoError(t, admin.Ping(t.Context()).Err())
	do(t, server, "config", "set", "maxclients", "3")
	crowd := make([]*redis.Conn, 3)
	for i := range crowd {
		crowd[i] = admin.Conn()
		_ = crowd[i].Ping(t.Context()).Err()
	}
	// The server's reply may come too late: it closes the connection at once.
	_, err := open(t, server.Client(t)).Acquire(t.Context(), mutexOf("a", 1)) // a locker repeats it for all of its time
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
	for _, conn := range crowd {
		_ = conn.Close()
	}
}

func TestNoServerAtTheAddress(t *testing.T) {
	t.Parallel()
	store, err := redisstore.Open("redis://user:"+secret+"@127.0.0.1:1/0", redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	l, err := lock.New(store, lock.Config{RequestTimeout: 500 * time.Millisecond})
	require.NoError(t, err)
	defer l.Close()
	_, err = l.Mutex("a").TryLock(t.Context())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
	assert.NotContains(t, err.Error(), secret)
	assert.NotContains(t, err.Error(), "\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, store.Ping(ctx), driver.ErrUnavailable)
}
