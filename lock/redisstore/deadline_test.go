package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// A request that reaches the server after its caller gave up changes nothing there.
func TestLateRequestChangesNothing(t *testing.T) {
	t.Parallel()
	server := startLate(t)
	admin := server.Client(t)
	const owner = "00000000-0000-4000-8000-000000000001:1"
	hold := func(kind driver.Kind, wait time.Duration) *driver.Hold {
		h := &driver.Hold{Kind: kind, Name: "a", Owner: owner, Count: 1, TTL: time.Minute, Queue: inQueue(wait), ReadWrite: driver.ReadWrite{BlockReaders: wait}}
		switch kind {
		case driver.KindPermit:
			h.Owner = strings.Repeat("ab", 16)
		case driver.KindSemaphore:
			h.Semaphore.Permits = 1
		}
		return h
	}
	held := func(ctx context.Context, admin *redis.Client) {
		admin.HSet(ctx, "a", "00000000-0000-4000-8000-000000000002:1", 1)
		admin.PExpire(ctx, "a", time.Hour)
	}
	counted := func(ctx context.Context, admin *redis.Client) { admin.Set(ctx, "a", 3, 0) }
	acquires := func(h *driver.Hold) func(context.Context, *redisstore.Store) error {
		return func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Acquire(ctx, h)
			return err
		}
	}
	none := func(context.Context, *redis.Client) {}
	// mine is a hold of the owner that ends in an hour. A renewal would make it two
	// hours.
	mine := func(kind driver.Kind) func(context.Context, *redis.Client) {
		return func(ctx context.Context, admin *redis.Client) {
			at := float64(time.Now().Add(time.Hour).UnixMilli())
			switch kind {
			case driver.KindRead:
				admin.HSet(ctx, "a", "mode", "read", owner, 1)
				admin.Set(ctx, "{a}:"+owner+":rwlock_timeout:1", 1, time.Hour)
			case driver.KindWrite:
				admin.HSet(ctx, "a", "mode", "write", owner+":write", 1)
			case driver.KindPermit:
				admin.ZAdd(ctx, "{a}:timeout", redis.Z{Score: at, Member: strings.Repeat("\xab", 16)})
			default:
				admin.HSet(ctx, "a", owner, 1)
			}
			admin.PExpireAt(ctx, "a", time.UnixMilli(int64(at)))
		}
	}
	renews := func(kind driver.Kind) func(context.Context, *redisstore.Store) error {
		h := hold(kind, 0)
		h.TTL = 2 * time.Hour
		return func(ctx context.Context, s *redisstore.Store) error { return renewItems(ctx, s, h)[0].Err }
	}
	counts := func(kind driver.Kind, op driver.CountOp, n int64) func(context.Context, *redisstore.Store) error {
		return func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Count(ctx, &driver.Count{Kind: kind, Name: "a", Op: op, N: n, Request: "r", Keep: time.Minute})
			return err
		}
	}
	givesBack := func(owed bool) func(context.Context, *redisstore.Store) error {
		return func(ctx context.Context, s *redisstore.Store) error {
			h := hold(driver.KindSemaphore, 0)
			h.Count, h.Semaphore.Owed = 0, owed
			_, err := s.Release(ctx, h)
			return err
		}
	}
	taken := func(ctx context.Context, admin *redis.Client) {
		counted(ctx, admin)
		admin.Set(ctx, "leasewheel_request:{a}:"+owner, "taken", 0)
	}
	forces := func(ctx context.Context, s *redisstore.Store) error {
		_, err := s.ForceRelease(ctx, "a")
		return err
	}
	enqueued := func(ctx context.Context, admin *redis.Client) { // to expire in half an hour
		held(ctx, admin)
		at := float64(time.Now().Add(30 * time.Minute).UnixMilli())
		admin.RPush(ctx, "redisson_lock_queue:{a}", owner)
		admin.ZAdd(ctx, "redisson_lock_timeout:{a}", redis.Z{Score: at, Member: owner})
		admin.ZAdd(ctx, "leasewheel_lock_places:{a}", redis.Z{Score: at, Member: owner})
	}
	keeps := func(ctx context.Context, s *redisstore.Store) error {
		_, err := s.KeepPlaces(ctx, "a", []string{owner}, time.Hour)
		return err
	}
	fences := func(ctx context.Context, s *redisstore.Store) error {
		_, err := s.Fence(ctx, hold(driver.KindMutex, 0), 1<<52)
		return err
	}
	for _, c := range []struct {
		name   string
		format redisstore.Format
		before func(context.Context, *redis.Client)
		late   func(context.Context, *redisstore.Store) error
	}{
		{"Mutex", redisstore.FormatRedisson, none, acquires(hold(driver.KindMutex, 0))},
		{"MutexQueued", redisstore.FormatRedisson, held, acquires(hold(driver.KindMutex, time.Minute))},
		{"Plain", redisstore.FormatPlain, none, acquires(hold(driver.KindMutex, 0))},
		{"Fair", redisstore.FormatRedisson, none, acquires(hold(driver.KindFair, time.Minute))},
		{"FairQueued", redisstore.FormatRedisson, held, acquires(hold(driver.KindFair, time.Minute))},
		{"FairKept", redisstore.FormatRedisson, enqueued, keeps},
		{"Read", redisstore.FormatRedisson, none, acquires(hold(driver.KindRead, 0))},
		{"Write", redisstore.FormatRedisson, none, acquires(hold(driver.KindWrite, time.Minute))},
		{"Semaphore", redisstore.FormatRedisson, counted, acquires(hold(driver.KindSemaphore, 0))},
		{"Permit", redisstore.FormatRedisson, counted, acquires(hold(driver.KindPermit, 0))},

		{"RenewMutex", redisstore.FormatRedisson, mine(driver.KindMutex), renews(driver.KindMutex)},
		{"RenewRead", redisstore.FormatRedisson, mine(driver.KindRead), renews(driver.KindRead)},
		{"RenewWrite", redisstore.FormatRedisson, mine(driver.KindWrite), renews(driver.KindWrite)},
		{"RenewPermit", redisstore.FormatRedisson, mine(driver.KindPermit), renews(driver.KindPermit)},

		{"CreateSemaphore", redisstore.FormatRedisson, none, counts(driver.KindSemaphore, driver.CountCreate, 3)},
		{"AddPermits", redisstore.FormatRedisson, counted, counts(driver.KindSemaphore, driver.CountAdd, 3)},
		{"AddExpiringPermits", redisstore.FormatRedisson, counted, counts(driver.KindPermit, driver.CountAdd, 3)},
		{"Drain", redisstore.FormatRedisson, counted, counts(driver.KindSemaphore, driver.CountDrain, 0)},
		{"DeleteSemaphore", redisstore.FormatRedisson, counted, counts(driver.KindSemaphore, driver.CountDelete, 0)},
		{"CreateLatch", redisstore.FormatRedisson, none, counts(driver.KindLatch, driver.CountCreate, 3)},
		{"CountDown", redisstore.FormatRedisson, counted, counts(driver.KindLatch, driver.CountAdd, -1)},
		{"DeleteLatch", redisstore.FormatRedisson, counted, counts(driver.KindLatch, driver.CountDelete, 0)},
		{"ReleaseTaken", redisstore.FormatRedisson, taken, givesBack(false)},
		{"ReleaseOwed", redisstore.FormatRedisson, counted, givesBack(true)},
		{"Force", redisstore.FormatRedisson, mine(driver.KindMutex), forces},
		{"Fence", redisstore.FormatRedisson, mine(driver.KindMutex), fences},
	} {
		t.Run(c.name, func(t *testing.T) {
			server.clock.step(t, 0)
			require.NoError(t, admin.FlushDB(t.Context()).Err())
			store, stall := server.open(t, c.format)
			c.before(t.Context(), admin)
			// The store has read the server's clock, and the server has the script.
			require.NoError(t, c.late(t.Context(), store))
			require.NoError(t, admin.FlushDB(t.Context()).Err())
			c.before(t.Context(), admin)
			before, lives := contents(t, admin), ends(t, admin)

			server.beLate(t, stall, func(ctx context.Context) {
				assert.ErrorIs(t, c.late(ctx, store), driver.ErrUnavailable)
			})
			assert.Equal(t, before, contents(t, admin))
			assert.Equal(t, lives, ends(t, admin))
		})
	}
}

