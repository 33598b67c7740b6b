package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
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

// locker returns a locker on client. It ends with t.
func locker(t testing.TB, client redis.UniversalClient, c lock.Config) *lock.Locker {
	t.Helper()
	return lockerOn(t, open(t, client), c)
}

// lockerOn returns a locker on a store. It ends with t.
func lockerOn(t testing.TB, store *redisstore.Store, c lock.Config) *lock.Locker {
	t.Helper()
	l, err := lock.New(store, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
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

// contend makes n lockers acquire the mutex "a" again and again, each for so long. served
// counts the leases. stop ends it, and waits for the last.
func contend(t *testing.T, server *redistest.Server, n int, hold time.Duration) (served *atomic.Int64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	served = new(atomic.Int64)
	var work sync.WaitGroup
	for range n {
		l := locker(t, server.Client(t), lock.Config{})
		work.Go(func() {
			for ctx.Err() == nil {
				lease, err := l.Mutex("a").Lock(ctx)
				if err != nil {
					continue
				}
				served.Add(1)
				if hold > 0 {
					select {
					case <-ctx.Done():
					case <-time.After(hold):
					}
				}
				assert.NoError(t, lease.Unlock(context.WithoutCancel(ctx)))
			}
		})
	}
	return served, func() {
		cancel()
		work.Wait()
	}
}

func mustLock(t testing.TB, l *lock.Locker, name string) *lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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
	require.Eventually(t, func() bool { return lease.Err() != nil || lease.Until().After(until) }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, lease.Err())
}

// witness records when a lease is lost, and when the process was stalled until then.
type witness struct {
	lease    *lock.Lease
	told     chan time.Time
	stalls   [][2]time.Time
	measured chan struct{} // closed when stalls are complete
}

func watch(lease *lock.Lease) *witness {
	w := &witness{lease: lease, told: make(chan time.Time, 1), measured: make(chan struct{})}
	for range 3 { // the first one counts: another one may be stalled
		go func() {
			<-lease.Context().Done()
			now := time.Now()
			select {
			case w.told <- now:
			default:
			}
		}()
	}
	go w.measure()
	return w
}

// measure finds the stalls of the process until the lease has ended.
func (w *witness) measure() {
	defer close(w.measured)
	const pause, stall = 2 * time.Millisecond, 10 * time.Millisecond
	before := time.Now()
	for ended := false; !ended; {
		ended = w.lease.Context().Err() != nil
		time.Sleep(pause)
		now := time.Now()
		if now.Sub(before) > stall {
			w.stalls = append(w.stalls, [2]time.Time{before, now})
		}
		before = now
	}
}

// stalled returns for how long the process was stalled between two instants.
func (w *witness) stalled(from, to time.Time) (sum time.Duration) {
	<-w.measured
	for _, s := range w.stalls {
		begin, end := s[0], s[1]
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(end.Sub(begin), 0)
	}
	return sum
}

// lossIsInTime fails t unless the lease was lost by until, within the documented
// tolerance. A stall of the process is excused. It returns when and why the lease was lost.
func (w *witness) lossIsInTime(t testing.TB, within time.Duration) (told time.Time, loss *lock.LostError) {
	t.Helper()
	select {
	case told = <-w.told:
	case <-time.After(within):
		t.Fatalf("not told of the loss within %v", within)
	}
	until := w.lease.Until()
	if late := told.Sub(until) - w.stalled(until, told); late > 10*time.Millisecond+50*time.Millisecond+patience {
		t.Errorf("told of the loss %v after until", late)
	}
	require.ErrorAs(t, w.lease.Err(), &loss)
	return told, loss
}

// patience is the delay of a busy machine that tests allow for.
const patience = 100 * time.Millisecond

func TestServerPausesBriefly(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	mine := locker(t, server.Client(t), lock.Config{TTL: 4 * time.Second})
	lease := mustLock(t, mine, "a")
	for range 2 {
		server.Pause()
		time.Sleep(1500 * time.Millisecond)
		server.Resume()
		awaitRenewal(t, lease)
	}
	require.NoError(t, lease.Err(), "a pause shorter than half a TTL costs no lease")
	require.NoError(t, lease.Unlock(t.Context()))
}

// A server that does not answer: the holder learns of the loss before another owner can
// have the lock. Others get the error that the store is unavailable, not that the lock is
// taken. Afterwards everything works.
func TestServerIsMute(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	wire := redistest.StartProxy(t, server)
	for _, test := range []struct {
		name         string
		strike, lift func()
	}{
		{"stopped", server.Pause, server.Resume},
		{"blackhole", func() { wire.Set(redistest.Blackhole) }, func() { wire.Heal(); wire.Reset() }},
		{"replies lost", func() { wire.Set(redistest.Fault{Replies: redistest.Drop}) }, func() { wire.Heal(); wire.Reset() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			const ttl = time.Second
			mine := locker(t, wire.Client(t), lock.Config{TTL: ttl, RequestTimeout: 300 * time.Millisecond, RetryFor: time.Second})
			lease := mustLock(t, mine, "a")
			holder := watch(lease)
			free := mustLock(t, mine, "free")
			require.NoError(t, free.Unlock(t.Context()))

			test.strike()
			begin := time.Now()
			_, err := mine.Mutex("free").TryLock(t.Context())
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.NotErrorIs(t, err, lock.ErrNotAcquired)
			assert.Less(t, time.Since(begin), 2*time.Second, "requests are bounded")

			_, loss := holder.lossIsInTime(t, 5*time.Second)
			// A machine that stands still meanwhile has not shown that the store is at fault.
			assert.Contains(t, []renewal.Cause{renewal.Unreachable, renewal.Expired}, loss.Cause)
			require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)

			test.lift()
			other := locker(t, server.Client(t), lock.Config{})
			begin = time.Now()
			for _, name := range []string{"a", "free"} {
				next := mustLock(t, other, name)
				require.NoError(t, next.Unlock(t.Context()))
			}
			assert.Less(t, time.Since(begin), ttl+time.Second)
		})
	}
}

