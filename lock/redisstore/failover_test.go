package redisstore_test

import (
	"context"
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
)

// fenced is a resource that refuses writes with a token smaller than the largest that it
// has seen.
type fenced struct {
	mu      sync.Mutex
	largest int64
}

func (f *fenced) write(token int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token < f.largest {
		return false
	}
	f.largest = token
	return true
}

// replicated returns a locker that waits for replicas. It ends with t.
func replicated(t testing.TB, client redis.UniversalClient, replicas int, c lock.Config) *lock.Locker {
	t.Helper()
	return lockerOn(t, openWith(t, client, redisstore.Config{Replicas: replicas, ReplicaTimeout: 300 * time.Millisecond}), c)
}

// A failover before replication loses the lock, as documented: two owners hold it by
// their clocks, but their tokens differ, and a holder whose lease is renewed learns of
// the loss at the next renewal.
func TestFailoverBeforeReplication(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	set := redistest.StartSentinels(t, redistest.SentinelConfig{})
	master := set.Master(t)
	mine := locker(t, set.Client(t), lock.Config{TTL: ttl})
	theirs := locker(t, set.Client(t), lock.Config{TTL: ttl})
	resource := &fenced{}

	warm := mustLock(t, mine, "fixed") // gives the replicas an earlier token
	require.True(t, resource.write(warm.Token()))
	require.NoError(t, warm.Unlock(t.Context()))
	master.AwaitReplication(t, 2)

	master.CutReplicas(t)
	fixed, err := mine.Mutex("fixed").With(lock.Options{TTL: time.Minute, Fixed: true}).Lock(t.Context())
	require.NoError(t, err)
	require.True(t, resource.write(fixed.Token()))
	renewed := mustLock(t, mine, "renewed")
	holder := watch(renewed)
	master.Kill()
	set.AwaitFailover(t, master)
	promoted := time.Now()

	second := mustLock(t, theirs, "fixed")
	require.True(t, fixed.Valid() && second.Valid(), "two hold the lock, as documented")
	require.Greater(t, second.Token(), fixed.Token(), "the token grows although its counter was lost")
	require.True(t, resource.write(second.Token()))
	require.False(t, resource.write(fixed.Token()), "and keeps the stale holder out")

	told, loss := holder.lossIsInTime(t, ttl)
	t.Logf("told of the loss %v after the failover, by %v; a renewal is due every %v", told.Sub(promoted).Round(time.Millisecond), loss.Cause, ttl/3)
	assert.Less(t, told.Sub(promoted), ttl/3+time.Second)
	require.ErrorIs(t, renewed.Unlock(t.Context()), lock.ErrLost)
	require.NoError(t, second.Unlock(t.Context()))
}

// If a replica's acknowledgement is required, the same grant is refused and released. The
// test runs alone: sentinels consider a busy machine dead, and the test counts replicas.
func TestFailoverWithReplicas(t *testing.T) {
	set := redistest.StartSentinels(t, redistest.SentinelConfig{})
	master := set.Master(t)
	brief := replicated(t, set.Client(t), 1, lock.Config{})
	long := replicated(t, set.Client(t), 2, lock.Config{RequestTimeout: 10 * time.Second})

	held := mustLock(t, long, "held") // by all replicas, so by the promoted one
	master.CutReplicas(t)
	_, err := brief.Mutex("a").TryLock(t.Context())
	isFault(t, err, redisstore.ErrUnreplicated)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, driver.ErrNotDone)
	admin := master.Client(t)
	require.Eventually(t, func() bool { return admin.Exists(t.Context(), "a").Val() == 0 }, 5*time.Second, 5*time.Millisecond, "the grant is given back")

	got := make(chan error, 1)
	go func() {
		lease, err := long.Mutex("a").TryLock(context.Background())
		if err == nil {
			err = lease.Unlock(context.Background())
		}
		got <- err
	}()
	time.Sleep(500 * time.Millisecond)
	master.AcceptReplicas(t)
	require.NoError(t, <-got, "it is asked for again until the replicas are back")

	set.AwaitReplicas(t)
	master.Kill()
	set.AwaitFailover(t, master)
	_, err = locker(t, set.Client(t), lock.Config{RequestTimeout: 10 * time.Second}).Mutex("held").TryLock(t.Context())
	require.ErrorIs(t, err, lock.ErrNotAcquired, "what was replicated survives a failover")
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock(t.Context()))
}