// lateServer is a server whose clock is set while a request is on its way.
type lateServer struct {
	*redistest.Server
	clock steppedClock
}

func startLate(t *testing.T) lateServer {
	t.Helper()
	clock := newSteppedClock(t)
	return lateServer{redistest.Start(t, redistest.Config{Env: clock.env()}), clock}
}

// open returns a store of which one script stalls once it is armed.
func (s lateServer) open(t *testing.T, format redisstore.Format) (*redisstore.Store, *stalling) {
	t.Helper()
	options := s.Options()
	stall := newStalling("evalsha", new(net.Dialer).DialContext)
	options.Dialer = stall.dial
	client := redis.NewClient(options)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return openWith(t, client, redisstore.Config{Format: format}), stall
}

// beLate makes a request whose caller gives up, and which arrives after its deadline.
func (s lateServer) beLate(t *testing.T, stall *stalling, request func(context.Context)) {
	t.Helper()
	const within = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	stall.armed.Store(true)
	close(stall.giveUp)
	request(ctx)
	s.clock.step(t, s.clock.stepped(t)+2*within) // the estimate of the server's clock errs by less
	close(stall.deliver)
	<-stall.arrived
}

// ends returns when every key of the server expires, by its clock.
func ends(t *testing.T, admin *redis.Client) map[string]time.Duration {
	t.Helper()
	keys, err := admin.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	all := make(map[string]time.Duration, len(keys))
	for _, key := range keys {
		all[key] = admin.PExpireTime(t.Context(), key).Val()
	}
	return all
}