// While a holder that cannot reach the server considers the lock its own, no other owner
// has it (rueidislock notified its holder 2.5 s too late).
func TestNoOverlapWhileTheServerIsMute(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	wire := redistest.StartProxy(t, server)
	mine := locker(t, wire.Client(t), lock.Config{TTL: time.Second})
	theirs := locker(t, server.Client(t), lock.Config{TTL: time.Second})
	for range 3 {
		lease := mustLock(t, mine, "a")
		holder := watch(lease)
		time.Sleep(rand.N(500 * time.Millisecond))
		wire.Set(redistest.Blackhole)
		asked := make(chan time.Time, 1)
		var theirLease *lock.Lease
		go func() {
			theirLease = mustLock(t, theirs, "a")
			asked <- time.Now()
		}()
		told, _ := holder.lossIsInTime(t, 5*time.Second)
		got := <-asked
		if lease.Until().After(got) {
			t.Errorf("another client had the lock %v before until", lease.Until().Sub(got))
		}
		if told.Sub(got)-holder.stalled(got, told) > 60*time.Millisecond {
			t.Errorf("the holder was told %v after another client had the lock", told.Sub(got))
		}
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		require.NoError(t, theirLease.Unlock(t.Context()))
		wire.Heal()
		wire.Reset()
	}
}

// The reply to a request is lost with its connection. go-redis's own retries would report
// a lock taken by ourselves, and a release of a lock that is not held.
func TestReplyIsLostOnTheWire(t *testing.T) {
	t.Parallel()
	_, wire, admin := startProxied(t)
	for _, retries := range []int{-1, 0, 5} { // of go-redis: none, its default, many
		options := wire.Options()
		options.MaxRetries = retries
		client := redis.NewClient(options)
		t.Cleanup(func() { _ = client.Close() })
		mine := locker(t, client, lock.Config{})
		require.NoError(t, mustLock(t, mine, "warm up").Unlock(t.Context()))
		cut := func() {
			wire.Set(redistest.Fault{Replies: redistest.Drop})
			time.AfterFunc(100*time.Millisecond, func() {
				wire.Heal()
				wire.Reset()
			})
		}

		cut()
		lease, err := mine.Mutex("a").TryLock(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "1", admin.HGet(t.Context(), "a", lease.Owner()).Val(), "however often it was sent")

		cut()
		require.NoError(t, lease.Unlock(t.Context()))
		assert.Zero(t, admin.Exists(t.Context(), "a").Val())
	}
}

// A very bad network that still works loses no lease of 8 s.
func TestBadNetwork(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	wire := redistest.StartProxy(t, server)
	const ttl = 8 * time.Second
	wire.Set(redistest.Fault{Delay: 25 * time.Millisecond, Jitter: 50 * time.Millisecond, Slice: true})
	var lockers []*lock.Locker
	for range 2 {
		client, err := redisstore.Dial(wire.URL(), redisstore.ClientConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		// On a busy machine many requests in a row may meet a cut.
		lockers = append(lockers, locker(t, client, lock.Config{TTL: ttl, RetryFor: time.Minute}))
	}
	kept := mustLock(t, lockers[0], "kept")
	end := time.Now().Add(ttl + ttl/2)
	var work sync.WaitGroup
	var holders, taken int // guarded by the lock
	for i := range 4 {
		work.Go(func() {
			for time.Now().Before(end) {
				lease := mustLock(t, lockers[i%2], "shared")
				holders++
				if holders != 1 {
					t.Errorf("%d holders", holders)
				}
				taken++
				holders--
				// A request without a reply in time is repeated in the background.
				if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("unlock: %v", err)
				}
			}
		})
	}
	work.Go(func() {
		for time.Now().Before(end) {
			time.Sleep(400 * time.Millisecond)
			if time.Until(kept.Until()) > ttl/2 { // else nothing may get through on a busy machine
				wire.Reset()
			}
		}
	})
	work.Wait()
	require.NoError(t, kept.Err())
	require.NoError(t, kept.Unlock(t.Context()))
	assert.Greater(t, taken, 2, "and locks change hands")
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
	}, 10*time.Second, 5*time.Millisecond, "%d channels", n)
}

