package redisstore_test

import (
	"context"
	"strconv"
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

// granting is a kind of lock that is granted by a script: one hold and its store.
type granting struct {
	name   string
	hold   *driver.Hold
	config redisstore.Config
}

// grantings returns one of each kind. Those with counts need the counts of [giveCounts].
func grantings() (all []granting) {
	for kind := driver.KindMutex; kind.String() != "unknown"; kind++ {
		if kind != driver.KindLatch { // its grant takes nothing
			all = append(all, granting{kind.String(), heldFor(kind, 1), redisstore.Config{}})
		}
	}
	plain := redisstore.Config{Format: redisstore.FormatPlain}
	all = append(all, granting{"plain lock", heldFor(driver.KindMutex, 1), plain})
	plain.PlainTokens = true
	all = append(all, granting{"plain lock with tokens", heldFor(driver.KindMutex, 1), plain})
	for _, g := range all {
		g.hold.Name = g.name
	}
	return all
}

// giveCounts gives the kinds with counts five permits each.
func giveCounts(t *testing.T, admin *redis.Client) {
	t.Helper()
	require.NoError(t, admin.MSet(t.Context(), driver.KindSemaphore.String(), 5, driver.KindPermit.String(), 5).Err())
}

// A repeated request, on another connection, waits for the replicas like the first one,
// which was granted without them.
func TestReplicasOfWhatIsGrantedAgain(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, redistest.Config{TCP: true})
	_, address := master.Addr()
	replica := redistest.Start(t, redistest.Config{TCP: true, Directives: []string{"replicaof " + strings.Replace(address, ":", " ", 1)}})
	admin := master.Client(t)
	giveCounts(t, admin)
	master.AwaitReplication(t, 1)
	replica.Pause() // its link is up, and it acknowledges no writes
	defer replica.Resume()
	for _, g := range grantings() {
		g.config.Replicas = 1
		for _, connection := range []string{"one", "another"} {
			store := openWith(t, master.Client(t), g.config)
			_, err := store.Acquire(t.Context(), g.hold)
			require.ErrorIs(t, err, redisstore.ErrUnreplicated, "%s, on %s connection", g.name, connection)
		}
	}
	assert.Equal(t, "4", admin.Get(t.Context(), driver.KindSemaphore.String()).Val(), "taken once")
}

// Every grant is a write, also one that is repeated and changes nothing: WAIT covers only
// what its connection wrote. The server's own count of changes judges it, on any version.
func TestEveryGrantIsAWrite(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	admin := server.Client(t)
	giveCounts(t, admin)
	changes := func() int {
		n, err := strconv.Atoi(admin.InfoMap(t.Context(), "persistence").Item("Persistence", "rdb_changes_since_last_save"))
		require.NoError(t, err)
		return n
	}
	for _, g := range grantings() {
		store := openWith(t, server.Client(t), g.config)
		holds := []struct {
			what  string
			count int64
		}{{"first", 1}, {"repeated", 1}}
		switch g.hold.Kind {
		case driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite:
			holds = append(holds, holds[0], holds[1])
			holds[2].what, holds[2].count = "further", 2
			holds[3].what, holds[3].count = "further, repeated", 2
		}
		for _, request := range holds {
			before := changes()
			g.hold.Count = request.count
			a, err := store.Acquire(t.Context(), g.hold)
			require.NoError(t, err, "%s: %s request", g.name, request.what)
			require.Equal(t, driver.Granted, a.Verdict, "%s: %s request", g.name, request.what)
			assert.Greater(t, changes(), before, "%s: the %s request is granted without a write", g.name, request.what)
		}
	}
}
