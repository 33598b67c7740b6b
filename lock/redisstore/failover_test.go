package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
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

func TestSettingsAreValidated(t *testing.T) {
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer client.Close()
	for says, c := range map[string]redisstore.Config{
		"Replicas -1":                 {Replicas: -1},
		"ReplicaTimeout 1µs":          {ReplicaTimeout: time.Microsecond},
		"FairLockWaitTimeout 999ms":   {FairLockWaitTimeout: 999 * time.Millisecond},
		"FairLockWaitTimeout 24h0m1s": {FairLockWaitTimeout: 24*time.Hour + time.Second},
	} {
		_, err := redisstore.New(client, c)
		require.ErrorContains(t, err, says)
	}
}

// All kinds of lock wait for their replicas.
func TestReplicasOfEveryKind(t *testing.T) {
	t.Parallel()
	master, _ := startReplicated(t)
	admin := master.Client(t)
	l := lockerOn(t, openWith(t, master.Client(t), redisstore.Config{Replicas: 1, ReplicaTimeout: time.Minute}), lock.Config{})
	for name, handle := range map[string]*lock.Mutex{
		"a":  l.Mutex("a"),
		"f":  l.Fair("f"),
		"rr": l.ReadWrite("rr").Read(),
		"rw": l.ReadWrite("rw").Write(),
	} {
		lease, err := handle.Lock(t.Context())
		require.NoError(t, err, name)
		next := make(chan *lock.Lease, 1)
		if name == "a" || name == "f" {
			asked := scripts(t, admin)
			go send(next, func() *lock.Lease {
				lease, err := handle.Lock(t.Context())
				assert.NoError(t, err)
				return lease
			})
			require.Eventually(t, func() bool { return scripts(t, admin) > asked }, time.Minute, time.Millisecond)
		}
		require.NoError(t, lease.Unlock(t.Context()), name)
		if name == "a" || name == "f" {
			require.NoError(t, (<-next).Unlock(t.Context()), name)
		}
	}
}

// A client that waits for replicas has its turn among others that do not, and leaves Redisson's
// theirs. What a release grants to it counts once the replicas have it.
func TestReplicasOfWhatAReleaseGrants(t *testing.T) {
	t.Parallel()
	master, replica := startReplicated(t)
	admin := master.Client(t)
	locker := func(c redisstore.Config) *lock.Locker {
		return lockerOn(t, openWith(t, master.Client(t), c), lock.Config{Poll: time.Hour})
	}
	careful, other := locker(redisstore.Config{Replicas: 1, ReplicaTimeout: time.Minute}), locker(redisstore.Config{})
	held, err := other.Mutex("a").Lock(t.Context())
	require.NoError(t, err)
	wait := func(l *lock.Locker, place int64) <-chan *lock.Lease {
		next := make(chan *lock.Lease, 1)
		go send(next, func() *lock.Lease {
			lease, err := l.Mutex("a").Lock(t.Context())
			assert.NoError(t, err)
			return lease
		})
		require.Eventually(t, func() bool {
			return admin.ZCard(t.Context(), "leasewheel_lock_line:{a}").Val() == place && blocked(t, admin) == "0"
		}, time.Minute, time.Millisecond)
		return next
	}
	first, second := wait(careful, 1), wait(other, 2)

	replica.Pause()
	require.NoError(t, held.Unlock(t.Context()))
	require.Eventually(t, func() bool { return blocked(t, admin) == "1" }, time.Minute, time.Millisecond)
	require.Empty(t, first, "no replica has the grant")
	require.Empty(t, second)
	replica.Resume()
	lease := <-first
	java := admin.Subscribe(t.Context(), "redisson_lock__channel:{a}")
	defer java.Close()
	_, err = java.Receive(t.Context()) // it is subscribed
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
	_, err = java.ReceiveTimeout(t.Context(), time.Minute)
	require.NoError(t, err, "every other release is left to clients without a place")
	require.NoError(t, (<-second).Unlock(t.Context()))
}