// contents returns the value of every key of the server.
func contents(t *testing.T, admin *redis.Client) map[string]string {
	t.Helper()
	keys, err := admin.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	dumps := make(map[string]string, len(keys))
	for _, key := range keys {
		dumps[key] = admin.Dump(t.Context(), key).Val()
	}
	return dumps
}

// A renewal that arrives late changes nothing either: by then the lease may belong to
// another attempt of the owner, or have been released.
func TestLateRenewalProlongsNothing(t *testing.T) {
	t.Parallel()
	server := startLate(t)
	admin := server.Client(t)
	for name, c := range map[string]struct {
		format redisstore.Format
		kind   driver.Kind
	}{
		"Mutex": {redisstore.FormatRedisson, driver.KindMutex},
		"Plain": {redisstore.FormatPlain, driver.KindMutex},
		"Fair":  {redisstore.FormatRedisson, driver.KindFair},
		"Read":  {redisstore.FormatRedisson, driver.KindRead},
		"Write": {redisstore.FormatRedisson, driver.KindWrite},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, admin.FlushDB(t.Context()).Err())
			store, stall := server.open(t, c.format)
			h := mutexOf("a", 1)
			h.Kind, h.TTL = c.kind, time.Hour
			_, err := store.Acquire(t.Context(), h)
			require.NoError(t, err)
			const left = 35 * time.Minute // less than half of a lease looks like another reader's doing
			shorten := func() {
				for _, key := range admin.Keys(t.Context(), "*").Val() {
					require.NoError(t, admin.PExpire(t.Context(), key, left).Err())
				}
			}
			shorten()
			require.Equal(t, renewal.Renewed, renewItems(t.Context(), store, h)[0].Outcome)
			require.Greater(t, admin.PTTL(t.Context(), "a").Val(), 50*time.Minute, "in time it does")
			shorten()
			before := ends(t, admin)
			server.beLate(t, stall, func(ctx context.Context) {
				item := renewItems(ctx, store, h)[0]
				assert.Equal(t, renewal.Unknown, item.Outcome)
				assert.ErrorIs(t, item.Err, driver.ErrUnavailable)
			})
			assert.Equal(t, before, ends(t, admin))
		})
	}
}

// A reading of a clock that was set back since, or of another server's, lets no late
// request through.
func TestLateRequestAfterTheClockWasSetBackChangesNothing(t *testing.T) {
	t.Parallel()
	server := startLate(t)
	store, stall := server.open(t, redisstore.FormatRedisson)
	use := func() {
		_, err := store.Acquire(t.Context(), mutexOf("warm up", 1))
		require.NoError(t, err)
	}
	use()
	server.clock.step(t, -time.Hour)
	use()
	server.beLate(t, stall, func(ctx context.Context) {
		_, err := store.Acquire(ctx, mutexOf("stalled", 1))
		assert.ErrorIs(t, err, driver.ErrUnavailable)
	})
	assert.Zero(t, server.Client(t).Exists(t.Context(), "stalled").Val(), "it is held by nobody")
}

// stalling makes connections, one of which stalls once it is armed: the next write with a
// certain text arrives late, after the writer has given up.
type stalling struct {
	text             string
	connect          func(ctx context.Context, network, address string) (net.Conn, error)
	armed            atomic.Bool
	written, arrived chan struct{} // closed when it was written, and when it was answered
	deliver          chan struct{} // is closed to deliver it
	giveUp           chan struct{} // may be closed to have its writer read no longer
}

func newStalling(text string, connect func(ctx context.Context, network, address string) (net.Conn, error)) *stalling {
	return &stalling{
		text: text, connect: connect,
		written: make(chan struct{}), arrived: make(chan struct{}), deliver: make(chan struct{}), giveUp: make(chan struct{}),
	}
}

func (s *stalling) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	closed := make(chan struct{})
	return &stallingConn{Conn: conn, stall: s, closed: closed, end: sync.OnceFunc(func() { close(closed) })}, nil
}

type stallingConn struct {
	net.Conn
	stall   *stalling
	stalled atomic.Bool
	by      atomic.Pointer[time.Time] // the deadline of reading
	closed  chan struct{}
	end     func() // closes closed
}

func (c *stallingConn) Write(b []byte) (int, error) {
	s := c.stall
	if !bytes.Contains(b, []byte("\r\n"+s.text+"\r\n")) || !s.armed.CompareAndSwap(true, false) {
		return c.Conn.Write(b)
	}
	c.stalled.Store(true)
	close(s.written)
	request := bytes.Clone(b)
	go func() {
		<-s.deliver
		_ = c.Conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = c.Conn.Write(request)
		_, _ = c.Conn.Read(make([]byte, 1))
		_ = c.Conn.Close()
		close(s.arrived)
	}()
	return len(b), nil
}

