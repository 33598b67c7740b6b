package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// redissonLatch behaves on the wire like a client of Redisson's latch.
type redissonLatch struct{ redissonCount }

func newRedissonLatch(t *testing.T, s *redistest.Server, name string) *redissonLatch {
	return &redissonLatch{redissonCount{t, s.Client(t), []string{name, "redisson_countdownlatch__channel__{" + name + "}"}}}
}

func (r *redissonLatch) trySetCount(n int64) bool {
	r.Helper()
	return r.create(n, 1)
}

func (r *redissonLatch) countDown() {
	r.Helper()
	r.run(`
		local left = redis.call('decr', KEYS[1])
		if left <= 0 then
			redis.call('del', KEYS[1])
		end
		if left == 0 then
			redis.call('publish', KEYS[2], 0)
		end
		return left`)
}

func (r *redissonLatch) delete() bool {
	r.Helper()
	return r.run(`
		if redis.call('del', KEYS[1]) == 0 then
			return 0
		end
		redis.call('publish', KEYS[2], 1)
		return 1`) == 1
}

func TestLatchWireFormat(t *testing.T) {
	t.Parallel()
	eachName(t, func(t *testing.T, server *redistest.Server, name string) {
		admin := server.Client(t)
		r := newRedissonLatch(t, server, name)
		message := listening(t, admin, r.keys[1])
		l := locker(t, server.Client(t), lock.Config{Poll: time.Hour}).Latch(name)
		count := func() string { return admin.Get(t.Context(), name).Val() }

		_, err := l.TrySetCount(t.Context(), 2)
		require.NoError(t, err)
		assert.Equal(t, "2", count())
		assert.Equal(t, "1", message(), "there is a count")
		require.NoError(t, l.CountDown(t.Context()))
		assert.Equal(t, "1", count())
		require.NoError(t, l.CountDown(t.Context()))
		assert.Equal(t, "0", message(), "it is zero, of which alone is told")
		assert.Zero(t, admin.Exists(t.Context(), name).Val())
		_, err = l.TrySetCount(t.Context(), 3)
		require.NoError(t, err)
		assert.Equal(t, "1", message())
		_, err = l.Delete(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "0", message(), "it was deleted, which opens it")

		tag := "{" + name + "}"
		if strings.Contains(name, "{") {
			tag = name
		}
		assert.Empty(t, keysBut(t, admin, "leasewheel_request:"+tag+":"))
	})
}

func TestSharesLatchesWithRedisson(t *testing.T) {
	t.Parallel()
	eachName(t, func(t *testing.T, server *redistest.Server, name string) {
		admin := server.Client(t)
		r := newRedissonLatch(t, server, name)
		l := locker(t, server.Client(t), lock.Config{Poll: time.Hour}).Latch(name)
		opened := make(chan error)
		waits := func() {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				opened <- l.Wait(ctx)
			}()
			awaitSubscribers(t, admin, r.keys[1], 1)
		}
		require.True(t, r.trySetCount(2))
		first, err := l.TrySetCount(t.Context(), 9)
		require.NoError(t, err)
		assert.False(t, first)
		waits()
		require.NoError(t, l.CountDown(t.Context()))
		r.countDown()
		require.NoError(t, <-opened)

		r.countDown() // of an open latch
		first, err = l.TrySetCount(t.Context(), 5)
		require.NoError(t, err)
		assert.True(t, first)
		assert.False(t, r.trySetCount(9))
		waits()
		assert.True(t, r.delete())
		require.NoError(t, <-opened)

		require.True(t, r.trySetCount(0)) // which leaves a key
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, l.Wait(ctx), "a count of zero is open")
	})
}

// In a cluster, the channel of a latch whose name has a hash tag has that tag.
func TestClusterLatchWithATag(t *testing.T) {
	t.Parallel()
	cluster := sharedCluster(t)
	mine, theirs := locker(t, patientClient(t, cluster), lock.Config{Poll: time.Hour}), locker(t, patientClient(t, cluster), lock.Config{Poll: time.Hour})
	for _, name := range []string{"{latch:7}:cart", "{a}b", "b:{c}:d", "plain"} {
		l := mine.Latch(name)
		first, err := l.TrySetCount(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, first)
		opened := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			opened <- theirs.Latch(name).Wait(ctx)
		}()
		channel := "redisson_countdownlatch__channel__" + name
		if !strings.Contains(name, "{") {
			channel = "redisson_countdownlatch__channel__{" + name + "}"
		}
		master := cluster.Owner(t, name).Client(t)
		require.Eventually(t, func() bool {
			return master.PubSubShardNumSub(t.Context(), channel).Val()[channel] == 1
		}, time.Minute, 5*time.Millisecond)
		require.NoError(t, l.CountDown(t.Context()))
		require.NoError(t, <-opened, name)
	}
}
