package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// One server under several names has one vote, and is refused with the rights that
// locks need: those that SECURITY.md describes, without INFO.
func TestOneServerUnderSeveralNamesIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	admin := server.Client(t)
	rights := []any{"acl", "setuser", "leasewheel", "on", ">secret", "resetkeys", "resetchannels", "-@all",
		"~orders:*", "~redisson_*:{orders:*", "~leasewheel_lock_*:{orders:*", "~leasewheel:client:*",
		"&redisson_lock__channel:{orders:*", "&leasewheel_lock__channel:{orders:*",
		"+hello", "+ping", "+eval", "+evalsha", "+subscribe", "+unsubscribe",
		"+hget", "+hset", "+hdel", "+hexists", "+hrandfield", "+get", "+set", "+exists", "+pexpire", "+pttl", "+time", "+publish",
		"+zadd", "+zpopmin", "+zrem", "+zscore", "+pubsub|numsub"}
	require.NoError(t, admin.Do(t.Context(), rights...).Err())
	var clients []redis.UniversalClient
	for range 3 {
		options := redistest.StartProxy(t, server).Options()
		options.Username, options.Password = "leasewheel", "secret"
		client := redis.NewClient(options)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		clients = append(clients, client)
	}
	l := locker(t, assemble(t, patient, clients...), lock.Config{TTL: time.Hour, RequestTimeout: time.Minute})
	_, err := l.Mutex("orders:1").Lock(t.Context())
	require.ErrorContains(t, err, "one server under two names")
	require.ErrorIs(t, err, quorum.ErrSameServer)
	require.NotErrorIs(t, err, driver.ErrUnavailable, "it does not pass by itself")
	require.Eventually(t, func() bool { return admin.Exists(t.Context(), "orders:1").Val() == 0 }, time.Minute, time.Millisecond)
}

// A server that is two nodes of five has one vote, and is detected although the others
// are a majority.
func TestTwinAmongOthersIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(4)
		stores = append(stores, &alias{all[0]})
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		var err error
		for i := 0; i < 2 && err == nil; i++ { // the first may be granted before all have answered
			h := hold("me:1")
			_, err = store.Acquire(t.Context(), h)
			synctest.Wait()
			h.Count = 0
			_, _ = store.Release(t.Context(), h)
			synctest.Wait()
		}
		require.ErrorIs(t, err, quorum.ErrSameServer)
		require.ErrorContains(t, err, "nodes 0 and 4")
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		pass(nodeTimeout)
		assert.Zero(t, holders(all, "a"))

		// Without a majority of servers there is none of nodes.
		for _, b := range all[1:3] {
			b.set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		}
		_, err = store.Acquire(t.Context(), hold("me:2"))
		require.Error(t, err)
	})
}

// alias is another name of a booth.
type alias struct{ *booth }

// Contenders that split the nodes are not taken for one server under two names.
func TestContendersAreNoTwins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		for i, b := range all {
			b.give("a", "other"+string(rune('a'+i))+":1", ttl)
		}
		all[0].give("a", "other:1", time.Nanosecond)
		time.Sleep(time.Millisecond)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		for range 3 {
			answer, err := store.Acquire(t.Context(), hold("me:1"))
			require.NoError(t, err)
			require.Equal(t, driver.Refused, answer.Verdict)
			synctest.Wait()
		}
		pass(2 * ttl)
		answer, err := store.Acquire(t.Context(), hold("me:1"))
		require.NoError(t, err)
		require.Equal(t, driver.Granted, answer.Verdict)
	})
}

// Two databases of one server have no keys in common that would reveal it.
func TestDatabasesOfOneServerAreRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	var nodes []driver.Store
	for db := range 3 {
		options := server.Options()
		options.DB = db
		client := redis.NewClient(options)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		node, err := redisstore.New(client, redisstore.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, node.Close()) })
		nodes = append(nodes, node)
	}
	_, err := quorum.New(nodes, quorum.Config{})
	require.ErrorContains(t, err, "stores 0 and 1 use databases 0 and 1")
}

// A server whose second name is slow is detected, although it grants a lock under that name once the
// caller has released it, and although each comparison of the two names ends after the release.
func TestSlowTwinIsFound(t *testing.T) {
	for name, test := range map[string]struct {
		twin func(*alias) driver.Store
		held time.Duration
	}{
		"grants late":   {twin: func(a *alias) driver.Store { return slow{a} }},
		"compares late": {twin: func(a *alias) driver.Store { return slowComparison{a} }, held: 2 * time.Millisecond}, // it has begun
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, stores := booths(2)
				stores = append(stores, test.twin(&alias{all[0]}))
				store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
				cycle := func() error {
					h := hold("me:1")
					_, err := store.Acquire(t.Context(), h)
					pass(test.held)
					h.Count = 0
					_, _ = store.Release(t.Context(), h)
					pass(nodeTimeout)
					return err
				}
				for range 3 {
					require.NoError(t, cycle(), "by the two others")
				}
				all[1].set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
				require.ErrorIs(t, cycle(), quorum.ErrSameServer)
			})
		})
	}
}

// slowComparison is a store that answers acquisitions last, and whose comparisons with another take a
// while to arrive.
type slowComparison struct{ *alias }

func (s slowComparison) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (driver.Answer, time.Time, error) {
	time.Sleep(time.Millisecond)
	return s.alias.AcquireProposing(ctx, h, token)
}

func (s slowComparison) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	time.Sleep(nodeTimeout / 2)
	return s.alias.Acquire(ctx, h)
}

// Two names of one server that become two servers are two votes again.
func TestTwinThatIsNoneAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		moving := &alias{all[0]}
		stores[2] = moving
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		all[1].set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		_, err := store.Acquire(t.Context(), hold("me:1"))
		require.ErrorIs(t, err, quorum.ErrSameServer)
		pass(time.Second)
		moving.booth = all[2]
		granted(t, store, hold("me:2"))
		require.Equal(t, 2, holders(all, "a"))
	})
}

// slow is a store whose acquisitions take a while to arrive.
type slow struct{ *alias }

func (s slow) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (driver.Answer, time.Time, error) {
	time.Sleep(nodeTimeout / 2)
	return s.alias.AcquireProposing(ctx, h, token)
}