// A server may lose its scripts at any moment without an effect on callers.
func TestScriptFlushStorm(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l := locker(t, server.Client(t), lock.Config{TTL: 2 * time.Second})
	kept := mustLock(t, l, "kept")
	stop := make(chan struct{})
	flushes := 0 // read after the storm
	var storm sync.WaitGroup
	storm.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if admin.ScriptFlush(context.Background()).Err() == nil {
					flushes++
				}
			}
		}
	})
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		require.NoError(t, mustLock(t, l, "a").Unlock(t.Context()))
	}
	close(stop)
	storm.Wait()
	assert.Greater(t, flushes, 10)
	require.NoError(t, kept.Err())
	require.NoError(t, kept.Unlock(t.Context()))
}

// Loss of the server's data: DEL is in the suite, here are the other ways.
func TestServerLosesItsData(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *redistest.Server){
		"FLUSHALL":      func(t *testing.T, s *redistest.Server) { require.NoError(t, s.Client(t).FlushAll(t.Context()).Err()) },
		"restart empty": func(t *testing.T, s *redistest.Server) { s.Restart(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config{})
			const ttl = 1500 * time.Millisecond
			l := locker(t, server.Client(t), lock.Config{TTL: ttl})
			lease := mustLock(t, l, "a")
			lose(t, server)
			_, loss := watch(lease).lossIsInTime(t, ttl/3+ttl/6+time.Second)
			assert.Equal(t, renewal.Deleted, loss.Cause)
			next := mustLock(t, l, "a")
			assert.Greater(t, next.Token(), lease.Token(), "tokens grow although the counter is lost")
			require.NoError(t, next.Unlock(t.Context()))
			require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		})
	}
}

// A server out of memory grants no new locks, with an error that names the reason; held
// ones live on.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l := locker(t, server.Client(t), lock.Config{TTL: 3 * time.Second})
	lease := mustLock(t, l, "held")
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := l.Mutex("a").TryLock(t.Context())
	isFault(t, err, redisstore.ErrOutOfMemory)
	awaitRenewal(t, lease) // it needs no memory
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
	require.ErrorIs(t, err, class)
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
	var refusal *redisstore.ServerError
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, class, refusal.Fault)
	assert.NotContains(t, err.Error(), "\n")
	assert.NotContains(t, err.Error(), secret)
}

const secret = "hunter2"

// Temporary refusals are waited out, for a while, and then reported by their class.
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
				}, 10*time.Second, time.Millisecond)
			},
			func(t *testing.T, s *redistest.Server) { do(t, s, "script", "kill") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config{})
			brief := locker(t, server.Client(t), lock.Config{})
			long := locker(t, server.Client(t), lock.Config{})
			require.NoError(t, mustLock(t, brief, "warm up").Unlock(t.Context()))
			test.strike(t, server)
			_, err := brief.Mutex("a").TryLock(t.Context())
			isFault(t, err, test.class)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			got := make(chan error, 1)
			go func() {
				lease, err := long.Mutex("a").LockWithin(context.Background(), 20*time.Second)
				if err == nil {
					err = lease.Unlock(context.Background())
				}
				got <- err
			}()
			time.Sleep(500 * time.Millisecond)
			test.lift(t, server)
			require.NoError(t, <-got)
		})
	}
}

func do(t *testing.T, s *redistest.Server, args ...any) {
	t.Helper()
	require.NoError(t, s.Client(t).Do(t.Context(), args...).Err())
}

