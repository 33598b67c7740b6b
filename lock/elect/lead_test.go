package elect_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/wheel"
)

// run stands for election with lead until the test ends Run's context. The result is sent to
// the returned channel.
func run(ctx context.Context, e *elect.Election, lead func(context.Context, int64) error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- e.Run(ctx, lead) }()
	return result
}

// The candidate whose function is at work is the leader. The others are not, and none is
// before the election and after it.
func TestIsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		first := elect.New(server.Locker(t, lock.Config{}), "leader", lock.Options{})
		second := elect.New(server.Locker(t, lock.Config{}), "leader", lock.Options{})
		require.False(t, first.IsLeader())
		resign := make(chan struct{})
		lead := func(context.Context, int64) error { <-resign; return nil }
		firstEnded := run(t.Context(), first, lead)
		synctest.Wait()
		secondEnded := run(t.Context(), second, lead)
		synctest.Wait()
		require.True(t, first.IsLeader())
		require.False(t, second.IsLeader())
		time.Sleep(time.Hour)
		require.True(t, first.IsLeader(), "the lease is renewed")

		resign <- struct{}{}
		require.NoError(t, <-firstEnded)
		require.False(t, first.IsLeader())
		synctest.Wait()
		require.True(t, second.IsLeader())
		resign <- struct{}{}
		require.NoError(t, <-secondEnded)
		require.False(t, second.IsLeader())
	})
}

// In an outage a candidate is no leader from the instant at which its lease cannot be trusted,
// before the watchdog notices that at its next tick, and whatever its function does.
func TestIsLeaderUntilTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		slow, err := wheel.New(wheel.Config{Tick: 2 * time.Second})
		require.NoError(t, err)
		defer slow.Stop()
		l := server.Locker(t, lock.Config{TTL: 30 * time.Second, Wheel: slow})
		defer func() { require.NoError(t, l.Close()) }()
		e := elect.New(l, "leader", lock.Options{})
		resign := make(chan struct{})
		ended := run(t.Context(), e, func(context.Context, int64) error { <-resign; return nil })
		leads, _, err := e.Await(t.Context())
		require.NoError(t, err)
		server.Disconnect()
		for e.IsLeader() {
			time.Sleep(time.Millisecond)
		}
		assert.NoError(t, leads.Err(), "the tick is not yet")
		<-leads.Done()
		require.ErrorIs(t, context.Cause(leads), lock.ErrLost)
		server.Reconnect()
		time.Sleep(time.Hour)
		require.False(t, e.IsLeader(), "its function is still at work for the lost term")
		close(resign)
		require.NoError(t, <-ended, "elected again, and the function returns at once")
	})
}

// Await follows the leaderships of a candidate: each has a context that ends with it, with the
// cause, and a larger term.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{})
		e := elect.New(l, "leader", lock.Options{})
		limited, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errWork)
		defer cancel()
		_, _, err := e.Await(limited)
		require.Equal(t, errWork, err, "it does not lead")

		var followers sync.WaitGroup
		for range 2 { // both wait for the first leadership
			followers.Go(func() {
				limited, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, _, err := e.Await(limited)
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		resign := make(chan error)
		ctx, stop := context.WithCancel(t.Context())
		ended := run(ctx, e, func(ctx context.Context, _ int64) error {
			select {
			case err := <-resign:
				return err
			case <-ctx.Done():
				return nil
			}
		})
		last := int64(0)
		next := func() context.Context {
			t.Helper()
			leads, term, err := e.Await(t.Context())
			require.NoError(t, err)
			require.NoError(t, leads.Err())
			require.Greater(t, term, last)
			require.True(t, e.IsLeader())
			again, same, err := e.Await(t.Context())
			require.NoError(t, err)
			require.Equal(t, leads, again, "the same leadership")
			require.Equal(t, term, same)
			last = term
			return leads
		}
		leads := next()
		followers.Wait()
		resign <- elect.ErrResign
		<-leads.Done()
		require.Equal(t, lock.ErrReleased, context.Cause(leads))

		leads = next()
		_, err = l.ForceRelease(t.Context(), "leader")
		require.NoError(t, err)
		<-leads.Done()
		require.ErrorIs(t, context.Cause(leads), lock.ErrLost)
		lost := time.Now()
		leads = next()
		require.Less(t, time.Since(lost), time.Second, "after a loss it stands again at once")
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		<-leads.Done()
		require.Equal(t, lock.ErrReleased, context.Cause(leads))
		require.False(t, e.IsLeader())
		_, _, err = e.Await(ctx)
		require.ErrorIs(t, err, context.Canceled, "Run has returned")
	})
}

// A leadership has ended for those who follow it before another candidate can be elected, and
// a lock that they acquire by its context is no second hold of the leader's.
func TestLeadershipEndsBeforeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		first := elect.New(server.Locker(t, lock.Config{}), "leader", lock.Options{})
		second := elect.New(server.Locker(t, lock.Config{}), "leader", lock.Options{})
		ctx, stop := context.WithCancel(t.Context())
		firstEnded := run(ctx, first, func(ctx context.Context, _ int64) error { <-ctx.Done(); return nil })
		leads, _, err := first.Await(t.Context())
		require.NoError(t, err)
		server.Freeze() // the release is under way until the thaw
		stop()
		synctest.Wait()
		require.Equal(t, lock.ErrReleased, context.Cause(leads))
		require.False(t, first.IsLeader())
		server.Thaw()
		require.ErrorIs(t, <-firstEnded, context.Canceled)
		require.NoError(t, second.Run(t.Context(), func(context.Context, int64) error {
			require.ErrorIs(t, context.Cause(leads), lock.ErrReleased)
			return nil
		}))

		l := server.Locker(t, lock.Config{})
		third := elect.New(l, "leader", lock.Options{})
		require.NoError(t, third.Run(t.Context(), func(context.Context, int64) error {
			leads, _, err := third.Await(t.Context())
			require.NoError(t, err)
			_, err = l.Mutex("leader").TryLock(leads)
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			return nil
		}))
	})
}

// A follower that does not look for a while delays no election, and finds the leadership of
// the moment.
func TestSlowFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := elect.New(locktest.New(t, lock.Config{}), "leader", lock.Options{})
		var terms, latest atomic.Int64
		ended := run(t.Context(), e, func(_ context.Context, term int64) error {
			latest.Store(term)
			switch n := terms.Add(1); {
			case n == 1: // which the follower is sure to see
				time.Sleep(time.Minute)
				return elect.ErrResign
			case n < 100:
				return elect.ErrResign
			}
			time.Sleep(time.Hour)
			return errWork
		})
		leads, _, err := e.Await(t.Context())
		require.NoError(t, err)
		time.Sleep(30 * time.Minute)
		require.Error(t, leads.Err())
		leads, term, err := e.Await(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 100, terms.Load())
		assert.Equal(t, latest.Load(), term)
		require.Equal(t, errWork, <-ended)
		<-leads.Done()
	})
}

// A context that has ended ends a loop of Await, though the leadership goes on.
func TestAwaitAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := elect.New(locktest.New(t, lock.Config{}), "scheduler", lock.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, e.Run(t.Context(), func(context.Context, int64) error {
			_, _, err := e.Await(ctx)
			require.NoError(t, err)
			cancel()
			_, _, err = e.Await(ctx)
			require.ErrorIs(t, err, context.Canceled)
			return nil
		}))
	})
}