func TestReplicasAreValidated(t *testing.T) {
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer client.Close()
	for says, c := range map[string]redisstore.Config{
		"Replicas -1":        {Replicas: -1},
		"ReplicaTimeout 1µs": {ReplicaTimeout: time.Microsecond},
	} {
		_, err := redisstore.New(client, c)
		require.ErrorContains(t, err, says)
	}
}

// All kinds of lock wait for their replicas, also in a cluster. Waiters get the lock by
// their own requests, not by a grant that waits for no replica.
func TestReplicasOfEveryKind(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Replicas: 1})
	l := replicated(t, cluster.Client(t), 1, lock.Config{RequestTimeout: 10 * time.Second})
	tooMany := replicated(t, cluster.Client(t), 9, lock.Config{RequestTimeout: 3 * time.Second})
	for name, handle := range map[string]func(*lock.Locker) *lock.Mutex{
		"mutex": func(l *lock.Locker) *lock.Mutex { return l.Mutex("m") },
		"fair":  func(l *lock.Locker) *lock.Mutex { return l.Fair("f") },
		"read":  func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("rw").Read() },
		"write": func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("rw").Write() },
	} {
		lease, err := handle(l).Lock(t.Context())
		require.NoError(t, err, name)
		next := make(chan error, 1)
		if name == "mutex" || name == "fair" {
			go func() {
				lease, err := handle(l).Lock(context.Background())
				if err == nil {
					err = lease.Unlock(context.Background())
				}
				next <- err
			}()
			time.Sleep(50 * time.Millisecond)
		} else {
			next <- nil
		}
		require.NoError(t, lease.Unlock(t.Context()), name)
		require.NoError(t, <-next, name)
		_, err = handle(tooMany).TryLock(t.Context())
		isFault(t, err, redisstore.ErrUnreplicated)
		require.Eventually(t, func() bool { // once it was released
			lease, err := handle(l).TryLock(t.Context())
			return err == nil && lease.Unlock(t.Context()) == nil
		}, 10*time.Second, 10*time.Millisecond, name)
	}
}

// Semaphores, permits and plain locks wait too. So does a repeated request, on another
// connection, for a hold that was granted without replicas.
func TestReplicasOfWhatIsGrantedAgain(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, redistest.Config{TCP: true})
	_, address := master.Addr()
	replica := redistest.Start(t, redistest.Config{TCP: true, Directives: []string{"replicaof " + strings.Replace(address, ":", " ", 1)}})
	admin := master.Client(t)
	require.NoError(t, admin.MSet(t.Context(), "semaphore", 5, "permits", 5).Err())
	master.AwaitReplication(t, 1)
	replica.Pause() // its link is up, and it acknowledges no writes
	defer replica.Resume()
	const client = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	for _, hold := range []driver.Hold{
		{Kind: driver.KindSemaphore, Name: "semaphore", Owner: client + ":1", Permits: 1},
		{Kind: driver.KindPermit, Name: "permits", Owner: strings.Repeat("ab", 16)},
		{Kind: driver.KindMutex, Name: "plain", Owner: client + ":1"},
	} {
		hold.Count, hold.TTL = 1, time.Minute
		c := redisstore.Config{Replicas: 1}
		if hold.Name == "plain" {
			c.Format = redisstore.FormatPlain
		}
		for _, connection := range []string{"one", "another"} {
			store := openWith(t, master.Client(t), c)
			_, err := store.Acquire(t.Context(), &hold)
			require.ErrorIs(t, err, redisstore.ErrUnreplicated, "%s, on %s connection", hold.Name, connection)
		}
	}
	assert.Equal(t, "4", admin.Get(t.Context(), "semaphore").Val(), "taken once")
}