// A waiter that waits for replicas asks once more when a release has granted it the lock. It gets
// tokens for the next holders in its process, too.
func TestReserveOfWhatAReleaseGrants(t *testing.T) {
	t.Parallel()
	master, _ := startReplicated(t)
	admin := master.Client(t)
	careful := openWith(t, master.Client(t), redisstore.Config{Replicas: 1, ReplicaTimeout: time.Minute})
	other := open(t, master.Client(t))
	first, waiter := mutexOf("a", 1), mutexOf("a", 2)
	before := asks(t, other, first).Token
	waiter.Queue.Subscribed, waiter.Queue.Reserve = true, 100
	granted := make(chan driver.Notice, 1)
	subscription, err := careful.Subscribe(t.Context(), waiter, func(n driver.Notice) {
		select {
		case granted <- n:
		default:
		}
	})
	require.NoError(t, err)
	defer subscription.Close()
	require.Equal(t, driver.Refused, asks(t, careful, waiter).Verdict)
	_, err = other.Release(t.Context(), released(first))
	require.NoError(t, err)
	require.Equal(t, driver.Notice{}, <-granted)
	require.Equal(t, int64(1), admin.HLen(t.Context(), "a").Val(), "it has the lock")
	for range 2 { // the second is a request whose reply was lost
		awaitServerClock(t, admin, time.Millisecond) // in which tokens are free
		a := asks(t, careful, waiter)
		require.Equal(t, driver.Granted, a.Verdict)
		assert.Equal(t, int64(100), a.Reserved)
		require.Greater(t, a.Token, before)
		before = a.Token + a.Reserved
	}
	_, err = careful.Release(t.Context(), released(waiter))
	require.NoError(t, err)
	assert.Greater(t, asks(t, other, mutexOf("a", 3)).Token, before)
}

// blocked returns how many clients the server lets wait.
func blocked(t *testing.T, admin *redis.Client) string {
	return admin.InfoMap(t.Context(), "clients").Item("Clients", "blocked_clients")
}

