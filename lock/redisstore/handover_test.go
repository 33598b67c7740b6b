package redisstore_test

import (
	"fmt"
	"runtime"
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
)

const mutexQueue = "leasewheel_lock_line:{a}"

// awaitQueued waits until n clients are in the wait queue of the lock called a, and returns
// their owners in order.
func awaitQueued(t testing.TB, admin *redis.Client, n int) (owners []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		members := admin.ZRange(t.Context(), mutexQueue, 0, -1).Val()
		owners = nil
		for _, member := range members {
			owner, _, _ := strings.Cut(member, " ")
			owners = append(owners, owner)
		}
		return len(owners) == n
	}, 10*time.Second, time.Millisecond, "%d queued", n)
	return owners
}

// startWaiter makes the locker wait for the lock called a.
func startWaiter(t testing.TB, l *lock.Locker) <-chan *lock.Lease {
	got := make(chan *lock.Lease, 1)
	go send(got, func() *lock.Lease { return mustLock(t, l, "a") })
	return got
}

// A release grants the lock to the longest waiting client, on that client's channel. The
// next ones send no requests.
func TestReleaseGrantsToTheFirstInLine(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	first := locker(t, server.Client(t), lock.Config{TTL: 20 * time.Second, Poll: time.Hour})
	lease := mustLock(t, first, "a")
	var waiting []<-chan *lock.Lease
	var clients []string
	for i := range 3 {
		l := locker(t, server.Client(t), lock.Config{TTL: 20 * time.Second, Poll: time.Hour})
		waiting = append(waiting, startWaiter(t, l))
		clients = append(clients, l.ClientID())
		awaitQueued(t, admin, i+1)
	}
	hears := admin.Subscribe(t.Context(), "redisson_lock__channel:{a}")
	_, err := hears.Receive(t.Context())
	require.NoError(t, err)

	previous := lease
	for i, got := range waiting {
		require.NoError(t, previous.Unlock(t.Context()))
		if i == 1 { // the subscriber above counts as a client that does not enter the queue
			message, err := hears.ReceiveMessage(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "0", message.Payload, "every other turn the lock is left to the others")
			require.NoError(t, hears.Close())
			require.Eventually(t, func() bool {
				return admin.PubSubNumSub(t.Context(), "redisson_lock__channel:{a}").Val()["redisson_lock__channel:{a}"] == 3
			}, 10*time.Second, time.Millisecond, "three of ours")
		} else {
			holders := admin.HKeys(t.Context(), "a").Val()
			require.Len(t, holders, 1)
			assert.Equal(t, clients[i], strings.Split(holders[0], ":")[0])
			if i == 0 { // the last one got a notice to ask, one release before, and may do so only now
				left := admin.PTTL(t.Context(), "a").Val()
				assert.True(t, left > 3*time.Second && left <= 5*time.Second, "until it renews, the lock is its for a fourth of the TTL: %v", left)
			}
		}
		next := <-got
		assert.Equal(t, clients[i], strings.Split(next.Owner(), ":")[0])
		assert.Greater(t, next.Token(), previous.Token())
		assert.True(t, next.Valid())
		previous = next
	}
	require.NoError(t, previous.Unlock(t.Context()))
	assert.Zero(t, admin.Exists(t.Context(), "a", mutexQueue).Val())
}

// A hand-over grants for the provisional TTL; the first renewal prolongs it to the TTL.
func TestHandedLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	mine, theirs := locker(t, server.Client(t), lock.Config{}), locker(t, server.Client(t), lock.Config{TTL: 12 * time.Second})
	lease := mustLock(t, mine, "a")
	got := startWaiter(t, theirs)
	awaitQueued(t, admin, 1)
	begin := time.Now()
	require.NoError(t, lease.Unlock(t.Context()))
	handed := <-got
	const provisional = 3 * time.Second // of which the first renewal comes after a third
	assert.Less(t, handed.Until().Sub(begin), provisional+100*time.Millisecond)
	require.Eventually(t, func() bool { return time.Until(handed.Until()) > 3*provisional }, 10*time.Second, time.Millisecond)
	time.Sleep(time.Until(begin.Add(provisional + 100*time.Millisecond)))
	require.NoError(t, handed.Err())
	require.NoError(t, handed.Unlock(t.Context()))

	// A fixed lease is not renewed, so it is handed over for its full time.
	lease = mustLock(t, mine, "a")
	fixed := make(chan *lock.Lease, 1)
	go func() {
		lease, err := theirs.Mutex("a").With(lock.Options{Fixed: true, TTL: 3 * time.Second}).Lock(t.Context())
		assert.NoError(t, err)
		fixed <- lease
	}()
	awaitQueued(t, admin, 1)
	require.NoError(t, lease.Unlock(t.Context()))
	handed = <-fixed
	assert.Greater(t, time.Until(handed.Until()), 2*time.Second)
	require.NoError(t, handed.Unlock(t.Context()))
}

// Each hand-over takes two commands for any number of clients: one to enqueue, one to
// release.
func TestCommandsOfAHandOver(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	const clients, rounds = 8, 50
	lockers := make([]*lock.Locker, clients)
	for i := range lockers {
		lockers[i] = locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	}
	var work sync.WaitGroup
	var holders, commands atomic.Int64
	contend := func() {
		for _, l := range lockers {
			work.Go(func() {
				for range rounds {
					lease := mustLock(t, l, "a")
					if holders.Add(1) != 1 {
						t.Error("two holders")
					}
					runtime.Gosched()
					holders.Add(-1)
					assert.NoError(t, lease.Unlock(t.Context()))
				}
			})
		}
		work.Wait()
	}
	contend() // connections and subscriptions are made
	before := scripts(t, admin)
	contend()
	commands.Store(scripts(t, admin) - before)
	assert.LessOrEqual(t, float64(commands.Load())/(clients*rounds), 2.2)
}