func (c *stallingConn) SetReadDeadline(by time.Time) error {
	c.by.Store(&by)
	return c.Conn.SetReadDeadline(by)
}

// Read returns nothing on a stalled connection, until its deadline.
func (c *stallingConn) Read(b []byte) (int, error) {
	if !c.stalled.Load() {
		return c.Conn.Read(b)
	}
	select {
	case <-c.stall.giveUp:
	case <-c.closed:
	case <-time.After(time.Until(*c.by.Load())):
	}
	return 0, os.ErrDeadlineExceeded
}

func (c *stallingConn) Close() error {
	if c.stalled.Load() {
		c.end()
		return nil
	}
	return c.Conn.Close()
}

// A connection stalls after the request for a lock was written. The caller gives up, or
// gets the lock by another attempt and unlocks it. When the request arrives at last,
// after the cleanup, the lock stays free.
func TestStalledRequestHoldsNoLock(t *testing.T) {
	t.Parallel()
	for _, format := range []redisstore.Format{redisstore.FormatRedisson, redisstore.FormatPlain} {
		for _, delay := range []time.Duration{1500 * time.Millisecond, 3 * time.Second, 6 * time.Second} {
			for _, cancelled := range []bool{true, false} {
				t.Run(fmt.Sprintf("%v %v cancelled=%v", format, delay, cancelled), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { stallRequest(t, format, delay, cancelled) })
				})
			}
		}
	}
}

func stallRequest(t *testing.T, format redisstore.Format, delay time.Duration, cancelled bool) {
	server, wire := startNetwork(t)
	stall := newStalling("stalled", wire.dial)
	options := wire.options()
	options.Dialer = stall.dial
	client := redis.NewClient(options)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	l := lockerOn(t, openWith(t, client, redisstore.Config{Format: format}), lock.Config{
		TTL: driver.DefaultTTL, RequestTimeout: driver.DefaultRequestTimeout,
	})
	require.NoError(t, mustLock(t, l, "warm up").Unlock(t.Context()))

	stall.armed.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-stall.written
		if cancelled {
			cancel()
		}
		time.Sleep(delay)
		close(stall.deliver)
	}()
	lease, err := l.Mutex("stalled").Lock(ctx)
	if cancelled {
		require.ErrorIs(t, err, context.Canceled)
	} else {
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	<-stall.arrived
	admin := server.Client(t)
	for range 50 {
		require.Zero(t, admin.Exists(t.Context(), "stalled").Val(), "it is held by nobody")
		time.Sleep(10 * time.Millisecond)
	}
}

// A lock is granted over a network whose round trip is well within RequestTimeout, but
// too long for two.
func TestSlowRoundTripGetsTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, wire := startNetwork(t)
		client := wire.client(t)
		wire.set(redistest.Fault{Delay: 20 * time.Millisecond})
		var work sync.WaitGroup
		for range 6 { // with connections: making one takes another round trip
			work.Go(func() { assert.NoError(t, client.Ping(t.Context()).Err()) })
		}
		work.Wait()
		wire.set(redistest.Fault{Delay: 300 * time.Millisecond})
		l := locker(t, client, lock.Config{TTL: driver.DefaultTTL, RequestTimeout: driver.DefaultRequestTimeout})
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		lease, err := l.Mutex("a").Lock(ctx)
		require.NoError(t, err)
		wire.heal()
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A request that is preceded by a slow reading of the server's clock is not sent if its reply would come too
// late: its caller would not know whether it was carried out.
func TestSlowReadingOfTheClock(t *testing.T) {
	for _, test := range []struct {
		delay, within time.Duration
		sent          int // with the reading
	}{
		{400 * time.Millisecond, time.Second, 1},
		{400 * time.Millisecond, 2 * time.Second, 2},
		{200 * time.Millisecond, 700 * time.Millisecond, 2}, // which is not slow
	} {
		synctest.Test(t, func(t *testing.T) {
			_, wire := startNetwork(t)
			store := open(t, wire.client(t))
			learnScripts(t, store)
			time.Sleep(20 * time.Minute) // the last reading is too old
			before := wire.scripts()
			wire.set(redistest.Fault{Delay: test.delay})
			ctx, cancel := context.WithTimeout(t.Context(), test.within)
			defer cancel()
			_, err := store.Acquire(ctx, mutexOf("a", 1))
			assert.Equal(t, test.sent == 1, errors.Is(err, driver.ErrNotDone), "%v", err)
			assert.Equal(t, test.sent, wire.scripts()-before)
			wire.heal()
		})
	}
}