// startReplicated starts a master with one replica.
func startReplicated(t *testing.T) (master, replica *redistest.Server) {
	t.Helper()
	master = redistest.Start(t, redistest.Config{TCP: true})
	_, address := master.Addr()
	replica = redistest.Start(t, redistest.Config{TCP: true, Directives: []string{"replicaof " + strings.Replace(address, ":", " ", 1)}})
	master.AwaitReplication(t, 1)
	return master, replica
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

// A grant that waits for replicas while its server becomes one itself, as in each failover, may be
// requested again.
func TestServerThatBecomesAReplica(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	require.Equal(t, driver.Granted, asks(t, open(t, server.Client(t)), heldFor(driver.KindMutex, 1)).Verdict) // it has the script
	store := openWith(t, server.Client(t), redisstore.Config{Replicas: 1, ReplicaTimeout: time.Hour})
	h := heldFor(driver.KindMutex, 2)
	h.Name = "b"
	failed := make(chan error, 1)
	go func() {
		_, err := store.Acquire(context.Background(), h)
		failed <- err
	}()
	require.Eventually(t, func() bool { return blocked(t, admin) == "1" }, time.Minute, time.Millisecond)
	require.NoError(t, admin.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	err := <-failed
	require.ErrorIs(t, err, redisstore.ErrReadOnly)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, driver.ErrNotDone, "it was granted")
}

// A repeated request, on another connection, waits for the replicas like the first one,
// which was granted without them.
func TestReplicasOfWhatIsGrantedAgain(t *testing.T) {
	t.Parallel()
	master, replica := startReplicated(t)
	admin := master.Client(t)
	giveCounts(t, admin)
	master.AwaitReplication(t, 1)
	replica.Pause() // its link is up, and it acknowledges no writes
	defer replica.Resume()
	for _, g := range grantings() {
		g.config.Replicas, g.config.ReplicaTimeout = 1, time.Millisecond
		for _, connection := range []string{"one", "another"} {
			store := openWith(t, master.Client(t), g.config)
			_, err := store.Acquire(t.Context(), g.hold)
			require.ErrorIs(t, err, redisstore.ErrUnreplicated, "%s, on %s connection", g.name, connection)
		}
	}
	assert.Equal(t, "4", admin.Get(t.Context(), driver.KindSemaphore.String()).Val(), "taken once")

	// What is refused needs no replica.
	other := heldFor(driver.KindMutex, 2)
	other.Name = driver.KindMutex.String()
	store := openWith(t, master.Client(t), redisstore.Config{Replicas: 1, ReplicaTimeout: time.Millisecond})
	assert.Equal(t, driver.Refused, asks(t, store, other).Verdict)
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

// While replicas do not answer, grants occupy as many connections as other requests do, and delay
// none of those. Grants that leave together are judged by what the replicas acknowledge.
func TestUnresponsiveReplicasDelayNothingElse(t *testing.T) {
	t.Parallel()
	master, replica := startReplicated(t)
	admin := master.Client(t)
	for _, format := range []redisstore.Format{redisstore.FormatRedisson, redisstore.FormatPlain} {
		store := openWith(t, master.Client(t), redisstore.Config{Format: format, Replicas: 1, ReplicaTimeout: time.Hour})
		const held, last = 0, 3 * redisstore.MaxInFlight
		lock := func(n int) *driver.Hold { return mutexOf(fmt.Sprint(format, n), n) }
		ctx, cancel := context.WithTimeout(t.Context(), answersWithin)
		defer cancel()
		_, err := store.Acquire(ctx, lock(held))
		require.NoError(t, err)
		replica.Pause()
		defer replica.Resume()
		errs := make(chan error, last)
		acquire := func() {
			for n := 1; n <= last; n++ {
				go func() {
					_, err := store.Acquire(ctx, lock(n))
					errs <- err
				}()
			}
		}
		acquire()
		blocked := func() (ids []int64) {
			list, err := admin.ClientList(t.Context()).Result()
			require.NoError(t, err)
			for line := range strings.Lines(list) {
				if id, rest, _ := strings.Cut(strings.TrimPrefix(line, "id="), " "); strings.Contains(rest, " cmd=wait ") && strings.Contains(rest, " flags=b ") {
					n, err := strconv.ParseInt(id, 10, 64)
					require.NoError(t, err)
					ids = append(ids, n)
				}
			}
			return ids
		}
		require.Eventually(t, func() bool { return len(blocked())+store.Waiting() == last }, answersWithin, time.Millisecond)
		require.Len(t, blocked(), redisstore.MaxInFlight)

		renewed := []renewal.Item{{Key: lock(held).Name, Owner: lock(held).Owner, Ref: driver.RefOf(lock(held)), TTL: longTTL}}
		store.Renew(ctx, renewed)
		assert.Equal(t, renewal.Renewed, renewed[0].Outcome, renewed[0].Err)
		done, err := store.Release(ctx, lock(held))
		require.NoError(t, err)
		assert.True(t, done)

		require.Empty(t, errs)
		require.Eventually(t, func() bool {
			for _, id := range blocked() { // as after ReplicaTimeout
				require.NoError(t, admin.ClientUnblock(t.Context(), id).Err())
			}
			return len(errs) == last
		}, answersWithin, time.Millisecond)
		for range last {
			require.ErrorIs(t, <-errs, redisstore.ErrUnreplicated)
		}
		replica.Resume()
		acquire()
		for range last {
			require.NoError(t, <-errs)
		}
	}
}

// The server may refuse the WAIT behind a grant alone, as one that has just become a replica: that is no
// proof that nothing was granted.
func TestRefusedWaitIsNoProofThatNothingWasDone(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	giveCounts(t, admin)
	for _, g := range grantings() { // the server has their scripts then
		asks(t, openWith(t, server.Client(t), g.config), g.hold)
	}
	require.NoError(t, admin.ConfigSet(t.Context(), "replica-serve-stale-data", "no").Err())
	for _, g := range grantings() {
		client := server.Client(t)
		client.AddHook(beforeWait(func() {
			require.NoError(t, admin.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
		}))
		g.config.Replicas, g.config.ReplicaTimeout = 1, time.Minute
		_, err := openWith(t, client, g.config).Acquire(t.Context(), g.hold)
		require.ErrorContains(t, err, "MASTERDOWN", g.name)
		require.ErrorIs(t, err, driver.ErrUnavailable, g.name)
		require.NotErrorIs(t, err, driver.ErrNotDone, "%s: it was granted", g.name)
		require.NoError(t, admin.Do(t.Context(), "replicaof", "no", "one").Err())
	}
}

// Where the WAIT behind a grant finds a replica, subscriptions of before may be on a former master.
func TestWaitOnAReplicaShowsTheDemotion(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	client := server.Client(t)
	client.AddHook(beforeWait(func() {
		require.NoError(t, admin.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	}))
	store := openWith(t, client, redisstore.Config{Replicas: 1, ReplicaTimeout: time.Minute})
	_, err := store.Acquire(t.Context(), mutexOf("a", 1))
	require.ErrorContains(t, err, "WAIT cannot be used with replica")
	require.NotErrorIs(t, err, driver.ErrNotDone)
	require.Eventually(t, func() bool { return store.Epoch() == 1 }, time.Minute, 10*time.Millisecond)
}

// beforeWait is a user's hook of a client that it calls between a pipeline and its WAIT.
type beforeWait func()

func (beforeWait) DialHook(next redis.DialHook) redis.DialHook { return next }

func (beforeWait) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f beforeWait) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		last := len(cmds) - 1
		if cmds[last].Name() != "wait" {
			return next(ctx, cmds)
		}
		if err := next(ctx, cmds[:last]); err != nil {
			return err
		}
		f()
		return next(ctx, cmds[last:])
	}
}

// Where an address leads to another master, as after FAILOVER behind a virtual address, connections to
// the former one go on: waiters are subscribed at the present one, whose releases count them. So it is
// with a client of several servers that are no cluster.
func TestWaitersFollowAnAddress(t *testing.T) {
	t.Parallel()
	for name, several := range map[string]bool{"one server": false, "several servers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master, replica := startReplicated(t)
			var leadsTo atomic.Pointer[redistest.Server]
			leadsTo.Store(master)
			single := following(t, *master.Options(), &leadsTo)
			var client redis.UniversalClient = single
			if several {
				client = slottedClient(t, single.Options().Dialer, false, master)
			}
			config := lock.Config{TTL: time.Hour, Poll: 100 * time.Millisecond}
			store := open(t, client)
			l := lockerOn(t, store, config)
			held, got := mustLock(t, locker(t, client, config), "a"), make(chan *lock.Lease, 1)
			former, present := master.Client(t), replica.Client(t)
			go send(got, func() *lock.Lease { return mustLock(t, l, "a") })
			awaitWaiter(t, former)
			host, port, _ := strings.Cut(replica.Options().Addr, ":")
			require.NoError(t, former.Do(t.Context(), "failover", "to", host, port).Err())
			require.Eventually(t, func() bool {
				return strings.Contains(former.Info(t.Context(), "replication").Val(), "role:slave")
			}, time.Minute, time.Millisecond)
			_, err := store.Acquire(t.Context(), mutexOf("b", 1)) // a client of several repeats a refused request by itself
			require.ErrorIs(t, err, redisstore.ErrReadOnly)
			leadsTo.Store(replica)
			awaitWaiter(t, present)
			require.NoError(t, held.Unlock(t.Context()))
			require.NoError(t, (<-got).Unlock(t.Context()))
		})
	}
}