// Every refusal in the documentation of Redis has its class.
func TestRefusals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	for text, test := range map[string]struct {
		class   error
		passing bool
	}{
		"READONLY You can't write against a read only replica.":                                {redisstore.ErrReadOnly, true},
		"READONLY You can't write against a read only replica. script: 4f, on @user_script:9.": {redisstore.ErrReadOnly, true},
		"LOADING Redis is loading the dataset in memory":                                       {redisstore.ErrLoading, true},
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL":                   {redisstore.ErrBusy, true},
		"NOREPLICAS Not enough good replicas to write.":                                        {redisstore.ErrNoReplicas, true},
		"CLUSTERDOWN Hash slot not served":                                                     {redisstore.ErrCluster, true},
		"MASTERDOWN Link with MASTER is down":                                                  {redisstore.ErrCluster, true},
		"TRYAGAIN Multiple keys request during rehashing of slot":                              {redisstore.ErrCluster, true},
		"MOVED 3999 127.0.0.1:6381":                                                            {redisstore.ErrCluster, true},
		"ERR max number of clients reached":                                                    {redisstore.ErrMaxClients, true},
		"OOM command not allowed when used memory > 'maxmemory'.":                              {redisstore.ErrOutOfMemory, false},
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to":      {redisstore.ErrMisconfigured, false},
		"NOAUTH Authentication required.":                                                      {redisstore.ErrAuth, false},
		"WRONGPASS invalid username-password pair or user is disabled.":                        {redisstore.ErrAuth, false},
		"ERR invalid password":                                                                 {redisstore.ErrAuth, false},
		"ERR Client sent AUTH, but no password is set":                                         {redisstore.ErrAuth, false},
		"NOPERM this user has no permissions to run the 'evalsha' command":                     {redisstore.ErrNoPermission, false},
		"ERR The user executing the script can't run this command or subcommand script: 4f":    {redisstore.ErrNoPermission, false},
		"ERR ACL failure in script: this user has no permissions to run the 'pexpire' command": {redisstore.ErrNoPermission, false},
		"WRONGTYPE Operation against a key holding the wrong kind of value":                    {redisstore.ErrWrongType, false},
		"CROSSSLOT Keys in request don't hash to the same slot":                                {redisstore.ErrCrossSlot, false},
	} {
		client := server.Client(t)
		client.AddHook(refusing{redisError(text)})
		_, err := locker(t, client, lock.Config{RetryFor: -1}).Mutex("a").TryLock(t.Context())
		isFault(t, err, test.class)
		assert.Equal(t, test.passing, errors.Is(err, driver.ErrUnavailable), text)
	}
	client := server.Client(t)
	client.AddHook(refusing{redisError("ERR something new")})
	_, err := locker(t, client, lock.Config{}).Mutex("a").TryLock(t.Context())
	var refusal *redisstore.ServerError
	require.ErrorAs(t, err, &refusal)
	assert.NoError(t, refusal.Fault)
	assert.ErrorContains(t, err, "something new")
}

// refusing is a hook that answers every command with a server's error.
type refusing struct{ err error }

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func (refusing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h refusing) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(h.err)
		return h.err
	}
}
func (refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestMisconfiguredServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Directives: []string{`save "3600 1000000"`}})
	l := locker(t, server.Client(t), lock.Config{TTL: time.Minute})
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
	}, 10*time.Second, 5*time.Millisecond)
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
			l := locker(t, client, lock.Config{})
			begin := time.Now()
			_, err := l.Mutex("a").Lock(t.Context())
			isFault(t, err, redisstore.ErrAuth)
			assert.NotErrorIs(t, err, driver.ErrUnavailable)
			assert.Less(t, time.Since(begin), time.Second, "it is no use to try again")
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
	for _, user := range []string{"nokeys", "noscript", "nocommand"} {
		_, err := locker(t, as(user), lock.Config{}).Mutex("a").TryLock(t.Context())
		isFault(t, err, redisstore.ErrNoPermission)
	}
	// A grant that failed midway is released.
	require.Eventually(t, func() bool {
		n, err := server.Client(t).Exists(t.Context(), "a").Result()
		return err == nil && n == 0
	}, 5*time.Second, 10*time.Millisecond)

	l := locker(t, as("nochannel"), lock.Config{TTL: time.Minute, Poll: 100 * time.Millisecond})
	other := locker(t, server.Client(t), lock.Config{})
	lease := mustLock(t, other, "a")
	time.AfterFunc(300*time.Millisecond, func() { _ = lease.Unlock(context.Background()) })
	mine := mustLock(t, l, "a") // it waits without messages, by polling
	isFault(t, mine.Unlock(t.Context()), redisstore.ErrNoPermission)
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
	_, err := locker(t, server.Client(t), lock.Config{RetryFor: 200 * time.Millisecond}).Mutex("a").TryLock(t.Context())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
	for _, conn := range crowd {
		_ = conn.Close()
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	store, err := redisstore.Open("redis://user:"+secret+"@127.0.0.1:1/0", redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	l, err := lock.New(store, lock.Config{RequestTimeout: 500 * time.Millisecond})
	require.NoError(t, err)
	defer l.Close(context.Background())
	begin := time.Now()
	_, err = l.Mutex("a").TryLock(t.Context())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
	assert.NotContains(t, err.Error(), secret)
	assert.NotContains(t, err.Error(), "\n")
	assert.Less(t, time.Since(begin), 3*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, store.Ping(ctx), driver.ErrUnavailable)
}