// scripts returns how many script commands clients have sent.
func scripts(t *testing.T, admin *redis.Client) (calls int64) {
	t.Helper()
	stats := admin.InfoMap(t.Context(), "commandstats")
	for _, command := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		var n int64
		if _, err := fmt.Sscanf(stats.Item("Commandstats", command), "calls=%d", &n); err == nil {
			calls += n
		}
	}
	return calls
}

// A release itself skips a waiter whose process has died.
func TestReleasePassesOverTheDead(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	mine, theirs := locker(t, server.Client(t), lock.Config{}), locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	lease := mustLock(t, mine, "a")
	got := startWaiter(t, theirs)
	awaitQueued(t, admin, 1)
	for i := range 100 { // before it in the queue, and without subscribers
		require.NoError(t, admin.ZAdd(t.Context(), mutexQueue, redis.Z{
			Score: float64(i), Member: fmt.Sprintf("285475da-9152-4c83-822a-67ee2f116a79:%d 30000 0", i),
		}).Err())
	}
	require.NoError(t, lease.Unlock(t.Context()))
	handed := <-got
	assert.Equal(t, map[string]string{handed.Owner(): "1"}, admin.HGetAll(t.Context(), "a").Val())
	require.NoError(t, handed.Unlock(t.Context()))
}

// A frozen client that is granted the lock keeps it for the provisional TTL, well under a
// TTL. Then the next waiter gets it.
func TestOfferToTheFrozenEnds(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	mine, theirs := locker(t, server.Client(t), lock.Config{}), locker(t, server.Client(t), lock.Config{})
	const frozen = "285475da-9152-4c83-822a-67ee2f116a79"
	conn := admin.Subscribe(t.Context(), "leasewheel_lock__channel:{a}", "leasewheel_lock__channel:{a}:"+frozen)
	defer func() { assert.NoError(t, conn.Close()) }()
	_, err := conn.Receive(t.Context())
	require.NoError(t, err)
	lease := mustLock(t, mine, "a")
	got := startWaiter(t, theirs)
	awaitQueued(t, admin, 1)
	require.NoError(t, admin.ZAdd(t.Context(), mutexQueue, redis.Z{Score: 1, Member: frozen + ":1 1000 0"}).Err())
	begin := time.Now()
	require.NoError(t, lease.Unlock(t.Context()))
	next := <-got
	took := time.Since(begin)
	assert.GreaterOrEqual(t, took, 900*time.Millisecond)
	assert.Less(t, took, 10*time.Second, "with a TTL of 30 s")
	require.NoError(t, next.Unlock(t.Context()))
}

// A grant to a waiter that has given up goes on to the next one.
func TestGrantToOneThatGaveUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	const clients = 4
	var work sync.WaitGroup
	var taken atomic.Int64
	end := time.Now().Add(3 * time.Second)
	for i := range clients {
		l := locker(t, server.Client(t), lock.Config{Poll: time.Hour})
		work.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				lease, err := l.Mutex("a").LockWithin(t.Context(), time.Duration(n%7*(i+1))*200*time.Microsecond)
				if err == nil {
					taken.Add(1)
					err = lease.Unlock(t.Context())
				} else if e := (*lock.NotAcquiredError)(nil); assert.ErrorAs(t, err, &e) {
					err = nil
				}
				assert.NoError(t, err)
			}
		})
	}
	work.Wait()
	l := locker(t, server.Client(t), lock.Config{})
	begin := time.Now()
	require.NoError(t, mustLock(t, l, "a").Unlock(t.Context()))
	assert.Less(t, time.Since(begin), 5*time.Second, "no grant was left to its TTL, which is 7.5 s for a waiter")
	assert.Greater(t, taken.Load(), int64(10))
}

// A client of Redisson's, which does not enter the queue, gets its share among clients
// that hand the lock over to each other without a pause.
func TestHandOverDoesNotStarveRedisson(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	ours, stop := contend(t, server, 4, 0)
	const channel = "redisson_lock__channel:{a}"
	theirs := newRedisson(t, server)
	hears := theirs.client.Subscribe(t.Context(), channel)
	messages := hears.Channel()
	const turns = 40
	begin, before := time.Now(), ours.Load()
	for range turns {
		for theirs.tryLock("a", 30*time.Second) != nil {
			select {
			case <-messages:
			case <-time.After(10 * time.Second):
				t.Fatal("a client of Redisson's is starved")
			}
		}
		time.Sleep(2 * time.Millisecond) // holds the lock
		require.True(t, theirs.unlock("a", channel))
	}
	took, other := time.Since(begin), ours.Load()-before
	t.Logf("%d turns of theirs took %v; ours had %d meanwhile", turns, took, other)
	// Who is first after a release is a race that ours win about every other time.
	assert.Greater(t, other*9, int64(turns), "and does not starve them: a tenth of the turns is theirs at least")
	require.NoError(t, hears.Close())
	stop()
}

// Tokens are the server's time in microseconds, also in the first tenth of a second,
// whose text has fewer digits.
func TestTokensAreMicroseconds(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	h := &driver.Hold{Name: "a", Owner: "client:1", Count: 1, TTL: time.Minute}
	for short := false; !short; time.Sleep(time.Millisecond) {
		before := admin.Time(t.Context()).Val().UnixMicro()
		granted, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		require.GreaterOrEqual(t, granted.Token, before)
		require.LessOrEqual(t, granted.Token, admin.Time(t.Context()).Val().UnixMicro())
		_, err = store.Release(t.Context(), &driver.Hold{Name: h.Name, Owner: h.Owner, TTL: h.TTL})
		require.NoError(t, err)
		short = granted.Token%1_000_000 < 100_000
	}
}