// Sentinels may take a master for dead that goes on, as one that they alone cannot reach. Waiters are
// subscribed at the present one, whose releases count them.
func TestWaitersFollowTheSentinels(t *testing.T) {
	t.Parallel()
	former, present := redistest.Start(t, redistest.Config{TCP: true}), redistest.Start(t, redistest.Config{TCP: true})
	var named atomic.Pointer[redistest.Server]
	named.Store(former)
	options := *former.Options()
	options.Addr = "FailoverClient" // that of a client of sentinels
	options.ReadTimeout, options.WriteTimeout, options.DialTimeout = time.Minute, time.Minute, 2*time.Minute
	client := following(t, options, &named)
	config := lock.Config{TTL: time.Hour, Poll: 100 * time.Millisecond}
	mine, theirs := locker(t, client, config), locker(t, present.Client(t), config)
	_, err := locker(t, former.Client(t), config).Mutex("a").Lock(t.Context())
	require.NoError(t, err)
	held, got := mustLock(t, theirs, "a"), make(chan *lock.Lease, 1)
	before, after := former.Client(t), present.Client(t)
	go send(got, func() *lock.Lease { return mustLock(t, mine, "a") })
	awaitWaiter(t, before)

	named.Store(present)
	require.NoError(t, before.Do(t.Context(), "client", "kill", "type", "normal").Err()) // as go-redis does then
	awaitWaiter(t, after)
	require.NoError(t, held.Unlock(t.Context()))
	require.NoError(t, (<-got).Unlock(t.Context()))
}

