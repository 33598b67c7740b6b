package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// A request that reaches the server after its caller gave up changes nothing there.
func TestLateRequestChangesNothing(t *testing.T) {
	t.Parallel()
	const owner = "00000000-0000-4000-8000-000000000001:1"
	hold := func(kind lock.Kind, wait time.Duration) *lock.Hold {
		h := &lock.Hold{Kind: kind, Name: "a", Owner: owner, Count: 1, TTL: time.Minute, Wait: wait}
		switch kind {
		case lock.KindPermit:
			h.Owner = strings.Repeat("ab", 16)
		case lock.KindSemaphore:
			h.Permits = 1
		}
		return h
	}
	held := func(ctx context.Context, admin *redis.Client) {
		admin.HSet(ctx, "a", "00000000-0000-4000-8000-000000000002:1", 1)
		admin.PExpire(ctx, "a", time.Hour)
	}
	counted := func(ctx context.Context, admin *redis.Client) { admin.Set(ctx, "a", 3, 0) }
	acquires := func(h *lock.Hold) func(context.Context, *redisstore.Store) error {
		return func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Acquire(ctx, h)
			return err
		}
	}
	none := func(context.Context, *redis.Client) {}
	for _, c := range []struct {
		name   string
		format redisstore.Format
		before func(context.Context, *redis.Client)
		late   func(context.Context, *redisstore.Store) error
	}{
		{"Mutex", redisstore.FormatRedisson, none, acquires(hold(lock.KindMutex, 0))},
		{"MutexQueued", redisstore.FormatRedisson, held, acquires(hold(lock.KindMutex, time.Minute))},
		{"Plain", redisstore.FormatPlain, none, acquires(hold(lock.KindMutex, 0))},
		{"Fair", redisstore.FormatRedisson, none, acquires(hold(lock.KindFair, time.Minute))},
		{"FairQueued", redisstore.FormatRedisson, held, acquires(hold(lock.KindFair, time.Minute))},
		{"Read", redisstore.FormatRedisson, none, acquires(hold(lock.KindRead, 0))},
		{"Write", redisstore.FormatRedisson, none, acquires(hold(lock.KindWrite, time.Minute))},
		{"Semaphore", redisstore.FormatRedisson, counted, acquires(hold(lock.KindSemaphore, 0))},
		{"Permit", redisstore.FormatRedisson, counted, acquires(hold(lock.KindPermit, 0))},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config{})
			wire := redistest.StartProxy(t, server)
			admin := server.Client(t)
			store, err := redisstore.New(wire.Client(t), redisstore.Config{Format: c.format})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, store.Close()) })
			c.before(t.Context(), admin)
			// The store has read the server's clock, and the server knows the script.
			require.NoError(t, c.late(t.Context(), store))
			require.NoError(t, admin.FlushDB(t.Context()).Err())
			c.before(t.Context(), admin)
			before, ran := contents(t, admin), scripts(t, admin)

			wire.Set(redistest.Fault{Requests: redistest.Hold})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, c.late(ctx, store), lock.ErrUnavailable)
			time.Sleep(time.Second) // the estimate of the server's clock errs by less
			wire.Heal()
			require.Eventually(t, func() bool { return scripts(t, admin) > ran }, 20*time.Second, time.Millisecond)
			assert.Equal(t, before, contents(t, admin))
		})
	}
}

// contents returns what every key of the server holds.
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
