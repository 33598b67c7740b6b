package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Requests of many goroutines travel together: far fewer commands than requests, and
// each has its own answer. What is wrong with one is nothing to the others.
func TestRequestsTravelTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	admin := server.Client(t)
	store := open(t, server.Client(t))
	require.NoError(t, admin.Set(t.Context(), "foreign", "x", 0).Err())
	const goroutines, rounds = 100, 20
	hold := func(g, count int64) *lock.Hold {
		return &lock.Hold{Name: fmt.Sprintf("lock %d", g), Owner: fmt.Sprintf("client:%d", g), Count: count, TTL: time.Minute}
	}
	before := scripts(t, admin)
	var work sync.WaitGroup
	for g := range int64(goroutines) {
		work.Go(func() {
			for range rounds {
				granted, err := store.Acquire(t.Context(), hold(g, 1))
				assert.NoError(t, err)
				assert.Equal(t, lock.Granted, granted.Verdict)
				theirs := hold(g, 1)
				theirs.Owner = "other:1"
				refused, err := store.Acquire(t.Context(), theirs)
				assert.NoError(t, err)
				assert.Equal(t, lock.Refused, refused.Verdict)
				theirs.Name = "foreign"
				foreign, err := store.Acquire(t.Context(), theirs)
				assert.NoError(t, err)
				assert.True(t, foreign.Foreign)
				held, err := store.Release(t.Context(), hold(g, 0))
				assert.NoError(t, err)
				assert.True(t, held)
			}
		})
	}
	work.Wait()
	assert.Less(t, scripts(t, admin)-before, int64(goroutines*rounds*4/3))
}

// A request that is given up before it was sent was certainly not carried out; while
// others wait for a mute server, each waits as long as its own context allows.
func TestRequestsThatWaitForAFlight(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	wire := redistest.StartProxy(t, server)
	store := open(t, wire.Client(t))
	require.NoError(t, store.Ping(t.Context()))
	wire.Set(redistest.Fault{Replies: redistest.Drop})
	ask := func(owner string, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := store.Acquire(ctx, &lock.Hold{Name: "a" + owner, Owner: owner, Count: 1, TTL: time.Minute})
		return err
	}
	var work sync.WaitGroup
	for i := range 10 {
		work.Go(func() { assert.ErrorIs(t, ask(fmt.Sprintf("busy:%d", i), 2*time.Second), lock.ErrUnavailable) })
	}
	time.Sleep(200 * time.Millisecond) // all flights are under way
	begin := time.Now()
	err := ask("late:1", 100*time.Millisecond)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.ErrorIs(t, err, lock.ErrNotDone)
	assert.Less(t, time.Since(begin), time.Second)
	work.Wait()
	wire.Heal()
	require.Eventually(t, func() bool { return ask("late:2", time.Second) == nil }, 10*time.Second, 10*time.Millisecond)
	assert.Zero(t, server.Client(t).Exists(t.Context(), "alate:1").Val())
}