// A client as redis.NewFailoverClusterClient makes it, which reads from replicas, subscribes at the master:
// the scripts there count the subscribers.
func TestReaderOfReplicasWaitsAtTheMaster(t *testing.T) {
	t.Parallel()
	master, replica := startReplicated(t)
	client := slottedClient(t, nil, true, master, replica)
	config := lock.Config{TTL: time.Hour, Poll: time.Hour}
	l, got := locker(t, client, config), make(chan *lock.Lease, 1)
	held := mustLock(t, locker(t, client, config), "a")
	go send(got, func() *lock.Lease { return mustLock(t, l, "a") })
	awaitWaiter(t, master.Client(t))
	require.NoError(t, held.Unlock(t.Context()))
	require.NoError(t, (<-got).Unlock(t.Context()))
}

// A client of several servers that are no cluster subscribes at the server of each lock.
func TestClientOfSeveralServersWaitsAtEach(t *testing.T) {
	t.Parallel()
	client := slottedClient(t, nil, false, redistest.Start(t, redistest.Config{TCP: true}), redistest.Start(t, redistest.Config{TCP: true}))
	config := lock.Config{TTL: time.Hour, Poll: time.Hour}
	from, to := locker(t, client, config), locker(t, client, config)
	for _, name := range []string{"a", "b", "c", "d"} { // two of them on each server
		handsOver(t, name, from, to, func() { awaitEnqueued(t, client, name) })
	}
}

// slottedClient returns a client of a cluster that no server knows: of a master and its replicas, or of
// servers that share the slots evenly.
func slottedClient(t *testing.T, dialer func(context.Context, string, string) (net.Conn, error), replicas bool, servers ...*redistest.Server) *redis.ClusterClient {
	t.Helper()
	var slots []redis.ClusterSlot
	for i, server := range servers {
		node := redis.ClusterNode{Addr: server.Options().Addr}
		if i > 0 && replicas {
			slots[0].Nodes = append(slots[0].Nodes, node)
			continue
		}
		slots = append(slots, redis.ClusterSlot{Start: i * 16384 / len(servers), End: (i+1)*16384/len(servers) - 1, Nodes: []redis.ClusterNode{node}})
	}
	if replicas {
		slots[0].End = 16383
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Dialer: dialer, ReadOnly: replicas, ContextTimeoutEnabled: true,
		DialTimeout: answersWithin, ReadTimeout: answersWithin, WriteTimeout: answersWithin, PoolTimeout: answersWithin,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return slots, nil },
	})
	t.Cleanup(func() { _ = client.Close() }) // behind the lockers
	return client
}

// following returns a client whose connections lead to a server that may change.
func following(t *testing.T, options redis.Options, server *atomic.Pointer[redistest.Server]) *redis.Client {
	t.Helper()
	options.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		network, address := server.Load().Addr()
		return d.DialContext(ctx, network, address)
	}
	client := redis.NewClient(&options)
	t.Cleanup(func() { _ = client.Close() }) // behind the lockers
	return client
}

// awaitWaiter waits until a server has a subscription of a waiter for the mutex "a".
func awaitWaiter(t *testing.T, on *redis.Client) {
	t.Helper()
	const channel = "leasewheel_lock__channel:{a}"
	require.Eventually(t, func() bool {
		return on.PubSubNumSub(t.Context(), channel).Val()[channel] == 1
	}, time.Minute, time.Millisecond)
}
